/*
 * core/map/who.c
 *		What a node says of its identity, as bytes.
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "core/map/who.h"

void
shard_who_put(StringInfo out, const ShardWho *who)
{
	shard_wire_put_uuid(out, who->cluster);
	shard_wire_put_int(out, who->node);
	shard_wire_put_int(out, who->inc_no);
	shard_wire_put_uuid(out, who->incarnation);
}

bool
shard_who_get(ShardReader *reader, ShardWho *who)
{
	who->cluster = shard_wire_get_uuid(reader);
	who->node = shard_wire_get_int32(reader);
	who->inc_no = shard_wire_get_int32(reader);
	who->incarnation = shard_wire_get_uuid(reader);
	return !reader->failed;
}
