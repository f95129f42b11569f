/*
 * entity/timer_due.c
 *		Which timers are due, lane by lane; each becomes a message of its entity (E32, E33).
 *
 * Comes from: process/region_turn.c, at the end of a turn; timer.c, which makes timers and moves them on; routing, for a
 * shard that has become active here. Goes to: the log, in which the messages come up like any.
 *
 * Nothing is in memory for a timer, only a place for each lane: up to there, in the order of the times, all timers of
 * active shards were made messages by turns that have committed; and when the first one behind it is due. Firing does
 * not touch the timer's row. That row decides when the message is met, so a message that is there twice does nothing
 * the second time, and a place may be forgotten: at the start of a process, and of a lane whose shards have come, it is
 * at the beginning of time again. That happens when no such message is on its way, so that few are there twice. Timers of
 * a type that cannot run stay what they are, or each process would put them into the stash once more; when it can, their
 * lanes are looked at from the beginning of time.
 *
 * If the process dies right here: the turn's messages were appended or not, and the next process begins at the beginning
 * of time.
 */
#include "postgres.h"

#include "access/xact.h"
#include "utils/timestamp.h"

#include "base/fault.h"
#include "core/base/message.h"
#include "entity/internal.h"
#include "log/session.h"

#include "base/compat.h"

/* Messages that are on their way at once, of all lanes together; and of one lane at least, for each look. */
#define MOST_FIRED 10000
#define LEAST_FIRED 100

/* Timers of a lane that a look leaves where they are; the next turn goes on behind them. */
#define MOST_LEFT 20000

/* All timers are behind it. */
static const ShardTimerPlace beginning = {DT_NOBEGIN, 0};

typedef struct Lane
{
	ShardTimerPlace place; /* up to here they are messages, or of shards that are not active here */
	TimestampTz next; /* when the first one behind it is due, or may be; DT_NOEND: there is none */
	bool again;		  /* from the beginning, when nothing is on its way */
} Lane;

typedef struct Lanes
{
	Lane lane[SHARD_LANES];
	TimestampTz next; /* the least of the lanes' */
	bool fired;		  /* messages were appended, */
	int64 upto;		  /* up to this seq, and may be on their way; 0: none */
} Lanes;

static ShardLanes own_lanes;
static ShardReadyType ready_type;
static Lanes now;			 /* in this turn */
static Lanes saved;			 /* as of the last commit */
static bool changed = false; /* they differ */
static bool any = false;	 /* there were timers */
static int first_lane = 0;	 /* by turns */

void
shard_timer_due_init(ShardLanes lanes, ShardReadyType ready)
{
	own_lanes = lanes;
	ready_type = ready;
	for (int lane = 0; lane < SHARD_LANES; lane++)
		now.lane[lane] = (Lane){.place = beginning, .next = DT_NOEND};
	shard_each_lane (lane, lanes)
		now.lane[lane].next = DT_NOBEGIN;
	now.next = DT_NOBEGIN;
	saved = now;
}

bool
shard_timer_any(void)
{
	/* a lane that was not looked at yet may have some */
	return any || now.next == DT_NOBEGIN;
}

void
shard_timer_due_committed(int64 upto)
{
	if (!changed)
		return;
	if (now.fired)
		now.upto = upto - 1;
	now.fired = false;
	saved = now;
	changed = false;
}

void
shard_timer_due_aborted(void)
{
	if (!changed)
		return;
	now = saved;
	changed = false;
}

int64
shard_timer_on_its_way(void)
{
	return saved.upto;
}

TimestampTz
shard_timer_next_due(void)
{
	/* what is on its way comes up by itself, and the look after it finds what is due then */
	if (saved.next == DT_NOEND || saved.upto != 0)
		return 0;
	return Max(saved.next, 1);
}

static void
look_at(Lane *lane, TimestampTz at)
{
	lane->next = Min(lane->next, at);
	now.next = Min(now.next, at);
	changed = true;
}

/* Appends the message of a timer that is due. */
static void
append(const ShardTimerOwner *owner, const ShardTimer *timer)
{
	Jsonb *content = shard_timer_put_firing(timer);
	ShardRow row = {.type_id = owner->type_id,
					.shard = owner->shard,
					.kind = SHARD_KIND_TIMER,
					.entity = owner->entity,
					.entity_len = owner->entity_len,
					.payload = VARDATA(content),
					.payload_len = VARSIZE(content) - VARHDRSZ,
					.epoch = -1};

	shard_log_append(&row);
	shard_session_appended(shard_message_lane(owner->type_id, owner->shard));
	now.fired = changed = true;
	shard_fault_step("timer_queued");
}

void
shard_timer_note_due(const ShardTimerOwner *owner, const ShardTimer *timer)
{
	Lane *lane = &now.lane[shard_message_lane(owner->type_id, owner->shard)];
	TimestampTz present;

	any = true;
	if (timer->due > lane->place.due)
	{
		look_at(lane, timer->due);
		return;
	}
	present = GetCurrentTimestamp();
	if (timer->due <= present)
		append(owner, timer);
	else
	{
		/* the clock was set back */
		lane->place = (ShardTimerPlace){timer->due - 1, PG_INT64_MAX};
		look_at(lane, timer->due);
	}
}

void
shard_timer_due_again(int32 type_id, int32 shard)
{
	Lane *lane = &now.lane[shard_message_lane(type_id, shard)];

#ifndef SHARD_MUTANT_TIMER_MARK_KEPT
	lane->again = true;
#endif
	look_at(lane, DT_NOBEGIN);
}

void
shard_timer_follow(ShardLocalType *local)
{
	ShardLanes lanes = shard_group_lanes(shard_message_group(local->type->type_id)) & own_lanes;

	if (!local->timers_left || !local->runnable)
		return;
	local->timers_left = false;
	shard_each_lane (lane, lanes)
	{
		now.lane[lane].again = saved.lane[lane].again = true;
		now.lane[lane].next = saved.lane[lane].next = DT_NOBEGIN;
	}
	/* not of this turn, which may be aborted */
	now.next = saved.next = DT_NOBEGIN;
}

/* Whether messages for the type can be handled. If not, its timers are left where they are. */
static bool
runs(int32 type_id)
{
	ShardLocalType *local = ready_type(type_id);

#ifdef SHARD_MUTANT_TIMERS_OF_STOPPED_FIRE
	local = NULL;
#endif
	if (local == NULL || local->runnable)
		return true;
#ifndef SHARD_MUTANT_TIMERS_LEFT_FOR_GOOD
	local->timers_left = true;
#endif
	return false;
}

/* A look at a lane. */
typedef struct Look
{
	Lane *lane;
	TimestampTz present;
	int room; /* for messages */
	int left; /* timers that were left where they are */
	bool full;
} Look;

/* Two timers may have the same place: their numbers are of two nodes. The lane goes past both. */
static bool
is_at_place(const Lane *lane, const ShardTimer *timer)
{
	return timer->due == lane->place.due && timer->generation == lane->place.generation;
}

/* Those of shards that are staged, or left, or of which this node has a copy for another one, are passed over. */
static bool
is_here(const ShardTimerOwner *owner)
{
#ifdef SHARD_MUTANT_TIMERS_OF_COPIES_FIRE
	return true;
#endif
	return shard_presence->is_active(owner->type_id, owner->shard);
}

static bool
look_at_timer(const ShardTimerOwner *owner, const ShardTimer *timer, void *arg)
{
	Look *look = arg;
	Lane *lane = look->lane;

	if (timer->due > look->present ||
		((look->room <= 0 || look->left >= MOST_LEFT) && !is_at_place(lane, timer)))
	{
		/* it may be to be looked at from the beginning, since a type was found to run meanwhile */
		lane->next = Min(lane->next, timer->due);
		return false;
	}
	lane->place = (ShardTimerPlace){timer->due, timer->generation};
	if (is_here(owner) && runs(owner->type_id))
	{
		append(owner, timer);
#ifdef SHARD_MUTANT_TIMER_ENDS_EARLY
		if (!timer->repeats)
			shard_timer_delete(owner, timer);
#endif
		look->room--;
	}
	else
		look->left++;
	return true;
}

/* Fires what is due of a lane. Returns how much room is left. */
static int
fire_lane(int number, TimestampTz present, int room)
{
	Lane *lane = &now.lane[number];
	Look look = {.lane = lane, .present = present, .room = room};

	changed = true;
	if (lane->again)
		lane->place = beginning;
	lane->again = false;
	lane->next = DT_NOEND;
	any |= shard_timer_each(number, lane->place, look_at_timer, &look);
	return look.room;
}

bool
shard_timer_fire(bool met)
{
	TimestampTz present;
	int due = 0;
	int room;

	if (now.upto != 0)
	{
		if (!met)
			return now.fired;
		now.upto = 0;
		changed = true;
	}
	if (likely(now.next == DT_NOEND))
		return now.fired;
	present = GetCurrentTimestamp();
	if (now.next > present)
		return now.fired;
	shard_each_lane (lane, own_lanes)
		due += now.lane[lane].next <= present;
	room = Max(MOST_FIRED / Max(due, 1), LEAST_FIRED);
	now.next = DT_NOEND;
	for (int i = 0; i < SHARD_LANES; i++)
	{
		int lane = (first_lane + i) % SHARD_LANES;

		if (now.lane[lane].next <= present)
			(void) fire_lane(lane, present, room);
		now.next = Min(now.next, now.lane[lane].next);
	}
	first_lane = (first_lane + 1) % SHARD_LANES;
	return now.fired;
}
