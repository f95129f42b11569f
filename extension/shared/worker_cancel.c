/*
 * shared/worker_cancel.c
 *		pg_cancel_backend() of one of our workers.
 */
#include "postgres.h"

#include "tcop/tcopprot.h"

#include "shared/worker_cancel.h"

#include "base/compat.h"

/* SIGINT has come. */
static volatile sig_atomic_t cancelled = false;

void
shard_worker_cancel_handle(SIGNAL_ARGS)
{
	cancelled = true;
	StatementCancelHandler(postgres_signal_arg);
}

bool
shard_worker_cancel_take(void)
{
	bool result = cancelled;

	cancelled = false;
	return result;
}
