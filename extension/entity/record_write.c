/*
 * entity/record_write.c
 *		Records of the turn: one for each shard with replicas that it has done something to (Q5, Q31).
 *
 * Comes from: process/region_turn.c, at the end of a turn, which has notes (record.c). Goes to: the log, one row of kind
 * TURN for each lane; after the commit, replica_home.c and outputs.c.
 *
 * If the process dies right here: before the commit there is no turn and no record; behind it there are both, and the next
 * worker is shown the record (shard_record_row).
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "base/fault.h"
#include "core/base/message.h"
#include "entity/internal.h"
#include "entity/outputs.h"
#include "entity/record.h"
#include "entity/replica_home.h"
#include "entity/replica_inputs.h"
#include "log/turn_chain.h"
#include "shared/shmem.h"

#include "base/compat.h"

/* A record of this turn, in its memory. */
typedef struct Made
{
	ShardTurnRecord record;
	int32 lost;
	uint32 columns; /* version of those that it tells; 0: none */
	int64 seq;
	StringInfo row; /* in which, from here to there, are its outputs */
	int outputs;
	int outputs_end;
	int64 inputs; /* lowest row of the log that it has taken in; PG_INT64_MAX: none */
} Made;

static List *made = NIL; /* Made * */

static const ShardRecordNotes *notes; /* for compare */

static const char *
bytes_of(const ShardRecordNote *note)
{
	return notes->bytes.data + note->at;
}

/* Equal keys lie beside one another; whatever else was done keeps its order. */
static int
compare(const void *a, const void *b)
{
	const ShardRecordNote *x = a;
	const ShardRecordNote *y = b;
	int lane = shard_message_lane(x->type_id, x->shard) - shard_message_lane(y->type_id, y->shard);
	int bytes;

	if (lane != 0)
		return lane;
	if (x->type_id != y->type_id)
		return x->type_id < y->type_id ? -1 : 1;
	if (x->shard != y->shard)
		return x->shard < y->shard ? -1 : 1;
	if (x->section != y->section)
		return x->section - y->section;
	if (x->section == SHARD_TURN_KEYS)
	{
		bytes = memcmp(bytes_of(x), bytes_of(y), Min(x->len, y->len));
		if (bytes != 0 || x->len != y->len)
			return bytes != 0 ? bytes : x->len - y->len;
	}
	return x->number - y->number;
}

/* How many of the notes, from the first on, are of its shard. */
static int
of_shard(const ShardRecordNote *note, int count)
{
	int n = 1;

	while (n < count && note[n].type_id == note->type_id && note[n].shard == note->shard)
		n++;
	return n;
}

static int
of_section(const ShardRecordNote *note, int count)
{
	int n = 1;

	while (n < count && note[n].section == note->section)
		n++;
	return n;
}

/* The item of a note that this room has written. */
static ShardReader
item_of(const ShardRecordNote *note)
{
	return (ShardReader){bytes_of(note), bytes_of(note) + note->len};
}

/* What there is of the keys: each once. */
static void
put_keys(StringInfo out, const ShardRecordNote *note, int count)
{
	for (int i = 0; i < count;)
	{
		ShardReader item = item_of(&note[i]);
		ShardTurnKey key;
		int times = 1;

		while (i + times < count && note[i + times].len == note[i].len &&
			   memcmp(bytes_of(&note[i + times]), bytes_of(&note[i]), note[i].len) == 0)
			times++;
		if (!shard_turn_get_key(&item, &key))
			elog(ERROR, "a noted key is damaged");
		shard_record_put_key(out, note[i].type_id, note[i].shard, &key, times);
		i += times;
	}
}

static void
put_letters(StringInfo out, const ShardRecordNote *note, int count, int64 turn)
{
	for (int i = 0; i < count; i++)
	{
		ShardReader item = item_of(&note[i]);
		ShardTurnLetter letter;

		if (!shard_turn_get_letter(&item, &letter))
			elog(ERROR, "a noted dead letter is damaged");
		if (!letter.gone)
			letter.number = shard_turn_row_number(turn, shard_record_letter_count(&note[i]));
		shard_turn_put_letter(out, &letter);
	}
}

/* Which rows of the log were taken in as which numbers. Returns the lowest row. */
static int64
put_inputs(ShardTurnWriter *writer, const ShardRecordNote *note, int count)
{
	ShardTurnInput before = {0};
	int64 lowest = PG_INT64_MAX;

	shard_turn_record_inputs(writer);
	for (int i = 0; i < count; i++)
	{
		ShardTurnInput input;

		memcpy(&input, bytes_of(&note[i]), sizeof(input));
		shard_turn_put_input(writer->out, &before, &input);
		lowest = Min(lowest, input.seq);
		before = input;
	}
	return lowest;
}

static void
put_items(StringInfo out, const ShardRecordNote *note, int count)
{
	for (int i = 0; i < count; i++)
		appendBinaryStringInfo(out, bytes_of(&note[i]), note[i].len);
}

/* The columns of images, unless a record of the shard has told these before (Q32). */
static void
put_columns(ShardTurnWriter *writer, Made *one)
{
	const ShardReplicaShard *known =
		shard_replica_shard_find(one->record.type_id, one->record.shard);
	const StringInfoData *columns = shard_record_columns(one->record.type_id, &one->columns);

	if (columns == NULL ||
		(known != NULL && known->home.epoch == one->record.epoch && known->columns == one->columns))
		return;
	shard_turn_record_section(writer, SHARD_TURN_COLUMNS);
	appendBinaryStringInfo(writer->out, columns->data, columns->len);
}

/* How many of the notes are outputs. */
static int
count_outputs(const ShardRecordNote *note, int count)
{
	int outputs = 0;

	for (int i = 0; i < count; i++)
		outputs += note[i].section == SHARD_TURN_OUTPUTS;
	return outputs;
}

/* The record of one shard. */
static void
write_one(StringInfo out, const ShardRecordNote *note, int count)
{
	Made *one = palloc0(sizeof(Made));
	ShardReplicaHome home;
	ShardTurnWriter writer;

	one->record.type_id = note->type_id;
	one->record.shard = note->shard;
	one->row = out;
	one->inputs = PG_INT64_MAX;
	one->lost = shard_replica_shard_stands(&home, note->type_id, note->shard);
	shard_replica_next(&home, count_outputs(note, count), &one->record);
	shard_turn_record_begin(&writer, out, &one->record);
	for (int i = 0; i < count;)
	{
		int n = of_section(&note[i], count - i);
		int section = note[i].section;

		if (section == 0)
		{
			i += n;
			continue;
		}
		if (section == SHARD_RECORD_INPUTS)
		{
			one->inputs = put_inputs(&writer, &note[i], n);
			break;
		}
		if (section == SHARD_TURN_IMAGES)
			put_columns(&writer, one);
		shard_turn_record_section(&writer, section);
		if (section == SHARD_TURN_OUTPUTS)
			one->outputs = out->len;
		if (section == SHARD_TURN_KEYS)
			put_keys(out, &note[i], n);
		else if (section == SHARD_TURN_LETTERS)
			put_letters(out, &note[i], n, one->record.turn);
		else
			put_items(out, &note[i], n);
		if (section == SHARD_TURN_OUTPUTS)
			one->outputs_end = out->len;
		i += n;
	}
	one->record.sum = shard_turn_record_end(&writer);
	made = lappend(made, one);
}

/* The records of one lane. Returns how many notes they are made of. */
static int
write_lane(const ShardRecordNote *note, int count, int64 seq)
{
	int lane = shard_message_lane(note->type_id, note->shard);
	StringInfo out = makeStringInfo();
	int first = list_length(made);
	int done = 0;

	while (done < count && shard_message_lane(note[done].type_id, note[done].shard) == lane)
	{
		int n = of_shard(&note[done], count - done);

		write_one(out, &note[done], n);
		done += n;
	}
	for (int i = first; i < list_length(made); i++)
		((Made *) list_nth(made, i))->seq = seq;
	shard_turn_log_append(lane, out->data, out->len);
	return done;
}

bool
shard_record_write(void)
{
	MemoryContext old;
	ShardRecordNote *sorted;
	int64 seq;
	int done = 0;

	notes = shard_record_notes();
	if (likely(notes->count == 0))
		return false;
	shard_execution_end_user_code();
	old = MemoryContextSwitchTo(shard_turn.context);
	sorted = MemoryContextAllocHuge(shard_turn.context, notes->count * sizeof(ShardRecordNote));
	memcpy(sorted, notes->notes, notes->count * sizeof(ShardRecordNote));
	qsort(sorted, notes->count, sizeof(ShardRecordNote), compare);

	/* whatever is appended from here on has a higher one */
	seq = shard_log_last_seq(shard_shmem_database()) + 1;
	while (done < notes->count)
		done += write_lane(&sorted[done], notes->count - done, seq);
	MemoryContextSwitchTo(old);
	shard_fault_step("turn_recorded");
	return true;
}

static void
commit_one(const Made *one, XLogRecPtr lsn)
{
	const ShardTurnRecord *record = &one->record;
	ShardReplicaShard *shard =
		shard_replica_shard_begin(record->type_id, record->shard, record->epoch, one->lost);

	shard_turn_chain_add(record, one->seq);
	shard_replica_shard_committed(shard, record, lsn);
	if (one->inputs != PG_INT64_MAX)
		shard_replica_inputs_add(shard, record->turn, one->inputs);
	if (record->n_outputs > 0)
	{
		ShardReader items = {one->row->data + one->outputs, one->row->data + one->outputs_end};

		shard_outputs_add(shard, record, items);
	}
	if (one->columns != 0)
		shard->columns = one->columns;
	shard_replica_shard_forget(shard);
}

void
shard_record_committed(XLogRecPtr lsn)
{
	ListCell *cell;

	if (likely(shard_record_notes()->count == 0))
		return;
	foreach (cell, made)
		commit_one(lfirst(cell), lsn);
	made = NIL;
	shard_outputs_committed();
	shard_record_forget();
}

void
shard_record_aborted(void)
{
	made = NIL;
	shard_outputs_aborted();
	shard_record_forget();
}

/* ---- start ------------------------------------------------------------------------------------ */

/* Outputs, and up to where they were appended. */
static void
take_outputs(ShardReplicaShard *shard, const ShardTurnRecord *record)
{
	ShardReader sections = record->sections;
	ShardReader items;
	ShardTurnDone done;
	int32 kind;
	bool mandatory;

	while (shard_turn_record_section_next(&sections, &kind, &mandatory, &items))
	{
		if (kind == SHARD_TURN_OUTPUTS)
			shard_outputs_add(shard, record, items);
		else if (kind == SHARD_TURN_ODONE)
			while (shard_turn_get_done(&items, &done))
			{
				shard_outputs_done(shard, done.oseq);
				shard->unread = 0;
			}
	}
}

/* Behind a gap, in the past of the log, stand records whose predecessors are needed no more. */
static ShardReplicaShard *
shard_of_record(const ShardTurnRecord *record)
{
	ShardReplicaShard *shard = shard_replica_shard_find(record->type_id, record->shard);

	if (shard == NULL || !shard_replica_shard_owns(shard, record) ||
		record->turn < shard->home.kept || record->turn > shard->home.end.turn)
		return NULL;
	if (record->turn == shard->home.kept && record->first_oseq > 0)
		shard->done = record->first_oseq - 1;
	return shard;
}

static bool
take_record(const ShardTurnRecord *record, int64 seq, void *arg)
{
	ShardReplicaShard *shard = shard_of_record(record);

	if (shard != NULL)
		take_outputs(shard, record);
	return true;
}

/* One that cannot be read, if it is where the chain has it. */
static bool
take_damaged(const ShardTurnRecord *record, int64 seq, void *arg)
{
	ShardReplicaShard *shard = record->type_id == 0 ? NULL : shard_of_record(record);
	const ShardTurnChain *chain =
		shard == NULL ? NULL : shard_turn_chain_get(record->type_id, record->shard, shard->lost);

	if (chain != NULL && chain->low[record->turn - chain->kept] == seq)
		shard_outputs_add_damaged(shard, record);
	return true;
}

/* What rotation has moved is older than what the log has. */
static void
take_kept(ShardReplicaShard *shard, void *arg)
{
	const ShardTurnChain *chain =
		shard_turn_chain_get(shard->key.type_id, shard->key.shard, shard->lost);

	if (chain != NULL && chain->low[0] == 0)
		(void) shard_turn_log_read_kept(shard->key.type_id, shard->key.shard, shard->home.kept,
										shard->home.end.turn, take_record, take_damaged, NULL);
}

/* The newest one may be of those of which it was not to be seen whose they were. */
static void
settle(ShardReplicaShard *shard, void *arg)
{
	const ShardTurnChain *chain =
		shard_turn_chain_get(shard->key.type_id, shard->key.shard, shard->lost);

	if (chain != NULL && chain->damaged == chain->end.turn)
		shard->unread = chain->end.turn;
	shard_outputs_loaded(shard);
}

void
shard_record_load(ShardLanes lanes)
{
	if (!shard_replica_any())
		return;
	shard_replica_shard_each(take_kept, NULL);
	shard_turn_log_read(lanes, 0, take_record, take_damaged, NULL);
	shard_replica_shard_each(settle, NULL);
}
