/*
 * shared/visitor.h
 *		Backends in which other nodes call: they leave when a statement needs the database without other sessions.
 *
 * DROP DATABASE and its like do not wait for sessions to leave. Our workers leave by themselves (bar.h); the
 * connections of other nodes are sessions of this server, and have to be ended.
 */
#pragma once

#include "shared/shmem.h"

/* The setting by which a link makes itself known as it logs in; from shard_guc_init. */
extern void shard_visitor_define(void);

/* The visitors' part of shared memory. */
extern const ShardShmemPart shard_visitor_part;

/*
 * First thing in each procedure that other nodes call: notes that this backend serves one. Ends it
 * while a bar stands.
 */
extern void shard_visitor_here(void);

/* Whether another node has called in this process. */
extern bool shard_visitor_is_here(void);

/* Whether that process is one in which another node calls, or will call. */
extern bool shard_visitor_is(int pid);

/* Asks the visitors of a database to end; returns how many are still there. */
extern int shard_visitor_end(Oid dboid);

/* A run of functions of a type in a backend, for the type's owner, at the control worker's request (strategy.c). */
typedef struct ShardVisitorRun
{
	Oid owner;
	int32 type_id;
	TimestampTz since;
	int pid;
} ShardVisitorRun;

/* This backend, which is noted already, begins to run a type's functions; or has come back from them. */
extern void shard_visitor_runs_for(Oid owner, int32 type_id);
extern void shard_visitor_runs_for_nobody(void);

/* The next such run in a database, from place *at on, which the caller sets to 0 at first; false: there is none. */
extern bool shard_visitor_next_run(Oid dboid, int *at, ShardVisitorRun *run);
