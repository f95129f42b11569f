/*
 * base/clock.c
 *		The clock of time-outs, back-offs and leases.
 */
#include "postgres.h"

#include <time.h>

#include "base/clock.h"

#include "base/compat.h"

int64
shard_clock_now(void)
{
	struct timespec now;

	(void) clock_gettime(CLOCK_BOOTTIME, &now);
	return (int64) now.tv_sec * INT64CONST(1000000) + now.tv_nsec / 1000;
}
