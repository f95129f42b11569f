/*
 * life_check.c
 *		What is promised of the life of entities, held against what durable turns did. Stands outside, sees everything.
 *
 * Events come in the order of the home's log, and those of the next home behind those of the one before. The first
 * violation counts.
 */
#include "life.h"

typedef enum Fate
{
	SENT, /* not committed, or waiting */
	DONE, /* handled, or a dead letter: it had its turn */
	LOST  /* with its sender's transaction, before it was durable */
} Fate;

typedef struct Message
{
	int node;
	int32 kind;
	int32 shard;
	int32 entity;
	int64 previous; /* of the same session to the same entity; 0: none */
	int64 lsn;		/* of its commit; 0: not yet */
	Fate fate;
} Message;

/* Failures in a row, of a message or a start, and when the next attempt may be. */
typedef struct Failures
{
	int64 attempts;
	int64 next_at;
	int64 at;
	int64 wall;
} Failures;

typedef struct TimerFacts
{
	bool exists;
	int64 generation;
	int64 due;
	int64 every;
	int32 missed;
	Failures failures;
} TimerFacts;

typedef struct EntityFacts
{
	bool remembered;
	int64 version;
	int64 incarnation; /* that runs; 0: none */
	int64 life;		   /* of the shard's memory, in which it began */
	bool started;	   /* its start message was handled */
	bool stopped;
	int64 handled_at;
	Failures starts;
	Failures messages;				/* of the first that waits */
	int64 failed_at[LIFE_FAILURES]; /* the last messages that failed, by the clocks of its homes */
	TimerFacts timers[LIFE_NAMES];
} EntityFacts;

struct LifeCheck
{
	LifeWorld *world;
	char violation[400];
	int n_messages;
	int space;
	Message *messages;
	int64 lives[LIFE_SHARDS];
	struct
	{
		int32 entity;	   /* whose message has it pause */
		Failures failures; /* 0 attempts: it does not */
	} pauses[LIFE_SHARDS];
	int32 epochs[LIFE_SHARDS];
	EntityFacts entities[LIFE_SHARDS][LIFE_ENTITIES];
	struct
	{
		int64 session;
		int64 last[LIFE_SHARDS][LIFE_ENTITIES];
	} sessions[LIFE_NODES * LIFE_SESSIONS];
};

LifeCheck *
life_check_create(LifeWorld *world)
{
	LifeCheck *check = pg_malloc0(sizeof(LifeCheck));

	check->world = world;
	check->n_messages = 1; /* 0: none */
	check->space = 512;
	check->messages = pg_malloc0(check->space * sizeof(Message));
	return check;
}

void
life_check_destroy(LifeCheck *check)
{
	free(check->messages);
	free(check);
}

const char *
life_check_violation(const LifeCheck *check)
{
	return check->violation[0] != '\0' ? check->violation : NULL;
}

void
life_check_fail(LifeCheck *check, const char *format, ...)
{
	va_list args;

	if (check->violation[0] != '\0')
		return;
	va_start(args, format);
	vsnprintf(check->violation, sizeof(check->violation), format, args);
	va_end(args);
	life_note(check->world, "VIOLATION %s", check->violation);
}

int
life_check_count(const LifeCheck *check)
{
	return check->n_messages - 1;
}

/* The session's slot; its messages to an entity keep their order. */
static int64 *
last_of(LifeCheck *check, int node, int64 session, const LifeRow *row)
{
	for (int i = 0; i < LIFE_SESSIONS; i++)
	{
		int slot = (node - 1) * LIFE_SESSIONS + i;

		if (check->world->nodes[node - 1].sessions[i] != session)
			continue;
		if (check->sessions[slot].session != session)
		{
			memset(&check->sessions[slot], 0, sizeof(check->sessions[slot]));
			check->sessions[slot].session = session;
		}
		return &check->sessions[slot].last[row->shard][row->entity];
	}
	return NULL;
}

/* A message is sent, by a client's session, or by a handler: session 0. */
int64
life_check_send(LifeCheck *check, int node, int64 session, const LifeRow *row)
{
	int64 id = check->n_messages;
	/* shard_start_entity() acts at once where a start is what the others wait for: it keeps no order. */
	int64 *last =
		session != 0 && row->kind != LIFE_START ? last_of(check, node, session, row) : NULL;

	if (check->n_messages == check->space)
	{
		check->space *= 2;
		check->messages = pg_realloc(check->messages, check->space * sizeof(Message));
	}
	check->n_messages++;
	check->messages[id] = (Message){.node = node,
									.kind = row->kind,
									.shard = row->shard,
									.entity = row->entity,
									.previous = last != NULL ? *last : 0};
	if (last != NULL)
		*last = id;
	return id;
}

void
life_check_committed(LifeCheck *check, int64 id, int64 lsn)
{
	check->messages[id].lsn = lsn;
}

void
life_check_aborted(LifeCheck *check, int64 id)
{
	check->messages[id].fate = LOST;
}

/* What was not durable, or not even committed, is gone with its sender; it can be nowhere else. */
void
life_check_crashed(LifeCheck *check, int node, int64 flushed)
{
	for (int64 id = 1; id < check->n_messages; id++)
	{
		Message *message = &check->messages[id];

		if (message->node == node && message->fate == SENT &&
			(message->lsn == 0 || message->lsn > flushed))
			message->fate = LOST;
	}
}

#define fail(text, ...) \
	life_check_fail(check, text " (entity %d/%d, node %d)", ##__VA_ARGS__, event->shard, \
					event->entity, event->node)

/* By the home's clock, and by the time that passed. A clock that jumped meanwhile takes away what it added, or more. */
static bool
is_too_early(const LifeCheck *check, const LifeEvent *event, const Failures *failures)
{
	if (failures->next_at == LIFE_NEVER)
		return true;
	return event->wall < failures->next_at && check->world->jumped_at < failures->at &&
		   event->at - failures->at < failures->next_at - failures->wall;
}

/* Its number of attempts goes on, and the pause was kept. */
static void
check_attempt(LifeCheck *check, const LifeEvent *event, const Failures *failures, const char *what)
{
	if (event->attempts != failures->attempts + 1)
		fail("back-off forgotten: attempt %d of %s, there were %d", (int) event->attempts, what,
			 (int) failures->attempts);
	else if (failures->attempts > 0 && event->cause != LIFE_BY_ORDER &&
			 is_too_early(check, event, failures))
		fail("back-off cut short: attempt %d of %s", (int) event->attempts, what);
}

static void
note_failure(Failures *failures, const LifeEvent *event)
{
	*failures = (Failures){event->attempts, event->next_at, event->at, event->wall};
}

/* A message has its turn: once, and behind those that its session sent before. */
static void
consume(LifeCheck *check, const LifeEvent *event)
{
	Message *message = &check->messages[event->id];

	if (event->id == 0)
		return;
	if (message->fate == DONE)
		fail("message %d handled twice", (int) event->id);
	else if (message->fate == LOST)
		fail("message %d was never sent", (int) event->id);
	else if (message->previous != 0 && check->messages[message->previous].fate == SENT)
		fail("message %d overtakes %d", (int) event->id, (int) message->previous);
	message->fate = DONE;
}

/* Code of the shard runs: it does not pause. */
static void
check_pause(LifeCheck *check, const LifeEvent *event)
{
	const Failures *failures = &check->pauses[event->shard].failures;

	if (failures->attempts > 0 && is_too_early(check, event, failures))
		fail("runs while its shard pauses for entity %d", check->pauses[event->shard].entity);
}

/* The entity whose message had its shard pause goes on: by its home's clock the pause is over. */
static void
end_pause(LifeCheck *check, const LifeEvent *event)
{
	if (check->pauses[event->shard].entity == event->entity)
		check->pauses[event->shard].failures = (Failures){0};
}

/* It does something: it has begun, and has not been stopped. */
static void
check_runs(LifeCheck *check, const LifeEvent *event, const EntityFacts *facts)
{
	const LifeType *type = &check->world->types[life_type_of(event->shard)];

	check_pause(check, event);
	if (facts->incarnation == 0 || facts->incarnation != event->incarnation ||
		facts->life != event->life)
		fail("handled by incarnation %d, while %d runs", (int) event->incarnation,
			 (int) facts->incarnation);
	else if (type->start_message && !facts->started)
		fail("handled before its start message");
	else if (facts->stopped)
		fail("handled behind its stop message");
	else if (type->remembers && !facts->remembered)
		fail("has an effect and is not remembered");
}

static void
on_begin(LifeCheck *check, const LifeEvent *event, EntityFacts *facts)
{
	const LifeType *type = &check->world->types[life_type_of(event->shard)];

	check_pause(check, event);
	if (facts->incarnation != 0 && facts->life == event->life)
		fail("begins a second time");
	if (type->remembers && !facts->remembered)
		fail("begins and is not remembered");
	check_attempt(check, event, &facts->starts, "a start");
	facts->starts = (Failures){0};
	facts->incarnation = event->incarnation;
	facts->life = event->life;
	facts->started = facts->stopped = false;
}

/* The stop message: of who runs, once, and for a row of the worker's own accord only if nothing came between. */
static void
on_stop_message(LifeCheck *check, const LifeEvent *event, EntityFacts *facts)
{
	check_runs(check, event, facts);
	if (event->row.life != 0 && event->attempts == 1 && event->row.life != event->life)
		fail("passivated by a row of a former life");
	else if (event->row.life != 0 && event->attempts == 1 && facts->handled_at > event->row.due)
		fail("passivated though it was busy since");
	facts->stopped = true;
	facts->version += event->next_at == 0; /* else it was given up */
}

static void
on_end(LifeCheck *check, const LifeEvent *event, EntityFacts *facts)
{
	const LifeType *type = &check->world->types[life_type_of(event->shard)];
	bool passivated = event->cause == LIFE_BY_ORDER || event->cause == LIFE_BY_WORKER;

	if (facts->incarnation != event->incarnation)
		fail("incarnation %d ends, while %d runs", (int) event->incarnation,
			 (int) facts->incarnation);
	else if (facts->stopped != (passivated && type->stop_message))
		fail("ends %s its stop message", facts->stopped ? "behind" : "without");
	if (event->cause == LIFE_BY_ORDER && facts->remembered)
		fail("passivated and still remembered");
	facts->incarnation = 0;
}

/* The next due time is one of the timer's, and only what was missed may be left out, as the timer says. */
static void
check_next_due(LifeCheck *check, const LifeEvent *event, const TimerFacts *timer)
{
	int64 next = timer->due + timer->every;

	if (timer->every == 0)
	{
		if (event->next_at != 0)
			fail("timer %d goes on, and was to fire once", event->row.name);
		return;
	}
	if (timer->missed != SHARD_TIMER_ALL)
	{
		while (next <= event->wall)
			next += timer->every;
	}
	if (event->next_at != next)
		fail("timer %d is due in %d ms, and not in %d ms", event->row.name,
			 (int) ((event->next_at - timer->due) / 1000), (int) ((next - timer->due) / 1000));
}

static void
on_timer(LifeCheck *check, const LifeEvent *event, TimerFacts *timer)
{
	bool skipped = event->kind == LIFE_EVENT_SKIPPED;

	if (!timer->exists || timer->generation != event->row.generation ||
		timer->due != event->row.due)
	{
		fail("timer %d fires, and is cancelled, replaced, or fired before", event->row.name);
		return;
	}
	if (skipped)
		end_pause(check, event);
	else
		check_attempt(check, event, &timer->failures, "a timer's message");
	if (event->row.queued_at < timer->due)
		fail("timer %d fires %d ms early", event->row.name,
			 (int) ((timer->due - event->row.queued_at) / 1000));
	if (skipped != (timer->every != 0 && timer->missed == SHARD_TIMER_SKIP &&
					event->wall - timer->due >= timer->every))
		fail("timer %d %s", event->row.name, skipped ? "is skipped" : "fires though it was missed");
	check_next_due(check, event, timer);
	timer->failures = (Failures){0};
	timer->exists = event->next_at != 0;
	timer->due = event->next_at;
}

static void
on_schedule(LifeCheck *check, const LifeEvent *event, TimerFacts *timer)
{
	if (timer->exists)
		fail("timer %d replaced", event->row.name);
	consume(check, event);
	*timer = (TimerFacts){.exists = true,
						  .generation = event->row.seq,
						  .due = event->row.due,
						  .every = event->row.every,
						  .missed = event->row.missed};
}

/* A message failed: the shard pauses if too many have within the window, or if that was decided, and else not. */
static void
check_failure(LifeCheck *check, const LifeEvent *event, EntityFacts *facts)
{
	const LifeType *type = &check->world->types[life_type_of(event->shard)];
	bool passes = event->row.hope == SHARD_ENTITY_PASSES;
	bool retried = event->kind == LIFE_EVENT_FAILED && !event->pauses;
	int count = 1;
	bool too_many;

	for (int i = 0; i < LIFE_FAILURES; i++)
		count += facts->failed_at[i] > event->wall - type->restart_window;
	too_many = !passes && type->limits.max_restarts >= 0 && count > type->limits.max_restarts;
	if (too_many && !event->pauses)
		fail("goes on after %d failures, and its shard bears %d", count, type->limits.max_restarts);
	if (event->pauses && !too_many && event->row.decision != SHARD_ENTITY_ESCALATE)
		fail("has its shard pause after %d failures", count);
	if (passes && retried)
		return;
	memmove(facts->failed_at + 1, facts->failed_at, (LIFE_FAILURES - 1) * sizeof(int64));
	facts->failed_at[0] = event->wall;
}

/* The handler of a message ran, to the end or not. */
static void
on_message(LifeCheck *check, const LifeEvent *event, EntityFacts *facts)
{
	TimerFacts *timer = &facts->timers[event->row.name];
	bool fires = event->row.kind == LIFE_DUE;
	Failures *failures = fires ? &timer->failures : &facts->messages;

	check_runs(check, event, facts);
	if (event->kind != LIFE_EVENT_HANDLED)
		check_failure(check, event, facts);
	if (event->kind == LIFE_EVENT_FAILED)
	{
		check_attempt(check, event, failures, "a message");
		note_failure(failures, event);
		end_pause(check, event);
		if (event->pauses)
		{
			check->pauses[event->shard].entity = event->entity;
			note_failure(&check->pauses[event->shard].failures, event);
		}
		return;
	}
	end_pause(check, event);
	if (event->kind == LIFE_EVENT_DEAD && event->row.hope == SHARD_ENTITY_PASSES &&
		(!event->row.decided || event->row.decision == SHARD_ENTITY_RESTART))
		fail("message %d is given up, though its error passes", (int) event->id);
	if (!fires)
	{
		check_attempt(check, event, failures, "a message");
		*failures = (Failures){0};
	}
	consume(check, event);
	if (event->kind == LIFE_EVENT_HANDLED)
	{
		facts->handled_at = event->at;
		facts->version++;
	}
}

/* A turn that is durable did this. */
void
life_check_event(LifeCheck *check, const LifeEvent *event)
{
	EntityFacts *facts = &check->entities[event->shard][event->entity];
	TimerFacts *timer = &facts->timers[event->row.name];

	life_note(check->world, "  entity %d/%d at node %d: event %d, message %d, attempt %d",
			  event->shard, event->entity, event->node, (int) event->kind, (int) event->id,
			  (int) event->attempts);
	if (event->kind == LIFE_EVENT_ACTIVATED)
	{
		if (event->epoch < check->epochs[event->shard])
			fail("active again in epoch %d", event->epoch);
		check->lives[event->shard] = event->life;
		check->epochs[event->shard] = event->epoch;
		return;
	}
	if (event->life != check->lives[event->shard])
		fail("does something while its shard is elsewhere");
	switch (event->kind)
	{
		case LIFE_EVENT_BEGAN:
			on_begin(check, event, facts);
			break;
		case LIFE_EVENT_START_MESSAGE:
			if (facts->started || facts->incarnation != event->incarnation)
				fail("a second start message");
			facts->started = true;
			facts->version++;
			break;
		case LIFE_EVENT_START_FAILED:
			check_pause(check, event);
			end_pause(check, event);
			check_attempt(check, event, &facts->starts, "a start");
			note_failure(&facts->starts, event);
			break;
		case LIFE_EVENT_STOP_MESSAGE:
			on_stop_message(check, event, facts);
			break;
		case LIFE_EVENT_ENDED:
			on_end(check, event, facts);
			break;
		case LIFE_EVENT_REMEMBERED:
		case LIFE_EVENT_FORGOTTEN:
			if (event->cause == LIFE_BY_RECOVERY)
				fail("started by the recovery though it is forgotten");
			facts->remembered = event->kind == LIFE_EVENT_REMEMBERED;
			break;
		case LIFE_EVENT_DEAD:
			if (event->row.kind == LIFE_SCHEDULE && !timer->exists)
				fail("timer %d refused, and there is none", event->row.name);
			if (event->row.kind == LIFE_SCHEDULE)
				consume(check, event);
			else
				on_message(check, event, facts);
			break;
		case LIFE_EVENT_HANDLED:
		case LIFE_EVENT_FAILED:
			on_message(check, event, facts);
			break;
		case LIFE_EVENT_DONE:
			consume(check, event);
			break;
		case LIFE_EVENT_SCHEDULED:
			on_schedule(check, event, timer);
			break;
		case LIFE_EVENT_CANCELLED:
			consume(check, event);
			timer->exists = false;
			break;
		default:
			on_timer(check, event, timer);
			break;
	}
}

/* What is durable at a node is what was told of its shards: effects, the list of who is remembered, timers. */
void
life_check_rows(LifeCheck *check, const LifeNode *node)
{
	for (int32 shard = 0; shard < LIFE_SHARDS; shard++)
	{
		if (check->world->homes[shard].node != node->id - 1)
			continue;
		for (int32 entity = 0; entity < LIFE_ENTITIES; entity++)
		{
			const EntityFacts *facts = &check->entities[shard][entity];
			const LifeStateRow *row =
				store_get(node->store, NULL, LIFE_STATE, LIFE_KEY(shard, entity));
			int64 version = row != NULL ? row->version : 0;

			if (version != facts->version)
				life_check_fail(check, "entity %d/%d has %d effects at node %d, and had %d", shard,
								entity, (int) version, node->id, (int) facts->version);
			if ((row != NULL && row->remembered != 0) != facts->remembered)
				life_check_fail(check, "entity %d/%d is %sremembered at node %d", shard, entity,
								facts->remembered ? "not " : "", node->id);
			for (int32 name = 0; name < LIFE_NAMES; name++)
			{
				const TimerFacts *timer = &facts->timers[name];
				const LifeTimerRow *stored =
					store_get(node->store, NULL, LIFE_TIMER, LIFE_KEY(shard, entity, name));

				if ((stored != NULL) != timer->exists ||
					(stored != NULL &&
					 (stored->due != timer->due || stored->generation != timer->generation)))
					life_check_fail(check, "timer %d of entity %d/%d is %s at node %d", name, shard,
									entity, stored == NULL ? "lost" : "another one", node->id);
			}
		}
	}
}

/* Is an entity that is remembered without having begun in this life of its shard? */
bool
life_check_sleeps(const LifeCheck *check, int32 shard, int32 entity)
{
	const EntityFacts *facts = &check->entities[shard][entity];

	return facts->remembered && facts->life != check->lives[shard];
}

/* All is at rest: nothing may be open. */
void
life_check_end(LifeCheck *check)
{
	for (int64 id = 1; id < check->n_messages; id++)
	{
		const Message *message = &check->messages[id];

		if (message->fate == SENT)
			life_check_fail(check, "message %d of kind %d to entity %d/%d is lost", (int) id,
							message->kind, message->shard, message->entity);
	}
	for (int i = 0; i < check->world->n_nodes; i++)
		life_check_rows(check, &check->world->nodes[i]);
}
