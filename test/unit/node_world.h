/*
 * node_world.h
 *		A small world for whole nodes: real disks and networks without delay, workers that do at once
 *		what they are told.
 *
 * A machine is a node with its durable rows; it can die and start again. What it is told to start it
 * starts, what it is told to move it seals and stages.
 */
#pragma once

#include "core/node/node.h"
#include "core/base/timing.h"
#include "shard.h"
#include "unit.h"

#define MACHINES 4
#define STEP (50 * SHARD_MS)
#define MANY 10000
#define STORES (SHARD_STORE_PAST + 1)
#define NO_LINK -1

typedef struct Machine
{
	ShardNode *node;
	bool cut;	  /* nothing comes or goes */
	bool moved;	  /* its address leads elsewhere: it hears what answers its own calls */
	bool unheard; /* what it registers is lost */
	bool slow;	  /* its disk: what was asked for becomes durable with settle() */
	int64 ticket; /* the last one that waits for that */
	char dsn[8];
	ShardUuid incarnation;
	ShardMap *rows[STORES]; /* durable */
	int persists;			/* transactions that the node asked for */
	int writes;
	int facts;
	int letters;	  /* that others have sent to it, whether or not they came */
	int epochs[MANY]; /* of shards that are active here; -1: not */
	int n_started;	  /* to be reported */
	ShardShardRef started[MANY];
	int64 command;	/* the last one that was answered, */
	int n_commands; /* and how many were */
	bool command_good;
	int64 awaited;	  /* a command whose end a test waits for, */
	int awaited_good; /* and what it was; -1: not yet */
	int64 refused;	  /* the last one that was not carried out, */
	char refused_text[200];
	bool command_unknown;
	int64 command_number;
	char command_text[200];
	int n_planned; /* homes in the answer to the last plan, and the first of them */
	ShardMapKey planned[MANY];
	ShardHomeRecord planned_home[MANY];
	bool mute;									/* it stops and copies nothing */
	int32 mute_type;							/* copies nothing of this type; 0: none; */
	int32 mute_type_too;						/* nor of this one */
	bool unfit;									/* no shard can be copied here */
	const char *unfit_why;						/* for that reason */
	bool deaf;									/* nor does it say so */
	int32 deaf_type;							/* of this type; 0: none */
	int decisions[SHARD_DECISION_STRATEGY + 1]; /* that it told, */
	ShardAction decision;						/* and the last one */
	char decision_text[200];
	size_t decision_length; /* of its whole text */
	ShardAction question;	/* the last one for a strategy; what it points to is gone */
	bool question_rebalances;
	int question_shards;
	int states_type; /* it has states of these shards, in their order; the first n_states */
	int n_states;
	int32 states[8];
	bool states_locked; /* and nobody can read them, */
	bool states_refuse; /* nor will that pass by itself; */
	int states_busy;	/* of so many answers one says that it cannot, 0: none; */
	int states_asked;
	int64 states_take; /* and so long it takes to read them */
	bool starting;	   /* a transaction is open that may give it a type */
} Machine;

typedef struct Letter
{
	struct Letter *next;
	int from;
	int to;
	bool event;
	ShardNodeEventKind kind;
	ShardShardRef shard;
	int32 node;
	ShardUuid uuid;
	int64 token;
	bool flag;
	bool locked; /* of an answer about states */
	int64 at;	 /* not before */
	size_t length;
	char bytes[FLEXIBLE_ARRAY_MEMBER];
} Letter;

static Machine machines[MACHINES];
static Letter *first_letter;
static Letter *last_letter;
static Letter *waiting_letters; /* answers about states that take their time */
static ShardActions *out;
static int64 now = 100 * SHARD_SECOND;
static uint64 last_uuid;
static int letters; /* messages sent */

/* Does nobody answer at the addresses of nodes? */
static bool nobody_there;

/* For a world that breaks no codes: bytes and secret, mixed. */
static ShardUuid
seal(ShardUuid secret, const void *bytes, size_t length)
{
	uint64 hash = secret.high;

	for (size_t i = 0; i < length; i++)
		hash = (hash ^ ((const uint8 *) bytes)[i]) * UINT64CONST(0x100000001b3);
	return (ShardUuid){hash, hash ^ secret.low};
}

/* The texts of this world. */
static bool
is_ascii(const char *bytes, size_t length)
{
	for (size_t i = 0; i < length; i++)
	{
		if ((bytes[i] & 0x80) != 0)
			return false;
	}
	return true;
}

/* What a node has logged last. */
static char last_log[400] pg_attribute_unused();

/* How often joiners were called back (I17). */
static int joiners_asked;

/* Does whoever has something to say call, and not answer (T7)? */
static bool all_call;

static ShardUuid
new_uuid(void)
{
	return (ShardUuid){7, ++last_uuid};
}

/* The machine where a node is, or which has an address. */
static int
machine_of(int32 node, const char *dsn)
{
	for (int i = 0; i < MACHINES; i++)
	{
		if (machines[i].node &&
			(dsn ? strcmp(machines[i].dsn, dsn) == 0 : shard_node_id(machines[i].node) == node))
			return i;
	}
	return NO_LINK;
}

static Letter *
post(int from, int to, const char *bytes, size_t length)
{
	Letter *letter = palloc0(offsetof(Letter, bytes) + length);

	letter->from = from;
	letter->to = to;
	letter->length = length;
	if (length > 0)
		memcpy(letter->bytes, bytes, length);
	if (last_letter)
		last_letter->next = letter;
	else
		first_letter = letter;
	last_letter = letter;
	return letter;
}

static void
post_event(int to, ShardNodeEventKind kind, ShardShardRef shard, int32 node)
{
	Letter *letter = post(to, to, NULL, 0);

	letter->event = true;
	letter->kind = kind;
	letter->shard = shard;
	letter->node = node;
}

/* A transaction of a machine becomes durable. */
static void
write_rows(Machine *machine, const ShardAction *action)
{
	machine->persists++;
	machine->writes += action->n_writes;
	for (int i = 0; i < action->n_writes; i++)
	{
		const ShardWrite *write = &action->writes[i];
		ShardMap *rows = machine->rows[write->store];
		ShardMapEntry gone = {.key = write->entry.key, .n = -1, .deleted = true};

		if (write->clear)
			shard_map_clear(rows);
		if (write->remove)
		{
			shard_map_put(rows, &gone);
			shard_map_purge(rows, -1);
		}
		else if (write->entry.key.kind >= 0)
			shard_map_put(rows, &write->entry);
	}
}

/* A decided home has come to the workers. */
static void
take_fact(int at, const ShardMapEntry *entry)
{
	Machine *machine = &machines[at];
	ShardHomeRecord home;

	machine->facts++;
	if (!shard_record_get_home(entry, &home) || entry->key.b >= MANY)
		return;
	if (shard_record_home_node(&home) != shard_node_id(machine->node))
		machine->epochs[entry->key.b] = -1;
	else if (machine->n_started < MANY)
	{
		machine->epochs[entry->key.b] = home.epoch;
		machine->started[machine->n_started++] =
			(ShardShardRef){entry->key.a, entry->key.b, home.epoch, 0};
	}
}

/* Does it say what runs at a machine? */
static bool
is_registration(const ShardAction *action)
{
	ShardControl message;

	return shard_control_decode(action->bytes, action->length, out->arena, &message) &&
		   message.kind == SHARD_CONTROL_REGISTER;
}

/* A joiner is looked for at the address that it says. */
static void
find_joiner(int at, const ShardAction *action)
{
	int place = machine_of(0, action->text);
	Machine *there = &machines[Max(place, 0)];

	joiners_asked++;
	if (place == NO_LINK || nobody_there || there->cut)
		return;
	post_event(at, SHARD_EVENT_WHO_ANSWERED, (ShardShardRef){0}, 0);
	last_letter->uuid = there->incarnation;
	last_letter->token = action->token;
	last_letter->flag = shard_record_uuid_equal(action->uuid, shard_node_join_token(there->node));
}

/* The next shard that there are states of, one at a time. */
static void
say_states(int at, const ShardAction *action)
{
	Machine *machine = &machines[at];
	int next = 0;

	while (next < machine->n_states && machine->states[next] <= action->shard.shard)
		next++;
	post_event(at, SHARD_EVENT_STATES, (ShardShardRef){machine->states_type, 0, 0, 0}, 0);
	last_letter->token = action->token;
	last_letter->at = now + machine->states_take;
	last_letter->locked =
		machine->states_locked ||
		(machine->states_busy > 0 && machine->states_asked++ % machine->states_busy == 0);
	last_letter->flag = last_letter->locked ? machine->states_locked && machine->states_refuse
											: next == machine->n_states;
	if (!last_letter->flag)
		last_letter->shard.shard = machine->states[next];
}

/* The machine that a message comes to; one that has moved is reached by the link that it has opened, if at all. */
static int
target_of(const ShardAction *action, int link)
{
	bool back =
		link != NO_LINK && !action->text &&
		(action->node == 0 || (action->message && action->message->kind == SHARD_CONTROL_FENCED));
	int to = back ? link : machine_of(action->node, action->text);

	return to != NO_LINK && machines[to].moved && !back ? NO_LINK : to;
}

/* Is anybody at the address of a node? */
static bool
is_there(int32 node)
{
	int at = machine_of(node, NULL);

	return !nobody_there && !(at != NO_LINK && machines[at].moved);
}

/* Do what a step of a machine wants done; link: to whom node 0 answers. */
static void
act(int at, int link)
{
	Machine *machine = &machines[at];
	int64 ticket = 0;

	for (int i = 0; i < out->n_actions; i++)
	{
		const ShardAction *action = &out->actions[i];
		int to;

		switch (action->kind)
		{
			case SHARD_ACTION_SEND:
				to = target_of(action, link);
				letters++;
				if (to != NO_LINK)
					machines[to].letters++;
				if (to != NO_LINK && !machine->cut && !machines[to].cut &&
					!(machine->unheard && is_registration(action)))
					(void) post(at, to, action->bytes, action->length);
				break;
			case SHARD_ACTION_PERSIST:
				write_rows(machine, action);
				ticket = action->ticket;
				break;
			case SHARD_ACTION_FACT:
				take_fact(at, action->entry);
				break;
			case SHARD_ACTION_STOP_SHARD:
				if (!machine->mute)
					post_event(at, SHARD_EVENT_SHARD_STOPPED, action->shard, 0);
				break;
			case SHARD_ACTION_PREPARE_IMPORT:
				if (!machine->deaf && machine->deaf_type != action->shard.type_id)
					post_event(at,
							   machine->unfit ? SHARD_EVENT_IMPORT_FAILED
											  : SHARD_EVENT_IMPORT_READY,
							   action->shard, 0);
				break;
			case SHARD_ACTION_DECISION:
				machine->decisions[action->decision]++;
				machine->decision = *action;
				strlcpy(machine->decision_text, action->text, sizeof(machine->decision_text));
				machine->decision_length = strlen(action->text);
				break;
			case SHARD_ACTION_STRATEGY:
				machine->question = *action;
				machine->question_rebalances = action->strategy->rebalance;
				machine->question_shards = action->strategy->n_shards;
				break;
			case SHARD_ACTION_IMPORT_SHARD:
				if (!machine->mute && machine->mute_type != action->shard.type_id &&
					machine->mute_type_too != action->shard.type_id)
					post_event(at, SHARD_EVENT_STAGED, action->shard, 0);
				break;
			case SHARD_ACTION_LOG:
				strlcpy(last_log, action->text, sizeof(last_log));
				break;
			case SHARD_ACTION_STATES:
				say_states(at, action);
				break;
			case SHARD_ACTION_WHO_AT:
				if (action->node == 0)
					find_joiner(at, action);
				else if (is_there(action->node))
					post_event(at, SHARD_EVENT_WHO_ANSWERED, (ShardShardRef){0}, action->node);
				break;
			case SHARD_ACTION_COMMAND_DONE:
				machine->command = action->token;
				machine->n_commands++;
				machine->command_good = action->flag;
				if (machine->awaited == action->token)
					machine->awaited_good = action->flag ? 1 : 0;
				machine->command_unknown = action->unknown != 0;
				machine->command_number = action->result;
				machine->n_planned = action->n_entries;
				for (int k = 0; k < Min(action->n_entries, MANY); k++)
				{
					machine->planned[k] = action->entry[k].key;
					(void) shard_record_get_home(&action->entry[k], &machine->planned_home[k]);
				}
				if (!action->flag)
				{
					machine->refused = action->token;
					strlcpy(machine->refused_text, action->text, sizeof(machine->refused_text));
				}
				strlcpy(machine->command_text, action->text ? action->text : "",
						sizeof(machine->command_text));
				break;
			default:
				break;
		}
	}
	machine->ticket = Max(machine->ticket, ticket);
	if (machine->ticket > 0 && !machine->slow)
	{
		ticket = machine->ticket;
		machine->ticket = 0;
		shard_node_persisted(machine->node, now, ticket, out);
		act(at, link);
	}
}

/* The disk of a machine has done what it was asked for. */
pg_attribute_unused() static void settle(int at)
{
	machines[at].slow = false;
	shard_action_reset(out);
	act(at, NO_LINK);
}

/* Something happens at a machine. */
static void
happen(int at, const ShardNodeEvent *event)
{
	shard_node_event(machines[at].node, now, event, out);
	act(at, NO_LINK);
}

/* An operator says something at a machine. */
pg_attribute_unused() static void order(int at, const ShardCommand *command)
{
	shard_node_command(machines[at].node, now, command, out);
	act(at, NO_LINK);
}

/* Hand over all letters, and those that follow from them. */
static void
deliver(void)
{
	while (first_letter)
	{
		Letter *letter = first_letter;
		int who;

		first_letter = letter->next;
		if (!first_letter)
			last_letter = NULL;
		if (letter->event)
		{
			ShardNodeEvent event = {.kind = letter->kind, .n_shards = 1, .shards = &letter->shard};

			event.node = letter->node;
			event.uuid = letter->uuid;
			if (letter->at > now)
			{
				letter->next = waiting_letters;
				waiting_letters = letter;
				continue;
			}
			event.token = letter->token;
			event.flag = letter->flag;
			event.text = letter->locked ? "locked"
						 : letter->kind == SHARD_EVENT_IMPORT_FAILED
							 ? machines[letter->to].unfit_why
							 : NULL;
			if (letter->kind == SHARD_EVENT_STATES && (letter->flag || letter->locked))
				event.n_shards = 0;
			who = letter->node != 0 ? machine_of(letter->node, NULL) : NO_LINK;
			if (who != NO_LINK)
				event.uuid = machines[who].incarnation;
			if (machines[letter->to].node)
				happen(letter->to, &event);
		}
		else if (machines[letter->to].node)
		{
			shard_node_receive(machines[letter->to].node, now,
							   machines[letter->from].node && !all_call &&
									   !machines[letter->from].moved &&
									   !shard_node_joining(machines[letter->from].node)
								   ? shard_node_id(machines[letter->from].node)
								   : 0,
							   letter->bytes, letter->length, out);
			act(letter->to, letter->from);
		}
		pfree(letter);
	}
}

/* Do hosts say when they have told all their types? */
static bool hosts_tell;

static void
tell_complete(int at)
{
	ShardNodeEvent event = {.kind = SHARD_EVENT_TYPES_TOLD};

	if (!hosts_tell || machines[at].starting || !shard_node_asks_for_types(machines[at].node))
		return;
	event.number = shard_map_point(shard_node_learned(machines[at].node)).n;
	happen(at, &event);
	deliver();
}

/* Answers whose time has come are on their way. */
static void
send_waiting(void)
{
	Letter *letter = waiting_letters;

	waiting_letters = NULL;
	while (letter)
	{
		Letter *next = letter->next;

		letter->next = NULL;
		if (last_letter)
			last_letter->next = letter;
		else
			first_letter = letter;
		last_letter = letter;
		letter = next;
	}
}

/* Let time pass. */
static void
run(int64 time)
{
	for (int64 end = now + time; now < end; now += STEP)
	{
		for (int i = 0; i < MACHINES; i++)
		{
			Machine *machine = &machines[i];
			ShardNodeEvent event = {.kind = SHARD_EVENT_SHARDS_STARTED};

			if (!machine->node)
				continue;
			tell_complete(i);
			if (i == 0)
				send_waiting();
			shard_node_tick(machine->node, now, out);
			act(i, NO_LINK);
			deliver();
			event.n_shards = machine->n_started;
			event.shards = machine->started;
			machine->n_started = 0;
			if (event.n_shards > 0)
				happen(i, &event);
			deliver();
		}
	}
}

/* What a cluster that is founded here asks for before it places anything. */
static int min_members;

static ShardRoleMinimum role_minimum;

/* Whoever is founded here has no address yet. */
static bool no_address;

/* The node that keeps the map for all who start from now on; 0: they do. */
static int32 journal_node;

/* The machine that is it, and no member. */
static int journal_at = NO_LINK;

static int64 rebalance_interval = SHARD_REBALANCE_INTERVAL;

/* Do hosts say when nothing is left of a node that leaves (M20)? */
static bool leave_confirmed;

/* Settings of those that start from now on. */
static const char *app_version = "1";
static const char *role;

/* Does the server of a machine that starts run on, so that it is the same incarnation? */
static bool server_runs_on;

/* A machine's process begins, with what is durable there. */
static void
start_as(int at, ShardStartKind kind)
{
	Machine *machine = &machines[at];
	ShardNodeConfig config = {.app_version = app_version};

	snprintf(machine->dsn, sizeof(machine->dsn), "m%d", at);
	config.journal_node = journal_node;
	config.journal_voter = at == journal_at;
	config.secret = new_uuid();
	config.seal = seal;
	config.is_text = is_ascii;
	config.dsn = no_address ? "" : machine->dsn;
	config.roles[0] = role;
	config.n_roles = role ? 1 : 0;
	config.lease_ttl_ms = SHARD_LEASE_TTL_MS;
	config.min_members = min_members;
	config.role_minimums[0] = role_minimum;
	config.n_role_minimums = role_minimum.members > 0 ? 1 : 0;
	config.roster.stable_after = 20 * SHARD_SECOND;
	config.roster.voter_replace_after = 60 * SHARD_SECOND;
	config.roster.leave_confirmed = leave_confirmed;
	config.homes.rebalance_interval = rebalance_interval;
	config.homes.handoff_timeout = SHARD_HANDOFF_TIMEOUT;
	config.homes.start_timeout = SHARD_START_TIMEOUT;
	machine->node = shard_node_create(&config);
	for (int s = SHARD_STORE_NODE; s < STORES; s++)
	{
		int count;
		ShardMapEntry *entries;

		if (!machine->rows[s])
			machine->rows[s] = shard_map_create();
		entries = shard_map_since(machine->rows[s], -2, out->arena, &count);
		if (shard_node_load(machine->node, (ShardStore) s, entries, count) != count)
			ok(false, "%s reads its rows", machine->dsn);
	}
	if (!server_runs_on)
		machine->incarnation = new_uuid();
	shard_node_start(machine->node, now, kind, new_uuid(), machine->incarnation, out);
	act(at, NO_LINK);
	deliver();
}

static void
start(int at)
{
	start_as(at, SHARD_START_RESTART);
}

/* It dies with what is not durable. */
static void
stop(int at)
{
	shard_node_destroy(machines[at].node);
	machines[at].node = NULL;
	machines[at].ticket = 0;
}

/* A machine joins the cluster of another one. */
static void
join(int at, int seed)
{
	ShardCommand event = {.kind = SHARD_COMMAND_JOIN, .text = machines[seed].dsn, .asker.token = 1};

	event.uuid = new_uuid();
	order(at, &event);
	deliver();
}

/* Every machine runs a type. */
pg_attribute_unused() static void add_type_of(int at, const char *name, int32 number_of_shards,
											  const char *owner)
{
	ShardTypeRecord type = {.name = name,
							.number_of_shards = number_of_shards,
							.role = "",
							.owner = owner};
	ShardNodeEvent event = {.kind = SHARD_EVENT_TYPE, .type = &type};

	happen(at, &event);
	deliver();
}

pg_attribute_unused() static void add_type(int at, const char *name, int32 number_of_shards)
{
	add_type_of(at, name, number_of_shards, NULL);
}

/* Number of members that a machine has learned. */
pg_attribute_unused() static int count_members(int at)
{
	int count;

	(void) shard_map_list(shard_node_learned(machines[at].node), SHARD_MAP_MEMBER, out->arena,
						  &count);
	return count;
}

/* Number of homes that a machine has learned, of one node or of all (0). */
pg_attribute_unused() static int count_homes(int at, int32 node)
{
	int count;
	int n = 0;
	ShardMapEntry *homes =
		shard_map_list(shard_node_learned(machines[at].node), SHARD_MAP_HOME, out->arena, &count);

	for (int i = 0; i < count; i++)
	{
		ShardHomeRecord home;

		n += shard_record_get_home(&homes[i], &home) &&
			 (node == 0 || shard_record_home_node(&home) == node);
	}
	return n;
}

pg_attribute_unused() static bool is_coordinator(int at)
{
	return shard_proposer_office(shard_node_proposer(machines[at].node)) == SHARD_OFFICE_HELD;
}

static void
begin_world(void)
{
	out = shard_action_create();
}

pg_attribute_unused() static void end_world(void)
{
	for (int i = 0; i < MACHINES; i++)
	{
		if (machines[i].node)
			stop(i);
		for (int s = SHARD_STORE_NODE; s < STORES; s++)
		{
			if (machines[i].rows[s])
				shard_map_destroy(machines[i].rows[s]);
			machines[i].rows[s] = NULL;
		}
	}
	shard_action_destroy(out);
}

/* A world of three nodes, which are one cluster. */
pg_attribute_unused() static void three_nodes(void)
{
	end_world();
	memset(machines, 0, sizeof(machines));
	begin_world();
	for (int i = 0; i < 3; i++)
		start(i);
	run(2 * SHARD_SECOND);
	join(1, 0);
	join(2, 0);
	run(20 * SHARD_SECOND);
	is_int(count_members(0), 3, "three nodes are a cluster");
}
