/*
 * host.c
 *		An instance hosts a control plane and a data plane over one store, as a server would.
 *
 * Durable records of the control plane are rows of one table; a PERSIST action is a transaction whose
 * ticket is reported when the store has released its commit. The control process reads everything
 * back when it starts. Bytes of values live as long as the world, so that copies of a store share
 * them.
 */
#include "world.h"

#include "core/base/timing.h"
#include "shard.h"

/* Behind the data plane's tables. */
#define CONTROL_TABLE (STORE_MAX_TABLES - 1)

#define TICK (100 * SHARD_MS)

typedef struct ControlRow
{
	int64 n;
	bool deleted;
	uint32 length;
	const char *value;
} ControlRow;

/* ---- addresses -------------------------------------------------------------------------------- */

/* The instance that an address leads to: of those that have it, the newest that is no clone. */
Instance *
host_at(World *world, const char *dsn)
{
	Instance *found = NULL;

	for (int i = 0; i < world->n_instances; i++)
	{
		if (world->instances[i].exists && strcmp(world->instances[i].dsn, dsn) == 0)
			found = &world->instances[i];
	}
	return found;
}

/* The cache of what an instance's control plane, which runs, knows now. */
static WorldCache *
cache_of(World *world, Instance *instance)
{
	WorldCache *cache = &instance->cache;
	int64 n = shard_map_point(shard_node_learned(instance->node)).n;

	if (cache->generation != instance->control_generation || cache->n != n ||
		cache->n_instances != world->n_instances)
	{
		memset(cache, 0, sizeof(WorldCache));
		cache->generation = instance->control_generation;
		cache->n = n;
		cache->n_instances = world->n_instances;
	}
	return cache;
}

/* The instance at the address of a node, as an instance's own control plane knows it. */
static Instance *
at_node(World *world, Instance *instance, int32 node)
{
	const ShardMapEntry *entry;
	ShardMemberRecord member;
	Instance *found = NULL;
	WorldCache *cache;

	if (!instance->node)
		return NULL;
	if (node == shard_node_id(instance->node))
		return instance;
	if (node == WORLD_JOURNAL)
		return world->journal;
	cache = cache_of(world, instance);
	if (node > 0 && node < WORLD_MAX_CACHED && cache->addresses[node] != 0)
		return &world->instances[cache->addresses[node] - 1];
	entry = shard_map_value(shard_node_learned(instance->node),
							(ShardMapKey){SHARD_MAP_MEMBER, node, 0});
	/* The journal answers over the connection that the question came by. */
	if (!entry && instance->journal)
		entry = shard_map_value(shard_voter_map(shard_node_voter(instance->node)),
								(ShardMapKey){SHARD_MAP_MEMBER, node, 0});
	if (entry)
	{
		ShardArena *arena = shard_arena_create();

		if (shard_record_get_member(entry, &member, arena))
			found = host_at(world, member.dsn);
		shard_arena_destroy(arena);
	}
	if (found && node > 0 && node < WORLD_MAX_CACHED)
		cache->addresses[node] = (int16) (found->index + 1);
	return found;
}

/* See world.h: the instance that last ran as that node, among those that were not retired. */
Instance *
host_of(World *world, int32 node)
{
	for (int i = world->n_instances - 1; i >= 0; i--)
	{
		Instance *instance = &world->instances[i];

		if (instance->joined && !instance->retired && instance->node_id == node &&
			host_at(world, instance->dsn) == instance)
			return instance;
	}
	return NULL;
}

/* Whoever holds the office, if somebody who is up does. */
Instance *
host_coordinator(World *world)
{
	Instance *best = NULL;
	int64 ballot = 0;

	for (int i = 0; i < world->n_instances; i++)
	{
		Instance *instance = &world->instances[i];
		const ShardProposer *proposer;

		if (!instance->node || !instance->joined || instance->shadow ||
			!shard_node_proposer(instance->node))
			continue;
		proposer = shard_node_proposer(instance->node);
		if (shard_proposer_office(proposer) == SHARD_OFFICE_HELD &&
			shard_proposer_ballot(proposer) > ballot)
		{
			best = instance;
			ballot = shard_proposer_ballot(proposer);
		}
	}
	return best;
}

/* The ids of the types that an instance knows. */
static void
read_types(Instance *instance, WorldCache *cache)
{
	ShardArena *arena = shard_arena_create();
	int count;
	ShardMapEntry *types =
		shard_map_list(shard_node_learned(instance->node), SHARD_MAP_TYPE, arena, &count);

	for (int i = 0; i < count; i++)
	{
		ShardTypeRecord type;

		if (shard_record_get_type(&types[i], &type, arena))
		{
			if (strcmp(type.name, WORLD_TYPE) == 0)
				cache->type_ids[0] = types[i].key.a;
			else if (strcmp(type.name, WORLD_LEASED_TYPE) == 0)
				cache->type_ids[1] = types[i].key.a;
		}
	}
	cache->has_types = true;
	shard_arena_destroy(arena);
}

/* See world.h. */
int32
host_type_id(Instance *instance, const char *name)
{
	WorldCache *cache;

	if (!instance->node)
		return 0;
	cache = cache_of(instance->world, instance);
	if (!cache->has_types)
		read_types(instance, cache);
	return cache->type_ids[strcmp(name, WORLD_TYPE) == 0 ? 0 : 1];
}

/* ---- what the data plane needs ---------------------------------------------------------------- */

static void
plane_message(World *world, Instance *instance, int64 from, int64 b, const char *bytes,
			  size_t length)
{
	if (!instance->up)
		return;
	plane_receive(instance->plane, (int32) b, bytes, length);
	host_after(world, instance);
}

/* The receiver is told the node that spoke, which the message itself says again. */
static void
deliver_plane(World *world, Instance *instance, int64 from, int64 b, const char *bytes,
			  size_t length)
{
	plane_message(world, instance, from, world->instances[from].node_id, bytes, length);
}

static void
plane_sends(void *context, int32 to, const void *bytes, size_t length)
{
	Instance *instance = context;
	Instance *target = at_node(instance->world, instance, to);

	if (target)
		world_send(instance->world, instance, target->index, deliver_plane, bytes, length);
}

static void
late_node_event(World *world, Instance *instance, int64 a, int64 b, const char *bytes,
				size_t length)
{
	ShardNodeEvent event;

	/* The shards were copied behind the event. */
	memcpy(&event, bytes, sizeof(event));
	event.shards = (const ShardShardRef *) (bytes + sizeof(event));
	if (instance->up)
		host_event(world, instance, &event);
}

/* What the data plane reports reaches the control process a moment later, or not at all if it dies. */
static void
plane_reports(void *context, const ShardNodeEvent *event)
{
	Instance *instance = context;
	size_t list = sizeof(ShardShardRef) * event->n_shards;
	char *bytes = palloc(sizeof(ShardNodeEvent) + list);

	memcpy(bytes, event, sizeof(ShardNodeEvent));
	if (list > 0)
		memcpy(bytes + sizeof(ShardNodeEvent), event->shards, list);
	world_later(instance->world, 50, late_node_event, instance, true, 0, 0, bytes,
				sizeof(ShardNodeEvent) + list);
	pfree(bytes);
}

static int64
plane_now(void *context)
{
	return world_clock(context);
}

static uint32
plane_random(void *context, uint32 below)
{
	return world_random(((Instance *) context)->world, below);
}

static int32
plane_node(void *context)
{
	return ((Instance *) context)->node_id;
}

static int32
plane_incarnation(void *context)
{
	Instance *instance = context;

	return instance->node ? shard_node_incarnation(instance->node) : 0;
}

static bool
plane_leased(void *context, int32 type_id)
{
	Instance *instance = context;

	int32 known = instance->world->options.leased ? host_type_id(instance, WORLD_LEASED_TYPE) : 0;

	/* Workers know it without the control process, too. */
	if (known != 0)
		instance->leased_type = known;
	return instance->leased_type != 0 && type_id == instance->leased_type;
}

static int32
plane_era(void *context)
{
	Instance *instance = context;

	/* Workers know it without the control process, too. */
	if (instance->node)
		instance->era = shard_node_era(instance->node);
	return instance->era;
}

static void
plane_notes(void *context, const char *text)
{
	Instance *instance = context;

	world_trace(instance->world, "%s: %s", instance->dsn, text);
}

/* ---- starting and stopping -------------------------------------------------------------------- */

/* A machine with an empty database; it is started by host_start. */
void
host_create(World *world, Instance *instance, const char *dsn)
{
	PlaneHost host = {instance,	  plane_sends,		 plane_reports, plane_now, plane_random,
					  plane_node, plane_incarnation, plane_leased,	NULL,	   plane_era};
	PlaneSettings settings = {.workers = 1 + (int) world_random(world, 2),
							  .types = world->options.leased ? 2 : 1,
							  .shards = world_told_shards(&world->options),
							  .entities = world->options.entities,
							  .ordered_timeout = world->options.gap_timeout,
							  .ordered_from = world->options.gap_from_one,
							  .no_tells_from_now = world->quiet};

	if (world->options.trace)
		host.note = plane_notes;
	instance->world = world;
	instance->index = (int) (instance - world->instances);
	instance->exists = true;
	strlcpy(instance->dsn, dsn, sizeof(instance->dsn));
	instance->clock_base = world_random(world, 1000) * SHARD_SECOND;
	instance->clock_ppm =
		(int) world_random(world, 2 * world->options.clock_ppm + 1) - world->options.clock_ppm;
	instance->step_delay = 300;
	instance->plane_at = PG_INT64_MAX;
	instance->plane_soon = false;
	instance->out = shard_action_create();
	instance->reply_to = -1;
	if (!instance->store)
		instance->store = store_create();
	store_define(instance->store, CONTROL_TABLE, "control", sizeof(ControlRow));
	types_define(instance);
	instance->plane =
		plane_create(&host, instance->store, world->check, instance->index, &settings);
	/* A standby has the tables that are there when it is made. */
	if (world->options.standby_gate && !instance->standby)
	{
		instance->standby = store_standby(instance->store);
		store_set_gate(instance->store, STORE_GATE_STANDBY);
	}
}

static void
tick(World *world, Instance *instance, int64 a, int64 b, const char *bytes, size_t length);

/* Types that every node runs, or sends to. */
void
host_tell_types(World *world, Instance *instance)
{
	ShardTypeRecord type = {.name = WORLD_TYPE,
							.number_of_shards = world->options.shards,
							.settings_hash = 1,
							.strategy = world->options.functions ? SHARD_ALLOCATION_FUNCTION : 0,
							.role = ""};
	ShardNodeEvent event = {.kind = SHARD_EVENT_TYPE, .type = &type, .flag = instance->unhosted};

	host_event(world, instance, &event);
	if (!world->options.leased)
		return;
	type.name = WORLD_LEASED_TYPE;
	type.strategy = 0;
	type.handoff_timeout_ms = 4000;
	type.leased = true;
	host_event(world, instance, &event);
}

/* For a world that breaks no codes: bytes and secret, mixed. */
static ShardUuid
seal(ShardUuid secret, const void *bytes, size_t length)
{
	uint64 hash = secret.high;

	for (size_t i = 0; i < length; i++)
		hash = (hash ^ ((const uint8 *) bytes)[i]) * UINT64CONST(0x100000001b3);
	return (ShardUuid){hash, hash ^ secret.low};
}

/* The status of an instance's node, as it has learned it itself. */
static int32
own_status(Instance *instance)
{
	const ShardMapEntry *entry =
		shard_map_value(shard_node_learned(instance->node),
						(ShardMapKey){SHARD_MAP_MEMBER, shard_node_id(instance->node), 0});
	ShardArena *arena = shard_arena_create();
	ShardMemberRecord member;
	int32 status = SHARD_MEMBER_NONE;

	if (entry && shard_record_get_member(entry, &member, arena))
		status = member.status;
	shard_arena_destroy(arena);
	return status;
}

/* Who exits takes no messages, from its start on: it may have said that nothing is left before it died (M20). */
static bool
takes_none(Instance *instance)
{
	return !instance->journal && own_status(instance) == SHARD_MEMBER_EXITING;
}

/*
 * Has it become a member, durably? Its process may have died while it joined, so that nobody waits for that to be said, or
 * between its welcome and hearing that this was durable.
 */
static void
note_join(Instance *instance)
{
	instance->joined |= instance->node && !instance->journal && instance->n_tickets == 0 &&
						shard_node_id(instance->node) > SHARD_FIRST_NODE;
}

/* The control process starts: it reads what was durable. */
static void
start_control(World *world, Instance *instance, ShardStartKind kind)
{
	ShardNodeConfig config = {.dsn = instance->dsn,
							  .app_version = "1.0.0",
							  .lease_ttl_ms = SHARD_LEASE_TTL_MS,
							  .gate = instance->standby ? SHARD_GATE_STANDBY : SHARD_GATE_LOCAL,
							  .journal_node = world->options.journal ? WORLD_JOURNAL : 0,
							  .journal_voter = instance->journal};
	StoreKey key = {{PG_INT64_MIN, PG_INT64_MIN, PG_INT64_MIN, PG_INT64_MIN}};
	const ControlRow *row;
	ShardUuid cluster;

	config.secret = (ShardUuid){world_random64(world), world_random64(world)};
	config.seal = seal;
	config.roster.stable_after = 20 * SHARD_SECOND;
	config.roster.voter_replace_after = 15 * SHARD_SECOND;
	config.roster.leave_confirmed = true;
	config.roster.weakly_up_after = SHARD_WEAKLY_UP_AFTER;
	config.homes.rebalance_interval = SHARD_REBALANCE_INTERVAL;
	config.homes.handoff_timeout = 10 * SHARD_SECOND;
	config.homes.start_timeout = 2 * SHARD_SECOND;
	config.homes.absolute_limit = 20;
	config.homes.relative_limit = 0.5;
	instance->node = shard_node_create(&config);
	instance->clean = 0;
	instance->n_tickets = 0;
	instance->control_generation++;
	while ((row = store_next(instance->store, NULL, CONTROL_TABLE, &key)) != NULL)
	{
		ShardMapEntry entry = {.key = {(int32) key.k[1], (int32) key.k[2], (int32) key.k[3]},
							   .n = row->n,
							   .deleted = row->deleted,
							   .length = row->length,
							   .value = row->value};

		if (shard_node_load(instance->node, (ShardStore) key.k[0], &entry, 1) != 1)
			check_fail(world->check, "%s: a durable record cannot be read", instance->dsn);
	}
	cluster.high = world_random64(world);
	cluster.low = world_random64(world);
	shard_node_start(instance->node, world_clock(instance), kind, cluster, instance->incarnation,
					 instance->out);
	instance->leaving = takes_none(instance);
	note_join(instance);
	host_after(world, instance);
	if (!instance->journal)
	{
		host_tell_types(world, instance);
		types_start(world, instance);
	}
	world->mended_at = world->now;
	world_later(world, 1000 + world_random(world, 100000), tick, instance, true,
				instance->control_generation, 0, NULL, 0);
}

/* See world.h. */
void
host_start(World *world, Instance *instance, ShardStartKind kind)
{
	Assert(!instance->up);
	if (instance->lost == WORLD_LOST_CRASHED)
		return;
	instance->up = true;
	instance->generation++;
	instance->kind = kind;
	instance->incarnation.high = world_random64(world);
	instance->incarnation.low = world_random64(world);
	world_trace(world, "%s starts%s", instance->dsn,
				kind == SHARD_START_RESTART	   ? ""
				: kind == SHARD_START_PROMOTED ? ", promoted"
											   : ", as a copy");
	plane_start(instance->plane, kind, instance->incarnation);
	start_control(world, instance, kind);
}

/* See world.h. */
void
host_stop_control(World *world, Instance *instance)
{
	if (!instance->node)
		return;
	shard_node_destroy(instance->node);
	instance->node = NULL;
	instance->n_tickets = 0;
	instance->control_generation++;
}

/* See world.h: the same incarnation, since the server did not stop. */
void
host_start_control(World *world, Instance *instance)
{
	if (instance->up && !instance->node)
		start_control(world, instance, instance->kind);
}

/* See world.h. */
void
host_stop(World *world, Instance *instance)
{
	if (!instance->up)
		return;
	world_trace(world, "%s dies", instance->dsn);
	host_stop_control(world, instance);
	types_crash(instance);
	plane_crash(instance->plane);
	instance->up = false;
	instance->frozen = false;
	instance->stuck = instance->sticks = 0;
	instance->generation++;
	instance->plane_at = PG_INT64_MAX;
	instance->plane_soon = false;
}

/* ---- actions of the control plane ------------------------------------------------------------- */

static void control_message(World *world, Instance *instance, int64 from, int64 b,
							const char *bytes, size_t length);
static void control_answer(World *world, Instance *instance, int64 from, int64 b, const char *bytes,
						   size_t length);

static void
send(World *world, Instance *instance, const ShardAction *action)
{
	Instance *target;
	bool back = instance->reply_to >= 0 &&
				(action->node == 0 ? !action->text
								   : instance->serving && action->message != NULL &&
										 action->message->kind == SHARD_CONTROL_FENCED);

	/* Over the connection that there is: whoever has called hears an answer. */
	if (back)
	{
		world_send(world, instance, instance->reply_to,
				   instance->serving ? control_answer : control_message, action->bytes,
				   action->length);
		return;
	}
	if (action->node != 0)
		target = at_node(world, instance, action->node);
	else if (action->text)
		target = host_at(world, action->text);
	else
		target = NULL;
	if (target)
		world_send(world, instance, target->index, control_message, action->bytes, action->length);
}

/* The whole store of the control plane in one transaction. A failure ends the control process. */
static void
persist(World *world, Instance *instance, const ShardAction *action)
{
	StoreTransaction *transaction = store_begin(instance->store);
	bool good = true;

	for (int i = 0; i < action->n_writes && good; i++)
	{
		const ShardWrite *write = &action->writes[i];
		StoreKey key = {
			{write->store, write->entry.key.kind, write->entry.key.a, write->entry.key.b}};
		ControlRow row = {write->entry.n, write->entry.deleted, write->entry.length, NULL};

		if (write->clear)
		{
			StoreKey next = {{write->store, PG_INT64_MIN, PG_INT64_MIN, PG_INT64_MIN}};

			while (good && store_next(instance->store, transaction, CONTROL_TABLE, &next) &&
				   next.k[0] == write->store)
				good = store_remove(transaction, CONTROL_TABLE, next);
			continue;
		}
		if (write->remove)
		{
			if (store_get(instance->store, transaction, CONTROL_TABLE, key))
				good = store_remove(transaction, CONTROL_TABLE, key);
			continue;
		}
		row.value = shard_arena_copy(world->history, write->entry.value, write->entry.length);
		good = store_put(transaction, CONTROL_TABLE, key, &row);
		if (good && write->store == SHARD_STORE_LEARNED)
			judge_learned(world, instance, &write->entry);
	}
	if (!good || instance->n_tickets == WORLD_MAX_TICKETS)
	{
		store_abort(transaction);
		instance->n_tickets = -1;
		return;
	}
	instance->tickets[instance->n_tickets].ticket = action->ticket;
	instance->tickets[instance->n_tickets++].lsn = store_commit(transaction);
}

static void
who_answers(World *world, Instance *instance, int64 node, int64 b, const char *bytes, size_t length)
{
	ShardNodeEvent event = {.kind = SHARD_EVENT_WHO_ANSWERED, .node = (int32) node};

	memcpy(&event.uuid, bytes, sizeof(ShardUuid));
	if (instance->up)
		host_event(world, instance, &event);
}

/* Who was found at the address of a joiner, and whether it joins as the coordinator was told (I17). */
typedef struct JoinerFound
{
	ShardUuid token;
	int64 question;
	ShardUuid incarnation;
	bool joins;
} JoinerFound;

static void
joiner_answers(World *world, Instance *instance, int64 a, int64 b, const char *bytes, size_t length)
{
	ShardNodeEvent event = {.kind = SHARD_EVENT_WHO_ANSWERED};
	JoinerFound found;

	memcpy(&found, bytes, sizeof(found));
	event.uuid = found.incarnation;
	event.token = found.question;
	event.flag = found.joins;
	if (instance->up)
		host_event(world, instance, &event);
}

static void
asked_joiner(World *world, Instance *instance, int64 from, int64 b, const char *bytes,
			 size_t length)
{
	JoinerFound found;

	if (!instance->up || !instance->node)
		return;
	memcpy(&found, bytes, sizeof(found));
	found.incarnation = instance->incarnation;
	found.joins = shard_record_uuid_equal(found.token, shard_node_join_token(instance->node));
	if (!world->blocked[instance->index][from])
		world_later(world, world->options.delay, joiner_answers, &world->instances[from], false, 0,
					0, (const char *) &found, sizeof(found));
}

static void
ask_joiner(World *world, Instance *instance, const ShardAction *action)
{
	JoinerFound found = {.token = action->uuid, .question = action->token};
	Instance *target = host_at(world, action->text);

	if (target)
		world_send(world, instance, target->index, asked_joiner, (const char *) &found,
				   sizeof(found));
}

/* Somebody asks who sits at an address: the answer is read from the database there. */
static void
asked_who(World *world, Instance *instance, int64 from, int64 b, const char *bytes, size_t length)
{
	int32 node;

	if (!instance->up)
		return;
	memcpy(&node, bytes, sizeof(node));
	if (!world->blocked[instance->index][from])
		world_later(world, world->options.delay, who_answers, &world->instances[from], false, node,
					0, (const char *) &instance->incarnation, sizeof(ShardUuid));
}

static void
ask_who(World *world, Instance *instance, const ShardAction *action)
{
	Instance *target = at_node(world, instance, action->node);
	const ShardMapEntry *entry = shard_map_value(shard_node_learned(instance->node),
												 (ShardMapKey){SHARD_MAP_MEMBER, action->node, 0});
	ShardMemberRecord member;
	ShardArena *arena = shard_arena_create();

	/* Its own address, too, is asked over the network: a clone would find the original there. */
	if (entry && shard_record_get_member(entry, &member, arena))
		target = host_at(world, member.dsn);
	shard_arena_destroy(arena);
	if (target)
		world_send(world, instance, target->index, asked_who, (const char *) &action->node,
				   sizeof(int32));
}

/* One action. */
static void
carry_out(World *world, Instance *instance, const ShardAction *action)
{
	switch (action->kind)
	{
		case SHARD_ACTION_NONE:
			break;
		case SHARD_ACTION_SEND:
			if (action->message && action->message->kind == SHARD_CONTROL_JOIN_REPLY &&
				action->message->flag)
				host_lets_in(world, instance);
			send(world, instance, action);
			break;
		case SHARD_ACTION_PERSIST:
			if (instance->n_tickets >= 0)
				persist(world, instance, action);
			break;
		case SHARD_ACTION_WHO_AT:
			if (action->node != 0)
				ask_who(world, instance, action);
			else
				ask_joiner(world, instance, action);
			break;
		case SHARD_ACTION_COMMAND_DONE:
			instance->joined |= action->flag && action->token == WORLD_JOIN;
			world_trace(world, "%s: command %s: %s", instance->dsn,
						action->flag ? "done" : "refused", action->text ? action->text : "");
			if (action->flag)
				commands_done(world, instance, action->token);
			break;
		case SHARD_ACTION_LOG:
			world_trace(world, "%s: %s", instance->dsn, action->text);
			if (strstr(action->text, "is the coordinator"))
				world->n_offices++;
			break;
		case SHARD_ACTION_STRATEGY:
			host_asks_functions(world, instance, action);
			break;
		case SHARD_ACTION_STATES:
			host_reads_states(world, instance, action);
			break;
		case SHARD_ACTION_STOP_WORKERS:
			instance->downed_restart = action->flag;
			plane_action(instance->plane, action);
			break;
		default:
			plane_action(instance->plane, action);
			break;
	}
}

/* The actions of a step, in order. */
static void
carry_out_all(World *world, Instance *instance)
{
	instance->node_id = shard_node_id(instance->node);
	for (int i = 0; i < instance->out->n_actions; i++)
		carry_out(world, instance, &instance->out->actions[i]);
	instance->out->n_actions = 0;
}

/* Transactions of the control plane that are durable by now. */
static void
report_tickets(World *world, Instance *instance)
{
	while (instance->node && instance->n_tickets > 0 &&
		   store_released(instance->store, instance->tickets[0].lsn))
	{
		int64 ticket = instance->tickets[0].ticket;

		instance->n_tickets--;
		memmove(&instance->tickets[0], &instance->tickets[1],
				instance->n_tickets * sizeof(instance->tickets[0]));
		shard_node_persisted(instance->node, world_clock(instance), ticket, instance->out);
		carry_out_all(world, instance);
	}
}

static void
restart_control(World *world, Instance *instance, int64 generation, int64 b, const char *bytes,
				size_t length)
{
	if (generation == instance->control_generation)
		host_start_control(world, instance);
}

static void
restart_server(World *world, Instance *instance, int64 a, int64 b, const char *bytes, size_t length)
{
	if (!instance->up && !instance->retired)
		host_start(world, instance, SHARD_START_RESTART);
}

/* ---- processes -------------------------------------------------------------------------------- */

/* One step of one process of the data plane, whichever chance picks among those that have work. */
static void
plane_steps(World *world, Instance *instance, int64 a, int64 b, const char *bytes, size_t length)
{
	uint32 ready;

	if (!instance->up || a != instance->plane_turn)
		return;
	instance->plane_at = PG_INT64_MAX;
	instance->plane_soon = false;
	ready = plane_ready(instance->plane) & ~instance->stuck;
	while (ready != 0)
	{
		int skip = (int) world_random(world, (uint32) __builtin_popcount(ready));
		uint32 rest = ready;
		int process;

		for (; skip > 0; skip--)
			rest &= rest - 1;
		process = __builtin_ctz(rest);
		if (plane_step(instance->plane, process))
		{
			if ((instance->sticks & (1U << process)) && plane_midway(instance->plane, process) &&
				world_random(world, 3) == 0)
			{
				instance->sticks &= ~(1U << process);
				instance->stuck |= 1U << process;
			}
			break;
		}
		ready &= ~(1U << process);
	}
	host_after(world, instance);
}

/* The standby has received what its primary had flushed a while ago. */
static void
replicates(World *world, Instance *instance, int64 upto, int64 b, const char *bytes, size_t length)
{
	instance->replicating = false;
	if (!instance->standby)
		return;
	store_replay(instance->standby, upto);
	host_after(world, instance);
}

/*
 * After anything that happened at an instance: carry out what its control plane wants, and see to it
 * that its processes run on.
 */
void
host_after(World *world, Instance *instance)
{
	int64 wake;
	int64 delay;

	if (!instance->up)
		return;
	if (instance->node)
	{
		carry_out_all(world, instance);
		report_tickets(world, instance);
		note_join(instance);
	}
	if (instance->n_tickets < 0)
	{
		/* The disk was full: the control process ends and tries again. */
		host_stop_control(world, instance);
		world_later(world, 200000, restart_control, instance, true, instance->control_generation, 0,
					NULL, 0);
	}
	if (instance->downed_restart)
	{
		instance->downed_restart = false;
		host_stop(world, instance);
		world_later(world, 1000000, restart_server, instance, true, 0, 0, NULL, 0);
		return;
	}
	if (instance->standby && !instance->replicating &&
		store_replayed(instance->standby) < store_flushed(instance->store))
	{
		instance->replicating = true;
		world_later(world, 500 + world_random(world, 5000), replicates, instance, false,
					store_flushed(instance->store), 0, NULL, 0);
	}
	if (instance->plane_soon)
		return;
	if ((plane_ready(instance->plane) & ~instance->stuck) != 0)
	{
		instance->plane_soon = true;
		delay = 20 + world_random(world, (uint32) instance->step_delay);
	}
	else if ((wake = plane_wake(instance->plane)) != PG_INT64_MAX)
		delay = Max(wake - world_clock(instance), instance->stuck ? 10000 : 100);
	else
		return;
	if (world->now + delay >= instance->plane_at && !instance->plane_soon)
		return;
	instance->plane_at = world->now + delay;
	world_later(world, delay, plane_steps, instance, true, ++instance->plane_turn, 0, NULL, 0);
}

/* ---- events of the control plane -------------------------------------------------------------- */

/* Says when nothing is left, by two looks in a row (M20). */
static void
look_whether_empty(World *world, Instance *instance)
{
	ShardNodeEvent event = {.kind = SHARD_EVENT_EMPTIED};

	instance->leaving = takes_none(instance);
	if (!instance->leaving || shard_node_fenced(instance->node) ||
		instance->homes != shard_node_own_homes(instance->node))
		instance->clean = 0;
	else if (!plane_is_empty(instance->plane))
		instance->clean = 0;
	else if (++instance->clean == 2)
	{
		world_trace(world, "%s: nothing is left here", instance->dsn);
		host_event(world, instance, &event);
	}
	instance->homes = shard_node_own_homes(instance->node);
}

static void
tick(World *world, Instance *instance, int64 generation, int64 b, const char *bytes, size_t length)
{
	if (!instance->node || generation != instance->control_generation)
		return;
	look_whether_empty(world, instance);
	types_look(world, instance);
	if (!instance->node || generation != instance->control_generation)
		return;
	shard_node_tick(instance->node, world_clock(instance), instance->out);
	world_later(world, TICK, tick, instance, true, generation, 0, NULL, 0);
	host_after(world, instance);
}

static void
receive(World *world, Instance *instance, int64 from, bool called, int32 via, const char *bytes,
		size_t length)
{
	if (!instance->up || !instance->node)
		return;
	instance->reply_to = (int) from;
	instance->serving = called;
	shard_node_receive(instance->node, world_clock(instance), via, bytes, length, instance->out);
	host_after(world, instance);
	instance->reply_to = -1;
}

/* See world.h. */
void
host_told(World *world, Instance *instance, int32 via, const char *bytes, size_t length)
{
	receive(world, instance, -1, via == 0, via, bytes, length);
}

static void
control_message(World *world, Instance *instance, int64 from, int64 b, const char *bytes,
				size_t length)
{
	receive(world, instance, from, true, 0, bytes, length);
}

/* The same from somebody who was called at the address of a node, if he sits there still. */
static void
control_answer(World *world, Instance *instance, int64 from, int64 b, const char *bytes,
			   size_t length)
{
	Instance *sender = &world->instances[from];
	int32 node = sender->node ? shard_node_id(sender->node) : 0;

	receive(world, instance, from, false,
			node != 0 && at_node(world, instance, node) == sender ? node : 0, bytes, length);
}

/* See world.h. */
void
host_event(World *world, Instance *instance, const ShardNodeEvent *event)
{
	if (!instance->node)
		return;
	shard_node_event(instance->node, world_clock(instance), event, instance->out);
	host_after(world, instance);
}

/* See world.h. */
void
host_command(World *world, Instance *instance, const ShardCommand *command)
{
	if (!instance->node)
		return;
	shard_node_command(instance->node, world_clock(instance), command, instance->out);
	host_after(world, instance);
}
