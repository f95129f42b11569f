/*
 * base/nap.c
 *		A sleep of a backend that waits for another process.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/latch.h"
#include "utils/wait_event.h"

#include "base/nap.h"

#include "base/compat.h"

void
shard_nap_until(long milliseconds, uint32 wait_event)
{
	(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, milliseconds,
					 wait_event);
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
}
