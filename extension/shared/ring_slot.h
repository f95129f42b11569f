/*
 * shared/ring_slot.h
 *		Slots of the ring: states, queues and who may touch what. For ring.c only.
 *
 * One slot per backend, numbered like its PGPROC; that backend is its owner. A
 * slot that is not FREE belongs to a worker slot, whose mutex guards its state
 * and links. Bodies are written and read outside of the mutex, by the one whom
 * the state names.
 */
#pragma once

#include "shared/ring.h"
#include "shared/ring_body.h"

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
	bool begun;				  /* it has been executed, or is being; before, it can be withdrawn */
	int next;				  /* circular queue of slots: towards newer ones, */
	int previous;			  /* and towards older ones */

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

	/* written by the worker in TAKEN, under the mutex: shard_ring_note(); read by the owner when it has left */
	char why[SHARD_RING_WHY];
	char cause[SHARD_RING_CAUSE]; /* of that; for who may see addresses */

	/* written by the worker in REPLYING */
	bool failed;   /* reply is an error (ring_body.h) */
	bool not_here; /* no reply: the ask's shard is not active here; certainly not executed */
	XLogRecPtr lsn;

	ShardRingBody request;
	ShardRingBody reply;
} ShardRingSlot;

extern Size shard_ring_slot_shmem_size(void);
extern void shard_ring_slot_shmem_startup(void);

/* The slot of a number, and that of this backend. */
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

/* Worker: what it waits for, if it is still TAKEN. */
extern void
shard_ring_slot_note(ShardRingSlot *slot, uint32 generation, const char *why, const char *cause);

/* Worker: whether it is TAKEN, and it is begun: no way back. */
extern bool shard_ring_slot_begin(ShardRingSlot *slot, uint32 generation);

/* Worker: and back, if it is still TAKEN. */
extern void shard_ring_slot_unbegin(ShardRingSlot *slot, uint32 generation);

/* Worker: TAKEN -> REPLYING; false if the owner of this generation gave up. */
extern bool shard_ring_slot_claim(ShardRingSlot *slot, uint32 generation);

/* Worker: REPLYING -> DONE, and the owner is woken; if it gave up, the reply is freed. */
extern void shard_ring_slot_done(ShardRingSlot *slot);

/* Worker, at its end: what it has taken is LOST, what it has not is in the queue again. */
extern void shard_ring_slot_release(ShardDatabase *db, int worker);
