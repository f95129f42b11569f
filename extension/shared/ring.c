/*
 * shared/ring.c
 *		Requests from a backend to a region worker and their replies.
 *
 * The backend writes its request into its slot, puts that into the worker's queue, and waits on its latch
 * (ring_call.c). The worker takes its queue at the start of a turn and answers after the turn's commit: this file.
 * States of a slot, and which process may touch it: ring_private.h.
 *
 * What a death leaves behind. Asker: before_shmem_exit gives its request up.
 * Worker: requests that it had taken are lost, those in its queue wait for the
 * next worker. A process that does not get to its exit callbacks takes the
 * server down, and the ring with it.
 */
#include "postgres.h"

#include "storage/ipc.h"
#include "utils/memutils.h"

#include "shared/ring.h"
#include "shared/ring_private.h"

#include "base/compat.h"

/*
 * At exit: settles the requests that this worker has taken.
 */
static void
release_at_exit(int code, Datum arg)
{
	shard_ring_slot_release(shard_shmem_database(), DatumGetInt32(arg));
}

/*
 * After the worker has attached to its slot in shared memory: settles the requests that a predecessor left, and
 * registers the same for the exit of this worker.
 */
void
shard_ring_attach(ShardDatabase *db, int worker)
{
	shard_ring_slot_release(db, worker);
	before_shmem_exit(release_at_exit, Int32GetDatum(worker));
}

/*
 * A private copy of a request, in the current memory context; NULL if the
 * owner gave up meanwhile or memory was short, which the owner is told.
 */
static ShardRequest *
copy_request(ShardRingSlot *slot)
{
	MemoryContext context = CurrentMemoryContext;
	ShardRequest *request = palloc0(sizeof(ShardRequest));
	ErrorData *volatile failure = NULL;

	request->slot = shard_ring_slot_number(slot);
	request->generation = slot->generation;
	request->kind = slot->kind;
	request->after = slot->after;
	request->tagged = slot->tagged;
	request->epoch = slot->epoch;
	request->timeout_us = slot->timeout_us;
	request->type_id = slot->type_id;
	request->shard = slot->shard;
	request->entity_len = slot->entity_len;
	memcpy(request->entity, slot->entity, slot->entity_len);
	PG_TRY();
	{
		(void) shard_ring_body_read(&slot->request, &request->payload, &request->payload_len);
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(context);
		failure = CopyErrorData();
		FlushErrorState();
	}
	PG_END_TRY();

	if (!shard_ring_slot_taken(slot))
		return NULL;
	if (failure == NULL)
		return request;
	shard_ring_reply_error(request, failure, InvalidXLogRecPtr);
	return NULL;
}

/* More bytes than most requests of the control plane have. */
#define LARGE (1024 * 1024)

/*
 * Takes all requests of the worker's queue. The ones that come meanwhile are
 * taken too; each backend has one, so there is an end.
 */
List *
shard_ring_take(ShardDatabase *db, int worker, MemoryContext context)
{
	List *requests = NIL;
	ShardRingSlot *slot;
	MemoryContext old;

	if (*((volatile int *) &db->worker[worker].ask_head) < 0)
		return NIL;

	old = MemoryContextSwitchTo(context);
	while ((slot = shard_ring_slot_pop(db, worker)) != NULL)
	{
		ShardRequest *request = copy_request(slot);

		if (request != NULL)
			requests = lappend(requests, request);
		/* Messages of peers are large now and then: not several of them at a time. The worker comes again at once. */
		if (request != NULL && worker == SHARD_CONTROL_WORKER && request->payload_len > LARGE)
			break;
	}
	MemoryContextSwitchTo(old);
	return requests;
}

bool
shard_ring_alive(const ShardRequest *request)
{
	return shard_ring_slot_waits(shard_ring_slot_get(request->slot), request->generation);
}

void
shard_ring_note(const ShardRequest *request, const char *why)
{
	shard_ring_note_cause(request, why, "");
}

void
shard_ring_note_cause(const ShardRequest *request, const char *why, const char *cause)
{
	shard_ring_slot_note(shard_ring_slot_get(request->slot), request->generation, why, cause);
}

bool
shard_ring_begin(const ShardRequest *request)
{
	return shard_ring_slot_begin(shard_ring_slot_get(request->slot), request->generation);
}

void
shard_ring_unbegin(const ShardRequest *request)
{
	shard_ring_slot_unbegin(shard_ring_slot_get(request->slot), request->generation);
}

/*
 * Hands a reply over, if its asker still waits. When memory for a large one is
 * short, the asker gets that as an error instead.
 */
static void
send_reply(const ShardRequest *request, bool failed, const char *data, int len, XLogRecPtr lsn)
{
	ShardRingSlot *slot = shard_ring_slot_get(request->slot);
	MemoryContext context = CurrentMemoryContext;

	if (!shard_ring_slot_claim(slot, request->generation))
		return;
	slot->failed = failed;
	slot->not_here = false;
	slot->lsn = lsn;
	PG_TRY();
	{
		(void) shard_ring_body_write(&slot->reply, data, len, true);
	}
	PG_CATCH();
	{
		ErrorData *error;
		char *packed;
		int packed_len;

		MemoryContextSwitchTo(context);
		error = CopyErrorData();
		FlushErrorState();
		error->detail = "The message was handled, but its reply was too large to be handed over.";
		error->context = NULL; /* the error has to fit into the slot */
		packed = shard_ring_body_pack_error(error, &packed_len);
		slot->failed = true;
		(void) shard_ring_body_write(&slot->reply, packed, Min(packed_len, SHARD_RING_INLINE),
									 true);
	}
	PG_END_TRY();
	shard_ring_slot_done(slot);
}

void
shard_ring_reply(const ShardRequest *request, const char *data, int len, XLogRecPtr lsn)
{
	send_reply(request, false, data, len, lsn);
}

void
shard_ring_reply_error(const ShardRequest *request, const ErrorData *error, XLogRecPtr lsn)
{
	int len;
	char *packed = shard_ring_body_pack_error(error, &len);

	send_reply(request, true, packed, len, lsn);
	pfree(packed);
}

void
shard_ring_reply_not_here(const ShardRequest *request)
{
	ShardRingSlot *slot = shard_ring_slot_get(request->slot);

	if (!shard_ring_slot_claim(slot, request->generation))
		return;
	slot->failed = false;
	slot->not_here = true;
	slot->lsn = InvalidXLogRecPtr;
	shard_ring_slot_done(slot);
}
