/*
 * control/control.c
 *		The control worker: drives the node's control plane, core/node/node.h.
 *
 * One process for a database, as region workers are one for each lane (W2). It reads the
 * durable records, starts the machine, and then feeds it with what comes: control messages that
 * peers' backends hand over through the ring, operators' commands, what region workers report, answers
 * from other nodes, and time. What the machine wants done is carried out after each step
 * (control_actions.c). Whatever happened is followed by a tick at once, so that nothing waits for
 * the timer; without events there is a tick each 0.1 s, or each second where a node alone has nothing to
 * do. A tick without news writes nothing.
 *
 * If the process dies right here: region workers run on, with what they were told last. The next
 * process starts the machine from the durable records, under the same incarnation, which is kept in
 * shared memory until the server ends (I1).
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "base/fault.h"
#include "registry/catalog.h"
#include "control/control_private.h"
#include "registry/control_store.h"
#include "entity/crash.h"
#include "shared/gate.h"
#include "registry/registry.h"
#include "process/worker.h"
#include "core/base/text.h"

#include "base/compat.h"

/* A node that is alone, with nothing to do, looks at this interval. */
#define IDLE_TICK (1 * SHARD_SECOND)

/* Nothing wakes this process when the gate has released a commit. */
#define GATE_NAP_MS 2

/* A copy is looked at again after this time: the extension may have been made again. */
#define PAUSED_MS 1000

/* Region workers' events that are taken at once. */
#define EVENTS 1000

ControlState shard_control;

static uint32 wait_event = 0;

PGDLLEXPORT void ShardControlMain(Datum argument);

/*
 * Becomes the only control worker, or ends the process: another one is there still.
 */
static void
own_node(void)
{
	shard_control_begin();
	shard_control.extension = shard_catalog_get()->extension;
	shard_control.journal = shard_control_is_journal();
	shard_control_commit();
	if (!shard_shmem_own(shard_control.db, SHARD_OWNER_COORDINATOR))
		ereport(FATAL, (errcode(ERRCODE_OBJECT_IN_USE),
						errmsg("another control worker of this database is still there")));
}

/* ---- start ------------------------------------------------------------------------------------ */

static void
load(ShardStore store, const ShardMapEntry *entries, int count, void *arg)
{
	MemoryContext old = MemoryContextSwitchTo(shard_control.context);
	int taken = shard_node_load(shard_control.node, store, entries, count);

	MemoryContextSwitchTo(old);
	if (taken < count)
		ereport(ERROR,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("a record of table shard.control cannot be read"),
				 errdetail("Store %d, kind %d, key %d, %d.", (int) store, entries[taken].key.kind,
						   entries[taken].key.a, entries[taken].key.b),
				 errhint("The node takes no part in its cluster until the record is mended.")));
}

/*
 * Copies of the row's texts that live as long as the process.
 */
static void
keep_row(const ShardIdentity *row)
{
	MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);
	ShardIdentity *kept = &shard_control.row;

	*kept = *row;
	kept->voter_state = pstrdup(row->voter_state);
	kept->fenced = row->fenced ? pstrdup(row->fenced) : NULL;
	kept->dsn = pstrdup(row->dsn);
	MemoryContextSwitchTo(old);
}

ShardUuid
shard_control_random_uuid(void)
{
	ShardUuid uuid;

	if (!pg_strong_random(&uuid, sizeof(uuid)))
		ereport(ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR), errmsg("could not generate a random number")));
	return uuid;
}

/* Not the view: that is empty until the first round is over. */
bool
shard_control_was_always_alone(void)
{
	int count;
	ShardArena *arena = shard_arena_create();

	(void) shard_map_list(shard_node_learned(shard_control.node), SHARD_MAP_MEMBER, arena, &count);
	shard_arena_destroy(arena);
	return count <= 1;
}

/*
 * The kind of this start of the server (I2). The timeline that the row names is that of the last admission. A node that
 * no other node knows goes on after a restore, too: there is no node that it could have promised anything.
 */
static ShardStartKind
start_kind(void)
{
	int32 timeline = shard_identity_timeline();

	if (timeline == shard_control.row.timeline)
		return SHARD_START_RESTART;
	if (!shard_control_was_always_alone() &&
		shard_identity_was_restored(timeline, shard_control.row.timeline))
		return SHARD_START_COPY;
	return SHARD_START_PROMOTED;
}

/*
 * A journal cannot become a member, nor a member a journal.
 */
static void
check_kind(void)
{
	int32 id = shard_node_id(shard_control.node);

	if (id == 0 || (id == SHARD_JOURNAL_NODE) == shard_control.journal)
		return;
	ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					shard_control.journal
						? errmsg("this database has been a node, and cannot be a journal")
						: errmsg("this database has been a journal, and cannot be a node"),
					errhint("Drop and create the extension, or mend shard.journal_database.")));
}

/*
 * Makes the machine, gives it what is durable, and starts it.
 */
static void
start_machine(void)
{
	ControlState *state = &shard_control;
	ShardNodeConfig config;
	ShardIdentity row;
	ShardUuid incarnation;
	ShardStartKind kind;
	MemoryContext old;

	shard_control_begin();
	shard_identity_read(&row);
	keep_row(&row);
	shard_control_config(&config, state->row.dsn);
	old = MemoryContextSwitchTo(state->context);
	state->node = shard_node_create(&config);
	MemoryContextSwitchTo(old);
	shard_control_store_load(load, NULL);
	shard_control_commit();
	check_kind();

	if (!shard_board_incarnation(state->db, state->extension, &incarnation, &kind))
	{
		incarnation = shard_control_random_uuid();
		kind = start_kind();
		shard_board_keep(state->db, state->extension, incarnation, kind);
	}
	shard_board_directory_changed(state->db);
	old = MemoryContextSwitchTo(state->context);
	shard_node_start(state->node, shard_clock_now(), kind, shard_control_random_uuid(), incarnation,
					 state->out);
	MemoryContextSwitchTo(old);
	shard_control_types_forget();
	shard_control_carry_out();
}

void
shard_control_restart(bool revive)
{
	ControlState *state = &shard_control;

	if (revive)
		shard_board_keep(state->db, InvalidOid, (ShardUuid){0, 0}, SHARD_START_RESTART);
	shard_control_link_forget();
	shard_control_import_forget();
	shard_control_strategy_forget();
	shard_control_states_forget();
	shard_control_move_forget();
	shard_control_leave_forget();
	shard_control_stop_forget();
	state->downed_at = state->revive_at = 0;
	state->n_tickets = 0;
	state->starting = false;
	state->node = NULL;
	MemoryContextReset(state->context);
	state->out = NULL;
	MemoryContextSwitchTo(state->context);
	state->out = shard_action_create();
	MemoryContextSwitchTo(state->step_context);
	start_machine();
}

/*
 * Waits while this is a copy of another node: it takes no part in anything.
 */
static void
wait_until_clear(void)
{
	for (;;)
	{
		ShardBoardView view = {.known = true};
		bool clear;
		bool copy;

		shard_control_begin();
		clear = shard_identity_is_clear(shard_control.db);
		copy = !clear;
		clear = clear && (!shard_control.journal || shard_control_journal_may_run());
		shard_control_commit();
		if (clear)
			return;
		shard_text_copy(view.why,
						copy ? "this database is a copy of another node"
							 : "this database is to be a journal without a standby",
						sizeof(view.why));
		shard_board_set(shard_control.db, &view);
		(void) shard_worker_wait(PAUSED_MS, wait_event);
	}
}

/* ---- steps ------------------------------------------------------------------------------------ */

void
shard_control_event(const ShardNodeEvent *event)
{
	MemoryContext old = MemoryContextSwitchTo(shard_control.context);

	shard_node_event(shard_control.node, shard_clock_now(), event, shard_control.out);
	MemoryContextSwitchTo(old);
	shard_control.again = true;
	shard_control_carry_out();
}

void
shard_control_give(const ShardCommand *command)
{
	MemoryContext old = MemoryContextSwitchTo(shard_control.context);

	shard_node_command(shard_control.node, shard_clock_now(), command, shard_control.out);
	MemoryContextSwitchTo(old);
	shard_control.again = true;
	shard_control_carry_out();
}

void
shard_control_receive(int32 via, const char *bytes, int length)
{
	MemoryContext old = MemoryContextSwitchTo(shard_control.context);

	shard_node_receive(shard_control.node, shard_clock_now(), via, bytes, (size_t) length,
					   shard_control.out);
	MemoryContextSwitchTo(old);
	shard_control.again = true;
	shard_control_carry_out();
}

static void
tick(int64 now)
{
	MemoryContext old = MemoryContextSwitchTo(shard_control.context);

	shard_node_tick(shard_control.node, now, shard_control.out);
	MemoryContextSwitchTo(old);
	shard_control_carry_out();
}

/*
 * Homes of types that the cluster does not know yet would be asked for in vain: they wait until it
 * does.
 */
static void
ask_later(const ShardBoardEvent *event)
{
	MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);
	ShardBoardEvent *copy = palloc(sizeof(ShardBoardEvent));

	*copy = *event;
	shard_control.asked = lappend(shard_control.asked, copy);
	MemoryContextSwitchTo(old);
}

/*
 * Those that are known by now become events.
 */
static void
ask_now(void)
{
	ListCell *cell;

	foreach (cell, shard_control.asked)
	{
		ShardBoardEvent *asked = lfirst(cell);
		ShardNodeEvent event = {.kind = asked->kind, .n_shards = 1, .shards = &asked->shard};

		if (!shard_control_types_known(asked->shard.type_id))
			continue;
		shard_control_event(&event);
		shard_control.asked = foreach_delete_current(shard_control.asked, cell);
		pfree(asked);
	}
}

/*
 * What region workers report: one event for each kind, and for each shard that was stopped.
 */
static void
take_events(void)
{
	ShardBoardEvent *events = palloc(sizeof(ShardBoardEvent) * EVENTS);
	ShardShardRef *wanted = palloc(sizeof(ShardShardRef) * EVENTS);
	ShardShardRef *started = palloc(sizeof(ShardShardRef) * EVENTS);
	int taken = shard_board_take(shard_control.db, events, EVENTS);
	int n_wanted = 0;
	int n_started = 0;

	for (int i = 0; i < taken; i++)
	{
		if (events[i].kind == SHARD_EVENT_SHARD_STOPPED)
			shard_control_shard_stopped(&events[i].shard);
		else if (events[i].kind == SHARD_EVENT_SHARDS_STARTED)
			started[n_started++] = events[i].shard;
		else if (shard_control_types_known(events[i].shard.type_id))
			wanted[n_wanted++] = events[i].shard;
		else if (list_length(shard_control.asked) < EVENTS)
			ask_later(&events[i]);
	}
	if (n_started > 0)
		shard_control_event(&(ShardNodeEvent){.kind = SHARD_EVENT_SHARDS_STARTED,
											  .n_shards = n_started,
											  .shards = started});
	if (n_wanted > 0)
		shard_control_event(&(ShardNodeEvent){.kind = SHARD_EVENT_HOMES_WANTED,
											  .n_shards = n_wanted,
											  .shards = wanted});
	if (taken == EVENTS)
		shard_control.again = true;
}

/*
 * Settings may have changed with the configuration; the gate that is wished for, also with synchronous_standby_names (G3).
 */
static void
follow_settings(void)
{
	ShardLiveSettings live;
	MemoryContext old;

	shard_control_live(&live);
	if (memcmp(&live, shard_node_live(shard_control.node), sizeof(live)) == 0)
		return;
	old = MemoryContextSwitchTo(shard_control.context);
	shard_node_reload(shard_control.node, shard_clock_now(), &live, shard_control.out);
	MemoryContextSwitchTo(old);
	shard_control.again = true;
	shard_control_carry_out();
}

/*
 * Has this node nothing to do but to be there?
 */
static bool
is_idle(void)
{
	ControlState *state = &shard_control;

	return state->view.handle && state->view.push && state->view.members == 1 &&
		   state->asked == NIL && state->commands == NIL && state->n_tickets == 0 &&
		   !shard_worker_lingers() && shard_control_types_settled() &&
		   shard_node_proposer(state->node) != NULL &&
		   shard_proposer_office(shard_node_proposer(state->node)) == SHARD_OFFICE_HELD;
}

/*
 * One round: everything that came, then time.
 */
static void
run_round(void)
{
	ControlState *state = &shard_control;
	int64 now;

	MemoryContextReset(state->step_context);
	MemoryContextSwitchTo(state->step_context);
	follow_settings();
	state->again |= shard_control_types_run();
	state->again |= shard_control_requests();
	state->again |= shard_control_control_run();
	take_events();
	ask_now();
	state->again |= shard_control_link_run();
	state->again |= shard_control_import_run();
	state->again |= shard_control_strategy_run();
	state->again |= shard_control_states_run();
	state->again |= shard_control_move_run();
	state->again |= shard_control_leave_run();
	shard_control_stop_run();
	state->again |= shard_control_report_tickets();

	now = shard_clock_now();
	if (state->revive_at != 0 && now >= state->revive_at)
		shard_control_restart(true);
	if (state->again || now >= state->next_tick)
	{
		state->again = false;
		shard_gate_watch();
		tick(now);
		shard_control_commands_look();
		state->next_tick = now + (is_idle() ? IDLE_TICK : SHARD_TICK_INTERVAL);
	}
	/* What the steps have to say goes out now, not after the next nap. */
	state->again |= shard_control_link_run();
	shard_control_publish();
}

/*
 * How long there is nothing to do, in ms.
 */
static long
sleep_time(void)
{
	ControlState *state = &shard_control;
	long left = (long) ((state->next_tick - shard_clock_now() + 999) / 1000);

	if (state->again || (state->n_tickets > 0 && shard_gate_released(state->tickets[0].lsn)))
		return 0;
	if (state->n_tickets > 0)
		left = Min(left, GATE_NAP_MS);
	return Max(left, 0);
}

/* For shard_health, here and at other nodes: why the process ends. It begins again, and may end of the same again. */
static void
note_end(void)
{
	ErrorData *error;

	MemoryContextSwitchTo(shard_control.step_context);
	error = CopyErrorData();
	shard_shmem_turn_failed(shard_shmem_my_worker(), 0, "", error->message);
	FreeErrorData(error);
}

static void
run(int number)
{
	ControlState *state = &shard_control;

	own_node();
	shard_fault("control_started");
	shard_ring_attach(state->db, number);
	wait_until_clear();
	shard_control_restart(false);
	shard_worker_at_stop(shard_control_last_words);
	for (;;)
	{
		run_round();
		if (sleep_time() == 0)
			shard_worker_interrupts();
		else
			(void) shard_worker_wait(sleep_time(), wait_event);
	}
}

void
ShardControlMain(Datum argument)
{
	ControlState *state = &shard_control;
	int number;

	state->db = shard_worker_start(argument, &number);
	shard_crash_tell();
	shard_control_stop_prepare();
	wait_event = ShardWaitEvent("ShardControlMain");
	state->context = AllocSetContextCreate(TopMemoryContext, "shard node", ALLOCSET_DEFAULT_SIZES);
	state->step_context =
		AllocSetContextCreate(TopMemoryContext, "shard node step", ALLOCSET_DEFAULT_SIZES);
	MemoryContextSwitchTo(state->step_context);
	/* Its commits are told outside; whether a standby has them is the gate's affair. */
	SetConfigOption("synchronous_commit", "local", PGC_SUSET, PGC_S_OVERRIDE);
	PG_TRY();
	{
		run(number);
	}
	PG_CATCH();
	{
		note_end();
		PG_RE_THROW();
	}
	PG_END_TRY();
}
