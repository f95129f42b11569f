/*
 * link/record_send.h
 *		A region worker ships the turn records of its shards with replicas to their backups (Q6, Q7).
 *
 * Per backup one connection of its own, beside that of rows, and one call of shard_peer.store at a time. Which shards there are, and what
 * each backup is known to have, is in entity/replica_home.h; the records are read back from the log.
 */
#pragma once

#include "shared/shmem.h"

/* At start of a region worker. */
extern void shard_record_send_start(ShardDatabase *db, int worker);

/*
 * Between turns, no transaction open, when the transport may speak (link/transport.c calls it): opens connections, takes answers,
 * ships what is past the gate. Cheap without shards that have replicas. True: something was released. Errors end in the log,
 * once for a run of the same kind.
 */
extern bool shard_record_send_run(void);

/* Whether there is anything to do, or a connection open. */
extern bool shard_record_send_wants(void);

/* Closes all connections: the node is another one, or must not speak. */
extern void shard_record_send_close(void);

/* When it has to run again, in ms; -1: when something happens. */
extern long shard_record_send_due(void);
