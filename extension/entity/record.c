/*
 * entity/record.c
 *		Notes of what the running turn has done to shards with replicas (Q5, Q28, Q29, Q35).
 *
 * Comes from: whoever writes a state, a row that waits, a timer, a position, a failure, a dead letter; outputs.c; routing,
 * which raises marks. Goes to: record_write.c, which makes records of the notes.
 *
 * A note has its item as the record will have it, one behind the other in one piece of memory, so that a subtransaction
 * that is undone just cuts them off, and those of other sections and shards in between do no harm. Of rows of our own
 * tables only the key is noted: what they say is read at the end.
 */
#include "postgres.h"

#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "entity/internal.h"
#include "entity/record.h"

#include "base/compat.h"

/* More than this is given back after the turn. */
#define LARGE_BYTES (1024 * 1024)

static bool is_worker = false;
static MemoryContext memory = NULL; /* of the notes */
static ShardRecordNotes notes;
static int rows = 0; /* of those that wait, the newest number of the running turn */

const ShardRecordNotes *
shard_record_notes(void)
{
	return &notes;
}

Size
shard_record_bytes(void)
{
	return (Size) notes.bytes.len + notes.count * sizeof(ShardRecordNote);
}

/* Where the bytes of so many notes end. */
static int
end_of(int count)
{
	return count == 0 ? 0 : notes.notes[count - 1].at + notes.notes[count - 1].len;
}

static void
subtransaction_changed(SubXactEvent event, SubTransactionId level, SubTransactionId parent,
					   void *arg)
{
	int count = notes.count;

	if (likely(count == 0))
		return;
	if (event == SUBXACT_EVENT_COMMIT_SUB)
		for (int i = count - 1; i >= 0 && notes.notes[i].level >= level; i--)
			notes.notes[i].level = parent;
#ifndef SHARD_MUTANT_NOTES_NOT_UNDONE
	else if (event == SUBXACT_EVENT_ABORT_SUB)
	{
		while (count > 0 && notes.notes[count - 1].level >= level)
			count--;
		notes.count = count;
	}
#endif
}

void
shard_record_init(void)
{
	is_worker = true;
	memory = AllocSetContextCreate(TopMemoryContext, "shard record notes", ALLOCSET_DEFAULT_SIZES);
	RegisterSubXactCallback(subtransaction_changed, NULL);
}

void
shard_record_forget(void)
{
	notes.count = 0;
	rows = 0;
	if (notes.bytes.data == NULL)
		return;
	resetStringInfo(&notes.bytes);
	if (notes.bytes.maxlen <= LARGE_BYTES)
		return;
	pfree(notes.bytes.data);
	pfree(notes.notes);
	memset(&notes, 0, sizeof(notes));
}

/* Makes room for one more. */
static void
make_room(void)
{
	MemoryContext old = MemoryContextSwitchTo(memory);

	if (notes.bytes.data == NULL)
		initStringInfo(&notes.bytes);
	if (notes.count == notes.space)
	{
		int space = Max(64, notes.space * 2);

		notes.notes = notes.notes == NULL
						  ? palloc(space * sizeof(ShardRecordNote))
						  : repalloc_huge(notes.notes, space * sizeof(ShardRecordNote));
		notes.space = space;
	}
	MemoryContextSwitchTo(old);
}

StringInfo
shard_record_begin(int32 type_id, int32 shard, int section)
{
	make_room();
	notes.bytes.len = end_of(notes.count);
	notes.notes[notes.count] = (ShardRecordNote){.type_id = type_id,
												 .shard = shard,
												 .section = section,
												 .level = GetCurrentSubTransactionId(),
												 .at = notes.bytes.len,
												 .number = notes.count};
	return &notes.bytes;
}

/* Until then the note is none, so an error in between leaves nothing but bytes, which the next one writes over. */
void
shard_record_end(void)
{
	ShardRecordNote *note = &notes.notes[notes.count++];

	note->len = notes.bytes.len - note->at;
}

void
shard_record_output(int32 type_id, int32 shard, const ShardTurnOutput *output)
{
	StringInfo bytes = shard_record_begin(type_id, shard, SHARD_TURN_OUTPUTS);

	shard_turn_put_output(bytes, output);
	shard_record_end();
}

void
shard_record_mark(int32 type_id, int32 shard, const ShardStamp *mark)
{
	StringInfo bytes = shard_record_begin(type_id, shard, SHARD_TURN_MARKS);

	shard_turn_put_mark(bytes, mark);
	shard_record_end();
}

void
shard_record_done(int32 type_id, int32 shard, int64 oseq)
{
	StringInfo bytes = shard_record_begin(type_id, shard, SHARD_TURN_ODONE);
	ShardTurnDone done = {.oseq = oseq};

	shard_turn_put_done(bytes, &done);
	shard_record_end();
}

void
shard_record_input(int32 type_id, int32 shard, const ShardTurnInput *input)
{
	StringInfo bytes = shard_record_begin(type_id, shard, SHARD_RECORD_INPUTS);

	appendBinaryStringInfo(bytes, (const char *) input, sizeof(*input));
	shard_record_end();
}

bool
shard_record_is_noted(int32 type_id)
{
	const ShardType *type = is_worker ? shard_registry_by_id(type_id) : NULL;

	return type != NULL && unlikely(type->replicas > 0);
}

/* The turn has a record then, so that the next one has another number: not each row that waits is in a record. */
int
shard_record_waiting(int32 type_id, int32 shard)
{
	(void) shard_record_begin(type_id, shard, 0);
	shard_record_end();
	return ++rows;
}

static void
put_key(int32 type_id, int32 shard, const ShardTurnKey *key)
{
	StringInfo bytes = shard_record_begin(type_id, shard, SHARD_TURN_KEYS);

	shard_turn_put_key(bytes, key);
	shard_record_end();
}

void
shard_record_held(const ShardRow *row, const char *place, int64 seq)
{
	ShardTurnKey key = {.part = SHARD_COPY_STASH,
						.entity = row->entity,
						.entity_len = row->entity_len,
						.name = place,
						.name_len = (int) strlen(place),
						.number = seq};

	/* what SQL has touched says something of the table here alone, and is nothing that a backup could have */
	if (row->kind != SHARD_KIND_TOUCHED && shard_record_is_noted(row->type_id))
		put_key(row->type_id, row->shard, &key);
}

void
shard_record_timer(int32 type_id, int32 shard, const char *entity, int entity_len, const char *name,
				   int name_len)
{
	ShardTurnKey key = {.part = SHARD_COPY_TIMERS,
						.entity = entity,
						.entity_len = entity_len,
						.name = name,
						.name_len = name_len};

	if (shard_record_is_noted(type_id))
		put_key(type_id, shard, &key);
}

void
shard_record_ordered(int32 type_id, int32 shard, const char *entity, int entity_len)
{
	ShardTurnKey key = {.part = SHARD_COPY_ORDERED, .entity = entity, .entity_len = entity_len};

	if (shard_record_is_noted(type_id))
		put_key(type_id, shard, &key);
}

/* Its number is the database's doing; the newest rows of the entity are read, as many as were noted. */
void
shard_record_history(int32 type_id, int32 shard, const char *entity, int entity_len)
{
	ShardTurnKey key = {.part = SHARD_COPY_HISTORY, .entity = entity, .entity_len = entity_len};

	if (shard_record_is_noted(type_id))
		put_key(type_id, shard, &key);
}

/* A text of an error; none is shown as one without bytes. */
static void
set_text(const char **text, int *len, const char *value)
{
	*text = value;
	*len = value == NULL ? 0 : (int) strlen(value);
}

/* Its number in the shard is given when the record is written, which knows the turn. */
int
shard_record_letter(const ShardRow *row, int attempts, const ErrorData *error)
{
	ShardTurnLetter letter = {.number = 1,
							  .at = GetCurrentTransactionStartTimestamp(),
							  .entity = row->entity,
							  .entity_len = row->entity_len,
							  .kind = row->kind,
							  .epoch = row->epoch,
							  .stamp = row->stamp,
							  .src_type = row->src_type,
							  .src_entity = row->src_entity,
							  .src_entity_len = row->src_type == 0 ? 0 : row->src_entity_len,
							  .mid_node = row->mid_node,
							  .mid_seq = row->mid_seq,
							  .payload = row->payload,
							  .payload_len = row->payload_len,
							  .sqlstate = unpack_sql_state(error->sqlerrcode),
							  .sqlstate_len = 5,
							  .attempts = attempts};
	StringInfo bytes;

	if (!shard_record_is_noted(row->type_id))
		return 0;
	set_text(&letter.error, &letter.error_len, error->message);
	set_text(&letter.detail, &letter.detail_len, error->detail);
	set_text(&letter.hint, &letter.hint_len, error->hint);
	set_text(&letter.context, &letter.context_len, error->context);
	bytes = shard_record_begin(row->type_id, row->shard, SHARD_TURN_LETTERS);
	shard_turn_put_letter(bytes, &letter);
	shard_record_end();
	return shard_record_letter_count(&notes.notes[notes.count - 1]);
}

void
shard_record_letter_gone(int32 type_id, int32 shard, int64 number)
{
	ShardTurnLetter letter = {.number = number, .gone = true};
	StringInfo bytes;

	if (!shard_record_is_noted(type_id))
		return;
	bytes = shard_record_begin(type_id, shard, SHARD_TURN_LETTERS);
	shard_turn_put_letter(bytes, &letter);
	shard_record_end();
}
