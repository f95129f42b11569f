/*
 * shared/ring_slot.c
 *		Slots of the ring: states, queues, and which process may touch what.
 *
 * All steps between states are made here, by step(), under the mutex. A
 * worker's queue is a circular list in both directions; ShardWorkerSlot
 * ask_head names its newest slot, whose next is the oldest.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/latch.h"
#include "storage/proc.h"
#include "storage/shmem.h"

#include "shared/ring_private.h"
#include "core/base/text.h"

#include "base/compat.h"

#define BIT(state) (1 << (state))

/* Legal steps, as in ring_slot.h. */
static const int successors[] pg_attribute_unused() = {
	[SHARD_RING_FREE] = BIT(SHARD_RING_SUBMITTED),
	[SHARD_RING_SUBMITTED] = BIT(SHARD_RING_TAKING) | BIT(SHARD_RING_FREE),
	[SHARD_RING_TAKING] = BIT(SHARD_RING_TAKEN) | BIT(SHARD_RING_ABANDONED) |
						  BIT(SHARD_RING_SUBMITTED),
	[SHARD_RING_TAKEN] = BIT(SHARD_RING_REPLYING) | BIT(SHARD_RING_LOST) | BIT(SHARD_RING_FREE) |
						 BIT(SHARD_RING_SUBMITTED),
	[SHARD_RING_REPLYING] = BIT(SHARD_RING_DONE) | BIT(SHARD_RING_LOST) | BIT(SHARD_RING_ABANDONED),
	[SHARD_RING_DONE] = BIT(SHARD_RING_FREE),
	[SHARD_RING_LOST] = BIT(SHARD_RING_FREE),
	[SHARD_RING_ABANDONED] = BIT(SHARD_RING_FREE),
};

static ShardRingSlot *slots = NULL;

/*
 * Auxiliary processes have numbers too, though they never ask.
 */
static int
slot_count(void)
{
	return MaxBackends + NUM_AUXILIARY_PROCS;
}

static Size
shmem_size(void)
{
	return mul_size(slot_count(), sizeof(ShardRingSlot));
}

/*
 * Makes or finds the slots. The caller holds AddinShmemInitLock.
 */
static void
startup(void)
{
	bool found;

	slots = ShmemInitStruct("shard ring", shmem_size(), &found);
	if (found)
		return;
	for (int i = 0; i < slot_count(); i++)
	{
		slots[i].state = SHARD_RING_FREE;
		slots[i].generation = 0;
		slots[i].target = -1;
		shard_ring_body_clear(&slots[i].request);
		shard_ring_body_clear(&slots[i].reply);
	}
}

ShardRingSlot *
shard_ring_slot_get(int number)
{
	return &slots[number];
}

ShardRingSlot *
shard_ring_slot_mine(void)
{
	return &slots[ShardMyProcNumber];
}

int
shard_ring_slot_number(const ShardRingSlot *slot)
{
	return (int) (slot - slots);
}

static int
target_of(const ShardDatabase *db, int worker)
{
	return shard_shmem_database_index(db) * SHARD_WORKER_SLOTS + worker;
}

static ShardWorkerSlot *
worker_of(const ShardRingSlot *slot)
{
	return &shard_shared->database[slot->target / SHARD_WORKER_SLOTS]
				.worker[slot->target % SHARD_WORKER_SLOTS];
}

/*
 * Goes to another state. Under the mutex.
 */
static inline void
step(ShardRingSlot *slot, ShardRingState to)
{
	ShardAssert(successors[slot->state] & BIT(to));
	slot->state = to;
}

/*
 * The owner's last step: answers to this generation are void. Under the mutex.
 */
static inline void
retire(ShardRingSlot *slot, ShardRingState to)
{
	step(slot, to);
	slot->generation++;
}

/*
 * Adds a slot to its worker's queue as the newest. Under the mutex.
 */
static void
link_newest(ShardRingSlot *slot, ShardWorkerSlot *worker)
{
	int self = shard_ring_slot_number(slot);

	if (worker->ask_head < 0)
		slot->next = slot->previous = self;
	else
	{
		slot->previous = worker->ask_head;
		slot->next = slots[worker->ask_head].next;
		slots[slot->previous].next = self;
		slots[slot->next].previous = self;
	}
	worker->ask_head = self;
}

/*
 * Removes a slot from its worker's queue. Under the mutex.
 */
static void
unlink_slot(ShardRingSlot *slot, ShardWorkerSlot *worker)
{
	int self = shard_ring_slot_number(slot);

	if (slot->next == self)
		worker->ask_head = -1;
	else
	{
		slots[slot->previous].next = slot->next;
		slots[slot->next].previous = slot->previous;
		if (worker->ask_head == self)
			worker->ask_head = slot->previous;
	}
}

/*
 * Hands the slot to a worker, which is woken.
 */
void
shard_ring_slot_submit(ShardRingSlot *slot, ShardDatabase *db, int worker)
{
	ShardWorkerSlot *target = &db->worker[worker];

	SpinLockAcquire(&target->mutex);
	slot->target = target_of(db, worker);
	slot->begun = slot->deferred = false;
	slot->why[0] = '\0';
	slot->cause[0] = '\0';
	step(slot, SHARD_RING_SUBMITTED);
	link_newest(slot, target);
	SpinLockRelease(&target->mutex);
	shard_shmem_wake_worker(db, worker);
}

/*
 * Whether the worker that took the request runs no more. Under the mutex.
 */
static inline bool
is_orphan(const ShardRingSlot *slot, const ShardWorkerSlot *worker)
{
	return (slot->state == SHARD_RING_TAKEN || slot->state == SHARD_RING_REPLYING) &&
		   (!worker->in_use || worker->generation != slot->worker_generation);
}

ShardRingState
shard_ring_slot_look(ShardRingSlot *slot, int *pid)
{
	ShardWorkerSlot *worker;
	ShardRingState state;

	*pid = 0;
	if (slot->target < 0)
		return SHARD_RING_FREE;
	worker = worker_of(slot);
	SpinLockAcquire(&worker->mutex);
	state = is_orphan(slot, worker) ? SHARD_RING_LOST : slot->state;
	if (worker->in_use)
		*pid = (int) worker->pid;
	SpinLockRelease(&worker->mutex);
	return state;
}

bool
shard_ring_slot_is_begun(ShardRingSlot *slot)
{
	ShardWorkerSlot *worker = worker_of(slot);
	bool begun;

	SpinLockAcquire(&worker->mutex);
	begun = slot->state == SHARD_RING_TAKEN && slot->begun && !is_orphan(slot, worker);
	SpinLockRelease(&worker->mutex);
	return begun;
}

bool
shard_ring_slot_withdraw(ShardRingSlot *slot)
{
	ShardWorkerSlot *worker = worker_of(slot);
	bool withdrawn;

	SpinLockAcquire(&worker->mutex);
	withdrawn = slot->state == SHARD_RING_SUBMITTED ||
				(slot->state == SHARD_RING_TAKEN && !slot->begun && !is_orphan(slot, worker));
	if (slot->state == SHARD_RING_SUBMITTED)
		unlink_slot(slot, worker);
	if (withdrawn)
		retire(slot, SHARD_RING_FREE);
	SpinLockRelease(&worker->mutex);
	return withdrawn;
}

/*
 * Ends the owner's interest, whatever the state. A reply that came, or was
 * left half-written by a worker that is gone, is freed here.
 */
ShardRingState
shard_ring_slot_leave(ShardRingSlot *slot)
{
	ShardWorkerSlot *worker;
	ShardRingState state;

	if (slot->target < 0)
		return SHARD_RING_FREE;
	if (shard_ring_slot_withdraw(slot))
		return SHARD_RING_SUBMITTED;

	worker = worker_of(slot);
	SpinLockAcquire(&worker->mutex);
	if (is_orphan(slot, worker))
		step(slot, SHARD_RING_LOST);
	state = slot->state;
	switch (state)
	{
		case SHARD_RING_TAKING:
		case SHARD_RING_REPLYING:
			retire(slot, SHARD_RING_ABANDONED);
			break;
		case SHARD_RING_TAKEN:
			retire(slot, SHARD_RING_FREE);
			break;
		default:
			break;
	}
	SpinLockRelease(&worker->mutex);

	if (state != SHARD_RING_DONE && state != SHARD_RING_LOST)
		return state;
	shard_ring_body_drop(&slot->reply);
	SpinLockAcquire(&worker->mutex);
	retire(slot, SHARD_RING_FREE);
	SpinLockRelease(&worker->mutex);
	return state;
}

ShardRingSlot *
shard_ring_slot_pop(ShardDatabase *db, int worker)
{
	ShardWorkerSlot *owner = &db->worker[worker];
	ShardRingSlot *slot = NULL;

	SpinLockAcquire(&owner->mutex);
	if (owner->ask_head >= 0)
	{
		slot = &slots[slots[owner->ask_head].next];
		unlink_slot(slot, owner);
		step(slot, SHARD_RING_TAKING);
		slot->worker_generation = owner->generation;
	}
	SpinLockRelease(&owner->mutex);
	return slot;
}

/*
 * The worker has stopped touching the bodies: goes on to a state, or frees what
 * the owner has abandoned. Returns whether the owner is still there.
 */
static bool
hand_over(ShardRingSlot *slot, ShardRingState to)
{
	ShardWorkerSlot *worker = worker_of(slot);
	bool abandoned;

	SpinLockAcquire(&worker->mutex);
	abandoned = slot->state == SHARD_RING_ABANDONED;
	if (!abandoned)
		step(slot, to);
	SpinLockRelease(&worker->mutex);
	if (!abandoned)
		return true;

	shard_ring_body_drop(&slot->reply);
	SpinLockAcquire(&worker->mutex);
	step(slot, SHARD_RING_FREE);
	SpinLockRelease(&worker->mutex);
	return false;
}

bool
shard_ring_slot_taken(ShardRingSlot *slot)
{
	return hand_over(slot, SHARD_RING_TAKEN);
}

bool
shard_ring_slot_waits(ShardRingSlot *slot, uint32 generation)
{
	ShardWorkerSlot *worker = shard_shmem_my_worker();
	bool waits;

	SpinLockAcquire(&worker->mutex);
	waits = slot->generation == generation && slot->state == SHARD_RING_TAKEN;
	SpinLockRelease(&worker->mutex);
	return waits;
}

void
shard_ring_slot_note(ShardRingSlot *slot, uint32 generation, const char *why, const char *cause)
{
	ShardWorkerSlot *worker = shard_shmem_my_worker();

	SpinLockAcquire(&worker->mutex);
	if (slot->generation == generation && slot->state == SHARD_RING_TAKEN)
	{
		shard_text_copy(slot->why, why, sizeof(slot->why));
		shard_text_copy(slot->cause, cause, sizeof(slot->cause));
	}
	SpinLockRelease(&worker->mutex);
}

bool
shard_ring_slot_begin(ShardRingSlot *slot, uint32 generation)
{
	ShardWorkerSlot *worker = shard_shmem_my_worker();
	bool waits;

	SpinLockAcquire(&worker->mutex);
	waits = slot->generation == generation && slot->state == SHARD_RING_TAKEN;
	if (waits)
		slot->begun = true;
	SpinLockRelease(&worker->mutex);
	return waits;
}

void
shard_ring_slot_unbegin(ShardRingSlot *slot, uint32 generation)
{
	ShardWorkerSlot *worker = shard_shmem_my_worker();

	SpinLockAcquire(&worker->mutex);
	if (slot->generation == generation && slot->state == SHARD_RING_TAKEN)
		slot->begun = false;
	SpinLockRelease(&worker->mutex);
}

void
shard_ring_slot_defer(ShardRingSlot *slot, uint32 generation, ShardUuid key)
{
	ShardWorkerSlot *worker = shard_shmem_my_worker();

	SpinLockAcquire(&worker->mutex);
	if (slot->generation == generation && slot->state == SHARD_RING_TAKEN)
	{
		slot->deferred = true;
		slot->key = key;
	}
	SpinLockRelease(&worker->mutex);
}

/*
 * Whether the ask is the one that the slot has now. Another ask of the same backend has another generation, and after a
 * restart of the server, which begins generations anew, another key. Under the mutex.
 */
static inline bool
is_it(const ShardRingSlot *slot, const ShardRingLater *ask)
{
	bool same = slot->state == SHARD_RING_TAKEN && slot->deferred &&
				slot->type_id == ask->type_id && slot->shard == ask->shard;

#ifndef SHARD_MUTANT_REPLY_TO_NEXT
	same = same && slot->generation == ask->generation;
#ifndef SHARD_MUTANT_REPLY_UNKEYED
	same = same && slot->key.high == ask->key.high && slot->key.low == ask->key.low;
#endif
#endif
	return same;
}

bool
shard_ring_slot_is_open(ShardDatabase *db, const ShardWorkerSlot *worker, const ShardRingLater *ask)
{
	ShardRingSlot *slot;
	ShardWorkerSlot *owner;
	int target;
	bool open;

	if (ask->slot < 0 || ask->slot >= slot_count())
		return false;
	slot = &slots[ask->slot];
	target = *(volatile int *) &slot->target;
	if (target < 0 || target / SHARD_WORKER_SLOTS != shard_shmem_database_index(db))
		return false;
	owner = &db->worker[target % SHARD_WORKER_SLOTS];
	if (worker != NULL && owner != worker)
		return false;
	SpinLockAcquire(&owner->mutex);
	open = slot->target == target && !is_orphan(slot, owner) && is_it(slot, ask);
	SpinLockRelease(&owner->mutex);
	return open;
}

int
shard_ring_slot_next_open(ShardDatabase *db, int worker, int from, uint32 *generation)
{
	ShardWorkerSlot *owner = &db->worker[worker];
	int target = target_of(db, worker);

	for (int i = from; i < slot_count(); i++)
	{
		ShardRingSlot *slot = &slots[i];
		bool open;

		if (slot->target != target || !slot->deferred)
			continue;
		SpinLockAcquire(&owner->mutex);
		open = slot->target == target && slot->deferred && slot->state == SHARD_RING_TAKEN &&
			   !is_orphan(slot, owner);
		*generation = slot->generation;
		SpinLockRelease(&owner->mutex);
		if (open)
			return i;
	}
	return -1;
}

bool
shard_ring_slot_is_deferred(ShardRingSlot *slot)
{
	ShardWorkerSlot *worker = worker_of(slot);
	bool deferred;

	SpinLockAcquire(&worker->mutex);
	deferred = slot->deferred && slot->state == SHARD_RING_TAKEN;
	SpinLockRelease(&worker->mutex);
	return deferred;
}

/*
 * A slot of this generation was taken by this worker alone, so this worker's mutex is the right one; and if the
 * generation has risen, any answer is "no".
 */
bool
shard_ring_slot_claim(ShardRingSlot *slot, uint32 generation)
{
	ShardWorkerSlot *worker = shard_shmem_my_worker();
	bool claimed;

	SpinLockAcquire(&worker->mutex);
	claimed = slot->generation == generation && slot->state == SHARD_RING_TAKEN;
	if (claimed)
		step(slot, SHARD_RING_REPLYING);
	SpinLockRelease(&worker->mutex);
	if (claimed)
		shard_ring_body_clear(&slot->reply);
	return claimed;
}

void
shard_ring_slot_done(ShardRingSlot *slot)
{
	if (hand_over(slot, SHARD_RING_DONE))
		SetLatch(&GetPGProcByNumber(shard_ring_slot_number(slot))->procLatch);
}

/*
 * Settles one slot for a worker that ends. Returns whether the slot is free of
 * it at once; if not, it was abandoned, and its reply is to be dropped.
 */
static bool
release_one(ShardRingSlot *slot, ShardWorkerSlot *worker)
{
	bool untouched =
		slot->state == SHARD_RING_TAKING ||
		(slot->state == SHARD_RING_TAKEN && slot->kind == SHARD_REQUEST_ASK && !slot->begun);

	if (untouched)
	{
		/* for the next worker; the asker takes it to another one if that has its lane then */
		step(slot, SHARD_RING_SUBMITTED);
		link_newest(slot, worker);
		return true;
	}
	switch (slot->state)
	{
		case SHARD_RING_TAKEN:
		case SHARD_RING_REPLYING:
			step(slot, SHARD_RING_LOST);
			return true;
		default:
			return slot->state != SHARD_RING_ABANDONED;
	}
}

void
shard_ring_slot_release(ShardDatabase *db, int worker)
{
	ShardWorkerSlot *owner = &db->worker[worker];
	int target = target_of(db, worker);

	for (int i = 0; i < slot_count(); i++)
	{
		ShardRingSlot *slot = &slots[i];
		bool released = true;

		/* a slot comes to this worker, or leaves it in these states, only under this worker's mutex */
		if (slot->target != target)
			continue;
		SpinLockAcquire(&owner->mutex);
		if (slot->target == target)
			released = release_one(slot, owner);
		SpinLockRelease(&owner->mutex);
		if (!released)
			(void) hand_over(slot, SHARD_RING_FREE);
		SetLatch(&GetPGProcByNumber(i)->procLatch);
	}
}

const ShardShmemPart shard_ring_slot_part = {
	.size = shmem_size,
	.startup = startup,
};
