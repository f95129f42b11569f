/*
 * link/peer_client.c
 *		Calls to other nodes for a backend whose client waits for them.
 *
 * The connections live no longer than the function: nothing is kept if the client cancels, or when an
 * error is raised.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/latch.h"

#include "link/peer_client.h"
#include "link/peer_private.h"
#include "base/clock.h"

#include "base/compat.h"

static bool
has_ended(const ShardPeerQuestion *question)
{
	return question->answered || question->error != NULL;
}

/* Has something taken the connection? The kernel of a machine whose server is frozen does. */
static bool
is_taken(const ShardPeer *peer)
{
	ConnStatusType status = peer->conn != NULL ? PQstatus(peer->conn) : CONNECTION_BAD;

	return status != CONNECTION_BAD && status != CONNECTION_NEEDED && status != CONNECTION_STARTED;
}

/*
 * The time is up, or was before the answer came.
 */
static void
end_late(ShardPeer *peer, ShardPeerQuestion *question, int timeout_ms)
{
	char text[64];

	question->mute = question->taken;
	snprintf(text, sizeof(text), "no answer within %d ms", timeout_ms);
	shard_peer_set_failure(&peer->failure, ERRCODE_CONNECTION_FAILURE, text, NULL, NULL);
	question->error = pstrdup(text);
}

/*
 * Moves one on. Returns whether it has come to its end.
 */
static bool
proceed(ShardPeer *peer, ShardPeerQuestion *question, const char *procedure, int timeout_ms)
{
	const char *text;

	for (;;)
	{
		switch (shard_peer_poll(peer))
		{
			case SHARD_PEER_NOTHING:
				question->taken |= is_taken(peer);
				return false;
			case SHARD_PEER_OPENED:
				shard_peer_expect(peer, question->most);
				shard_peer_call(peer, procedure, question->bytes, question->length, timeout_ms);
				break;
			case SHARD_PEER_ANSWER:
				text = shard_peer_answer(peer, &question->answer_length);
				question->answered = true;
				if (question->looks)
					question->ground = shard_peer_ground(peer);
				if (text != NULL)
				{
					question->answer = palloc(question->answer_length + 1);
					memcpy(question->answer, text, question->answer_length);
					question->answer[question->answer_length] = '\0';
				}
				return true;
			case SHARD_PEER_FAILED:
				/* A host was silent: the next one, if there are several. */
				if (peer->silent > 0 && peer->silent < shard_peer_dsn_hosts(question->dsn))
				{
					(void) shard_peer_open(peer, question->dsn);
					return false;
				}
				(void) shard_peer_error(peer, &text);
				question->mute = question->taken && peer->silent > 0;
				question->error = pstrdup(text);
				return true;
		}
	}
}

/*
 * Goes on with all of them until each has ended.
 */
static void
run(ShardPeer **peers, ShardPeerQuestion *questions, int count, const char *procedure,
	int timeout_ms)
{
	int64 deadline = shard_clock_now() + timeout_ms * INT64CONST(1000);

	for (int i = 0; i < count; i++)
		if (!has_ended(&questions[i]))
			peers[i] = shard_peer_create("client");
	for (;;)
	{
		int64 left = deadline - shard_clock_now();
		int open = 0;

		for (int i = 0; i < count; i++)
		{
			ShardPeerQuestion *question = &questions[i];

			if (has_ended(question))
				continue;
			if (shard_peer_state(peers[i]) == SHARD_PEER_CLOSED)
				(void) shard_peer_open(peers[i], question->dsn);
			if (proceed(peers[i], question, procedure, Max((int) (left / 1000), 1)))
				shard_peer_close(peers[i], false);
			else if (left <= 0)
				end_late(peers[i], question, timeout_ms);
			else
				open++;
		}
		if (open == 0)
			return;
		shard_peer_nap((long) ((left + 999) / 1000), "ShardPeerClient");
	}
}

static void
destroy(ShardPeer **peers, int count)
{
	for (int i = 0; i < count; i++)
		if (peers[i] != NULL)
			shard_peer_destroy(peers[i]);
}

/*
 * Asks all of them; context: raise the first one's failure, as having happened there.
 */
static void
ask(ShardPeerQuestion *questions, int count, const char *procedure, int timeout_ms,
	const char *context)
{
	ShardPeer **peers = palloc0(Max(count, 1) * sizeof(ShardPeer *));

	PG_TRY();
	{
		run(peers, questions, count, procedure, timeout_ms);
		if (context != NULL && !questions[0].answered)
			shard_peer_throw(peers[0], NULL, context);
	}
	PG_FINALLY();
	{
		destroy(peers, count);
	}
	PG_END_TRY();
	pfree(peers);
}

void
shard_peer_client_ask(ShardPeerQuestion *questions, int count, const char *procedure,
					  int timeout_ms)
{
	ask(questions, count, procedure, timeout_ms, NULL);
}

char *
shard_peer_client_call(const char *dsn, const char *whom, const char *procedure, const char *bytes,
					   int length, int timeout_ms, int *answer_length)
{
	ShardPeerQuestion question = {.dsn = dsn, .bytes = bytes, .length = length};

	ask(&question, 1, procedure, timeout_ms,
		psprintf("call of shard_peer.%s() at %s", procedure, whom));
	*answer_length = question.answer_length;
	return question.answer;
}
