/*
 * sql/view/cluster_moves.c
 *		Moves of shards, for people: rows behind shard_rebalances and shard_decisions.
 *
 * Which shards move is decided, so every node knows it (shard.control). How far a copy is only its target
 * knows, and why a move failed only the coordinator and the target: they are asked, all at the same
 * time, if the reader may have this node connect to others; else there is what this node itself knows.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "funcapi.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/hsearch.h"
#include "utils/timestamp.h"

#include "registry/cluster_map.h"
#include "sql/cluster/cluster_survey.h"
#include "core/map/action.h"
#include "entity/execution.h"
#include "shared/import_progress.h"
#include "shared/board.h"
#include "registry/security.h"
#include "shared/shmem.h"
#include "sql/send/handler_guard.h"
#include "base/rights.h"
#include "sql/cluster/question.h"
#include "sql/cluster/internal.h"

#include "base/compat.h"

PG_FUNCTION_INFO_V1(shard_cluster_moves_imports);
PG_FUNCTION_INFO_V1(shard_cluster_moves_list);
PG_FUNCTION_INFO_V1(shard_cluster_moves_decisions);

#define VIEW_TIMEOUT_MS 2000

/* Lines that a node has about moves: each of two queries has 2 000 at most (internal.c), beside the copies that it remembers. */
#define MOST_NOTES 4200

/* Decisions that a node has: ten thousand are kept (control_decision.c), and those of a step until they are counted. */
#define MOST_DECISIONS 20000

/* A line of an answer: how far a copy is, or the last decision about a shard. */
typedef struct MoveNote
{
	const char
		*what; /* a phase of an import, or "move begun", "moved", "move aborted", "move refused" */
	bool import;
	int32 type_id;
	int32 shard;
	int32 epoch; /* of an import: that to come */
	int32 from;
	int32 to;
	int64 rows_copied;
	int64 rows_total;
	TimestampTz started;
	TimestampTz changed;
	const char *text;
} MoveNote;

/* The newest notes about a shard; NULL: there is none. */
typedef struct ShardNotes
{
	struct
	{
		int32 type_id;
		int32 shard;
	} key;
	const MoveNote *import;
	const MoveNote *decision;
	const MoveNote *failure; /* a decision that a move has failed */
} ShardNotes;

typedef struct MoveView
{
	ReturnSetInfo *result;
	ShardMap *map; /* types and homes */
	ShardArena *arena;
	List *notes;  /* MoveNote * */
	HTAB *shards; /* ShardNotes, of each shard that a note is about */
	bool see_errors;
} MoveView;

/* ---- imports of this node --------------------------------------------------------------------- */

static Datum
time_of(TimestampTz at, bool *isnull)
{
	*isnull = at == 0;
	return TimestampTzGetDatum(at);
}

/*
 * shard.imports() returns setof record: copies of shards to this node, under way or of the last.
 */
Datum
shard_cluster_moves_imports(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	ShardDatabase *db = shard_shmem_database();
	ShardImportProgress *list;
	int count = 0;

	InitMaterializedSRF(fcinfo, 0);
	list = db != NULL ? shard_import_list(db, &count) : NULL;
	for (int i = 0; i < count; i++)
	{
		const ShardImportProgress *import = &list[i];
		Datum values[12];
		bool nulls[12] = {false};

		values[0] = Int32GetDatum(import->shard.type_id);
		values[1] = Int32GetDatum(import->shard.shard);
		values[2] = Int32GetDatum(import->shard.epoch);
		values[3] = Int64GetDatum(import->shard.move_id);
		values[4] = Int32GetDatum(import->node);
		values[5] = CStringGetTextDatum(shard_import_phase_names[import->phase]);
		values[6] = Int64GetDatum(import->rows_copied);
		values[7] = Int64GetDatum(import->rows_total);
		values[8] = Int64GetDatum(import->bytes_copied);
		values[9] = time_of(import->started, &nulls[9]);
		values[10] = time_of(import->changed, &nulls[10]);
		values[11] = CStringGetTextDatum(import->error);
		nulls[11] = import->phase != SHARD_IMPORT_FAILED;
		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
	return (Datum) 0;
}

/* ---- what nodes say --------------------------------------------------------------------------- */

static const char *
read_text(ShardReader *reader)
{
	size_t length;
	const char *bytes = shard_wire_get_bytes(reader, &length);

	if (!reader->failed && !pg_verify_mbstr(GetDatabaseEncoding(), bytes, (int) length, true))
		reader->failed = true;
	return reader->failed ? "" : pnstrdup(bytes, length);
}

/* Microseconds since 1970. */
static TimestampTz
read_time(ShardReader *reader)
{
	int64 at = shard_wire_get_int(reader);

	return at == 0 ? 0 : at - (POSTGRES_EPOCH_JDATE - UNIX_EPOCH_JDATE) * USECS_PER_DAY;
}

/*
 * One line of the answer to SHARD_INTERNAL_MOVES; NULL: it is malformed.
 */
static MoveNote *
read_note(ShardReader *reader)
{
	MoveNote *note = palloc0(sizeof(MoveNote));

	note->what = read_text(reader);
	note->import = shard_wire_get_int32(reader) != 0;
	note->type_id = shard_wire_get_int32(reader);
	note->shard = shard_wire_get_int32(reader);
	note->epoch = shard_wire_get_int32(reader);
	note->from = shard_wire_get_int32(reader);
	note->to = shard_wire_get_int32(reader);
	note->rows_copied = shard_wire_get_int(reader);
	note->rows_total = shard_wire_get_int(reader);
	note->started = read_time(reader);
	note->changed = read_time(reader);
	note->text = read_text(reader);
	return reader->failed ? NULL : note;
}

/*
 * Whether a note of another node counts. How far a copy is only its target knows; and what a node says people are not told
 * as if it was known here.
 */
static bool
is_from(int32 node, MoveNote *note)
{
	if (note->import && note->to != node)
		return false;
	if (note->text[0] != '\0')
		note->text = psprintf("node %d says: %s", node, note->text);
	return true;
}

/*
 * What a node says, 0: this one, up to what cannot be read, or is more than a node has to say.
 */
static List *
read_notes(int32 node, const char *bytes, int length, List *notes)
{
	ShardReader reader = {bytes, bytes + length, false};

	for (int i = 0; reader.at < reader.end && i < MOST_NOTES; i++)
	{
		MoveNote *note = read_note(&reader);

		CHECK_FOR_INTERRUPTS();
		if (note == NULL)
			break;
		if (node == 0 || is_from(node, note))
			notes = lappend(notes, note);
	}
	return notes;
}

/*
 * What this node knows, and, if the reader may ask, what the other nodes do. Rows of a node that does not answer are
 * missing.
 */
static List *
collect(bool ask)
{
	List *notes = NIL;
	StringInfoData here;
	ShardBoardView view;
	ShardSurvey all;

	if (!ask)
	{
		initStringInfo(&here);
		shard_internal_put_answer(&here, SHARD_INTERNAL_MOVES);
		return read_notes(0, here.data, here.len, NIL);
	}
	shard_board_get(shard_shmem_database(), &view);
	all = shard_cluster_survey(SHARD_INTERNAL_MOVES, VIEW_TIMEOUT_MS);
	for (int i = 0; i < all.count; i++)
		if (all.question[i].answered && all.question[i].answer != NULL)
			notes = read_notes(all.node[i] == view.node ? 0 : all.node[i], all.question[i].answer,
							   all.question[i].answer_length, notes);
	return notes;
}

/* ---- moves ------------------------------------------------------------------------------------ */

static bool
is_failure(const MoveNote *note)
{
	return strcmp(note->what, "move aborted") == 0 || strcmp(note->what, "move refused") == 0;
}

static void
keep_newest(const MoveNote **newest, const MoveNote *note)
{
	if (*newest == NULL || note->changed > (*newest)->changed)
		*newest = note;
}

/*
 * Sorts the notes by what they are about. There may be many: each node says what it likes.
 */
static HTAB *
by_shard(List *notes)
{
	HASHCTL control = {.keysize = sizeof(((ShardNotes *) NULL)->key),
					   .entrysize = sizeof(ShardNotes),
					   .hcxt = CurrentMemoryContext};
	HTAB *shards =
		hash_create("notes of moves", 64, &control, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	ListCell *cell;

	foreach (cell, notes)
	{
		const MoveNote *note = lfirst(cell);
		ShardNotes key = {.key = {note->type_id, note->shard}};
		bool found;
		ShardNotes *about = hash_search(shards, &key.key, HASH_ENTER, &found);

		CHECK_FOR_INTERRUPTS();
		if (!found)
			*about = key;
		keep_newest(note->import ? &about->import : &about->decision, note);
		if (!note->import && is_failure(note))
			keep_newest(&about->failure, note);
	}
	return shards;
}

static ShardNotes
notes_of(const MoveView *view, int32 type_id, int32 shard)
{
	ShardNotes none = {.key = {type_id, shard}};
	const ShardNotes *about = hash_search(view->shards, &none.key, HASH_FIND, NULL);

	return about != NULL ? *about : none;
}

/*
 * How the attempt before failed, of a move that is tried again; NULL: it did not.
 */
static const char *
failed_before(const ShardNotes *about)
{
	return about->failure == NULL ? NULL
								  : psprintf("the attempt before failed: %s", about->failure->text);
}

/*
 * The name of a type, NULL: it is not known any more.
 */
static char *
name_of(const MoveView *view, int32 type_id)
{
	const ShardMapEntry *entry =
		shard_map_value(view->map, (ShardMapKey){SHARD_MAP_TYPE, type_id, 0});
	ShardTypeRecord record;

	if (entry == NULL || !shard_record_get_type(entry, &record, view->arena))
		return NULL;
	return pstrdup(record.name);
}

/*
 * How long a copy will still take, at the speed that it had so far.
 */
static bool
guess_rest(const MoveNote *import, Interval **rest)
{
	int64 spent;

	if (import == NULL || import->started == 0 || import->rows_copied <= 0 ||
		import->rows_total < import->rows_copied)
		return false;
	spent = Max(import->changed - import->started, 0);
	*rest = palloc0(sizeof(Interval));
	(*rest)->time = (int64) ((double) spent * (double) (import->rows_total - import->rows_copied) /
							 (double) import->rows_copied);
	return true;
}

/* What a row of shard.rebalances() says beside what the import does. */
typedef struct MoveRow
{
	int32 type_id;
	int32 shard;
	int32 from;
	int32 to;
	const char *phase;
	TimestampTz started;
	const char *reason; /* NULL: not known */
	const char *error;	/* NULL: none */
} MoveRow;

static void
put_move(const MoveView *view, const MoveRow *row, const MoveNote *import)
{
	Interval *rest = NULL;
	Datum values[12];
	bool nulls[12] = {false};
	char *name = name_of(view, row->type_id);

	nulls[0] = name == NULL;
	if (name != NULL)
		values[0] = CStringGetTextDatum(name);
	values[1] = Int32GetDatum(row->shard);
	values[2] = Int32GetDatum(row->from);
	nulls[2] = row->from <= 0;
	values[3] = Int32GetDatum(row->to);
	nulls[3] = row->to <= 0;
	values[4] = CStringGetTextDatum(row->phase);
	values[5] = Int64GetDatum(import != NULL ? import->rows_copied : 0);
	values[6] = Int64GetDatum(import != NULL ? import->rows_total : 0);
	nulls[5] = nulls[6] = import == NULL;
	values[7] = time_of(row->started, &nulls[7]);
	nulls[8] = row->reason == NULL;
	if (row->reason != NULL)
		values[8] = CStringGetTextDatum(row->reason);
	nulls[9] = !guess_rest(import, &rest);
	values[9] = IntervalPGetDatum(rest);
	nulls[10] = row->error == NULL || row->error[0] == '\0' || !view->see_errors;
	if (!nulls[10])
		values[10] = CStringGetTextDatum(row->error);
	values[11] = Int32GetDatum(row->type_id);
	tuplestore_putvalues(view->result->setResult, view->result->setDesc, values, nulls);
}

/*
 * A home that is moving, with what its target says.
 */
static void
put_moving(const MoveView *view, const ShardMapEntry *entry, const ShardHomeRecord *home)
{
	ShardNotes about = notes_of(view, entry->key.a, entry->key.b);
	const MoveNote *import = about.import;
	const MoveNote *decision = about.decision;
	MoveRow row = {.type_id = entry->key.a,
				   .shard = entry->key.b,
				   .from = shard_record_home_node(home),
				   .to = home->to,
				   .phase = "stopping",
				   .reason = home->reason == SHARD_HOME_REASON_NONE
								 ? NULL
								 : shard_cluster_map_reason(home->reason)};

	/* An import of an earlier move says nothing of this one. */
	if (import != NULL && (import->to != home->to || import->epoch != home->epoch + 1))
		import = NULL;
	if (import != NULL &&
		strcmp(import->what, shard_import_phase_names[SHARD_IMPORT_PREPARING]) != 0)
	{
		row.phase = import->what;
		row.error = import->text;
		row.started = import->started;
	}
	if (decision != NULL && strcmp(decision->what, "move begun") == 0)
	{
		row.started = decision->changed;
		if (view->see_errors && decision->text[0] != '\0')
			row.reason = decision->text;
	}
	if (row.error == NULL || row.error[0] == '\0')
		row.error = failed_before(&about);
	put_move(view, &row, import);
}

static bool
is_moving(const MoveView *view, int32 type_id, int32 shard)
{
	const ShardMapEntry *entry =
		shard_map_value(view->map, (ShardMapKey){SHARD_MAP_HOME, type_id, shard});
	ShardHomeRecord home;

	return entry != NULL && shard_record_get_home(entry, &home) && home.phase == SHARD_HOME_MOVING;
}

/*
 * A move that is not decided: the target prepares, or it has failed and nothing came after.
 */
static void
put_undecided(const MoveView *view, const MoveNote *note)
{
	ShardNotes about = notes_of(view, note->type_id, note->shard);
	const MoveNote *decision = about.decision;
	const MoveNote *import = about.import;
	MoveRow row = {.type_id = note->type_id,
				   .shard = note->shard,
				   .from = note->from,
				   .to = note->to,
				   .phase = "failed",
				   .started = note->changed,
				   .error = note->text};

	if (is_moving(view, note->type_id, note->shard))
		return;
	if (note->import)
	{
		if (note != import || (decision != NULL && decision->changed >= note->changed))
			return;
		row.phase = note->what;
		row.started = note->started;
		if (strcmp(row.phase, "failed") != 0 && strcmp(row.phase, "preparing") != 0)
			return;
		if (row.error[0] == '\0')
			row.error = failed_before(&about);
		put_move(view, &row, note);
		return;
	}
	/* What an import says after the decision is shown instead. */
	if (note != decision ||
		(import != NULL && import->changed > note->changed &&
		 (strcmp(import->what, "failed") == 0 || strcmp(import->what, "preparing") == 0)))
		return;
	if (is_failure(note))
		put_move(view, &row, NULL);
}

/*
 * shard.rebalances() returns setof record
 */
Datum
shard_cluster_moves_list(PG_FUNCTION_ARGS)
{
	MoveView view = {0};
	ShardMapEntry *homes;
	ListCell *cell;
	int count;

	InitMaterializedSRF(fcinfo, 0);
	view.result = (ReturnSetInfo *) fcinfo->resultinfo;
	view.arena = shard_arena_create();
	view.see_errors = shard_rights_all_stats();
	view.map = shard_cluster_map_read();
	view.notes = collect(view.see_errors && shard_preloaded && !shard_execution_in_handler());
	view.shards = by_shard(view.notes);
	homes = shard_map_list(view.map, SHARD_MAP_HOME, view.arena, &count);
	for (int i = 0; i < count; i++)
	{
		ShardHomeRecord home;

		CHECK_FOR_INTERRUPTS();
		if (shard_record_get_home(&homes[i], &home) && home.phase == SHARD_HOME_MOVING)
			put_moving(&view, &homes[i], &home);
	}
	foreach (cell, view.notes)
	{
		CHECK_FOR_INTERRUPTS();
		put_undecided(&view, lfirst(cell));
	}
	shard_map_destroy(view.map);
	shard_arena_destroy(view.arena);
	return (Datum) 0;
}

/* ---- decisions -------------------------------------------------------------------------------- */

static Datum
number_of(int32 number, bool *isnull)
{
	*isnull = number < 0;
	return Int32GetDatum(number);
}

/*
 * A decision of a node: kind, at, type_id, shard, from_node, to_node, epoch, why, node.
 */
static void
read_decision(ShardReader *reader, int32 node, Datum *values, bool *nulls)
{
	values[0] = shard_cluster_survey_text(reader);
	values[1] = time_of(read_time(reader), &nulls[1]);
	for (int i = 2; i < 7; i++)
		values[i] = number_of(shard_wire_get_int32(reader), &nulls[i]);
	values[7] = shard_cluster_survey_text(reader);
	values[8] = Int32GetDatum(node);
}

/*
 * A node that did not tell its decisions, and why.
 */
static void
put_silent(ReturnSetInfo *result, int32 node, const char *error)
{
	Datum values[9] = {0};
	bool nulls[9] = {false, true, true, true, true, true, true, false, false};

	values[0] = CStringGetTextDatum("no answer");
	values[7] = CStringGetTextDatum(error);
	values[8] = Int32GetDatum(node);
	tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

/*
 * shard.decisions() returns setof record
 */
Datum
shard_cluster_moves_decisions(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	ShardSurvey all;

	shard_shmem_require();
	shard_handler_guard_check("read shard_decisions", NULL, NULL);
	InitMaterializedSRF(fcinfo, 0);
	all = shard_cluster_survey(SHARD_INTERNAL_DECISIONS, VIEW_TIMEOUT_MS);
	for (int i = 0; i < all.count; i++)
	{
		const char *error =
			shard_cluster_survey_put(result, &all, i, MOST_DECISIONS, read_decision);

		if (error != NULL)
			put_silent(result, all.node[i], error);
	}
	return (Datum) 0;
}
