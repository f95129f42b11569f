/*
 * entity/recovery.c
 *		Remembered entities start with their shard, without a message (doc/protocol/remember.md).
 *
 * Comes from: process/region_turn.c, as the last source of a turn. Goes to: handle.c, with a start; or, of a type that
 * has no start message, just into memory.
 *
 * The list of remembered entities is column remembered of the state table. When a shard becomes active here, or a
 * worker begins, this worker walks over the shard's rows by their keys, some in each turn, and starts those that are
 * remembered. So there is no list beside the table, no message is stored for a start, and what a shard takes along when
 * it moves is its rows. Those that do not fit into memory count as started, and as having left it.
 *
 * How far a walk is, is in memory alone; an aborted turn has walked nowhere. If the process dies right here, its
 * successor walks over all shards again, and entities that had started start once more, as what they had in memory is
 * gone.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "base/fault.h"
#include "core/base/message.h"
#include "entity/internal.h"
#include "entity/state_door.h"
#include "shared/shmem.h"

#include "base/compat.h"

/* Shards that are looked for at once, and remembered rows that are read at once. */
#define SHARDS_AT_ONCE 256
#define ROWS_AT_ONCE 64

/* A recovery is told of once in this time at most. */
#define TELL_EVERY (60 * USECS_PER_SEC)

/* How long a type rests whose rows could not be read. */
#define UNREADABLE_PAUSE (30 * USECS_PER_SEC)

static bool wanted = false;					 /* some type may have a walk to be done */
static const ShardLocalType *reading = NULL; /* the type whose rows are being read */
static ShardRecoveryTime spent;				 /* on messages, and on starts */
static TimestampTz again = 0;				 /* before, messages have the time */
static int clock_steps = 0;					 /* of the clock that were seen */

static bool
has_shards(const ShardRecovery *recovery)
{
	return recovery->seeks || bms_next_member(recovery->shards, -1) >= 0;
}

/* Whether something of the type is to be started, be it later. */
static bool
is_pending(const ShardLocalType *local)
{
	return local->recovery.on && local->type->exists && local->runnable &&
		   has_shards(&local->recovery);
}

/* ---- which shards ----------------------------------------------------------------------------- */

void
shard_recovery_add(ShardLocalType *local, int shard)
{
	ShardRecovery *recovery = &local->recovery;
	MemoryContext old;

	if (!recovery->on)
		return;
	old = MemoryContextSwitchTo(TopMemoryContext);
	recovery->shards = bms_add_member(recovery->shards, shard);
	MemoryContextSwitchTo(old);
	if (recovery->now.shard == shard)
		recovery->now.shard = -1;
	recovery->not_before = 0; /* the others may pause */
	shard_local_count(local, shard)->remembered = 0;
	wanted = true;
}

void
shard_recovery_remove(ShardLocalType *local, int shard)
{
	ShardRecovery *recovery = &local->recovery;

	if (!recovery->on)
		return;
	recovery->shards = bms_del_member(recovery->shards, shard);
	if (recovery->saved.shard == shard)
		recovery->now.shard = recovery->saved.shard = -1;
	shard_local_count(local, shard)->remembered = 0;
}

void
shard_recovery_reset(ShardLocalType *local)
{
	ShardRecovery *recovery = &local->recovery;

	bms_free(recovery->shards);
	memset(recovery, 0, sizeof(*recovery));
	recovery->now.shard = recovery->saved.shard = -1;
}

void
shard_recovery_follow(ShardType *type, void *arg)
{
	bool on = type->remember && type->mode == SHARD_MODE_HOSTING && !shard_local_keeps();
	ShardLocalType *local = shard_local_known(type->type_id);

	if (local == NULL && on)
		local = shard_turn_ready_type(type->type_id);
	if (local == NULL)
		return;
	/* the rate may be another one; but types are looked at after each turn that failed, too */
	if (local->recovery.row_version != type->row_version)
		local->recovery.not_before = 0;
	local->recovery.row_version = type->row_version;
	if (local->recovery.on == on)
		return;
	shard_recovery_reset(local);
	local->recovery.row_version = type->row_version;
	local->recovery.on = local->recovery.seeks = on;
	local->recovery.sought = -1;
	wanted |= on;
}

/* Looks for shards of this worker that have rows, by their keys. False: not all are found yet. */
static bool
seek(ShardLocalType *local)
{
	ShardRecovery *recovery = &local->recovery;
	int32 shards[SHARDS_AT_ONCE];
	int count;

	shard_execution_end_user_code();
	if (shard_state_door_shards(local->type->state_table, recovery->sought,
								local->type->number_of_shards - 1, false, shards, SHARDS_AT_ONCE,
								&count) == SHARD_DOOR_BUSY)
	{
		recovery->not_before = shard_turn.now + SHARD_CONTENDED_PAUSE;
		return false;
	}
	for (int i = 0; i < count; i++)
	{
		int lane = shard_message_lane(local->type->type_id, shards[i]);

		recovery->sought = shards[i];
		if ((shard_turn.lanes & shard_lane_bit(lane)) != 0)
			shard_recovery_add(local, shards[i]);
	}
	recovery->seeks = count == SHARDS_AT_ONCE;
	return !recovery->seeks;
}

/*
 * Goes on to the next shard, if the walk is in none. False: there is no other, or all of them pause (E24), which the
 * type waits for.
 */
static bool
enter_shard(ShardLocalType *local)
{
	ShardRecovery *recovery = &local->recovery;
	TimestampTz until = DT_NOEND;
	int shard = -1;

	if (recovery->now.shard >= 0)
		return true;
	while ((shard = bms_next_member(recovery->shards, shard)) >= 0)
	{
		TimestampTz pause;

		if (list_member_int(recovery->finished, shard))
			continue;
		pause = shard_pause_until(local, shard);
		if (pause == 0)
			break;
		until = Min(until, pause);
	}
	if (shard < 0 && until != DT_NOEND)
		recovery->not_before = until;
	if (shard < 0)
		return false;
	recovery->now.shard = shard;
	recovery->now.id_len = 0;
	return true;
}

static List *
add_shard(List *list, int shard)
{
	MemoryContext old = MemoryContextSwitchTo(shard_turn.context);

	list = list_append_unique_int(list, shard);
	MemoryContextSwitchTo(old);
	return list;
}

static void
leave_shard(ShardRecovery *recovery)
{
	recovery->finished = add_shard(recovery->finished, recovery->now.shard);
	recovery->now.shard = -1;
}

static void
pass(ShardRecovery *recovery, const char *id, int id_len)
{
	recovery->now.id_len = id_len;
	memcpy(recovery->now.id, id, id_len);
}

/* ---- one entity ------------------------------------------------------------------------------- */

/* Brings an entity into memory, whose start is nothing more. A row that cannot be read raises, and is tried carefully. */
static void
load(ShardLocalType *local, ShardEntity *entity, HeapTuple tuple)
{
	MemoryContext old = MemoryContextSwitchTo(shard_turn.context);

	shard_turn.blames_last = true;
	shard_state_take(&local->table, entity, tuple, &entity->now);
	shard_turn.blames_last = false;
	MemoryContextSwitchTo(old);
	entity->checked = entity->was_remembered = entity->started = true;
	shard_passivate_touch(entity, shard_turn.now);
}

/*
 * Starts an entity, unless it runs. One of which messages wait starts with the first of them, or behind them, if none of
 * them is for its handler (stash.c).
 */
static void
start(ShardLocalType *local, HeapTuple tuple, const char *id, int id_len)
{
	bool bare = local->type->start_message == NULL && !shard_turn.careful;
	int shard = local->recovery.now.shard;
	ShardEntity *entity = shard_cache_get(local, shard, id, id_len, false);
	ShardRow row;

	shard_turn.count++;
	shard_local_count(local, shard)->counted++;
	if (entity == NULL && bare && shard_passivate_is_short())
	{
		local->recovery.starting++;
		return;
	}
	if (entity == NULL)
		entity = shard_cache_get(local, shard, id, id_len, true);
	shard_turn_enlist(entity);
	shard_turn.at = entity;
	if (entity->started || (entity->checked && !entity->now.remembered))
		return;
	if (entity->wait.deferred)
	{
		entity->start_wanted = true;
		return;
	}
	local->recovery.starting++;
	if (entity->life != SHARD_ENTITY_ACTIVE)
		shard_life_start(entity);
	if (bare && !entity->checked)
	{
		load(local, entity, tuple);
		return;
	}
	row = shard_start_row(entity);
	shard_turn.passed = true;
	(void) shard_handle_message(entity, &row, 0, false);
}

/* ---- the walk --------------------------------------------------------------------------------- */

/* Workers that have lanes of the type's owner. */
static int
count_workers(const ShardLocalType *local)
{
	const ShardDatabase *db = shard_shmem_database();
	ShardLanes lanes = shard_group_lanes(shard_message_group(local->type->type_id));
	int count = 0;

	for (int worker = 0; worker < SHARD_MAX_WORKERS; worker++)
		count += (shard_shmem_worker_lanes(db, worker) & lanes) != 0;
	return count;
}

/* How many entities may start now. If none, the type rests. */
static int64
allowance(ShardLocalType *local)
{
	const ShardType *type = local->type;
	ShardRecovery *recovery = &local->recovery;
	ShardRecoveryRate rate = {.number = type->recovery_number, .period = type->recovery_frequency};
	int64 again;
	int64 number;

	if (!type->recovers_slowly)
		return ROWS_AT_ONCE;
	rate.workers = count_workers(local);
	number = shard_recovery_allows(&rate, &recovery->pace, shard_turn.now, &again);
	if (number == 0)
		recovery->not_before = again;
	return Min(number, ROWS_AT_ONCE);
}

/* Opens the table; false: another transaction has it, or a type of the state, locked. */
static bool
open_table(ShardLocalType *local)
{
	if (!shard_turn_hold(local))
		return false;
	shard_security_begin(&shard_turn.security, local->type);
	return shard_state_open(&local->table, local->type);
}

/* An entity that was read, while the table is open. */
typedef struct Remembered
{
	HeapTuple tuple;
	const char *id;
	int id_len;
} Remembered;

/* Reads a piece of the shard, and its entities, into a memory of their own. */
static List *
read_piece(ShardLocalType *local, int limit, ShardStatePiece *piece, MemoryContext context)
{
	const ShardRecoveryPlace *place = &local->recovery.now;
	MemoryContext old = MemoryContextSwitchTo(context);
	List *result = NIL;
	ListCell *cell;

	shard_state_walk(&local->table, place->shard, place->id, place->id_len, limit, piece);
	foreach (cell, piece->remembered)
	{
		Remembered *one = palloc(sizeof(Remembered));

		one->tuple = lfirst(cell);
		one->id = shard_state_id(&local->table, one->tuple, &one->id_len);
		result = lappend(result, one);
	}
	MemoryContextSwitchTo(old);
	return result;
}

/* Starts the entities of a piece. False: the turn is over before its end. */
static bool
run_piece(ShardLocalType *local, const ShardStatePiece *piece, List *entities)
{
	ShardRecovery *recovery = &local->recovery;
	ListCell *cell;

	recovery->begun = add_shard(recovery->begun, recovery->now.shard);
	foreach (cell, entities)
	{
		const Remembered *one = lfirst(cell);

		if (shard_turn_is_over())
			return false;
		start(local, one->tuple, one->id, one->id_len);
		pass(recovery, one->id, one->id_len);
		shard_recovery_started(&recovery->pace, 1);
		shard_fault_step("recovery_walked");
	}
	if (piece->upto_len > 0)
		pass(recovery, piece->upto, piece->upto_len);
	if (piece->last)
		leave_shard(recovery);
	return true;
}

/* Walks on. False: not now. */
static bool
walk(ShardLocalType *local, MemoryContext context)
{
	ShardRecovery *recovery = &local->recovery;
	ShardStatePiece piece;
	List *entities;
	TimestampTz pause;
	int64 limit;
	bool goes_on;

	if (!shard_presence->is_active(local->type->type_id, recovery->now.shard))
	{
		leave_shard(recovery);
		return true;
	}
	pause = shard_pause_until(local, recovery->now.shard);
	if (pause != 0)
	{
		/* it begins anew after its pause, and others go on: who has started is passed over */
		recovery->begun = list_delete_int(recovery->begun, recovery->now.shard);
		shard_local_count(local, recovery->now.shard)->counted = 0;
		shard_recovery_add(local, recovery->now.shard);
		return enter_shard(local);
	}
	limit = allowance(local);
	if (limit == 0)
		return false;
	if (!open_table(local))
	{
		recovery->not_before = shard_turn.now + SHARD_CONTENDED_PAUSE;
		return false;
	}
	MemoryContextReset(context);
	reading = local;
	entities = read_piece(local, (int) limit, &piece, context);
	reading = NULL;
	goes_on = run_piece(local, &piece, entities);

	/* rows that are not remembered take time, too */
	shard_turn.begun = shard_turn.look = true;
	return goes_on;
}

/* A type that has no entity in the turn is not finished with the turn (turn.c). */
static void
let_go(ShardLocalType *local)
{
	if (local->in_turn)
		return;
	if (local->table.rel != NULL)
	{
		shard_security_begin(&shard_turn.security, local->type);
		shard_call_close(local);
	}
	shard_execution_end_user_code();
	shard_state_release(&local->parts);
}

static void
run_type(ShardLocalType *local, void *arg)
{
	ShardRecovery *recovery = &local->recovery;
	MemoryContext context;

	if (!recovery->on || shard_turn_ready_type(local->type->type_id) != local ||
		!is_pending(local) || recovery->not_before > shard_turn.now)
		return;
	if (shard_turn_puts_off(local))
	{
		shard_turn_note_put_off(local);
		return;
	}
	context = AllocSetContextCreate(shard_turn.context, "shard recovery", ALLOCSET_DEFAULT_SIZES);
	while (!shard_turn_is_over())
	{
		if ((recovery->seeks && !seek(local)) || !enter_shard(local) || !walk(local, context))
			break;
	}
	MemoryContextDelete(context);
	let_go(local);
}

/*
 * Starts an entity again that supervision has stopped, unless a message has. Of a type that does not run any more, or a
 * shard that is not here, nobody starts: they start with their shard when it comes up.
 */
static TimestampTz
start_again(const ShardRestart *restart)
{
	ShardLocalType *local = shard_turn_ready_type(restart->type_id);
	ShardEntity *entity;

	if (shard_turn_is_over())
		return shard_turn.now;
	if (local == NULL || !local->recovery.on ||
		!shard_presence->is_active(restart->type_id, restart->shard))
		return 0;
	if (!local->runnable || shard_pause_until(local, restart->shard) != 0)
		return shard_turn.now + USECS_PER_SEC;
	if (shard_turn_puts_off(local))
	{
		shard_turn_note_put_off(local);
		return shard_turn.now;
	}
	entity = shard_cache_get(local, restart->shard, restart->id, restart->id_len, true);
	shard_turn_enlist(entity);
	shard_turn.at = entity;
	shard_turn.count++;
	if (entity->started)
		return 0;
	entity->start_wanted = true;
	if (entity->wait.deferred)
		return 0;
	shard_turn.passed = true;
	shard_handle_late_start(entity);
	return 0;
}

static void
look_now(ShardLocalType *local, void *arg)
{
	local->recovery.not_before = 0;
}

/* The clock was set back: nothing waits until it is where it was. */
static void
follow_clock(void)
{
	if (clock_steps == shard_turn.clock_steps)
		return;
	clock_steps = shard_turn.clock_steps;
	shard_restart_follow_clock();
	again = 0;
	shard_local_each(look_now, NULL);
}

void
shard_recovery_run(void)
{
	bool stopped;
	TimestampTz now;
	int64 time;

	follow_clock();
	stopped = shard_restart_next_due() <= shard_turn.now;
	if (likely(!wanted && !stopped))
		return;
	now = GetCurrentTimestamp();
	if (shard_turn.count > 0)
		spent.handled = now;
	time = shard_recovery_time(&spent, now, &again);
	if (shard_turn.exactly || shard_turn.careful || shard_turn.single)
	{
		/* the turn looks for a start that has failed, so it has to come to it (D15) */
		time = SHARD_RECOVERY_TURN;
		again = 0;
	}
	if (time == 0)
		return;
	shard_turn_begin_source(SHARD_SOURCE_RECOVERY);
	shard_turn.deadline = now + time;
	if (stopped)
		shard_restart_each_due(start_again);
	if (wanted)
		shard_local_each(run_type, NULL);
	spent.started = GetCurrentTimestamp();
}

/* ---- after the turn --------------------------------------------------------------------------- */

/* The log has a line when entities begin to start, and one when all have. */
static void
tell(ShardLocalType *local)
{
	ShardRecovery *recovery = &local->recovery;
	TimestampTz now = GetCurrentTimestamp();

	if (recovery->began == 0 && recovery->started > 0 &&
		(now < recovery->told || now - recovery->told >= TELL_EVERY))
	{
		recovery->began = recovery->told = now;
		ereport(LOG,
				(errmsg("remembered entities of type \"%s\" begin to start", local->type->name)));
	}
	if (has_shards(recovery) || recovery->began == 0)
		return;
	ereport(LOG,
			(errmsg("remembered entities of type \"%s\" have started: " INT64_FORMAT " in %.1f s",
					local->type->name, recovery->started,
					(double) (now - recovery->began) / USECS_PER_SEC)));
	recovery->began = 0;
	recovery->started = 0;
}

static void
commit_type(ShardLocalType *local, void *arg)
{
	ShardRecovery *recovery = &local->recovery;
	ListCell *cell;

	if (!recovery->on)
		return;
	foreach (cell, recovery->begun)
	{
		ShardShardCount *count = shard_local_count(local, lfirst_int(cell));

		count->remembered += count->counted;
		count->counted = 0;
	}
	foreach (cell, recovery->finished)
		recovery->shards = bms_del_member(recovery->shards, lfirst_int(cell));
	recovery->begun = recovery->finished = NIL;
	recovery->saved = recovery->now;
	recovery->saved_pace = recovery->pace;
	recovery->started += recovery->starting;
	recovery->starting = 0;
	tell(local);
	wanted |= has_shards(recovery);
}

void
shard_recovery_committed(void)
{
	shard_restart_committed();
	if (likely(!wanted))
		return;
	wanted = false;
	shard_local_each(commit_type, NULL);
}

static void
abort_type(ShardLocalType *local, void *arg)
{
	ShardRecovery *recovery = &local->recovery;
	ListCell *cell;

	foreach (cell, recovery->begun)
		shard_local_count(local, lfirst_int(cell))->counted = 0;
	recovery->begun = recovery->finished = NIL;
#ifndef SHARD_MUTANT_RECOVERY_SKIPS
	recovery->now = recovery->saved;
#endif
	recovery->pace = recovery->saved_pace;
	recovery->starting = 0;
	if (local == reading)
	{
		/* its rows cannot be read: messages, and entities of other types, go on meanwhile */
		recovery->not_before = GetCurrentTimestamp() + UNREADABLE_PAUSE;
		reading = NULL;
	}

	/* turn_entity.c knows of types that have entities in the turn */
	if (recovery->on && !local->in_turn)
	{
		shard_state_forget(&local->table);
		shard_state_release_forget(&local->parts);
	}
}

void
shard_recovery_aborted(void)
{
	shard_restart_aborted();
	shard_local_each(abort_type, NULL);
}

static void
find_due(ShardLocalType *local, void *arg)
{
	TimestampTz *due = arg;

	if (is_pending(local))
		*due = Min(*due, local->recovery.not_before);
}

void
shard_recovery_follow_clock(void)
{
	if (wanted || shard_restart_next_due() != DT_NOEND)
		shard_queue_follow_clock(GetCurrentTimestamp()); /* as in stash.c */
	follow_clock();
}

TimestampTz
shard_recovery_next_due(void)
{
	TimestampTz due = shard_restart_next_due();

	if (wanted)
		shard_local_each(find_due, &due);
	return Max(due, again);
}
