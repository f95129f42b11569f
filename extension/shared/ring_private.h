/*
 * shared/ring_private.h
 *		What the ring's files share: slots, and bodies of requests and replies.
 */
#pragma once

#include "storage/dsm.h"

#include "shared/ring.h"
#include "shard.h"

/*
 * ---- ring_body.c: What a request or a reply carries: bytes, in its slot or in a DSM segment.
 *
 * A body has one writer and one reader at a time; the states of the slot say which processes those are. The writer
 * makes the segment of a large body. That of a request lives as long as the asker's mapping, that of a reply is pinned
 * until shard_ring_body_drop().
 */

/* Longer bodies go through a DSM segment. */
#define SHARD_RING_INLINE 8192

typedef struct ShardRingBody
{
	int len;		   /* -1: SQL NULL */
	dsm_handle handle; /* of a large body, else DSM_HANDLE_INVALID */
	char data[SHARD_RING_INLINE];
} ShardRingBody;

/* An empty body: SQL NULL. */
extern void shard_ring_body_clear(ShardRingBody *body);

/*
 * Writes a body; data NULL is SQL NULL. Returns the mapping of the segment that
 * a large one needed and that ends with it, or NULL. With pin the segment
 * outlives the mapping, which is gone then. Errors: lack of memory.
 */
extern dsm_segment *shard_ring_body_write(ShardRingBody *body, const char *data, int len, bool pin);

/*
 * A copy of the body in the current memory context, NULL for SQL NULL. False if
 * its segment is gone, with its writer. Errors: lack of memory.
 */
extern bool shard_ring_body_read(const ShardRingBody *body, char **data, int *len);

/* Lets go of a segment that was pinned; no error. */
extern void shard_ring_body_drop(ShardRingBody *body);

/*
 * An error as bytes, palloc'd, with all that clients are shown of an error; and the error raised again on the other
 * side.
 */
extern char *shard_ring_body_pack_error(const ErrorData *error, int *len);
extern void shard_ring_body_throw(const char *data, int len);

/*
 * The error that bytes of any origin stand for; its texts are copies. False: the bytes stand for no error, or are not
 * in the database's encoding.
 */
extern bool shard_ring_body_unpack_error(const char *data, int len, ErrorData *error);

/*
 * ---- ring_slot.c: Slots of the ring: states, queues, and which process may touch what.
 *
 * One slot per backend, numbered like its PGPROC; that backend is its owner. A slot that is not FREE belongs to a
 * worker slot, whose mutex guards its state and links. Bodies are written and read outside of the mutex, by the process
 * that the state names.
 */

typedef enum ShardRingState
{
	SHARD_RING_FREE,	  /* owner writes the request; -> SUBMITTED */
	SHARD_RING_SUBMITTED, /* in the worker's queue; -> TAKING, FREE (withdrawn) */
	SHARD_RING_TAKING, /* worker copies the request; -> TAKEN, ABANDONED, SUBMITTED (worker ends) */
	SHARD_RING_TAKEN, /* worker executes a copy; -> REPLYING, LOST, FREE (owner gives up), SUBMITTED
							  (worker ends, and has not begun) */
	SHARD_RING_REPLYING, /* worker writes the reply; -> DONE, LOST, ABANDONED */
	SHARD_RING_DONE,	 /* owner reads the reply; -> FREE */
	SHARD_RING_LOST,	 /* worker ended, outcome unknown; -> FREE */
	SHARD_RING_ABANDONED /* owner gave up, worker still copies or writes; -> FREE */
} ShardRingState;

typedef struct ShardRingSlot
{
	/* guarded by the mutex of the worker slot that target names */
	ShardRingState state;
	uint32 generation;		  /* rises when the owner is done with a request */
	uint32 worker_generation; /* of the worker that took it */
	bool begun;	   /* it was executed, or is being executed; before, it can be withdrawn */
	bool deferred; /* it was executed, and waits for a reply that comes later, */
	ShardUuid key; /* for which this is asked */
	int next;	   /* circular queue of slots: towards newer ones, */
	int previous;  /* and towards older ones */

	/* written by the owner in FREE */
	int target; /* number of a worker slot, over all databases; -1: none yet */
	ShardRequestKind kind;
	int64 after;
	bool tagged;
	int32 epoch;
	int64 timeout_us;
	int32 type_id;
	int32 shard;
	int entity_len;
	char entity[SHARD_MAX_ENTITY_ID + 1];

	/*
	 * written by the worker in TAKEN, under the mutex: shard_ring_note(); read by the owner once it has left the slot
	 */
	char why[SHARD_RING_WHY];
	char cause[SHARD_RING_CAUSE]; /* of that failure; for roles that may see addresses */

	/* written by the worker in REPLYING */
	bool failed;   /* reply is an error (ring_body.h) */
	bool not_here; /* no reply: the ask's shard is not active here; the ask was not executed */
	XLogRecPtr lsn;

	ShardRingBody request;
	ShardRingBody reply;
} ShardRingSlot;

/* The slot of a number; that of this backend; and the number of a slot. */
extern ShardRingSlot *shard_ring_slot_get(int number);
extern ShardRingSlot *shard_ring_slot_mine(void);
extern int shard_ring_slot_number(const ShardRingSlot *slot);

/* Owner: FREE -> SUBMITTED, at the end of a worker's queue. */
extern void shard_ring_slot_submit(ShardRingSlot *slot, ShardDatabase *db, int worker);

/*
 * Owner: the state now. LOST also if the worker that took the request is gone.
 * Sets *pid to that of the worker of the slot, 0 if none runs.
 */
extern ShardRingState shard_ring_slot_look(ShardRingSlot *slot, int *pid);

/* Owner: whether a worker executes the request. */
extern bool shard_ring_slot_is_begun(ShardRingSlot *slot);

/* Owner: SUBMITTED or TAKEN -> FREE. False if the request was begun meanwhile. */
extern bool shard_ring_slot_withdraw(ShardRingSlot *slot);

/* Owner: gives the request up, or is done with its reply. Returns the state before. */
extern ShardRingState shard_ring_slot_leave(ShardRingSlot *slot);

/* Worker: the oldest of its queue, SUBMITTED -> TAKING; NULL if the queue is empty. */
extern ShardRingSlot *shard_ring_slot_pop(ShardDatabase *db, int worker);

/* Worker: TAKING -> TAKEN; false if the owner gave up. */
extern bool shard_ring_slot_taken(ShardRingSlot *slot);

/* Worker: whether the request of this generation is still TAKEN. */
extern bool shard_ring_slot_waits(ShardRingSlot *slot, uint32 generation);

/* Worker: stores what the request waits for, if it is still TAKEN. */
extern void
shard_ring_slot_note(ShardRingSlot *slot, uint32 generation, const char *why, const char *cause);

/* Worker: marks the request as begun, if it is still TAKEN; returns whether it is. */
extern bool shard_ring_slot_begin(ShardRingSlot *slot, uint32 generation);

/* Worker: takes that mark back, if the request is still TAKEN. */
extern void shard_ring_slot_unbegin(ShardRingSlot *slot, uint32 generation);

/* Worker: the request waits for a reply that comes later, if it is still TAKEN. */
extern void shard_ring_slot_defer(ShardRingSlot *slot, uint32 generation, ShardUuid key);

/* Any process: whether that ask waits for it, at a worker of this database; worker NULL: no matter at which. */
extern bool shard_ring_slot_is_open(ShardDatabase *db, const ShardWorkerSlot *worker,
									const ShardRingLater *ask);

/*
 * Any process: the first slot from this number on in which an ask waits for it at a worker; -1: none. *generation: the
 * slot's.
 */
extern int shard_ring_slot_next_open(ShardDatabase *db, int worker, int from, uint32 *generation);

/* Owner: whether a reply that comes later is waited for. */
extern bool shard_ring_slot_is_deferred(ShardRingSlot *slot);

/* Worker: TAKEN -> REPLYING; false if the owner of this generation gave up. */
extern bool shard_ring_slot_claim(ShardRingSlot *slot, uint32 generation);

/* Worker: REPLYING -> DONE, and the owner is woken; if it gave up, the reply is freed. */
extern void shard_ring_slot_done(ShardRingSlot *slot);

/* Worker, at its end: requests that it has begun become LOST, the others are in the queue again. */
extern void shard_ring_slot_release(ShardDatabase *db, int worker);
