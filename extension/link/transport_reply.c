/*
 * link/transport_reply.c
 *		Replies on their way to the node that holds the ask (E44).
 *
 * Told until that node has answered. A node that cannot be reached has replies kept for it up to a size; what is beyond
 * finds nobody, and is counted.
 *
 * If the process dies right here: the log is kept from the oldest reply on that was not answered, and the next worker
 * finds them there. But where others need the room of the log, replies are from then on in memory alone.
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "core/base/message.h"
#include "link/transport_private.h"
#include "shared/gate.h"
#include "shared/told.h"

#include "base/compat.h"

/* Bytes of replies that are kept for one node. */
#define MOST_BYTES ((Size) 64 * 1024 * 1024)

/* Bytes after which a call takes no further one. */
#define CALL_BYTES (4 * 1024 * 1024)

typedef struct LinkReply
{
	dlist_node node; /* in Link.replies */
	XLogRecPtr lsn;	 /* that the gate has to pass first */
	bool sent;		 /* in the call under way */
	int lane;		 /* its row of the log, */
	int64 seq;		 /* which is kept for it; 0: it is not */
	int length;
	char bytes[FLEXIBLE_ARRAY_MEMBER]; /* a ShardReplyParcel */
} LinkReply;

/* The lowest seq that is kept for each lane, unless a row is needed no more since it was looked for; told: that is known. */
static int64 lowest[SHARD_LANES];
static bool stale = true;
static bool told = true;

bool
shard_transport_reply(int32 node, const ShardRow *row, XLogRecPtr lsn)
{
	Link *link = shard_transport_link_of(node);
	int length = row->payload_len;
	LinkReply *reply;
	const char *more;

	if (link->reply_bytes > 0 && link->reply_bytes + length > MOST_BYTES)
	{
		if (shard_told_may(shard_transport.db, node, "replies", 0, &more))
			ereport(LOG, (errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
						  errmsg("a reply for node %d is dropped%s", node, more),
						  errdetail("Replies of %zu bytes wait for the node, which cannot be "
									"reached. The ask ends by its time-out.",
									link->reply_bytes)));
		return false;
	}
	reply = MemoryContextAllocHuge(TopMemoryContext, offsetof(LinkReply, bytes) + length);
	reply->lsn = lsn;
	reply->sent = false;
	reply->lane = shard_message_lane(row->type_id, row->shard);
	reply->seq = row->seq;
	reply->length = length;
	memcpy(reply->bytes, row->payload, length);
	dlist_push_tail(&link->replies, &reply->node);
	link->reply_bytes += length;
	lowest[reply->lane] = Min(lowest[reply->lane], reply->seq);
	return true;
}

bool
shard_transport_link_has_replies(Link *link)
{
	return !dlist_is_empty(&link->replies);
}

/* Appends section REPLIES, if there is any that the gate has released. */
void
shard_transport_link_put_replies(Link *link, StringInfo out, XLogRecPtr *waiting)
{
	StringInfoData bytes;
	dlist_iter iter;

	if (dlist_is_empty(&link->replies))
		return;
	dlist_foreach (iter, &link->replies)
		dlist_container(LinkReply, node, iter.cur)->sent = false;
	initStringInfo(&bytes);
	dlist_foreach (iter, &link->replies)
	{
		LinkReply *reply = dlist_container(LinkReply, node, iter.cur);

		if (bytes.len > 0 && bytes.len + reply->length > CALL_BYTES)
			break;
		/* those behind it were committed later */
		if (!shard_gate_released(reply->lsn))
		{
			*waiting = Max(*waiting, reply->lsn);
			break;
		}
		reply->sent = true;
		appendBinaryStringInfo(&bytes, reply->bytes, reply->length);
	}
	if (bytes.len > 0)
		shard_packet_put_section(out, SHARD_SECTION_REPLIES, SHARD_SECTION_MANDATORY, bytes.data,
								 bytes.len);
	pfree(bytes.data);
}

/* Frees those that were sent, or all. */
static void
drop(Link *link, bool all)
{
	dlist_mutable_iter iter;

	dlist_foreach_modify (iter, &link->replies)
	{
		LinkReply *reply = dlist_container(LinkReply, node, iter.cur);

		if (!all && !reply->sent)
			continue;
		link->reply_bytes -= reply->length;
		if (reply->seq != 0)
		{
			stale = true;
			told = false;
		}
		dlist_delete(&reply->node);
		pfree(reply);
	}
}

/* The peer has them. */
void
shard_transport_link_replies_answered(Link *link)
{
	drop(link, false);
}

/* The node is no member any more: nobody waits there. */
void
shard_transport_link_replies_gone(Link *link)
{
	drop(link, true);
}

/* Looks through all of them: when one was answered, not in each turn. */
static void
find_lowest(void)
{
	dlist_iter iter;

	for (int lane = 0; lane < SHARD_LANES; lane++)
		lowest[lane] = PG_INT64_MAX;
	for (int i = 0; i < shard_transport.n_links; i++)
		dlist_foreach (iter, &shard_transport.links[i]->replies)
		{
			const LinkReply *reply = dlist_container(LinkReply, node, iter.cur);

			if (reply->seq != 0)
				lowest[reply->lane] = Min(lowest[reply->lane], reply->seq);
		}
	stale = false;
}

int64
shard_transport_replies_needed(int lane)
{
	if (unlikely(stale))
		find_lowest();
	return lowest[lane];
}

void
shard_transport_replies_leave(int64 seq)
{
	dlist_iter iter;

	if (likely(seq == 0))
		return;
	for (int i = 0; i < shard_transport.n_links; i++)
		dlist_foreach (iter, &shard_transport.links[i]->replies)
		{
			LinkReply *reply = dlist_container(LinkReply, node, iter.cur);

			if (reply->seq <= seq)
				reply->seq = 0;
		}
	stale = true;
}

bool
shard_transport_replies_changed(void)
{
	bool changed = !told;

	told = true;
	return changed;
}
