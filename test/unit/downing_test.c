/*
 * downing_test.c
 *		Downing: never both sides of a partition, and the time of the decision.
 *
 * What each strategy says to the published partitions is in sql/plan_downing.sql. Here are the
 * properties that need all partitions, and the timer.
 */
#include "postgres_fe.h"

#include "core/member/downing.h"
#include "unit.h"

#define MAX_N 6

/* A cluster cut in two, as both sides know it. */
typedef struct Cut
{
	int n;
	uint64 left; /* who is on the left side */
	uint64 in_role;
	const int *age; /* by index */
	ShardMemberStatus status[MAX_N];
} Cut;

/*
 * The view of a side's first member; the nodes' ids rise with their indexes. Reports come from it, as
 * from everybody who can be asked there.
 */
static void
look(const Cut *cut, uint64 side, ShardDowningView *view)
{
	memset(view, 0, sizeof(*view));
	view->n_members = cut->n;
	while ((side >> view->self & 1) == 0)
		view->self++;
	for (int i = 0; i < cut->n; i++)
	{
		ShardDowningMember *member = &view->members[i];
		bool here = (side >> i & 1) != 0;

		member->node = i + 1;
		member->age = cut->age[i];
		member->status = cut->status[i];
		member->reachable = here;
		member->seen = here;
		member->in_role = (cut->in_role >> i & 1) != 0;
		member->unreachable_by = here ? 0 : side;
	}
}

/* The members of a side that live on after it has decided. */
static uint64
survivors(const Cut *cut, uint64 side, const ShardDowningSettings *settings)
{
	ShardDowningView view;

	look(cut, side, &view);
	return side & ~shard_downing_decide(&view, settings);
}

/*
 * Counts the partitions of a cluster after which both sides live, or, if wished, none does. The first
 * member is on the left.
 */
static int
count_cuts(Cut *cut, const ShardDowningSettings *settings, bool none)
{
	uint64 all = (UINT64CONST(1) << cut->n) - 1;
	int found = 0;

	for (cut->left = 1; cut->left < all; cut->left += 2)
	{
		uint64 left = survivors(cut, cut->left, settings);
		uint64 right = survivors(cut, all & ~cut->left, settings);

		if (none ? left == 0 && right == 0 : left != 0 && right != 0)
			found++;
	}
	return found;
}

static void
swap(int *a, int i, int j)
{
	int kept = a[i];

	a[i] = a[j];
	a[j] = kept;
}

/* Next permutation in lexicographic order; false after the last. */
static bool
next_permutation(int *a, int n)
{
	int i = n - 2;
	int j = n - 1;

	while (i >= 0 && a[i] > a[i + 1])
		i--;
	if (i < 0)
		return false;
	while (a[j] < a[i])
		j--;
	swap(a, i, j);
	for (i++, j = n - 1; i < j; i++, j--)
		swap(a, i, j);
	return true;
}

/*
 * All partitions of up to MAX_N members, all sets of members with the role: never both sides. Ages
 * matter to keep_oldest alone. Without a role, and with nothing in flight, exactly one side lives
 * unless no side has the quorum.
 */
static void
test_all_partitions(void)
{
	static const int in_order[MAX_N] = {1, 2, 3, 4, 5, 6};
	ShardDowningSettings quorum = SHARD_DOWNING_DEFAULTS(SHARD_DOWNING_STATIC_QUORUM);
	ShardDowningSettings majority = SHARD_DOWNING_DEFAULTS(SHARD_DOWNING_KEEP_MAJORITY);
	ShardDowningSettings oldest = SHARD_DOWNING_DEFAULTS(SHARD_DOWNING_KEEP_OLDEST);
	ShardDowningSettings everybody = SHARD_DOWNING_DEFAULTS(SHARD_DOWNING_ALL);
	int both[4] = {0};
	int none[3] = {0};
	int both_oldest_stays = 0;

	for (int n = 2; n <= MAX_N; n++)
		for (uint64 roles = 0; roles < UINT64CONST(1) << n; roles++)
		{
			bool no_role = roles == (UINT64CONST(1) << n) - 1;
			Cut cut = {.n = n, .in_role = roles, .age = in_order};
			int age[MAX_N];

			for (int i = 0; i < n; i++)
				cut.status[i] = SHARD_MEMBER_UP;
			for (quorum.quorum_size = n / 2 + 1; quorum.quorum_size <= n; quorum.quorum_size++)
				both[0] += count_cuts(&cut, &quorum, false);
			both[1] += count_cuts(&cut, &majority, false);
			both[3] += count_cuts(&cut, &everybody, false);
			none[1] += no_role ? count_cuts(&cut, &majority, true) : 0;

			memcpy(age, in_order, sizeof(age));
			cut.age = age;
			do
			{
				oldest.down_if_alone = true;
				both[2] += count_cuts(&cut, &oldest, false);
				none[2] += no_role ? count_cuts(&cut, &oldest, true) : 0;
				oldest.down_if_alone = false;
				both_oldest_stays += count_cuts(&cut, &oldest, false);
			} while (next_permutation(age, n));
		}

	is_int(both[0], 0, "static_quorum never keeps both sides");
	is_int(both[1], 0, "keep_majority never keeps both sides");
	is_int(both[2], 0, "keep_oldest never keeps both sides");
	is_int(both_oldest_stays, 0, "keep_oldest without down_if_alone never keeps both sides");
	is_int(both[3], 0, "down_all never keeps both sides");
	is_int(none[1], 0, "keep_majority keeps a side of any two");
	is_int(none[2], 0, "keep_oldest keeps a side of any two");
}

/* Members of all statuses, known to both sides alike. */
static void
test_all_statuses(void)
{
	static const ShardMemberStatus statuses[] = {SHARD_MEMBER_JOINING, SHARD_MEMBER_UP,
												 SHARD_MEMBER_LEAVING, SHARD_MEMBER_EXITING,
												 SHARD_MEMBER_DOWN};
	static const int ages[][5] = {{1, 2, 3, 4, 5}, {5, 4, 3, 2, 1}, {3, 1, 2, 5, 4}};
	int both = 0;

	for (int code = 0; code < 3125; code++)
	{
		Cut cut = {.n = 5, .in_role = 31};

		for (int i = 0, rest = code; i < 5; i++, rest /= 5)
			cut.status[i] = statuses[rest % 5];
		for (ShardDowningKind kind = SHARD_DOWNING_STATIC_QUORUM; kind <= SHARD_DOWNING_ALL; kind++)
		{
			ShardDowningSettings settings = SHARD_DOWNING_DEFAULTS(kind);
			uint64 counted = 0;

			for (int i = 0; i < 5; i++)
				if (cut.status[i] == SHARD_MEMBER_UP || cut.status[i] == SHARD_MEMBER_LEAVING)
					counted |= UINT64CONST(1) << i;
			settings.quorum_size = 3;
			for (int order = 0; order < (int) lengthof(ages); order++)
			{
				cut.age = ages[order];
				for (cut.left = 1; cut.left < 31; cut.left++)
				{
					uint64 left = counted & survivors(&cut, cut.left, &settings);
					uint64 right = counted & survivors(&cut, 31 & ~cut.left, &settings);

					both += left != 0 && right != 0;
				}
			}
		}
	}
	is_int(both, 0, "no strategy keeps counted members of both sides, whatever the statuses");
}

/* A cluster as large as it can be. */
static void
test_large(void)
{
	ShardDowningSettings settings = SHARD_DOWNING_DEFAULTS(SHARD_DOWNING_KEEP_MAJORITY);
	ShardDowningView view;

	memset(&view, 0, sizeof(view));
	view.n_members = SHARD_DOWNING_MAX_MEMBERS;
	for (int i = 0; i < view.n_members; i++)
	{
		view.members[i].node = 1000 - i;
		view.members[i].age = i;
		view.members[i].status = SHARD_MEMBER_UP;
		view.members[i].reachable = view.members[i].seen = i < 32;
		view.members[i].in_role = true;
	}
	ok(shard_downing_decide(&view, &settings) == UINT64CONST(0xFFFFFFFF),
	   "of 64 members the half with the lowest node stays");
	view.members[32].reachable = true;
	ok(shard_downing_decide(&view, &settings) == UINT64CONST(0xFFFFFFFE00000000),
	   "of 64 members the larger side stays");
}

/* Three members that are up; the first is the asking one. */
static void
three_members(ShardDowningView *view)
{
	memset(view, 0, sizeof(*view));
	view->n_members = 3;
	for (int i = 0; i < 3; i++)
	{
		view->members[i].node = i + 1;
		view->members[i].status = SHARD_MEMBER_UP;
		view->members[i].reachable = view->members[i].seen = view->members[i].in_role = true;
	}
}

static ShardDowningTimer timer;
static ShardDowningView timer_view;
static int64 timer_next;

/* One step; times in milliseconds. */
static ShardDowningVerdict
step(bool leader, int64 now_ms)
{
	return shard_downing_timer_step(&timer, &timer_view, leader, now_ms * SHARD_MS, &timer_next);
}

static void
start_timer(int64 stable_after)
{
	ShardDowningSettings settings = SHARD_DOWNING_DEFAULTS(SHARD_DOWNING_KEEP_MAJORITY);

	settings.stable_after = stable_after;
	shard_downing_timer_init(&timer, &settings, 0);
	three_members(&timer_view);
	step(true, 0);
}

static void
test_leader(void)
{
	start_timer(0);
	is_int(step(true, 10), SHARD_DOWNING_WAIT, "nothing to decide while all are reachable");
	ok(timer_next == PG_INT64_MAX, "nor will time bring anything");
	timer_view.members[1].reachable = false;
	is_int(step(false, 20), SHARD_DOWNING_WAIT, "S60: who does not lead does not decide");
	is_int(step(true, 30), SHARD_DOWNING_DECIDE, "S61: who becomes leader later decides then");

	start_timer(0);
	timer_view.members[1].reachable = false;
	is_int(step(true, 20), SHARD_DOWNING_DECIDE, "S60: the leader decides at once");
}

static void
test_stable_after(void)
{
	start_timer(2 * SHARD_SECOND);
	timer_view.members[1].reachable = false;
	is_int(step(true, 5000), SHARD_DOWNING_WAIT, "S62: nothing at once");
	is_int(timer_next, 7000 * SHARD_MS, "S62: but after 2 s");
	is_int(step(true, 6000), SHARD_DOWNING_WAIT, "S62: nothing after 1 s");
	is_int(step(false, 6500), SHARD_DOWNING_WAIT, "S62: leadership is lost");
	is_int(step(false, 7000), SHARD_DOWNING_WAIT, "S62: no decision without leadership");
	is_int(step(true, 7000), SHARD_DOWNING_DECIDE, "S62: a decision after 2 s");

	timer_view.members[1].status = SHARD_MEMBER_DOWN;
	is_int(step(true, 9999), SHARD_DOWNING_WAIT, "S62: none if it is already down");
	timer_view.members[1].status = SHARD_MEMBER_EXITING;
	is_int(step(true, 99999), SHARD_DOWNING_WAIT, "none if it is exiting");
	timer_view.members[1].status = SHARD_MEMBER_UP;
	timer_view.members[1].reachable = true;
	is_int(step(true, 199999), SHARD_DOWNING_WAIT, "S62: none if it is reachable again");
	timer_view.members[2].reachable = false;
	step(true, 200000);
	timer_view.n_members = 2;
	is_int(step(true, 203000), SHARD_DOWNING_WAIT, "S62: none if it is removed");
	ok(timer_next == PG_INT64_MAX, "S62: nor will time bring anything");
}

static void
test_restart(void)
{
	start_timer(2 * SHARD_SECOND);
	timer_view.members[1].reachable = false;
	step(true, 1000);
	timer_view.members[2].reachable = false;
	step(true, 2000);
	is_int(timer_next, 4000 * SHARD_MS, "another unreachable member starts the wait anew");
	timer_view.members[2].status = SHARD_MEMBER_LEAVING;
	step(true, 3000);
	is_int(timer_next, 4000 * SHARD_MS, "a leaving one does not");
	timer_view.members[2].status = SHARD_MEMBER_EXITING;
	step(true, 3500);
	is_int(timer_next, 5500 * SHARD_MS, "an exiting one does");
	step(true, 1);
	is_int(timer_next, 5500 * SHARD_MS, "a clock that steps back does nothing");
	is_int(step(true, 5500), SHARD_DOWNING_DECIDE, "then it decides");
	shard_downing_timer_acted(&timer, 5500 * SHARD_MS);
	is_int(step(true, 5500), SHARD_DOWNING_WAIT, "what was downed takes effect first");
	is_int(step(true, 7500), SHARD_DOWNING_DECIDE, "if it does not, it decides again");
}

/* A member that was downed starts again: it is to be heard before anybody judges it. */
static void
test_started_again(void)
{
	start_timer(2 * SHARD_SECOND);
	timer_view.members[1].reachable = false;
	step(true, 1000);
	is_int(step(true, 3000), SHARD_DOWNING_DECIDE, "a member is lost");
	timer_view.members[1].status = SHARD_MEMBER_DOWN;
	shard_downing_timer_acted(&timer, 3000 * SHARD_MS);
	step(true, 3000);
	timer_view.members[1].status = SHARD_MEMBER_JOINING;
	is_int(step(true, 9000), SHARD_DOWNING_WAIT, "it starts again, and is not heard yet");
	is_int(timer_next, 11000 * SHARD_MS, "it has as long as when it was lost");
	is_int(step(true, 11000), SHARD_DOWNING_DECIDE, "not longer");
}

/* One member after another is lost and comes back: nobody is downed before that ends. */
static void
test_unstable(void)
{
	int64 now;
	ShardDowningVerdict verdict = SHARD_DOWNING_WAIT;

	start_timer(2 * SHARD_SECOND);
	for (now = 100; verdict == SHARD_DOWNING_WAIT && now <= 40000; now += 100)
	{
		timer_view.members[1].reachable = now / 100 % 2 == 0;
		timer_view.members[2].reachable = !timer_view.members[1].reachable;
		verdict = step(true, now);
	}
	is_int(verdict, SHARD_DOWNING_WAIT, "nothing is decided while members come and go");
	is_int(step(true, 41999), SHARD_DOWNING_WAIT, "nor before the rest has lasted");
	is_int(step(true, 42000), SHARD_DOWNING_DECIDE, "then it decides");

	start_timer(2 * SHARD_SECOND);
	timer_view.members[1].status = timer_view.members[2].status = SHARD_MEMBER_JOINING;
	timer_view.members[1].reachable = false;
	step(true, 1000);
	is_int(timer_next, 3000 * SHARD_MS, "an unreachable newcomer is decided about");
}

int
main(void)
{
	test_all_partitions();
	test_all_statuses();
	test_large();
	test_leader();
	test_stable_after();
	test_restart();
	test_started_again();
	test_unstable();
	return unit_done();
}
