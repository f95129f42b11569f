/*
 * core/flow/copy.h
 *		Copying a shard from its old home to its new one: calls, answers, rows (M4, M17).
 *
 * The new home asks for the copy, call by call: each names the position at which the answer before
 * stopped, and is answered by as many rows as fit, and the position to go on from. Rows of a sealed shard
 * do not change, so calls need nothing in common. An answer is a list of the sections of core/flow/packet.h
 * that are named here; rows are of a kind of their own for each part of a shard.
 *
 * As in core/flow/packet.h, decoders take bytes from anywhere, and a getter answers false at the end of its
 * reader, or with reader->failed if what stands there is damaged. Texts and values point into the bytes.
 */
#pragma once

#include "core/map/control.h"
#include "core/flow/mark.h"
#include "core/flow/packet.h"

/* What is copied; stored nowhere, part of the protocol version, never renumbered. In this order. */
typedef enum ShardCopyPart
{
	SHARD_COPY_NONE = 0,	/* in a position: before the first one, or behind the last */
	SHARD_COPY_STATE = 1,	/* rows of the state table: fields in the order of the columns told */
	SHARD_COPY_STASH = 2,	/* ShardCopyHeld */
	SHARD_COPY_MARKS = 3,	/* ShardStamp: base marks */
	SHARD_COPY_ORDERED = 4, /* ShardCopyOrdered: how far entities are in their messages' numbers */
	SHARD_COPY_TIMERS = 5,	/* ShardCopyTimer */
	SHARD_COPY_HISTORY = 6	/* ShardCopyHistory: failures of entities */
} ShardCopyPart;

#define SHARD_COPY_PARTS 7

extern const char *const shard_copy_part_names[SHARD_COPY_PARTS];

typedef enum ShardCopyKind
{
	SHARD_COPY_PREPARE = 1, /* may the shard be copied? Columns and counts, no rows */
	SHARD_COPY_ROWS = 2
} ShardCopyKind;

/* Where a copy stands: behind the row with that key; the caller only hands it back. */
typedef struct ShardCopyPosition
{
	int32 part;
	const char *after; /* no bytes: at the part's beginning */
	int after_len;
} ShardCopyPosition;

/* Call of shard_peer.export(): to the old home. */
typedef struct ShardExportCall
{
	int32 kind;			 /* ShardCopyKind */
	ShardShardRef shard; /* the epoch and the move to come */
	const char *type_name;
	int type_name_len;
	int32 max_bytes; /* of rows; one row may have more */
	ShardCopyPosition position;
	const char *owner; /* name of the role that owns the type at the new home (C18) */
	int owner_len;
} ShardExportCall;

extern void shard_copy_put_export(StringInfo out, const ShardExportCall *call);
extern bool shard_copy_get_export(ShardReader *reader, ShardExportCall *call);

/* Call of shard_peer.import(): of a node's control worker to its own database. */
typedef struct ShardImportCall
{
	int32 kind;
	ShardShardRef shard;
	int32 node;	   /* the old home */
	uint64 secret; /* known to the processes of this node only */
} ShardImportCall;

extern void shard_copy_put_import(StringInfo out, const ShardImportCall *call);
extern bool shard_copy_get_import(ShardReader *reader, ShardImportCall *call);

/* Section COLUMNS of the first answer: one for each column of the state table, generated ones too. */
#define SHARD_COPY_COLUMN_GENERATED 1 /* no field: computed by each node */
#define SHARD_COPY_COLUMN_TEXT 2	  /* in the type's text form, else in its binary one */

typedef struct ShardCopyColumn
{
	const char *name;
	int name_len;
	const char *type; /* with its modifier, as people write it */
	int type_len;
	int32 flags;
} ShardCopyColumn;

extern void shard_copy_put_column(StringInfo out, const ShardCopyColumn *column);
extern bool shard_copy_get_column(ShardReader *reader, ShardCopyColumn *column);

/* Section COUNTS of the first answer: one for each part that the old home knows. */
typedef struct ShardCopyCount
{
	int32 part; /* maybe one that is not known here: then the copy is refused, or rows are 0 */
	int64 rows;
} ShardCopyCount;

extern void shard_copy_put_count(StringInfo out, const ShardCopyCount *count);
extern bool shard_copy_get_count(ShardReader *reader, ShardCopyCount *count);

/* Section CHUNK: rows of one part, with their checksum, which the getter has looked at. */
typedef struct ShardCopyChunk
{
	int32 part;
	int32 n_rows;
	const char *rows;
	int rows_len;
} ShardCopyChunk;

extern void shard_copy_put_chunk(StringInfo out, const ShardCopyChunk *chunk);
extern bool shard_copy_get_chunk(ShardReader *reader, ShardCopyChunk *chunk);

/* Section NEXT: the position to go on from; part NONE: that was all. */
extern void shard_copy_put_position(StringInfo out, const ShardCopyPosition *position);
extern bool shard_copy_get_position(ShardReader *reader, ShardCopyPosition *position);

/* A field of a state row; bytes NULL: SQL NULL. */
extern void shard_copy_put_field(StringInfo out, const char *bytes, int length);
extern bool shard_copy_get_field(ShardReader *reader, const char **bytes, int *length);

/*
 * A message that waits: in the stash, or for lower numbers of its entity (D25). Clocks differ between nodes, so times are
 * told as distances, in microseconds.
 */
typedef struct ShardCopyHeld
{
	const char *entity;
	int entity_len;
	int32 kind;		  /* ShardKind */
	int32 epoch;	  /* -1: none */
	ShardStamp stamp; /* kind 0: none */
	int32 src_type;	  /* 0: a client sent */
	const char *src_entity;
	int src_entity_len;
	int32 mid_node; /* never 0: where it first became durable */
	int64 mid_seq;
	const char *payload;
	int payload_len;
	bool ordered; /* it waits for lower numbers than this: */
	int64 number;
	int32 attempts;
	bool has_next;
	int64 next_us;	 /* time from now until it may run; below 0: time since then */
	int64 waited_us; /* since it came to the stash */
	const char *sqlstate;
	int sqlstate_len; /* 0: it did not fail yet */
	const char *error;
	int error_len;
	bool pauses; /* the whole shard waits as long (E24) */
} ShardCopyHeld;

extern void shard_copy_put_held(StringInfo out, const ShardCopyHeld *held);
extern bool shard_copy_get_held(ShardReader *reader, ShardCopyHeld *held);

/* How far an entity is in its messages' numbers (D25): a row of shard.ordered. */
typedef struct ShardCopyOrdered
{
	const char *entity;
	int entity_len;
	int64 began;
	int64 expected;
	int64 skipped;
	int64 late;
} ShardCopyOrdered;

extern void shard_copy_put_ordered(StringInfo out, const ShardCopyOrdered *ordered);
extern bool shard_copy_get_ordered(ShardReader *reader, ShardCopyOrdered *ordered);

/*
 * A timer of an entity (E36): a row of shard.timer. Its times are those of the calendar, which is the same at all nodes,
 * in microseconds since 2000.
 */
typedef struct ShardCopyTimer
{
	const char *entity;
	int entity_len;
	const char *name;
	int name_len; /* 0: the receive time-out */
	int64 due;
	int64 generation;
	int64 first;
	int64 period;
	bool repeats; /* after so much: */
	int32 months;
	int32 days;
	int64 time;
	const char *zone;
	int zone_len;
	int32 missed; /* ShardTimerMissed, which the importer knows */
	int64 fired;
	int64 idle;
	const char *message;
	int message_len;
} ShardCopyTimer;

extern void shard_copy_put_timer(StringInfo out, const ShardCopyTimer *timer);
extern bool shard_copy_get_timer(ShardReader *reader, ShardCopyTimer *timer);

/* A failure of an entity (E26): a row of shard.history. */
typedef struct ShardCopyHistory
{
	const char *entity;
	int entity_len;
	int64 seq;
	int64 ago_us; /* since then */
	const char *sqlstate;
	int sqlstate_len;
	const char *error;
	int error_len;
	int32 attempts;
	const char *decision;
	int decision_len;
	const char *outcome;
	int outcome_len;
	int64 pause_us; /* -1: none */
} ShardCopyHistory;

extern void shard_copy_put_history(StringInfo out, const ShardCopyHistory *history);
extern bool shard_copy_get_history(ShardReader *reader, ShardCopyHistory *history);

/* A base mark. */
extern void shard_copy_put_mark(StringInfo out, const ShardStamp *mark);
extern bool shard_copy_get_mark(ShardReader *reader, ShardStamp *mark);
