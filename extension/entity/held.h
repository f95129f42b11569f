/*
 * entity/held.h
 *		Messages that cannot be handled now, and those that were given up.
 *
 * The exceptional path: SQL on ordinary tables, as the bootstrap superuser. The
 * caller has ended any stretch of user code.
 */
#pragma once

#include "nodes/pg_list.h"
#include "utils/timestamp.h"

#include "log/log.h"

/* The error and hint of a dead letter whose type is gone, for its reader. They stand in SQL, too: no quotes. */
#define SHARD_DROPPED_ERROR "the entity type of the message was dropped"
#define SHARD_DROPPED_HINT \
	"shard_redrive() cannot send the message again. Start a type of that name, if there is none, " \
	"and send the message with shard_tell()."

/* The same for a message that waited where it can be handled no more. */
#define SHARD_UNDONE_ERROR "waited at a home that was undone"
#define SHARD_LOST_ERROR "waited at a home whose state was given up"
#define SHARD_LEFT_HINT \
	"Look at the entity: shard_redrive() sends the message to its home as it is now."

/* The bytes of a row of shard.dead_letter that count, before compression, in SQL. */
#define SHARD_DEAD_LETTER_BYTES \
	"octet_length(payload) + octet_length(error) + coalesce(octet_length(detail), 0)" \
	" + coalesce(octet_length(hint), 0) + coalesce(octet_length(context), 0)"

/* A message that is held; strings in the memory of the load. */
typedef struct ShardHeld
{
	ShardRow row; /* seq: position in the stash */
	int attempts;
	TimestampTz next_at; /* 0: as soon as the entity can run */
	int64 number;		 /* of place ordered */
	bool pauses;		 /* its shard waits until next_at, too */
} ShardHeld;

/* Why a message waits. */
typedef struct ShardHeldWhy
{
	int attempts;
	TimestampTz next_at;	/* not before; 0: at once */
	const ErrorData *error; /* of its last failure; NULL: it was not tried */
	bool pauses;			/* its shard waits as long (E24) */
} ShardHeldWhy;

/* What is held of an entity. */
typedef struct ShardHeldCount
{
	int64 stash;		  /* messages in the stash; 0: the next three mean nothing */
	int attempts;		  /* of the first of them */
	TimestampTz next_at;  /* not before; 0: as soon as the entity can run */
	bool pauses;		  /* its shard waits as long */
	int64 ordered;		  /* messages that wait for lower numbers; 0: the next two mean nothing */
	int64 lowest;		  /* their lowest number */
	TimestampTz oldest;	  /* since when the first of them is held */
	int64 touched;		  /* of the stash, what SQL has touched: no messages */
	bool start;			  /* the entity has to start first; false: the next two mean nothing */
	int starts;			  /* which failed so often in a row; */
	TimestampTz start_at; /* not before; 0: it is quarantined */
} ShardHeldCount;

/*
 * Puts a message into the stash of its entity. Returns where: at the row's seq; of a type with replicas behind all that its shard has
 * put there before, whichever node was its home (Q34).
 */
extern int64 shard_held_stash(const ShardRow *row, const ShardHeldWhy *why);

/*
 * The first rows of an entity's stash behind a seq, in order, as a list of ShardHeld *; at most limit, and fewer if
 * they are large. *last: there are no others.
 */
extern List *shard_held_load(int32 type_id, int shard, const char *entity, int entity_len,
							 int64 after, int limit, bool *last);

/* Puts a message in the place of its number; false if there is one already. */
extern bool shard_held_insert_ordered(const ShardRow *row, int64 number);

/* The messages of an entity with the lowest numbers, from one on, likewise, but two at least if there are two. */
extern List *shard_held_load_ordered(int32 type_id, int shard, const char *entity, int entity_len,
									 int64 from, int limit, bool *last);

/* Removes a held message that was handled. */
extern void shard_held_delete(const ShardRow *row);

/* Notes another failed attempt of a held message. */
extern void shard_held_failed(const ShardRow *row, const ShardHeldWhy *why);

/*
 * The entity of the row has to start before a message of it is handled, not before that time; 0: it is quarantined.
 * error: why it failed to, NULL: as before. The second function: it has started.
 */
extern void shard_held_put_start(const ShardRow *row, int attempts, TimestampTz next_at,
								 const ErrorData *error);
extern void shard_held_delete_start(const ShardRow *row);

/* Gives a message up: it becomes a dead letter. stray: of no shard that is here, so no record tells it. */
extern void
shard_held_dead_letter(const ShardRow *row, int attempts, const ErrorData *error, bool stray);

/* Gives up what is held of a type, if the type does not exist any more. Returns how many messages. */
extern int64 shard_held_bury(int32 type_id);

/*
 * Gives up what is held of a shard whose home here was undone, or whose state was given up: these messages are nowhere
 * else (M23). undone: the home was undone. Returns how many messages.
 */
extern int64 shard_held_bury_left(int32 type_id, int shard, bool undone);

/* What is held of an entity, as the running transaction sees it. */
extern ShardHeldCount
shard_held_count(int32 type_id, int shard, const char *entity, int entity_len);

/* Calls visit for each entity of which something is held. */
typedef void (*ShardHeldVisit)(int32 type_id, int shard, const char *entity, int entity_len,
							   const ShardHeldCount *held, void *arg);
extern void shard_held_each(ShardHeldVisit visit, void *arg);

/* How far a walk over all these entities has come; all 0: it begins. */
typedef struct ShardHeldPlace
{
	int32 type_id;
	int32 shard;
	int entity_len;
	char entity[SHARD_MAX_ENTITY_ID];
} ShardHeldPlace;

/*
 * The same for the next entities in the order of their keys, which together have about limit messages held; or for one
 * that has more. Returns how many entities there were.
 */
extern int64
shard_held_some(ShardHeldPlace *place, int limit, ShardHeldVisit visit, void *arg, bool *more);

/* The same for one type, or shard. */
extern void shard_held_each_of_type(int32 type_id, ShardHeldVisit visit, void *arg);
extern void shard_held_each_of_shard(int32 type_id, int shard, ShardHeldVisit visit, void *arg);

/* Is anything held of the type? */
extern bool shard_held_any(int32 type_id);
