/*
 * core/import_turn.h
 *		Whose shard a target copies next (doc/protocol.md M27).
 */
#pragma once

/* Copies at a time. More would only share the disks, and a shard that is being copied stands still. */
#define SHARD_IMPORT_COPIES 4

/* Those that only prepare, which moves wait for a few seconds only: one of each owner, so that so many owners may be slow. */
#define SHARD_IMPORT_PREPARES 4

typedef struct ShardImportJob
{
	uint32 owner; /* of the type; 0: not known */
	bool rows;	  /* it copies; else it prepares */
	bool failed;  /* one of that owner has failed lately: others come first */
} ShardImportJob;

/*
 * Which of those that wait begins next, the oldest of them first; -1: none may now. One owner prepares one shard at a time, and
 * copies in the last free place only if nobody else waits for it.
 */
extern int shard_import_turn(const ShardImportJob *running, int n_running,
							 const ShardImportJob *waiting, int n_waiting, bool rows);
