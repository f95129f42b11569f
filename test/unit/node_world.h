/*
 * node_world.h
 *		A small world for whole nodes: real disks and networks without delay, workers that do at once
 *		what they are told.
 */
#pragma once

#include "node_machine.h"

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
static uint64 features = SHARD_FEATURE_REPLICAS;

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
	config.features = features;
	config.lease_ttl_ms = SHARD_LEASE_TTL_MS;
	config.min_members = min_members;
	config.role_minimums[0] = role_minimum;
	config.n_role_minimums = role_minimum.members > 0 ? 1 : 0;
	config.roster.stable_after = 20 * SHARD_SECOND;
	config.roster.voter_replace_after = 60 * SHARD_SECOND;
	config.roster.leave_confirmed = leave_confirmed;
	config.live.rebalance_interval = rebalance_interval;
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
