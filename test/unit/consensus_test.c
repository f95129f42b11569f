/*
 * consensus_test.c
 *		Voters and proposers in a small random world: decided maps form one chain.
 *
 * A history is made from its seed alone. For a while messages are lost, doubled, delayed, and cut off
 * by partitions; nodes freeze, die with what they had not yet made durable, and return, one of them
 * maybe as an old copy; the voters change between one, three and five. Whatever a
 * coordinator takes for decided, and whatever a node learns, must agree with all that was decided
 * before. Then everything heals, and a change must be decided and learned by all in time.
 *
 *   consensus_test [FIRST_SEED [SEEDS]]
 */
#include "postgres_fe.h"

#include "common/pg_prng.h"
#include "core/map/proposer.h"
#include "core/base/timing.h"
#include "core/map/voter.h"
#include "unit.h"

#define NODES 6 /* 1 .. NODES */
#define SEEDS 400
#define TICK (100 * SHARD_MS)
#define CHAOS (25 * SHARD_SECOND) /* how long the faults last */
#define BOUND (15 * SHARD_SECOND) /* and how long healing may take */
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

/* ---- what a node does ------------------------------------------------------------------------ */

static bool
is_voter(const Node *node)
{
	ShardVotersRecord voters;

	return shard_record_get_voters(shard_map_value(node->learned, voters_key), &voters) &&
		   shard_record_votes(&voters, node->id);
}

/* LEARN: what is decided, from the coordinator. */
static void
learn(Node *node, const ShardControl *message)
{
	ShardMapPoint point = shard_map_point(node->learned);
	ShardMapEntry row = {point_key, message->commit_n, false, 0, ""};

	if (message->commit_n <= point.n || message->n > point.n)
		return;
	if (message->n == 0)
	{
		shard_map_clear(node->learned);
		shard_action_clear(node->out, SHARD_STORE_LEARNED);
	}
	for (int i = 0; i < message->n_entries; i++)
	{
		if (!shard_map_learn(node->learned, &message->entries[i]))
			continue;
		shard_action_write(node->out, SHARD_STORE_LEARNED, &message->entries[i]);
		if (message->entries[i].key.kind == SHARD_MAP_COUNTERS)
		{
			ShardCountersRecord counters;

			shard_record_get_counters(&message->entries[i], &counters);
			shard_map_purge(node->learned, counters.purge_n);
		}
	}
	point.b = message->b;
	point.n = message->commit_n;
	shard_map_set_point(node->learned, point);
	shard_action_write(node->out, SHARD_STORE_LEARNED, &row);
	check_decided(node->learned, "a learned map leaves the chain");

	/* put back, removed from the voters since: it may be added anew (R12) */
	if (node->id == copied && put_back_n > 0 && point.n > put_back_n && !is_voter(node))
		shard_voter_readmit(node->voter, node->out);
}

static void
heartbeat(Node *node, const ShardControl *message)
{
	ShardControl *answer;

	if (message->b < shard_voter_promised(node->voter))
	{
		answer = shard_action_send(node->out, message->from, SHARD_CONTROL_NACK);
		answer->b = message->b;
		answer->ballot = shard_voter_promised(node->voter);
		return;
	}
	node->heard = now;
	answer = shard_action_send(node->out, message->from, SHARD_CONTROL_HEARTBEAT_ACK);
	answer->b = message->b;
	answer->token = message->token;
	answer->n = shard_map_point(node->learned).n;
	answer->point = shard_map_point(shard_voter_map(node->voter));
	answer->ballot = shard_voter_promised(node->voter);
}

static void
receive(Node *node, const Event *event)
{
	ShardControl message;

	if (!shard_control_decode(event->bytes, event->length, node->out->arena, &message))
		violation = "a message cannot be decoded";
	shard_voter_observe(node->voter, &message);
	switch (message.kind)
	{
		case SHARD_CONTROL_PRE_VOTE:
		case SHARD_CONTROL_PREPARE:
		case SHARD_CONTROL_FETCH:
		case SHARD_CONTROL_SYNC:
		case SHARD_CONTROL_ACCEPT:
			shard_voter_receive(node->voter, now, &message,
								message.from != node->id &&
									now - node->heard < SHARD_ELECTION_TIMEOUT,
								node->out);
			break;
		case SHARD_CONTROL_HEARTBEAT:
			heartbeat(node, &message);
			break;
		case SHARD_CONTROL_LEARN:
			learn(node, &message);
			break;
		default:
			shard_proposer_receive(node->proposer, now, &message, node->out);
			break;
	}
	if (shard_voter_state(node->voter) != SHARD_VOTER_OK && put_back_n == 0)
		violation = "a voter has forgotten what it promised";
	end_step(node);
}

/* Bring the voters where the history wants them, in two batches. */
static void
change_voters(Node *node)
{
	const ShardMap *map = shard_proposer_decided(node->proposer);
	const ShardMapEntry *entry = shard_map_value(map, voters_key);
	ShardVotersRecord voters;
	ShardMapEntry change;

	shard_record_get_voters(entry, &voters);
	if (voters.n_next > 0)
	{
		memcpy(voters.current, voters.next, sizeof(voters.current));
		voters.n_current = voters.n_next;
		voters.n_next = 0;
	}
	else if (voters.n_current == n_wanted &&
			 memcmp(voters.current, wanted, sizeof(int32) * n_wanted) == 0)
		return;
	else
	{
		memcpy(voters.next, wanted, sizeof(wanted));
		voters.n_next = n_wanted;
		for (int i = 0; i < n_wanted; i++)
		{
			if (shard_proposer_learned_by(node->proposer, wanted[i]) < 0)
				return;
		}
	}
	change = shard_record_put_voters(&voters, entry->n, node->out->arena);
	shard_proposer_propose(node->proposer, &change, 1);
}

/* Change a few keys at random; expectations that are wrong must be refused. */
static void
propose(Node *node)
{
	const ShardMap *map = shard_proposer_decided(node->proposer);
	int count = (int) draw(1, 3);

	for (int i = 0; i < count; i++)
	{
		char value[8];
		ShardMapEntry entry = {{SHARD_MAP_MEMBER, (int32) draw(1, 10), 0}, 0, false, 8, value};
		const ShardMapEntry *old = shard_map_value(map, entry.key);

		memcpy(value, &prng, sizeof(value));
		entry.deleted = old && chance(40);
		entry.length = entry.deleted ? 0 : 8;
		entry.n = (old ? old->n : 0) + 1;
		if (shard_proposer_propose(node->proposer, &entry, 1))
			violation = "a wrong expectation is accepted";
		entry.n--;
		shard_proposer_propose(node->proposer, &entry, 1);
	}
}

static void
tick(Node *node)
{
	ShardOffice before = shard_proposer_office(node->proposer);

	shard_proposer_tick(node->proposer, now, all_nodes, NODES, node->out);
	if (before != SHARD_OFFICE_NONE)
		node->campaigned = now;
	if (shard_proposer_office(node->proposer) == SHARD_OFFICE_HELD)
	{
		change_voters(node);
		if (chance(60))
			propose(node);
	}
	else if (now - Max(node->heard, node->campaigned) >
				 SHARD_ELECTION_TIMEOUT + node->id * SHARD_CANDIDATE_STEP &&
			 (is_voter(node) || shard_voter_promised(node->voter) > 0))
	{
		elections++;
		shard_proposer_campaign(node->proposer, now, node->learned, node->out);
	}
	end_step(node);
	schedule(new_event(EVENT_TICK, node->id, node->life, NULL, 0), now + TICK);
}

static void
happen(Event *event)
{
	Node *node = &nodes[event->node];

	if (!node->up || (event->life >= 0 && event->life != node->life))
		pfree(event);
	else if (now < node->frozen_until)
		schedule(event, node->frozen_until);
	else
	{
		if (event->kind == EVENT_TICK)
			tick(node);
		else if (event->kind == EVENT_MESSAGE)
			receive(node, event);
		else
			durable(node);
		pfree(event);
	}
}

/* ---- faults ---------------------------------------------------------------------------------- */

static void
copy_store(ShardMap **to, ShardMap **from)
{
	for (int store = SHARD_STORE_VOTER; store <= SHARD_STORE_LEARNED; store++)
	{
		int count;
		ShardMapEntry *entries = shard_map_since(from[store], -1, arena, &count);

		shard_map_clear(to[store]);
		for (int i = 0; i < count; i++)
			shard_map_put(to[store], &entries[i]);
	}
	shard_arena_reset(arena);
}

/*
 * Random voters, but not the node that is put back: if it were to vote alone, nobody could ever make
 * up for it.
 */
static void
want(int count)
{
	n_wanted = 0;
	while (n_wanted < count)
	{
		int32 node = (int32) draw(1, NODES);
		bool out_of_question = node == copied && (put_back_n > 0 || count == 1);

		for (int i = 0; i < n_wanted; i++)
			out_of_question = out_of_question || wanted[i] == node;
		if (!out_of_question)
			wanted[n_wanted++] = node;
	}
}

/* A file-level copy comes back in the place of its node. */
static void
put_back(void)
{
	Node *node = &nodes[copied];
	ShardVotersRecord voters;

	/* of fewer voters, nobody could do without it */
	shard_record_get_voters(shard_map_value(truth, voters_key), &voters);
	if (voters.n_current < 3 || voters.n_next > 0)
		return;
	stop_node(node);
	copy_store(node->store, copy);
	put_back_n = shard_map_point(truth).n;
	start_node(node);
	shard_voter_set_state(node->voter, SHARD_VOTER_AMNESIAC, node->out);
	end_step(node);
	durable(node);	/* it begins with that */
	want(n_wanted); /* which replaces it, should it be a voter */
}

/* Cut single directions, or the whole world in two. */
static void
cut(bool in_two)
{
	int64 side = draw(0, (1 << (NODES + 1)) - 1);

	if (in_two && !fault(30))
		return;
	for (int from = 1; from <= NODES; from++)
	{
		for (int to = 1; to <= NODES; to++)
		{
			if (in_two)
				blocked[from][to] = (side >> from & 1) != (side >> to & 1);
			else
				blocked[from][to] = blocked[from][to] ? chance(60) : fault(8);
		}
	}
}

/* What happens to the world in each half second. */
static void
disturb(int round, int seed)
{
	static const int sizes[] = {1, 3, 3, 5, 3, 1, 3, 5, 3};
	Node *node = &nodes[draw(1, NODES)];

	if (round % 6 == 5)
		want(sizes[round / 6 % lengthof(sizes)]);
	if (round == 10 && chance(40))
	{
		copied = wanted[0] % NODES + 1;
		copy_store(copy, nodes[copied].store);
	}
	if (round >= 15 && copied != 0 && put_back_n == 0)
		put_back();

	cut(seed % 2 == 0);
	if (fault(30))
		stop_node(node);
	for (int i = 1; i <= NODES; i++)
	{
		if (!nodes[i].up && chance(60))
			start_node(&nodes[i]);
	}
	node = &nodes[draw(1, NODES)];
	if (node->up && fault(15))
		node->frozen_until = now + draw(10, 2500) * SHARD_MS;
}

static void
heal(void)
{
	chaos = false;
	memset(blocked, 0, sizeof(blocked));
	for (int i = 1; i <= NODES; i++)
	{
		if (!nodes[i].up)
			start_node(&nodes[i]);
		nodes[i].frozen_until = 0;
	}
}

/* ---- histories ------------------------------------------------------------------------------- */

static void
begin(int seed)
{
	ShardVotersRecord voters;
	ShardMapEntry entry;

	pg_prng_seed(&prng, seed);
	now = SHARD_SECOND;
	chaos = true;
	harshness = 10 + seed / 2 % 4 * 30;
	copied = 0;
	put_back_n = 0;
	violation = NULL;
	decisions = 0;
	elections = 0;
	memset(blocked, 0, sizeof(blocked));
	memset(decided_once, 0, sizeof(decided_once));
	n_wanted = 1;
	wanted[0] = 1;
	truth = shard_map_create();
	for (int i = 1; i <= NODES; i++)
	{
		memset(&nodes[i], 0, sizeof(Node));
		nodes[i].id = i;
		for (int store = SHARD_STORE_VOTER; store <= SHARD_STORE_LEARNED; store++)
			nodes[i].store[store] = shard_map_create();
		start_node(&nodes[i]);
	}
	for (int store = SHARD_STORE_VOTER; store <= SHARD_STORE_LEARNED; store++)
		copy[store] = shard_map_create();

	memset(&voters, 0, sizeof(voters));
	voters.n_current = 1;
	voters.current[0] = 1;
	entry = shard_record_put_voters(&voters, 0, nodes[1].out->arena);
	shard_voter_found(nodes[1].voter, 1 << 16 | 1, &entry, 1, nodes[1].out);
	end_step(&nodes[1]);
	durable(&nodes[1]);
}

static void
end(void)
{
	while (events)
	{
		Event *event = events;

		events = event->next;
		pfree(event);
	}
	for (int i = 1; i <= NODES; i++)
	{
		stop_node(&nodes[i]);
		for (int store = SHARD_STORE_VOTER; store <= SHARD_STORE_LEARNED; store++)
			shard_map_destroy(nodes[i].store[store]);
	}
	for (int store = SHARD_STORE_VOTER; store <= SHARD_STORE_LEARNED; store++)
		shard_map_destroy(copy[store]);
	shard_map_destroy(truth);
}

static void
run_until(int64 until)
{
	while (events && events->at <= until && !violation)
	{
		Event *event = events;

		events = event->next;
		now = event->at;
		happen(event);
	}
	now = until;
}

/* After healing: have all nodes learned something that was decided after it? */
static bool
healed(int64 n)
{
	ShardVotersRecord voters;

	for (int i = 1; i <= NODES; i++)
	{
		if (shard_map_point(nodes[i].learned).n <= n)
			return false;
	}
	shard_record_get_voters(shard_map_value(truth, voters_key), &voters);
	return voters.n_current == n_wanted && voters.n_next == 0;
}

/* One history; what is wrong with it, or NULL. */
static const char *
history(int seed, int *decided)
{
	int64 n;
	int64 until;

	begin(seed);
	for (int round = 0; round < (int) (CHAOS / (500 * SHARD_MS)) && !violation; round++)
	{
		disturb(round, seed);
		run_until(now + 500 * SHARD_MS);
	}
	heal();
	n = shard_map_point(truth).n;
	for (until = now + BOUND; now < until && !violation && !healed(n);)
		run_until(now + 500 * SHARD_MS);
	if (!violation && !healed(n))
		violation = "a healed world does not go on";
	end();
	*decided = decisions;
	return violation;
}

/* ---- a coordinator by itself ----------------------------------------------------------------- */

/* Carry messages between the only voter and its proposer until none is left. */
static void
settle(ShardVoter *voter, ShardProposer *proposer, ShardActions *out)
{
	ShardActions *next = shard_action_create();

	shard_proposer_flush(proposer, now, out);
	while (out->n_actions > 0)
	{
		for (int i = 0; i < out->n_actions; i++)
		{
			ShardControl message = *out->actions[i].message;

			message.from = 1;
			shard_voter_receive(voter, now, &message, false, next);
			shard_proposer_receive(proposer, now, &message, next);
		}
		shard_proposer_flush(proposer, now, next);
		shard_action_reset(out);
		for (int i = 0; i < next->n_actions; i++)
		{
			ShardControl *copied_message =
				shard_action_send(out, next->actions[i].node, next->actions[i].message->kind);
			ShardMapEntry *entries;

			*copied_message = *next->actions[i].message;
			entries = shard_arena_copy(out->arena, copied_message->entries,
									   sizeof(ShardMapEntry) * copied_message->n_entries);
			copied_message->entries = entries;
			for (int k = 0; k < copied_message->n_entries; k++)
				entries[k].value =
					shard_arena_copy(out->arena, entries[k].value, entries[k].length);
		}
		shard_action_reset(next);
	}
	shard_action_destroy(next);
}

static ShardMapEntry
change(int kind, int a, int64 n)
{
	ShardMapEntry entry = {{kind, a, 0}, n, false, 1, "x"};

	return entry;
}

static ShardMapEntry
change_of_voters(const ShardMap *map, int n_current, int32 first, int n_next, int32 second)
{
	ShardVotersRecord voters;

	memset(&voters, 0, sizeof(voters));
	voters.n_current = n_current;
	voters.n_next = n_next;
	for (int i = 0; i < 2; i++)
	{
		voters.current[i] = i < n_current ? first : 0;
		voters.next[i] = i < n_next ? second : 0;
	}
	return shard_record_put_voters(&voters, shard_map_value(map, voters_key)->n, arena);
}

static void
test_proposals(void)
{
	ShardVoter *voter = shard_voter_create(1);
	ShardProposer *proposer = shard_proposer_create(1);
	ShardMap *learned = shard_map_create();
	ShardActions *out = shard_action_create();
	ShardVotersRecord voters = {1, {1}, 0, {0}, 0, {NULL, 0}};
	ShardMapEntry entries[3];
	ShardMapEntry *many;
	const ShardMap *map;

	now = SHARD_SECOND;
	entries[0] = shard_record_put_voters(&voters, 0, arena);
	shard_voter_found(voter, 1 << 16 | 1, entries, 1, out);
	shard_action_reset(out);
	entries[0] = change(SHARD_MAP_MEMBER, 1, 0);
	ok(!shard_proposer_propose(proposer, entries, 1), "who holds no office proposes nothing");
	shard_proposer_campaign(proposer, now, learned, out);
	settle(voter, proposer, out);
	is_int(shard_proposer_office(proposer), SHARD_OFFICE_HELD, "a sole voter takes office");
	map = shard_proposer_decided(proposer);
	is_int(shard_map_point(map).n, 2, "with one batch");
	is_int(shard_map_point(map).b, shard_proposer_ballot(proposer), "under its ballot");

	entries[1] = change(SHARD_MAP_MEMBER, 2, 7);
	ok(!shard_proposer_propose(proposer, entries, 2), "all or nothing");
	ok(!shard_proposer_pending(proposer, entries[0].key), "and it was nothing");
	ok(shard_proposer_propose(proposer, entries, 1), "a right expectation");
	ok(!shard_proposer_propose(proposer, entries, 1), "no second change of a key under way");
	settle(voter, proposer, out);
	is_int(shard_map_value(map, entries[0].key)->n, 3, "decided in the next batch");
	ok(!shard_proposer_propose(proposer, entries, 1), "the old expectation is wrong now");
	entries[0].n = 3;
	entries[0].deleted = true;
	entries[0].length = 0;
	ok(shard_proposer_propose(proposer, entries, 1), "delete it");
	settle(voter, proposer, out);
	ok(shard_map_value(map, entries[0].key) == NULL && shard_map_find(map, entries[0].key),
	   "a tombstone stays");
	entries[0] = change(SHARD_MAP_MEMBER, 1, 0);
	ok(shard_proposer_propose(proposer, entries, 1), "and counts as absent");
	settle(voter, proposer, out);

	entries[0] = change(SHARD_MAP_TERM, 0, 2);
	ok(!shard_proposer_propose(proposer, entries, 1), "the lineage is nobody's to change");
	entries[0] = change_of_voters(map, 1, 2, 0, 0);
	ok(!shard_proposer_propose(proposer, entries, 1), "voters do not change in one step");
	entries[0] = change_of_voters(map, 1, 2, 1, 3);
	ok(!shard_proposer_propose(proposer, entries, 1), "today's stay");
	entries[0] = change_of_voters(map, 1, 1, 2, 3);
	ok(!shard_proposer_propose(proposer, entries, 1), "nobody votes twice");
	entries[0] = change_of_voters(map, 1, 1, 1, 1);
	ok(shard_proposer_propose(proposer, entries, 1), "a legal change");
	settle(voter, proposer, out);
	entries[0] = change_of_voters(map, 1, 1, 1, 1);
	ok(!shard_proposer_propose(proposer, entries, 1), "one change at a time");
	entries[0] = change_of_voters(map, 1, 1, 0, 0);
	ok(shard_proposer_propose(proposer, entries, 1), "its end");
	settle(voter, proposer, out);

	many = shard_arena_alloc(arena, sizeof(ShardMapEntry) * 10000);
	for (int i = 0; i < 10000; i++)
		many[i] = change(SHARD_MAP_HOME, 10000 - i, 0);
	ok(shard_proposer_propose(proposer, many, 10000), "10000 homes");
	settle(voter, proposer, out);
	is_int(shard_map_value(map, many[0].key)->n, shard_map_point(map).n, "are one batch");
	is_int(shard_map_count(shard_voter_map(voter)), 10003, "which the voter has");

	now += 2 * SHARD_ELECTION_TIMEOUT;
	shard_proposer_tick(proposer, now, NULL, 0, out);
	is_int(shard_proposer_office(proposer), SHARD_OFFICE_HELD, "who votes alone may sleep");
	entries[0] = change_of_voters(map, 1, 1, 1, 2);
	ok(shard_proposer_propose(proposer, entries, 1), "when others are to vote,");
	settle(voter, proposer, out);
	now += 2 * SHARD_ELECTION_TIMEOUT;
	shard_proposer_tick(proposer, now, NULL, 0, out);
	is_int(shard_proposer_office(proposer), SHARD_OFFICE_NONE, "it ends without heartbeats");
	ok(shard_proposer_decided(proposer) == NULL, "with all that it knew");
	shard_arena_reset(arena);
	shard_voter_destroy(voter);
	shard_proposer_destroy(proposer);
	shard_map_destroy(learned);
	shard_action_destroy(out);
}

/* Two of three voters are lost for good: the operator lets the third go on alone (R13). */
static void
test_force(void)
{
	static const int32 alone[] = {3};
	ShardVoter *voter = shard_voter_create(1);
	ShardProposer *proposer = shard_proposer_create(1);
	ShardMap *learned = shard_map_create();
	ShardActions *out = shard_action_create();
	ShardVotersRecord voters = {3, {1, 2, 3}, 0, {0}, 4, {NULL, 0}};
	ShardMapEntry entry = shard_record_put_voters(&voters, 5, arena);
	const ShardMap *map;

	now = SHARD_SECOND;
	shard_map_put(learned, &entry);
	shard_map_set_point(learned, (ShardMapPoint){1, 7});
	shard_voter_force(voter, 9 << 16 | 1, learned, (const int32[]){1}, 1, 5, out);
	shard_action_reset(out);
	shard_proposer_campaign(proposer, now, shard_voter_map(voter), out);
	settle(voter, proposer, out);
	map = shard_proposer_decided(proposer);
	ok(map && shard_map_point(map).n == 7 + SHARD_ERA_LEAP + 1,
	   "the forced state is adopted and decided");
	ok(map && shard_record_get_voters(shard_map_value(map, voters_key), &voters) &&
		   voters.n_current == 1 && voters.current[0] == 1 && voters.era == 5,
	   "with the forced voters and the next era");
	shard_proposer_step_down(proposer);

	shard_voter_force(voter, 19 << 16 | 1, learned, alone, 1, 6, out);
	shard_action_reset(out);
	shard_proposer_campaign(proposer, now, shard_voter_map(voter), out);
	settle(voter, proposer, out);
	is_int(shard_proposer_office(proposer), SHARD_OFFICE_PRE_VOTE, "others cannot be done without");
	shard_arena_reset(arena);
	shard_voter_destroy(voter);
	shard_proposer_destroy(proposer);
	shard_map_destroy(learned);
	shard_action_destroy(out);
}

/* A voter's stored row: whole it is taken, damaged it is refused. */
static void
test_load(void)
{
	ShardVoter *voter = shard_voter_create(1);
	ShardVoter *again = shard_voter_create(1);
	ShardActions *out = shard_action_create();
	ShardVotersRecord voters = {2, {1, 2}, 0, {0}, 0, {NULL, 0}};
	ShardArena *arena = shard_arena_create();
	ShardMapEntry entry = shard_record_put_voters(&voters, 1, arena);
	ShardControl message;
	ShardWrite row;
	int taken = 0;

	memset(&message, 0, sizeof(message));
	message.kind = SHARD_CONTROL_PREPARE;
	message.from = 2;
	message.b = 7 << 16 | 2;
	shard_voter_observe(voter, &message);
	shard_voter_remind(voter, 2, &message);
	is_int(message.ballot, 0, "who does not vote is not remembered");
	shard_voter_found(voter, 1 << 16 | 1, &entry, 1, out);
	shard_action_reset(out);
	shard_voter_observe(voter, &message);
	shard_voter_receive(voter, 0, &message, false, out);
	row = out->writes[out->n_writes - 1];
	is_int(row.store, SHARD_STORE_VOTER, "a promise is written");
	ok(shard_voter_load(again, row.store, &row.entry, 1) &&
		   shard_voter_promised(again) == message.b,
	   "and read");
	memset(&message, 0, sizeof(message));
	shard_voter_remind(again, 2, &message);
	is_int(message.ballot, 7 << 16 | 2, "with what is remembered of others");

	for (uint32 length = row.entry.length; length-- > 0;)
	{
		ShardWrite damaged = row;

		damaged.entry.length = length;
		taken += shard_voter_load(again, damaged.store, &damaged.entry, 1);
	}
	is_int(taken, 0, "a row that is cut short is refused");
	shard_voter_destroy(voter);
	shard_voter_destroy(again);
	shard_action_destroy(out);
	shard_arena_destroy(arena);
}

int
main(int argc, char **argv)
{
	int first = argc > 1 ? atoi(argv[1]) : 1;
	int seeds = argc > 2 ? atoi(argv[2]) : SEEDS;
	int bad = 0;
	int64 total = 0;
	int64 total_elections = 0;

	arena = shard_arena_create();
	test_proposals();
	test_force();
	test_load();
	for (int seed = first; seed < first + seeds && bad < 5; seed++)
	{
		int decided;
		const char *wrong = history(seed, &decided);

		total += decided;
		total_elections += elections;
		if (wrong)
		{
			bad++;
			ok(false, "history %d: %s", seed, wrong);
		}
	}
	ok(bad == 0, "%d histories, " INT64_FORMAT " campaigns, " INT64_FORMAT " batches decided",
	   seeds, total_elections, total);
	shard_arena_destroy(arena);
	return unit_done();
}
