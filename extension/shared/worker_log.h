/*
 * shared/worker_log.h
 *		What a worker's lines in the server's log say beside the message: its database, and why it ends.
 */
#pragma once

#include <signal.h>

#include "shared/shmem.h"

/* Why this process is about to end itself; may be set in a signal handler, to a constant. */
extern const char *volatile shard_worker_log_why;

/* This process was told to end by itself: code of users that it runs did so. Set in a signal handler. */
extern volatile sig_atomic_t shard_worker_log_self;

/* Called with each error that ends the process, or the server, before it does; NULL: no function is called. */
extern void (*shard_worker_log_fatal)(const ErrorData *error);

/* From now on lines of this process name it and its database. In a transaction. */
extern void shard_worker_log_begin(const char *process);

/*
 * Terminates the process that has the slot; the last line of that process in the log says why. Returns its pid; 0:
 * there is none.
 */
extern pid_t shard_worker_log_terminate(ShardWorkerSlot *slot, const char *why);

/* Logs why this process ends, if a reason was given; for where it ends without an error. */
extern void shard_worker_log_end(void);
