/*
 * base/attempt.c
 *		What may fail without the transaction failing, and errors that outlive it.
 */
#include "postgres.h"

#include "access/xact.h"
#include "utils/memutils.h"
#include "utils/resowner.h"

#include "base/attempt.h"
#include "base/error_text.h"

#include "base/compat.h"

ErrorData *
shard_attempt(void (*function)(void *argument), void *argument)
{
	MemoryContext caller = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	ErrorData *volatile error = NULL;

	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(caller);
	PG_TRY();
	{
		function(argument);
		ReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(caller);
		error = CopyErrorData();
		FlushErrorState();
		shard_error_text_cut(error);
		RollbackAndReleaseCurrentSubTransaction();
	}
	PG_END_TRY();
	MemoryContextSwitchTo(caller);
	CurrentResourceOwner = owner;
	return error;
}

ErrorData *
shard_attempt_take_error(void)
{
	MemoryContext context =
		AllocSetContextCreate(TopMemoryContext, "shard error", ALLOCSET_SMALL_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	ErrorData *error = CopyErrorData();

	MemoryContextSwitchTo(old);
	FlushErrorState();
	shard_error_text_cut(error);
	return error;
}

void
shard_attempt_free_error(ErrorData *error)
{
	MemoryContextDelete(error->assoc_context);
}
