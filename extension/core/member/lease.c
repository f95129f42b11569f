/*
 * core/member/lease.c
 *		Leases: until when a member may run shards that another member may start without its consent.
 *
 * The header has the reasons why this is safe. All state here is volatile: a member that starts again
 * has no lease, a coordinator that takes office again counts from its last promise.
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "core/member/lease.h"

/* ---- the member's side -------------------------------------------------------------------------- */

int64
shard_lease_renew(ShardLease *lease, int64 now)
{
	if (lease->n_requests == SHARD_LEASE_REMEMBERED)
	{
		lease->n_requests--;
		memmove(&lease->requests[0], &lease->requests[1],
				sizeof(lease->requests[0]) * lease->n_requests);
	}
	lease->requests[lease->n_requests].k = ++lease->last_k;
	lease->requests[lease->n_requests].t0 = now;
	lease->n_requests++;
	return lease->last_k;
}

/*
 * Forget a grant.
 */
static void
drop_grant(ShardLease *lease, int at)
{
	lease->n_grants--;
	memmove(&lease->grants[at], &lease->grants[at + 1],
			sizeof(lease->grants[0]) * (lease->n_grants - at));
}

/*
 * Remember a grant, without those that are over or that it makes superfluous. If there is no room the
 * oldest goes, which can only shorten the lease.
 */
static void
add_grant(ShardLease *lease, int64 until, int64 n, int64 now)
{
	for (int i = lease->n_grants - 1; i >= 0; i--)
	{
		if (lease->grants[i].until >= until && lease->grants[i].n <= n)
			return;
		if (lease->grants[i].until <= now ||
			(lease->grants[i].until <= until && lease->grants[i].n >= n))
			drop_grant(lease, i);
	}
	if (lease->n_grants == SHARD_LEASE_REMEMBERED)
		drop_grant(lease, 0);
	lease->grants[lease->n_grants].until = until;
	lease->grants[lease->n_grants].n = n;
	lease->n_grants++;
}

void
shard_lease_grant(ShardLease *lease, int64 k, int32 ttl_ms, int64 n, int64 now)
{
	if (ttl_ms <= 0 || ttl_ms > SHARD_LEASE_MAX_TTL_MS)
		return;
	for (int i = 0; i < lease->n_requests; i++)
	{
		int64 until = lease->requests[i].t0 + ttl_ms * SHARD_MS;

		if (lease->requests[i].k != k)
			continue;
#ifdef SHARD_MUTANT_LEASE_FROM_RECEIPT
		until = now + ttl_ms * SHARD_MS;
#endif
		if (until > now)
			add_grant(lease, until, n, now);
	}
}

int64
shard_lease_until(const ShardLease *lease, int64 learned_n)
{
	int64 until = 0;

	for (int i = 0; i < lease->n_grants; i++)
	{
		if (lease->grants[i].n <= learned_n)
			until = Max(until, lease->grants[i].until);
	}
	return until;
}

bool
shard_lease_valid(const ShardLease *lease, int64 learned_n, int64 now)
{
	return now < shard_lease_until(lease, learned_n) - SHARD_LEASE_SAFETY;
}

/* ---- the coordinator's side --------------------------------------------------------------------- */

/* A request that waits for its heartbeat. */
typedef struct LeaseRequest
{
	int64 k; /* 0: none */
	int32 inc_no;
	int64 arrival;
} LeaseRequest;

/*
 * What the book says of a node. Of its waiting requests the oldest and the newest are kept: with the
 * newest alone a slow majority would never come after it.
 */
typedef struct LeaseHolder
{
	int32 node;
	bool closed;
	bool granted; /* in this office */
	int64 end;	  /* no grant of this office is valid after this, by the coordinator's clock */
	LeaseRequest oldest;
	LeaseRequest newest;
} LeaseHolder;

struct ShardLeaseBook
{
	int64 last_promise;
	int n_holders;
	LeaseHolder *holders;
};

ShardLeaseBook *
shard_lease_book_create(int64 last_promise)
{
	ShardLeaseBook *book = palloc0(sizeof(ShardLeaseBook));

	book->last_promise = last_promise;
	return book;
}

void
shard_lease_book_destroy(ShardLeaseBook *book)
{
	if (book->holders)
		pfree(book->holders);
	pfree(book);
}

/*
 * The page of a node, NULL if it has none.
 */
static LeaseHolder *
find_holder(const ShardLeaseBook *book, int32 node)
{
	for (int i = 0; i < book->n_holders; i++)
	{
		if (book->holders[i].node == node)
			return &book->holders[i];
	}
	return NULL;
}

/*
 * The page of a node, new if it had none; valid until the next one is made.
 */
static LeaseHolder *
make_holder(ShardLeaseBook *book, int32 node)
{
	LeaseHolder *holder = find_holder(book, node);
	size_t size = sizeof(LeaseHolder) * (book->n_holders + 1);

	if (holder)
		return holder;
	book->holders = book->holders ? repalloc(book->holders, size) : palloc(size);
	holder = &book->holders[book->n_holders++];
	memset(holder, 0, sizeof(*holder));
	holder->node = node;
	return holder;
}

/* Requests of an earlier incarnation are forgotten: its process is gone, or fenced. */
void
shard_lease_book_request(ShardLeaseBook *book, int32 node, int32 inc_no, int64 k, int64 now)
{
	LeaseHolder *holder = make_holder(book, node);
	LeaseRequest request = {k, inc_no, now};

	if (k <= 0)
		return;
	if (holder->oldest.k == 0 || holder->oldest.inc_no != inc_no)
	{
		holder->oldest = request;
		holder->newest.k = 0;
	}
	else if (k > holder->oldest.k && k > holder->newest.k)
		holder->newest = request;
}

/*
 * Does a request wait that this majority heartbeat allows to be granted (L2)?
 */
static bool
may_grant(const LeaseRequest *request, int32 inc_no, int64 majority_heartbeat)
{
	bool fresh = majority_heartbeat > request->arrival;

#ifdef SHARD_MUTANT_GRANT_WITHOUT_FRESH_MAJORITY
	fresh = true;
#endif
	return request->k != 0 && request->inc_no == inc_no && fresh;
}

bool
shard_lease_book_grant(ShardLeaseBook *book, int32 node, int32 inc_no, int64 majority_heartbeat,
					   int32 ttl_ms, int64 now, int64 *k)
{
	LeaseHolder *holder = find_holder(book, node);
	bool closed = holder && holder->closed;

#ifdef SHARD_MUTANT_GRANT_WHILE_CLOSED
	closed = false;
#endif
	if (!holder || closed || !may_grant(&holder->oldest, inc_no, majority_heartbeat))
		return false;
	*k = holder->oldest.k;
	holder->oldest = holder->newest;
	holder->newest.k = 0;
	if (may_grant(&holder->oldest, inc_no, majority_heartbeat))
	{
		*k = holder->oldest.k;
		holder->oldest.k = 0;
	}
	holder->end = Max(holder->granted ? holder->end : PG_INT64_MIN,
					  now + SHARD_LEASE_WAIT(ttl_ms * SHARD_MS));
	holder->granted = true;
	return true;
}

void
shard_lease_book_close(ShardLeaseBook *book, int32 node)
{
	make_holder(book, node)->closed = true;
}

void
shard_lease_book_open(ShardLeaseBook *book, int32 node)
{
	make_holder(book, node)->closed = false;
}

bool
shard_lease_book_ended(const ShardLeaseBook *book, int32 node, int64 now,
					   const ShardSettingsRecord *settings)
{
	const LeaseHolder *holder = find_holder(book, node);
	int64 longest = shard_lease_longest_ttl_ms(settings) * SHARD_MS;

	if (holder && holder->granted && now < holder->end)
		return false;
#ifdef SHARD_MUTANT_NO_LEASE_WAIT
	return true;
#endif
	return now >= book->last_promise + SHARD_LEASE_WAIT(longest);
}

/* ---- the setting -------------------------------------------------------------------------------- */

/*
 * A time within its bounds; none is the default.
 */
static int32
bounded(int32 ttl_ms)
{
	return ttl_ms <= 0 ? SHARD_LEASE_TTL_MS : Min(ttl_ms, SHARD_LEASE_MAX_TTL_MS);
}

int32
shard_lease_ttl_ms(const ShardSettingsRecord *settings)
{
	return bounded(settings ? settings->lease_ttl_ms : 0);
}

int32
shard_lease_longest_ttl_ms(const ShardSettingsRecord *settings)
{
	int32 ttl_ms = shard_lease_ttl_ms(settings);

	if (settings && settings->previous_lease_ttl_ms > ttl_ms)
		ttl_ms = bounded(settings->previous_lease_ttl_ms);
	return ttl_ms;
}

/* A second change before the first one's time is over must not forget the longest. */
bool
shard_lease_change_ttl(ShardSettingsRecord *settings, int32 ttl_ms)
{
	if (ttl_ms <= 0 || ttl_ms > SHARD_LEASE_MAX_TTL_MS)
		return false;
	settings->previous_lease_ttl_ms = shard_lease_longest_ttl_ms(settings);
	settings->lease_ttl_ms = ttl_ms;
	return true;
}
