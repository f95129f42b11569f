/*
 * core/flow/record.h
 *		Turn records: what one transaction of a worker did to one shard that has replicas, as bytes (Q5, Q28 to Q35).
 *
 * A record names its turn, the record before it, and its outputs' numbers; then come sections, each of one kind, which
 * have what the turn wrote. Beside these it has, at the home alone, its inputs. All records that a transaction makes in
 * one lane stand one after the other: they are the payload of one row of the log, of kind TURN. A record in such a row:
 *
 *		length, sum			four bytes each, lowest first; of what is shipped
 *		what is shipped		head, sections
 *		length				four bytes, lowest first; of the inputs; 0 at a copy, and on the wire
 *		inputs
 *
 * Lengths have four bytes so that they can be written when what they count is there: a record is made where it is to
 * stand, and nothing of it is moved. The sum is that of the bytes shipped, which say the sum of the record before. So it
 * names the shard's whole history, and (epoch, turn, sum) one content. Inputs are not in it: copies do not have them.
 *
 * The bytes shipped are never made anew. A copy stores, and sends on, what it got, with sections that only a newer
 * version knows. As in core/flow/packet.h, numbers are those of core/base/wire.h, readers take bytes from anywhere, never
 * read beyond their end, allocate nothing, and hand out only what a writer may be given; texts and rows point into the
 * bytes. Whether texts are valid in the database's encoding is left to the caller.
 */
#pragma once

#include "core/flow/copy.h"

/* Turns of a shard are below this: Q34 makes numbers of them. */
#define SHARD_TURN_MAX (INT64CONST(1) << 42)

/* Rows of a shard that has replicas have numbers of the shard, not of the node: of the turn, and within the turn (Q34). */
#define SHARD_TURN_ROWS (INT64CONST(1) << 20)
#define shard_turn_row_number(turn, count) ((turn) *SHARD_TURN_ROWS + (count))

/* A place in the history of a shard: behind that turn. All 0: before the first one. */
typedef struct ShardTurnPoint
{
	int32 epoch; /* of the home that made the turn */
	int64 turn;	 /* dense, over epochs */
	uint32 sum;
} ShardTurnPoint;

extern bool shard_turn_point_equal(const ShardTurnPoint *a, const ShardTurnPoint *b);

/* Stored and shipped, never renumbered. Each may come several times in a record; what stands later came later. */
typedef enum ShardTurnSection
{
	SHARD_TURN_IMAGES = 1, /* ShardTurnImage: states as they were written */
	SHARD_TURN_KEYS =
		2, /* ShardTurnKey: other rows of the shard, read at the end of the turn (Q28) */
	SHARD_TURN_MARKS = 3,	/* ShardStamp: each that the turn raised */
	SHARD_TURN_OUTPUTS = 4, /* ShardTurnOutput: what it tells, once it is released (Q29) */
	SHARD_TURN_ODONE = 5,	/* ShardTurnDone: outputs of earlier turns that are done */
	SHARD_TURN_LETTERS = 6, /* ShardTurnLetter: dead letters (Q35) */
	SHARD_TURN_CONTROL = 7, /* ShardTurnControl, one byte */
	SHARD_TURN_COLUMNS = 8	/* ShardCopyColumn, in the order of the images' fields (Q32) */
} ShardTurnSection;

#define SHARD_TURN_SECTIONS 9
extern const char *const shard_turn_section_names[SHARD_TURN_SECTIONS]; /* by number; 0: "none" */

/* Shipped, never renumbered: what the turn did to the ownership of the shard. */
typedef enum ShardTurnControl
{
	SHARD_TURN_ACTIVATE = 1, /* the first of an epoch whose home begins from a copy (Q19) */
	SHARD_TURN_SEAL = 2		 /* the last of the epoch (Q27) */
} ShardTurnControl;

/* ---- a record ------------------------------------------------------------------------------------ */

typedef struct ShardTurnRecord
{
	/* the head; of before only what this record does not say: its turn is turn - 1 */
	int32 type_id;
	int32 shard;
	int32 epoch; /* of the home that made it */
	int64 turn;	 /* from 1 on */
	int32 before_epoch;
	uint32 before_sum;
	int64 first_oseq; /* from 1 on; of its first output, or, without outputs, of the next one */
	int32 n_outputs;

	/* by the reader; sum also by who has written it */
	uint32 sum;
	const char *shipped; /* what stands before the length of the inputs: with length and sum */
	int shipped_len;
	ShardReader sections; /* a copy of it goes through them */
	ShardReader inputs;
} ShardTurnRecord;

extern ShardTurnPoint shard_turn_record_point(const ShardTurnRecord *record);

/* Where its home, or its copy, has to be for it to follow. */
extern ShardTurnPoint shard_turn_record_before(const ShardTurnRecord *record);

/*
 * Writing. The record is appended to out, which the caller owns and may append others to before and behind. Between the
 * calls the caller appends items to out, by the functions below, or copies items that were written elsewhere: those of the
 * section begun last. A section without items leaves no bytes. If it is given up in between, the caller sets out->len back to
 * what it was at begin.
 */
typedef struct ShardTurnWriter
{
	StringInfo out;
	int begin;	 /* of the record in out */
	int section; /* of the section in out that is not ended; 0: none */
	int body;	 /* of its items */
	int inputs;	 /* of the inputs; 0: not there yet */
} ShardTurnWriter;

/* The head's fields of record; the rest is not looked at. */
extern void
shard_turn_record_begin(ShardTurnWriter *writer, StringInfo out, const ShardTurnRecord *record);
extern void shard_turn_record_section(ShardTurnWriter *writer, ShardTurnSection kind);

/* What is shipped is complete; inputs follow. Not to be called if there are none. */
extern void shard_turn_record_inputs(ShardTurnWriter *writer);

/* Returns the record's sum. */
extern uint32 shard_turn_record_end(ShardTurnWriter *writer);

/* Reading. What is wrong with bytes that are no records. */
typedef enum ShardTurnFault
{
	SHARD_TURN_SOUND = 0,
	SHARD_TURN_CUT,		/* they end within a record */
	SHARD_TURN_SUM,		/* a record does not have its sum: bytes were changed */
	SHARD_TURN_VERSION, /* of a version that is not known here; the sum is right */
	SHARD_TURN_HEAD,	/* a number of the head is none that a home may give */
	SHARD_TURN_FRAME	/* its sections do not end where it does, or have unknown flags */
} ShardTurnFault;

#define SHARD_TURN_FAULTS 6
extern const char *const
	shard_turn_fault_names[SHARD_TURN_FAULTS]; /* for a message's detail: "its sum is wrong" */

/*
 * The next record of a row, or of a call; the frame of its sections has been looked at, items have not. False at the end;
 * also, then with reader->failed and *fault, if what stands there is no record: the record is all zero.
 */
extern bool
shard_turn_record_next(ShardReader *reader, ShardTurnRecord *record, ShardTurnFault *fault);

/*
 * What a record that cannot be read says of itself: its head, and its sum, as they stand there; shipped_len and inputs, if it is
 * to be seen where it ends; no sections. Nothing of it is to be believed but by who knows of it from elsewhere. False: no head that
 * a home may give is there, and the record is all zero.
 */
extern bool shard_turn_record_head(const ShardReader *reader, ShardTurnRecord *record);

/* Passes over the next record, whatever it says. False: where it ends is not to be seen. */
extern bool shard_turn_record_skip(ShardReader *reader);

/* Appends the record without its inputs, as a copy stores it, and as it stands in a call. */
extern void shard_turn_record_ship(StringInfo out, const ShardTurnRecord *record);
extern int shard_turn_record_ship_len(const ShardTurnRecord *record);

/*
 * The next section of record->sections (of a copy of that reader): its kind, which may be an unknown one, and a reader of
 * its items. mandatory: a copy that does not know the kind may store the record, and must not apply it. False at the end.
 */
extern bool shard_turn_record_section_next(ShardReader *sections, int32 *kind, bool *mandatory,
										   ShardReader *items);

/* ---- items of sections --------------------------------------------------------------------------- */

/*
 * For each kind: put appends an item; get reads the next one. It answers false at the end of its reader, and also, then
 * with reader->failed, if what stands there is damaged; the struct is all zero then.
 */

/* A row of the state table as the turn left it. */
typedef struct ShardTurnImage
{
	const char *entity; /* as messages name it */
	int entity_len;		/* never 0 */
	const char *
		row; /* fields by shard_copy_put_field, of the columns that are not generated; NULL: it is gone */
	int row_len;
} ShardTurnImage;

extern void shard_turn_put_image(StringInfo out, const ShardTurnImage *image);
extern bool shard_turn_get_image(ShardReader *items, ShardTurnImage *image);

/*
 * A row of an internal table that is the shard's, as it was at the end of the turn. It is found by part, entity, name and
 * number: a newer one takes the place of an older one.
 *
 *		part				table			name			number
 *		SHARD_COPY_STASH	shard.held		its place		its seq
 *		SHARD_COPY_ORDERED	shard.ordered
 *		SHARD_COPY_TIMERS	shard.timer		its name
 *		SHARD_COPY_HISTORY	shard.history					its seq
 *
 * The row is what core/flow/copy.h makes of it, but for times: next_us, waited_us and ago_us are no distances here but of
 * the calendar, in microseconds since 2000, as a timer's are. A record is read long after it was made.
 */
typedef struct ShardTurnKey
{
	int32 part; /* ShardCopyPart */
	const char *entity;
	int entity_len; /* never 0 */
	const char *name;
	int name_len;
	int64 number;
	const char *row; /* NULL: it is gone */
	int row_len;
} ShardTurnKey;

extern void shard_turn_put_key(StringInfo out, const ShardTurnKey *key);
extern bool shard_turn_get_key(ShardReader *items, ShardTurnKey *key);

/* A mark of the shard, of a prefix of any kind. */
extern void shard_turn_put_mark(StringInfo out, const ShardStamp *mark);
extern bool shard_turn_get_mark(ShardReader *items, ShardStamp *mark);

/*
 * A row of the log to come, told by an entity of the shard. Its oseq is the record's first_oseq, and one more for each
 * that stands before it; its stamp and its mid are (source type, source shard, oseq).
 */
typedef struct ShardTurnOutput
{
	int32 kind;	   /* ShardKind: of a message, START, PASSIVATE, SCHEDULE, CANCEL, or REPLY */
	int32 type_id; /* for whom; of a REPLY: of the entity that was asked */
	int32 shard;
	const char *entity;
	int entity_len;
	const char *src_entity; /* of the record's type */
	int src_entity_len;
	const char *payload; /* as the log has it */
	int payload_len;
} ShardTurnOutput;

extern void shard_turn_put_output(StringInfo out, const ShardTurnOutput *output);
extern bool shard_turn_get_output(ShardReader *items, ShardTurnOutput *output);

/*
 * Outputs to that shard are done up to that number: its home has taken them in. Type 0, shard 0: outputs that no shard
 * takes in, which are done when they were appended.
 */
typedef struct ShardTurnDone
{
	int32 type_id;
	int32 shard;
	int64 oseq;
} ShardTurnDone;

extern void shard_turn_put_done(StringInfo out, const ShardTurnDone *done);
extern bool shard_turn_get_done(ShardReader *items, ShardTurnDone *done);

/* What became a dead letter; or that one is gone: redriven or deleted. */
typedef struct ShardTurnLetter
{
	int64 number; /* shard_turn_row_number(): its name in the shard */
	bool gone;	  /* then the rest is 0 */
	int64 at;	  /* microseconds since 2000 */
	const char *entity;
	int entity_len;
	int32 kind;
	int32 epoch; /* -1: none */
	ShardStamp stamp;
	int32 src_type;
	const char *src_entity;
	int src_entity_len;
	int32 mid_node; /* never 0 */
	int64 mid_seq;
	const char *payload;
	int payload_len;
	const char *sqlstate; /* five characters */
	int sqlstate_len;
	const char *error;
	int error_len;
	const char *detail; /* of this one and the two below: no bytes: there is none */
	int detail_len;
	const char *hint;
	int hint_len;
	const char *context;
	int context_len;
	int32 attempts;
} ShardTurnLetter;

extern void shard_turn_put_letter(StringInfo out, const ShardTurnLetter *letter);
extern bool shard_turn_get_letter(ShardReader *items, ShardTurnLetter *letter);

extern void shard_turn_put_control(StringInfo out, ShardTurnControl control);
extern bool shard_turn_get_control(ShardReader *items, ShardTurnControl *control);

/*
 * Of the inputs: the row of the home's log with that seq was taken in as (this node, lane, rseq) (Q30). They rise, so each is
 * written as the distance from the one before it: input is that one when get is called, all zero for the first.
 */
typedef struct ShardTurnInput
{
	int64 seq;
	int64 rseq;
} ShardTurnInput;

extern void
shard_turn_put_input(StringInfo out, const ShardTurnInput *before, const ShardTurnInput *input);
extern bool shard_turn_get_input(ShardReader *items, ShardTurnInput *input);
