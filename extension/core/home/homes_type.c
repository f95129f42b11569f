/*
 * core/home/homes_type.c
 *		Types of the cluster: their ids, and their end.
 *
 * An id is given once: the counter of ids never falls, also not when a type goes. So what still comes in
 * about a type that is gone, a request or a confirmation, names an id that means nothing any more.
 *
 * A type goes when no member has it. What a member says of that is old when it comes, and it may be about to
 * start the type by what it knows of it. So the type goes in two steps (C9): its record is marked, and a
 * member that has learned the mark does not begin to use the type; and the type goes once each member has
 * said that it has not got it, and had learned the mark before.
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "core/allocation/allocation.h"
#include "core/member/difference.h"
#include "core/home/homes_private.h"
#include "core/member/membership.h"
#include "core/map/era.h"
#include "core/map/type_number.h"

/* No type of an honest member describes itself in more bytes. */
#define SMALL_RECORD ((uint32) 16384)

static ShardControl *
answer_type(ShardActions *out, const ShardControl *message, int32 type_id, const char *why)
{
	ShardControl *reply = shard_action_send(out, message->from, SHARD_CONTROL_TYPE_STARTED);

	reply->type_id = type_id;
	reply->flag = why == NULL;
	reply->text = why;
	/* By its name the region knows its type again. */
	reply->entries = message->entries;
	reply->n_entries = message->n_entries;
	return reply;
}

/* The type gets no number. */
static void
refuse_number(ShardActions *out, const ShardControl *message, ShardTypeRefusal refusal)
{
	ShardControl *reply =
		answer_type(out, message, 0,
					refusal ? shard_type_number_why(refusal) : "there are no numbers left");

	reply->refusal = refusal;
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

/*
 * What a member says of its types; NULL: nothing. Another incarnation than the one that spoke may have been put back
 * from a copy in which it had others.
 */
static const HomesRegion *
present_region(ShardHomes *homes, const HomesNode *node)
{
	const HomesRegion *region = shard_homes_region(homes, node->node);

#ifndef SHARD_MUTANT_TYPES_OF_ANOTHER_LIFE
	if (region && region->inc_no != node->inc_no)
		return NULL;
#endif
	return region;
}

/* Which members have a type, as far as they have said. */
typedef struct Presence
{
	bool listed; /* one has it */
	bool unsure; /* one that is heard may have it */
	bool away;	 /* one that is not heard may have it */
} Presence;

/*
 * Which members have the type since its record is as it is: n. A member that was written off, or has left, has
 * nothing any more. except: a member that is not asked about, or 0.
 */
static Presence
presence_of(ShardHomes *homes, int64 now, int32 type_id, int64 n, const ShardRoster *roster,
			int32 except)
{
	Presence presence = {false, false, false};

	for (int i = 0; i < homes->n_nodes; i++)
	{
		const HomesNode *node = &homes->nodes[i];
		const HomesRegion *region = present_region(homes, node);

		if (node->node == except ||
			(!shard_membership_is_member(node->status) && node->status != SHARD_MEMBER_DOWN))
			continue;
		if (region && shard_homes_has(region, type_id))
			presence.listed = true;
#ifndef SHARD_MUTANT_DROP_BY_OLD_NEWS
		else if (region && region->as_of >= n)
			continue;
#else
		else if (region)
			continue;
#endif
		else if (shard_membership_is_member(node->status) &&
				 shard_roster_reachable(roster, node->node, now))
			presence.unsure = true;
		else
			presence.away = true;
	}
	return presence;
}

/*
 * In a new office so long, since a member that is heard and has not registered may never do so
 * (C20).
 */
#define REGISTRATION_PATIENCE (15 * SHARD_SECOND)

/*
 * There is no room for what is asked for. As long as a member that is heard has not registered in this office, the types
 * that it alone has are not known: the request stays without an answer, and the node asks again.
 */
static void
refuse_room(ShardHomes *homes, int64 now, const ShardControl *message, const ShardRoster *roster,
			ShardActions *out)
{
#ifndef SHARD_MUTANT_ALONE_UNTIL_REGISTERED
	for (int i = 0; i < homes->n_nodes; i++)
	{
		const HomesNode *node = &homes->nodes[i];

#ifndef SHARD_MUTANT_WAITS_FOR_REGISTRATIONS
		if (now - homes->office_since >= REGISTRATION_PATIENCE)
			break;
#endif
		if (shard_membership_is_member(node->status) && !present_region(homes, node) &&
			shard_roster_reachable(roster, node->node, now))
			return;
	}
#endif
	refuse_number(out, message, SHARD_TYPE_LACKS_ROOM);
}

/* May a member other than that one host the type? A member that has not registered here may. */
static bool
may_be_hosted(ShardHomes *homes, int32 type_id, int32 except)
{
	for (int i = 0; i < homes->n_nodes; i++)
	{
		const HomesNode *node = &homes->nodes[i];
		const HomesRegion *region = present_region(homes, node);

		if (node->node == except ||
			(!shard_membership_is_member(node->status) && node->status != SHARD_MEMBER_DOWN))
			continue;
		if (!region || shard_homes_hosts(region, type_id))
			return true;
	}
	return false;
}

/*
 * The record of a type as it shall be. If another change comes first, the node that wants it asks again; it
 * asks again anyway, to hear that the type is known.
 */
static void
change_type(ShardHomes *homes, const ShardMapEntry *entry, const ShardTypeRecord *type,
			ShardProposer *proposer)
{
	ShardMapEntry change = shard_record_put_type(entry->key.a, type, entry->n, homes->arena);

	(void) shard_proposer_propose(proposer, &change, 1);
}

/* Has a member a type that no other one has, nor may have? */
static bool
has_it_alone(ShardHomes *homes, int64 now, int32 member, const ShardMapEntry *entry,
			 const ShardRoster *roster)
{
	const HomesRegion *region = shard_homes_region(homes, member);
	Presence others = presence_of(homes, now, entry->key.a, entry->n, roster, member);

	return region && shard_homes_has(region, entry->key.a) && !others.listed && !others.unsure &&
		   !others.away;
}

/*
 * A type that the cluster knows has to be the same. Only a host of it may say that the structure of its states is
 * another one now: a user has altered the states' type. That becomes what newcomers are held to. If no member hosts
 * it, a newcomer may say so, too: the type may have been dropped everywhere, or its start rolled back. Its owner is
 * said by a member that has it alone (C18); of two members that have it, neither takes it from the other one.
 *
 * A type that no member has is not answered for: it goes, and a node that wants it, with whatever settings, gets a
 * new one; or a member turns out to have it. While that cannot be found out, since a member is away that may have
 * it, it is the type that it was.
 */
static void
compare_type(ShardHomes *homes, int64 now, const ShardControl *message, const ShardMapEntry *entry,
			 ShardTypeRecord *type, const ShardTypeRecord *wanted, ShardProposer *proposer,
			 const ShardRoster *roster, ShardActions *out)
{
	Presence presence = presence_of(homes, now, entry->key.a, entry->n, roster, 0);
	const HomesRegion *region = shard_homes_region(homes, message->from);
	bool hosts = region && shard_homes_hosts(region, entry->key.a);
	bool is_held = !hosts && may_be_hosted(homes, entry->key.a, message->from);
	bool same_owner = !shard_difference_of_owners(type, wanted);
	const char *difference;
	char text[4 * SHARD_DIFFERENCE_TEXT];
	bool same_state;

	if (!presence.listed && !presence.away)
		return;
	if (!same_owner && has_it_alone(homes, now, message->from, entry, roster))
		type->owner = wanted->owner;
	difference = shard_difference_of_types(type, wanted, is_held, homes->arena);
	if (difference)
	{
		snprintf(text, sizeof(text), "the cluster has a type of that name with other settings: %s",
				 difference);
		(void) answer_type(out, message, entry->key.a,
						   shard_arena_copy(out->arena, text, strlen(text) + 1));
		return;
	}
	same_state = is_held || wanted->state[0] == '\0' || strcmp(type->state, wanted->state) == 0;
	if (same_state && same_owner && !type->dropping)
	{
		(void) answer_type(out, message, entry->key.a, NULL);
		return;
	}
	/*
	 * A node that alters a type that it has must be able to go on, whatever room there is; but not to fill it with
	 * one type.
	 */
	if ((!same_state || !same_owner) &&
		message->entries[0].length > Max(entry->length, SMALL_RECORD) &&
		!shard_homes_has_room(homes, message->from, entry->key.a, &message->entries[0], wanted))
	{
		refuse_room(homes, now, message, roster, out);
		return;
	}
	if (!same_state)
		type->state = wanted->state;
	type->dropping = false;
	change_type(homes, entry, type, proposer);
}

void
shard_homes_start_type(ShardHomes *homes, int64 now, const ShardControl *message,
					   ShardProposer *proposer, const ShardRoster *roster, ShardActions *out)
{
	const ShardMapEntry *entry =
		shard_map_value(homes->decided, (ShardMapKey){SHARD_MAP_COUNTERS, 0, 0});
	ShardCountersRecord counters;
	ShardTypeRecord wanted;
	ShardTypeRecord type;
	ShardMapEntry changes[2];
	ShardMapEntry known;
	int32 type_id;
	bool full;

	if (message->n_entries != 1 ||
		!shard_record_get_type(&message->entries[0], &wanted, homes->arena) || !entry ||
		!shard_record_get_counters(entry, &counters))
		return;
	if (find_type(homes, wanted.name, &known, &type))
	{
		compare_type(homes, now, message, &known, &type, &wanted, proposer, roster, out);
		return;
	}
	if (wanted.name[0] == '\0' || wanted.number_of_shards <= 0 ||
		wanted.number_of_shards > SHARD_MAX_SHARDS || wanted.handoff_timeout_ms < 0 ||
		(wanted.claims && wanted.number_of_shards > SHARD_MAX_CLAIMED) ||
		(wanted.strategy != 0 && !shard_allocation_is_known(wanted.strategy)))
	{
		(void) answer_type(out, message, 0, "its settings are not valid here");
		return;
	}
	if (!shard_homes_has_room(homes, message->from, 0, &message->entries[0], &wanted))
	{
		refuse_room(homes, now, message, roster, out);
		return;
	}
	type_id = shard_homes_type_number(homes, &wanted, counters.last_type_id,
									  message->entries[0].key.a, &full);
	if (type_id == 0)
	{
		refuse_number(out, message, full ? SHARD_TYPE_LACKS_GROUP : SHARD_TYPE_NOT_TAKEN);
		return;
	}
	counters.last_type_id = type_id;
	wanted.dropping = false;
	wanted.by = message->from;
	changes[0] = shard_record_put_counters(&counters, entry->n, homes->arena);
	changes[1] = shard_record_put_type(type_id, &wanted, 0, homes->arena);
	/* If another change comes first, the region asks again. */
	(void) shard_proposer_propose(proposer, changes, lengthof(changes));
}

bool
shard_homes_set_owner(ShardHomes *homes, int64 now, const ShardCommand *command,
					  ShardProposer *proposer, ShardActions *out, const char **why)
{
	int32 type_id = command->type_id;
	const char *owner = command->text;
	const ShardMapEntry *entry =
		shard_map_value(homes->decided, (ShardMapKey){SHARD_MAP_TYPE, type_id, 0});
	ShardTypeRecord type;
	ShardMapEntry change;

	shard_homes_begin(homes, now, out);
	*why = "there is no such type";
	if (!entry || !shard_record_get_type(entry, &type, homes->arena))
		return false;
	*why = "the name of a role is needed";
	if (!owner || owner[0] == '\0')
		return false;
#ifndef SHARD_MUTANT_OWNERS_OF_ANY_LENGTH
	*why = "no role has so long a name";
	if (strlen(owner) > SHARD_OWNER_BYTES)
		return false;
#endif
	*why = "another change of the type is being decided; try again";
	if (shard_proposer_pending(proposer, (ShardMapKey){SHARD_MAP_TYPE, type_id, 0}))
		return false;
	if (strcmp(type.owner, owner) == 0)
		return true;
	*why = "the type has changed meanwhile; try again";
	if (entry->n != command->record_n)
		return false;
	type.owner = owner;
	change = shard_record_put_type(type_id, &type, entry->n, homes->arena);
	*why = "another change of the type is being decided; try again";
	return shard_proposer_propose(proposer, &change, 1);
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

/* In the call that is under way. */
static bool
drop_type(ShardHomes *homes, int32 type_id, ShardProposer *proposer)
{
	ShardMapEntry *changes;
	ShardMapEntry *end;

#ifndef SHARD_MUTANT_DROP_WHILE_HOMES_COME
	if (shard_proposer_pending_type(proposer, type_id))
		return false;
#endif
	changes =
		shard_arena_alloc(homes->arena, sizeof(ShardMapEntry) * shard_map_count(homes->decided));
	end = put_removals(homes, SHARD_MAP_TYPE, type_id, changes);
	end = put_removals(homes, SHARD_MAP_HOME, type_id, end);
	end = put_removals(homes, SHARD_MAP_PIN, type_id, end);
	return shard_proposer_propose(proposer, changes, (int) (end - changes));
}

bool
shard_homes_drop_type(ShardHomes *homes, int64 now, int32 type_id, ShardProposer *proposer,
					  ShardActions *out)
{
	shard_homes_begin(homes, now, out);
	return drop_type(homes, type_id, proposer);
}

/*
 * A type whose member had the entities before it began (E65): once that member hosts the type, all shards get their first
 * homes there, in one batch with the end of the claim; until then they get none. A member that is gone has nothing any more.
 */
static void
settle_claim(ShardHomes *homes, const ShardMapEntry *entry, ShardTypeRecord *type,
			 ShardProposer *proposer)
{
	const HomesNode *node = shard_homes_node(homes, type->by);
	bool gone =
		!node || (!shard_membership_is_member(node->status) && node->status != SHARD_MEMBER_DOWN);
	const HomesRegion *region = gone ? NULL : present_region(homes, node);
	ShardHomeRecord home = {.n_nodes = 1,
							.want = type->replicas + 1,
							.reason = SHARD_HOME_REASON_STATES};
	ShardMapEntry *changes;
	int n = 0;

	if (!gone && (!region || !shard_homes_hosts(region, entry->key.a)))
		return;
	changes = shard_arena_alloc(homes->arena, sizeof(ShardMapEntry) * (type->number_of_shards + 1));
	home.nodes[0] = type->by;
	home.epoch = home.lost = shard_era_first_epoch(shard_map_point(homes->decided).n);
	for (int shard = 0; shard < type->number_of_shards && !gone; shard++)
	{
		ShardMapKey key = {SHARD_MAP_HOME, entry->key.a, shard};

		if (!shard_map_value(homes->decided, key))
			changes[n++] = shard_record_put_home(key.a, key.b, &home, 0, homes->arena);
	}
	type->claims = false;
	changes[n++] = shard_record_put_type(entry->key.a, type, entry->n, homes->arena);
	(void) shard_proposer_propose(proposer, changes, n);
}

void
shard_homes_retire_types(ShardHomes *homes, int64 now, ShardProposer *proposer,
						 const ShardRoster *roster)
{
	int count;
	ShardMapEntry *types = shard_map_list(homes->decided, SHARD_MAP_TYPE, homes->arena, &count);

	for (int i = 0; i < count; i++)
	{
		Presence presence = presence_of(homes, now, types[i].key.a, types[i].n, roster, 0);
		ShardTypeRecord type;
		bool goes = !presence.listed;

		if ((goes && presence.unsure) || !shard_record_get_type(&types[i], &type, homes->arena) ||
			shard_proposer_pending(proposer, types[i].key))
			continue;
		if (type.dropping != goes)
		{
			type.dropping = goes;
			change_type(homes, &types[i], &type, proposer);
		}
		else if (goes && !presence.away)
			(void) drop_type(homes, types[i].key.a, proposer);
		else if (type.claims)
			settle_claim(homes, &types[i], &type, proposer);
	}
}

/*
 * May a member go without its homes of a type? It may if it has not got the type, and no other member can take
 * the homes, with the messages that wait there (D28). A host that is only away can take them.
 */
static bool
may_stay(ShardHomes *homes, int32 node, int32 type_id)
{
	const HomesRegion *region = present_region(homes, shard_homes_node(homes, node));
	const ShardMapEntry *entry =
		shard_map_value(homes->decided, (ShardMapKey){SHARD_MAP_TYPE, type_id, 0});

	return region && entry && region->as_of >= entry->n && !shard_homes_has(region, type_id) &&
		   !may_be_hosted(homes, type_id, node);
}

int
shard_homes_to_leave(ShardHomes *homes, int32 node)
{
#ifdef SHARD_MUTANT_BACKUPS_LEAVE
	int number = shard_homes_count(homes, node);
#else
	int number = shard_homes_count(homes, node) + shard_homes_node(homes, node)->n_backups;
#endif
	homes_shard_iterator iterator;
	HomesShard *shard;
	int32 type_id = 0;
	bool stays = false;

	if (number == 0)
		return 0;
	homes_shard_start_iterate(homes->shards, &iterator);
	while ((shard = homes_shard_iterate(homes->shards, &iterator)) != NULL)
	{
		if (shard->node != node)
			continue;
		if (shard->key.type_id != type_id)
		{
			type_id = shard->key.type_id;
			stays = may_stay(homes, node, type_id);
		}
		number -= stays;
	}
	return number;
}

int32
shard_homes_number_of_shards(const ShardHomes *homes, int32 wanted, int32 *type_id, int32 *number)
{
	const ShardMapEntry *entry;
	ShardTypeRecord type;

	if (wanted == *type_id)
		return *number;
	entry = shard_map_value(homes->decided, (ShardMapKey){SHARD_MAP_TYPE, wanted, 0});
	*type_id = wanted;
	*number = entry && shard_record_get_type(entry, &type, NULL) ? type.number_of_shards : 0;
	return *number;
}
