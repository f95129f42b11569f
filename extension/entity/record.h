/*
 * entity/record.h
 *		What the running turn has done to shards with replicas, from which its records are made (Q5, Q28, Q29, Q35).
 *
 * In a region worker. What a subtransaction has done is forgotten if that is undone. Functions that take a row, or a key,
 * return at once if its type has no replicas, and in any other process.
 */
#pragma once

#include "access/xact.h"
#include "executor/tuptable.h"

#include "core/flow/record.h"
#include "log/log.h"
#include "utils/elog.h"

/* ---- record.c: notes of what was done -------------------------------------------------------- */

typedef struct ShardRecordNote
{
	int32 type_id;
	int32 shard;
	int16 section; /* ShardTurnSection, or the one below; 0: nothing but that there is a record */
	SubTransactionId level;
	int at; /* of the item in the notes' bytes */
	int len;
	int number; /* of the note, in the order of what was done */
} ShardRecordNote;

typedef struct ShardRecordNotes
{
	int count;
	int space;
	ShardRecordNote *notes;
	StringInfoData bytes;
} ShardRecordNotes;

/* The item of such a note is a ShardTurnInput. It comes last, as in a record (Q30). */
#define SHARD_RECORD_INPUTS INT16_MAX

/* The number of a note's dead letter within the turn, from 1 on. */
static inline int
shard_record_letter_count(const ShardRecordNote *note)
{
	return note->number + 1;
}

/* The notes of the running turn; nobody else changes them. */
extern const ShardRecordNotes *shard_record_notes(void);

/* At the start of a region worker. */
extern void shard_record_init(void);

/*
 * Notes one item: it is appended to what begin returns, then end is called. The shard's type has replicas.
 */
extern StringInfo shard_record_begin(int32 type_id, int32 shard, int section);
extern void shard_record_end(void);

/* Notes an output, a mark, and that outputs up to a number were appended. */
extern void shard_record_output(int32 type_id, int32 shard, const ShardTurnOutput *output);
extern void shard_record_mark(int32 type_id, int32 shard, const ShardStamp *mark);
extern void shard_record_done(int32 type_id, int32 shard, int64 oseq);

/* Notes an input: a row of the log, which has got that number, was taken in. Its mark is noted, too. */
extern void shard_record_input(int32 type_id, int32 shard, const ShardTurnInput *input);

/* Whether what is done to shards of the type is noted: it has replicas, and this is a region worker. */
extern bool shard_record_is_noted(int32 type_id);

/* Of such a type: the next number within the turn, from 1 on, of a row that waits, whatever is in its record (Q34). */
extern int shard_record_waiting(int32 type_id, int32 shard);

/* Notes that a row of the shard was written, or is gone, whose content is read at the end of the turn (Q28). */
extern void shard_record_held(const ShardRow *row, const char *place, int64 seq);
extern void shard_record_timer(int32 type_id, int32 shard, const char *entity, int entity_len,
							   const char *name, int name_len);
extern void shard_record_ordered(int32 type_id, int32 shard, const char *entity, int entity_len);
extern void shard_record_history(int32 type_id, int32 shard, const char *entity, int entity_len);

/*
 * Notes that a message that the shard had taken in became a dead letter. Returns its number within the turn, from 1 on; 0: its
 * type has no replicas. And: the letter of that name is gone (Q35).
 */
extern int shard_record_letter(const ShardRow *row, int attempts, const ErrorData *error);
extern void shard_record_letter_gone(int32 type_id, int32 shard, int64 number);

/* The turn's memory that notes take. */
extern Size shard_record_bytes(void);

/* The turn is over. */
extern void shard_record_forget(void);

/* ---- record_write.c: its records ------------------------------------------------------------- */

/*
 * At the end of a turn, when all is written: appends one row of kind TURN for each lane that has something. Returns whether
 * there were any, so that the turn has to be written down.
 */
extern bool shard_record_write(void);

/* After the turn's commit, which ends at lsn; nothing of it has been shown yet. */
extern void shard_record_committed(XLogRecPtr lsn);
extern void shard_record_aborted(void);

/*
 * At start, when the shards that are active here have begun (replica_home.h): reads their records again, for outputs that
 * were not appended.
 */
extern void shard_record_load(ShardLanes lanes);

/* ---- record_key.c ---------------------------------------------------------------------------- */

/* In a turn, behind all user code: appends what there is of a noted key; times: how often it was noted. */
extern void shard_record_put_key(StringInfo out, int32 type_id, int32 shard,
								 const ShardTurnKey *key, int times);

/* ---- record_image.c -------------------------------------------------------------------------- */

struct ShardEntity;

/* Within user code: notes the row of the entity's state, as it was just written, or deleted. */
extern void shard_record_image(struct ShardEntity *entity);

/* Likewise, a row that SQL has written, as it is in the slot; NULL: there is none. */
extern void shard_record_row(struct ShardEntity *entity, TupleTableSlot *slot);

/* The columns of the type's images in this turn, and their version; NULL: there are no images. */
extern const StringInfoData *shard_record_columns(int32 type_id, uint32 *version);
