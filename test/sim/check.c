/*
 * check.c
 *		Checkers of the data plane: they stand outside and see everything.
 */
#include "check_private.h"

#include "shard.h"

#define BUCKETS 512
#define MAX_OWNERS 1024

typedef struct Message
{
	CheckFate fate;
	bool excused;
	bool may_be_lost;
	bool stashed;
	bool needs_effect; /* handled, and no state was lost since */
	bool waiting;	   /* seen at the end */
	int effects;	   /* seen at the end */
	int instance;
	int handled_by;
	int32 handled_epoch;
	int32 type_id;
	int32 shard;
	int32 entity;
	int64 number;	 /* 0: none (D25) */
	bool redriven;	 /* its order does not count */
	int sent_by;	 /* first: put back, it sends it again, whoever redrives it meanwhile */
	int given_up_by; /* instance that has it as a dead letter */
	int64 session;
	int64 called;	/* order of the calls of tell */
	int64 returned; /* when COMMIT returned, by the same clock */
	int64 handled_at;
	int64 next; /* of those to the same bucket that are not handled */
} Message;

typedef struct Owner
{
	int instance;
	int32 type_id;
	int32 shard;
	ShardOwn own;
} Owner;

struct Check
{
	char *violation;
	CheckOrders *orders;
	int64 clock;
	int64 n_messages;
	int64 space;
	Message *messages; /* by id; 0 is none */
	int64 waiting[BUCKETS];
	int handled;
	int n_owners;
	Owner owners[MAX_OWNERS];
	int n_begun;
	Owner
		begun[MAX_OWNERS]; /* leased shards, and the newest epoch that ran a turn in an instance */
	int n_lost;
	Owner lost[MAX_OWNERS]; /* shards that began anew, and in which epoch last */
	uint64 excused;			/* instances */
	uint64 put_back;		/* those of them that were put back, and what they had replaced */
	bool excused_any;		/* instances that were put back */
};

Check *
check_create(void)
{
	Check *check = pg_malloc0(sizeof(Check));

	check->n_messages = 1;
	check->orders = check_orders_create();
	return check;
}

void
check_destroy(Check *check)
{
	free(check->violation);
	free(check->messages);
	free(check->orders);
	free(check);
}

const char *
check_violation(const Check *check)
{
	return check->violation;
}

void
check_fail(Check *check, const char *format, ...)
{
	char text[512];
	va_list args;

	if (check->violation != NULL)
		return;
	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	check->violation = pg_strdup(text);
}

int
check_told(const Check *check)
{
	return (int) check->n_messages - 1;
}

int
check_handled_count(const Check *check)
{
	return check->handled;
}

static int64 *
bucket(Check *check, int32 type_id, int32 shard, int32 entity)
{
	return &check
				->waiting[((uint32) type_id * 31 + (uint32) shard * 7 + (uint32) entity) % BUCKETS];
}

bool
check_is_excused(const Check *check, int instance)
{
	return (check->excused >> instance) & 1;
}

int64
check_tell(Check *check, int instance, int64 session, int32 type_id, int32 shard, int32 entity)
{
	int64 id = check->n_messages++;
	int64 *head = bucket(check, type_id, shard, entity);
	Message *message;

	if (id >= check->space)
	{
		check->space = Max(1024, check->space * 2);
		check->messages = pg_realloc(check->messages, check->space * sizeof(Message));
	}
	message = &check->messages[id];
	memset(message, 0, sizeof(*message));
	message->instance = message->sent_by = instance;
	message->session = session;
	message->type_id = type_id;
	message->shard = shard;
	message->entity = entity;
	message->called = ++check->clock;
	message->next = *head;
	*head = id;
	return id;
}

/* Nobody waits for it any more. */
static void
unlink_message(Check *check, int64 id)
{
	Message *message = &check->messages[id];
	int64 *link = bucket(check, message->type_id, message->shard, message->entity);

	while (*link != 0 && *link != id)
		link = &check->messages[*link].next;
	if (*link == id)
		*link = message->next;
}

void
check_committed(Check *check, int64 id)
{
	Message *message = &check->messages[id];

	if (message->fate == CHECK_OPEN)
		message->fate = CHECK_COMMITTED;
}

void
check_reported(Check *check, int64 id)
{
	Message *message = &check->messages[id];

	message->returned = ++check->clock;
	if (message->fate == CHECK_COMMITTED)
		message->fate = CHECK_REPORTED;
}

void
check_aborted(Check *check, int64 id)
{
	if (check->messages[id].fate == CHECK_OPEN)
	{
		check->messages[id].fate = CHECK_ABORTED;
		unlink_message(check, id);
	}
}

void
check_dead(Check *check, int64 id)
{
	if (check->messages[id].fate != CHECK_HANDLED)
	{
		check->messages[id].fate = CHECK_DEAD;
		unlink_message(check, id);
	}
}

void
check_given_up(Check *check, int64 id, int instance)
{
	Message *message = &check->messages[id];

	if (check_is_excused(check, instance))
		return;
	if (message->fate != CHECK_HANDLED)
		message->fate = CHECK_GIVEN_UP;
	message->given_up_by = instance;
	unlink_message(check, id);
}

void
check_redriven(Check *check, int64 id, int instance)
{
	Message *message = &check->messages[id];

	message->redriven = true;
	message->instance = instance;
	if (message->fate == CHECK_GIVEN_UP)
		message->fate = CHECK_REPORTED;
}

/* Of those that were given up there. */
static bool
is_dead_in(const Message *message, int instance)
{
	return message->fate == CHECK_GIVEN_UP && message->given_up_by == instance;
}

void
check_left(Check *check, int instance)
{
	for (int64 id = 1; id < check->n_messages; id++)
		check->messages[id].may_be_lost |= is_dead_in(&check->messages[id], instance);
}

CheckOrders *
check_orders(const Check *check)
{
	return check->orders;
}

CheckPlace
check_place(const Check *check, int64 id)
{
	const Message *message = &check->messages[id];

	return (CheckPlace){message->type_id, message->shard, message->entity, message->number};
}

void
check_set_number(Check *check, int64 id, int64 number)
{
	check->messages[id].number = number;
}

CheckFate
check_fate(const Check *check, int64 id)
{
	return check->messages[id].fate;
}

/* P3: must the first be handled before the second? */
static bool
comes_before(const Message *first, const Message *second)
{
	if (first->excused || first->may_be_lost || first->fate == CHECK_UNSURE ||
		first->fate == CHECK_OPEN)
		return false;
	/* one with a number waits for others, and what was given up comes when it is sent again */
	if (first->number != 0 || second->number != 0 || first->redriven || second->redriven)
		return false;
	if (first->instance != second->instance)
		return false;
	if (first->session == second->session)
		return first->called < second->called;
	return first->returned != 0 && first->returned < second->called;
}

int32
check_lost_epoch(const Check *check, int32 type_id, int32 shard)
{
	for (int i = 0; i < check->n_lost; i++)
	{
		if (check->lost[i].type_id == type_id && check->lost[i].shard == shard)
			return check->lost[i].own.epoch;
	}
	return 0;
}

static void
note_lost(Check *check, int32 type_id, int32 shard, int32 epoch)
{
	int i = 0;

	while (i < check->n_lost &&
		   (check->lost[i].type_id != type_id || check->lost[i].shard != shard))
		i++;
	if (i == MAX_OWNERS)
		return;
	if (i == check->n_lost)
	{
		check->n_lost++;
		check->lost[i].type_id = type_id;
		check->lost[i].shard = shard;
		check->lost[i].own.epoch = epoch;
	}
	check->lost[i].own.epoch = Max(check->lost[i].own.epoch, epoch);
}

void
check_handled(Check *check, int64 id, int instance, int32 epoch)
{
	Message *message = &check->messages[id];

	if (check_is_excused(check, instance))
		return;
	if (message->fate == CHECK_HANDLED)
	{
		if (!message->excused)
			check_fail(check,
					   "P2: message " INT64_FORMAT " handled by %d in epoch %d, and by %d in %d",
					   id, message->handled_by, message->handled_epoch, instance, epoch);
		return;
	}
	if (message->fate == CHECK_ABORTED)
		check_fail(check, "P5: message " INT64_FORMAT " was rolled back and is handled", id);
	unlink_message(check, id);
	for (int64 at = *bucket(check, message->type_id, message->shard, message->entity);
		 at != 0 && !message->excused; at = check->messages[at].next)
	{
		const Message *other = &check->messages[at];

		if (other->type_id == message->type_id && other->shard == message->shard &&
			other->entity == message->entity && comes_before(other, message))
			check_fail(check,
					   "P3: message " INT64_FORMAT " (shard %d, entity %d) handled by %d in epoch "
					   "%d before " INT64_FORMAT " of %d (fate %d)",
					   id, message->shard, message->entity, instance, epoch, at, other->instance,
					   other->fate);
	}
	message->fate = CHECK_HANDLED;
	message->needs_effect = epoch >= check_lost_epoch(check, message->type_id, message->shard);
	message->handled_by = instance;
	message->handled_epoch = epoch;
	message->handled_at = ++check->clock;
	check->handled++;
}

void
check_crashed(Check *check, int instance)
{
	for (int64 id = 1; id < check->n_messages; id++)
	{
		Message *message = &check->messages[id];

		if (message->instance == instance && message->fate == CHECK_COMMITTED)
			message->fate = CHECK_UNSURE;
		if (message->instance == instance && message->fate == CHECK_OPEN)
			check_aborted(check, id);
	}
}

/* Was a database put back? Then streams may know more than their origins until they meet again. */
bool
check_any_excused(const Check *check)
{
	return check->excused_any;
}

/* What an instance owned does not count any more. */
static void
forget_owner(Check *check, int instance)
{
	int kept = 0;

	check->excused |= (uint64) 1 << instance;
	for (int i = 0; i < check->n_owners; i++)
	{
		if (check->owners[i].instance != instance)
			check->owners[kept++] = check->owners[i];
	}
	check->n_owners = kept;
}

void
check_excuse(Check *check, int instance)
{
	check->excused_any = true;
	check_put_back(check, instance);
	for (int64 id = 1; id < check->n_messages; id++)
	{
		Message *message = &check->messages[id];

		if (message->instance == instance || message->sent_by == instance ||
			(message->fate == CHECK_HANDLED && message->handled_by == instance) ||
			message->given_up_by == instance)
			message->excused = true;
	}
	forget_owner(check, instance);
	check_orders_forget(check);
}

int64
check_clock(const Check *check)
{
	return check->clock;
}

void
check_excuse_shard(Check *check, int32 type_id, int32 shard, int64 since)
{
	for (int64 id = 1; id < check->n_messages; id++)
	{
		Message *message = &check->messages[id];

		if (message->type_id == type_id && message->shard == shard &&
			message->fate == CHECK_HANDLED && message->handled_at > since)
			message->excused = true;
	}
	check_orders_lost(check, type_id, shard);
}

void
check_replaced(Check *check, int instance)
{
	check_crashed(check, instance);
	forget_owner(check, instance);
}

void
check_written_off(Check *check, int instance)
{
	for (int64 id = 1; id < check->n_messages; id++)
	{
		Message *message = &check->messages[id];

		if (message->instance == instance || is_dead_in(message, instance))
			message->may_be_lost = true;
		if (message->fate == CHECK_HANDLED && message->handled_by == instance)
			message->needs_effect = false;
	}
	forget_owner(check, instance);
}

void
check_stranded(Check *check, int64 id)
{
	check->messages[id].may_be_lost = true;
}

/* A full disk may have kept it from being durable until the shard had begun anew elsewhere. */
void
check_stashed(Check *check, int64 id, int32 epoch)
{
	Message *message = &check->messages[id];

	message->stashed = true;
	if (epoch < check_lost_epoch(check, message->type_id, message->shard))
		message->may_be_lost = true;
}

void
check_lost(Check *check, int32 type_id, int32 shard)
{
	for (int64 id = 1; id < check->n_messages; id++)
	{
		Message *message = &check->messages[id];

		if (message->type_id != type_id || message->shard != shard)
			continue;
		message->needs_effect = false;
		message->may_be_lost |= message->stashed;
	}
	check_orders_lost(check, type_id, shard);
}

static Owner *
find_owner(Check *check, int instance, int32 type_id, int32 shard)
{
	Owner *owner;

	for (int i = 0; i < check->n_owners; i++)
	{
		owner = &check->owners[i];
		if (owner->instance == instance && owner->type_id == type_id && owner->shard == shard)
			return owner;
	}
	if (check->n_owners == MAX_OWNERS)
		return NULL;
	owner = &check->owners[check->n_owners++];
	memset(owner, 0, sizeof(*owner));
	owner->instance = instance;
	owner->type_id = type_id;
	owner->shard = shard;
	return owner;
}

/* V1: nobody else takes messages in. */
static void
check_alone(Check *check, const Owner *owner)
{
	for (int i = 0; i < check->n_owners; i++)
	{
		const Owner *other = &check->owners[i];

		if (other != owner && other->type_id == owner->type_id && other->shard == owner->shard &&
			shard_handoff_takes(&other->own))
			check_fail(check, "V1: shard %d/%d active on %d in epoch %d and on %d in epoch %d",
					   owner->type_id, owner->shard, other->instance, other->own.epoch,
					   owner->instance, owner->own.epoch);
	}
}

/* May a shard begin with nothing under that epoch? In a later era it still is the first one, or that which was lost (R29). */
static bool
is_first_epoch(int32 epoch, int32 lost)
{
	return (epoch - lost) % (1 << 16) == 0;
}

void
check_owner(Check *check, int instance, int32 type_id, int32 shard, const ShardOwn *before,
			const ShardOwn *after, int32 lost, bool leased)
{
	Owner *owner;

	if (check_is_excused(check, instance))
		return;
	if (after->state == SHARD_HOME_ACTIVE && before->state != SHARD_HOME_NONE &&
		before->epoch == after->epoch && before->state != SHARD_HOME_STAGED &&
		before->state != SHARD_HOME_CLEARING)
		check_fail(check, "V2, V11: shard %d/%d on %d goes back from %s to active in epoch %d",
				   type_id, shard, instance, shard_home_machine.state_names[before->state],
				   after->epoch);
	if (after->state == SHARD_HOME_ACTIVE && before->state == SHARD_HOME_NONE &&
		!is_first_epoch(after->epoch, lost))
		check_fail(check, "M6: shard %d/%d on %d begins in epoch %d with nothing staged", type_id,
				   shard, instance, after->epoch);
	if (shard_handoff_takes(after) && lost > 0 && lost == after->epoch)
		note_lost(check, type_id, shard, lost);
	owner = find_owner(check, instance, type_id, shard);
	if (owner == NULL)
		return;
	owner->own = *after;
	if (shard_handoff_takes(after) && !leased)
		check_alone(check, owner);
}

/* The newest epoch of a leased shard in which a turn began in an instance, NULL if there is no room. */
static Owner *
find_begun(Check *check, int instance, int32 type_id, int32 shard)
{
	Owner *begun;

	for (int i = 0; i < check->n_begun; i++)
	{
		begun = &check->begun[i];
		if (begun->instance == instance && begun->type_id == type_id && begun->shard == shard)
			return begun;
	}
	if (check->n_begun == MAX_OWNERS)
		return NULL;
	begun = &check->begun[check->n_begun++];
	memset(begun, 0, sizeof(*begun));
	begun->instance = instance;
	begun->type_id = type_id;
	begun->shard = shard;
	return begun;
}

void
check_turn_began(Check *check, int instance, int32 type_id, int32 shard, int32 epoch)
{
	Owner *begun = find_begun(check, instance, type_id, shard);

	if (begun != NULL)
		begun->own.epoch = Max(begun->own.epoch, epoch);
}

void
check_put_back(Check *check, int instance)
{
	check->put_back |= (uint64) 1 << instance;
}

/* What began elsewhere counts as before. */
void
check_forced(Check *check)
{
	int kept = 0;

	for (int i = 0; i < check->n_begun; i++)
	{
		if (!((check->put_back >> check->begun[i].instance) & 1))
			check->begun[kept++] = check->begun[i];
	}
	check->n_begun = kept;
	check_orders_forget(check);
}

void
check_turn_commits(Check *check, int instance, int32 type_id, int32 shard, int32 epoch)
{
	if (check_is_excused(check, instance))
		return;
	for (int i = 0; i < check->n_begun; i++)
	{
		const Owner *begun = &check->begun[i];

		if (begun->type_id == type_id && begun->shard == shard && begun->own.epoch > epoch)
			check_fail(check,
					   "P4: shard %d/%d: %d commits a turn of epoch %d, and one of epoch %d has "
					   "begun on %d",
					   type_id, shard, instance, epoch, begun->own.epoch, begun->instance);
	}
}

void
check_owns(Check *check, int instance, int32 type_id, int32 shard, const ShardOwn *own)
{
	Owner *owner;

	if (check_is_excused(check, instance))
		return;
	owner = find_owner(check, instance, type_id, shard);
	if (owner != NULL)
		owner->own = *own;
}

void
check_end_begin(Check *check)
{
	for (int64 id = 1; id < check->n_messages; id++)
	{
		check->messages[id].waiting = false;
		check->messages[id].effects = 0;
	}
}

void
check_seen_waiting(Check *check, int64 id)
{
	if (id > 0)
		check->messages[id].waiting = true;
}

void
check_seen_effect(Check *check, int64 id)
{
	if (id > 0)
		check->messages[id].effects++;
}

void
check_end(Check *check)
{
	for (int64 id = 1; id < check->n_messages; id++)
	{
		const Message *message = &check->messages[id];

		if (message->excused)
			continue;
		if ((message->fate == CHECK_REPORTED || message->fate == CHECK_GIVEN_UP) &&
			!message->waiting && !message->may_be_lost)
			check_fail(check,
					   "P1: message " INT64_FORMAT " of %d to shard %d/%d, entity %d, is lost%s",
					   id, message->instance, message->type_id, message->shard, message->entity,
					   message->fate == CHECK_GIVEN_UP ? " as a dead letter"
					   : message->redriven			   ? ", sent again"
													   : "");
		if (message->effects > 1)
			check_fail(check, "P2: message " INT64_FORMAT " has %d effects", id, message->effects);
		if (message->fate == CHECK_HANDLED && message->needs_effect && message->effects == 0)
			check_fail(check, "P1: the effect of message " INT64_FORMAT " is lost (shard %d/%d)",
					   id, message->type_id, message->shard);
		if (message->fate == CHECK_ABORTED && (message->effects > 0 || message->waiting))
			check_fail(check, "P5: message " INT64_FORMAT " was rolled back and is there", id);
	}
}
