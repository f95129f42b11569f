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
#include "core/base/fields.h"

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

/* Any struct of record.h: its fields in their order. */
typedef void (*RecordFields)(ShardFields *fields, void *record);

static bool
get_record(const ShardMapEntry *entry, RecordFields record_fields, void *record, size_t size,
		   ShardArena *arena)
{
	ShardReader reader = reader_of(entry);
	ShardFields fields = {.reader = &reader, .arena = arena};

	memset(record, 0, size);
	record_fields(&fields, record);
	if (reader.failed)
		memset(record, 0, size);
	return !reader.failed;
}

static ShardMapKey
make_key(ShardMapKind kind, int32 a, int32 b)
{
	ShardMapKey key = {kind, a, b};

	return key;
}

/* An entry with its value in the arena. */
static ShardMapEntry
put_record(RecordFields record_fields, const void *record, ShardMapKey key, int64 n,
		   ShardArena *arena)
{
	ShardMapEntry entry;
	StringInfoData out;

	initStringInfo(&out);
	record_fields(&(ShardFields){.out = &out}, unconstify(void *, record));
	memset(&entry, 0, sizeof(entry));
	entry.key = key;
	entry.n = n;
	entry.length = (uint32) out.len;
	entry.value = shard_arena_copy(arena, out.data, out.len);
	pfree(out.data);
	return entry;
}

/* What a newer version wrote behind the known fields. */
static void
extra_fields(ShardFields *fields, ShardExtra *extra)
{
	if (fields->out && extra->length > 0)
		appendBinaryStringInfo(fields->out, extra->bytes, (int) extra->length);
	else if (!fields->out && fields->reader->end > fields->reader->at)
	{
		extra->bytes = fields->reader->at;
		extra->length = (uint32) (fields->reader->end - fields->reader->at);
	}
}

static void
node_fields(ShardFields *fields, int *count, int32 *nodes, int most)
{
	shard_fields_count(fields, count, most);
	for (int i = 0; i < *count; i++)
		shard_fields_int32(fields, &nodes[i]);
}

static void
term_fields(ShardFields *fields, void *record)
{
	ShardTermRecord *term = record;

	shard_fields_count(fields, &term->n_terms, SHARD_TERM_MEMORY);
	for (int i = 0; i < term->n_terms; i++)
	{
		shard_fields_int64(fields, &term->terms[i].b);
		shard_fields_int64(fields, &term->terms[i].n);
	}
	extra_fields(fields, &term->extra);
}

bool
shard_record_get_term(const ShardMapEntry *entry, ShardTermRecord *record)
{
	return get_record(entry, term_fields, record, sizeof(*record), NULL);
}

ShardMapEntry
shard_record_put_term(const ShardTermRecord *record, int64 n, ShardArena *arena)
{
	return put_record(term_fields, record, make_key(SHARD_MAP_TERM, 0, 0), n, arena);
}

static void
voters_fields(ShardFields *fields, void *record)
{
	ShardVotersRecord *voters = record;

	node_fields(fields, &voters->n_current, voters->current, SHARD_MAX_VOTERS);
	node_fields(fields, &voters->n_next, voters->next, SHARD_MAX_VOTERS);
	shard_fields_int32(fields, &voters->era);
	extra_fields(fields, &voters->extra);
}

bool
shard_record_get_voters(const ShardMapEntry *entry, ShardVotersRecord *record)
{
	return get_record(entry, voters_fields, record, sizeof(*record), NULL);
}

ShardMapEntry
shard_record_put_voters(const ShardVotersRecord *record, int64 n, ShardArena *arena)
{
	return put_record(voters_fields, record, make_key(SHARD_MAP_VOTERS, 0, 0), n, arena);
}

static void
counters_fields(ShardFields *fields, void *record)
{
	ShardCountersRecord *counters = record;

	shard_fields_int32(fields, &counters->last_node_id);
	shard_fields_int32(fields, &counters->last_type_id);
	shard_fields_int64(fields, &counters->last_age);
	shard_fields_int64(fields, &counters->purge_n);
	extra_fields(fields, &counters->extra);
}

bool
shard_record_get_counters(const ShardMapEntry *entry, ShardCountersRecord *record)
{
	return get_record(entry, counters_fields, record, sizeof(*record), NULL);
}

ShardMapEntry
shard_record_put_counters(const ShardCountersRecord *record, int64 n, ShardArena *arena)
{
	return put_record(counters_fields, record, make_key(SHARD_MAP_COUNTERS, 0, 0), n, arena);
}

static void
settings_fields(ShardFields *fields, void *record)
{
	ShardSettingsRecord *settings = record;

	shard_fields_int32(fields, &settings->lease_ttl_ms);
	shard_fields_int32(fields, &settings->previous_lease_ttl_ms);
	shard_fields_int32(fields, &settings->min_members);
	shard_fields_count(fields, &settings->n_role_minimums, SHARD_MAX_ROLES);
	for (int i = 0; i < settings->n_role_minimums; i++)
	{
		shard_fields_int32(fields, &settings->role_minimums[i].role);
		shard_fields_int32(fields, &settings->role_minimums[i].members);
	}
	extra_fields(fields, &settings->extra);
}

bool
shard_record_get_settings(const ShardMapEntry *entry, ShardSettingsRecord *record)
{
	return get_record(entry, settings_fields, record, sizeof(*record), NULL);
}

ShardMapEntry
shard_record_put_settings(const ShardSettingsRecord *record, int64 n, ShardArena *arena)
{
	return put_record(settings_fields, record, make_key(SHARD_MAP_SETTINGS, 0, 0), n, arena);
}

static void
member_fields(ShardFields *fields, void *record)
{
	ShardMemberRecord *member = record;

	shard_fields_int32(fields, &member->status);
	shard_fields_int32(fields, &member->inc_no);
	shard_fields_uuid(fields, &member->inc_uuid);
	shard_fields_uuid(fields, &member->join_token);
	shard_fields_int64(fields, &member->age);
	shard_fields_int32(fields, &member->gate);
	shard_fields_bool(fields, &member->identity_lease);
	shard_fields_int32(fields, &member->protocol_version);
	shard_fields_uint64(fields, &member->features);
	shard_fields_text(fields, &member->dsn, SIZE_MAX);
	shard_fields_text(fields, &member->app_version, SIZE_MAX);
	shard_fields_count(fields, &member->n_roles, SHARD_MAX_ROLES);
	for (int i = 0; i < member->n_roles; i++)
		shard_fields_text(fields, &member->roles[i], SIZE_MAX);
	if (shard_fields_more(fields))
		shard_fields_bool(fields, &member->evacuated);
	if (shard_fields_more(fields))
		shard_fields_int32(fields, &member->weight);
	shard_fields_check(fields,
					   member->weight >= 0 && member->weight <= SHARD_ALLOCATION_MAX_WEIGHT);
	if (shard_fields_more(fields))
		shard_fields_int32(fields, &member->ground);
	shard_fields_check(fields, member->ground >= SHARD_ADDRESS_SAID &&
								   member->ground <= SHARD_ADDRESS_RELAYED);
	extra_fields(fields, &member->extra);
}

bool
shard_record_get_member(const ShardMapEntry *entry, ShardMemberRecord *record, ShardArena *arena)
{
	return get_record(entry, member_fields, record, sizeof(*record), arena);
}

ShardMapEntry
shard_record_put_member(int32 node, const ShardMemberRecord *record, int64 n, ShardArena *arena)
{
	return put_record(member_fields, record, make_key(SHARD_MAP_MEMBER, node, 0), n, arena);
}

/*
 * Settings of an allocation strategy; kind 0 has none.
 */
static void
allocation_fields(ShardFields *fields, ShardAllocationSettings *settings)
{
	int32 kind = settings->kind;
	uint64 bits;

	shard_fields_int32(fields, &kind);
	settings->kind = kind;
	if (kind == 0)
		return;
	memcpy(&bits, &settings->rebalance_relative_limit, sizeof(bits));
	shard_fields_int32(fields, &settings->rebalance_absolute_limit);
	shard_fields_uint64(fields, &bits);
	memcpy(&settings->rebalance_relative_limit, &bits, sizeof(bits));
	shard_fields_int32(fields, &settings->rebalance_threshold);
	shard_fields_int32(fields, &settings->max_simultaneous_rebalance);
	shard_fields_int32(fields, &settings->rebalance_limit);
	shard_fields_int32(fields, &settings->virtual_nodes);
	shard_fields_bool(fields, &settings->weighted);
	shard_fields_check(fields, shard_allocation_settings_valid(settings));
}

static void
type_fields(ShardFields *fields, void *record)
{
	ShardTypeRecord *type = record;

	shard_fields_text(fields, &type->name, SIZE_MAX);
	shard_fields_int32(fields, &type->number_of_shards);
	shard_fields_uint64(fields, &type->settings_hash);
	shard_fields_bool(fields, &type->leased);
	shard_fields_int32(fields, &type->strategy);
	shard_fields_text(fields, &type->role, SIZE_MAX);
	shard_fields_uint64(fields, &type->features);
	shard_fields_text(fields, &type->hashing, SIZE_MAX);
	if (shard_fields_more(fields))
	{
		allocation_fields(fields, &type->allocation);
		shard_fields_int32(fields, &type->handoff_timeout_ms);
	}
	if (shard_fields_more(fields))
		shard_fields_text(fields, &type->state, SIZE_MAX);
	else
		type->state = "";
	if (shard_fields_more(fields))
		shard_fields_bool(fields, &type->dropping);
	if (shard_fields_more(fields))
		shard_fields_text(fields, &type->owner, SHARD_OWNER_BYTES);
	else
		type->owner = "";
	if (shard_fields_more(fields))
		shard_fields_int32(fields, &type->by);
	if (shard_fields_more(fields))
		shard_fields_bool(fields, &type->own_worker);
	if (shard_fields_more(fields))
		shard_fields_bool(fields, &type->claims);
	if (shard_fields_more(fields))
	{
		shard_fields_int32(fields, &type->replicas);
		shard_fields_int32(fields, &type->min_insync);
		shard_fields_int32(fields, &type->on_too_few);
	}
	shard_fields_check(fields, type->replicas >= 0 && type->replicas <= SHARD_MAX_REPLICAS &&
								   type->min_insync >= 0 &&
								   type->min_insync <= type->replicas + 1 &&
								   type->on_too_few >= SHARD_TOO_FEW_RUN &&
								   type->on_too_few <= SHARD_TOO_FEW_STOP);
	extra_fields(fields, &type->extra);
}

bool
shard_record_get_type(const ShardMapEntry *entry, ShardTypeRecord *record, ShardArena *arena)
{
	return get_record(entry, type_fields, record, sizeof(*record), arena);
}

ShardMapEntry
shard_record_put_type(int32 type_id, const ShardTypeRecord *record, int64 n, ShardArena *arena)
{
	return put_record(type_fields, record, make_key(SHARD_MAP_TYPE, type_id, 0), n, arena);
}

/* Is no node named twice? */
static bool
are_different(const int32 *nodes, int count)
{
	for (int i = 1; i < count; i++)
	{
		for (int k = 0; k < i; k++)
		{
			if (nodes[i] == nodes[k])
				return false;
		}
	}
	return true;
}

/* A home has at least one node, so that shard_record_home_node() always means something. */
static void
home_fields(ShardFields *fields, void *record)
{
	ShardHomeRecord *home = record;

	shard_fields_int32(fields, &home->epoch);
	node_fields(fields, &home->n_nodes, home->nodes, SHARD_MAX_HOMES);
	shard_fields_check(fields, home->n_nodes > 0 && are_different(home->nodes, home->n_nodes));
	shard_fields_int32(fields, &home->want);
	shard_fields_check(fields, home->want >= 0 && home->want <= SHARD_MAX_HOMES);
	shard_fields_int32(fields, &home->phase);
	shard_fields_int64(fields, &home->move_id);
	shard_fields_int32(fields, &home->to);
	shard_fields_int32(fields, &home->lost);
	if (shard_fields_more(fields))
		shard_fields_int32(fields, &home->reason);
	extra_fields(fields, &home->extra);
}

bool
shard_record_get_home(const ShardMapEntry *entry, ShardHomeRecord *record)
{
	return get_record(entry, home_fields, record, sizeof(*record), NULL);
}

ShardMapEntry
shard_record_put_home(int32 type_id, int32 shard, const ShardHomeRecord *record, int64 n,
					  ShardArena *arena)
{
	return put_record(home_fields, record, make_key(SHARD_MAP_HOME, type_id, shard), n, arena);
}

static void
pin_fields(ShardFields *fields, void *record)
{
	shard_fields_int32(fields, record);
}

int32
shard_record_get_pin(const ShardMapEntry *entry)
{
	int32 node;

	return get_record(entry, pin_fields, &node, sizeof(node), NULL) ? node : 0;
}

ShardMapEntry
shard_record_put_pin(int32 type_id, int32 shard, int32 node, int64 n, ShardArena *arena)
{
	return put_record(pin_fields, &node, make_key(SHARD_MAP_PIN, type_id, shard), n, arena);
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
