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

/* Its part of shared memory. */
extern const ShardShmemPart shard_visitor_part;

/*
 * First thing in each procedure that other nodes call: notes that this backend serves one. Ends it
 * while a bar stands.
 */
extern void shard_visitor_here(void);

/* Has another node called in this process? */
extern bool shard_visitor_is_here(void);

/* Is that process one in which another node calls, or will? */
extern bool shard_visitor_is(int pid);

/* Asks those of a database to end; returns how many are there still. */
extern int shard_visitor_end(Oid dboid);

/* What a backend runs for the owner of a type, as the control worker asked it to (strategy.c). */
typedef struct ShardVisitorRun
{
	Oid owner;
	int32 type_id;
	TimestampTz since;
	int pid;
} ShardVisitorRun;

/* This backend, which is noted, begins to run a type's functions, or has ended. */
extern void shard_visitor_runs_for(Oid owner, int32 type_id);
extern void shard_visitor_runs_for_nobody(void);

/* The next backend of a database that does, from place *at, at first 0; false: there is none. */
extern bool shard_visitor_next_run(Oid dboid, int *at, ShardVisitorRun *run);
