/*
 * core/member/downing_timer.c
 *		When to decide about downing: once the view has been at rest for a time.
 *
 * Reachability, a member that comes up and one that exits start the wait anew. Joining, leaving and
 * removal do not: the strategies allow for them. A membership that does not come to rest must not go
 * on for ever either: while some member that counts is unreachable, all the time since the first one
 * became so, everybody gives up after stable_after and three quarters of it, at least 4 s, more.
 * Members that are down or exiting are no reason for either.
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "core/member/downing.h"

#define MIN_UNSTABLE (4 * SHARD_SECOND)

void
shard_downing_timer_init(ShardDowningTimer *timer, const ShardDowningSettings *settings, int64 now)
{
	memset(timer, 0, sizeof(*timer));
	timer->stable_after = settings->stable_after;
	if (settings->down_all_if_unstable)
		timer->unstable_after =
			settings->stable_after + Max(settings->stable_after / 4 * 3, MIN_UNSTABLE);
	timer->now = now;
	timer->stable_at = now + settings->stable_after;
}

/* What an unreachable member gives reason for. */
typedef struct Reasons
{
	bool decide;  /* it can be downed */
	bool give_up; /* and counts: newcomers that come and go endanger nobody */
} Reasons;

/* Place of a node in the last view, -1 if it was not there. */
static int
remembered(const ShardDowningTimer *timer, int32 node)
{
	for (int i = 0; i < timer->n_members; i++)
		if (timer->members[i].node == node)
			return i;
	return -1;
}

/*
 * Whether a member differs from the last view so that the wait begins anew. Being downed counts as
 * becoming unreachable.
 */
static bool
has_changed(const ShardDowningTimer *timer, int32 node, ShardMemberStatus status, bool unreachable)
{
	int last = remembered(timer, node);
	bool was_unreachable = last >= 0 && timer->members[last].unreachable;
	ShardMemberStatus was = last >= 0 ? timer->members[last].status : SHARD_MEMBER_NONE;

	return unreachable != was_unreachable ||
		   (status != was && (status == SHARD_MEMBER_UP || status == SHARD_MEMBER_EXITING));
}

/* Find what changed since the last view, and remember this one. */
static Reasons
take_view(ShardDowningTimer *timer, const ShardDowningView *view, bool *restart)
{
	ShardDowningTimer last = *timer;
	Reasons reasons = {false, false};
	uint64 cut_off = shard_downing_unreachable(view);

	timer->n_members = view->n_members;
	for (int i = 0; i < view->n_members; i++)
	{
		const ShardDowningMember *member = &view->members[i];
		bool unreachable = (cut_off >> i & 1) != 0 || member->status == SHARD_MEMBER_DOWN;

		if (has_changed(&last, member->node, member->status, unreachable))
			*restart = true;
		if (unreachable && member->status >= SHARD_MEMBER_JOINING &&
			member->status <= SHARD_MEMBER_LEAVING)
		{
			reasons.decide = true;
			if (member->status >= SHARD_MEMBER_UP)
				reasons.give_up = true;
		}
		timer->members[i].node = member->node;
		timer->members[i].status = member->status;
		timer->members[i].unreachable = unreachable;
	}
	return reasons;
}

ShardDowningVerdict
shard_downing_timer_step(ShardDowningTimer *timer, const ShardDowningView *view, bool leader,
						 int64 now, int64 *next)
{
	bool restart = false;
	Reasons reasons = take_view(timer, view, &restart);
	bool gives_up = reasons.give_up && timer->unstable_after > 0;

	timer->now = now = Max(timer->now, now);
	if (restart)
		timer->stable_at = now + timer->stable_after;
	if (reasons.give_up && !timer->changing)
		timer->first_change = now;
	timer->changing = reasons.give_up;

	*next = PG_INT64_MAX;
	if (gives_up && now >= timer->first_change + timer->unstable_after)
		return SHARD_DOWNING_GIVE_UP;
	if (reasons.decide && leader && now >= timer->stable_at)
		return SHARD_DOWNING_DECIDE;

	if (gives_up)
		*next = timer->first_change + timer->unstable_after;
	if (reasons.decide && leader)
		*next = Min(*next, timer->stable_at);
	return SHARD_DOWNING_WAIT;
}

void
shard_downing_timer_acted(ShardDowningTimer *timer, int64 now)
{
	timer->now = Max(timer->now, now);
	timer->stable_at = timer->now + timer->stable_after;
	timer->changing = false;
}
