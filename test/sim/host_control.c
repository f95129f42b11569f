/*
 * host_control.c
 *		The control process of an instance.
 *
 * Durable records of the control plane are rows of one table; a PERSIST action is a transaction whose
 * ticket is reported when the store has released its commit. The control process reads everything
 * back when it starts. Bytes of values live as long as the world, so that copies of a store share
 * them.
 */
#include "host.h"

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

void
host_define_control(Instance *instance)
{
	store_define(instance->store, CONTROL_TABLE, "control", sizeof(ControlRow));
}

/* ---- starting and stopping -------------------------------------------------------------------- */

static void
tick(World *world, Instance *instance, int64 a, int64 b, const char *bytes, size_t length);

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
void
host_begin_control(World *world, Instance *instance, ShardStartKind kind)
{
	ShardNodeConfig config = {.dsn = instance->dsn,
							  .app_version = "1.0.0",
							  .features = SHARD_FEATURE_REPLICAS,
							  .lease_ttl_ms = SHARD_LEASE_TTL_MS,
							  .live.gate =
								  instance->standby ? SHARD_GATE_STANDBY : SHARD_GATE_LOCAL,
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
	config.live.rebalance_interval = SHARD_REBALANCE_INTERVAL;
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
		host_begin_control(world, instance, instance->kind);
}

static void
restart_control(World *world, Instance *instance, int64 generation, int64 b, const char *bytes,
				size_t length)
{
	if (generation == instance->control_generation)
		host_start_control(world, instance);
}

/* ---- actions ---------------------------------------------------------------------------------- */

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
		target = host_at_node(world, instance, action->node);
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
	Instance *target = host_at_node(world, instance, action->node);
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
			plans_sent(world, instance, action);
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
			plans_done(world, instance, action);
			break;
		case SHARD_ACTION_PREPARE_IMPORT:
			plans_prepares(world, instance->node_id, &action->shard);
			world->model->action(instance->flow, action);
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
			world->model->action(instance->flow, action);
			break;
		default:
			world->model->action(instance->flow, action);
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

/* What the control plane wants, and its transactions. A disk that was full ends it: it tries again. */
void
host_run_control(World *world, Instance *instance)
{
	if (instance->node)
	{
		carry_out_all(world, instance);
		report_tickets(world, instance);
		note_join(instance);
	}
	if (instance->n_tickets < 0)
	{
		host_stop_control(world, instance);
		world_later(world, 200000, restart_control, instance, true, instance->control_generation, 0,
					NULL, 0);
	}
}

/* ---- events ----------------------------------------------------------------------------------- */

/* Says when nothing is left, by two looks in a row (M20). */
static void
look_whether_empty(World *world, Instance *instance)
{
	ShardNodeEvent event = {.kind = SHARD_EVENT_EMPTIED};

	instance->leaving = takes_none(instance);
	if (!instance->leaving || shard_node_fenced(instance->node) ||
		instance->homes != shard_node_own_homes(instance->node))
		instance->clean = 0;
	else if (!world->model->is_empty(instance->flow))
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
			node != 0 && host_at_node(world, instance, node) == sender ? node : 0, bytes, length);
}

void
host_event(World *world, Instance *instance, const ShardNodeEvent *event)
{
	if (!instance->node)
		return;
	shard_node_event(instance->node, world_clock(instance), event, instance->out);
	host_after(world, instance);
}
