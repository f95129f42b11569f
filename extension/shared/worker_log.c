/*
 * shared/worker_log.c
 *		What a worker's lines in the server's log say beside the message.
 *
 * log_line_prefix knows no database of a background worker, and one server may have many nodes. So each
 * line names it, as context; only in the log, not in what an asker gets. A worker that is terminated is
 * told by the server that an administrator did it: the reason stands in its slot.
 */
#include "postgres.h"

#include <signal.h>

#include "commands/dbcommands.h"
#include "miscadmin.h"
#include "utils/memutils.h"

#include "shared/worker_log.h"
#include "core/base/text.h"

#include "base/compat.h"

const char *volatile shard_worker_log_why = NULL;
volatile sig_atomic_t shard_worker_log_self = false;
void (*shard_worker_log_fatal)(const ErrorData *error) = NULL;

static emit_log_hook_type next_hook = NULL;
static char *context = NULL; /* of each line */

/*
 * Why this process is being ended, palloc'd; NULL: no reason was given.
 */
static char *
reason(void)
{
	ShardWorkerSlot *slot = shard_shmem_my_worker();
	char why[sizeof(slot->why)] = "";

	if (shard_worker_log_why != NULL)
		return pstrdup(shard_worker_log_why);
	if (slot != NULL)
	{
		SpinLockAcquire(&slot->mutex);
		shard_text_copy(why, slot->why, sizeof(why));
		SpinLockRelease(&slot->mutex);
	}
	return why[0] != '\0' ? pstrdup(why) : NULL;
}

/*
 * Hook of each line for the log; runs in the error's own memory context.
 */
static void
complete(ErrorData *error)
{
	if (error->elevel == FATAL && error->sqlerrcode == ERRCODE_ADMIN_SHUTDOWN &&
		error->detail == NULL && error->detail_log == NULL)
	{
		char *why = reason();

		if (why != NULL)
			error->detail_log = psprintf("It was ended because %s.", why);
	}
	error->context =
		error->context != NULL ? psprintf("%s\n%s", error->context, context) : pstrdup(context);
	if (error->elevel >= FATAL && shard_worker_log_fatal != NULL)
		shard_worker_log_fatal(error);
	if (next_hook != NULL)
		next_hook(error);
}

void
shard_worker_log_begin(const char *process)
{
	char *database = get_database_name(MyDatabaseId);

	if (context != NULL || database == NULL)
		return;
	context =
		MemoryContextStrdup(TopMemoryContext, psprintf("%s of database \"%s\"", process, database));
	next_hook = emit_log_hook;
	emit_log_hook = complete;
}

pid_t
shard_worker_log_terminate(ShardWorkerSlot *slot, const char *why)
{
	char text[sizeof(slot->why)];
	pid_t pid;

	shard_text_copy(text, why, sizeof(text));
	/* Under the mutex: the worker that has the slot now is alive, so the pid is that worker's. */
	SpinLockAcquire(&slot->mutex);
	pid = slot->in_use ? slot->pid : 0;
	if (pid != 0)
	{
		memcpy(slot->why, text, sizeof(text));
		(void) kill(pid, SIGTERM);
	}
	SpinLockRelease(&slot->mutex);
	return pid;
}

void
shard_worker_log_end(void)
{
	char *why = reason();

	if (why != NULL)
		ereport(LOG, (errmsg("shard: this worker ends"),
					  errdetail_internal("It was ended because %s.", why)));
}
