/*
 * link/way_back.c
 *		What a node that wants to join and its seed say before, as bytes.
 *
 * The version comes first and never changes its form; what follows belongs to that version.
 */
#include "postgres.h"

#include "mb/pg_wchar.h"

#include "link/way_back.h"

#include "base/compat.h"

/*
 * A copy, in the current memory context. What is no text of this database fails the reader.
 */
static const char *
get_text(ShardReader *reader)
{
	size_t length;
	const char *bytes = shard_wire_get_bytes(reader, &length);

	if (!reader->failed && !pg_verifymbstr(bytes, (int) length, true))
		reader->failed = true;
	return reader->failed ? "" : pnstrdup(bytes, length);
}

static bool
is_whole(const ShardReader *reader)
{
	return !reader->failed && reader->at == reader->end;
}

void
shard_way_back_put_call(StringInfo out, const ShardWayBackCall *call)
{
	shard_wire_put_text(out, call->seed);
	shard_wire_put_text(out, call->dsn);
	shard_wire_put_text(out, call->rest);
	shard_wire_put_text(out, call->socket);
}

bool
shard_way_back_get_call(ShardReader *reader, ShardWayBackCall *call)
{
	call->seed = get_text(reader);
	call->dsn = get_text(reader);
	call->rest = get_text(reader);
	call->socket = get_text(reader);
	return is_whole(reader);
}

void
shard_way_back_put(StringInfo out, const ShardWayBack *back)
{
	shard_wire_put_int(out, back->protocol_version);
	shard_wire_put_text(out, back->encoding);
	shard_wire_put_text(out, back->dsn);
	shard_wire_put_uint(out, back->known ? 1 : 0);
	if (back->known)
		shard_who_put(out, &back->seed);
	shard_wire_put_uint(out, back->found ? 1 : 0);
	if (back->found)
		shard_who_put(out, &back->there);
}

/*
 * Of another protocol version only that is read.
 */
bool
shard_way_back_get(ShardReader *reader, ShardWayBack *back)
{
	memset(back, 0, sizeof(ShardWayBack));
	back->protocol_version = shard_wire_get_int32(reader);
	if (reader->failed || back->protocol_version != SHARD_PROTOCOL_VERSION)
		return !reader->failed;
	back->encoding = get_text(reader);
	back->dsn = get_text(reader);
	back->known = shard_wire_get_uint(reader) != 0;
	if (back->known && !shard_who_get(reader, &back->seed))
		return false;
	back->found = shard_wire_get_uint(reader) != 0;
	if (back->found && !shard_who_get(reader, &back->there))
		return false;
	return is_whole(reader);
}
