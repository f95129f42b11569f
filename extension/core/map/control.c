/*
 * core/map/control.c
 *		Messages of the control plane: what nodes say to one another beside the streams.
 *
 * One table names the fields in their order, which is the order on the wire and of the bits in the
 * bitmap: fields are added at its end and never change their place. A decoder takes nothing on
 * trust: a list is made only after its length was compared with the bytes that are left and with the
 * most that there can be, so memory is bounded by the size of what arrived, and a bit that this version does not know fails the whole
 * message. Whether a text is valid in the database's encoding is the host's question.
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "core/map/control.h"

typedef enum FieldForm
{
	FORM_INT32,
	FORM_INT64,
	FORM_BOOL, /* the bit says it all */
	FORM_UUID,
	FORM_POINT,
	FORM_TEXT,
	FORM_ENTRIES,
	FORM_SHARDS,
	FORM_NODES
} FieldForm;

/* A field; lists have their count at a second place. */
typedef struct Field
{
	FieldForm form;
	size_t at;
	size_t count_at;
} Field;

#define AT(field) offsetof(ShardControl, field)

/* The header's come first: shard_control_decode_header(). */

static const Field all_fields[] = {
	{FORM_UUID, AT(cluster), 0},
	{FORM_INT32, AT(era), 0},
	{FORM_INT32, AT(protocol_version), 0},
	{FORM_INT32, AT(from), 0},
	{FORM_INT32, AT(from_inc), 0},
	{FORM_INT32, AT(to), 0},
	{FORM_INT32, AT(to_inc), 0},
	{FORM_INT64, AT(b), 0},
	{FORM_INT64, AT(ballot), 0},
	{FORM_POINT, AT(any_point), 0},
	{FORM_INT64, AT(any_n), 0},
	{FORM_INT64, AT(commit_n), 0},
	{FORM_INT64, AT(token), 0},
	{FORM_BOOL, AT(flag), 0},
	{FORM_INT32, AT(node), 0},
	{FORM_INT32, AT(word1), 0},
	{FORM_INT32, AT(word2), 0},
	{FORM_INT32, AT(type_id), 0},
	{FORM_UUID, AT(uuid), 0},
	{FORM_UUID, AT(uuid2), 0},
	{FORM_TEXT, AT(text), 0},
	{FORM_ENTRIES, AT(entries), AT(n_entries)},
	{FORM_SHARDS, AT(shards), AT(n_shards)},
	{FORM_NODES, AT(nodes), AT(n_nodes)},
	{FORM_NODES, AT(nodes2), AT(n_nodes2)},
};

#define GET(type, base, offset) (*(const type *) ((const char *) (base) + (offset)))

/* The fewest bytes that one element of a list can have. */
#define MIN_ENTRY_BYTES 5
#define MIN_SHARD_BYTES 4
#define MIN_NODE_BYTES 1

/* Kinds by their numbers. */
static const char *const kind_names[] = {
	[SHARD_CONTROL_PRE_VOTE] = "pre-vote",
	[SHARD_CONTROL_PRE_VOTE_REPLY] = "pre-vote reply",
	[SHARD_CONTROL_PREPARE] = "prepare",
	[SHARD_CONTROL_PROMISE] = "promise",
	[SHARD_CONTROL_FETCH] = "fetch",
	[SHARD_CONTROL_STATE] = "state",
	[SHARD_CONTROL_SYNC] = "sync",
	[SHARD_CONTROL_SYNCED] = "synced",
	[SHARD_CONTROL_ACCEPT] = "accept",
	[SHARD_CONTROL_ACCEPTED] = "accepted",
	[SHARD_CONTROL_NEED_SYNC] = "need sync",
	[SHARD_CONTROL_NACK] = "nack",
	[SHARD_CONTROL_HEARTBEAT] = "heartbeat",
	[SHARD_CONTROL_HEARTBEAT_ACK] = "heartbeat ack",
	[SHARD_CONTROL_LEARN] = "learn",
	[SHARD_CONTROL_GET_DELTA] = "get delta",
	[SHARD_CONTROL_COLLECT] = "collect",
	[SHARD_CONTROL_COLLECTED] = "collected",
	[SHARD_CONTROL_RESTORE_JOURNAL] = "restore journal",
	[SHARD_CONTROL_MEMBER_HEARTBEAT] = "member heartbeat",
	[SHARD_CONTROL_JOIN] = "join",
	[SHARD_CONTROL_JOIN_REPLY] = "join reply",
	[SHARD_CONTROL_ADMIT] = "admit",
	[SHARD_CONTROL_ADMIT_REPLY] = "admit reply",
	[SHARD_CONTROL_I_AM] = "i am",
	[SHARD_CONTROL_FENCED] = "fenced",
	[SHARD_CONTROL_RENEW] = "renew",
	[SHARD_CONTROL_GRANT] = "grant",
	[SHARD_CONTROL_GRACEFUL_SHUTDOWN_REQ] = "graceful shutdown request",
	[SHARD_CONTROL_COORDINATOR_HINT] = "coordinator hint",
	[SHARD_CONTROL_CANNOT_LEAVE] = "cannot leave",
	[SHARD_CONTROL_GOODBYE] = "goodbye",
	[SHARD_CONTROL_REGISTER] = "register",
	[SHARD_CONTROL_REGISTER_ACK] = "register ack",
	[SHARD_CONTROL_START_TYPE] = "start type",
	[SHARD_CONTROL_TYPE_STARTED] = "type started",
	[SHARD_CONTROL_GET_SHARD_HOMES] = "get shard homes",
	[SHARD_CONTROL_SHARD_HOMES] = "shard homes",
	[SHARD_CONTROL_HOST_SHARDS] = "host shards",
	[SHARD_CONTROL_SHARDS_STARTED] = "shards started",
	[SHARD_CONTROL_HAND_OFF] = "hand-off",
	[SHARD_CONTROL_SHARD_STOPPED] = "shard stopped",
	[SHARD_CONTROL_IMPORT] = "import",
	[SHARD_CONTROL_STAGED] = "staged",
	[SHARD_CONTROL_IMPORT_FAILED] = "import failed",
	[SHARD_CONTROL_PREPARE_IMPORT] = "prepare import",
	[SHARD_CONTROL_IMPORT_READY] = "import ready",
	[SHARD_CONTROL_COMMAND] = "command",
	[SHARD_CONTROL_COMMAND_ANSWER] = "command answer",
	[SHARD_CONTROL_RESIGN] = "resign",
	[SHARD_CONTROL_COMMAND_CODE] = "command code",
};

/*
 * NULL for a number that is no kind.
 */
const char *
shard_control_name(ShardControlKind kind)
{
	if ((size_t) kind >= lengthof(kind_names))
		return NULL;
	return kind_names[kind];
}

/*
 * Does the field say anything, so that it must be sent?
 */
static bool
is_set(const ShardControl *message, const Field *field)
{
	switch (field->form)
	{
		case FORM_INT32:
			return GET(int32, message, field->at) != 0;
		case FORM_INT64:
			return GET(int64, message, field->at) != 0;
		case FORM_BOOL:
			return GET(bool, message, field->at);
		case FORM_UUID:
			return GET(ShardUuid, message, field->at).high != 0 ||
				   GET(ShardUuid, message, field->at).low != 0;
		case FORM_POINT:
			return GET(ShardMapPoint, message, field->at).b != 0 ||
				   GET(ShardMapPoint, message, field->at).n != 0;
		case FORM_TEXT:
			return GET(char *, message, field->at) != NULL;
		case FORM_ENTRIES:
		case FORM_SHARDS:
		case FORM_NODES:
			return GET(int, message, field->count_at) > 0;
	}
	return false;
}

/*
 * A list's number of elements. When it is read: zeroed space for them, no more than the bytes that are left can hold; NULL
 * and 0 if the reader fails.
 */
static void *
list_fields(ShardFields *fields, void *list, int *count, size_t min_bytes, size_t size)
{
	ShardReader *reader = fields->reader;
	uint64 wanted = (uint64) *count;

	shard_fields_uint64(fields, &wanted);
	if (fields->out)
		return list;
	*count = 0;
	if (wanted > (uint64) (reader->end - reader->at) / min_bytes ||
		wanted > SHARD_CONTROL_MAX_ELEMENTS)
		reader->failed = true;
	if (reader->failed)
		return NULL;
	*count = (int) wanted;
	return shard_arena_alloc(fields->arena, size * wanted);
}

static void
entry_fields(ShardFields *fields, ShardMapEntry *entry)
{
	uint64 length = (uint64) entry->length << 1 | (entry->deleted ? 1 : 0);
	ShardReader *reader = fields->reader;

	shard_fields_int32(fields, &entry->key.kind);
	shard_fields_int32(fields, &entry->key.a);
	shard_fields_int32(fields, &entry->key.b);
	shard_fields_int64(fields, &entry->n);
	shard_fields_uint64(fields, &length);
	if (fields->out)
	{
		if (entry->length > 0)
			appendBinaryStringInfo(fields->out, entry->value, (int) entry->length);
		return;
	}
	entry->deleted = length & 1;
	length >>= 1;
	if (entry->key.kind <= 0 || entry->key.a < 0 || entry->key.b < 0 || entry->n < 0 ||
		length > PG_INT32_MAX || length > (uint64) (reader->end - reader->at))
	{
		reader->failed = true;
		return;
	}
	entry->length = (uint32) length;
	entry->value = shard_arena_copy(fields->arena, reader->at, length);
	reader->at += length;
}

void
shard_control_shard_fields(ShardFields *fields, ShardShardRef *shard)
{
	shard_fields_int32(fields, &shard->type_id);
	shard_fields_int32(fields, &shard->shard);
	shard_fields_int32(fields, &shard->epoch);
	shard_fields_int64(fields, &shard->move_id);
}

static void
entries_fields(ShardFields *fields, ShardMapEntry **entries, int *count)
{
	*entries = list_fields(fields, *entries, count, MIN_ENTRY_BYTES, sizeof(ShardMapEntry));
	for (int i = 0; i < *count && !shard_fields_failed(fields); i++)
		entry_fields(fields, &(*entries)[i]);
}

static void
shards_fields(ShardFields *fields, ShardShardRef **shards, int *count)
{
	*shards = list_fields(fields, *shards, count, MIN_SHARD_BYTES, sizeof(ShardShardRef));
	for (int i = 0; i < *count && !shard_fields_failed(fields); i++)
		shard_control_shard_fields(fields, &(*shards)[i]);
}

static void
nodes_fields(ShardFields *fields, int32 **nodes, int *count)
{
	*nodes = list_fields(fields, *nodes, count, MIN_NODE_BYTES, sizeof(int32));
	for (int i = 0; i < *count && !shard_fields_failed(fields); i++)
		shard_fields_int32(fields, &(*nodes)[i]);
}

/*
 * One field whose bit is set.
 */
static void
one_field(ShardFields *fields, ShardControl *message, const Field *field)
{
	void *at = (char *) message + field->at;
	int *count = (int *) ((char *) message + field->count_at);

	switch (field->form)
	{
		case FORM_INT32:
			shard_fields_int32(fields, at);
			break;
		case FORM_INT64:
			shard_fields_int64(fields, at);
			break;
		case FORM_BOOL:
			*(bool *) at = true;
			break;
		case FORM_UUID:
			shard_fields_uuid(fields, at);
			break;
		case FORM_POINT:
			shard_fields_int64(fields, &((ShardMapPoint *) at)->b);
			shard_fields_int64(fields, &((ShardMapPoint *) at)->n);
			break;
		case FORM_TEXT:
			shard_fields_text(fields, at, SIZE_MAX);
			break;
		case FORM_ENTRIES:
			entries_fields(fields, at, count);
			break;
		case FORM_SHARDS:
			shards_fields(fields, at, count);
			break;
		case FORM_NODES:
			nodes_fields(fields, at, count);
			break;
	}
}

void
shard_control_encode(StringInfo out, const ShardControl *message)
{
	ShardFields writing = {.out = out};
	uint64 bitmap = 0;

	Assert(shard_control_name(message->kind) != NULL);
	for (size_t i = 0; i < lengthof(all_fields); i++)
	{
		if (is_set(message, &all_fields[i]))
			bitmap |= UINT64CONST(1) << i;
	}
	shard_wire_put_uint(out, message->kind);
	shard_wire_put_uint(out, bitmap);
	for (size_t i = 0; bitmap >> i != 0; i++)
	{
		if (bitmap >> i & 1)
			one_field(&writing, unconstify(ShardControl *, message), &all_fields[i]);
	}
}

/* Fields of the header are the first ones. */
#define HEADER_FIELDS 7

bool
shard_control_decode_header(const char *bytes, size_t length, ShardControl *message)
{
	ShardReader reader = {bytes, bytes + length, false};
	ShardFields reading = {.reader = &reader};
	uint64 kind = shard_wire_get_uint(&reader);
	uint64 bitmap = shard_wire_get_uint(&reader);

	memset(message, 0, sizeof(ShardControl));
	if (reader.failed || kind >= lengthof(kind_names) || kind_names[kind] == NULL)
		return false;
	message->kind = (ShardControlKind) kind;
	for (int i = 0; i < HEADER_FIELDS && !reader.failed; i++)
	{
		if (bitmap >> i & 1)
			one_field(&reading, message, &all_fields[i]);
	}
	return !reader.failed;
}

/* If the bytes are no message, *message is left all zero. */
bool
shard_control_decode(const char *bytes, size_t length, ShardArena *arena, ShardControl *message)
{
	ShardReader reader = {bytes, bytes + length, false};
	ShardFields reading = {.reader = &reader, .arena = arena};
	uint64 kind = shard_wire_get_uint(&reader);
	uint64 bitmap = shard_wire_get_uint(&reader);

	memset(message, 0, sizeof(ShardControl));
	if (reader.failed || kind >= lengthof(kind_names) || kind_names[kind] == NULL ||
		bitmap >> lengthof(all_fields) != 0)
		return false;

	message->kind = (ShardControlKind) kind;
	for (size_t i = 0; bitmap >> i != 0 && !reader.failed; i++)
	{
		if (bitmap >> i & 1)
			one_field(&reading, message, &all_fields[i]);
	}
	if (!reader.failed && reader.at == reader.end)
		return true;
	memset(message, 0, sizeof(ShardControl));
	return false;
}
