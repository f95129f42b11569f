/*
 * base/nap.h
 *		A sleep of a backend that waits for another process.
 */
#pragma once

/*
 * Sleeps until the latch is set, for this many milliseconds at most, and then lets a cancel or the end of the process
 * come through as an error. The caller holds no snapshot and no lock meanwhile. name: of the wait event; evaluated
 * once.
 */
#define shard_nap(milliseconds, name) \
	do \
	{ \
		static uint32 nap_event = 0; \
\
		if (nap_event == 0) \
			nap_event = ShardWaitEvent(name); \
		shard_nap_until(milliseconds, nap_event); \
	} while (0)

/* The same with a wait event that the caller keeps. */
extern void shard_nap_until(long milliseconds, uint32 wait_event);
