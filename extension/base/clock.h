/*
 * base/clock.h
 *		The clock of time-outs, back-offs and leases.
 *
 * It says how much time has passed, not what time it is: its microseconds only ever rise, no one can set them, and they
 * run on while the machine sleeps. Times that are stored, shown, or compared between nodes are timestamps
 * (GetCurrentTimestamp()).
 */
#pragma once

/* Microseconds since the machine was started. Cheap: no system call. */
extern int64 shard_clock_now(void);
