/*
 * core/member/membership.c
 *		Status, joining and age of members.
 *
 * Admission: membership_admit.c; which members vote: membership_voters.c.
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "core/member/difference.h"
#include "core/member/membership.h"
#include "core/base/text.h"
#include "core/map/type_number.h"
#include "shard.h"

/* ---- status ------------------------------------------------------------------------------------- */

static const char *const state_names[] = {
	[SHARD_MEMBER_NONE] = "none",
	[SHARD_MEMBER_JOINING] = "joining",
	[SHARD_MEMBER_WEAKLY_UP] = "weakly_up",
	[SHARD_MEMBER_UP] = "up",
	[SHARD_MEMBER_LEAVING] = "leaving",
	[SHARD_MEMBER_EXITING] = "exiting",
	[SHARD_MEMBER_REMOVED] = "removed",
	[SHARD_MEMBER_DOWN] = "down",
	[SHARD_MEMBER_WRITTEN_OFF] = "written_off",
};

static const char *const event_names[] = {
	[SHARD_MEMBERSHIP_FOUND] = "found",
	[SHARD_MEMBERSHIP_JOIN] = "join",
	[SHARD_MEMBERSHIP_ADMITTED] = "admitted",
	[SHARD_MEMBERSHIP_CONVERGED] = "converged",
	[SHARD_MEMBERSHIP_NOT_CONVERGED] = "not_converged",
	[SHARD_MEMBERSHIP_LEAVE] = "leave",
	[SHARD_MEMBERSHIP_EMPTIED] = "emptied",
	[SHARD_MEMBERSHIP_CONFIRMED] = "confirmed",
	[SHARD_MEMBERSHIP_DOWNED] = "downed",
	[SHARD_MEMBERSHIP_WRITE_OFF] = "write_off",
	[SHARD_MEMBERSHIP_STAY] = "stay",
};

StaticAssertDecl(lengthof(state_names) == SHARD_MEMBERSHIP_STATES, "each state has a name");
StaticAssertDecl(lengthof(event_names) == SHARD_MEMBERSHIP_EVENTS, "each event has a name");

#define STEP(from, event, to, note) \
	{ \
		SHARD_MEMBER_##from, SHARD_MEMBERSHIP_##event, SHARD_MEMBER_##to, note \
	}

static const ShardStep steps[] = {
	STEP(NONE, FOUND, UP, "the oldest member of its cluster"),
	STEP(NONE, JOIN, JOINING, "gets a node id, waits for its admission"),
	STEP(JOINING, ADMITTED, JOINING, "its workers start"),
	STEP(JOINING, CONVERGED, UP, "gets its age with the first time; may get homes and vote"),
	STEP(JOINING, NOT_CONVERGED, WEAKLY_UP, "works as a proxy; gets no homes, no age, no vote"),
	STEP(JOINING, LEAVE, LEAVING, "homes it came back with move away"),
	STEP(JOINING, DOWNED, DOWN, "this incarnation is fenced"),
	STEP(JOINING, WRITE_OFF, WRITTEN_OFF, "its node id is burnt"),
	STEP(WEAKLY_UP, ADMITTED, WEAKLY_UP, "a new incarnation, the old one is fenced"),
	STEP(WEAKLY_UP, CONVERGED, UP, "gets its age; may get homes and vote"),
	STEP(WEAKLY_UP, LEAVE, LEAVING, "homes it came back with move away"),
	STEP(WEAKLY_UP, DOWNED, DOWN, "this incarnation is fenced"),
	STEP(WEAKLY_UP, WRITE_OFF, WRITTEN_OFF, "its node id is burnt"),
	STEP(UP, ADMITTED, UP, "a new incarnation with everything, the old one is fenced"),
	STEP(UP, LEAVE, LEAVING, "its shards move away, its vote goes to another"),
	STEP(UP, DOWNED, DOWN, "this incarnation is fenced; homes with a durable state stay"),
	STEP(UP, WRITE_OFF, WRITTEN_OFF, "its homes start again elsewhere, without their state"),
	STEP(LEAVING, ADMITTED, LEAVING, "a new incarnation goes on with it"),
	STEP(LEAVING, LEAVE, LEAVING, "it does already"),
	STEP(LEAVING, STAY, UP, "with its age, and the homes that it still has"),
	STEP(LEAVING, EMPTIED, EXITING, "no homes, no vote"),
	STEP(LEAVING, DOWNED, DOWN, "this incarnation is fenced; what had not moved stays"),
	STEP(LEAVING, WRITE_OFF, WRITTEN_OFF, "what had not moved starts again, without its state"),
	STEP(EXITING, ADMITTED, EXITING, "a new incarnation hears that it exits"),
	STEP(EXITING, LEAVE, EXITING, "it does already"),
	STEP(EXITING, CONFIRMED, REMOVED, "its node id is not used again"),
	STEP(EXITING, DOWNED, DOWN, "this incarnation is fenced"),
	STEP(EXITING, WRITE_OFF, WRITTEN_OFF, "its node id is burnt"),
	STEP(REMOVED, LEAVE, REMOVED, "it has left"),
	STEP(DOWN, ADMITTED, JOINING, "comes back as a new incarnation, keeps its age"),
	STEP(DOWN, DOWNED, DOWN, "it is"),
	STEP(DOWN, WRITE_OFF, WRITTEN_OFF, "its homes start again elsewhere, without their state"),
	STEP(WRITTEN_OFF, WRITE_OFF, WRITTEN_OFF, "final"),
};

const ShardMachine shard_member_machine = {"member", state_names, event_names, steps,
										   lengthof(steps)};

bool
shard_membership_step(ShardMemberRecord *record, ShardMembershipEvent event)
{
	int next = shard_machine_next(&shard_member_machine, record->status, (int) event);

	if (next < 0)
		return false;
	record->status = next;
	return true;
}

const char *
shard_membership_status_name(ShardMemberStatus status)
{
	if ((int) status < 0 || (int) status >= SHARD_MEMBERSHIP_STATES)
		return "unknown";
	return state_names[status];
}

bool
shard_membership_is_gone(int32 status)
{
	return status == SHARD_MEMBER_REMOVED || status == SHARD_MEMBER_WRITTEN_OFF;
}

bool
shard_membership_is_member(int32 status)
{
	return status >= SHARD_MEMBER_JOINING && status <= SHARD_MEMBER_EXITING;
}

int32
shard_membership_pinned(const ShardMap *map, const ShardMapEntry *pin)
{
	int32 node = pin ? shard_record_get_pin(pin) : 0;
	const ShardMapEntry *entry =
		node != 0 ? shard_map_value(map, (ShardMapKey){SHARD_MAP_MEMBER, node, 0}) : NULL;
	ShardMemberRecord member;

	if (!entry || !shard_record_get_member(entry, &member, NULL))
		return 0;
#ifdef SHARD_MUTANT_PINS_OUTLIVE_NODES
	return node;
#endif
	return shard_membership_is_gone(member.status) ? 0 : node;
}

/* A member that was never admitted has not begun, one that is exiting or down is on its way out. */
bool
shard_membership_counts(const ShardMemberRecord *record)
{
	return record->inc_no > 0 && record->status >= SHARD_MEMBER_JOINING &&
		   record->status <= SHARD_MEMBER_LEAVING;
}

/* ---- joining ------------------------------------------------------------------------------------ */

/*
 * A text in the arena.
 */
static const char *
keep(ShardArena *arena, const char *text)
{
	return shard_arena_copy(arena, text, strlen(text) + 1);
}

/*
 * The member that has an address, 0: none. One that is gone for good has none any more.
 */
static int32
find_address(const ShardMap *decided, const char *dsn, ShardArena *arena)
{
	int count;
	ShardMapEntry *members = shard_map_list(decided, SHARD_MAP_MEMBER, arena, &count);

	for (int i = 0; i < count; i++)
	{
		ShardMemberRecord member;

		if (shard_record_get_member(&members[i], &member, arena) &&
			(shard_membership_is_member(member.status) || member.status == SHARD_MEMBER_DOWN) &&
			dsn[0] != '\0' && strcmp(member.dsn, dsn) == 0)
			return members[i].key.a;
	}
	return 0;
}

const char *
shard_membership_judge_join(const ShardMap *decided, int32 protocol_version,
							const ShardMemberRecord *joiner, bool loaded, ShardArena *arena)
{
	char text[800];
	int32 other = find_address(decided, joiner->dsn ? joiner->dsn : "", arena);

	if (protocol_version != SHARD_PROTOCOL_VERSION)
	{
		snprintf(text, sizeof(text),
				 "the cluster speaks protocol version %d, the node version %d; install the same "
				 "version of the extension",
				 SHARD_PROTOCOL_VERSION, protocol_version);
		return keep(arena, text);
	}
	if (loaded)
		return "the node has entities, homes, pending messages or other members; only an empty "
			   "node can join";
	if (other != 0)
	{
		snprintf(text, sizeof(text),
				 "node %d has the same address; if it is lost, write it off first with "
				 "shard_write_off(%d)",
				 other, other);
		return keep(arena, text);
	}
	return NULL;
}

const char *
shard_membership_judge_types(const ShardMap *decided, const ShardMapEntry *types, int n_types,
							 ShardArena *arena)
{
	int count;
	ShardTypeRecord *names = shard_type_number_names(decided, arena, &count);
	char text[800];

	for (int i = 0; i < n_types; i++)
	{
		ShardTypeRecord mine;
		const ShardTypeRecord *theirs;
		const char *difference;

		if (!shard_record_get_type(&types[i], &mine, arena))
			return "the node's types cannot be read; install the same version of the extension";
		theirs = shard_type_number_find(names, count, mine.name);
		difference = theirs ? shard_difference_of_types(theirs, &mine, true, arena) : NULL;
		if (!difference)
			continue;
		snprintf(text, sizeof(text),
				 "type \"%.*s\" has other settings in the cluster: %s; make them equal, or drop "
				 "it on the node",
				 shard_text_fit(mine.name, 100), mine.name, difference);
		shard_text_mend(text);
		return keep(arena, text);
	}
	return NULL;
}

int32
shard_membership_find_token(const ShardMap *decided, ShardUuid token, ShardArena *arena)
{
	int count;
	ShardMapEntry *members = shard_map_list(decided, SHARD_MAP_MEMBER, arena, &count);

	for (int i = 0; i < count; i++)
	{
		ShardMemberRecord member;

		if (shard_record_get_member(&members[i], &member, arena) &&
			shard_record_uuid_equal(member.join_token, token))
			return members[i].key.a;
	}
	return 0;
}

/* ---- age ---------------------------------------------------------------------------------------- */

bool
shard_membership_has_role(const ShardMemberRecord *record, const char *role)
{
	if (role[0] == '\0')
		return true;
	for (int i = 0; i < record->n_roles; i++)
	{
		if (strcmp(record->roles[i], role) == 0)
			return true;
	}
	return false;
}

/*
 * Is one member older than another? Ages are given once each; the node decides between those that
 * have none.
 */
static bool
is_older(int64 age, int32 node, int64 other_age, int32 other)
{
	if (age == other_age)
		return node < other;
	if (age == 0 || other_age == 0)
		return age != 0;
	return age < other_age;
}

/* Members that are not up go behind all that are. */
int
shard_membership_rank(const ShardMap *map, int32 node, ShardArena *arena)
{
	int count;
	ShardMapEntry *members = shard_map_list(map, SHARD_MAP_MEMBER, arena, &count);
	ShardMemberRecord self = {0};
	int rank = 0;

	(void) shard_record_get_member(shard_map_value(map, (ShardMapKey){SHARD_MAP_MEMBER, node, 0}),
								   &self, arena);
	for (int i = 0; i < count; i++)
	{
		ShardMemberRecord member;

		if (members[i].key.a != node && shard_record_get_member(&members[i], &member, arena) &&
			member.status == SHARD_MEMBER_UP &&
			(self.status != SHARD_MEMBER_UP ||
			 is_older(member.age, members[i].key.a, self.age, node)))
			rank++;
	}
	return rank;
}

int32
shard_membership_weight(const ShardMemberRecord *record)
{
	return record->weight != 0 ? record->weight : SHARD_ALLOCATION_WEIGHT_ONE;
}
