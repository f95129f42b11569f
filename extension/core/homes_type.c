/*
 * core/homes_type.c
 *		Types of the cluster: their ids, and their end.
 *
 * An id is given once: the counter of ids never falls, also not when a type goes. So what still comes
 * in about a type that is gone, a request or a confirmation, names an id that means nothing any more.
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "core/allocation.h"
#include "core/difference.h"
#include "core/homes_private.h"
#include "core/membership.h"

/* Wishes beyond this are nonsense; one of them would use up the ids. */
#define MAX_TYPE_WISH (PG_INT32_MAX / 2)

static void
answer_type(ShardActions *out, const ShardControl *message, int32 type_id, const char *why)
{
	ShardControl *reply = shard_action_send(out, message->from, SHARD_CONTROL_TYPE_STARTED);

	reply->type_id = type_id;
	reply->flag = why == NULL;
	reply->text = why;
	/* By its name the region knows its type again. */
	reply->entries = message->entries;
	reply->n_entries = message->n_entries;
}

/* The id of a new type: the one that was wished for, if nobody can have had it. 0: none is left. */
static int32
next_type_id(int32 last, int32 wish)
{
#ifdef SHARD_MUTANT_TYPE_ID_REUSED
	if (wish > 0)
		return wish;
#endif
	if (wish > last && wish <= MAX_TYPE_WISH)
		return wish;
	return last < PG_INT32_MAX ? last + 1 : 0;
}

/* The type of that name: its key and value in the map; false: there is none. */
static bool
find_type(const ShardHomes *homes, const char *name, ShardMapEntry *entry, ShardTypeRecord *type)
{
	int count;
	ShardMapEntry *known = shard_map_list(homes->decided, SHARD_MAP_TYPE, homes->arena, &count);

	for (int i = 0; i < count; i++)
	{
		if (!shard_record_get_type(&known[i], type, homes->arena) || strcmp(type->name, name) != 0)
			continue;
		*entry = known[i];
		return true;
	}
	return false;
}

/* May a member other than that one host the type? Of who has not registered here that is not known. */
static bool
may_be_hosted(ShardHomes *homes, int32 type_id, int32 except)
{
	for (int i = 0; i < homes->n_nodes; i++)
	{
		const HomesNode *node = &homes->nodes[i];
		const HomesRegion *region = shard_homes_region(homes, node->node);

		if (node->node == except ||
			(!shard_membership_is_member(node->status) && node->status != SHARD_MEMBER_DOWN))
			continue;
		if (!region || shard_homes_hosts(region, type_id))
			return true;
	}
	return false;
}

/*
 * A type that the cluster knows has to be the same. Only who hosts it may say that the structure of its
 * states is another one now: a user has altered their type. That becomes what newcomers are held to. If
 * nobody hosts it, a newcomer's is: it may have been dropped everywhere, or its start rolled back.
 */
static void
compare_type(ShardHomes *homes, const ShardControl *message, const ShardMapEntry *entry,
			 ShardTypeRecord *type, const ShardTypeRecord *wanted, ShardProposer *proposer,
			 ShardActions *out)
{
	const HomesRegion *region = shard_homes_region(homes, message->from);
	bool hosts = region && shard_homes_hosts(region, entry->key.a);
	bool is_held = !hosts && may_be_hosted(homes, entry->key.a, message->from);
	const char *difference = shard_type_difference(type, wanted, is_held, homes->arena);
	ShardMapEntry change;
	char text[4 * SHARD_DIFFERENCE_TEXT];

	if (difference)
	{
		snprintf(text, sizeof(text), "the cluster has a type of that name with other settings: %s",
				 difference);
		answer_type(out, message, entry->key.a,
					shard_arena_copy(out->arena, text, strlen(text) + 1));
		return;
	}
	if (is_held || wanted->state[0] == '\0' || strcmp(type->state, wanted->state) == 0)
	{
		answer_type(out, message, entry->key.a, NULL);
		return;
	}
	type->state = wanted->state;
	change = shard_record_put_type(entry->key.a, type, entry->n, homes->arena);
	/* If another change comes first, the region asks again; and it does, to hear that it is known. */
	(void) shard_proposer_propose(proposer, &change, 1);
}

/* A type that the cluster does not know gets an id. */
void
shard_homes_start_type(ShardHomes *homes, const ShardControl *message, ShardProposer *proposer,
					   ShardActions *out)
{
	const ShardMapEntry *entry =
		shard_map_value(homes->decided, (ShardMapKey){SHARD_MAP_COUNTERS, 0, 0});
	ShardCountersRecord counters;
	ShardTypeRecord wanted;
	ShardTypeRecord type;
	ShardMapEntry changes[2];
	ShardMapEntry known;
	int32 type_id;

	if (message->n_entries != 1 ||
		!shard_record_get_type(&message->entries[0], &wanted, homes->arena) || !entry ||
		!shard_record_get_counters(entry, &counters))
		return;
	if (find_type(homes, wanted.name, &known, &type))
	{
		compare_type(homes, message, &known, &type, &wanted, proposer, out);
		return;
	}
	type_id = next_type_id(counters.last_type_id, message->entries[0].key.a);
	if (wanted.name[0] == '\0' || wanted.number_of_shards <= 0 || wanted.strategy < 0 ||
		wanted.strategy > SHARD_ALLOCATION_FUNCTION || wanted.handoff_timeout_ms < 0 ||
		type_id == 0)
	{
		answer_type(out, message, 0, "its settings are not valid here");
		return;
	}
	counters.last_type_id = type_id;
	changes[0] = shard_record_put_counters(&counters, entry->n, homes->arena);
	changes[1] = shard_record_put_type(type_id, &wanted, 0, homes->arena);
	/* If another change comes first, the region asks again. */
	(void) shard_proposer_propose(proposer, changes, lengthof(changes));
}

/* Removals of all keys of a kind that belong to a type, put behind one another. */
static ShardMapEntry *
put_removals(const ShardHomes *homes, ShardMapKind kind, int32 type_id, ShardMapEntry *at)
{
	int count;
	ShardMapEntry *entries = shard_map_list(homes->decided, kind, homes->arena, &count);

	for (int i = 0; i < count; i++)
	{
		if (entries[i].key.a != type_id)
			continue;
		*at = (ShardMapEntry){.key = entries[i].key, .n = entries[i].n, .deleted = true};
		at++;
	}
	return at;
}

/* See homes.h. */
bool
shard_homes_drop_type(ShardHomes *homes, int64 now, int32 type_id, ShardProposer *proposer,
					  ShardActions *out)
{
	ShardMapEntry *changes;
	ShardMapEntry *end;

	shard_homes_begin(homes, now, out);
#ifndef SHARD_MUTANT_DROP_WHILE_HOMES_COME
	if (shard_proposer_pending_type(proposer, type_id, homes->arena))
		return false;
#endif
	changes =
		shard_arena_alloc(homes->arena, sizeof(ShardMapEntry) * shard_map_count(homes->decided));
	end = put_removals(homes, SHARD_MAP_TYPE, type_id, changes);
	end = put_removals(homes, SHARD_MAP_HOME, type_id, end);
	end = put_removals(homes, SHARD_MAP_PIN, type_id, end);
	return shard_proposer_propose(proposer, changes, (int) (end - changes));
}

/*
 * The number of shards that a type has, 0 if there is no such type. Lists name few types: the last one
 * is remembered in *type_id and *number.
 */
int32
shard_homes_number_of_shards(const ShardHomes *homes, int32 wanted, int32 *type_id, int32 *number)
{
	const ShardMapEntry *entry;
	ShardTypeRecord type;

	if (wanted == *type_id)
		return *number;
	entry = shard_map_value(homes->decided, (ShardMapKey){SHARD_MAP_TYPE, wanted, 0});
	*type_id = wanted;
	*number =
		entry && shard_record_get_type(entry, &type, homes->arena) ? type.number_of_shards : 0;
	return *number;
}
