/*
 * shared/worker_cancel.h
 *		pg_cancel_backend() of one of our workers: it ends what a handler does, and nothing else.
 */
#pragma once

/* The worker's handler of SIGINT. */
extern void shard_worker_cancel_handle(SIGNAL_ARGS);

/* Whether pg_cancel_backend() was called for this worker since this function was last called. */
extern bool shard_worker_cancel_take(void);
