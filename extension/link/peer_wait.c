/*
 * link/peer_wait.c
 *		Waiting for the latch and for the sockets of all connections of this process.
 *
 * The set lives as long as the process, and is made again only when a connection came, went or has another socket.
 * libpq may close a socket and get another one of the same number while it connects, which the kernel's set does not
 * notice; so each step of connecting counts as a change.
 *
 * The set needs a descriptor itself. If other code of this process has left none, sockets are looked at ten times a
 * second instead: no process ends because of it.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/fd.h"
#include "storage/latch.h"
#include "utils/memutils.h"

#include "link/peer_private.h"

#include "base/compat.h"

/* Without a set. */
#define BLIND_MS 100

static WaitEventSet *wait_set = NULL;
static bool changed = true;

/*
 * The set is made before the next wait.
 */
void
shard_peer_wait_changed(void)
{
	changed = true;
}

static int
count_open(void)
{
	dlist_iter iter;
	int count = 0;

	dlist_foreach (iter, &shard_peer_list)
		if (dlist_container(ShardPeer, link, iter.cur)->conn != NULL)
			count++;
	return count;
}

/* The one before goes; whether there is a descriptor for another one. */
static bool
make_room(void)
{
	static bool said = false;

	if (wait_set != NULL)
	{
		WaitEventSet *old = wait_set;

		wait_set = NULL;
		FreeWaitEventSet(old);
	}
	if (!AcquireExternalFD())
	{
		if (!said)
			ereport(LOG,
					(errcode(ERRCODE_INSUFFICIENT_RESOURCES),
					 errmsg("shard: too many open files to wait for connections to other nodes"),
					 errdetail("The connections are looked at every %d ms instead.", BLIND_MS),
					 errhint("Raise max_files_per_process, or \"ulimit -n\" of the server.")));
		said = true;
		return false;
	}
	ReleaseExternalFD();
	said = false;
	return true;
}

/* Makes the set. After an error on the way the next wait makes it again. */
static void
make_set(void)
{
	dlist_iter iter;

	wait_set = ShardCreateWaitEventSet(count_open() + 2);
	AddWaitEventToSet(wait_set, WL_LATCH_SET, PGINVALID_SOCKET, MyLatch, NULL);
	AddWaitEventToSet(wait_set, WL_EXIT_ON_PM_DEATH, PGINVALID_SOCKET, NULL, NULL);
	dlist_foreach (iter, &shard_peer_list)
	{
		ShardPeer *peer = dlist_container(ShardPeer, link, iter.cur);
		uint32 events = shard_peer_wanted_events(peer);

		peer->position = -1;
		if (events == 0)
			continue;
		peer->events = events;
		peer->socket = PQsocket(peer->conn);
		peer->position = AddWaitEventToSet(wait_set, events, peer->socket, NULL, NULL);
	}
	changed = false;
}

/*
 * Whether the set has the sockets that it should have.
 */
static bool
set_fits(void)
{
	dlist_iter iter;

	if (changed || wait_set == NULL)
		return false;
	dlist_foreach (iter, &shard_peer_list)
	{
		ShardPeer *peer = dlist_container(ShardPeer, link, iter.cur);
		uint32 events = shard_peer_wanted_events(peer);

		if ((events != 0) != (peer->position >= 0))
			return false;
		if (events != 0 && peer->socket != PQsocket(peer->conn))
			return false;
	}
	return true;
}

/*
 * Tells the set what each socket is waited for now.
 */
static void
update_events(void)
{
	dlist_iter iter;

	dlist_foreach (iter, &shard_peer_list)
	{
		ShardPeer *peer = dlist_container(ShardPeer, link, iter.cur);
		uint32 events = shard_peer_wanted_events(peer);

		if (events == 0 || events == peer->events)
			continue;
		ModifyWaitEvent(wait_set, peer->position, events, NULL);
		peer->events = events;
	}
}

void
shard_peer_wait(long timeout_ms, uint32 wait_event)
{
	WaitEvent events[16];
	long due = shard_peer_next_due();

	if (due >= 0 && (timeout_ms < 0 || due < timeout_ms))
		timeout_ms = due;
	if (set_fits())
		update_events();
	else if (make_room())
		make_set();
	else
	{
		(void) WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH,
						 timeout_ms < 0 ? BLIND_MS : Min(timeout_ms, BLIND_MS), wait_event);
		return;
	}
	(void) WaitEventSetWait(wait_set, timeout_ms, events, lengthof(events), wait_event);
}

void
shard_peer_nap_until(long timeout_ms, uint32 wait_event)
{
	shard_peer_wait(timeout_ms, wait_event);
	ResetLatch(MyLatch);
	CHECK_FOR_INTERRUPTS();
}
