/*
 * core/member/downing.c
 *		Downing strategies: one side's view in, the members that it must down out.
 *
 * Sets of members are bit masks over the view. What counts: up and leaving members. Joining and weakly
 * up ones do not count, since not every member need know them, but are downed with their side. Exiting,
 * down and departed ones neither count nor are downed again.
 *
 * A partition may come while a status is changing, and then the sides count differently. A side that
 * would keep itself therefore asks a second time with the least favourable counts that the other side
 * may have: leaving members of this side as gone, joining ones of the other side as up. If the answers
 * differ it downs all. One hole remains, as in the reference: of two halves that one is kept which has
 * the lowest node, and a joining node that the other side has moved up meanwhile may be a lower one.
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "port/pg_bitutils.h"

#include "core/member/downing.h"

#define BIT(i) (UINT64CONST(1) << (i))

/* What a side is to do; each strategy's answer, before it is turned into members. */
typedef enum Decision
{
	DOWN_NOBODY,
	DOWN_UNREACHABLE,
	DOWN_REACHABLE, /* yield */
	DOWN_ALL
} Decision;

/* A view as sets. */
typedef struct Sets
{
	uint64 joining;	 /* joining or weakly up */
	uint64 leaving;	 /* leaving */
	uint64 counted;	 /* up or leaving */
	uint64 downable; /* counted or joining */
	uint64 in_role;	 /* has the role that counts */
	uint64 down;
	uint64 unreachable; /* of any status, never the asking node */
	bool reports_self;	/* a live member cannot reach the asking node */
	uint64 seen;
	uint64 reporting;					  /* say of another member that they cannot reach it */
	uint64 reported;					  /* are said by another member to be unreachable */
	uint64 by[SHARD_DOWNING_MAX_MEMBERS]; /* the reports about a member */
} Sets;

static const char *const kind_names[] = {
	"manual", "auto", "static_quorum", "keep_majority", "keep_oldest", "down_all",
};

const char *
shard_downing_name(ShardDowningKind kind)
{
	return kind_names[kind];
}

/*
 * The sets of a view. Reports of a member about itself say nothing and are dropped; those of a member
 * that is down still tell how it is connected, but make no member unreachable.
 */
static void
sort_members(const ShardDowningView *view, Sets *sets)
{
	memset(sets, 0, sizeof(*sets));
	for (int i = 0; i < view->n_members; i++)
	{
		const ShardDowningMember *member = &view->members[i];
		bool joining =
			member->status == SHARD_MEMBER_JOINING || member->status == SHARD_MEMBER_WEAKLY_UP;
		bool leaving = member->status == SHARD_MEMBER_LEAVING;

		sets->joining |= joining ? BIT(i) : 0;
		sets->leaving |= leaving ? BIT(i) : 0;
		sets->counted |= leaving || member->status == SHARD_MEMBER_UP ? BIT(i) : 0;
		sets->in_role |= member->in_role ? BIT(i) : 0;
		sets->down |= member->status == SHARD_MEMBER_DOWN ? BIT(i) : 0;
		sets->unreachable |= member->reachable ? 0 : BIT(i);
		sets->seen |= member->seen || i == view->self ? BIT(i) : 0;
		sets->by[i] = member->unreachable_by & ~BIT(i);
		sets->reporting |= sets->by[i];
		sets->reported |= sets->by[i] != 0 ? BIT(i) : 0;
	}
	sets->downable = sets->counted | sets->joining;
	for (int i = 0; i < view->n_members; i++)
		sets->unreachable |= (sets->by[i] & ~sets->down) != 0 ? BIT(i) : 0;
	sets->reports_self = (sets->unreachable & BIT(view->self)) != 0;
	sets->unreachable &= ~BIT(view->self);
}

/* The lowest node of a set, -1 if it is empty. */
static int
lowest_of(const ShardDowningView *view, uint64 set)
{
	int lowest = -1;

	for (; set != 0; set &= set - 1)
	{
		int i = pg_rightmost_one_pos64(set);

		if (lowest < 0 || view->members[i].node < view->members[lowest].node)
			lowest = i;
	}
	return lowest;
}

/* The oldest member of a set, -1 if it is empty. */
static int
oldest_of(const ShardDowningView *view, uint64 set)
{
	int oldest = -1;

	for (; set != 0; set &= set - 1)
	{
		int i = pg_rightmost_one_pos64(set);
		const ShardDowningMember *member = &view->members[i];

		if (oldest < 0 || member->age < view->members[oldest].age ||
			(member->age == view->members[oldest].age && member->node < view->members[oldest].node))
			oldest = i;
	}
	return oldest;
}

/*
 * Static quorum. With more members than that, two sides could both reach the quorum: then no count
 * can be trusted.
 */
static Decision
decide_static_quorum(const Sets *sets, int quorum_size)
{
	uint64 voters = sets->counted & sets->in_role;

	if (pg_popcount64(voters) >= 2 * (int64) quorum_size)
		return DOWN_ALL;
	return pg_popcount64(voters & ~sets->unreachable) >= quorum_size ? DOWN_UNREACHABLE
																	 : DOWN_REACHABLE;
}

/* The larger one of two sides stays, of two halves the one with the given member. */
static Decision
compare_sides(uint64 here, uint64 there, uint64 unreachable, int lowest)
{
	int ours = pg_popcount64(here);
	int theirs = pg_popcount64(there);

	if (ours == theirs)
		return (unreachable & BIT(lowest)) != 0 ? DOWN_REACHABLE : DOWN_UNREACHABLE;
	return ours > theirs ? DOWN_UNREACHABLE : DOWN_REACHABLE;
}

static Decision
decide_keep_majority(const ShardDowningView *view, const Sets *sets)
{
	uint64 voters = sets->counted & sets->in_role;
	uint64 surely = voters & ~sets->leaving;
	uint64 maybe = sets->downable & sets->in_role;
	uint64 unreachable = sets->unreachable;

	if (voters == 0)
		return DOWN_ALL;
	if (compare_sides(voters & ~unreachable, voters & unreachable, unreachable,
					  lowest_of(view, voters)) == DOWN_REACHABLE)
		return DOWN_REACHABLE;

	if (surely != 0 && compare_sides(surely & ~unreachable, maybe & unreachable, unreachable,
									 lowest_of(view, surely)) == DOWN_UNREACHABLE)
		return DOWN_UNREACHABLE;
	return DOWN_ALL;
}

/*
 * The side of the oldest stays, unless the oldest is alone there and yields to two or more. Of two
 * single members the oldest stays: the other one is no better.
 */
static Decision
compare_with_oldest(uint64 here, uint64 there, bool oldest_is_here, bool down_if_alone)
{
	int ours = pg_popcount64(here);
	int theirs = pg_popcount64(there);

	if (oldest_is_here)
		return down_if_alone && ours == 1 && theirs >= 2 ? DOWN_REACHABLE : DOWN_UNREACHABLE;
	return down_if_alone && theirs == 1 && ours >= 2 ? DOWN_UNREACHABLE : DOWN_REACHABLE;
}

/*
 * Keep oldest. In the second question all leaving members are gone: the oldest may be another one. The
 * joining ones count there only as company of the oldest.
 */
static Decision
decide_keep_oldest(const ShardDowningView *view, const Sets *sets, bool down_if_alone)
{
	uint64 voters = sets->counted & sets->in_role;
	uint64 surely = voters & ~sets->leaving;
	uint64 company = surely | (down_if_alone ? sets->joining & sets->in_role : 0);
	uint64 here = ~sets->unreachable;
	uint64 there = sets->unreachable;

	if (voters == 0)
		return DOWN_ALL;
	if (compare_with_oldest(voters & here, voters & there,
							(here & BIT(oldest_of(view, voters))) != 0,
							down_if_alone) == DOWN_REACHABLE)
		return DOWN_REACHABLE;

	if (surely != 0 && compare_with_oldest(company & here, company & there,
										   (here & BIT(oldest_of(view, surely))) != 0,
										   down_if_alone) == DOWN_UNREACHABLE)
		return DOWN_UNREACHABLE;
	return DOWN_ALL;
}

/* The strategy's answer for a clean partition. */
static Decision
decide(const ShardDowningView *view, const Sets *sets, const ShardDowningSettings *settings)
{
	switch (settings->kind)
	{
		case SHARD_DOWNING_MANUAL:
			return DOWN_NOBODY;
		case SHARD_DOWNING_AUTO:
			return DOWN_UNREACHABLE;
		case SHARD_DOWNING_STATIC_QUORUM:
			return decide_static_quorum(sets, settings->quorum_size);
		case SHARD_DOWNING_KEEP_MAJORITY:
			return decide_keep_majority(view, sets);
		case SHARD_DOWNING_KEEP_OLDEST:
			return decide_keep_oldest(view, sets, settings->down_if_alone);
		case SHARD_DOWNING_ALL:
			return DOWN_ALL;
	}
	return DOWN_NOBODY;
}

/* The members that a decision means. */
static uint64
members_of(Decision decision, const Sets *sets)
{
	switch (decision)
	{
		case DOWN_NOBODY:
			return 0;
		case DOWN_UNREACHABLE:
			return sets->downable & sets->unreachable;
		case DOWN_REACHABLE:
			return sets->downable & ~sets->unreachable;
		case DOWN_ALL:
			return sets->downable;
	}
	return 0;
}

/*
 * Members on a cycle of reports, as far as a cycle needs to be looked for: members that both report
 * and are reported. A crash or a clean partition has none, as no report comes from over there.
 */
static uint64
in_cycles(const Sets *sets)
{
	return sets->reporting & sets->reported;
}

/*
 * Both ends of each report about a member that has seen the present state, so is in contact through
 * others. A member that is unreachable and has seen it without any report about it stands for
 * itself.
 */
static uint64
in_contact(const ShardDowningView *view, const Sets *sets)
{
	uint64 ends = sets->unreachable & sets->seen;

	for (int i = 0; i < view->n_members; i++)
		if ((sets->seen & BIT(i)) != 0 && sets->by[i] != 0)
			ends |= BIT(i) | sets->by[i];
	return ends;
}

/*
 * The view without the reports that the indirectly connected make about one another, and without
 * those by or about members that cannot be downed any more. Unreachable are now the members that are
 * still reported, or that were unreachable without a report.
 */
static void
drop_indirect_reports(const ShardDowningView *view, Sets *sets, uint64 cycles, uint64 contact)
{
	uint64 unreported = sets->unreachable & ~sets->reported & ~contact;

	sets->reporting = 0;
	sets->reported = 0;
	for (int i = 0; i < view->n_members; i++)
	{
		uint64 by = (sets->downable & BIT(i)) != 0 ? sets->by[i] & sets->downable : 0;

		if ((cycles & BIT(i)) != 0)
			by &= ~cycles;
		if ((contact & BIT(i)) != 0)
			by &= ~contact;
		sets->by[i] = by;
		sets->reporting |= by;
		sets->reported |= by != 0 ? BIT(i) : 0;
	}
	sets->unreachable = (sets->reported | unreported) & ~BIT(view->self);
}

/*
 * With indirectly connected members: those, and what the strategy says of the rest. If others are cut
 * off cleanly at the same time it is asked again without the reports between the indirectly
 * connected ones; if that leaves such ones, nothing is sure and all go.
 */
static uint64
down_indirectly_connected(const ShardDowningView *view, const ShardDowningSettings *settings,
						  const Sets *sets, uint64 cycles, uint64 contact)
{
	uint64 indirect = cycles | contact;
	Sets rest = *sets;

	if ((sets->unreachable & ~indirect) == 0)
		return sets->downable & indirect;

	drop_indirect_reports(view, &rest, cycles, contact);
	if ((in_cycles(&rest) | in_contact(view, &rest)) != 0)
		return sets->downable;
	return (sets->downable & indirect) | members_of(decide(view, &rest, settings), &rest);
}

uint64
shard_downing_decide(const ShardDowningView *view, const ShardDowningSettings *settings)
{
	Sets sets;
	uint64 cycles;
	uint64 contact;
	Decision base;

	sort_members(view, &sets);
	if ((sets.downable & sets.unreachable) == 0 && !sets.reports_self)
		return 0;

	/* These do not look at how members are connected. */
	base = decide(view, &sets, settings);
	if (settings->kind == SHARD_DOWNING_MANUAL || settings->kind == SHARD_DOWNING_AUTO ||
		settings->kind == SHARD_DOWNING_ALL ||
		(settings->kind == SHARD_DOWNING_STATIC_QUORUM && base == DOWN_ALL))
		return members_of(base, &sets);

	cycles = in_cycles(&sets);
	contact = in_contact(view, &sets);
	if ((cycles | contact) != 0)
		return down_indirectly_connected(view, settings, &sets, cycles, contact);
	return members_of(base, &sets);
}

uint64
shard_downing_unreachable(const ShardDowningView *view)
{
	Sets sets;

	sort_members(view, &sets);
	return sets.unreachable;
}
