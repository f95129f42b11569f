/*
 * log/log_seq.c
 *		Where the numbers of a log begin after a start (D8).
 *
 * Comes from: log.c, when the shared state is filled. The number of a row is the id of its message, which handlers may
 * keep outside as the key of an effect, so none is given twice. Nor in another life of these data: in a database that
 * was made from a dump, after the extension was dropped and made anew, or while the node was alone, under the number of
 * another one. A life gives less than 16 million numbers a second on average, so they stay below what the clock says, at
 * which the next life begins. What could lead to the same number again is a clock that was put back, or two lives that
 * begin within a second and go on for 16 million messages.
 *
 * If the process dies right here: nothing is written, and the next one begins at no lower number.
 */
#include "postgres.h"

#include "utils/timestamp.h"

#include "log/log_seq.h"

#include "base/compat.h"

/*
 * Left out at each server start: a crash may have lost rows that were not flushed, but whose numbers clients have seen
 * already as message ids.
 */
#define RESTART_GAP (INT64CONST(1) << 24)

/* 2020-01-01 as a timestamp. */
#define SEQ_EPOCH (7305 * USECS_PER_DAY)
#define SEQS_A_MICROSECOND 16

int64
shard_log_first_seq(int64 last)
{
	int64 least = last == 0 ? 1 : last + RESTART_GAP;

#ifdef SHARD_MUTANT_SEQ_FROM_ONE
	return least;
#endif
	return Max(least, (GetCurrentTimestamp() - SEQ_EPOCH) * SEQS_A_MICROSECOND);
}
