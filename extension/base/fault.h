/*
 * base/fault.h
 *		Points at which tests have a process die, stop or fail.
 *
 * Only in builds with SHARD_ASSERTIONS; other builds have no fault points. shard.fault_point names one point and what
 * happens there, "import_before_commit crash": crash (kill -9: the server restarts), abort (as a failed assertion),
 * exit (FATAL), freeze (SIGSTOP to itself) or error. The fault happens once: file shard_fault.<point> in the data
 * directory, made just before the fault, keeps it from happening again until the test removes the file. Set for the
 * server, or by ALTER DATABASE ... SET for processes of one database that start from then on.
 *
 * shard_fault_step() is for a durable step of a turn. It is two points: NAME, right there, and NAME_committed, after the
 * turn's commit, which is on disk then.
 */
#pragma once

#ifdef SHARD_ASSERTIONS
extern PGDLLIMPORT char *shard_fault_point;
extern void shard_fault_reached(const char *point);
#define shard_fault(point) \
	do \
	{ \
		if (shard_fault_point != NULL && shard_fault_point[0] != '\0') \
			shard_fault_reached(point); \
	} while (0)
#define shard_fault_step(point) \
	do \
	{ \
		if (shard_fault_point != NULL && shard_fault_point[0] != '\0') \
			shard_fault_step_reached(point); \
	} while (0)
extern void shard_fault_step_reached(const char *point);
extern void shard_fault_turn_over(bool committed);
#else
#define shard_fault(point) ((void) 0)
#define shard_fault_step(point) ((void) 0)
#define shard_fault_turn_over(committed) ((void) 0)
#endif

/* Defines the setting, if there is one; from guc.c. */
extern void shard_fault_define(void);
