/*
 * core/map/record.c
 *		What the values of the replicated map say.
 *
 * Readers trust nothing: a value may come from another node, so every count is compared with the
 * array that it fills, and a text that holds a zero byte is none. A record that could not be read is
 * all zeros, never half filled.
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "core/base/message.h"
#include "core/map/record.h"
#include "core/base/wire.h"

/*
 * A reader of an entry's value; failed from the beginning if there is no value.
 */
static ShardReader
reader_of(const ShardMapEntry *entry)
{
	ShardReader reader = {"", NULL, false};

	reader.end = reader.at;
	if (entry == NULL || entry->deleted)
		reader.failed = true;
	else if (entry->length > 0)
	{
		reader.at = entry->value;
		reader.end = entry->value + entry->length;
	}
	return reader;
}

/*
 * What stands behind the known fields.
 */
static ShardExtra
rest_of(const ShardReader *reader)
{
	ShardExtra extra = {NULL, 0};

	if (reader->end > reader->at)
	{
		extra.bytes = reader->at;
		extra.length = (uint32) (reader->end - reader->at);
	}
	return extra;
}

/*
 * A count of at most limit; more fails the reader.
 */
static int
get_count(ShardReader *reader, int limit)
{
	uint64 count = shard_wire_get_uint(reader);

	if (count > (uint64) limit)
		reader->failed = true;
	return reader->failed ? 0 : (int) count;
}

/*
 * A bool; any number but 0 and 1 fails the reader.
 */
static bool
get_bool(ShardReader *reader)
{
	return get_count(reader, 1) == 1;
}

/*
 * Does the value go on? A field that was added at the end is not there in what an older version wrote;
 * then it says what 0 says.
 */
static bool
goes_on(const ShardReader *reader)
{
	return !reader->failed && reader->end > reader->at;
}

static int
get_nodes(ShardReader *reader, int32 *nodes, int limit)
{
	int count = get_count(reader, limit);

	for (int i = 0; i < count; i++)
		nodes[i] = shard_wire_get_int32(reader);
	return count;
}

/*
 * End of a getter: clear a record that could not be read.
 */
static bool
done(const ShardReader *reader, void *record, size_t size)
{
	if (reader->failed)
		memset(record, 0, size);
	return !reader->failed;
}

bool
shard_record_get_term(const ShardMapEntry *entry, ShardTermRecord *record)
{
	ShardReader reader = reader_of(entry);

	memset(record, 0, sizeof(*record));
	record->n_terms = get_count(&reader, SHARD_TERM_MEMORY);
	for (int i = 0; i < record->n_terms; i++)
	{
		record->terms[i].b = shard_wire_get_int(&reader);
		record->terms[i].n = shard_wire_get_int(&reader);
	}
	record->extra = rest_of(&reader);
	return done(&reader, record, sizeof(*record));
}

bool
shard_record_get_voters(const ShardMapEntry *entry, ShardVotersRecord *record)
{
	ShardReader reader = reader_of(entry);

	memset(record, 0, sizeof(*record));
	record->n_current = get_nodes(&reader, record->current, SHARD_MAX_VOTERS);
	record->n_next = get_nodes(&reader, record->next, SHARD_MAX_VOTERS);
	record->era = shard_wire_get_int32(&reader);
	record->extra = rest_of(&reader);
	return done(&reader, record, sizeof(*record));
}

bool
shard_record_get_counters(const ShardMapEntry *entry, ShardCountersRecord *record)
{
	ShardReader reader = reader_of(entry);

	memset(record, 0, sizeof(*record));
	record->last_node_id = shard_wire_get_int32(&reader);
	record->last_type_id = shard_wire_get_int32(&reader);
	record->last_age = shard_wire_get_int(&reader);
	record->purge_n = shard_wire_get_int(&reader);
	record->extra = rest_of(&reader);
	return done(&reader, record, sizeof(*record));
}

bool
shard_record_get_settings(const ShardMapEntry *entry, ShardSettingsRecord *record)
{
	ShardReader reader = reader_of(entry);
	uint64 count;

	memset(record, 0, sizeof(*record));
	record->lease_ttl_ms = shard_wire_get_int32(&reader);
	record->previous_lease_ttl_ms = shard_wire_get_int32(&reader);
	record->min_members = shard_wire_get_int32(&reader);
	count = shard_wire_get_uint(&reader);
	if (count > SHARD_MAX_ROLES)
		return false;
	record->n_role_minimums = (int) count;
	for (int i = 0; i < record->n_role_minimums; i++)
	{
		record->role_minimums[i].role = shard_wire_get_int32(&reader);
		record->role_minimums[i].members = shard_wire_get_int32(&reader);
	}
	record->extra = rest_of(&reader);
	return done(&reader, record, sizeof(*record));
}

bool
shard_record_get_member(const ShardMapEntry *entry, ShardMemberRecord *record, ShardArena *arena)
{
	ShardReader reader = reader_of(entry);

	memset(record, 0, sizeof(*record));
	record->status = shard_wire_get_int32(&reader);
	record->inc_no = shard_wire_get_int32(&reader);
	record->inc_uuid = shard_wire_get_uuid(&reader);
	record->join_token = shard_wire_get_uuid(&reader);
	record->age = shard_wire_get_int(&reader);
	record->gate = shard_wire_get_int32(&reader);
	record->identity_lease = get_bool(&reader);
	record->protocol_version = shard_wire_get_int32(&reader);
	record->features = shard_wire_get_uint(&reader);
	record->dsn = shard_wire_take_text(&reader, SIZE_MAX, arena);
	record->app_version = shard_wire_take_text(&reader, SIZE_MAX, arena);
	record->n_roles = get_count(&reader, SHARD_MAX_ROLES);
	for (int i = 0; i < record->n_roles; i++)
		record->roles[i] = shard_wire_take_text(&reader, SIZE_MAX, arena);
	if (goes_on(&reader))
		record->evacuated = get_bool(&reader);
	if (goes_on(&reader))
	{
		record->weight = shard_wire_get_int32(&reader);
		if (record->weight < 0 || record->weight > SHARD_ALLOCATION_MAX_WEIGHT)
			reader.failed = true;
	}
	if (goes_on(&reader))
	{
		record->ground = shard_wire_get_int32(&reader);
		if (record->ground < SHARD_ADDRESS_SAID || record->ground > SHARD_ADDRESS_RELAYED)
			reader.failed = true;
	}
	record->extra = rest_of(&reader);
	return done(&reader, record, sizeof(*record));
}

/*
 * Settings of an allocation strategy; kind 0 has none.
 */
static ShardAllocationSettings
get_allocation(ShardReader *reader)
{
	ShardAllocationSettings settings = {.kind = shard_wire_get_int32(reader)};
	uint64 bits;

	if (settings.kind == 0)
		return settings;
	settings.rebalance_absolute_limit = shard_wire_get_int32(reader);
	bits = shard_wire_get_uint(reader);
	memcpy(&settings.rebalance_relative_limit, &bits, sizeof(bits));
	settings.rebalance_threshold = shard_wire_get_int32(reader);
	settings.max_simultaneous_rebalance = shard_wire_get_int32(reader);
	settings.rebalance_limit = shard_wire_get_int32(reader);
	settings.virtual_nodes = shard_wire_get_int32(reader);
	settings.weighted = get_bool(reader);
	if (!shard_allocation_settings_valid(&settings))
		reader->failed = true;
	return settings;
}

bool
shard_record_get_type(const ShardMapEntry *entry, ShardTypeRecord *record, ShardArena *arena)
{
	ShardReader reader = reader_of(entry);

	memset(record, 0, sizeof(*record));
	record->name = shard_wire_take_text(&reader, SIZE_MAX, arena);
	record->number_of_shards = shard_wire_get_int32(&reader);
	record->settings_hash = shard_wire_get_uint(&reader);
	record->leased = get_bool(&reader);
	record->strategy = shard_wire_get_int32(&reader);
	record->role = shard_wire_take_text(&reader, SIZE_MAX, arena);
	record->features = shard_wire_get_uint(&reader);
	record->hashing = shard_wire_take_text(&reader, SIZE_MAX, arena);
	if (goes_on(&reader))
	{
		record->allocation = get_allocation(&reader);
		record->handoff_timeout_ms = shard_wire_get_int32(&reader);
	}
	record->state = goes_on(&reader) ? shard_wire_take_text(&reader, SIZE_MAX, arena) : "";
	if (goes_on(&reader))
		record->dropping = get_bool(&reader);
	record->owner = goes_on(&reader) ? shard_wire_take_text(&reader, SHARD_OWNER_BYTES, arena) : "";
	if (goes_on(&reader))
		record->by = shard_wire_get_int32(&reader);
	record->extra = rest_of(&reader);
	return done(&reader, record, sizeof(*record));
}

/* A home has at least one node, so that shard_record_home_node() always means something. */
bool
shard_record_get_home(const ShardMapEntry *entry, ShardHomeRecord *record)
{
	ShardReader reader = reader_of(entry);

	memset(record, 0, sizeof(*record));
	record->epoch = shard_wire_get_int32(&reader);
	record->n_nodes = get_nodes(&reader, record->nodes, SHARD_MAX_HOMES);
	if (record->n_nodes == 0)
		reader.failed = true;
	record->want = shard_wire_get_int32(&reader);
	record->phase = shard_wire_get_int32(&reader);
	record->move_id = shard_wire_get_int(&reader);
	record->to = shard_wire_get_int32(&reader);
	record->lost = shard_wire_get_int32(&reader);
	if (goes_on(&reader))
		record->reason = shard_wire_get_int32(&reader);
	record->extra = rest_of(&reader);
	return done(&reader, record, sizeof(*record));
}

int32
shard_record_get_pin(const ShardMapEntry *entry)
{
	ShardReader reader = reader_of(entry);
	int32 node = shard_wire_get_int32(&reader);

	return reader.failed ? 0 : node;
}

/*
 * The value is complete: add the bytes that a newer version had behind it, and make an entry with a
 * value in the arena.
 */
static ShardMapEntry
finish(StringInfo out, const ShardExtra *extra, ShardMapKey key, int64 n, ShardArena *arena)
{
	ShardMapEntry entry;

	if (extra && extra->length > 0)
		appendBinaryStringInfo(out, extra->bytes, (int) extra->length);
	memset(&entry, 0, sizeof(entry));
	entry.key = key;
	entry.n = n;
	entry.length = (uint32) out->len;
	entry.value = shard_arena_copy(arena, out->data, out->len);
	pfree(out->data);
	return entry;
}

static ShardMapKey
make_key(ShardMapKind kind, int32 a, int32 b)
{
	ShardMapKey key = {kind, a, b};

	return key;
}

static void
put_nodes(StringInfo out, const int32 *nodes, int count)
{
	shard_wire_put_uint(out, count);
	for (int i = 0; i < count; i++)
		shard_wire_put_int(out, nodes[i]);
}

ShardMapEntry
shard_record_put_term(const ShardTermRecord *record, int64 n, ShardArena *arena)
{
	StringInfoData out;

	initStringInfo(&out);
	shard_wire_put_uint(&out, record->n_terms);
	for (int i = 0; i < record->n_terms; i++)
	{
		shard_wire_put_int(&out, record->terms[i].b);
		shard_wire_put_int(&out, record->terms[i].n);
	}
	return finish(&out, &record->extra, make_key(SHARD_MAP_TERM, 0, 0), n, arena);
}

ShardMapEntry
shard_record_put_voters(const ShardVotersRecord *record, int64 n, ShardArena *arena)
{
	StringInfoData out;

	initStringInfo(&out);
	put_nodes(&out, record->current, record->n_current);
	put_nodes(&out, record->next, record->n_next);
	shard_wire_put_int(&out, record->era);
	return finish(&out, &record->extra, make_key(SHARD_MAP_VOTERS, 0, 0), n, arena);
}

ShardMapEntry
shard_record_put_counters(const ShardCountersRecord *record, int64 n, ShardArena *arena)
{
	StringInfoData out;

	initStringInfo(&out);
	shard_wire_put_int(&out, record->last_node_id);
	shard_wire_put_int(&out, record->last_type_id);
	shard_wire_put_int(&out, record->last_age);
	shard_wire_put_int(&out, record->purge_n);
	return finish(&out, &record->extra, make_key(SHARD_MAP_COUNTERS, 0, 0), n, arena);
}

ShardMapEntry
shard_record_put_settings(const ShardSettingsRecord *record, int64 n, ShardArena *arena)
{
	StringInfoData out;

	initStringInfo(&out);
	shard_wire_put_int(&out, record->lease_ttl_ms);
	shard_wire_put_int(&out, record->previous_lease_ttl_ms);
	shard_wire_put_int(&out, record->min_members);
	shard_wire_put_uint(&out, record->n_role_minimums);
	for (int i = 0; i < record->n_role_minimums; i++)
	{
		shard_wire_put_int(&out, record->role_minimums[i].role);
		shard_wire_put_int(&out, record->role_minimums[i].members);
	}
	return finish(&out, &record->extra, make_key(SHARD_MAP_SETTINGS, 0, 0), n, arena);
}

ShardMapEntry
shard_record_put_member(int32 node, const ShardMemberRecord *record, int64 n, ShardArena *arena)
{
	StringInfoData out;

	initStringInfo(&out);
	shard_wire_put_int(&out, record->status);
	shard_wire_put_int(&out, record->inc_no);
	shard_wire_put_uuid(&out, record->inc_uuid);
	shard_wire_put_uuid(&out, record->join_token);
	shard_wire_put_int(&out, record->age);
	shard_wire_put_int(&out, record->gate);
	shard_wire_put_uint(&out, record->identity_lease ? 1 : 0);
	shard_wire_put_int(&out, record->protocol_version);
	shard_wire_put_uint(&out, record->features);
	shard_wire_put_text(&out, record->dsn);
	shard_wire_put_text(&out, record->app_version);
	shard_wire_put_uint(&out, record->n_roles);
	for (int i = 0; i < record->n_roles; i++)
		shard_wire_put_text(&out, record->roles[i]);
	shard_wire_put_uint(&out, record->evacuated ? 1 : 0);
	shard_wire_put_int(&out, record->weight);
	shard_wire_put_int(&out, record->ground);
	return finish(&out, &record->extra, make_key(SHARD_MAP_MEMBER, node, 0), n, arena);
}

static void
put_allocation(StringInfo out, const ShardAllocationSettings *settings)
{
	uint64 bits;

	shard_wire_put_int(out, settings->kind);
	if (settings->kind == 0)
		return;
	shard_wire_put_int(out, settings->rebalance_absolute_limit);
	memcpy(&bits, &settings->rebalance_relative_limit, sizeof(bits));
	shard_wire_put_uint(out, bits);
	shard_wire_put_int(out, settings->rebalance_threshold);
	shard_wire_put_int(out, settings->max_simultaneous_rebalance);
	shard_wire_put_int(out, settings->rebalance_limit);
	shard_wire_put_int(out, settings->virtual_nodes);
	shard_wire_put_uint(out, settings->weighted ? 1 : 0);
}

ShardMapEntry
shard_record_put_type(int32 type_id, const ShardTypeRecord *record, int64 n, ShardArena *arena)
{
	StringInfoData out;

	initStringInfo(&out);
	shard_wire_put_text(&out, record->name);
	shard_wire_put_int(&out, record->number_of_shards);
	shard_wire_put_uint(&out, record->settings_hash);
	shard_wire_put_uint(&out, record->leased ? 1 : 0);
	shard_wire_put_int(&out, record->strategy);
	shard_wire_put_text(&out, record->role);
	shard_wire_put_uint(&out, record->features);
	shard_wire_put_text(&out, record->hashing);
	put_allocation(&out, &record->allocation);
	shard_wire_put_int(&out, record->handoff_timeout_ms);
	shard_wire_put_text(&out, record->state);
	shard_wire_put_uint(&out, record->dropping ? 1 : 0);
	shard_wire_put_text(&out, record->owner);
	shard_wire_put_int(&out, record->by);
	return finish(&out, &record->extra, make_key(SHARD_MAP_TYPE, type_id, 0), n, arena);
}

ShardMapEntry
shard_record_put_home(int32 type_id, int32 shard, const ShardHomeRecord *record, int64 n,
					  ShardArena *arena)
{
	StringInfoData out;

	initStringInfo(&out);
	shard_wire_put_int(&out, record->epoch);
	put_nodes(&out, record->nodes, record->n_nodes);
	shard_wire_put_int(&out, record->want);
	shard_wire_put_int(&out, record->phase);
	shard_wire_put_int(&out, record->move_id);
	shard_wire_put_int(&out, record->to);
	shard_wire_put_int(&out, record->lost);
	shard_wire_put_int(&out, record->reason);
	return finish(&out, &record->extra, make_key(SHARD_MAP_HOME, type_id, shard), n, arena);
}

/* That the key is there says everything. */
ShardMapEntry
shard_record_put_formed(int32 role, int64 n, ShardArena *arena)
{
	ShardMapEntry entry;

	memset(&entry, 0, sizeof(entry));
	entry.key = make_key(SHARD_MAP_FORMED, role, 0);
	entry.n = n;
	entry.value = shard_arena_alloc(arena, 1);
	return entry;
}

ShardMapEntry
shard_record_put_pin(int32 type_id, int32 shard, int32 node, int64 n, ShardArena *arena)
{
	StringInfoData out;

	initStringInfo(&out);
	shard_wire_put_int(&out, node);
	return finish(&out, NULL, make_key(SHARD_MAP_PIN, type_id, shard), n, arena);
}

/*
 * The map's lineage with one more ballot at its end, whose first batch is first_n; the oldest
 * ballots are forgotten. The entry expects the term record that the map has.
 */
ShardMapEntry
shard_record_append_term(const ShardMap *map, int64 b, int64 first_n, ShardArena *arena)
{
	const ShardMapEntry *old = shard_map_value(map, make_key(SHARD_MAP_TERM, 0, 0));
	ShardTermRecord record;

	shard_record_get_term(old, &record);
	if (record.n_terms == SHARD_TERM_MEMORY)
	{
		record.n_terms--;
		memmove(&record.terms[0], &record.terms[1], sizeof(ShardMapPoint) * record.n_terms);
	}
	record.terms[record.n_terms].b = b;
	record.terms[record.n_terms].n = first_n;
	record.n_terms++;
	return shard_record_put_term(&record, old ? old->n : 0, arena);
}

bool
shard_record_votes(const ShardVotersRecord *voters, int32 node)
{
	for (int i = 0; i < voters->n_current; i++)
	{
		if (voters->current[i] == node)
			return true;
	}
	for (int i = 0; i < voters->n_next; i++)
	{
		if (voters->next[i] == node)
			return true;
	}
	return false;
}

bool
shard_record_uuid_equal(ShardUuid a, ShardUuid b)
{
	return a.high == b.high && a.low == b.low;
}

int32
shard_record_role(const char *role)
{
	if (role == NULL || role[0] == '\0')
		return 0;
	return shard_message_hash_murmur2(role, strlen(role)) & 0x7FFFFFFF;
}
