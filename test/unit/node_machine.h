/*
 * node_machine.h
 *		The machines of a small world for whole nodes, and what each does for its node.
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
	bool mute;										  /* it stops and copies nothing */
	int32 mute_type;								  /* copies nothing of this type; 0: none; */
	int32 mute_type_too;							  /* nor of this one */
	bool unfit;										  /* no shard can be copied here */
	const char *unfit_why;							  /* for that reason */
	bool deaf;										  /* nor does it say so */
	int32 deaf_type;								  /* of this type; 0: none */
	int decisions[SHARD_DECISION_MOVE_WITHDRAWN + 1]; /* that it told, */
	ShardAction decision;							  /* and the last one */
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
