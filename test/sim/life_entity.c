/*
 * life_entity.c
 *		Messages and their entities: what is met is handled, waits, or is given up.
 */
#include "life.h"

/* One step of the machine; what it says is done is what the caller does. */
ShardEntityAction
life_step(LifeNode *node, int32 shard, int32 entity, ShardEntityEvent event)
{
	LifeEntity *e = &node->memory.entities[shard][entity];
	ShardEntityAction action = SHARD_ENTITY_DO_NOTHING;
	bool remembers = node->world->types[life_type_of(shard)].remembers;

	if (!shard_entity_step(e->state, event, remembers, &e->state, &action))
		life_check_fail(node->world->check, "entity %d/%d: event %s in state %s", shard, entity,
						shard_entity_machine.event_names[event],
						shard_entity_machine.state_names[e->state]);
	return action;
}

void
life_put(LifeNode *node, LifeTable table, StoreKey key, const void *value)
{
	if (!store_put(node->tx, table, key, value))
		node->failed = true;
}

void
life_remove(LifeNode *node, LifeTable table, StoreKey key)
{
	if (!store_remove(node->tx, table, key))
		node->failed = true;
}

/* The entity's state changes. */
void
life_effect(LifeNode *node, int32 shard, int32 entity)
{
	StoreKey key = LIFE_KEY(shard, entity);
	const LifeStateRow *row = store_get(node->store, node->tx, LIFE_STATE, key);
	LifeStateRow state = {0};

	if (row != NULL)
		state = *row;
	state.version++;
	life_put(node, LIFE_STATE, key, &state);
}

/*
 * What waits in front of an entity, as the rows say. A stored time farther ahead than any pause counts as just that
 * far: the clock was set back (D16).
 */
void
life_load_held(LifeNode *node, int32 shard, int32 entity)
{
	LifeEntity *e = &node->memory.entities[shard][entity];
	const ShardEntityLimits *limits = &node->world->types[life_type_of(shard)].limits;
	StoreKey key = LIFE_KEY(shard, entity);
	const LifeHeldRow *held = store_at_or_next(node->store, node->tx, LIFE_HELD, &key);

	e->waiting = 0;
	e->next_at = 0;
	for (; held != NULL && key.k[0] == shard && key.k[1] == entity;
		 held = store_next(node->store, node->tx, LIFE_HELD, &key))
	{
		if (e->waiting++ == 0)
			e->next_at =
				held->next_at == LIFE_NEVER ? LIFE_NEVER
				: key.k[2] == LIFE_PLACE_START
					? Min(held->next_at, life_wall(node) + shard_entity_longest_restart(limits))
					: Min(held->next_at, life_wall(node) + shard_entity_longest_pause(limits));
	}
}

/* A shard pauses as long as a message of it says so that is still held. */
void
life_load_pause(LifeNode *node, int32 shard)
{
	StoreKey key = LIFE_KEY(shard);
	const LifeHeldRow *held = store_at_or_next(node->store, node->tx, LIFE_HELD, &key);
	LifeShard *s = &node->memory.shards[shard];

	s->paused_until = 0;
	for (; held != NULL && key.k[0] == shard;
		 held = store_next(node->store, node->tx, LIFE_HELD, &key))
	{
		if (held->pauses)
			s->paused_until = Max(s->paused_until, node->memory.entities[shard][key.k[1]].next_at);
	}
}

/* The machine follows what waits. */
void
life_follow(LifeNode *node, int32 shard, int32 entity)
{
	LifeEntity *e = &node->memory.entities[shard][entity];
	bool rests = e->state == SHARD_ENTITY_WAITING || e->state == SHARD_ENTITY_QUARANTINED;

	if (e->waiting > 0 && !rests)
		life_step(node, shard, entity,
				  e->next_at == LIFE_NEVER ? SHARD_ENTITY_ON_SUSPENDED : SHARD_ENTITY_ON_HELD);
	else if (e->waiting == 0 && rests && e->incarnation != 0)
		life_step(node, shard, entity, SHARD_ENTITY_ON_DUE);
	else if (e->waiting == 0 && rests && e->restart_at == 0)
	{
		life_drop(node, shard, entity);
#ifndef SHARD_MUTANT_RECOVERY_PASSES_WHO_WAITS
		/* The walk has passed it while something waited, none of which had it begin. */
		life_recover(node, shard, entity);
#endif
	}
}

/* Nothing of the entity can run now, though none of it has failed (D5, D18), or since its shard pauses. */
bool
life_is_aside(const LifeNode *node, int32 shard, int32 entity)
{
#ifdef SHARD_MUTANT_PAUSES_ANOTHER_SHARD
	if (node->memory.shards[(shard + 1) % LIFE_SHARDS].paused_until > life_wall(node))
		return true;
	return node->world->aside_until[shard][entity] > node->world->now;
#endif
	return node->world->aside_until[shard][entity] > node->world->now ||
		   node->memory.shards[shard].paused_until > life_wall(node);
}

/* Is something to be done for the entity by now, without a message? */
bool
life_run_due(const LifeNode *node, int32 shard, int32 entity)
{
	const LifeEntity *e = &node->memory.entities[shard][entity];

	if (life_is_aside(node, shard, entity))
		return false;
	if (e->waiting > 0)
		return e->next_at <= life_wall(node);
	return e->restart_at != 0 && e->restart_at <= node->world->now;
}

/* A message waits behind those that wait already; order 0: no place of its own yet. */
static void
stash(LifeNode *node, const LifeRow *row, int64 order, int64 attempts, int64 next_at, bool pauses)
{
	LifeHeldRow held = {.attempts = attempts, .next_at = next_at, .pauses = pauses, .row = *row};

	if (order == 0)
	{
		StoreKey key = LIFE_KEY(row->shard, row->entity, LIFE_PLACE_STASH);

		order = 1;
		while (store_at_or_next(node->store, node->tx, LIFE_HELD, &key) != NULL &&
			   key.k[0] == row->shard && key.k[1] == row->entity)
		{
			order = key.k[3] + 1;
			key.k[3]++;
		}
	}
	life_put(node, LIFE_HELD, LIFE_KEY(row->shard, row->entity, LIFE_PLACE_STASH, order), &held);
	life_load_held(node, row->shard, row->entity);
	life_follow(node, row->shard, row->entity);
	if (pauses)
		life_load_pause(node, row->shard);
}

/* Another message of the handler's, or a row that does something later. */
static void
do_deed(LifeNode *node, const LifeRow *row)
{
	LifeWorld *world = node->world;
	LifeRow next = {0};

	switch (row->deed)
	{
		case LIFE_DEED_TELL:
			next = life_draw_message(world, node, 0);
			next.deed = LIFE_DEED_NONE;
			break;
		case LIFE_DEED_SCHEDULE:
			next = (LifeRow){.kind = LIFE_SCHEDULE,
							 .shard = row->shard,
							 .entity = row->entity,
							 .name = (int32) life_random(world, LIFE_NAMES),
							 .due = life_draw_due(world, node)};
			break;
		case LIFE_DEED_CANCEL:
		case LIFE_DEED_PASSIVATE:
			next = (LifeRow){.kind = row->deed == LIFE_DEED_CANCEL ? LIFE_CANCEL : LIFE_PASSIVATE,
							 .shard = row->shard,
							 .entity = row->entity,
							 .deed = row->deed,
							 .name = (int32) life_random(world, LIFE_NAMES)};
			break;
		default:
			return;
	}
	if (node->n_children == LIFE_MOST_CHILDREN)
		return;
	next.id = node->children[node->n_children++] =
		life_check_send(world->check, node->id, 0, &next);
	node->failed |= !life_append(node, node->tx, &next);
}

static LifeEvent *
message_event(LifeNode *node, LifeEventKind kind, const LifeRow *row, int64 attempts)
{
	LifeEvent *event = life_event(node, kind, row->shard, row->entity);

	event->id = row->id;
	event->attempts = attempts;
	event->row = *row;
	return event;
}

/*
 * How many messages of the entity have failed in the window before now. As many are kept as may count; what the clock
 * says of the times is believed.
 */
static int
count_failures(const LifeNode *node, int32 shard, int32 entity, int64 window)
{
	StoreKey key = LIFE_KEY(shard, entity);
	const int64 *at = store_at_or_next(node->store, node->tx, LIFE_HISTORY, &key);
	int count = 0;

	for (; at != NULL && key.k[0] == shard && key.k[1] == entity;
		 at = store_next(node->store, node->tx, LIFE_HISTORY, &key))
		count += *at > life_wall(node) - window;
	return count;
}

/* A failure is kept, in the place of one too many. */
static void
note_failure(LifeNode *node, int32 shard, int32 entity, int most)
{
	StoreKey first = LIFE_KEY(shard, entity);
	StoreKey key = first;
	const int64 *at = store_at_or_next(node->store, node->tx, LIFE_HISTORY, &key);
	int64 now = life_wall(node);
	int64 last = 0;
	int count = 0;

	for (; at != NULL && key.k[0] == shard && key.k[1] == entity;
		 at = store_next(node->store, node->tx, LIFE_HISTORY, &key))
	{
		if (count++ == 0)
			first = key;
		last = key.k[2];
	}
	if (count >= most)
		life_remove(node, LIFE_HISTORY, first);
	life_put(node, LIFE_HISTORY, LIFE_KEY(shard, entity, last + 1), &now);
}

/* False: it is tried again. */
static bool
message_failed(LifeNode *node, const LifeRow *row, const LifeTimerRow *timer, int64 order,
			   int64 attempts)
{
	const LifeType *type = &node->world->types[life_type_of(row->shard)];
	const ShardEntityLimits *limits = &type->limits;
	ShardEntityFailure failure = {.hope = (ShardEntityHope) row->hope,
								  .decision = (ShardEntityDecision) row->decision,
								  .decided = row->decided,
								  .attempts = (int) attempts,
								  .random = life_random(node->world, PG_UINT32_MAX)};
	int64 pause = 0;
	ShardEntityVerdict verdict;

	failure.failures = 1 + count_failures(node, row->shard, row->entity, type->restart_window);
	verdict = shard_entity_judge(limits, &failure, &pause);
	if (failure.hope != SHARD_ENTITY_PASSES || verdict != SHARD_ENTITY_RETRY)
		note_failure(node, row->shard, row->entity, LIFE_FAILURES);
	if (verdict == SHARD_ENTITY_RETRY || verdict == SHARD_ENTITY_PAUSE_SHARD)
	{
		int64 next_at = life_wall(node) + pause;
		bool pauses = verdict == SHARD_ENTITY_PAUSE_SHARD;
		LifeEvent *event;

		life_step(node, row->shard, row->entity, SHARD_ENTITY_ON_FAILED);
#ifdef SHARD_MUTANT_BACK_OFF_WITHOUT_ATTEMPTS
		stash(node, row, order, 0, next_at, pauses);
#else
		stash(node, row, order, attempts, next_at, pauses);
#endif
		event = message_event(node, LIFE_EVENT_FAILED, row, attempts);
		event->next_at = next_at;
		event->pauses = pauses;
		return false;
	}
	life_step(node, row->shard, row->entity, SHARD_ENTITY_ON_BURIED);
	message_event(node, LIFE_EVENT_DEAD, row, attempts);
	if (timer != NULL)
		life_fired(node, row, timer, attempts, LIFE_EVENT_FIRING_FAILED);
	if (verdict == SHARD_ENTITY_BURY_AND_STOP)
		life_end(node, row->shard, row->entity, SHARD_ENTITY_ON_ENDED);
	return true;
}

/* A message runs the handler. False: it waits. */
static bool
run_handler(LifeNode *node, const LifeRow *row, int64 order, int64 attempts)
{
	LifeEntity *e = &node->memory.entities[row->shard][row->entity];
	LifeTimerRow timer;
	bool fires = row->kind == LIFE_DUE;

	if (fires && !life_firing(node, row, attempts, &timer))
		return true;
	if (!life_begin(node, row, LIFE_BY_MESSAGE))
	{
		stash(node, row, order, attempts, 0, false);
		return false;
	}
	e->wants = false;
	node->accessed[row->shard][row->entity] = true;
	if (attempts < row->fails)
		return message_failed(node, row, fires ? &timer : NULL, order, attempts + 1);
	life_effect(node, row->shard, row->entity);
	message_event(node, LIFE_EVENT_HANDLED, row, attempts + 1);
	if (fires)
		life_fired(node, row, &timer, attempts + 1, LIFE_EVENT_FIRED);
	if (row->deed == LIFE_DEED_PASSIVATE &&
		!node->world->types[life_type_of(row->shard)].stop_message)
		life_end(node, row->shard, row->entity, SHARD_ENTITY_ON_STOPPED);
	else
		do_deed(node, row);
	if (row->deed == LIFE_DEED_STOP)
		life_end(node, row->shard, row->entity, SHARD_ENTITY_ON_STOPPED);
	return true;
}

/* A message whose turn it is. False: it waits. */
static bool
run(LifeNode *node, const LifeRow *row, int64 order, int64 attempts)
{
	int64 pause = 0;

	switch (row->kind)
	{
		case LIFE_TELL:
		case LIFE_DUE:
			return run_handler(node, row, order, attempts);
		case LIFE_START:
			life_start_ordered(node, row);
			return true;
		case LIFE_PASSIVATE:
			if (life_meet_passivate(node, row, &attempts, &pause))
				return true;
			stash(node, row, order, attempts, pause == 0 ? 0 : life_wall(node) + pause, false);
			return false;
		case LIFE_SCHEDULE:
			life_meet_schedule(node, row);
			return true;
		default:
			life_meet_cancel(node, row);
			return true;
	}
}

/* A row whose shard is active here is met. */
void
life_deliver(LifeNode *node, const LifeRow *row)
{
	const LifeEntity *e = &node->memory.entities[row->shard][row->entity];
	bool waits = e->waiting > 0 || life_is_aside(node, row->shard, row->entity);

#ifdef SHARD_MUTANT_STOP_MESSAGE_OVERTAKES
	waits &= row->kind != LIFE_PASSIVATE;
#endif
#ifdef SHARD_MUTANT_CANCEL_OVERTAKES
	waits &= row->kind != LIFE_CANCEL;
#endif
	if (row->kind == LIFE_START && life_meet_start(node, row))
		return;
	/* What the worker wanted by itself does not hold for one that waits. */
	if (waits && row->kind == LIFE_PASSIVATE && row->life != 0)
		return;
	if (waits)
		stash(node, row, 0, 0, 0, false);
	else
		run(node, row, 0, 0);
}

/* What waits and may go on does, in order. */
void
life_run_held(LifeNode *node, int32 shard, int32 entity)
{
	LifeEntity *e = &node->memory.entities[shard][entity];

	if (e->waiting == 0)
	{
		if (e->restart_at != 0)
		{
			LifeRow row = {.shard = shard, .entity = entity};

			node->looked_at++;
			life_begin(node, &row, LIFE_BY_RECOVERY);
		}
		return;
	}
	for (int handled = 0; handled < 4 && e->waiting > 0 && life_run_due(node, shard, entity);
		 handled++)
	{
		StoreKey key = LIFE_KEY(shard, entity);
		LifeHeldRow held =
			*(const LifeHeldRow *) store_at_or_next(node->store, node->tx, LIFE_HELD, &key);

		node->looked_at++;
		if (key.k[2] == LIFE_PLACE_START)
		{
			if (!life_begin(node, &held.row, LIFE_BY_MESSAGE))
				return;
		}
		else if (!run(node, &held.row, key.k[3], held.attempts))
			return;
		life_remove(node, LIFE_HELD, key);
		life_load_held(node, shard, entity);
		if (held.pauses)
			life_load_pause(node, shard);
	}
	life_follow(node, shard, entity);
}
