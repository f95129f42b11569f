/*
 * core/node/node_member.c
 *		A node as member of its cluster: admission, heartbeats, lease.
 *
 * An incarnation is a fresh random number at each start. It is written down before it is claimed, and
 * it is granted by a decided fact (I1, I3). If the node dies after the grant was decided and before it
 * heard of it, the next start finds the granted number among those that it wrote down, and so knows
 * its place; a copy that was put back lacks that row and is refused.
 *
 * A restarted node whose state no other node could have taken over handles messages at once (I4), until it
 * hears of another incarnation of the node. Everything else waits for the admission.
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "core/node/node_private.h"
#include "core/node/trust_private.h"
#include "core/base/text.h"

/* ---- workers ---------------------------------------------------------------------------------- */

/*
 * Does a leased shard live here, or is this identity itself leased (L7)? replicated: shards of types with replicas count,
 * too.
 */
static bool
has_leases(const ShardNode *node, bool replicated)
{
	ShardMemberRecord self;
	int count;
	ShardMapEntry *types = shard_map_list(node->learned, SHARD_MAP_TYPE, node->out->arena, &count);

	if (shard_node_get_member(node, node->id, &self) && self.identity_lease)
		return true;
	for (int i = 0; i < count; i++)
	{
		ShardTypeRecord type;

		if (shard_record_get_type(&types[i], &type, NULL) && type.leased &&
			(replicated || type.replicas == 0))
			return true;
	}
	return false;
}

/*
 * May local messages be handled before the admission (I4)? Types with replicas keep nobody from that: no node takes over
 * their shards yet, and other types go on as if there were none (Q40).
 */
static bool
may_handle_early(const ShardNode *node)
{
	ShardMemberRecord self;

	return shard_node_is_in_place(node) && node->start_kind == SHARD_START_RESTART &&
		   node->inc_no > 0 && shard_node_get_member(node, node->id, &self) &&
		   self.inc_no == node->inc_no && shard_membership_is_member(self.status) &&
		   self.gate == SHARD_GATE_LOCAL && !has_leases(node, false);
}

void
shard_node_member_workers(ShardNode *node, const char *why)
{
	bool may_run = !node->fenced && !node->join.address;
	bool push = may_run && node->admitted && shard_membership_is_member(node->status);
	bool handle = push || (may_run && !node->admitted && may_handle_early(node));

	if (handle == node->handling && push == node->pushing)
		return;
	if (handle)
	{
		ShardAction *start = shard_action_add(node->out, SHARD_ACTION_START_WORKERS);

		start->flag = push;
		start->node = node->id;
		start->inc_no = node->inc_no;
		start->uuid = node->inc_uuid;
		/* They may have missed facts while they were not there. */
		shard_node_learn_tell(node);
	}
	else
	{
		shard_action_add(node->out, SHARD_ACTION_STOP_WORKERS)->text = why;
		shard_node_region_stopped(node);
	}
	node->handling = handle;
	node->pushing = push;
}

/* ---- peers ------------------------------------------------------------------------------------ */

static NodePeer *
peer_of(ShardNode *node, int64 now, int32 id)
{
	NodePeer *peer;

	for (int i = 0; i < node->n_peers; i++)
	{
		if (node->peers[i].node == id)
			return &node->peers[i];
	}
	node->peers = node->peers ? repalloc(node->peers, (node->n_peers + 1) * sizeof(NodePeer))
							  : palloc(sizeof(NodePeer));
	peer = &node->peers[node->n_peers++];
	memset(peer, 0, sizeof(NodePeer));
	peer->node = id;
	shard_detector_init(&peer->detector, NULL);
	shard_detector_heartbeat(&peer->detector, now);
	return peer;
}

/* ---- admission -------------------------------------------------------------------------------- */

bool
shard_node_member_claimed(const ShardNode *node, ShardUuid uuid)
{
	for (int i = 0; i < node->n_claimed; i++)
	{
		if (shard_record_uuid_equal(node->claimed[i], uuid))
			return true;
	}
	return false;
}

/*
 * Another incarnation lives, or the node was written off or removed: this incarnation is fenced for
 * good (I6).
 */
static void
fence(ShardNode *node, const char *why)
{
	if (node->fenced)
		return;
	node->fenced = true;
	node->admitted = false;
	if (node->leave_wished)
		shard_node_region_end_leave(node, false, why);
	shard_node_write_identity(node);
	shard_proposer_step_down(node->proposer);
	shard_action_log(node->out, 19 /* WARNING */, "node %d is fenced: %s", node->id, why);
	shard_node_member_workers(node, why);
}

/*
 * Another incarnation lives, which this database never claimed, before this start was admitted: the database is a former
 * life of the node, which has no right to its shards (I4). An operator may admit it all the same.
 */
static void
superseded(ShardNode *node, int32 inc_no)
{
	bool news = node->superseded_by == 0;

	node->superseded_by = inc_no;
	if (!news)
		return;
	shard_action_log(
		node->out, 19 /* WARNING */,
		"node %d is not admitted and stops: incarnation %d of it is the cluster's, and "
		"this database is a former life of it, from incarnation %d",
		node->id, inc_no, node->inc_no);
	shard_node_member_workers(node, "another incarnation of this node lives");
}

/* The grant of this start's incarnation was learned. */
static void
admitted(ShardNode *node, int32 inc_no)
{
	node->inc_no = inc_no;
	node->admitted = true;
	node->superseded_by = 0;
	node->n_fenced_by = 0;
	node->claimed[0] = node->inc_uuid;
	node->n_claimed = 1;
	shard_node_write_identity(node);
}

/* Finish the operator's shard_leave(): it has left, or it does not leave any more. */
static void
left(ShardNode *node)
{
	if (node->leave_wished)
		shard_node_region_end_leave(node, true, NULL);
}

/*
 * This start was admitted in an era that is over, by voters that were given up: this era knows the
 * incarnation before it. The node claims its place again, as the successor of that one (R13).
 */
static void
not_admitted_here(ShardNode *node, int32 inc_no)
{
	node->admitted = false;
	node->inc_no = inc_no;
	node->next_admit = 0;
	shard_node_write_identity(node);
}

void
shard_node_member_self(ShardNode *node)
{
	ShardMemberRecord self;

	if (!shard_node_get_member(node, node->id, &self))
	{
		if (node->admitted)
		{
			left(node);
			fence(node, "the node is no longer a member");
		}
		return;
	}
	if (node->leave_wished && node->status == SHARD_MEMBER_LEAVING &&
		self.status == SHARD_MEMBER_UP)
		shard_node_region_end_leave(node, false, SHARD_NODE_LEAVE_CANCELLED);
	node->status = self.status;
	if (shard_membership_is_gone(self.status))
	{
		left(node);
		fence(node, self.status == SHARD_MEMBER_REMOVED ? "the node has left the cluster"
														: "the node was written off");
		return;
	}
	if (shard_record_uuid_equal(self.inc_uuid, node->inc_uuid))
	{
		if (self.status == SHARD_MEMBER_DOWN)
		{
			/* Reversible: the node comes back as a new incarnation, which needs a new start (I9). */
			ShardAction *stop;

			left(node);
			node->admitted = false;
#ifndef SHARD_MUTANT_DOWN_UNDONE
			node->running = false;
#endif
			stop = shard_action_add(node->out, SHARD_ACTION_STOP_WORKERS);
			stop->text = "this incarnation was downed";
			stop->flag = true;
			node->handling = node->pushing = false;
			return;
		}
		if (!node->admitted)
			admitted(node, self.inc_no);
	}
	else if (shard_node_member_claimed(node, self.inc_uuid))
	{
		/* Granted to an earlier start of this very database. */
		if (self.inc_no > node->inc_no)
		{
			node->inc_no = self.inc_no;
			shard_node_write_identity(node);
		}
	}
	else if (node->admitted && self.inc_no > node->inc_no)
		fence(node, "another incarnation of the node lives");
	else if (node->admitted && self.inc_no < node->inc_no)
		not_admitted_here(node, self.inc_no);
	shard_node_member_workers(node, "not admitted");
}

/* The coordinator does not admit this start; each reason is told once. */
static void
admission_refused(ShardNode *node, const ShardControl *message)
{
	if (message->flag || node->admitted || !message->text ||
		strncmp(node->refusal, message->text, sizeof(node->refusal) - 1) == 0)
		return;
	shard_text_copy(node->refusal, message->text, sizeof(node->refusal));
	shard_action_log(node->out, 19 /* WARNING */, "node %d is not admitted: %s", node->id,
					 message->text);
}

/*
 * Does another incarnation live? A claim waits until its uuid is durable and past the gate (I7), which for an old primary,
 * whose standby follows no more, is for ever; so what it would hear then is asked for without a claim.
 */
static void
ask_who_lives(ShardNode *node, int32 to)
{
	ShardControl *message;

	if (to == node->id || node->last_ticket <= node->persisted)
		return;
	message = shard_action_send(node->out, to, SHARD_CONTROL_ADMIT);
	message->node = node->id;
	message->inc_no = node->inc_no;
	message->start_kind = node->start_kind;
}

/* Claim this start's incarnation at each node that may hold the office. */
static void
claim(ShardNode *node, int64 now)
{
	int count;
	ShardMapEntry *members;
	ShardMapEntry *self;
	ShardMemberRecord record = {0};

	if (node->admitted || node->id == 0 || node->config.journal_voter || now < node->next_admit)
		return;
	node->next_admit = now + SHARD_RESEND_INTERVAL;
	shard_node_join_describe(node, &record);
	self = shard_arena_alloc(node->out->arena, sizeof(ShardMapEntry));
	*self = shard_record_put_member(node->id, &record, 0, node->out->arena);
	members = shard_map_list(node->learned, SHARD_MAP_MEMBER, node->out->arena, &count);
	for (int i = 0; i < count; i++)
	{
		ShardControl *message;
		ShardMemberRecord member;

		if (!shard_record_get_member(&members[i], &member, node->arena) ||
			!(shard_membership_is_member(member.status) || members[i].key.a == node->id))
			continue;
		/* from now on the member is missed if it says nothing */
		if (members[i].key.a != node->id)
			(void) peer_of(node, now, members[i].key.a);
		ask_who_lives(node, members[i].key.a);
		message = shard_action_send(node->out, members[i].key.a, SHARD_CONTROL_ADMIT);
		message->node = node->id;
		message->inc_no = node->inc_no;
		message->uuid = node->inc_uuid;
		message->start_kind = node->start_kind;
		message->token = node->config.live.gate;
		message->entries = self;
		message->n_entries = 1;
	}
}

/* ---- heartbeats ------------------------------------------------------------------------------- */

void
shard_node_member_heard(ShardNode *node, int64 now, int32 from)
{
	ShardMemberRecord member;

	if (from == node->id || !shard_node_get_member(node, from, &member))
		return;
	shard_detector_heartbeat(&peer_of(node, now, from)->detector, now);
}

void
shard_node_member_called(ShardNode *node, const ShardControl *message)
{
	const ShardMapEntry *entry =
		shard_map_value(node->learned, (ShardMapKey){SHARD_MAP_MEMBER, message->from, 0});
	ShardMemberRecord member;
	ShardControl *reply;

	if (node->via != 0 || message->from == node->id || !entry ||
		!shard_record_get_member(entry, &member, node->arena) ||
		!shard_membership_is_gone(member.status))
		return;
#ifdef SHARD_MUTANT_GONE_HEAR_NOTHING
	return;
#endif
	reply = shard_action_send(node->out, message->from, SHARD_CONTROL_FENCED);
	reply->inc_no = member.inc_no;
	reply->uuid = member.inc_uuid;
	reply->member_status = member.status;
	reply->n_entries = 1;
	reply->entries = shard_arena_copy(node->out->arena, entry, sizeof(ShardMapEntry));
	reply->entries->value = shard_arena_copy(node->out->arena, entry->value, entry->length);
}

/* by this node's own failure detector; the node itself always is. */
bool
shard_node_reachable(const ShardNode *node, int32 id, int64 now)
{
	for (int i = 0; i < node->n_peers; i++)
	{
		if (node->peers[i].node == id)
			return shard_detector_available(&node->peers[i].detector, now);
	}
	return id == node->id;
}

/* The members that this node cannot reach, in the step's arena. */
static int
unreached(ShardNode *node, int32 **nodes)
{
	int count = 0;

	*nodes = shard_arena_alloc(node->out->arena, sizeof(int32) * Max(node->n_peers, 1));
	for (int i = 0; i < node->n_peers; i++)
	{
		ShardMemberRecord member;

		if (node->peers[i].unreachable &&
			shard_node_get_member(node, node->peers[i].node, &member) &&
			shard_membership_is_member(member.status))
			(*nodes)[count++] = node->peers[i].node;
	}
	return count;
}

static void
send_heartbeats(ShardNode *node, int64 now)
{
	int count;
	ShardMapEntry *members;

	if (now < node->next_heartbeat || !node->admitted)
		return;
	node->next_heartbeat = now + SHARD_MEMBER_HEARTBEAT_INTERVAL;
	members = shard_map_list(node->learned, SHARD_MAP_MEMBER, node->out->arena, &count);
	for (int i = 0; i < count; i++)
	{
		ShardMemberRecord member;
		NodePeer *peer;

		if (members[i].key.a == node->id ||
			!shard_record_get_member(&members[i], &member, node->arena) ||
			!shard_membership_is_member(member.status))
			continue;
		peer = peer_of(node, now, members[i].key.a);
		peer->unreachable = !shard_detector_available(&peer->detector, now);
		shard_action_send(node->out, members[i].key.a, SHARD_CONTROL_MEMBER_HEARTBEAT);
	}
}

/* Whose place is claimed in vain, as the coordinator has it (I14). */
static void
take_claims(ShardNode *node, const ShardControl *message)
{
	node->n_claimed_nodes = Min(message->n_nodes, SHARD_MAX_CLAIMS);
	for (int i = 0; i < node->n_claimed_nodes; i++)
		node->claimed_nodes[i] = message->nodes[i];
	node->n_claimed_elsewhere = Min(message->n_nodes2, SHARD_MAX_CLAIMS);
	for (int i = 0; i < node->n_claimed_elsewhere; i++)
		node->claimed_elsewhere[i] = message->nodes2[i];
}

ShardNodeClaim
shard_node_is_claimed(const ShardNode *node, int32 id, int64 now)
{
	if (shard_node_coordinator(node, now) == 0)
		return SHARD_NODE_UNCLAIMED;
	for (int i = 0; i < node->n_claimed_nodes; i++)
	{
		if (node->claimed_nodes[i] == id)
			return SHARD_NODE_CLAIMED;
	}
	for (int i = 0; i < node->n_claimed_elsewhere; i++)
	{
		if (node->claimed_elsewhere[i] == id)
			return SHARD_NODE_CLAIMED_ELSEWHERE;
	}
	return SHARD_NODE_UNCLAIMED;
}

/* What this node says to the last heartbeat of the coordinator that it follows. */
static void
answer_heartbeat(ShardNode *node)
{
	ShardControl *reply =
		shard_action_send(node->out, node->coordinator, SHARD_CONTROL_HEARTBEAT_ACK);

	reply->b = node->coordinator_ballot;
	reply->token = node->heartbeat;
	reply->learned_n = shard_map_point(node->learned).n;
	reply->accepted = shard_map_point(shard_voter_map(node->voter));
	reply->ballot = shard_voter_promised(node->voter);
	reply->voter_state = shard_voter_state(node->voter);
	reply->uuid = node->code;
	reply->n_nodes = unreached(node, &reply->nodes);
	reply->flag = node->config.roster.leave_confirmed && node->status == SHARD_MEMBER_EXITING &&
				  !node->emptied;
	node->heartbeat_unnamed = !node->admitted;
}

/*
 * A heartbeat that was answered for an incarnation without number does not count for it: now that it has one, it is
 * answered again, so that this node is given shards before the next one.
 */
static void
answer_by_name(ShardNode *node, int64 now)
{
	if (!node->heartbeat_unnamed || !node->admitted)
		return;
	node->heartbeat_unnamed = false;
#ifndef SHARD_MUTANT_ANSWERED_WITHOUT_NUMBER
	if (node->heartbeat_ballot == node->coordinator_ballot &&
		now - node->coordinator_heard < SHARD_HEARTBEAT_INTERVAL)
		answer_heartbeat(node);
#endif
}

void
shard_node_member_remind_former(ShardNode *node, const ShardControl *message)
{
	if (node->superseded_by != 0 &&
		(message->kind == SHARD_CONTROL_PREPARE || message->kind == SHARD_CONTROL_HEARTBEAT))
		shard_voter_reminded(node->voter, message, node->out);
}

/* The coordinator's heartbeat: follow it, or tell it that its time is over (R10). */
static void
heartbeat(ShardNode *node, int64 now, const ShardControl *message)
{
	int64 known = Max(node->coordinator_ballot, shard_voter_promised(node->voter));
	ShardMemberRecord sender;
	ShardControl *reply;

	if (!shard_node_is_in_place(node))
	{
		/*
		 * A coordinator that calls here knows where this node is, by a record that this node may lack: it learns, and
		 * promises nothing.
		 */
		if (message->b >= known)
		{
			node->coordinator = message->from;
			node->coordinator_heard = now;
			shard_action_send(node->out, 0, SHARD_CONTROL_GET_DELTA)->learned_n =
				shard_map_point(node->learned).n;
		}
		shard_node_member_remind_former(node, message);
		return;
	}
	if (message->b < known)
	{
		reply = shard_action_send(node->out, message->from, SHARD_CONTROL_NACK);
		reply->b = message->b;
		reply->ballot = known;
		return;
	}
	if (message->b != node->coordinator_ballot)
	{
		node->coordinator = message->from;
		node->coordinator_ballot = message->b;
		shard_node_region_new_coordinator(node);
	}
	node->coordinator_heard = now;
	node->campaigns = 0;
	shard_proposer_saw_ballot(node->proposer, message->b);
	take_claims(node, message);
	if (message->from != node->id && !shard_node_get_member(node, message->from, &sender))
	{
		/*
		 * The coordinator joined while this node was away: the answer over this link brings its
		 * record.
		 */
		shard_action_send(node->out, 0, SHARD_CONTROL_GET_DELTA)->learned_n =
			shard_map_point(node->learned).n;
	}
	if (message->ballot != 0)
		shard_voter_reminded(node->voter, message, node->out);
	node->heartbeat = message->token;
	node->heartbeat_ballot = message->b;
	answer_heartbeat(node);
}

/* The process ends in good order: the others need not find out by its silence (R33). */
static void
say_goodbye(ShardNode *node)
{
	int count;
	ShardMapEntry *members =
		shard_map_list(node->learned, SHARD_MAP_MEMBER, node->out->arena, &count);

	if (!node->admitted || node->fenced)
		return;
	for (int i = 0; i < count; i++)
	{
		ShardMemberRecord member;

		if (members[i].key.a != node->id &&
			shard_record_get_member(&members[i], &member, node->arena) &&
			shard_membership_is_member(member.status))
			shard_action_send(node->out, members[i].key.a, SHARD_CONTROL_GOODBYE);
	}
}

/* Said by the incarnation that is known; what an earlier one said means nothing. */
static void
heard_goodbye(ShardNode *node, int64 now, const ShardControl *message)
{
	ShardMemberRecord member;

	if (message->from != node->id && message->from_inc != 0 &&
		shard_node_get_member(node, message->from, &member) && member.inc_no == message->from_inc)
		shard_detector_goodbye(&peer_of(node, now, message->from)->detector, now);
}

/* ---- lease ------------------------------------------------------------------------------------ */

static int64
lease_until(const ShardNode *node)
{
	return shard_lease_until(&node->lease, shard_map_point(node->learned).n);
}

/* Tell the workers when the end of the lease has changed. */
static void
tell_lease(ShardNode *node)
{
	int64 until = lease_until(node);

	if (until == node->lease_told)
		return;
	node->lease_told = until;
	shard_action_add(node->out, SHARD_ACTION_LEASE)->until = until;
}

static void
renew(ShardNode *node, int64 now)
{
	ShardControl *message;

	tell_lease(node);
	if (!node->admitted || now < node->next_renewal || !has_leases(node, true))
		return;
	node->next_renewal = now + SHARD_LEASE_RENEWAL;
	message = shard_node_to_coordinator(node, SHARD_CONTROL_RENEW);
	if (message)
		message->token = shard_lease_renew(&node->lease, now);
}

/* ---- events ----------------------------------------------------------------------------------- */

void
shard_node_member_start(ShardNode *node, int64 now)
{
	node->next_heartbeat = now;
	node->next_admit = now;
	node->next_renewal = now;
	node->next_look = now;
	if (!node->join.address)
		shard_node_member_self(node);
	shard_node_member_workers(node, "");
}

void
shard_node_member_tick(ShardNode *node, int64 now)
{
	if (node->join.address)
	{
		shard_node_join_tick(node, now);
		return;
	}
	shard_node_place_tick(node, now);
	claim(node, now);
	send_heartbeats(node, now);
	renew(node, now);
}

void
shard_node_member_receive(ShardNode *node, int64 now, const ShardControl *message)
{
	switch (message->kind)
	{
		case SHARD_CONTROL_JOIN_REPLY:
		case SHARD_CONTROL_COORDINATOR_HINT:
			shard_node_join_receive(node, now, message);
			break;
		case SHARD_CONTROL_HEARTBEAT:
			heartbeat(node, now, message);
			break;
		case SHARD_CONTROL_GRANT:
			shard_lease_grant(&node->lease, message->token, message->ttl_ms, message->facts_n, now);
			break;
		case SHARD_CONTROL_ADMIT_REPLY:
			admission_refused(node, message);
			break;
		case SHARD_CONTROL_GOODBYE:
			heard_goodbye(node, now, message);
			break;
		case SHARD_CONTROL_FENCED:
			if (!shard_node_trust_fenced(node, now, message))
				break;
			if (message->n_entries > 0)
				shard_node_learn_end(node, &message->entries[0]);
			else if (node->admitted)
				fence(node, "another incarnation of the node lives");
			else
				superseded(node, message->inc_no);
			break;
		default:
			break;
	}
	answer_by_name(node, now);
	if (!node->fenced)
		tell_lease(node);
}

void
shard_node_member_event(ShardNode *node, const ShardNodeEvent *event)
{
	if (event->kind == SHARD_EVENT_EMPTIED)
		node->emptied = node->status == SHARD_MEMBER_EXITING;
	else if (event->kind == SHARD_EVENT_GOODBYE)
	{
		say_goodbye(node);
		/* Whatever it said from now on would show that it lives. */
		node->running = false;
	}
}
