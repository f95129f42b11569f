/*
 * core/node/node_answer.c
 *		What operators' commands are answered, and when (G6, C12).
 *
 * A command that changes the map is answered when a majority has accepted what it proposed: if a coordinator loses its
 * office before that, the next one may decide the batch, or the batch is lost, and the operator hears that the outcome is
 * not known. A batch has all that was proposed before it is sent, so what was proposed up to now is decided when the map has
 * come to the number of the newest batch, the one that is still gathered included.
 *
 * A command that changes nothing is done if the map says so already, as this node has it; but a later coordinator may have
 * decided otherwise. So it is answered when a majority has acknowledged a heartbeat that began after it: then no later
 * coordinator had.
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "core/node/node_private.h"

/* Commands that wait for their decision at the same time; more are refused. */
#define MAX_ENDS 1000

static void
send_answer(ShardNode *node, int32 to, const NodeAnswered *given)
{
	ShardControl *message = shard_action_send(node->out, to, SHARD_CONTROL_COMMAND_ANSWER);

	message->token = given->token;
	message->flag = given->good;
	message->outcome = given->status;
	message->result = given->number;
	message->text =
		given->why ? shard_arena_copy(node->out->arena, given->why, strlen(given->why) + 1) : NULL;
}

NodeAsked *
shard_node_answer_asked(const ShardNode *node, int32 id)
{
	for (int i = 0; i < node->n_asked; i++)
	{
		if (node->asked[i].node == id)
			return &node->asked[i];
	}
	return NULL;
}

/* Keep what was answered: the node asks again if it does not get it. */
static void
keep_answer(NodeAsked *asked, const NodeAnswered *given)
{
	NodeAnswered *place = &asked->answers[asked->next];

	asked->next = (asked->next + 1) % NODE_ANSWERS;
	if (place->why)
		pfree(place->why);
	*place = *given;
	place->why = given->why ? pstrdup(given->why) : NULL;
}

void
shard_node_answer(ShardNode *node, ShardAsker asker, bool good, int status, int64 number,
				  const char *why)
{
	NodeAnswered given = {.token = asker.token,
						  .good = good,
						  .status = status,
						  .number = Max(number, 0),
						  .why = good ? NULL : unconstify(char *, why)};
	NodeAsked *asked = shard_node_answer_asked(node, asker.node);

	if (asker.node == 0)
	{
		shard_node_step_answer(node, asker.token, good, number, status == NODE_ANSWER_UNKNOWN, why);
		return;
	}
	if (asked)
		keep_answer(asked, &given);
	send_answer(node, asker.node, &given);
}

void
shard_node_answer_plan(ShardNode *node, ShardAsker asker, bool more, const ShardMapEntry *homes,
					   int n_homes)
{
	ShardArena *arena = node->out->arena;
	ShardMapEntry *list =
		n_homes > 0 ? shard_arena_copy(arena, homes, sizeof(ShardMapEntry) * n_homes) : NULL;

	for (int i = 0; i < n_homes; i++)
		list[i].value = shard_arena_copy(arena, homes[i].value, homes[i].length);
	if (asker.node == 0)
	{
		ShardAction *done = shard_action_add(node->out, SHARD_ACTION_COMMAND_DONE);

		done->token = asker.token;
		done->flag = true;
		done->result = more;
		done->n_entries = n_homes;
		done->entry = list;
	}
	else
	{
		ShardControl *message =
			shard_action_send(node->out, asker.node, SHARD_CONTROL_COMMAND_ANSWER);

		message->token = asker.token;
		message->flag = true;
		message->result = more;
		message->n_entries = n_homes;
		message->entries = list;
	}
}

bool
shard_node_answer_again(ShardNode *node, const ShardControl *message)
{
	const NodeAsked *asked = shard_node_answer_asked(node, message->from);
	bool found = false;

#ifndef SHARD_MUTANT_ANSWERED_ONCE
	for (int i = 0; asked && i < NODE_ANSWERS; i++)
	{
		if (message->token != 0 && asked->answers[i].token == message->token)
		{
			send_answer(node, message->from, &asked->answers[i]);
			found = true;
		}
	}
#endif
	return found;
}

void
shard_node_answer_not_me(ShardNode *node, const ShardControl *message, bool may_be_done)
{
	const char *why = "the coordinator has lost its office: perhaps the command is carried out "
					  "all the same";
	NodeAnswered given = {.token = message->token, .status = NODE_ANSWER_NOT_ME};

	if (may_be_done)
	{
		given.status = NODE_ANSWER_UNKNOWN;
		given.why = unconstify(char *, why);
	}
	send_answer(node, message->from, &given);
}

/* ---- ends that wait for their decision -------------------------------------------------------- */

bool
shard_node_answer_has_room(const ShardNode *node)
{
	return node->n_ends < MAX_ENDS;
}

void
shard_node_answer_when_decided(ShardNode *node, int64 now, ShardAsker asker, int64 number,
							   int32 admitted)
{
	size_t size = sizeof(NodeEnd) * (node->n_ends + 1);
	NodeEnd *end;

#ifdef SHARD_MUTANT_DONE_WHEN_PROPOSED
	shard_node_answer(node, asker, true, NODE_ANSWER_KNOWN, number, NULL);
	return;
#endif
	node->ends = node->ends ? repalloc(node->ends, size) : palloc(size);
	end = &node->ends[node->n_ends++];
	memset(end, 0, sizeof(*end));
	end->asker = asker;
	end->number = number;
	end->since = shard_proposer_proposed(node->proposer, &end->n) ? PG_INT64_MIN : now;
	end->deadline = now + SHARD_COMMAND_PATIENCE;
	if (admitted != 0 && shard_roster_admitting(node->roster, admitted, &end->uuid))
		end->admitted = admitted;
}

/* Is the incarnation that an operator has admitted that of its node? */
static bool
is_admitted(const ShardNode *node, const NodeEnd *end)
{
	const ShardMapEntry *entry = shard_map_value(shard_proposer_decided(node->proposer),
												 (ShardMapKey){SHARD_MAP_MEMBER, end->admitted, 0});
	ShardMemberRecord member;

	return entry && shard_record_get_member(entry, &member, node->out->arena) &&
		   member.inc_no > 0 && shard_record_uuid_equal(member.inc_uuid, end->uuid);
}

/*
 * An operator's word that admits an incarnation is known to this office alone, until the admission is
 * decided.
 */
static bool
look_at_admission(ShardNode *node, int64 now, const NodeEnd *end)
{
	ShardUuid uuid;

	if (is_admitted(node, end))
		shard_node_answer(node, end->asker, true, NODE_ANSWER_KNOWN, end->number, NULL);
	else if (!shard_roster_admitting(node->roster, end->admitted, &uuid) ||
			 !shard_record_uuid_equal(uuid, end->uuid))
		shard_node_answer(node, end->asker, false, NODE_ANSWER_KNOWN, 0,
						  "the incarnation no longer asks to be admitted");
	else if (now >= end->deadline)
		shard_node_answer(node, end->asker, false, NODE_ANSWER_UNKNOWN, 0,
						  "the incarnation is not admitted yet: perhaps it will be");
	else
		return false;
	return true;
}

/* Is the end of a command known? Then it is told. */
static bool
look_at_end(ShardNode *node, int64 now, const NodeEnd *end)
{
	if (end->admitted != 0)
		return look_at_admission(node, now, end);
	if (shard_map_point(shard_proposer_decided(node->proposer)).n < end->n)
		return false;
#ifndef SHARD_MUTANT_DONE_AS_LAST_KNOWN
	if (end->since != PG_INT64_MIN &&
		shard_proposer_majority_heartbeat(node->proposer) <= end->since)
		return false;
#endif
	shard_node_answer(node, end->asker, true, NODE_ANSWER_KNOWN, end->number, NULL);
	return true;
}

void
shard_node_answer_tick(ShardNode *node, int64 now)
{
	ShardHomesAnswer known;
	int n = 0;

	while (node->homes && shard_homes_next_answer(node->homes, &known))
		shard_node_answer(node, known.asker, known.good,
						  known.unknown ? NODE_ANSWER_UNKNOWN : NODE_ANSWER_KNOWN, known.number,
						  shard_arena_copy(node->out->arena, known.why, strlen(known.why) + 1));
	if (!node->in_office)
		return;
	for (int i = 0; i < node->n_ends; i++)
	{
		NodeEnd end = node->ends[i];

		if (!look_at_end(node, now, &end))
			node->ends[n++] = end;
	}
	node->n_ends = n;
}

void
shard_node_answer_lose_office(ShardNode *node)
{
	for (int i = 0; i < node->n_ends; i++)
		shard_node_answer(
			node, node->ends[i].asker, false, NODE_ANSWER_UNKNOWN, 0,
			"the coordinator has changed meanwhile: perhaps the command is carried out all the same");
	node->n_ends = 0;
}

void
shard_node_answer_destroy(ShardNode *node)
{
	for (int i = 0; i < node->n_asked; i++)
	{
		for (int k = 0; k < NODE_ANSWERS; k++)
		{
			if (node->asked[i].answers[k].why)
				pfree(node->asked[i].answers[k].why);
		}
	}
	if (node->asked)
		pfree(node->asked);
	if (node->ends)
		pfree(node->ends);
}
