/*
 * sql/view/health_still.c
 *		Messages that could be handled and are not; a part of shard_health.
 *
 * A message stands still until a restart if a worker has forgotten it, so the worker is not asked. Tables say what
 * could be handled, and have said so for a while; then each worker concerned has to run a whole turn, which would
 * handle it; what is there still, stands still. A backlog is not taken for that: as long as a worker has more to do
 * than one turn takes, nothing is said of it but that it does not move at all.
 */
#include "postgres.h"

#include "access/xact.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "sql/operate/command.h"
#include "core/base/message.h"
#include "entity/execution.h"
#include "sql/view/health.h"
#include "log/log_position.h"
#include "log/log_read.h"
#include "shared/board.h"
#include "registry/registry.h"
#include "registry/security.h"
#include "registry/statement.h"
#include "shared/shmem.h"
#include "sql/view/worker_owners.h"
#include "core/base/division.h"
#include "base/rights.h"

#include "base/compat.h"

/*
 * Messages that could be handled for this time, and a worker that did nothing for this time, are worth a word; in
 * seconds.
 */
#define STILL_SECONDS 10

/*
 * A call of a type's code ends its worker when it ran for this multiple of its handler_timeout, and for at least this
 * time (call.c).
 */
#define OVERDUE_TIMES 4
#define OVERDUE_SECONDS 10

/* A worker runs a whole turn within this time, or has a backlog; in microseconds. */
#define TURN_PATIENCE (3 * USECS_PER_SEC)

/* An entity whose state row another session held is looked at again after a tenth of a second; in microseconds. */
#define CONTENDED (200 * INT64CONST(1000))

/* An idle worker finds nothing to read at least once in this time; in microseconds. */
#define IDLE (2 * USECS_PER_SEC)

/* Pages of the log that are read, at most, for messages that were not handled. */
#define MOST_PAGES 20000

/* Where a message may stand still. */
typedef enum StillPlace
{
	STILL_INBOX,
	STILL_STASH,
	STILL_ORDERED,
	STILL_PARKED
} StillPlace;

/* The first message of an entity, of a shard that is parked, or of a worker's inbox. */
typedef struct Still
{
	StillPlace place;
	int worker;
	int32 type_id;
	int32 shard;
	char *type_name;
	char *entity;
	int64 key; /* seq, number, arrival */
	char *since;
} Still;

/* A look at everything. */
typedef struct Look
{
	ShardDatabase *db;
	MemoryContext context;
	List *found; /* Still * */
	ShardLogPositions positions;
	uint64
		self; /* xid of the transaction that looks: what it has sent itself does not wait yet; 0: none */
	uint64 inbox; /* workers with something in their inbox */
	int pages;
} Look;

/*
 * Parts of the queries. Of the messages that could have been handled for a while, only a limited number is looked at,
 * and of these the first one of each entity. Whether a type can run is found once for each type. An entity whose row or
 * table is locked waits for that; by a prepared transaction, too.
 */
#define LONG_AGO "clock_timestamp() - $1 * interval '1 second'"
#define DUE(place, key) \
	"WITH runs AS MATERIALIZED (" \
	" SELECT t.* FROM shard.type t" \
	" WHERE t.mode = 'hosting' AND coalesce(shard.type_problem(t.type_id), t.problem) IS NULL)," \
	" due AS MATERIALIZED (" \
	" SELECT h.type_id, h.shard, h.entity, h." key ", greatest(h.held_at, h.next_at) AS since" \
	" FROM shard.held h JOIN runs USING (type_id)" \
	" WHERE h.place = '" place "' AND greatest(h.held_at, h.next_at) < " LONG_AGO \
	" AND NOT EXISTS (SELECT FROM shard.held p WHERE p.type_id = h.type_id AND p.shard = h.shard" \
	"  AND p.pauses AND p.next_at > " LONG_AGO ")" \
	" AND NOT EXISTS (SELECT FROM shard.backup_here b WHERE b.type_id = h.type_id AND b.shard = h.shard)" \
	" LIMIT 20000)" \
	" SELECT c.type_id, c.shard, c.type_name, c.entity, c." key ", c.since FROM (" \
	" SELECT t.type_name, t.state_table, m.*" \
	" FROM (SELECT DISTINCT ON (d.type_id, d.shard, d.entity) d.* FROM due d" \
	"       ORDER BY d.type_id, d.shard, d.entity, d." key ") m" \
	" JOIN runs t ON t.type_id = m.type_id" \
	" JOIN shard.own o ON o.type_id = m.type_id AND o.shard = m.shard AND o.state = 'active'"
#define OLDEST " ORDER BY m.since LIMIT 1000) c"
#define NOT_LOCKED \
	" shard.inbox_blocker(c.type_id, c.shard, c.entity) IS NULL" \
	" AND NOT EXISTS (SELECT FROM pg_locks l" \
	" WHERE l.relation = c.state_table AND l.virtualtransaction LIKE '-1/%') LIMIT 100"

/* There is none before it that is to be tried later, nor does its entity have to start first, which it failed to. */
static const ShardStatement stash = {
	DUE("stash", "seq") OLDEST
	" WHERE NOT EXISTS (SELECT FROM shard.held f WHERE f.type_id = c.type_id AND f.shard = c.shard"
	" AND f.entity = c.entity AND (f.place = 'start' OR f.place = 'stash' AND f.seq < c.seq)) AND" NOT_LOCKED,
	1,
	{INT4OID}};

/* It is its turn: nothing before it is missing, or numbers do not matter; and nothing is in the stash. */
static const ShardStatement ordered = {
	DUE("ordered",
		"number") " LEFT JOIN shard.ordered p ON p.type_id = m.type_id AND p.shard = m.shard AND p.entity = m.entity"
				  " WHERE (p.expected IS NULL OR m.number <= p.expected OR t.settings->>'ordered_by' IS NULL)" OLDEST
				  " WHERE NOT EXISTS (SELECT FROM shard.held f WHERE f.type_id = c.type_id AND f.shard = c.shard"
				  " AND f.entity = c.entity AND f.place IN ('stash', 'start')) AND" NOT_LOCKED,
	1,
	{INT4OID}};

/* The first one of each shard whose home is known, and active if it is here. */
static const ShardStatement parked = {
	"SELECT m.type_id, m.shard, t.type_name, m.entity, m.arrival, m.parked_at AS since"
	" FROM (SELECT DISTINCT ON (p.type_id, p.shard) p.type_id, p.shard, p.entity, p.arrival, p.parked_at"
	"       FROM shard.parked p WHERE p.turn IS NULL ORDER BY p.type_id, p.shard, p.rseq, p.arrival) m"
	" JOIN shard.type t ON t.type_id = m.type_id AND t.mode <> 'stopped'"
	" JOIN shard.route r ON r.type_id = m.type_id AND r.shard = m.shard AND r.node <> 0"
	" CROSS JOIN shard.node n"
	" LEFT JOIN shard.own o ON o.type_id = m.type_id AND o.shard = m.shard AND o.state = 'active'"
	"   AND o.epoch = r.epoch"
	" WHERE m.parked_at < " LONG_AGO
	" AND CASE WHEN r.node = n.node_id THEN o.epoch IS NOT NULL ELSE $2 END"
	" ORDER BY since LIMIT 100",
	2,
	{INT4OID, BOOLOID}};

static int
worker_of(const Look *look, int32 type_id, int32 shard)
{
	return shard_shmem_lane_worker(look->db, shard_message_lane(type_id, shard));
}

/*
 * Adds what is found; in the look's memory.
 */
static void
add(Look *look, const Still *found)
{
	MemoryContext old = MemoryContextSwitchTo(look->context);
	Still *still = palloc(sizeof(Still));

	*still = *found;
	still->worker = worker_of(look, found->type_id, found->shard);
	still->type_name = found->type_name ? pstrdup(found->type_name) : NULL;
	still->entity = pstrdup(found->entity);
	still->since = found->since ? pstrdup(found->since) : NULL;
	look->found = lappend(look->found, still);
	MemoryContextSwitchTo(old);
}

/*
 * Adds what a statement finds. pushes: messages may leave for other nodes.
 */
static void
look_at_table(Look *look, StillPlace place, const ShardStatement *statement, bool pushes)
{
	ShardArguments arguments = {0};

	shard_statement_add(&arguments, Int32GetDatum(STILL_SECONDS), false);
	if (place == STILL_PARKED)
		shard_statement_add(&arguments, BoolGetDatum(pushes), false);
	SPI_connect();
	shard_statement_once_read(statement, &arguments, 0);
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		Still still = {.place = place,
					   .type_id = shard_statement_int4(i, 1),
					   .shard = shard_statement_int4(i, 2),
					   .type_name = shard_statement_text(i, 3),
					   .entity = shard_statement_text(i, 4),
					   .key = shard_statement_int8(i, 5),
					   .since = shard_statement_text(i, 6)};

		/* what the owner has no worker for is held until a worker takes the owner */
		if (place == STILL_PARKED ||
			!shard_division_is_keeper(&look->db->division,
									  worker_of(look, still.type_id, still.shard)))
			add(look, &still);
	}
	SPI_finish();
}

static bool
is_waiting(const ShardRowFixed *row, void *arg)
{
	Look *look = arg;

	int worker = worker_of(look, row->type_id, row->shard);

	/* what the owner has no worker for is held until a worker takes the owner */
	return shard_kind_is_message(row->kind) && row->chunk == 0 && row->sender != look->self &&
		   !shard_division_is_keeper(&look->db->division, worker) &&
		   (look->inbox & shard_worker_bit(worker)) == 0 &&
		   !shard_log_position_handled(&look->positions, row);
}

static void
see_waiting(const ShardRow *row, void *arg)
{
	Look *look = arg;
	uint64 worker = shard_worker_bit(worker_of(look, row->type_id, row->shard));
	Still still = {.place = STILL_INBOX,
				   .type_id = row->type_id,
				   .shard = row->shard,
				   .entity = pnstrdup(row->entity, row->entity_len),
				   .key = row->seq};

	if ((look->inbox & worker) == 0)
		add(look, &still);
	look->inbox |= worker;
}

/* After each page. */
static bool
has_seen_enough(void *arg)
{
	Look *look = arg;

	return ++look->pages > MOST_PAGES || look->inbox == shard_shmem_workers(look->db);
}

/*
 * The first message of each worker that is in the inbox.
 */
static void
look_at_inbox(Look *look, Snapshot snapshot)
{
	ShardLogScan scan = {
		.snapshot = snapshot,
		.want = is_waiting,
		.visit = see_waiting,
		.arg = look,
		.done = has_seen_enough,
	};

	shard_log_position_read(snapshot, &look->positions);
	scan.from = look->positions.lowest;
	shard_log_read(&scan);
}

/*
 * Everything that could be handled, as it is now.
 */
static List *
look(ShardDatabase *db, bool pushes)
{
	ShardSecurity security = {0};
	Look look = {.db = db,
				 .context = CurrentMemoryContext,
				 .self = U64FromFullTransactionId(GetTopFullTransactionIdIfAny())};

	PushActiveSnapshot(GetLatestSnapshot());
	look_at_inbox(&look, GetActiveSnapshot());
	shard_security_begin_system(&security);
	look_at_table(&look, STILL_ORDERED, &ordered, pushes);
	look_at_table(&look, STILL_STASH, &stash, pushes);
	look_at_table(&look, STILL_PARKED, &parked, pushes);
	shard_security_end(&security);
	PopActiveSnapshot();
	return look.found;
}

/*
 * Whether the worker has looked at all there was in this place, in a turn that began after some time.
 */
static bool
has_looked(ShardDatabase *db, const Still *still, TimestampTz after)
{
	ShardWorkerSlot *slot = &db->worker[still->worker];
	ShardWorkerTurns turns;

	TimestampTz looked_at;

	if (still->place == STILL_INBOX)
		looked_at = (TimestampTz) pg_atomic_read_u64(&slot->caught_up_at);
	else
	{
		shard_shmem_turns(slot, &turns);
		looked_at = turns.looked_at;
	}
	/* a time that is still to come is one of a clock that was set back */
	return looked_at > after && looked_at <= GetCurrentTimestamp();
}

/*
 * Whether anything is to be learned from a turn of the worker: one with a backlog will not come to its end.
 */
static bool
is_worth_waiting(ShardDatabase *db, const Still *still)
{
	ShardWorkerSlot *slot = &db->worker[still->worker];
	TimestampTz read_at = pg_atomic_read_u64(&slot->caught_up_at);

	return shard_shmem_worker_runs(db, still->worker) &&
		   (still->place != STILL_INBOX || GetCurrentTimestamp() - read_at < IDLE);
}

/*
 * Has each worker concerned run a whole turn, if it can.
 */
static void
wait_for_turns(ShardDatabase *db, List *found, TimestampTz after)
{
	TimestampTz deadline = GetCurrentTimestamp() + TURN_PATIENCE;
	bool waits = true;

	while (waits && GetCurrentTimestamp() < deadline)
	{
		ListCell *cell;

		waits = false;
		foreach (cell, found)
		{
			const Still *still = lfirst(cell);

			if (has_looked(db, still, after) || !is_worth_waiting(db, still))
				continue;
			shard_shmem_wake_worker(db, still->worker);
			waits = true;
		}
		if (waits)
			shard_command_nap();
	}
}

static bool
is_same(const Still *a, const Still *b)
{
	/* lanes that went to another worker have been looked at by neither */
	return a->place == b->place && a->worker == b->worker && a->type_id == b->type_id &&
		   a->shard == b->shard && a->key == b->key && strcmp(a->entity, b->entity) == 0;
}

/*
 * Those of found that are there still, though their workers had their turn.
 */
static List *
still_there(ShardDatabase *db, List *found, List *again, TimestampTz after)
{
	List *result = NIL;
	ListCell *cell;
	ListCell *other;

	foreach (cell, found)
	{
		Still *still = lfirst(cell);

		if (!has_looked(db, still, after))
			continue;
		foreach (other, again)
		{
			if (!is_same(still, lfirst(other)))
				continue;
			result = lappend(result, lfirst(other));
			break;
		}
	}
	return result;
}

/*
 * What a message is called that stands still, and where to look.
 */
static const char *
describe(const Still *still)
{
	switch (still->place)
	{
		case STILL_INBOX:
			return psprintf("a message for it was passed over in the inbox, seq " INT64_FORMAT
							"; see shard_inbox",
							still->key);
		case STILL_STASH:
			return psprintf(
				"its message in the stash could be handled since %s, and is not; see shard_inbox",
				still->since);
		case STILL_ORDERED:
			return psprintf("its message number " INT64_FORMAT
							" waits since %s though it is the next one; see shard_ordered",
							still->key, still->since);
		default:
			return psprintf(
				"its message is parked since %s though the home of shard %d is known; see "
				"shard_inbox",
				still->since, still->shard);
	}
}

static const char *
type_name(const Still *still)
{
	const ShardType *type;

	if (still->type_name != NULL)
		return still->type_name;
	type = shard_registry_by_id(still->type_id);
	return type != NULL ? type->name : psprintf("%d", still->type_id);
}

/*
 * A sentence for those of one place and type: about the first one, and how many more there are.
 */
static void
say_still(ShardHealth *health, List *stuck)
{
	ListCell *cell;

	foreach (cell, stuck)
	{
		const Still *still = lfirst(cell);
		bool first = true;
		int more = 0;

		for (int i = 0; i < list_length(stuck); i++)
		{
			const Still *other = list_nth(stuck, i);

			if (other->place != still->place || other->type_id != still->type_id)
				continue;
			if (i < foreach_current_index(cell))
				first = false;
			more += i > foreach_current_index(cell);
		}
		if (first)
			shard_health_add(health,
							 psprintf("entity \"%s\" of type \"%s\" stands still%s: %s",
									  still->entity, type_name(still),
									  more > 0 ? psprintf(", and %d others of the type", more) : "",
									  describe(still)));
	}
}

/*
 * A worker whose turns fail, one after the other.
 */
static void
say_failing(ShardHealth *health, int worker, const ShardWorkerTurns *turns)
{
	const ShardType *type = turns->type_id != 0 ? shard_registry_by_id(turns->type_id) : NULL;
	const char *at = type == NULL ? ""
					 : turns->entity[0] == '\0'
						 ? psprintf(", at messages of type \"%s\"", type->name)
						 : psprintf(", at entity \"%s\" of type \"%s\"", turns->entity, type->name);

	shard_health_add(
		health, psprintf("worker %d handles nothing: %d turns in a row have failed since %s%s: %s",
						 worker, turns->failures, timestamptz_to_str(turns->failing_since), at,
						 shard_rights_all_stats() ? turns->error : "see the server log"));
}

/*
 * What a worker is at that does not move: as far as that can be told.
 */
static const char *
why_unmoved(ShardWorkerSlot *slot)
{
	int32 type_id;
	char *entity;
	TimestampTz since = shard_shmem_long_call(slot, &type_id, &entity);
	const ShardType *type;

	if (since == 0)
		return "its process may be stopped, or wait for the disk; see pg_stat_activity";
	type = shard_registry_by_id(type_id);
	if (entity[0] == '\0')
		return psprintf(
			"it has run other code of type \"%s\", as triggers of its table or commits at foreign servers, since %s",
			type != NULL ? type->name : psprintf("%d", type_id), timestamptz_to_str(since));
	return psprintf("it has run the handler of entity \"%s\" of type \"%s\" since %s", entity,
					type != NULL ? type->name : psprintf("%d", type_id), timestamptz_to_str(since));
}

/* The first of a worker's messages; NULL: there is none. */
static const Still *
first_of(List *found, int worker)
{
	ListCell *cell;

	foreach (cell, found)
	{
		const Still *still = lfirst(cell);

		if (still->worker == worker)
			return still;
	}
	return NULL;
}

/*
 * How the call ends that a worker is in: by its timer (call.c), or, if the time of that is over, since the server's own
 * code that it runs looks at nothing, with the server. "" if it is in none.
 */
static const char *
how_it_ends(ShardWorkerSlot *slot, int pid)
{
	int32 type_id;
	char *entity;
	TimestampTz since = shard_shmem_long_call(slot, &type_id, &entity);
	const ShardType *type = since != 0 ? shard_registry_by_id(type_id) : NULL;
	int64 allowed;

	if (type == NULL)
		return "";
	allowed = Max(OVERDUE_TIMES * type->handler_timeout, OVERDUE_SECONDS * USECS_PER_SEC);
	if (GetCurrentTimestamp() - since < allowed + USECS_PER_SEC)
		return psprintf("; its handler_timeout ends it, as pg_terminate_backend(%d) does", pid);
	return psprintf(
		"; it should have ended by itself: if pg_terminate_backend(%d) does not end it, it "
		"runs code that looks at no interrupts, which only an immediate restart of the "
		"server ends (pg_ctl -m immediate); shard_stop_type() first keeps the next worker "
		"from it",
		pid);
}

/*
 * A worker that is in a turn which comes no further, whatever the tables say: they do not tell what the turn itself has
 * written, such as the home of the shard that it handles the first message of.
 */
static void
check_turn(ShardHealth *health, ShardDatabase *db, int worker, int pid)
{
	ShardWorkerSlot *slot = &db->worker[worker];
	TimestampTz at;
	TimestampTz since = shard_shmem_turn(slot, &at);
	TimestampTz now = GetCurrentTimestamp();
	char *owners;
	int count;

	if (since == 0 || now - at < STILL_SECONDS * USECS_PER_SEC)
		return;
	owners = shard_worker_owners(db, worker, &count);
	shard_health_add(
		health,
		psprintf("worker %d, process %d%s%s, has come no further in its turn for " INT64_FORMAT
				 " s: %s%s",
				 worker, pid, count > 0 ? ", for types of " : "", owners,
				 (now - at) / USECS_PER_SEC, why_unmoved(slot), how_it_ends(slot, pid)));
}

/*
 * Since when a worker has done nothing: a turn of many calls, as of batch handlers, may be long, and comes further
 * meanwhile. A process has had no more time than it lives. Of several processes that ended, one after the other, the time
 * is counted as one, since each of them may be young.
 */
static TimestampTz
idle_since(ShardWorkerSlot *slot, const ShardWorkerTurns *turns)
{
	TimestampTz at;
	TimestampTz since = shard_shmem_turn(slot, &at);
	bool is_long = since != 0 && GetCurrentTimestamp() - since > STILL_SECONDS * USECS_PER_SEC;
	TimestampTz moved = turns->ended > 1 ? turns->moved_at : Max(turns->moved_at, turns->began_at);

	return is_long ? Max(at, moved) : moved;
}

/* What is to be said of a worker that did nothing: a process that has just begun is not the one to look at. */
static const char *
why_idle(ShardWorkerSlot *slot, const ShardWorkerTurns *turns)
{
	if (GetCurrentTimestamp() - turns->began_at >= STILL_SECONDS * USECS_PER_SEC)
		return why_unmoved(slot);
	return psprintf("%d processes of this worker have ended in that time; see the server log",
					turns->ended);
}

/*
 * A worker that did nothing for a while though it has work, or whose turns fail.
 */
static void
check_worker(ShardHealth *health, ShardDatabase *db, int worker, List *found)
{
	ShardWorkerSlot *slot = &db->worker[worker];
	const Still *first = first_of(found, worker);
	TimestampTz now = GetCurrentTimestamp();
	ShardWorkerTurns turns;
	TimestampTz idle;
	const char *asked = NULL;
	int pid;

	SpinLockAcquire(&slot->mutex);
	pid = slot->in_use ? (int) slot->pid : 0;
	if (slot->ask_head >= 0)
		asked = "asks wait";
	turns = slot->turns_now;
	SpinLockRelease(&slot->mutex);
	if (pg_atomic_read_u64(&slot->drain_wanted) > pg_atomic_read_u64(&slot->drain_done))
		asked = "shard_drain() waits";
	if (pid == 0)
		return;
	if (turns.failures > 0 && now - turns.failing_since > STILL_SECONDS * USECS_PER_SEC)
		say_failing(health, worker, &turns);
	idle = idle_since(slot, &turns);
	if (turns.failures > 0 || now - idle < STILL_SECONDS * USECS_PER_SEC ||
		(first == NULL && asked == NULL))
	{
		check_turn(health, db, worker, pid);
		return;
	}
	shard_health_add(health,
					 psprintf("worker %d, process %d, has done nothing for " INT64_FORMAT
							  " s while %s: %s%s",
							  worker, pid, (now - idle) / USECS_PER_SEC,
							  first == NULL
								  ? asked
								  : psprintf("entity \"%s\" of type \"%s\" and maybe others wait",
											 first->entity, type_name(first)),
							  why_idle(slot, &turns), how_it_ends(slot, pid)));
}

void
shard_health_still(ShardHealth *health)
{
	ShardDatabase *db = shard_shmem_database();
	TimestampTz after = GetCurrentTimestamp() + CONTENDED;
	ShardBoardView view;
	List *found;

	/* a worker would wait for itself */
	if (db == NULL || db->paused || db->state != SHARD_DATABASE_ACTIVE ||
		shard_execution_in_handler())
		return;
	shard_board_get(db, &view);
	if (!view.known || view.fenced || !view.handle)
		return;
	shard_registry_refresh();
	found = look(db, view.push);
	shard_each_worker (worker, db)
		check_worker(health, db, worker, found);
	if (found == NIL)
		return;
	wait_for_turns(db, found, after);
	say_still(health, still_there(db, found, look(db, view.push), after));
}
