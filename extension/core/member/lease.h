/*
 * core/member/lease.h
 *		Leases: until when a member may run shards that another member may start without its consent.
 *
 * The member asks (Renew k, at its own time t0) and counts from t0. The coordinator grants when a
 * majority of the voters has acknowledged a heartbeat of its ballot that began after the request came,
 * and does not start the member's leased shards elsewhere before SHARD_LEASE_WAIT has passed.
 *
 * Why two nodes never hold one leased shard, X and Y, at the same time. Let Y's home be decided while
 * X held a grant of coordinator C for its request of t0; D is the coordinator that decided it.
 *
 * - D = C, granted before: X asked before C sent the grant, so its lease ends at most ttl after the
 *   sending, by X's clock. C waited for longer than that, and granted nothing meanwhile: a node is
 *   closed while such a change is being decided.
 * - D = C, granted after: the grant names the version of the map that C had decided, which holds Y's
 *   home; X may not use it before it has learned that much, and then it knows that the shard is not
 *   its own.
 * - D later than C: a majority acknowledged C's heartbeat and a quorum promised D's ballot, so some
 *   voter did both, first the one, then the other: after its promise it refuses C. The heartbeat began
 *   after X's request came, so X asked before D received the last of its promises, from where D
 *   counts. When C sent the grant, or when it arrives, does not matter.
 * - D earlier than C: what D decided is part of the state with which C took office, as in the second
 *   case.
 *
 * Clocks: the wait is 1 % of ttl and half a second longer than ttl, so it is enough if no clock runs
 * more than 1 % faster than another; for ttl up to SHARD_LEASE_MAX_TTL_MS also if one is 1 % fast and
 * the other 1 % slow. Nothing here reads a clock.
 */
#pragma once

#include "core/map/record.h"
#include "core/base/timing.h"

#define SHARD_LEASE_MAX_TTL_MS 40000

/* Requests and grants that a member remembers: more than fit into one ttl at the usual renewal. */
#define SHARD_LEASE_REMEMBERED 8

/* ---- the member's side; zeroed at the start of a process, which must ask for a new lease --------- */

typedef struct ShardLease
{
	int64 last_k;
	int n_requests;
	struct
	{
		int64 k;
		int64 t0;
	} requests[SHARD_LEASE_REMEMBERED]; /* newest last */
	int n_grants;
	struct
	{
		int64 until;
		int64 n;					  /* version of the map that it presupposes */
	} grants[SHARD_LEASE_REMEMBERED]; /* oldest first */
} ShardLease;

/* A request is sent now; returns its number k. */
extern int64 shard_lease_renew(ShardLease *lease, int64 now);

/*
 * A grant came. It counts from the request that it names; one for a request that is not remembered is
 * ignored, and one that comes twice, late or out of order extends nothing.
 */
extern void shard_lease_grant(ShardLease *lease, int64 k, int32 ttl_ms, int64 n, int64 now);

/* The end of the lease for a member that has learned the map up to an n; 0: it has none. */
extern int64 shard_lease_until(const ShardLease *lease, int64 learned_n);

/* May a turn of a leased shard begin, or commit, now? With the margin of L5. */
extern bool shard_lease_valid(const ShardLease *lease, int64 learned_n, int64 now);

/* ---- the coordinator's side --------------------------------------------------------------------- */

typedef struct ShardLeaseBook ShardLeaseBook;

/* An empty book of an office whose last promise came at that time; volatile, as all of an office. */
extern ShardLeaseBook *shard_lease_book_create(int64 last_promise);
extern void shard_lease_book_destroy(ShardLeaseBook *book);

/* Request k of a node's incarnation arrived. */
extern void
shard_lease_book_request(ShardLeaseBook *book, int32 node, int32 inc_no, int64 k, int64 now);

/*
 * Is a request of that incarnation to be granted now? majority_heartbeat: when the newest heartbeat
 * began that a majority has acknowledged. If so *k gets its number, and the grant counts as sent.
 */
extern bool shard_lease_book_grant(ShardLeaseBook *book, int32 node, int32 inc_no,
								   int64 majority_heartbeat, int32 ttl_ms, int64 now, int64 *k);

/* No grants to a node from now on, until it is opened again. */
extern void shard_lease_book_close(ShardLeaseBook *book, int32 node);
extern void shard_lease_book_open(ShardLeaseBook *book, int32 node);

/*
 * Can no grant to the node be valid any more, of this office or of earlier ones? settings: as decided;
 * NULL: none, then the default.
 */
extern bool shard_lease_book_ended(const ShardLeaseBook *book, int32 node, int64 now,
								   const ShardSettingsRecord *settings);

/* ---- the setting --------------------------------------------------------------------------------- */

/* The time that grants get. */
extern int32 shard_lease_ttl_ms(const ShardSettingsRecord *settings);

/* The longest time for which a grant, under this setting or the one before, may still run. */
extern int32 shard_lease_longest_ttl_ms(const ShardSettingsRecord *settings);

/*
 * Change the time; the one before is remembered until the coordinator has seen all its grants end (L3).
 * False: out of range.
 */
extern bool shard_lease_change_ttl(ShardSettingsRecord *settings, int32 ttl_ms);
