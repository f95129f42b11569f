/*
 * core/member/downing.h
 *		Which members to give up for dead when some cannot be reached.
 *
 * A downing strategy looks at one side's view of the membership and says which members that side must
 * down. The other sides of a partition run the same function on views of their own and cannot be
 * asked, so each strategy is a rule by which they come to opposite answers.
 *
 * Downing fences an incarnation: its node comes back under a new one with all it has. Homes of durable
 * types stay where they are (N1). So a wrong answer costs availability, never a second home; giving up
 * a node's durable state is another, explicit act.
 *
 * A view also tells which members are indirectly connected: links between them are broken, yet they
 * are part of this side through others. They are downed whatever the strategy keeps, since otherwise
 * they would stay unreachable.
 */
#pragma once

#include "core/map/record.h"
#include "core/base/timing.h"

#define SHARD_DOWNING_MAX_MEMBERS 64

/* The reference's stable-after. */
#define SHARD_DOWNING_STABLE_AFTER (20 * SHARD_SECOND)

typedef enum ShardDowningKind
{
	SHARD_DOWNING_MANUAL,		 /* no member; operators do it */
	SHARD_DOWNING_AUTO,			 /* all unreachable members: both sides live on */
	SHARD_DOWNING_STATIC_QUORUM, /* keep the side with quorum_size members */
	SHARD_DOWNING_KEEP_MAJORITY, /* keep the larger side; of two halves the one with the lowest id */
	SHARD_DOWNING_KEEP_OLDEST,	 /* keep the side of the oldest member */
	SHARD_DOWNING_ALL			 /* all members, once any is unreachable */
} ShardDowningKind;

#define SHARD_DOWNING_KINDS (SHARD_DOWNING_ALL + 1)

typedef struct ShardDowningSettings
{
	ShardDowningKind kind;
	int32 quorum_size;	/* STATIC_QUORUM: at least 1 */
	bool down_if_alone; /* KEEP_OLDEST: the oldest yields if it is the only one on its side */
	int64 stable_after; /* nothing may have changed for so long */
} ShardDowningSettings;

#define SHARD_DOWNING_DEFAULTS(kind_) \
	((ShardDowningSettings){.kind = (kind_), \
							.down_if_alone = true, \
							.stable_after = SHARD_DOWNING_STABLE_AFTER})

typedef struct ShardDowningMember
{
	int32 node;
	int64 age; /* smaller is older; of equal ages the lower node */
	ShardMemberStatus status;
	bool reachable;		   /* for the asking side; the asking node itself always is */
	bool seen;			   /* has seen the same state of the membership as the asking node */
	bool in_role;		   /* has the role that counts; true if none is asked for */
	uint64 unreachable_by; /* members that cannot reach this one: bit i = members[i] */
} ShardDowningMember;

typedef struct ShardDowningView
{
	int self; /* index of the asking node */
	int n_members;
	ShardDowningMember members[SHARD_DOWNING_MAX_MEMBERS];
} ShardDowningView;

/*
 * The members to down, bit i = members[i]; those that are exiting, down or gone never are. Empty while
 * no other member is unreachable or reported to be.
 */
extern uint64
shard_downing_decide(const ShardDowningView *view, const ShardDowningSettings *settings);

/*
 * The unreachable members: marked so, or reported by a member that is not down; never the asking
 * node.
 */
extern uint64 shard_downing_unreachable(const ShardDowningView *view);

/* "keep_majority": for settings and messages. */
extern const char *shard_downing_name(ShardDowningKind kind);

/* What the timer says is to be done now. */
typedef enum ShardDowningVerdict
{
	SHARD_DOWNING_WAIT,	 /* nothing before the given time, or before the view changes */
	SHARD_DOWNING_DECIDE /* ask shard_downing_decide() and carry it out */
} ShardDowningVerdict;

/* When to decide: a plain value; remembers of the last view what it needs to see changes. */
typedef struct ShardDowningTimer
{
	int64 stable_after;
	int64 now; /* latest time seen */
	int64 stable_at;
	int n_members;
	struct
	{
		int32 node;
		ShardMemberStatus status;
		bool unreachable;
	} members[SHARD_DOWNING_MAX_MEMBERS];
} ShardDowningTimer;

extern void
shard_downing_timer_init(ShardDowningTimer *timer, const ShardDowningSettings *settings, int64 now);

/*
 * Look at the view: at each change and at *next, which is PG_INT64_MAX if no time brings anything. Only
 * a leader decides.
 */
extern ShardDowningVerdict
shard_downing_timer_step(ShardDowningTimer *timer, const ShardDowningView *view, bool leader,
						 int64 now, int64 *next);

/* Members were downed: count afresh. Not called for an empty decision, which is looked at again. */
extern void shard_downing_timer_acted(ShardDowningTimer *timer, int64 now);
