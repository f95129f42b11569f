/*
 * lies.c
 *		Somebody who may call the nodes speaks in the name of a member, with numbers of his own choice (T7).
 *
 * He calls, or answers for a node that is not the one in whose name he speaks. Who calls in the name of the coordinator could
 * tell a false map; what keeps him from that is the role by which he is let in, not the protocol.
 */
#include "world.h"

#include "core/map/control.h"
#include "core/member/roster_private.h"
#include "core/node/node_private.h"

#define FAR_BALLOT ((INT64CONST(1) << 62) - 2)

/* A ballot near the end, of the node that he speaks for; or the one that was promised last, of whoever it is. */
static int64
make_up_ballot(const Instance *instance, int32 from, bool far)
{
	int64 promised = shard_voter_promised(shard_node_voter(instance->node));

	return far || (uint16) promised == from ? FAR_BALLOT >> 16 << 16 | from : promised;
}

/* The incarnation of a member, as an instance has learned. */
static int32
incarnation_of(const Instance *instance, int32 node)
{
	const ShardMapEntry *entry = shard_map_value(shard_node_learned(instance->node),
												 (ShardMapKey){SHARD_MAP_MEMBER, node, 0});
	ShardArena *arena = shard_arena_create();
	ShardMemberRecord member = {0};

	if (entry && !shard_record_get_member(entry, &member, arena))
		member.inc_no = 0;
	shard_arena_destroy(arena);
	return member.inc_no;
}

/* Is something being decided of a member? */
static bool
is_changing(const Instance *instance, int32 node)
{
	return shard_proposer_office(shard_node_proposer(instance->node)) == SHARD_OFFICE_HELD &&
		   shard_proposer_pending(shard_node_proposer(instance->node),
								  (ShardMapKey){SHARD_MAP_MEMBER, node, 0});
}

/* What a member has said of itself and the others, as its coordinator has noted it. */
static RosterMember
noted(const Instance *instance, int32 node)
{
	const RosterMember *member =
		instance->node->in_office ? shard_roster_member(instance->node->roster, node) : NULL;

	return member ? *member : (RosterMember){0};
}

static bool
is_noted(const Instance *instance, int32 node, const RosterMember *before)
{
	RosterMember now = noted(instance, node);

	return now.confirmed > before->confirmed || now.n_reports != before->n_reports ||
		   memcmp(now.reports, before->reports, now.n_reports * sizeof(int32)) != 0;
}

/* What he says: numbers that are well formed, and wrong. */
static ShardControl
make_up(Instance *instance, int32 from, uint32 number, ShardMapEntry *entry, int32 *node,
		ShardArena *arena)
{
	const ShardMap *learned = shard_node_learned(instance->node);
	ShardControl message = {.era = shard_node_era(instance->node)};
	ShardHomeRecord home = {.epoch = 1000000, .n_nodes = 1, .nodes = {1}, .want = 1};
	int64 promised = shard_voter_promised(shard_node_voter(instance->node));
	static const ShardControlKind votes[] = {SHARD_CONTROL_PREPARE, SHARD_CONTROL_SYNC,
											 SHARD_CONTROL_ACCEPT, SHARD_CONTROL_HEARTBEAT};

	switch (number % 11)
	{
		case 0:
			message.kind = votes[number / 5 % lengthof(votes)];
			message.b = make_up_ballot(instance, from, number / 20 % 2);
			break;
		case 1:
			message.kind = SHARD_CONTROL_NACK;
			message.b = promised;
			message.ballot = FAR_BALLOT;
			break;
		case 2:
			message.kind = SHARD_CONTROL_FENCED;
			message.inc_no =
				shard_node_incarnation(instance->node) + 1 + (int32) (number / 5 % 1000);
			message.uuid = (ShardUuid){0xbad, number};
			if (number / 6 % 2)
			{
				ShardMemberRecord member = {.status = SHARD_MEMBER_WRITTEN_OFF, .dsn = ""};

				*entry = shard_record_put_member(shard_node_id(instance->node), &member, 0, arena);
				entry->n = shard_map_point(learned).n + 1;
				message.entries = entry;
				message.n_entries = 1;
			}
			break;
		case 3:
			message.kind = SHARD_CONTROL_MEMBER_HEARTBEAT;
			message.era = number / 5 % 2 ? PG_INT32_MAX : message.era + 1;
			break;
		case 4:
			/* what the voter is to believe that it has promised, or accepted, and forgotten (R23) */
			message.kind = number / 6 % 2 ? SHARD_CONTROL_PREPARE : SHARD_CONTROL_HEARTBEAT;
			message.b = (uint16) promised == from ? promised : from;
			message.ballot = promised + (number / 12 % 2 ? 1 << 16 : 0);
			message.remembered = (ShardMapPoint){promised, PG_INT32_MAX};
			break;
		case 6:
			/* what the member's operator is to have said, and last of all */
			message.kind = SHARD_CONTROL_COMMAND;
			message.b = promised;
			message.token = PG_INT64_MAX;
			message.command = SHARD_COMMAND_EVACUATE;
			message.node = from;
			message.flag = true;
			message.uuid = (ShardUuid){number / 9 % 2, number};
			break;
		case 7:
			message.kind = SHARD_CONTROL_GRACEFUL_SHUTDOWN_REQ;
			message.wish = message.token = PG_INT64_MAX / 2;
			break;
		case 8:
			message.kind = SHARD_CONTROL_ADMIT;
			message.node = from;
			message.start_kind = SHARD_START_RESTART;
			message.inc_no = incarnation_of(instance, from);
			message.uuid = (ShardUuid){0xbad, number};
			break;
		case 9:
			/* whom the member is to miss, and that it has left nothing undone; of no ballot, as it votes for none */
			message.kind = SHARD_CONTROL_HEARTBEAT_ACK;
			message.b = from;
			message.learned_n = PG_INT64_MAX / 2;
			message.voter_state = SHARD_VOTER_AMNESIAC;
			message.uuid = (ShardUuid){number / 12 % 2, number};
			*node = (int32) (number / 11 % 6) + 1;
			message.nodes = node;
			message.n_nodes = 1;
			break;
		default:
			home.phase = SHARD_HOME_STABLE;
			message.kind = number / 5 % 2 ? SHARD_CONTROL_LEARN : SHARD_CONTROL_SHARD_HOMES;
			message.above = shard_map_point(learned).n;
			message.commit_n = message.above + 1;
			*entry =
				shard_record_put_home(1, (int32) (number / 10 % 4), &home, message.above, arena);
			entry->n = message.commit_n;
			message.entries = entry;
			message.n_entries = 1;
			break;
	}
	return message;
}

void
lies_tell(World *world, Instance *instance, int32 from, uint32 number)
{
	/* of some node, which need not exist; 0: he calls */
	int32 via = number >> 24 & 1 ? (int32) (number >> 25 & 7) + 1 : 0;
	ShardArena *arena;
	ShardMapEntry entry;
	ShardControl message;
	StringInfoData bytes;
	RosterMember before;
	int32 node;
	bool fenced;
	bool well;
	bool changing;
	int32 era;

	if (!instance->up || !instance->node || !instance->joined || shard_node_joining(instance->node))
		return;
	fenced = shard_node_fenced(instance->node);
	well = shard_voter_state(shard_node_voter(instance->node)) == SHARD_VOTER_OK;
	era = shard_node_era(instance->node);
	changing = is_changing(instance, from);
	before = noted(instance, from);
	arena = shard_arena_create();
	message = make_up(instance, from, number, &entry, &node, arena);
	message.cluster = shard_node_cluster(instance->node);
	message.protocol_version = SHARD_PROTOCOL_VERSION;
	message.from = from;
	if (message.kind == SHARD_CONTROL_COMMAND ||
		message.kind == SHARD_CONTROL_GRACEFUL_SHUTDOWN_REQ ||
		message.kind == SHARD_CONTROL_HEARTBEAT_ACK)
		message.from_inc = incarnation_of(instance, from);
	/* Who decides is believed (see above), and who was called, for himself. */
	if (via != from &&
		(via != 0 || from != shard_node_coordinator(instance->node, world_clock(instance))) &&
		shard_map_point(shard_node_learned(instance->node)).n > 0)
	{
		initStringInfo(&bytes);
		shard_control_encode(&bytes, &message);
		host_told(world, instance, via, bytes.data, (size_t) bytes.len);
		pfree(bytes.data);
		if (!instance->node)
			;
		else if (!fenced && shard_node_fenced(instance->node))
			check_fail(world->check, "T7: %s is fenced by somebody's word", instance->dsn);
		else if (shard_node_era(instance->node) != era)
			check_fail(world->check, "T7: %s enters an era by somebody's word", instance->dsn);
		else if (well &&
				 shard_voter_state(shard_node_voter(instance->node)) == SHARD_VOTER_AMNESIAC)
			check_fail(world->check, "T7: %s has forgotten its votes by somebody's word",
					   instance->dsn);
		else if (message.from_inc != 0 && !changing && is_changing(instance, from))
			check_fail(world->check, "T7: node %d leaves, or is emptied, by somebody's word", from);
		else if (instance->node->in_office && is_noted(instance, from, &before))
			check_fail(world->check,
					   "T7: node %d misses others, or has left all, by somebody's word", from);
		else if (shard_voter_promised(shard_node_voter(instance->node)) >= FAR_BALLOT / 2)
			check_fail(world->check, "T7: %s promises the last ballot", instance->dsn);
	}
	shard_arena_destroy(arena);
}
