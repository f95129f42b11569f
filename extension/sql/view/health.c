/*
 * sql/view/health.c
 *		shard_health: everything that is wrong on this node, in short.
 *
 * Each problem is one sentence that names what to look at. What only looks
 * busy is no problem: a backlog, a message waiting for its next attempt.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "funcapi.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/guc.h"

#include "log/buffer.h"
#include "registry/catalog.h"
#include "entity/held.h"
#include "base/guc.h"
#include "sql/view/health.h"
#include "sql/view/inbox.h"
#include "log/log.h"
#include "registry/identity.h"
#include "registry/registry.h"
#include "registry/security.h"
#include "registry/statement.h"
#include "shared/shmem.h"
#include "sql/view/worker_owners.h"
#include "sql/type/admin.h"
#include "core/base/division.h"
#include "core/base/text.h"

#include "base/compat.h"

PG_FUNCTION_INFO_V1(shard_health);

/* An inbox is nearly full at this percentage of shard.inbox_max_size. */
#define NEARLY_FULL 80

/* As many shards of a problem are named. */
#define SHARDS_NAMED "20"

/* Rows of one text column: a problem each. */
static const ShardStatement in_tables = {
	"SELECT format('entity type \"%s\" is suspended: %s', t.type_name, p.problem)"
	" FROM shard.type t, coalesce(shard.type_problem(t.type_id), t.problem) p (problem)"
	" WHERE (t.mode = 'hosting' OR t.cluster_owner IS NOT NULL) AND p.problem IS NOT NULL"
	" UNION ALL "
	"SELECT format('entity type \"%s\" was dropped here, with %s of its shards still here, and %s "
	"messages that wait for them: they move to members that host the type, if there is one; or call shard_start() "
	"for it here', t.type_name, o.shards, h.messages + p.messages)"
	" FROM shard.type t,"
	" LATERAL (SELECT count(*) AS shards FROM shard.own o WHERE o.type_id = t.type_id"
	"  AND o.state IN ('active', 'stopping', 'clearing')) o,"
	" LATERAL (SELECT count(*) AS messages FROM shard.held_here h WHERE h.type_id = t.type_id) h,"
	" LATERAL (SELECT count(*) AS messages FROM shard.parked p WHERE p.type_id = t.type_id AND p.turn IS NULL) p"
	" WHERE t.mode = 'dropped' AND h.messages + p.messages > 0"
	" UNION ALL "
	"SELECT format(CASE h.place WHEN 'stash' THEN"
	" '%s messages of entity type \"%s\" are in the stash, the oldest since %s; see shard_inbox' ELSE"
	" '%s messages of entity type \"%s\" wait for lower numbers, the oldest since %s; see shard_ordered'"
	" END, count(*), t.type_name, date_trunc('second', min(h.held_at)))"
	" FROM shard.held_here h JOIN shard.type t USING (type_id)"
	" WHERE t.mode = 'hosting' GROUP BY t.type_name, h.place"
	" HAVING min(h.held_at) < clock_timestamp() - interval '5 minutes'"
	" UNION ALL "
	"SELECT format('entities of type \"%2$s\" cannot start: %1$s, of which %3$s quarantined, since %4$s: entity \"%5$s\": %6$s; ' ||"
	" CASE WHEN count(*) FILTER (WHERE h.next_at IS NULL) = 0 THEN"
	" 'when that is over they start by themselves; see shard_history()' ELSE"
	" 'mend the handler or the states, then call shard_start_entity() for those in quarantine' END,"
	" count(*), t.type_name,"
	" count(*) FILTER (WHERE h.next_at IS NULL), date_trunc('second', min(h.held_at)),"
	" (array_agg(h.entity ORDER BY h.held_at))[1], (array_agg(h.error ORDER BY h.held_at))[1])"
	" FROM shard.start_failure_here h JOIN shard.type t USING (type_id)"
	" WHERE t.mode = 'hosting' AND h.attempts > 0 GROUP BY t.type_name"
	" UNION ALL "
	"SELECT format('entity type \"%s\" has as many dead letters as it may have: %s, of %s bytes; %s; see "
	"shard_redrive() and max_dead_letters', t.type_name, d.messages, d.bytes,"
	" CASE t.settings->>'dead_letters_full' WHEN 'drop_oldest' THEN 'the oldest are deleted' ELSE"
	" 'messages that fail wait' END)"
	" FROM shard.type t, LATERAL (SELECT count(*) AS messages, sum(" SHARD_DEAD_LETTER_BYTES
	") AS bytes"
	"  FROM shard.dead_letter d WHERE d.type_id = t.type_id) d"
	" WHERE d.messages >= (t.settings->>'max_dead_letters')::int8"
	" OR d.bytes >= (t.settings->>'max_dead_letters_size')::int8"
	" UNION ALL "
	"SELECT format('%s messages of entity type \"%s\" are parked, the oldest since %s: ' ||"
	" CASE WHEN p.node = 0 THEN '%s shards of the type have no home; a member that hosts it has to be up: see "
	"shard_types and shard_members, or call shard_start() for it here'"
	" ELSE 'the home of %s shards, node %s, is not ready; see shard_members' END,"
	" sum(p.messages), t.type_name, date_trunc('second', min(p.since)), count(*), p.node)"
	" FROM (SELECT p.type_id, p.shard, coalesce(r.node, 0) AS node, count(*) AS messages, min(p.parked_at) AS since"
	"  FROM shard.parked p LEFT JOIN shard.route r USING (type_id, shard) WHERE p.turn IS NULL GROUP BY p.type_id, p.shard, r.node) p"
	" JOIN shard.type t USING (type_id) GROUP BY t.type_name, p.node"
	" HAVING min(p.since) < clock_timestamp() - interval '5 minutes'"
	" UNION ALL "
	"SELECT format('entity type \"%s\" is stopped at this node, and %s messages wait for it, the oldest since %s; they are "
	"handled when %sshard_start() is called for it here', t.type_name,"
	" count(*), date_trunc('second', min(w.since)), CASE WHEN EXISTS (SELECT FROM shard.reshard r"
	"  WHERE r.type_id = t.type_id AND r.moving) THEN 'shard_reshard() has moved its entities, and ' END)"
	" FROM shard.type t JOIN (SELECT h.type_id, h.held_at AS since FROM shard.held_here h"
	"  UNION ALL SELECT p.type_id, p.parked_at FROM shard.parked p WHERE p.turn IS NULL) w USING (type_id)"
	" WHERE t.mode = 'stopped' GROUP BY t.type_id"
	" HAVING min(w.since) < clock_timestamp() - interval '5 minutes'"
	" UNION ALL "
	"SELECT format(CASE count(*) WHEN 1 THEN"
	" 'shard %2$s of entity type \"%3$s\" stands still: the cluster says that it is here in epoch %4$s, "
	"but it is %5$s here; if its states are nowhere any more, or not to be used, see shard_give_up()' ELSE"
	" '%1$s shards of entity type \"%3$s\" stand still: the cluster says that they are here in epoch %4$s, "
	"but they are %5$s here: shards %2$s; if their states are nowhere any more, or not to be used, see "
	"shard_give_up()' END, count(*),"
	" array_to_string((array_agg(s.shard ORDER BY s.shard))[:" SHARDS_NAMED "], ', ') ||"
	" CASE WHEN count(*) > " SHARDS_NAMED " THEN ', ...' ELSE '' END, s.type_name, s.epoch, s.here)"
	" FROM (SELECT t.type_name, r.shard, r.epoch, coalesce(o.state || ' in epoch ' || o.epoch, 'not') AS here"
	"  FROM shard.node n JOIN shard.route r ON r.node = n.node_id JOIN shard.type t USING (type_id)"
	"  LEFT JOIN shard.own o USING (type_id, shard)"
	"  WHERE o.state IS NULL OR o.epoch < r.epoch) s"
	" GROUP BY s.type_name, s.epoch, s.here"
	" UNION ALL "
	"SELECT format('messages for node %s wait since %s; see shard_peers', k.node,"
	" date_trunc('second', min(k.kept_at)))"
	" FROM shard.outbox_kept k GROUP BY k.node"
	" HAVING min(k.kept_at) < clock_timestamp() - interval '5 minutes'"
	" UNION ALL "
	"SELECT format('the link %s is quarantined: %s; see shard_link_accept()', q.link, min(q.why))"
	" FROM (SELECT format('to node %s', s.node), s.quarantine FROM shard.stream s UNION ALL"
	" SELECT format('from node %s', p.origin), p.quarantine FROM shard.position p) q (link, why)"
	" WHERE q.why IS NOT NULL GROUP BY q.link"
	" UNION ALL "
	"SELECT format('entities of type \"%s\" are on their way to other shards, and no step was done since %s; call "
	"shard_reshard() again, and see shard_reshardings', t.type_name, date_trunc('second', r.stepped_at))"
	" FROM shard.reshard r JOIN shard.type t USING (type_id)"
	" WHERE r.stepped_at < clock_timestamp() - interval '1 minute'"};

struct ShardHealth
{
	MemoryContext
		context; /* of the call; parts add while SPI has a context of its own, which ends before */
	Datum *text;
	int count;
	int capacity;
};

/* Entity ids, errors and names of others' transactions are in the text; each of them could hold a line that looks like ours. */
void
shard_health_add(ShardHealth *problems, const char *text)
{
	char *visible;
#ifndef SHARD_MUTANT_HEALTH_IN_SPI
	MemoryContext old = MemoryContextSwitchTo(problems->context);
#endif

	if (problems->count >= problems->capacity)
	{
		problems->capacity *= 2;
		problems->text = repalloc(problems->text, problems->capacity * sizeof(Datum));
	}
	visible = shard_text_shown(text);
	problems->text[problems->count++] = CStringGetTextDatum(visible);
	pfree(visible);
#ifndef SHARD_MUTANT_HEALTH_IN_SPI
	MemoryContextSwitchTo(old);
#endif
}

static bool
launcher_runs(void)
{
	pid_t pid;

	SpinLockAcquire(&shard_shared->launcher_mutex);
	pid = shard_shared->launcher_pid;
	SpinLockRelease(&shard_shared->launcher_mutex);
	return pid != 0;
}

const char *
shard_health_no_room(ShardWorkerSlot *slot)
{
	bool no_room;

	SpinLockAcquire(&slot->mutex);
	no_room = slot->no_room;
	SpinLockRelease(&slot->mutex);
	if (!no_room)
		return NULL;
	return psprintf("no background worker slot is free; raise max_worker_processes, which is %s",
					GetConfigOption("max_worker_processes", false, false));
}

/* A worker that does not run, with the owners it works for; there may be no room for it. */
static void
say_missing(ShardHealth *problems, ShardDatabase *db, int worker)
{
	ShardWorkerSlot *slot = &db->worker[worker];
	int count;
	char *owners = shard_worker_owners(db, worker, &count);
	const char *no_room = shard_health_no_room(slot);

	if (count > 0)
		owners = psprintf(", for types of %s,", owners);
	else if (shard_division_is_keeper(&db->division, worker))
		owners = ", which has the lanes that no other worker has, and keeps the inbox of all from "
				 "filling up,";
	shard_health_add(problems,
					 no_room != NULL
						 ? psprintf("worker %d%s does not run: %s", worker, owners, no_room)
						 : psprintf("worker %d%s does not run; see the server log", worker,
									owners));
}

/*
 * Workers that do not run, owners that have none, and owners that share one though no setting allows it.
 */
static void
check_workers(ShardHealth *problems, ShardDatabase *db)
{
	char *waiting;

	shard_registry_catch_up();
	shard_each_worker (worker, db)
	{
		int count;
		char *owners;

		if (!shard_shmem_worker_runs(db, worker))
			say_missing(problems, db, worker);
		if (shard_owners_may_share_workers)
			continue;
		owners = shard_worker_owners(db, worker, &count);
		if (count > 1)
			shard_health_add(problems,
							 psprintf("types of %s share worker %d: what one of these owners "
									  "does holds up the others; a type that changed hands may "
									  "be dropped and started again",
									  owners, worker));
	}
	waiting = shard_worker_waiting_owners(db);
	if (waiting[0] != '\0')
		shard_health_add(problems,
						 psprintf("types of %s have no region worker, and their messages wait: "
								  "shard.max_region_workers is %d; raise it, or set "
								  "shard.owners_may_share_workers",
								  waiting, shard_max_region_workers));
}

/*
 * Processes that should run and do not.
 */
static void
check_processes(ShardHealth *problems, ShardDatabase *db)
{
	if (!shard_enabled)
	{
		shard_health_add(problems, "shard.enabled is off: messages wait");
		return;
	}
	if (!launcher_runs())
		shard_health_add(problems, "the launcher does not run; see the server log");
	if (db == NULL)
	{
		shard_health_add(problems, "the launcher has not found this database yet");
		return;
	}
	if (db->paused)
		shard_health_add(
			problems, "this node is paused: the database is a copy, its messages are not handled; "
					  "shard_reset_cluster_data() makes it a node of its own");
	if (db->state == SHARD_DATABASE_BARRED)
		shard_health_add(
			problems,
			"workers are kept out while the database is being dropped, renamed or copied");
	else
		check_workers(problems, db);
}

/*
 * What keeps the oldest segment of an inbox, if others are in use; NULL: there is nothing to empty. *full: there is no
 * empty one.
 */
static const char *
keeper_of_inbox(ShardDatabase *db, bool *full)
{
	ShardSegment oldest;
	int count;
	const char *reason;

	LWLockAcquire(db->append_lock, LW_SHARED);
	count = db->log.ready ? db->log.live_count : 0;
	oldest = db->log.segment[db->log.live[0]];
	LWLockRelease(db->append_lock);
	*full = count == SHARD_SEGMENTS;
	if (count < 2)
		return NULL;
	reason = shard_inbox_segments_reason(db, oldest.first_seq, oldest.last_seq);
	return reason != NULL ? reason : "a lock; see shard_stat_inbox";
}

/*
 * An inbox that fills up, or that has no empty segment to go on with.
 */
static void
check_inbox(ShardHealth *problems, ShardDatabase *db)
{
	int64 limit = (int64) shard_inbox_max_size * 1024;
	int64 bytes = shard_inbox_segments_bytes();
	bool full = false;
	const char *reason = db == NULL ? NULL : keeper_of_inbox(db, &full);

	if (limit > 0 && bytes > limit / 100 * NEARLY_FULL)
		shard_health_add(problems,
						 psprintf("the inbox has " INT64_FORMAT
								  " MB, shard.inbox_max_size is %d MB%s%s; see shard_stat_inbox",
								  bytes / (1024 * 1024), shard_inbox_max_size / 1024,
								  reason != NULL ? ", the oldest segment is kept by " : "",
								  reason != NULL ? reason : ""));
	if (full)
		shard_health_add(problems,
						 psprintf("no segment of the inbox is empty, the oldest is kept by %s",
								  reason));
}

/*
 * Types that cannot run, and messages that have waited for long.
 */
static void
check_tables(ShardHealth *problems)
{
	ShardSecurity security = {0};

	shard_security_begin_system(&security);
	SPI_connect();
	shard_statement_once_read(&in_tables, NULL, 0);
	for (uint64 i = 0; i < SPI_processed; i++)
		shard_health_add(problems, shard_statement_text(i, 1));
	SPI_finish();
	shard_security_end(&security);
}

/* What there is to look at, of a type whose messages wait. */
static char *
what_holds(const ShardType *type)
{
	if (type->mode != SHARD_MODE_STOPPED)
		return pstrdup("see shard_inbox and shard_peers");
	return psprintf("the type is stopped at node %d, this one, and goes on when shard_start() is "
					"called for it here; see shard_inbox",
					shard_identity_name().node);
}

static void
check_buffer(ShardType *type, void *arg)
{
	int64 held = shard_buffer_held(type);
	bool full = held >= type->buffer_size;

	if (shard_buffer_is_half(type))
		shard_health_add(arg,
						 psprintf("the buffer of entity type \"%s\" is %s: " INT64_FORMAT
								  " messages cannot be handled now, buffer_size is " INT64_FORMAT
								  "%s; %s",
								  type->name, full ? "full" : "half full", held, type->buffer_size,
								  full ? ", and senders of such messages get error 53400" : "",
								  what_holds(type)));
}

static void
check_all(ShardHealth *problems)
{
	ListCell *cell;

	if (!shard_preloaded)
		shard_health_add(problems,
						 "shard is not in shared_preload_libraries: nothing is sent or handled");
	else
	{
		ShardDatabase *db = shard_shmem_database();

		if (!RecoveryInProgress())
		{
			/* the worst comes first */
			if (shard_enabled)
			{
				shard_health_gate(problems);
				shard_health_still(problems);
				shard_health_strategies(problems);
			}
			check_processes(problems, db);
			if (shard_enabled)
				shard_health_cluster(problems);
		}
		check_inbox(problems, db);
		shard_registry_catch_up();
		shard_registry_each(check_buffer, problems);
	}
	check_tables(problems);
	shard_health_supervision(problems);
	if (RecoveryInProgress())
		return;
	shard_health_timers(problems);
	shard_health_states(problems);
	foreach (cell, shard_admin_lock_holders())
		shard_health_add(problems, lfirst(cell));
}

/*
 * shard_health(OUT ok boolean, OUT problems text[]) returns record
 */
Datum
shard_health(PG_FUNCTION_ARGS)
{
	ShardHealth problems = {.context = CurrentMemoryContext, .capacity = 8};
	TupleDesc desc;
	Datum values[2];
	bool nulls[2] = {false};

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	problems.text = palloc(problems.capacity * sizeof(Datum));
	if (RecoveryInProgress() || shard_health_tables(&problems))
		check_all(&problems);
	values[0] = BoolGetDatum(problems.count == 0);
	values[1] = PointerGetDatum(
		construct_array(problems.text, problems.count, TEXTOID, -1, false, TYPALIGN_INT));
	PG_RETURN_DATUM(HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), values, nulls)));
}
