/*
 * entity/entity.h
 *		What a region worker has in memory: types, their entities, and copies of state rows.
 *
 * A type in a worker (ShardLocalType) has the compiled handler, the state table while it is open, and its entities. An
 * entity has a copy of its state row, what waits in front of it, and how far it is in the numbers of its messages; each
 * of them twice: as of the last commit, and in this turn.
 *
 * Dropping an entity is always safe: its row is the truth. A copy is believed only after its row was found unchanged in
 * the turn's snapshot (state.c).
 */
#pragma once

#include "access/tupdesc.h"
#include "datatype/timestamp.h"
#include "executor/tuptable.h"
#include "lib/ilist.h"
#include "nodes/bitmapset.h"
#include "nodes/execnodes.h"
#include "storage/itemptr.h"
#include "utils/rel.h"

#include "core/entity/entity.h"
#include "core/entity/fair_share.h"
#include "core/entity/passivation.h"
#include "core/entity/recovery.h"
#include "entity/handler.h"
#include "registry/registry.h"

/* The content of a state row. */
typedef struct ShardCopy
{
	bool known;	 /* false: the fields below mean nothing */
	bool exists; /* there is a row */
	bool remembered;
	bool state_null; /* always true without a row */
	Datum state;
	ItemPointerData tid;
	TransactionId xmin;
	int64 version;
} ShardCopy;

/* Whether there is to be a row: a state, or an entity of the type that is remembered without one (E11). */
static inline bool
shard_copy_wants_row(const ShardCopy *copy, const ShardType *type)
{
	return !copy->state_null || (copy->remembered && type->remember);
}

/* Why and how long messages of an entity wait in the stash (D5). */
typedef struct ShardWait
{
	bool deferred;	/* messages may wait in the stash: they go before the entity's inbox rows */
	bool suspended; /* they wait for the type, not for the entity */
	int attempts;	/* of the message in front; 0: it has not failed */
	TimestampTz not_before; /* the stash is not looked at earlier */
	int blocked_by;			/* pid that holds the row, 0: none */
	int64 waiting;			/* rows in the stash, and those that wait for their number */
	int64 touched;			/* of these, what SQL has touched, which is no message: 0 or 1 */
	int64 gone;				/* no row of the stash has this seq or a lower one; 0: not known */
	bool start;				/* the entity has to start first, which failed or was put off (E15), */
	int starts;				/* so often in a row */
	bool pauses;			/* its shard waits until not_before, too (E24) */
} ShardWait;

/* How far an entity is in the numbers of its messages: its row of shard.ordered (D25). */
typedef struct ShardOrderedPosition
{
	bool known; /* the row was looked for; if not, the fields below mean nothing */
	bool begun; /* there is a row; if not, the next four mean nothing */
	int64 began;
	int64 expected;
	int64 skipped;
	int64 late;
} ShardOrderedPosition;

/* The entity's messages that wait for lower numbers: its rows of shard.held, place ordered. */
typedef struct ShardOrderedQueue
{
	int64 waiting;	   /* messages; 0: the next two mean nothing */
	int64 lowest;	   /* their lowest number */
	TimestampTz since; /* since when the oldest waits, or has been known to this worker */
} ShardOrderedQueue;

/* Two things, each known from a table of its own: reading the one leaves the other as it is. */
typedef struct ShardOrder
{
	ShardOrderedPosition position;
	ShardOrderedQueue queue;
} ShardOrder;

typedef struct ShardOrdering
{
	ShardOrder now;	  /* in this turn */
	ShardOrder saved; /* as of the last commit; set by commits alone */
	bool dirty;		  /* the position has to be written; if not begun, deleted */
	bool ended;		  /* the handler of the last message has said that nothing more comes */
} ShardOrdering;

/* An entity as strategies of passivation see it; NULL in entities of types without a limit. */
typedef struct ShardPlace
{
	ShardPassivationEntity core;
	struct ShardEntity *entity;
	bool leaves; /* in the list of those that are to leave, by core.place */
} ShardPlace;

/* Why an entity has left memory; counted for each. */
typedef enum ShardLeaveReason
{
	SHARD_LEAVES_IDLE,
	SHARD_LEAVES_LIMIT,	 /* of entities in memory */
	SHARD_LEAVES_MEMORY, /* shard.cache_size */
	SHARD_LEAVES_ITSELF	 /* shard_passivate(), shard_stop(); not counted */
} ShardLeaveReason;

#define SHARD_LEAVES_COUNTED SHARD_LEAVES_ITSELF

/* ShardEntity.stop: its handler has sent it a stop message. */
#define SHARD_STOP_ASKED (-1)

typedef struct ShardEntity
{
	struct ShardLocalType *local; /* its type, in this worker */
	int shard;
	dlist_node lru;				  /* in local->lru, least recently used first */
	TimestampTz last_message_at;  /* in this turn; 0: memory does not know */
	TimestampTz saved_message_at; /* as of the last commit */
	TimestampTz heard_at;		  /* what puts its receive time-out off, in this turn; 0: unknown */
	TimestampTz saved_heard_at;	  /* as of the last commit */
	Size bytes;					  /* accounted for */

	ShardCopy saved; /* as of the last commit; state in cache memory */
	ShardCopy now;	 /* in this turn; state in turn memory or saved's */
	bool in_turn;
	bool checked;		 /* now is the turn's truth */
	bool dirty;			 /* a handler has returned */
	bool stale;			 /* saved was found to be wrong */
	bool touched;		 /* its row is to be in the turn's record, whoever has written it (Q33) */
	bool spoken;		 /* a message of somebody runs, or its receive time-out */
	int handled;		 /* messages */
	bool started;		 /* since it came into memory, as of this turn (E12); */
	bool start_wanted;	 /* it was to start with its shard while messages of it waited */
	bool saved_started;	 /* as of the last commit */
	bool was_remembered; /* its row, when the turn found it */
	slist_node turn_link;

	ShardEntityState life;		 /* in this turn (life.c) */
	ShardEntityState saved_life; /* as of the last commit */
	int64
		stop; /* in this turn: the number of its stop message that is under way (stop.c), 0: none */
	int64 saved_stop;		 /* as of the last commit */
	ShardLeaveReason reason; /* why it leaves, in this turn */
	ShardPlace *place;

	ShardWait wait;		  /* in this turn */
	ShardWait saved_wait; /* as of the last commit */
	uint32 recounted;	  /* the last recount that found something held of the entity */
	bool listed;
	dlist_node due; /* in shard_turn.due, while listed */
	bool pausing;
	dlist_node pause; /* in shard_turn.pauses, while pausing */

	ShardOrdering *ordering; /* NULL: its type never had ordered_by */

	/* batch handlers: this turn's messages */
	Datum *batch;
	int batch_count;
	int batch_capacity;

	int id_len;
	char id[FLEXIBLE_ARRAY_MEMBER];
} ShardEntity;

/* A type's state table in a turn: opened at first use, closed before commit. */
typedef struct ShardStateTable
{
	Relation rel;		/* NULL: not open */
	BlockNumber blocks; /* when it was opened */
	Oid primary_key;
	AttrNumber shard_column;
	AttrNumber entity_column;
	AttrNumber state_column; /* 0 for composite types */
	AttrNumber version_column;
	AttrNumber remembered_column; /* false: for entities that start with their shard */
	AttrNumber updated_column;
	TupleDesc composite;   /* NULL, or the state type's; pinned */
	AttrNumber *attribute; /* of the composite: column of each, 0: dropped */
	TupleTableSlot *row;   /* as found */
	TupleTableSlot *next;  /* as it is to be */

	/* for writing */
	EState *estate; /* NULL: not begun */
	ResultRelInfo *result;
	EPQState epq;
	ExprState **defaults; /* of the users' columns, where there is one; NULL: not prepared */
} ShardStateTable;

/* What a type's state is made of: its table, and the composite types in it, at any depth (state_hold.c). */
typedef struct ShardStateParts
{
	MemoryContext context; /* of the list */
	List *list;
	struct ShardStatePart *row; /* the part whose rows the states are; NULL: states are no rows */
	bool known;					/* the list is complete */
	bool was_known;				/* the list was complete once */
	bool held;					/* by this turn */
	Oid busy;					/* the relation that another transaction had locked last */
} ShardStateParts;

typedef struct ShardShardCount
{
	int64 entities;
	int64 handled;
	int64 errors;
	int64 left[SHARD_LEAVES_COUNTED]; /* by reason */
	int64 remembered; /* entities that start with their shard, as far as that was walked over; */
	int64 counted;	  /* in this turn */
} ShardShardCount;

/* How far the walk over the remembered entities of a shard has come. */
typedef struct ShardRecoveryPlace
{
	int shard;	/* -1: of none */
	int id_len; /* up to this id; 0: it begins */
	char id[SHARD_MAX_ENTITY_ID];
} ShardRecoveryPlace;

/* Remembered entities of the type that are still to be started (recovery.c). In memory alone. */
typedef struct ShardRecovery
{
	bool on;				  /* entities of the type are remembered, and run here */
	bool seeks;				  /* shards that have rows are still looked for, */
	int sought;				  /* up to this one */
	Bitmapset *shards;		  /* to be walked over */
	ShardRecoveryPlace now;	  /* in this turn */
	ShardRecoveryPlace saved; /* as of the last commit */
	List *begun;			  /* shards that this turn has counted in, */
	List *finished;			  /* and those that it came to the end of */
	ShardRecoveryPace pace;
	ShardRecoveryPace saved_pace;
	TimestampTz not_before; /* nothing starts before this time, */
	uint32 row_version;		/* unless the type's row is another one than this */
	int64 started; /* entities, since the line in the log that said it began; in this turn: */
	int64 starting;
	TimestampTz began; /* when that was; 0: there is nothing to be said */
	TimestampTz told;  /* the last line */
} ShardRecovery;

/* An entity type in this worker. */
typedef struct ShardLocalType
{
	ShardType *type;
	bool by_value; /* of the state type */
	int16 length;
	ShardStateParts parts;
	ShardHandler handler;
	ShardHandler ordered_by;
	ShardHandler decider;
	ShardStateTable table;
	dlist_head lru;
	ShardPassivation *region; /* of a type with a limit of entities in memory; else NULL */
	ShardPassivationShard *region_shard;	  /* its only one, */
	ShardPassivationSettings region_settings; /* which it was made with, */
	int region_limit;						  /* for a limit of the whole node, */
	MemoryContext region_context;			  /* in this memory */
	dlist_head victims; /* ShardPlace, by core.place: they are to leave between turns */
	bool stops;			/* it has a stop message */
	bool runnable;		/* messages are handled, as of this turn */
	bool readable;		/* states can be read for replicas, also if it is stopped (Q33) */
	bool timers_left;	/* some were due while they were not */
	bool followed;		/* the same, as of the last time that its entities were told */
	uint64 looked_at;	/* registry generation of that */
	bool burying;		/* the type was dropped, and the turn gives up what is held of it, */
	int64 given_up;		/* messages given up */
	bool buried;		/* the giving up was committed: nothing is held of the type */
	Oid state_table; /* as of the entities in memory; InvalidOid: the type is a proxy, or dropped */
	bool dropped;	 /* the type was dropped here, as of the entities in memory */
	bool reread;	 /* what is held of the type has to be read again */
	bool
		sought; /* whether something was held of the type before its shards had homes was looked at, */
	bool brought;			 /* and there was: it came with the type's number (E64) */
	ShardShardCount **pages; /* of SHARD_LOCAL_PAGE shards each; NULL: none of them was met */
	int n_pages;
	int64 dead_room;			 /* dead letters that may come before they are counted again */
	int64 dead_room_bytes;		 /* the same */
	TimestampTz dead_looked;	 /* the turn in which they were counted */
	TimestampTz dead_full_until; /* there is no room before that time */
	uint64 history_noted;		 /* failures that this worker has noted (history.c) */
	ShardFairShare share;		 /* of the worker's time */
	bool in_turn;
	slist_head touched; /* its entities in the turn */
	slist_node turn_link;
	uint64 code;					  /* type row and handler that were looked at */
	ShardRecovery recovery;			  /* recovery.c */
	struct ShardRecordImages *images; /* of a type with replicas: record_image.c */
} ShardLocalType;

/* Which row and which handler of the type it is. */
static inline uint64
shard_local_code(const ShardType *type)
{
	return (uint64) type->row_version << 32 | type->handler_version;
}
