/*
 * fuzz_control.c
 *		Any bytes as a message of the control plane, and as each value of the map.
 */
#include "fuzz.h"

#include "core/map/control.h"

static ShardArena *arena;

/* Bytes as the value of a key: readers of records trust nothing either. */
static void
read_records(const char *bytes, size_t length)
{
	ShardMapEntry entry = {.key = {SHARD_MAP_MEMBER, 1, 0}, .n = 1};
	ShardTermRecord term;
	ShardVotersRecord voters;
	ShardCountersRecord counters;
	ShardSettingsRecord settings;
	ShardMemberRecord member;
	ShardTypeRecord type;
	ShardHomeRecord home;

	entry.length = (uint32) length;
	entry.value = bytes;
	if (shard_record_get_term(&entry, &term))
		(void) shard_record_put_term(&term, 1, arena);
	if (shard_record_get_voters(&entry, &voters))
		(void) shard_record_put_voters(&voters, 1, arena);
	if (shard_record_get_counters(&entry, &counters))
		(void) shard_record_put_counters(&counters, 1, arena);
	if (shard_record_get_settings(&entry, &settings))
		(void) shard_record_put_settings(&settings, 1, arena);
	if (shard_record_get_member(&entry, &member, arena))
		(void) shard_record_put_member(1, &member, 1, arena);
	if (shard_record_get_type(&entry, &type, arena))
		(void) shard_record_put_type(1, &type, 1, arena);
	if (shard_record_get_home(&entry, &home))
		(void) shard_record_put_home(1, 1, &home, 1, arena);
	(void) shard_record_get_pin(&entry);
}

int
LLVMFuzzerTestOneInput(const uint8 *data, size_t size)
{
	StringInfoData once;
	StringInfoData twice;
	ShardControl message;
	ShardControl again;

	if (!arena)
		arena = shard_arena_create();
	shard_arena_reset(arena);
	read_records((const char *) data, size);
	if (!shard_control_decode((const char *) data, size, arena, &message))
		return 0;

	/* A field that says 0 need not have been there; written anew it is not, and that is for good. */
	initStringInfo(&once);
	initStringInfo(&twice);
	shard_control_encode(&once, &message);
	FUZZ_CHECK(shard_control_decode(once.data, once.len, arena, &again));
	shard_control_encode(&twice, &again);
	FUZZ_CHECK(once.len == twice.len && memcmp(once.data, twice.data, once.len) == 0);
	FUZZ_CHECK((size_t) once.len <= size);
	pfree(once.data);
	pfree(twice.data);
	return 0;
}
