/*
 * registry/guest_timer.c
 *		How long a guest may stay: the handler_timeout of its type, and in a worker of another owner not that long.
 *
 * When the time is over the query is cancelled, and again at each tick, should the guest catch it. In the session of a
 * client, and in one in which a node calls, no other process would end that: the session ends itself, as by
 * pg_terminate_backend(), when the guest goes on for much longer. In a worker that is the matter of the handler's own
 * timer (call.c).
 */
#include "postgres.h"

#include "access/xact.h"
#include "miscadmin.h"
#include "storage/latch.h"
#include "utils/timeout.h"
#include "utils/timestamp.h"

#include "registry/guest_timer.h"
#include "registry/owner_session.h"
#include "shared/visitor.h"

#include "base/compat.h"

#define TICK_MS 50

/* The session ends when a guest stays for this multiple of its handler_timeout, and for at least this time. */
#define OVERDUE_TIMES 4
#define OVERDUE_MS 10000

static TimeoutId timer;

/* When the time of the first guest that must go ends; 0: no guest is here. */
static TimestampTz ends_at = 0;

static volatile sig_atomic_t timed_out = false;
static volatile sig_atomic_t ticks_left = 0; /* until the session ends; negative: it does not */

/* In the signal handler. */
static void
on_tick(void)
{
	timed_out = true;
	InterruptPending = true;
	QueryCancelPending = true;
	if (ticks_left > 0 && --ticks_left == 0)
		ProcDiePending = true;
	SetLatch(MyLatch);
}

static void
start(TimestampTz at)
{
	ends_at = at;
	enable_timeout_every(timer, at, TICK_MS);
}

/* The time of a guest that has ended is not that of the next one. */
static void
forget(void)
{
	if (timed_out)
		QueryCancelPending = false;
	timed_out = false;
}

/* An error takes all guests away with the transaction, also where no call says so. */
static void
transaction_changed(XactEvent event, void *arg)
{
	if (event != XACT_EVENT_ABORT || ends_at == 0)
		return;
	disable_timeout(timer, false);
	ends_at = 0;
	forget();
}

static void
make_timer(void)
{
	static bool registered = false;

	if (likely(registered))
		return;
	timer = RegisterTimeout(USER_TIMEOUT, on_tick);
	RegisterXactCallback(transaction_changed, NULL);
	registered = true;
}

TimestampTz
shard_guest_timer_begin_for(int64 allowed_ms, int64 more_ms)
{
	TimestampTz begun = ends_at;
	TimestampTz end = TimestampTzPlusMilliseconds(GetCurrentTimestamp(), allowed_ms);
	int ticks = more_ms < 0 ? -1 : (int) Min(more_ms / TICK_MS + 1, PG_INT32_MAX);

	make_timer();
	if (begun != 0 && begun <= end)
		return begun;
	/* a guest that is here already does not get more time by guests of its own */
	if (begun == 0 || ticks_left < 0)
		ticks_left = ticks;
	else if (ticks >= 0)
		ticks_left = Min(ticks_left, ticks);
	start(end);
	return begun;
}

bool
shard_guest_timer_is_worker(void)
{
	return shard_owner_session_is_owners() && !shard_visitor_is_here();
}

TimestampTz
shard_guest_timer_begin(const ShardType *type, bool stranger)
{
	int64 allowed_ms = type->handler_timeout / 1000;
	int64 more_ms = Max((OVERDUE_TIMES - 1) * allowed_ms, OVERDUE_MS - allowed_ms);
	bool worker = shard_guest_timer_is_worker();

	if (worker && stranger)
		allowed_ms = Min(allowed_ms, SHARD_GUEST_STRANGER_MS);
	return shard_guest_timer_begin_for(allowed_ms, worker ? -1 : more_ms);
}

bool
shard_guest_timer_end(TimestampTz begun)
{
	bool late = timed_out;

	/* the guest that was here before has less time */
	if (begun != 0 && begun == ends_at)
		return late;
	if (begun == 0)
		disable_timeout(timer, false);
	else
		start(begun);
	if (begun == 0)
		ends_at = 0;
	forget();
	return late;
}
