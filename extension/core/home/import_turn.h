/*
 * core/home/import_turn.h
 *		Whose shard a target copies next (doc/protocol.md M24, M27).
 */
#pragma once

/*
 * Copies at a time. More would only share the disks, and a shard that is being copied stands still. The coordinator decides as
 * many moves towards one node, and not more before one is over: the others wait with their messages still handled; those that
 * wait for long go beside them (homes_place.c).
 */
#define SHARD_IMPORT_COPIES 4

/*
 * Beyond SHARD_IMPORT_COPIES, or, for jobs that only prepare, instead of them: one job of each owner from each home, as long
 * as fewer than SHARD_IMPORT_BY_HOME run; and one job of each owner, as long as fewer than SHARD_IMPORT_BY_OWNER run. So a
 * copy, or a question, that does not end holds up no job of another home or another owner.
 */
#define SHARD_IMPORT_BY_HOME 8
#define SHARD_IMPORT_BY_OWNER 24

/* What a target is at, beside a shard that waits. */
typedef struct ShardImportPlaces
{
	int all;
	int of_owner;  /* of the same owner as the one that waits; */
	int from_home; /* and from the same home, too */
} ShardImportPlaces;

/* May a waiting job begin beside all others, in a place of its own? taken: the jobs that run. */
extern bool shard_import_own_place(const ShardImportPlaces *taken);

typedef struct ShardImportJob
{
	uint32 owner; /* of the type; 0: not known */
	int32 home;	  /* where the shard is */
	bool rows;	  /* it copies; else it prepares */
	bool failed;  /* a job of that owner from that home has failed lately: other jobs come first */
} ShardImportJob;

/*
 * Which of the waiting jobs begins next, the oldest of them first; -1: none may now. One owner prepares one shard at a time
 * from a home, and copies in the last of the first places only if no other owner's job waits for it.
 */
extern int shard_import_turn(const ShardImportJob *running, int n_running,
							 const ShardImportJob *waiting, int n_waiting, bool rows);
