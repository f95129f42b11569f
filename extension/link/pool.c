/*
 * link/pool.c
 *		Connections of this process to one place, for one purpose: a limited number, each with one call at a time.
 */
#include "postgres.h"

#include "core/base/timing.h"
#include "link/pool.h"
#include "shared/board.h"

#include "base/compat.h"

/* A connection without a call is closed after this. */
#define IDLE (60 * SHARD_SECOND)

/* The connection is free; the call that it had, NULL: none. */
static ShardPoolCall *
release(ShardPoolLink *link)
{
	ShardPoolCall *call = link->call;

	if (call == NULL)
		return NULL;
	*call = (ShardPoolCall){0};
	link->call = NULL;
	link->used = shard_clock_now();
	return call;
}

static bool
is_ready(const ShardPoolLink *link)
{
	return link->peer != NULL && shard_peer_state(link->peer) == SHARD_PEER_READY;
}

/* Does the call outlive a failure of its connection? */
static bool
goes_on(const ShardPool *pool, const ShardPoolLink *link)
{
	return pool->use->patient && link->call != NULL && !link->call->sent;
}

/* The owner, which is told of an event, may forget the pool. */
static bool
poll_link(ShardPool *pool, ShardPoolLink *link)
{
	ShardPeerEvent event;
	bool any = false;

	while (link->peer != NULL && (event = shard_peer_poll(link->peer)) != SHARD_PEER_NOTHING)
	{
		any = true;
		if (event == SHARD_PEER_FAILED && !goes_on(pool, link))
			pool->use->failed(pool, release(link), link->peer);
		else if (event == SHARD_PEER_ANSWER && link->call != NULL)
			pool->use->answered(pool, release(link), link->peer);
	}
	if (link->call == NULL && is_ready(link) && shard_clock_now() - link->used > IDLE)
		shard_peer_close(link->peer, false);
	return any;
}

bool
shard_pool_poll(ShardPool *pool)
{
	bool any = false;

	for (int i = 0; i < pool->use->most; i++)
		any |= poll_link(pool, &pool->links[i]);
	return any;
}

bool
shard_pool_has_room(const ShardPool *pool)
{
	for (int i = 0; i < pool->use->most; i++)
		if (pool->links[i].call == NULL)
			return true;
	return false;
}

bool
shard_pool_reserve(ShardPool *pool, ShardPoolCall *call)
{
	for (int i = 0; i < pool->use->most; i++)
		if (pool->links[i].call == NULL)
		{
			pool->links[i].call = call;
			call->link = &pool->links[i];
			return true;
		}
	return false;
}

/* Begins to connect, unless it is connected to that address. False: not yet. */
static bool
open_link(const ShardPoolUse *use, ShardPoolLink *link, const char *dsn, int32 incarnation)
{
	if (link->peer == NULL)
	{
		link->peer = shard_peer_create(use->purpose);
		if (use->longest_backoff_ms != 0)
			shard_peer_limit_backoff(link->peer, use->longest_backoff_ms);
	}
	if (!shard_peer_is_at(link->peer, dsn))
		shard_peer_close(link->peer, false);
	if (shard_peer_state(link->peer) != SHARD_PEER_CLOSED)
		return true;
	shard_peer_heard(link->peer, incarnation);
	if (!shard_peer_open(link->peer, dsn))
		return false;
	link->used = shard_clock_now();
	return true;
}

void
shard_pool_open(ShardPool *pool, const char *dsn, int32 incarnation, int wanted)
{
	for (int i = 0; i < pool->use->most; i++)
	{
		ShardPoolLink *link = &pool->links[i];

		if (link->call != NULL && !link->call->sent)
			(void) open_link(pool->use, link, dsn, incarnation);
		else if (link->call == NULL && wanted-- > 0 &&
				 !open_link(pool->use, link, dsn, incarnation))
			wanted = 0;
	}
}

ShardPoolCall *
shard_pool_next(const ShardPool *pool)
{
	for (int i = 0; i < pool->use->most; i++)
		if (pool->links[i].call != NULL && is_ready(&pool->links[i]))
			return pool->links[i].call;
	return NULL;
}

static const ShardPoolLink *
ready_link(const ShardPool *pool)
{
	for (int i = 0; i < pool->use->most; i++)
		if (pool->links[i].call == NULL && is_ready(&pool->links[i]))
			return &pool->links[i];
	return NULL;
}

bool
shard_pool_is_ready(const ShardPool *pool)
{
	return ready_link(pool) != NULL;
}

void
shard_pool_send(ShardPool *pool, ShardPoolCall *call, const char *procedure,
				const StringInfoData *bytes, int timeout_ms)
{
	if (call->link == NULL)
		call->link = unconstify(ShardPoolLink *, ready_link(pool));
	if (call->link == NULL)
		elog(ERROR, "no connection for \"%s\" is ready for a call", pool->use->purpose);
	call->link->call = call;
	call->sent = true;
	shard_peer_call(call->link->peer, procedure, bytes->data, bytes->len, timeout_ms);
}

void
shard_pool_cancel(ShardPoolCall *call)
{
	if (call->link == NULL)
		return;
	if (call->sent)
		shard_peer_close(call->link->peer, false);
	(void) release(call->link);
}

void
shard_pool_forget(ShardPool *pool)
{
	for (int i = 0; i < pool->use->most; i++)
	{
		ShardPoolLink *link = &pool->links[i];

		(void) release(link);
		if (link->peer != NULL)
			shard_peer_destroy(link->peer);
		link->peer = NULL;
	}
}
