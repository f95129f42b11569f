/*
 * copy/import_source.c
 *		The old home of a shard, as a backend that copies calls it.
 *
 * A call that an error here left without its answer is in doubt: the next open begins a new connection.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/latch.h"
#include "utils/memutils.h"

#include "copy/import_private.h"
#include "link/peer.h"
#include "shared/board.h"

#include "base/compat.h"

/* A home that was away is looked for again after this, at the latest. */
#define LONGEST_BACKOFF_MS 500

static ShardPeer *peer = NULL;
static int32 peer_node = 0;
static char *peer_dsn = NULL;

/*
 * The connection failed, and is closed. The error is read at a node that called this one, so it names the node that did
 * not answer.
 */
static void
raise_failure(void)
{
	shard_peer_throw(peer, psprintf("node %d, the shard's home, could not be asked", peer_node),
					 psprintf("call of shard_peer.export() at node %d", peer_node));
}

/* Aims the connection at that node, open or not; a connection in doubt is closed. */
static void
aim(int32 node, const char *dsn)
{
	if (peer == NULL)
	{
		peer = shard_peer_create("import");
		shard_peer_limit_backoff(peer, LONGEST_BACKOFF_MS);
	}
	if (peer_dsn == NULL || peer_node != node || strcmp(peer_dsn, dsn) != 0)
	{
		char *copy = MemoryContextStrdup(TopMemoryContext, dsn);

		shard_peer_close(peer, false);
		if (peer_dsn != NULL)
			pfree(peer_dsn);
		peer_dsn = copy;
		peer_node = node;
	}
	/* anything that came since the last call can only be the end of that call */
	while (shard_peer_poll(peer) != SHARD_PEER_NOTHING)
		;
	if (shard_peer_state(peer) != SHARD_PEER_READY)
		shard_peer_close(peer, false);
}

void
shard_import_source_open(int32 node, const char *dsn, int timeout_ms)
{
	int64 deadline = shard_clock_now() + timeout_ms * INT64CONST(1000);

	aim(node, dsn);
	while (shard_peer_state(peer) != SHARD_PEER_READY)
	{
		int64 left = deadline - shard_clock_now();

		if (left <= 0)
			ereport(ERROR, (errcode(ERRCODE_SQLCLIENT_UNABLE_TO_ESTABLISH_SQLCONNECTION),
							errmsg("node %d could not be reached within %d ms", node, timeout_ms),
							errhint("See shard_peers.")));
		if (shard_peer_state(peer) == SHARD_PEER_CLOSED)
			(void) shard_peer_open(peer, dsn);
		if (shard_peer_poll(peer) == SHARD_PEER_FAILED)
			raise_failure();
		if (shard_peer_state(peer) != SHARD_PEER_READY)
			shard_peer_nap((long) (left / 1000) + 1, "ShardImport");
	}
}

void
shard_import_source_ask(const StringInfoData *call, int timeout_ms)
{
	shard_peer_call(peer, "export", call->data, call->len, timeout_ms);
}

char *
shard_import_source_take(int *length)
{
	for (;;)
	{
		ShardPeerEvent event = shard_peer_poll(peer);
		const char *answer;
		char *copy;

		if (event == SHARD_PEER_FAILED)
			raise_failure();
		if (event != SHARD_PEER_ANSWER)
		{
			shard_peer_nap(-1, "ShardImport");
			continue;
		}
		answer = shard_peer_answer(peer, length);
		copy = palloc(*length + 1);
		memcpy(copy, answer == NULL ? "" : answer, *length);
		copy[*length] = '\0';
		return copy;
	}
}
