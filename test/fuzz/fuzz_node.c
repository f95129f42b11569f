/*
 * fuzz_node.c
 *		Any messages, in any order, at a running node that is alone in its cluster and in office.
 *
 * The input is a list of pieces: a byte that says how, a length of two bytes, and so many bytes of a
 * message. A message that can be decoded may get what any peer knows, the cluster's id and the node's
 * own number, so that more than its header is looked at. After each piece the node's transactions
 * become durable, unless the byte says later, and some time passes.
 */
#include "fuzz.h"

#include "core/node/node.h"
#include "core/base/timing.h"
#include "shard.h"

/* Of the byte that says how. */
#define HOW_OUR_CLUSTER 0x01 /* the message is of our cluster and version */
#define HOW_FROM_US 0x02	 /* and from this node itself */
#define HOW_ADMITTED 0x04	 /* and from the incarnation that lives, as an answer */
#define HOW_OUR_BALLOT 0x08	 /* and of the office that is held */
#define HOW_LATER 0x10		 /* nothing becomes durable yet */
#define HOW_TIME 0xe0		 /* so many ticks follow */

#define MAX_PIECES 64

static ShardActions *out;
static ShardArena *arena;
static const ShardUuid cluster = {11, 12};

typedef struct FuzzHost
{
	ShardNode *node;
	int64 now;
	int64 ticket; /* waits to become durable */
	bool later;
	int32 who; /* somebody is looked for at this node's address; 0: nobody */
	ShardUuid who_uuid;
	int64 who_token; /* or a joiner, by this question; 0: none */
} FuzzHost;

/* Do what a step wants done, as far as there is anything to do. */
static void
act(FuzzHost *host)
{
	for (;;)
	{
		int64 ticket;

		for (int i = 0; i < out->n_actions; i++)
		{
			const ShardAction *action = &out->actions[i];

			if (action->kind == SHARD_ACTION_PERSIST)
				host->ticket = action->ticket;
			if (action->kind == SHARD_ACTION_WHO_AT)
			{
				host->who = action->node;
				host->who_uuid = action->uuid;
				host->who_token = action->token;
			}
			if (action->kind == SHARD_ACTION_SEND)
				FUZZ_CHECK(action->length > 0 && action->bytes != NULL);
		}
		if (host->later || host->ticket == 0)
			return;
		ticket = host->ticket;
		host->ticket = 0;
		shard_node_persisted(host->node, host->now, ticket, out);
	}
}

/* Whoever claims to be a node is found at its address. */
static void
answer_who(FuzzHost *host)
{
	ShardNodeEvent found = {.kind = SHARD_EVENT_WHO_ANSWERED, .node = host->who};

	if (host->who == 0 && host->who_token == 0)
		return;
	found.uuid = host->who_uuid;
	found.token = host->who_token;
	found.flag = true;
	host->who = 0;
	host->who_token = 0;
	shard_node_event(host->node, host->now, &found, out);
	act(host);
}

static void
event(FuzzHost *host, const ShardNodeEvent *what)
{
	shard_node_event(host->node, host->now, what, out);
	act(host);
}

static void
ticks(FuzzHost *host, int count)
{
	for (int i = 0; i < count; i++)
	{
		host->now += SHARD_TICK_INTERVAL;
		shard_node_tick(host->node, host->now, out);
		act(host);
		answer_who(host);
	}
}

/* A node in office, with a type and a home. */
static FuzzHost
begin_host(void)
{
	FuzzHost host = {.now = 100 * SHARD_SECOND};
	ShardNodeConfig config = {.dsn = "host=a", .app_version = "1", .lease_ttl_ms = 4000};
	ShardTypeRecord type = {.name = "thing", .number_of_shards = 8, .role = ""};
	ShardShardRef shard = {.type_id = 1, .shard = 1};
	ShardNodeEvent start_type = {.kind = SHARD_EVENT_TYPE, .type = &type};
	ShardNodeEvent want = {.kind = SHARD_EVENT_HOMES_WANTED, .n_shards = 1, .shards = &shard};

	config.roster.stable_after = 20 * SHARD_SECOND;
	config.live.rebalance_interval = SHARD_REBALANCE_INTERVAL;
	config.homes.handoff_timeout = SHARD_HANDOFF_TIMEOUT;
	config.homes.start_timeout = SHARD_START_TIMEOUT;
	host.node = shard_node_create(&config);
	shard_node_start(host.node, host.now, SHARD_START_RESTART, cluster, (ShardUuid){13, 14}, out);
	act(&host);
	event(&host, &start_type);
	ticks(&host, 3);
	event(&host, &want);
	ticks(&host, 2);
	FUZZ_CHECK(shard_proposer_office(shard_node_proposer(host.node)) == SHARD_OFFICE_HELD);
	return host;
}

/* Make a message more like one of a peer, as far as how says. */
static void
disguise(const FuzzHost *host, ShardControl *message, uint8 how)
{
	message->cluster = cluster;
	message->protocol_version = SHARD_PROTOCOL_VERSION;
	if (how & HOW_FROM_US)
		message->from = shard_node_id(host->node);
	if (how & HOW_ADMITTED)
		message->from_inc = shard_node_incarnation(host->node);
	if (how & HOW_OUR_BALLOT)
		message->b = shard_proposer_ballot(shard_node_proposer(host->node));
}

static void
give(FuzzHost *host, const char *bytes, size_t length, uint8 how)
{
	StringInfoData buffer;
	ShardControl message = {0};

	shard_arena_reset(arena);
	initStringInfo(&buffer);
	if ((how & HOW_OUR_CLUSTER) && shard_control_decode(bytes, length, arena, &message))
	{
		disguise(host, &message, how);
		shard_control_encode(&buffer, &message);
	}
	else
		appendBinaryStringInfo(&buffer, bytes, (int) length);
	host->later = (how & HOW_LATER) != 0;
	shard_node_receive(host->node, host->now, how & HOW_ADMITTED ? message.from : 0, buffer.data,
					   buffer.len, out);
	act(host);
	ticks(host, (how & HOW_TIME) >> 5);
	pfree(buffer.data);
}

int
LLVMFuzzerTestOneInput(const uint8 *data, size_t size)
{
	FuzzHost host;
	size_t at = 0;

	if (!out)
	{
		out = shard_action_create();
		arena = shard_arena_create();
	}
	host = begin_host();
	for (int i = 0; i < MAX_PIECES && size - at >= 3; i++)
	{
		uint8 how = data[at];
		size_t length = data[at + 1] | (size_t) data[at + 2] << 8;

		at += 3;
		length = Min(length, size - at);
		give(&host, (const char *) data + at, length, how);
		at += length;
	}
	host.later = false;
	ticks(&host, 40);
	shard_node_destroy(host.node);
	return 0;
}
