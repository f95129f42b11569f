/*
 * link/peer_turn.c
 *		How many connections of this process are open, and how many are on their way at a time.
 *
 * A map may name hundreds of nodes that are gone for good, each of which is called until it is given up, and a server
 * at such an address may let a connection hang. Descriptors are for peers that answer: the rest wait for their turn, in
 * the order in which they asked first. Peers that were heard lately go before all that were not, and peers that have
 * failed before have half of the room.
 */
#include "postgres.h"

#include "storage/fd.h"

#include "link/peer_private.h"
#include "base/clock.h"

#include "base/compat.h"

/* On their way at a time: of those that failed the last time, of all but those that were heard, of all. */
#define MOST_FAILED 16
#define MOST_CONNECTING 32
#define MOST_HEARD 48

/* A peer that was heard longer ago than this is not preferred any more; in microseconds, like the others. */
#define HEARD_LATELY (5 * 1000 * 1000)

/*
 * A peer that waits for a turn asks again after this time, or as soon as it has something to say; one that has not
 * asked for longer waits no more.
 */
#define TURN_NAP (100 * 1000)
#define TURN_FORGOTTEN (3 * 1000 * 1000)

static int64 last_turn = 0;

/* Descriptors that are left alone: of the set that is waited for, of what libraries open while they connect. */
#define DESCRIPTORS_KEPT 4

typedef struct Room
{
	int open;
	int connecting;
	int before; /* that have waited for longer than a given one */
} Room;

static bool
is_connecting(const ShardPeer *peer)
{
	return peer->conn != NULL &&
		   (peer->step == SHARD_PEER_STEP_CONNECT || peer->step == SHARD_PEER_STEP_CHECK);
}

static Room
look(const ShardPeer *peer, int64 now)
{
	Room room = {0};
	dlist_iter iter;

	dlist_foreach (iter, &shard_peer_list)
	{
		const ShardPeer *other = dlist_container(ShardPeer, link, iter.cur);

		room.open += other->conn != NULL;
		room.connecting += is_connecting(other);
		/*
		 * a peer that has failed does not stand before one that has not: the room that is left may be closed to failed
		 * peers
		 */
		room.before += other != peer && other->turn != 0 && other->conn == NULL &&
					   (peer->turn == 0 || other->turn < peer->turn) &&
					   (peer->failures > 0 || other->failures == 0) &&
					   now - other->asked_turn < TURN_FORGOTTEN;
	}
	return room;
}

/* The other node was heard: if its peer only waits for its turn, it may connect before others. */
void
shard_peer_prefer(ShardPeer *peer)
{
	peer->heard_at = shard_clock_now();
}

bool
shard_peer_has_room(void)
{
	int open = 0;
	dlist_iter iter;

	dlist_foreach (iter, &shard_peer_list)
		open += dlist_container(ShardPeer, link, iter.cur)->conn != NULL;
	return open < Max(max_safe_fds / 3 - DESCRIPTORS_KEPT, 1);
}

bool
shard_peer_take_turn(ShardPeer *peer)
{
	int64 now = shard_clock_now();
	Room room = look(peer, now);
	bool heard = peer->heard_at != 0 && now - peer->heard_at < HEARD_LATELY;
	int most = heard ? MOST_HEARD : peer->failures > 0 ? MOST_FAILED : MOST_CONNECTING;

	/* few descriptors: the half of them is for those that answer */
	most = Min(most, Max(max_safe_fds / 6, 1));
	if (room.connecting < most && (heard || room.before < most - room.connecting))
	{
		peer->turn = 0;
		return true;
	}
	if (peer->turn == 0)
		peer->turn = ++last_turn;
	peer->asked_turn = now;
	peer->next_open = now + TURN_NAP;
	return false;
}
