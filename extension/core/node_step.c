/*
 * core/node_step.c
 *		The end of a node's step: one transaction, and which messages have to wait for it.
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "core/node_private.h"
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
	return held;
}

/* Put a message at the end of a queue. */
void
shard_node_step_queue(NodeQueue *queue, int64 ticket, int32 to, const char *bytes, size_t length)
{
	put_held(queue, ticket, bytes, length)->to = to;
}

/* A command is over, once this step is durable. */
void
shard_node_step_done(ShardNode *node, int64 token, bool good, const char *why)
{
	shard_node_step_answer(node, token, good, 0, false, why);
}

/* The same, with a result, or because nobody knows what became of it. */
void
shard_node_step_answer(ShardNode *node, int64 token, bool good, int64 number, bool unknown,
					   const char *why)
{
	ShardAction *done = shard_action_add(node->out, SHARD_ACTION_COMMAND_DONE);

	done->token = token;
	done->flag = good;
	done->until = number;
	done->status = unknown ? 1 : 0;
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
	if (node->last_ticket <= node->persisted || (!done->flag && !wrote))
		return;
	held = put_held(&node->held, node->last_ticket, done->text,
					done->text ? strlen(done->text) + 1 : 0);
	held->is_done = true;
	held->good = done->flag;
	held->unknown = done->status != 0;
	held->number = done->until;
	held->token = done->token;
	done->kind = SHARD_ACTION_NONE;
}

/* What waited for transactions that are durable now goes on its way. */
void
shard_node_step_release(ShardNode *node)
{
	ShardActions *out = node->out;

	while (node->held.first && node->held.first->ticket <= node->persisted)
	{
		NodeHeld *held = node->held.first;
		char *bytes = shard_arena_copy(out->arena, held->bytes, held->length);

		node->held.first = held->next;
		if (!held->next)
			node->held.last = NULL;
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

/*
 * May a message leave before the node's transactions are durable? Only what says nothing of its own
 * durable state: that it lives, what others have decided, plain questions.
 */
static bool
is_free(ShardControlKind kind)
{
	switch (kind)
	{
		case SHARD_CONTROL_MEMBER_HEARTBEAT:
		case SHARD_CONTROL_HEARTBEAT:
		case SHARD_CONTROL_RENEW:
		case SHARD_CONTROL_GRANT:
		case SHARD_CONTROL_PRE_VOTE:
		case SHARD_CONTROL_GET_DELTA:
		case SHARD_CONTROL_GET_SHARD_HOMES:
		case SHARD_CONTROL_BEGIN_HAND_OFF:
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

/* A newcomer needs the cluster's id and somebody's address before it can learn the rest. */
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
	bool self = action->node == node->id && action->node != 0;
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
	if (self)
		shard_node_step_queue(is_free(message->kind) || ticket <= node->persisted ? &node->loop
																				  : &node->held,
							  ticket, action->node, buffer->data, buffer->len);
	else if (action->node != 0 && ticket > node->persisted && !is_free(message->kind))
		shard_node_step_queue(&node->held, ticket, action->node, buffer->data, buffer->len);
	else
	{
		action->bytes = shard_arena_copy(node->out->arena, buffer->data, buffer->len);
		action->length = buffer->len;
		/* A journal can answer at once those, too, whose addresses it has forgotten. */
		if (node->config.journal_voter && !shard_node_get_member(node, action->node, &member))
			action->node = 0;
		return;
	}
	/* It leaves later, as an action of its own. */
	action->kind = SHARD_ACTION_NONE;
}

/*
 * Does the disk make no progress, with something to be done? Then this node can decide nothing: as
 * coordinator it would only keep others from doing so, since its heartbeats presuppose nothing durable.
 */
bool
shard_node_step_is_stuck(const ShardNode *node, int64 now)
{
	return node->last_ticket > node->persisted &&
		   now - node->disk_moved > 2 * SHARD_ELECTION_TIMEOUT;
}

/*
 * What people are to know of a decision goes before what is told to other nodes because of it: hosts
 * write it down first.
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

/*
 * End a step: its writes become one transaction, its messages get their headers. An answer over the
 * link it came by (node 0) is never held: none of them says more than what is durable already.
 */
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
