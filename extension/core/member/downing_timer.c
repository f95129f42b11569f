/*
 * core/member/downing_timer.c
 *		When to decide about downing: once the view has been at rest for a time.
 *
 * Reachability, a member that comes up, one that starts again and one that exits restart the wait. Joining, leaving and removal
 * do not: the strategies allow for them. Members that are down or exiting are no reason to decide. While the membership does
 * not come to rest no member is downed: the side that asks is the coordinator's, which has the majority of the voters and goes
 * on.
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "core/member/downing.h"

void
shard_downing_timer_init(ShardDowningTimer *timer, const ShardDowningSettings *settings, int64 now)
{
	memset(timer, 0, sizeof(*timer));
	timer->stable_after = settings->stable_after;
	timer->now = now;
	timer->stable_at = now + settings->stable_after;
}

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
 * Whether a member differs from the last view so that the wait restarts. Being downed counts as becoming
 * unreachable. One that was a member and joins has started again: it was not heard yet, and without a new wait it
 * would be downed before it can be heard.
 */
static bool
has_changed(const ShardDowningTimer *timer, int32 node, ShardMemberStatus status, bool unreachable)
{
	int last = remembered(timer, node);
	bool was_unreachable = last >= 0 && timer->members[last].unreachable;
	ShardMemberStatus was = last >= 0 ? timer->members[last].status : SHARD_MEMBER_NONE;

	if (status == SHARD_MEMBER_JOINING && was != SHARD_MEMBER_JOINING && was != SHARD_MEMBER_NONE)
		return true;
	return unreachable != was_unreachable ||
		   (status != was && (status == SHARD_MEMBER_UP || status == SHARD_MEMBER_EXITING));
}

/*
 * Find what changed since the last view, and remember this one. True: a member is unreachable that can be downed.
 */
static bool
take_view(ShardDowningTimer *timer, const ShardDowningView *view, bool *restart)
{
	ShardDowningTimer last = *timer;
	bool to_decide = false;
	uint64 cut_off = shard_downing_unreachable(view);

	timer->n_members = view->n_members;
	for (int i = 0; i < view->n_members; i++)
	{
		const ShardDowningMember *member = &view->members[i];
		bool unreachable = (cut_off >> i & 1) != 0 || member->status == SHARD_MEMBER_DOWN;

		if (has_changed(&last, member->node, member->status, unreachable))
			*restart = true;
		to_decide |= unreachable && member->status >= SHARD_MEMBER_JOINING &&
					 member->status <= SHARD_MEMBER_LEAVING;
		timer->members[i].node = member->node;
		timer->members[i].status = member->status;
		timer->members[i].unreachable = unreachable;
	}
	return to_decide;
}

ShardDowningVerdict
shard_downing_timer_step(ShardDowningTimer *timer, const ShardDowningView *view, bool leader,
						 int64 now, int64 *next)
{
	bool restart = false;
	bool to_decide = take_view(timer, view, &restart);

	timer->now = now = Max(timer->now, now);
	if (restart)
		timer->stable_at = now + timer->stable_after;
	*next = PG_INT64_MAX;
	if (!to_decide || !leader)
		return SHARD_DOWNING_WAIT;
	if (now >= timer->stable_at)
		return SHARD_DOWNING_DECIDE;
	*next = timer->stable_at;
	return SHARD_DOWNING_WAIT;
}

void
shard_downing_timer_acted(ShardDowningTimer *timer, int64 now)
{
	timer->now = Max(timer->now, now);
	timer->stable_at = timer->now + timer->stable_after;
}
