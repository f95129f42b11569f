/*
 * core/node/node_step.c
 *		The end of a node's step: one transaction, and which messages have to wait for it.
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "core/map/control_queue.h"
#include "core/node/node_private.h"
#include "shard.h"

/* Put something at the end of a queue. */
static NodeHeld *
put_held(NodeQueue *queue, int64 ticket, const char *bytes, size_t length)
{
	NodeHeld *held = palloc0(offsetof(NodeHeld, bytes) + length);

	held->ticket = ticket;
	held->length = length;
	if (length > 0)
		memcpy(held->bytes, bytes, length);
	if (queue->last)
		queue->last->next = held;
	else
		queue->first = held;
	queue->last = held;
	queue->count++;
	queue->bytes += length;
	return held;
}

/* Take out the one behind another; NULL: the first. */
static NodeHeld *
take_behind(NodeQueue *queue, NodeHeld *before)
{
	NodeHeld *held = before ? before->next : queue->first;

	if (held == NULL)
		return NULL;
	if (before)
		before->next = held->next;
	else
		queue->first = held->next;
	if (queue->last == held)
		queue->last = before;
	queue->count--;
	queue->bytes -= held->length;
	return held;
}

NodeHeld *
shard_node_step_take(NodeQueue *queue)
{
	return take_behind(queue, NULL);
}

void
shard_node_step_queue(NodeQueue *queue, int64 ticket, int32 to, const char *bytes, size_t length)
{
	put_held(queue, ticket, bytes, length)->to = to;
}

/* What waits for one other node. */
typedef struct Waiting
{
	int count;
	int commands;
	size_t bytes;
} Waiting;

static Waiting
count_waiting(const NodeQueue *queue, int32 to)
{
	Waiting waiting = {0};

	for (const NodeHeld *held = queue->first; held; held = held->next)
	{
		if (held->is_done || held->to != to)
			continue;
		waiting.count++;
		waiting.commands += held->stays;
		waiting.bytes += held->length;
	}
	return waiting;
}

static bool
is_full(const Waiting *waiting, size_t length)
{
	return waiting->count >= SHARD_CONTROL_QUEUE_MESSAGES ||
		   (waiting->count > 0 && waiting->bytes + length > SHARD_CONTROL_QUEUE_BYTES);
}

/*
 * Make room for one more message to that node: what waits for the disk is bounded like what waits for a link,
 * since the link would forget the rest (G5, C12). *forgotten: how many messages were dropped for it. False:
 * there is no room.
 */
static bool
make_room(NodeQueue *queue, int32 to, size_t length, bool stays, int *forgotten)
{
	NodeHeld *before = NULL;
	Waiting waiting;

	*forgotten = 0;
#ifdef SHARD_MUTANT_HELD_WITHOUT_BOUND
	return true;
#endif
	if (queue->count < SHARD_CONTROL_QUEUE_COMMANDS &&
		queue->bytes + length <= SHARD_CONTROL_QUEUE_BYTES)
		return true;
	waiting = count_waiting(queue, to);
	if (stays && waiting.commands >= SHARD_CONTROL_QUEUE_COMMANDS)
		return false;
	for (NodeHeld *held = queue->first; held && is_full(&waiting, length);
		 held = before ? before->next : queue->first)
	{
		if (held->is_done || held->stays || held->to != to)
		{
			before = held;
			continue;
		}
		waiting.count--;
		waiting.bytes -= held->length;
		pfree(take_behind(queue, before));
		(*forgotten)++;
	}
	return true;
}

/*
 * Messages to another node wait for the disk. Those that had no room are sent again by the part of the node
 * that needs them.
 */
static void
hold(ShardNode *node, int64 ticket, int32 to, ShardControlKind kind, const StringInfo buffer)
{
	bool stays = kind == SHARD_CONTROL_COMMAND || kind == SHARD_CONTROL_COMMAND_ANSWER;
	int forgotten;
	bool room = make_room(&node->held, to, buffer->len, stays, &forgotten);
	NodeHeld *held;

	if (!room || forgotten > 0)
		shard_action_log_peer(node->out, 15 /* LOG */, to, 0,
							  "more messages to node %d than there is room for wait until what "
							  "they rest on is durable here: messages that had no room are sent "
							  "again, or never",
							  to);
	if (!room)
		return;
	held = put_held(&node->held, ticket, buffer->data, buffer->len);
	held->to = to;
	held->stays = stays;
}

void
shard_node_step_done(ShardNode *node, int64 token, bool good, const char *why)
{
	shard_node_step_answer(node, token, good, 0, false, why);
}

void
shard_node_step_answer(ShardNode *node, int64 token, bool good, int64 number, bool unknown,
					   const char *why)
{
	ShardAction *done = shard_action_add(node->out, SHARD_ACTION_COMMAND_DONE);

	done->token = token;
	done->flag = good;
	done->result = number;
	done->unknown = unknown ? 1 : 0;
	done->text = good ? NULL : why;
}

/*
 * The end of a command presupposes what its step wrote, and a good one all that was written before; a
 * refusal that changed nothing is told at once.
 */
static void
finish_done(ShardNode *node, ShardAction *done, bool wrote)
{
	NodeHeld *held;

#ifdef SHARD_MUTANT_DONE_BEFORE_DURABLE
	return;
#endif
	/* A plan presupposes nothing: it says what would be done. */
	if (node->last_ticket <= node->persisted || (!done->flag && !wrote) || done->n_entries > 0)
		return;
	held = put_held(&node->held, node->last_ticket, done->text,
					done->text ? strlen(done->text) + 1 : 0);
	held->is_done = true;
	held->good = done->flag;
	held->unknown = done->unknown != 0;
	held->number = done->result;
	held->token = done->token;
	done->kind = SHARD_ACTION_NONE;
}

void
shard_node_step_release(ShardNode *node)
{
	ShardActions *out = node->out;

	while (node->held.first && node->held.first->ticket <= node->persisted)
	{
		NodeHeld *held = shard_node_step_take(&node->held);
		char *bytes = shard_arena_copy(out->arena, held->bytes, held->length);

		if (held->is_done)
			shard_node_step_answer(node, held->token, held->good, held->number, held->unknown,
								   held->length > 0 ? bytes : NULL);
		else if (held->to == node->id)
			shard_node_step_queue(&node->loop, 0, held->to, held->bytes, held->length);
		else
		{
			ShardAction *action = shard_action_add(out, SHARD_ACTION_SEND);

			action->node = held->to;
			action->bytes = bytes;
			action->length = held->length;
		}
		pfree(held);
	}
	/* They are not to be held again, for what this step writes. */
	node->first_action = out->n_actions;
}

bool
shard_node_step_asks(const ShardControl *message)
{
	return message->kind == SHARD_CONTROL_ADMIT && message->uuid.high == 0 &&
		   message->uuid.low == 0;
}

/*
 * May a message leave before the node's transactions are durable? Only what says nothing of its own
 * durable state: that it lives, what others have decided, plain questions. An ADMIT that names no incarnation
 * is such a question (I4): nothing can be granted for it, so nobody comes to rely on a row that a promoted standby lacks.
 */
static bool
is_free(const ShardControl *message)
{
	switch (message->kind)
	{
		case SHARD_CONTROL_ADMIT:
#ifdef SHARD_MUTANT_OWN_END_BEHIND_THE_GATE
			return false;
#else
			return shard_node_step_asks(message);
#endif
		case SHARD_CONTROL_MEMBER_HEARTBEAT:
		case SHARD_CONTROL_HEARTBEAT:
		case SHARD_CONTROL_RENEW:
		case SHARD_CONTROL_GRANT:
		case SHARD_CONTROL_PRE_VOTE:
		case SHARD_CONTROL_GET_DELTA:
		case SHARD_CONTROL_GET_SHARD_HOMES:
		case SHARD_CONTROL_PREPARE_IMPORT:
		case SHARD_CONTROL_IMPORT_READY:
		case SHARD_CONTROL_RESIGN:
		case SHARD_CONTROL_GOODBYE:
		case SHARD_CONTROL_COORDINATOR_HINT:
		case SHARD_CONTROL_COMMAND_CODE:
		case SHARD_CONTROL_FENCED:
			return true;
		default:
			return false;
	}
}

/* Put the header to a message (I5). */
static void
fill_header(const ShardNode *node, ShardControl *message, int32 to)
{
	ShardMemberRecord member;

	message->cluster = node->cluster;
	message->era = node->era;
	message->protocol_version = SHARD_PROTOCOL_VERSION;
	message->from = node->join.address ? 0 : node->id;
	message->from_inc = node->admitted ? node->inc_no : 0;
	message->to = to;
	message->to_inc = 0;
	if (message->kind == SHARD_CONTROL_PRE_VOTE_REPLY && node->config.journal_voter)
		message->uuid = node->inc_uuid;
	if (to != 0 && to != node->id && shard_node_get_member(node, to, &member))
		message->to_inc = member.inc_no;
}

/* A newcomer needs the cluster's id and a member's address before it can learn the rest. */
static void
complete_welcome(const ShardNode *node, ShardControl *message)
{
	message->uuid = node->cluster;
	if (message->flag)
		message->entries =
			shard_map_list(node->learned, SHARD_MAP_MEMBER, node->out->arena, &message->n_entries);
}

/* Send, hold or loop back one message of the step. */
static void
finish_send(ShardNode *node, ShardAction *action, StringInfo buffer)
{
	ShardControl *message = unconstify(ShardControl *, action->message);
	ShardMemberRecord member;
	int32 to = action->node;
	bool self = to == node->id && to != 0;
	int64 ticket = node->last_ticket;

#ifdef SHARD_MUTANT_SEND_BEFORE_PERSIST
	ticket = 0;
#endif
	fill_header(node, message, action->node);
	if (message->kind == SHARD_CONTROL_JOIN_REPLY)
		complete_welcome(node, message);
	if (message->kind == SHARD_CONTROL_PREPARE || message->kind == SHARD_CONTROL_HEARTBEAT)
		shard_voter_remind(node->voter, action->node, message);
	if (message->kind == SHARD_CONTROL_HEARTBEAT && node->in_office)
	{
		message->nodes = shard_arena_alloc(node->out->arena, sizeof(int32) * SHARD_MAX_CLAIMS);
		message->n_nodes = shard_roster_claimed(node->roster, true, message->nodes);
		message->nodes2 = shard_arena_alloc(node->out->arena, sizeof(int32) * SHARD_MAX_CLAIMS);
		message->n_nodes2 = shard_roster_claimed(node->roster, false, message->nodes2);
	}
	resetStringInfo(buffer);
	shard_control_encode(buffer, message);
	if (self || (to != 0 && ticket > node->persisted && !is_free(message)))
		/* It leaves later, as an action of its own. */
		action->kind = SHARD_ACTION_NONE;
	if (self)
		shard_node_step_queue(is_free(message) || ticket <= node->persisted ? &node->loop
																			: &node->held,
							  ticket, to, buffer->data, buffer->len);
	else if (action->kind == SHARD_ACTION_NONE)
		hold(node, ticket, to, message->kind, buffer); /* may move the actions */
	else
	{
		action->bytes = shard_arena_copy(node->out->arena, buffer->data, buffer->len);
		action->length = buffer->len;
		/* A journal can answer at once those, too, whose addresses it has forgotten. */
		if (node->config.journal_voter && !shard_node_get_member(node, action->node, &member))
			action->node = 0;
	}
}

bool
shard_node_step_is_stuck(const ShardNode *node, int64 now)
{
	return node->last_ticket > node->persisted &&
		   now - node->disk_moved > 2 * SHARD_ELECTION_TIMEOUT;
}

/*
 * What people are to read of a decision goes before the messages that it causes, so that hosts write
 * it down first.
 */
static void
put_decisions_first(ShardNode *node)
{
	ShardAction *actions = node->out->actions;
	int first = node->first_action;

	for (int i = first; i < node->out->n_actions; i++)
	{
		ShardAction decision = actions[i];

		if (decision.kind != SHARD_ACTION_DECISION)
			continue;
		memmove(&actions[first + 1], &actions[first], (i - first) * sizeof(ShardAction));
		actions[first++] = decision;
	}
}

void
shard_node_step_finish(ShardNode *node)
{
	ShardActions *out = node->out;
	StringInfoData buffer;
	bool any = false;
	bool wrote = out->n_writes > 0;

	put_decisions_first(node);
	if (wrote)
	{
		ShardAction *persist = shard_action_add(out, SHARD_ACTION_PERSIST);

		persist->ticket = ++node->last_ticket;
		persist->n_writes = out->n_writes;
		persist->writes =
			shard_arena_copy(out->arena, out->writes, out->n_writes * sizeof(ShardWrite));
		out->n_writes = 0;
	}
	for (int i = node->first_action; i < out->n_actions; i++)
	{
		if (out->actions[i].kind == SHARD_ACTION_COMMAND_DONE)
			finish_done(node, &out->actions[i], wrote);
		if (out->actions[i].kind != SHARD_ACTION_SEND || out->actions[i].bytes)
			continue;
		if (!any)
			initStringInfo(&buffer);
		any = true;
		finish_send(node, &out->actions[i], &buffer);
	}
	if (any)
		pfree(buffer.data);
	node->first_action = out->n_actions;
}
