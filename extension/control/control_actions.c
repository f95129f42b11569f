/*
 * control/control_actions.c
 *		What the control plane wants done: the actions of a step, in their order.
 *
 * All durable changes of a step, and the decided homes that it brings, are one transaction. It commits
 * before anything else of the step is carried out, and is told to the machine when the release gate
 * has passed it (G2); until then other events may come.
 *
 * If the process dies right here: before the commit, nothing of the step was, and no other process has heard of it;
 * after it, the next process reads the records. A decided home is a row of the log by then, or is told again by the
 * next start.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "utils/memutils.h"

#include "control/control_private.h"
#include "registry/control_store.h"
#include "core/base/message.h"
#include "core/flow/packet.h"
#include "base/fault.h"
#include "shared/gate.h"
#include "log/log.h"
#include "shared/told.h"
#include "core/base/text.h"

#include "base/compat.h"

/* The same line is not repeated within this time. */
#define LOG_QUIET (60 * SHARD_SECOND)

/* ---- the transaction -------------------------------------------------------------------------- */

/*
 * Why the node is fenced in this step, in TopMemoryContext.
 */
static const char *
why_fenced(void)
{
	const ShardActions *out = shard_control.out;

	for (int i = 0; i < out->n_actions; i++)
		if (out->actions[i].kind == SHARD_ACTION_STOP_WORKERS && out->actions[i].text != NULL)
			return MemoryContextStrdup(TopMemoryContext, out->actions[i].text);
	return "fenced";
}

/*
 * What the row of shard.node should say. A start on another timeline is one until it is admitted.
 */
static void
present_row(ShardIdentity *row)
{
	static const char *const voter_states[] = {[SHARD_VOTER_OK] = "ok",
											   [SHARD_VOTER_AMNESIAC] = "amnesiac",
											   [SHARD_VOTER_UNUSED] = "unused"};
	const ShardNode *node = shard_control.node;
	ShardStartKind kind;

	*row = shard_control.row;
	row->cluster = shard_node_cluster(node);
	row->node = shard_node_id(node);
	row->inc_no = shard_node_incarnation(node);
	(void) shard_board_incarnation(shard_control.db, shard_control.extension, &row->incarnation,
								   &kind);
	if (shard_node_admitted(node))
		row->timeline = shard_identity_timeline();
	row->voter_state = voter_states[shard_voter_state(shard_node_voter(node))];
	if (!shard_node_fenced(node))
		row->fenced = NULL;
	else if (row->fenced == NULL)
		row->fenced = why_fenced();
}

static bool
row_differs(const ShardIdentity *a, const ShardIdentity *b)
{
	return !shard_record_uuid_equal(a->cluster, b->cluster) || a->node != b->node ||
		   a->inc_no != b->inc_no || !shard_record_uuid_equal(a->incarnation, b->incarnation) ||
		   a->timeline != b->timeline || strcmp(a->voter_state, b->voter_state) != 0 ||
		   (a->fenced == NULL) != (b->fenced == NULL);
}

static void
mirror_identity(void)
{
	ShardIdentity row;

	present_row(&row);
	if (!row_differs(&row, &shard_control.row))
		return;
	shard_identity_write(&row);
	/* Its texts are constants, or those that were there. */
	shard_control.row = row;
}

static void
add_ticket(int64 ticket, XLogRecPtr lsn)
{
	ControlState *state = &shard_control;

	if (state->n_tickets == state->ticket_space)
	{
		state->ticket_space = Max(2 * state->ticket_space, 16);
		state->tickets =
			state->tickets
				? repalloc(state->tickets, state->ticket_space * sizeof(ControlTicket))
				: MemoryContextAlloc(TopMemoryContext, state->ticket_space * sizeof(ControlTicket));
	}
	state->tickets[state->n_tickets++] = (ControlTicket){ticket, lsn};
}

/*
 * The home that an action tells, if it tells one. One that nobody can have decided is none, whoever says so: as a row of the
 * log it would hold up its lane's worker for good.
 */
static bool
get_fact(const ShardAction *action, ShardFact *fact)
{
	const ShardMapEntry *entry = action->entry;
	ShardHomeRecord home;
	const char *more;

	if (action->kind != SHARD_ACTION_FACT || entry->key.kind != SHARD_MAP_HOME || entry->deleted ||
		!shard_record_get_home(entry, &home))
		return false;
	*fact = shard_packet_fact(entry->key.a, entry->key.b, entry->n, &home);
	if (shard_packet_fact_is_good(fact))
		return true;
	if (!shard_told_may(shard_control.db, 0, "home passed over", 0, &more))
		return false;
	ereport(
		LOG,
		(errcode(ERRCODE_DATA_CORRUPTED),
		 errmsg("shard: home of shard %d of type %d cannot have been decided, and is passed over%s",
				fact->shard, fact->type_id, more),
		 errdetail("It is said to be node %d in epoch %d, by version " INT64_FORMAT " of its key.",
				   fact->node, fact->epoch, fact->n)));
	return false;
}

/*
 * Carries out what has to be durable. SHARDS_STARTED for those that run already comes back as events.
 */
static void
make_durable(ShardShardRef **active, int *n_active)
{
	const ShardActions *out = shard_control.out;
	ShardFact *facts = palloc(sizeof(ShardFact) * Max(out->n_actions, 1));
	int n_facts = 0;
	bool decided = false;
	int64 ticket = 0;
	ShardLanes lanes;

	for (int i = 0; i < out->n_actions; i++)
	{
		const ShardAction *action = &out->actions[i];

		if (action->kind == SHARD_ACTION_PERSIST)
			ticket = action->ticket;
		decided |= action->kind == SHARD_ACTION_DECISION;
		if (get_fact(action, &facts[n_facts]))
			n_facts++;
	}
	if (ticket == 0 && n_facts == 0 && !decided)
		return;

	*active = palloc(sizeof(ShardShardRef) * Max(n_facts, 1));
	shard_control_begin_writing(n_facts > 0);
	for (int i = 0; i < out->n_actions; i++)
		if (out->actions[i].kind == SHARD_ACTION_PERSIST)
			shard_control_store_apply(out->actions[i].writes, out->actions[i].n_writes);
	lanes = shard_control_facts(facts, n_facts, *active, n_active);
	if (ticket != 0)
		mirror_identity();
	(void) shard_control_decisions(out);
	shard_control_commit();
	shard_control_wake_lanes(lanes);
	if (ticket != 0)
		add_ticket(ticket, XactLastCommitEnd);
}

/*
 * Tells the machine which transactions the gate has released. True: one was.
 */
bool
shard_control_report_tickets(void)
{
	ControlState *state = &shard_control;
	bool any = false;

	while (state->n_tickets > 0 && shard_gate_released(state->tickets[0].lsn))
	{
		int64 ticket = state->tickets[0].ticket;
		MemoryContext old;

		state->n_tickets--;
		memmove(&state->tickets[0], &state->tickets[1], state->n_tickets * sizeof(ControlTicket));
		old = MemoryContextSwitchTo(state->context);
		shard_node_persisted(state->node, shard_clock_now(), ticket, state->out);
		MemoryContextSwitchTo(old);
		shard_control_carry_out();
		any = true;
	}
	return any;
}

/* ---- the rest --------------------------------------------------------------------------------- */

/* Over the link by which the question came. What the answer has no room for is lost: it may have been asked for many times. */
static void
put_answer(const ShardAction *action)
{
	ControlAnswers *answers = shard_control.answers;

	if (answers->count >= SHARD_CONTROL_MAX_MESSAGES ||
		answers->bytes.len + action->length >= SHARD_CONTROL_MAX_BYTES - 16)
		return;
	shard_wire_put_bytes(&answers->bytes, action->bytes, action->length);
	answers->count++;
}

/*
 * A message goes to a member's registered address, to an address, or back to where the question came
 * from.
 */
static void
send(const ShardAction *action)
{
	/*
	 * A speaker for an incarnation that is over does not sit at the registered address any more: it gets the answer on
	 * its own link.
	 */
	if (shard_control.answers != NULL && action->message != NULL &&
		action->message->kind == SHARD_CONTROL_FENCED)
		put_answer(action);
	else if (action->node != 0)
		shard_control_link_send(action->node, action->bytes, (int) action->length);
	else if (action->text != NULL && action->text[0] != '\0')
		shard_control_link_send_to(action->text, action->bytes, (int) action->length);
	else if (shard_control.answers != NULL)
		put_answer(action);
	else
		shard_control_link_send_back(action->bytes, (int) action->length);
}

/* Is it a node of the cluster, as learned? */
static bool
is_node(int32 node)
{
	return shard_map_value(shard_node_learned(shard_control.node),
						   (ShardMapKey){SHARD_MAP_MEMBER, node, 0}) != NULL;
}

/*
 * Lines of the machine; the same one again is left out for a while, and so are more of a kind about a peer (T11).
 */
static void
log_line(const ShardAction *action)
{
	static char last[256] = "";
	static int64 said = 0;
	int64 now = shard_clock_now();
	const char *more = "";

	if (action->about != NULL)
	{
		/* a caller without a role of its own may name any node */
		if (!shard_told_may(shard_control.db, is_node(action->node) ? action->node : 0,
							action->about, action->to, &more))
			return;
	}
	else if (strncmp(last, action->text, sizeof(last) - 1) == 0 && now - said < LOG_QUIET)
		return;
	shard_text_copy(last, action->text, sizeof(last));
	said = now;
	ereport(action->level >= WARNING ? WARNING : LOG,
			(errcode(action->level >= WARNING ? ERRCODE_WARNING : ERRCODE_SUCCESSFUL_COMPLETION),
			 errmsg_internal("shard: %s%s", action->text, more)));
}

static void
stop_workers(const ShardAction *action)
{
	ControlState *state = &shard_control;

	state->starting = false;
	shard_text_copy(state->stopped, action->text ? action->text : "", sizeof(state->stopped));
	if (!action->flag)
		return;
	state->downed_at = shard_clock_now();
	ereport(
		WARNING,
		(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
		 errmsg(
			 "shard: this start of node %d was downed: it handles nothing, takes no messages and does not vote",
			 shard_node_id(state->node)),
		 errdetail("An operator has called shard_down(), or shard.downing_strategy gave the node "
				   "up. The shards of the node wait for it, with their states and messages."),
		 errhint("Restart the server; or call shard_admit(%d, %d) here.",
				 shard_node_id(state->node), shard_node_incarnation(state->node) + 1)));
}

/*
 * One action.
 */
static void
carry_out(const ShardAction *action)
{
	ControlState *state = &shard_control;

	switch (action->kind)
	{
		case SHARD_ACTION_SEND:
			send(action);
			break;
		case SHARD_ACTION_START_WORKERS:
			state->starting = true;
			state->pushing = action->flag;
			state->stopped[0] = '\0';
			break;
		case SHARD_ACTION_STOP_WORKERS:
			stop_workers(action);
			break;
		case SHARD_ACTION_LEASE:
			state->view.lease_until = action->until;
			break;
		case SHARD_ACTION_WHO_AT:
			if (action->node != 0)
				shard_control_link_who(action->node);
			else
				shard_control_link_joiner(action->text, action->uuid, action->token);
			break;
		case SHARD_ACTION_STOP_SHARD:
			shard_control_stop_shard(&action->shard);
			break;
		case SHARD_ACTION_STRATEGY:
			shard_control_strategy(action);
			break;
		case SHARD_ACTION_STATES:
			shard_control_states(action);
			break;
		case SHARD_ACTION_COMMAND_DONE:
			shard_control_command_done(action);
			break;
		case SHARD_ACTION_LOG:
			log_line(action);
			break;
		default:
			break;
	}
}

/* Points of tests: a decision is durable, and no node has been told. */
static void
reach_faults(const ShardActions *out)
{
	for (int i = 0; i < out->n_actions; i++)
	{
		if (out->actions[i].kind != SHARD_ACTION_DECISION)
			continue;
		if (out->actions[i].decision == SHARD_DECISION_MOVE_BEGUN)
			shard_fault("move_begun");
		else if (out->actions[i].decision == SHARD_DECISION_MOVED)
			shard_fault("moved");
		else if (out->actions[i].decision == SHARD_DECISION_MOVE_ABORTED)
			shard_fault("move_aborted");
	}
}

/*
 * What has events of its own at once: those begin when the list has been read to its end.
 */
static bool
comes_last(const ShardAction *action)
{
	return action->kind == SHARD_ACTION_IMPORT_SHARD || action->kind == SHARD_ACTION_PREPARE_IMPORT;
}

/*
 * The actions of the last step. Events that follow from them are steps of their own, which begin when
 * the list has been read to its end.
 */
void
shard_control_carry_out(void)
{
	ControlState *state = &shard_control;
	ShardShardRef *active = NULL;
	ShardAction *last;
	int n_active = 0;
	int n_last = 0;

	if (state->out->n_actions == 0)
		return;
	make_durable(&active, &n_active);
	reach_faults(state->out);
	last = palloc(sizeof(ShardAction) * state->out->n_actions);
	for (int i = 0; i < state->out->n_actions; i++)
	{
		if (comes_last(&state->out->actions[i]))
			last[n_last++] = state->out->actions[i];
		else
			carry_out(&state->out->actions[i]);
	}
	state->out->n_actions = 0;
	for (int i = 0; i < n_last; i++)
		shard_control_import(&last[i]);
	if (n_active > 0)
		shard_control_event(&(ShardNodeEvent){.kind = SHARD_EVENT_SHARDS_STARTED,
											  .n_shards = n_active,
											  .shards = active});
}
