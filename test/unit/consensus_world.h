/*
 * consensus_world.h
 *		A small random world of voters and proposers: its network, its disks, and who looks whether what
 *		is decided forms one chain.
 */
#pragma once

#include "common/pg_prng.h"
#include "core/map/proposer.h"
#include "core/base/timing.h"
#include "core/map/voter.h"
#include "unit.h"

#define NODES 6 /* 1 .. NODES */
#define TICK (100 * SHARD_MS)
#define MAX_BATCHES 4096

typedef enum EventKind
{
	EVENT_TICK,
	EVENT_MESSAGE,
	EVENT_DURABLE, /* the node's oldest transaction */
} EventKind;

typedef struct Event
{
	struct Event *next; /* of the world, by time */
	int64 at;
	EventKind kind;
	int32 node;
	int life; /* of the node; -1: whichever */
	int length;
	char bytes[FLEXIBLE_ARRAY_MEMBER];
} Event;

/* A transaction on its way to the disk, and the messages that wait for it. */
typedef struct Transaction
{
	struct Transaction *next;
	int n_writes;
	ShardWrite *writes;
	int n_held;
	Event *held[64];
} Transaction;

typedef struct Node
{
	int32 id;
	int life;
	bool up;
	int64 frozen_until;
	int64 heard;
	int64 campaigned; /* a campaign was under way last */
	int64 shown;	  /* the batch that it took for decided last, as coordinator */
	int64 durable_at; /* of the newest transaction */
	ShardVoter *voter;
	ShardProposer *proposer;
	ShardMap *learned;
	ShardActions *out;
	ShardMap *store[5]; /* durable, by ShardStore */
	Transaction *first;
	Transaction *last;
} Node;

static pg_prng_state prng;
static int64 now;
static Event *events;
static Node nodes[NODES + 1];
static bool chaos;
static int harshness; /* per cent */
static bool blocked[NODES + 1][NODES + 1];
static ShardMap *truth; /* the newest decided map that anyone showed */
static bool decided_once[MAX_BATCHES];
static ShardMap *copy[5]; /* of a node's store, taken some time ago */
static int32 copied;	  /* that node, 0: none */
static int64 put_back_n;  /* what was decided when the copy was put back */
static int n_wanted;
static int32 wanted[SHARD_MAX_VOTERS];
static const char *violation;
static ShardArena *arena;
static int decisions;
static int elections;

static const ShardMapKey point_key = {0, 0, 0};
static const ShardMapKey voters_key = {SHARD_MAP_VOTERS, 0, 0};
static const int32 all_nodes[NODES] = {1, 2, 3, 4, 5, 6};

static int64
draw(int64 from, int64 to)
{
	return from + (int64) pg_prng_uint64_range(&prng, 0, (uint64) (to - from));
}

static bool
chance(int percent)
{
	return draw(0, 99) < percent;
}

/* A fault that a harsh world has at that rate. */
static bool
fault(int percent)
{
	return chaos && draw(0, 9999) < percent * harshness;
}

/* ---- events ---------------------------------------------------------------------------------- */

static Event *
new_event(EventKind kind, int32 node, int life, const char *bytes, int length)
{
	Event *event = palloc(offsetof(Event, bytes) + length);

	event->kind = kind;
	event->node = node;
	event->life = life;
	event->length = length;
	if (length > 0)
		memcpy(event->bytes, bytes, length);
	return event;
}

/* Those of one time happen in the order in which they were scheduled. */
static void
schedule(Event *event, int64 at)
{
	Event **place = &events;

	event->at = at;
	while (*place && (*place)->at <= at)
		place = &(*place)->next;
	event->next = *place;
	*place = event;
}

/* A message leaves its node, and meets the network. The own node is always reached. */
static void
transmit(int32 from, Event *message)
{
	int32 to = message->node;

	if (from == to)
	{
		schedule(message, now);
		return;
	}
	if (blocked[from][to] || fault(7))
	{
		pfree(message);
		return;
	}
	if (fault(7))
		schedule(new_event(EVENT_MESSAGE, to, -1, message->bytes, message->length),
				 now + draw(1, 4000) * SHARD_MS);
	schedule(message, now + (fault(10) ? draw(1, 2500) : draw(1, 30)) * SHARD_MS);
}

/* ---- what is right --------------------------------------------------------------------------- */

/*
 * Can the newer map have come from the older one by further batches? A tombstone may have been
 * purged; any other trace of what was decided must be there, and nothing else.
 */
static bool
continues(const ShardMap *older, const ShardMap *newer)
{
	int64 n = shard_map_point(older).n;
	int count;
	ShardMapEntry *entries = shard_map_since(older, -1, arena, &count);

	for (int i = 0; i < count; i++)
	{
		const ShardMapEntry *entry = shard_map_find(newer, entries[i].key);

		if (entry == NULL && entries[i].deleted)
			continue;
		if (entry == NULL || (entry->n != entries[i].n && entry->n <= n))
			return false;
		if (entry->n == entries[i].n &&
			(entry->deleted != entries[i].deleted || entry->length != entries[i].length ||
			 memcmp(entry->value, entries[i].value, entry->length) != 0))
			return false;
	}
	entries = shard_map_since(newer, -1, arena, &count);
	for (int i = 0; i < count; i++)
	{
		const ShardMapEntry *entry = shard_map_find(older, entries[i].key);

		if (entries[i].n <= n && !entries[i].deleted && (entry == NULL || entry->n != entries[i].n))
			return false;
	}
	return true;
}

/* Compare what someone takes for decided with all that was decided so far. */
static void
check_decided(const ShardMap *map, const char *who)
{
	ShardMapPoint point = shard_map_point(map);
	bool newer = point.n > shard_map_point(truth).n;
	int count;

	if (violation || point.n == 0)
		return;
	if (!(newer ? continues(truth, map) : continues(map, truth)))
		violation = who;
	if (newer)
	{
		ShardMapEntry *entries = shard_map_since(map, -1, arena, &count);

		shard_map_clear(truth);
		for (int i = 0; i < count; i++)
			shard_map_put(truth, &entries[i]);
		shard_map_set_point(truth, point);
	}
	shard_arena_reset(arena);
}

/* A coordinator's state after a step: no two decide the same batch. */
static void
check_coordinator(Node *node)
{
	const ShardMap *map = shard_proposer_decided(node->proposer);
	ShardMapPoint point;

	if (map == NULL)
	{
		node->shown = 0;
		return;
	}
	point = shard_map_point(map);
	Assert(point.n < MAX_BATCHES);
	if (node->shown == point.n)
		return;
	node->shown = point.n;
	if (decided_once[point.n])
		violation = "a batch is decided twice";
	decided_once[point.n] = true;
	decisions++;
	check_decided(map, "a coordinator's map leaves the chain");
}

/* ---- a node's step --------------------------------------------------------------------------- */

/* Copy what a transaction will write, since actions live for one step. */
static Transaction *
new_transaction(const ShardActions *out)
{
	Transaction *transaction = palloc0(sizeof(Transaction));

	transaction->n_writes = out->n_writes;
	transaction->writes = palloc(sizeof(ShardWrite) * out->n_writes);
	for (int i = 0; i < out->n_writes; i++)
	{
		ShardWrite *write = &transaction->writes[i];
		char *value = palloc(out->writes[i].entry.length + 1);

		*write = out->writes[i];
		memcpy(value, write->entry.value ? write->entry.value : "", write->entry.length);
		write->entry.value = value;
	}
	return transaction;
}

static void
free_transaction(Transaction *transaction)
{
	for (int i = 0; i < transaction->n_writes; i++)
		pfree(unconstify(char *, transaction->writes[i].entry.value));
	for (int i = 0; i < transaction->n_held; i++)
	{
		if (transaction->held[i])
			pfree(transaction->held[i]);
	}
	pfree(transaction->writes);
	pfree(transaction);
}

/* The step is over: writes begin their way to the disk, messages go or wait for them. */
static void
end_step(Node *node)
{
	ShardActions *out = node->out;
	Transaction *transaction = NULL;

	shard_proposer_flush(node->proposer, now, out);
	check_coordinator(node);
	if (out->n_writes > 0)
	{
		transaction = new_transaction(out);
		if (node->last)
			node->last->next = transaction;
		else
			node->first = transaction;
		node->last = transaction;
		node->durable_at =
			Max(node->durable_at, now + (fault(5) ? draw(1, 900) : draw(0, 15)) * SHARD_MS);
		schedule(new_event(EVENT_DURABLE, node->id, node->life, NULL, 0), node->durable_at);
	}
	for (int i = 0; i < out->n_actions; i++)
	{
		ShardControl message;
		StringInfoData bytes;
		Event *event;

		if (out->actions[i].kind != SHARD_ACTION_SEND)
			continue;
		message = *out->actions[i].message;
		message.from = node->id;
		message.to = out->actions[i].node;
		if (message.to < 1 || message.to > NODES)
			continue;
		if (message.kind == SHARD_CONTROL_PREPARE)
			shard_voter_remind(node->voter, message.to, &message);
		initStringInfo(&bytes);
		shard_control_encode(&bytes, &message);
		event = new_event(EVENT_MESSAGE, message.to, message.to == node->id ? node->life : -1,
						  bytes.data, bytes.len);
		pfree(bytes.data);
		if (transaction && transaction->n_held < (int) lengthof(transaction->held))
			transaction->held[transaction->n_held++] = event;
		else if (transaction)
			pfree(event);
		else
			transmit(node->id, event);
	}
	shard_action_reset(out);
}

/* The oldest transaction is durable: its rows are stored, its messages go. */
static void
durable(Node *node)
{
	Transaction *transaction = node->first;

	if (transaction == NULL)
		return;
	node->first = transaction->next;
	if (node->first == NULL)
		node->last = NULL;
	for (int i = 0; i < transaction->n_writes; i++)
	{
		const ShardWrite *write = &transaction->writes[i];
		ShardMap *store = node->store[write->store];

		if (write->clear)
			shard_map_clear(store);
		else if (write->remove)
		{
			ShardMapEntry gone = {write->entry.key, 0, true, 0, ""};

			shard_map_put(store, &gone);
			shard_map_purge(store, 0);
		}
		else
			shard_map_put(store, &write->entry);
	}
	for (int i = 0; i < transaction->n_held; i++)
	{
		transmit(node->id, transaction->held[i]);
		transaction->held[i] = NULL;
	}
	free_transaction(transaction);
}

static void
stop_node(Node *node)
{
	if (!node->up)
		return;
	node->up = false;
	while (node->first)
	{
		Transaction *transaction = node->first;

		node->first = transaction->next;
		free_transaction(transaction);
	}
	node->last = NULL;
	shard_voter_destroy(node->voter);
	shard_proposer_destroy(node->proposer);
	shard_map_destroy(node->learned);
	shard_action_destroy(node->out);
}

static void
start_node(Node *node)
{
	ShardMapEntry *entries;
	int count;

	node->up = true;
	node->life++;
	node->frozen_until = 0;
	node->heard = now;
	node->campaigned = 0;
	node->shown = 0;
	node->durable_at = now;
	node->voter = shard_voter_create(node->id);
	node->proposer = shard_proposer_create(node->id);
	node->learned = shard_map_create();
	node->out = shard_action_create();
	for (int store = SHARD_STORE_VOTER; store <= SHARD_STORE_LEARNED; store++)
	{
		entries = shard_map_since(node->store[store], -1, arena, &count);
		for (int i = 0; i < count; i++)
		{
			if (store == SHARD_STORE_LEARNED && entries[i].key.kind == 0)
				shard_map_set_point(node->learned, (ShardMapPoint){1, entries[i].n});
			else if (store == SHARD_STORE_LEARNED)
				shard_map_put(node->learned, &entries[i]);
			else if (!shard_voter_load(node->voter, store, &entries[i], 1))
				violation = "a stored row is damaged";
		}
	}
	schedule(new_event(EVENT_TICK, node->id, node->life, NULL, 0), now + draw(1, TICK));
	shard_arena_reset(arena);
}
