/*
 * node.h
 *		Who this database is: table shard.node (doc/protocol.md section 1).
 */
#pragma once

#include "shmem.h"

/*
 * Whether this is the database that shard.node describes: not a copy made by
 * CREATE DATABASE or pg_restore, nor another server (I2). If it is not, says so
 * once in the log and in db->paused; nothing may be handled then. Needs a
 * snapshot.
 */
extern bool shard_node_is_clear(ShardDatabase *db);
