/*
 * shared/ring.h
 *		Requests from a backend to a worker and their replies.
 *
 * One slot per backend, in shared memory, so a backend has one request under
 * way at most. A worker's submitted slots form a list (ShardWorkerSlot
 * ask_head). Small bodies lie in the slot, larger ones in a DSM segment made
 * by their sender.
 */
#pragma once

#include "access/xlogdefs.h"
#include "nodes/pg_list.h"
#include "utils/timestamp.h"

#include "core/base/wire.h"
#include "shared/shmem.h"

typedef enum ShardRequestKind
{
	SHARD_REQUEST_ASK,		/* a message for an entity, payload = jsonb body */
	SHARD_REQUEST_ENTITIES, /* rows of shard_region_state, see shard_report_append() */
	SHARD_REQUEST_STATS,	/* rows of shard_region_stats */
	SHARD_REQUEST_PEERS,	/* rows of shard_peers, see shard_transport_report() */
	SHARD_REQUEST_ACCEPT,	/* shard_link_accept(): takes a node in (link_accept.c) */
	/* to the control worker (control.h) */
	SHARD_REQUEST_CONTROL,
	SHARD_REQUEST_COMMAND,
	SHARD_REQUEST_MEMBERS
} ShardRequestKind;

/* A request as its worker took it: a private copy. */
typedef struct ShardRequest
{
	int slot;
	uint32 generation; /* of the slot: an answer to another generation is dropped */
	ShardRequestKind kind;
	int64 after;	  /* to be executed when the scan has passed this seq */
	bool tagged;	  /* of a peer: its shard must be active here in this epoch, ... */
	int32 epoch;	  /* ... or the answer is SHARD_RING_NOT_HERE */
	int64 timeout_us; /* how long the asker waits, from the submission on */
	int32 type_id;
	int32 shard;
	int entity_len;
	char entity[SHARD_MAX_ENTITY_ID + 1];
	const char *type_name; /* of an ask, for the asker's errors; not known to the worker */
	int64 patience_us;	   /* the asker waits this much longer for an ask that has begun */
	char *payload;		   /* palloc'd; NULL if none */
	int payload_len;
} ShardRequest;

/* The ring's part of shared memory. */
extern const ShardShmemPart shard_ring_slot_part;

/*
 * Worker: takes all submitted requests, oldest first, as ShardRequest * in
 * context. Those taken by a predecessor of this worker that died are answered
 * "outcome unknown" at attach.
 */
extern List *shard_ring_take(ShardDatabase *db, int worker, MemoryContext context);
extern void shard_ring_attach(ShardDatabase *db, int worker);

/* Worker: whether the asker of a taken request still waits. */
extern bool shard_ring_alive(const ShardRequest *request);

/*
 * Worker: what an ask waits for, as a sentence for the error of an ask whose time runs out. It is cut at SHARD_RING_WHY
 * bytes, and names no addresses.
 */
#define SHARD_RING_WHY 400
extern void shard_ring_note(const ShardRequest *request, const char *why);

/*
 * The same with its cause, which may name addresses: it follows the sentence, for those askers alone that may read all
 * statistics. "": none. It is cut at SHARD_RING_CAUSE bytes.
 */
#define SHARD_RING_CAUSE 256
extern void shard_ring_note_cause(const ShardRequest *request, const char *why, const char *cause);

/*
 * Worker, before it executes a request: whether the asker still waits; if so, the asker cannot withdraw the request any
 * more. May be called again, after an abort.
 */
extern bool shard_ring_begin(const ShardRequest *request);

/* Worker: the request was certainly not executed, so the asker may withdraw it again. */
extern void shard_ring_unbegin(const ShardRequest *request);

/*
 * Worker, after commit: answers. lsn: the asker flushes WAL up to it, and waits for the gate there, before it believes
 * the answer; InvalidXLogRecPtr if the answer depends on no commit. data NULL: SQL NULL. An answer whose asker has
 * stopped waiting is dropped. The one possible error is lack of memory.
 */
extern void
shard_ring_reply(const ShardRequest *request, const char *data, int len, XLogRecPtr lsn);
extern void
shard_ring_reply_error(const ShardRequest *request, const ErrorData *error, XLogRecPtr lsn);

/* Worker: the answer to a tagged ask that its shard is not active here in that epoch. */
extern void shard_ring_reply_not_here(const ShardRequest *request);

/*
 * An ask whose reply comes later (ring_later.c). It stays in its slot, which is all that there is of it: so there are
 * never more of them than backends, and with the asker the ask is gone. key: random, made for this ask alone.
 */
typedef struct ShardRingLater
{
	int slot;
	uint32 generation;
	int32 type_id;
	int32 shard;
	ShardUuid key;
} ShardRingLater;

/* Worker, after the commit, instead of a reply: the ask stays open. */
extern void shard_ring_defer(const ShardRequest *request, ShardUuid key);

/* Any process: whether the ask is open at a worker of this database. */
extern bool shard_ring_is_open(ShardDatabase *db, const ShardRingLater *ask);

/* Worker, after a commit: as shard_ring_reply() for an ask that is open here. False: it is not. */
extern bool
shard_ring_reply_later(const ShardRingLater *ask, const char *data, int len, XLogRecPtr lsn);

/* Any process: how many asks are open at a worker. */
extern int shard_ring_count_open(ShardDatabase *db, int worker);

/* Worker: answers all that are open here with an error. */
extern void shard_ring_fail_open(ShardDatabase *db, int worker, const ErrorData *error);

/*
 * Backend: submits a request to a worker and waits for the answer, which is palloc'd (NULL: SQL NULL). Raises the
 * worker's error with its SQLSTATE, message, detail, hint and context; a time-out, a cancel or the worker's death after
 * it took the request is reported as "outcome unknown". If a tagged ask was refused, and so certainly not executed,
 * returns NULL with *len = SHARD_RING_NOT_HERE.
 */
#define SHARD_RING_NOT_HERE (-2)
extern char *shard_ring_call(ShardDatabase *db, int worker, const ShardRequest *request,
							 int64 timeout_us, int *len);
