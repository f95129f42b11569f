/*
 * core/node/node_place.c
 *		Which incarnation sits at the address of a node: is it this one?
 *
 * A clone of a running machine looks like a restart to itself. So a node first looks which incarnation
 * answers at its own registered address: until it has found itself there it neither votes nor handles
 * anything. A clone finds the original, or no answer. A node that is alone in its cluster, and whose address
 * is nothing but a caller's word, goes on whatever that says: it has promised nothing to other nodes, and no
 * other node calls it.
 *
 * Later it goes on looking, now and then, for people to see: the others talk to the incarnation that sits
 * there.
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "core/node/node_private.h"

/* How often it looks once it has found itself, and when it does not any more. */
#define LOOK_INTERVAL (60 * SHARD_SECOND)
#define LOOK_AGAIN (5 * SHARD_SECOND)

/* This node sits there, or no look is needed. */
static void
found(ShardNode *node)
{
	if (node->found_itself)
		return;
	node->found_itself = true;
	node->refusal[0] = '\0';
	shard_node_member_workers(node, "");
}

/* Look at another address: what was found at the former one says nothing of it. */
static void
look_there(ShardNode *node, int64 now, const char *dsn)
{
	if (node->looked_at && strcmp(node->looked_at, dsn) == 0)
		return;
	if (node->looked_at)
		pfree(node->looked_at);
	node->looked_at = pstrdup(dsn);
	node->place = SHARD_NODE_PLACE_UNKNOWN;
	node->look_since = 0;
	node->next_look = now;
}

/*
 * Is it the only one of its cluster that ever began? A member that was only to join has been told
 * nothing yet.
 */
static bool
is_alone(const ShardNode *node)
{
	int count;
	ShardMapEntry *members =
		shard_map_list(node->learned, SHARD_MAP_MEMBER, node->out->arena, &count);

	for (int i = 0; i < count; i++)
	{
		ShardMemberRecord member;

		if (members[i].key.a != node->id &&
			(!shard_record_get_member(&members[i], &member, node->arena) ||
			 (member.inc_no > 0 && member.status != SHARD_MEMBER_REMOVED &&
			  member.status != SHARD_MEMBER_WRITTEN_OFF)))
			return false;
	}
	return true;
}

void
shard_node_place_tick(ShardNode *node, int64 now)
{
	ShardMemberRecord self;
	ShardAction *action;
	bool known = shard_node_get_member(node, node->id, &self);

	look_there(node, now, known ? self.dsn : "");
	/* A node that has no address was never seen by another one. */
	if (node->looked_at[0] == '\0')
		found(node);
#ifndef SHARD_MUTANT_ADDRESS_STOPS_LONE_NODE
	else if (!node->found_itself && self.ground != SHARD_ADDRESS_SAID && is_alone(node))
		found(node);
#endif
	if (node->looked_at[0] == '\0' || now < node->next_look)
		return;
	node->next_look = now + (node->found_itself ? LOOK_AGAIN : SHARD_RESEND_INTERVAL);
	if (node->look_since == 0)
		node->look_since = now;
	action = shard_action_add(node->out, SHARD_ACTION_WHO_AT);
	action->node = node->id;
	action->uuid = node->inc_uuid;
}

/*
 * The way to a guessed address has changed: a caller that brings a better one is not to be kept out
 * (I15).
 */
static void
note_ground(ShardNode *node, int64 now, ShardAddressGround ground)
{
	ShardMemberRecord self;
	const char *why;
	bool taken;

	/* not looked at */
	if (ground == SHARD_ADDRESS_SAID)
		return;
	if (node->in_office && shard_node_get_member(node, node->id, &self) &&
		self.ground != SHARD_ADDRESS_SAID && self.ground != (int32) ground)
		(void) shard_roster_set_address(node->roster, now, node->id,
										&(ShardAddress){.dsn = self.dsn, .ground = ground},
										node->proposer, &taken, &why);
}

void
shard_node_place_who(ShardNode *node, int64 now, ShardUuid uuid, ShardAddressGround ground)
{
#ifdef SHARD_MUTANT_CLONE_VOTES
	uuid = node->inc_uuid;
#endif
	node->look_since = 0;
	if (shard_record_uuid_equal(uuid, node->inc_uuid))
	{
		node->place =
			ground == SHARD_ADDRESS_RELAYED ? SHARD_NODE_PLACE_RELAYED : SHARD_NODE_PLACE_FOUND;
		node->next_look = now + LOOK_INTERVAL;
		found(node);
		note_ground(node, now, ground);
		return;
	}
	node->place = SHARD_NODE_PLACE_OTHER;
	if (!node->found_itself && node->refusal[0] == '\0')
	{
		snprintf(node->refusal, sizeof(node->refusal),
				 "another database answers at the address of node %d: this one is a copy",
				 node->id);
		shard_action_log(node->out, 19 /* WARNING */, "%s", node->refusal);
	}
}

void
shard_node_place_said(ShardNode *node)
{
	found(node);
}

ShardNodePlace
shard_node_place(const ShardNode *node, int64 now)
{
	if (node->look_since != 0 && now - node->look_since >= LOOK_AGAIN)
		return SHARD_NODE_PLACE_NOBODY;
	return node->place;
}
