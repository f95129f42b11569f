/*
 * link/transport_news.c
 *		What a home tells the origins of its messages: marks and refusals (H2, H7).
 *
 * Of each shard the newest alone. Told until the origin has answered; volatile, since an origin that says hello asks
 * for all its marks, and what was refused comes again if the fact was not heard.
 *
 * Floors (X6) are not sent: there is one mark for each shard and peer, which is little.
 */
#include "postgres.h"

#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "shared/gate.h"
#include "link/transport_private.h"

#include "base/compat.h"

static LinkNews *
find_news(Link *link, int32 type_id, int32 shard)
{
	int32 key[2] = {type_id, shard};
	LinkNews *news;
	bool found;

	if (link->news == NULL)
	{
		HASHCTL info = {.keysize = sizeof(key), .entrysize = sizeof(LinkNews)};

		info.hcxt = TopMemoryContext;
		link->news = hash_create("shard news", 64, &info, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	}
	news = hash_search(link->news, key, HASH_ENTER, &found);
	if (!found)
	{
		memset((char *) news + sizeof(key), 0, sizeof(LinkNews) - sizeof(key));
		link->n_news++;
	}
	if (link->news_since == 0)
		link->news_since = GetCurrentTimestamp();
	return news;
}

/* Marks that the gate has released move up. */
static void
move_up(LinkNews *news)
{
	while (news->waiting > 0 && shard_gate_released(news->waiting_lsn))
	{
		news->ready = Max(news->ready, news->waiting);
		news->waiting = news->later;
		news->waiting_lsn = news->later_lsn;
		news->later = 0;
	}
}

void
shard_transport_announce(int32 origin, const ShardDone *done, XLogRecPtr lsn)
{
	LinkNews *news = find_news(shard_transport_link_of(origin), done->type_id, done->shard);

	move_up(news);
	if (news->waiting == 0)
	{
		news->waiting = done->rseq;
		news->waiting_lsn = lsn;
	}
	else
	{
		news->later = Max(news->later, done->rseq);
		news->later_lsn = lsn;
	}
}

void
shard_transport_refuse(int32 origin, const ShardFact *fact, XLogRecPtr lsn)
{
	LinkNews *news;

	/* what was refused for lack of any knowledge needs no answer: the fact will come here, too */
	if (fact->n == 0)
		return;
	news = find_news(shard_transport_link_of(origin), fact->type_id, fact->shard);
	if (fact->n <= news->fact.n)
		return;
	news->fact = *fact;
	news->fact_lsn = lsn;
}

/* Adds what of it may be told. */
static void
put_one(LinkNews *news, StringInfo done, StringInfo refused, XLogRecPtr *waiting)
{
	move_up(news);
	if (news->ready > 0)
	{
		ShardDone mark = {news->type_id, news->shard, news->ready};

		shard_packet_put_done(done, &mark);
		news->sent = news->ready;
	}
	if (news->waiting > 0)
		*waiting = Max(*waiting, Max(news->waiting_lsn, news->later > 0 ? news->later_lsn : 0));
	if (news->fact.n == 0)
		return;
	if (shard_gate_released(news->fact_lsn))
	{
		shard_packet_put_fact(refused, &news->fact);
		news->fact_sent = news->fact.n;
	}
	else
		*waiting = Max(*waiting, news->fact_lsn);
}

/* Appends sections DONE and REFUSED, if there is anything that the gate has released. */
void
shard_transport_link_put_news(Link *link, StringInfo out, XLogRecPtr *waiting)
{
	HASH_SEQ_STATUS all;
	StringInfoData done;
	StringInfoData refused;
	LinkNews *news;

	if (link->n_news == 0)
		return;
	initStringInfo(&done);
	initStringInfo(&refused);
	hash_seq_init(&all, link->news);
	while ((news = hash_seq_search(&all)) != NULL)
		put_one(news, &done, &refused, waiting);
	if (done.len > 0)
		shard_packet_put_section(out, SHARD_SECTION_DONE, SHARD_SECTION_MANDATORY, done.data,
								 done.len);
	if (refused.len > 0)
		shard_packet_put_section(out, SHARD_SECTION_REFUSED, 0, refused.data, refused.len);
	pfree(done.data);
	pfree(refused.data);
}

/* The peer has heard what was sent. */
void
shard_transport_link_news_answered(Link *link)
{
	HASH_SEQ_STATUS all;
	LinkNews *news;

	if (link->n_news == 0)
		return;
	hash_seq_init(&all, link->news);
	while ((news = hash_seq_search(&all)) != NULL)
	{
		if (news->sent == news->ready)
			news->ready = 0;
		if (news->fact_sent == news->fact.n)
			news->fact.n = 0;
		news->sent = news->fact_sent = 0;
		if (news->ready > 0 || news->waiting > 0 || news->fact.n > 0)
			continue;
		(void) hash_search(link->news, &news->type_id, HASH_REMOVE, NULL);
		link->n_news--;
	}
	link->news_since = link->n_news > 0 ? GetCurrentTimestamp() : 0;
}

/* It is unknown whether the origin heard it: once more. */
void
shard_transport_link_news_lost(Link *link)
{
	HASH_SEQ_STATUS all;
	LinkNews *news;

	if (link->n_news == 0)
		return;
	hash_seq_init(&all, link->news);
	while ((news = hash_seq_search(&all)) != NULL)
		news->sent = news->fact_sent = 0;
	if (link->news_since == 0)
		link->news_since = GetCurrentTimestamp();
}
