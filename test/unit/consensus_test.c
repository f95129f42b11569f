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

#include "consensus_world.h"

#define SEEDS 400
#define CHAOS (25 * SHARD_SECOND) /* how long the faults last */
#define BOUND (15 * SHARD_SECOND) /* and how long healing may take */

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

	if (message->commit_n <= point.n || message->above > point.n)
		return;
	if (message->above == 0)
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
	answer->learned_n = shard_map_point(node->learned).n;
	answer->accepted = shard_map_point(shard_voter_map(node->voter));
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

int
main(int argc, char **argv)
{
	int first = argc > 1 ? atoi(argv[1]) : 1;
	int seeds = argc > 2 ? atoi(argv[2]) : SEEDS;
	int bad = 0;
	int64 total = 0;
	int64 total_elections = 0;

	arena = shard_arena_create();
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
