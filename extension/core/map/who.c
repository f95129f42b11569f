/*
 * core/map/who.c
 *		Who a node says it is, as bytes.
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
	shard_wire_put_uint(out, who->cluster.high);
	shard_wire_put_uint(out, who->cluster.low);
	shard_wire_put_int(out, who->node);
	shard_wire_put_int(out, who->inc_no);
	shard_wire_put_uint(out, who->incarnation.high);
	shard_wire_put_uint(out, who->incarnation.low);
}

bool
shard_who_get(ShardReader *reader, ShardWho *who)
{
	who->cluster.high = shard_wire_get_uint(reader);
	who->cluster.low = shard_wire_get_uint(reader);
	who->node = shard_wire_get_int32(reader);
	who->inc_no = shard_wire_get_int32(reader);
	who->incarnation.high = shard_wire_get_uint(reader);
	who->incarnation.low = shard_wire_get_uint(reader);
	return !reader->failed;
}
