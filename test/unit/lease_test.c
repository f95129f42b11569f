/*
 * lease_test.c
 *		Leases: what a member may count on, and that it never outlives the coordinator's wait.
 */
#include "postgres_fe.h"

#include "core/member/lease.h"
#include "unit.h"

#define S SHARD_SECOND
#define TTL 4000

/* The member's side: from its own t0, with the facts, and never longer. */
static void
test_member(void)
{
	ShardLease lease = {0};
	int64 k;

	is_int(shard_lease_until(&lease, 100), 0, "no lease at first");
	k = shard_lease_renew(&lease, 10 * S);
	is_int(k, 1, "requests are numbered");
	is_int(shard_lease_until(&lease, 100), 0, "a request is no lease");
	shard_lease_grant(&lease, k, TTL, 90, 11 * S);
	is_int(shard_lease_until(&lease, 90), 14 * S, "it counts from the request");
	is_int(shard_lease_until(&lease, 89), 0, "not before the facts are learned");
	ok(shard_lease_valid(&lease, 90, 14 * S - SHARD_LEASE_SAFETY - 1), "valid to the margin");
	ok(!shard_lease_valid(&lease, 90, 14 * S - SHARD_LEASE_SAFETY), "not within the margin");
	ok(!shard_lease_valid(&lease, 89, 12 * S), "not valid without the facts");

	shard_lease_grant(&lease, k, TTL, 90, 13 * S);
	is_int(shard_lease_until(&lease, 90), 14 * S, "a duplicate extends nothing");
	shard_lease_grant(&lease, k + 1, TTL, 90, 13 * S);
	is_int(shard_lease_until(&lease, 90), 14 * S, "a grant of an unknown request is ignored");

	k = shard_lease_renew(&lease, 12 * S);
	shard_lease_grant(&lease, k, TTL, 95, 13 * S);
	is_int(shard_lease_until(&lease, 94), 14 * S, "the older grant holds without newer facts");
	is_int(shard_lease_until(&lease, 95), 16 * S, "the newer one with them");
	shard_lease_grant(&lease, 1, TTL, 80, 13 * S);
	is_int(shard_lease_until(&lease, 95), 16 * S, "a late grant of an old request changes nothing");
	shard_lease_grant(&lease, k, TTL, 80, 17 * S);
	is_int(shard_lease_until(&lease, 80), 14 * S, "a grant that comes after its end is ignored");
}

/* Odd numbers of grants and times. */
static void
test_member_limits(void)
{
	ShardLease lease = {0};
	int64 k = shard_lease_renew(&lease, 0);

	shard_lease_grant(&lease, k, 0, 1, 0);
	shard_lease_grant(&lease, k, -5, 1, 0);
	shard_lease_grant(&lease, k, SHARD_LEASE_MAX_TTL_MS + 1, 1, 0);
	is_int(shard_lease_until(&lease, 1), 0, "times out of range are ignored");

	for (int i = 1; i <= 3 * SHARD_LEASE_REMEMBERED; i++)
	{
		k = shard_lease_renew(&lease, i * SHARD_MS);
		shard_lease_grant(&lease, k, TTL, i, i * SHARD_MS);
	}
	is_int(shard_lease_until(&lease, 3 * SHARD_LEASE_REMEMBERED),
		   TTL * SHARD_MS + 3 * SHARD_LEASE_REMEMBERED * SHARD_MS, "the newest is kept");
	is_int(shard_lease_until(&lease, 2 * SHARD_LEASE_REMEMBERED), 0, "the oldest are forgotten");
	is_int(lease.n_grants, SHARD_LEASE_REMEMBERED, "no more than there is room for");
	shard_lease_grant(&lease, 1, TTL, 1, 5 * SHARD_MS);
	is_int(shard_lease_until(&lease, 1), 0, "a request that is forgotten cannot be granted");
}

/* The coordinator's side: who gets a grant, and when. */
static void
test_book(void)
{
	ShardLeaseBook *book = shard_lease_book_create(0);
	ShardSettingsRecord settings = {.lease_ttl_ms = TTL, .previous_lease_ttl_ms = TTL};
	int64 wait = SHARD_LEASE_WAIT(TTL * SHARD_MS);
	int64 k = 0;

	ok(!shard_lease_book_grant(book, 2, 1, 99 * S, TTL, S, &k), "nothing without a request");
	ok(!shard_lease_book_ended(book, 2, wait - 1, &settings),
	   "an earlier office's grants may run after its last promise");
	ok(shard_lease_book_ended(book, 2, wait, &settings), "until the wait is over");

	shard_lease_book_request(book, 2, 1, 1, 10 * S);
	ok(!shard_lease_book_grant(book, 2, 1, 10 * S, TTL, 10 * S, &k),
	   "a heartbeat of the same moment is not after the request");
	ok(!shard_lease_book_grant(book, 2, 2, 11 * S, TTL, 11 * S, &k),
	   "a request of another incarnation is not granted");
	ok(shard_lease_book_grant(book, 2, 1, 10 * S + 1, TTL, 11 * S, &k) && k == 1,
	   "a heartbeat that began after it: granted");
	ok(!shard_lease_book_grant(book, 2, 1, 12 * S, TTL, 12 * S, &k), "once");
	ok(!shard_lease_book_ended(book, 2, 11 * S + wait - 1, &settings), "from the last grant on");
	ok(shard_lease_book_ended(book, 2, 11 * S + wait, &settings), "the wait counts");
	ok(shard_lease_book_ended(book, 3, 11 * S, &settings), "another node is not concerned");

	/* A majority that is slower than the renewals. */
	shard_lease_book_request(book, 2, 1, 2, 20 * S);
	shard_lease_book_request(book, 2, 1, 3, 21 * S);
	shard_lease_book_request(book, 2, 1, 4, 22 * S);
	shard_lease_book_request(book, 2, 1, 3, 22 * S);
	ok(shard_lease_book_grant(book, 2, 1, 21 * S, TTL, 22 * S, &k) && k == 2,
	   "the oldest request is not lost over newer ones");
	ok(!shard_lease_book_grant(book, 2, 1, 21 * S, TTL, 22 * S, &k), "the newest waits");
	ok(shard_lease_book_grant(book, 2, 1, 23 * S, TTL, 23 * S, &k) && k == 4, "for its own");
	shard_lease_book_request(book, 2, 1, 5, 24 * S);
	shard_lease_book_request(book, 2, 1, 6, 25 * S);
	ok(shard_lease_book_grant(book, 2, 1, 26 * S, TTL, 26 * S, &k) && k == 6,
	   "of two that may be granted the newest is");
	ok(!shard_lease_book_grant(book, 2, 1, 26 * S, TTL, 26 * S, &k), "and no other");

	/* Closed, and open again. */
	shard_lease_book_request(book, 2, 1, 7, 30 * S);
	shard_lease_book_close(book, 2);
	ok(!shard_lease_book_grant(book, 2, 1, 31 * S, TTL, 31 * S, &k), "no grant while closed");
	shard_lease_book_open(book, 2);
	ok(shard_lease_book_grant(book, 2, 1, 31 * S, TTL, 31 * S, &k) && k == 7, "but when open");

	/* A new incarnation takes the old one's place in the queue, not its grants. */
	shard_lease_book_request(book, 2, 1, 8, 40 * S);
	shard_lease_book_request(book, 2, 2, 1, 40 * S);
	ok(!shard_lease_book_grant(book, 2, 1, 41 * S, TTL, 41 * S, &k), "old requests are forgotten");
	ok(!shard_lease_book_ended(book, 2, 31 * S + wait - 1, &settings), "old grants are not");
	shard_lease_book_destroy(book);
}

/* L3: a shorter time is not counted on before the longer one's grants ended. */
static void
test_setting(void)
{
	ShardSettingsRecord settings = {0};
	ShardLeaseBook *book = shard_lease_book_create(0);

	is_int(shard_lease_ttl_ms(NULL), SHARD_LEASE_TTL_MS, "the default without settings");
	is_int(shard_lease_ttl_ms(&settings), SHARD_LEASE_TTL_MS, "the default if none is set");
	ok(shard_lease_change_ttl(&settings, 10000), "longer");
	is_int(shard_lease_longest_ttl_ms(&settings), 10000, "longer: at once");
	ok(shard_lease_change_ttl(&settings, 2000), "shorter");
	is_int(shard_lease_ttl_ms(&settings), 2000, "grants are shorter at once");
	is_int(shard_lease_longest_ttl_ms(&settings), 10000, "those before may still run");
	ok(shard_lease_change_ttl(&settings, 1000), "shorter again");
	is_int(shard_lease_longest_ttl_ms(&settings), 10000, "the longest of all counts");
	ok(!shard_lease_change_ttl(&settings, 0) &&
		   !shard_lease_change_ttl(&settings, SHARD_LEASE_MAX_TTL_MS + 1),
	   "out of range");
	ok(!shard_lease_book_ended(book, 2, SHARD_LEASE_WAIT(10 * S) - 1, &settings),
	   "a new office waits for the longest");
	ok(shard_lease_book_ended(book, 2, SHARD_LEASE_WAIT(10 * S), &settings), "and no longer");
	shard_lease_book_destroy(book);
}

/* A clock that runs at (1000 + rate) / 1000 of real time, and back. */
static int64
clock_at(int64 real, int rate)
{
	return 7 * S + real / 1000 * (1000 + rate);
}

/*
 * One history in real time: the request is sent at 0, a heartbeat begins after it came, and the grant
 * is sent and arrives late. Returns how long before the coordinator's earliest re-homing the member's
 * lease ends; negative: they overlap. take_over: another coordinator re-homes, which got its last
 * promise right after the heartbeat was acknowledged, while the grant was still on its way.
 */
static int64
slack(int32 ttl_ms, int member_rate, int coordinator_rate, int64 to, int64 beat, int64 back,
	  bool take_over)
{
	ShardLease lease = {0};
	int64 sent = to + beat;
	int64 promise = take_over ? to + 1000 : -1000 * S;
	ShardSettingsRecord settings = {.lease_ttl_ms = ttl_ms};
	ShardLeaseBook *book = shard_lease_book_create(clock_at(-1000 * S, coordinator_rate));
	ShardLeaseBook *next = shard_lease_book_create(clock_at(promise, coordinator_rate));
	int64 k = shard_lease_renew(&lease, clock_at(0, member_rate));
	int64 member_end = 0;
	int64 granted_k;
	int64 step = 10 * SHARD_MS;
	int64 at;

	shard_lease_book_request(book, 2, 1, k, clock_at(to, coordinator_rate));
	if (!shard_lease_book_grant(book, 2, 1, clock_at(to + 1000, coordinator_rate), ttl_ms,
								clock_at(sent, coordinator_rate), &granted_k))
		granted_k = 0;
	shard_lease_grant(&lease, granted_k, ttl_ms, 1, clock_at(sent + back, member_rate));

	for (at = sent + back; shard_lease_until(&lease, 1) > clock_at(at, member_rate); at += step)
		member_end = at + step;
	at = take_over ? to + 1000 : sent;
	while (!shard_lease_book_ended(take_over ? next : book, 2, clock_at(at, coordinator_rate),
								   &settings))
		at += step;
	shard_lease_book_destroy(book);
	shard_lease_book_destroy(next);
	return at - member_end;
}

/* V10, for clocks that differ by up to 2 % and all kinds of delays. */
static void
test_clocks(void)
{
	static const int32 ttls[] = {500, 4000, 15000, SHARD_LEASE_MAX_TTL_MS};
	static const int64 delays[] = {0, 40 * SHARD_MS, 900 * SHARD_MS, 3500 * SHARD_MS};

	for (int t = 0; t < (int) lengthof(ttls); t++)
	{
		int64 least = PG_INT64_MAX;
		int64 least_after = PG_INT64_MAX;

		for (int rates = 0; rates < 9; rates++)
			for (int delay = 0; delay < 64; delay++)
			{
				int member_rate = (rates % 3 - 1) * 10;
				int coordinator_rate = (rates / 3 - 1) * 10;
				int64 to = delays[delay % 4];
				int64 beat = delays[delay / 4 % 4] + SHARD_MS;
				int64 back = delays[delay / 16];

				least = Min(least,
							slack(ttls[t], member_rate, coordinator_rate, to, beat, back, false));
				least_after = Min(least_after, slack(ttls[t], member_rate, coordinator_rate, to,
													 beat, back, true));
			}
		ok(least >= 0, "ttl %d ms: the lease ends before its coordinator re-homes", ttls[t]);
		ok(least_after >= 0, "ttl %d ms: the lease ends before the next one re-homes", ttls[t]);
	}
}

int
main(void)
{
	test_member();
	test_member_limits();
	test_book();
	test_setting();
	test_clocks();
	return unit_done();
}
