/*
 * core/node/node_region.c
 *		The region's side of the sharding protocol: what the workers of a node want from the
 *		coordinator, and what the coordinator wants from them.
 *
 * Everything here is volatile and asked again: homes until they are learned, starts and stops
 * whenever the coordinator repeats its question. Types and registration: node_type.c. The workers answer
 * from their durable rows, so a repeated command gets the same answer (M11).
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "core/node/node_private.h"
#include "core/base/shard_key.h"

typedef struct NodeShardEntry
{
	ShardShardKey key;
	int32 epoch;
	char status;
} NodeShardEntry;

#define SH_PREFIX node_shards
#define SH_ELEMENT_TYPE NodeShardEntry
#include "core/base/shard_hash.h"

/* Shards in one message; larger lists are cut. */
#define LIST_LIMIT 1000

/* ---- coordinators and eras -------------------------------------------------------------------- */

void
shard_node_region_new_coordinator(ShardNode *node)
{
	shard_node_type_new_coordinator(node);
	node->next_want = 0;
	node->next_leave = 0;
	node->next_renewal = 0;
	node->next_admit = 0;
}

void
shard_node_region_stopped(ShardNode *node)
{
	if (node->started)
		node_shards_reset(node->started);
}

void
shard_node_region_forget(ShardNode *node)
{
	shard_node_type_forget(node);
	if (node->wanted)
		node_shards_reset(node->wanted);
	shard_node_region_stopped(node);
	shard_node_region_new_coordinator(node);
}

/* Forget the shards of one type. */
static void
drop_shards(struct node_shards_hash *shards, int32 type_id)
{
	node_shards_iterator iterator;
	NodeShardEntry *entry;

	if (!shards)
		return;
	node_shards_start_iterate(shards, &iterator);
	while ((entry = node_shards_iterate(shards, &iterator)) != NULL)
	{
		if (entry->key.type_id == type_id)
			node_shards_delete_item(shards, entry);
	}
}

void
shard_node_region_drop(ShardNode *node, int32 type_id)
{
	drop_shards(node->wanted, type_id);
	drop_shards(node->started, type_id);
}

/* ---- wanted homes ----------------------------------------------------------------------------- */

static const ShardMapEntry *
find_home(const ShardNode *node, ShardShardKey key)
{
	return shard_map_value(node->learned, (ShardMapKey){SHARD_MAP_HOME, key.type_id, key.shard});
}

/*
 * Workers met shards without a route. The workers are told of the homes that are known; this node asks
 * the coordinator for the others.
 */
static void
want(ShardNode *node, const ShardShardRef *shards, int n_shards)
{
	if (!node->wanted)
		node->wanted = node_shards_create(64, NULL);
	for (int i = 0; i < n_shards; i++)
	{
		ShardShardKey key = {shards[i].type_id, shards[i].shard};
		const ShardMapEntry *home = find_home(node, key);
		bool found;

		if (home)
			shard_node_learn_tell_home(node, home);
		else
		{
			(void) node_shards_insert(node->wanted, key, &found);
			if (!found)
				node->next_want = 0;
		}
	}
}

/*
 * Ask for the homes that are still wanted; the workers were told of those that were learned meanwhile.
 * The coordinator cannot answer for a type that is not in the map: its shards wait until it was
 * learned.
 */
static void
ask_homes(ShardNode *node, int64 now)
{
	node_shards_iterator iterator;
	NodeShardEntry *entry;
	ShardControl *message = NULL;
	int32 type_id = 0;
	bool known = false;

	if (!node->admitted || node->coordinator == 0 || !node->wanted || node->wanted->members == 0 ||
		now < node->next_want)
		return;
	node->next_want = now + SHARD_RETRY_INTERVAL;
	node_shards_start_iterate(node->wanted, &iterator);
	while ((entry = node_shards_iterate(node->wanted, &iterator)) != NULL)
	{
		if (find_home(node, entry->key))
		{
			node_shards_delete_item(node->wanted, entry);
			continue;
		}
		if (entry->key.type_id != type_id)
		{
			type_id = entry->key.type_id;
			known =
				shard_map_value(node->learned, (ShardMapKey){SHARD_MAP_TYPE, type_id, 0}) != NULL;
		}
		if (!known)
			continue;
		if (!message || message->n_shards == LIST_LIMIT)
		{
			message = shard_node_to_coordinator(node, SHARD_CONTROL_GET_SHARD_HOMES);
			message->shards =
				shard_arena_alloc(node->out->arena, LIST_LIMIT * sizeof(ShardShardRef));
		}
		message->shards[message->n_shards].type_id = entry->key.type_id;
		message->shards[message->n_shards++].shard = entry->key.shard;
	}
}

/* ---- starts and stops ------------------------------------------------------------------------- */

/* The workers say which shards are active here; the coordinator is told. */
static void
shards_started(ShardNode *node, const ShardShardRef *shards, int n_shards)
{
	ShardControl *message;

	if (n_shards == 0)
		return;
	if (!node->started)
		node->started = node_shards_create(64, NULL);
	for (int i = 0; i < n_shards; i++)
	{
		bool found;
		ShardShardKey key = {shards[i].type_id, shards[i].shard};
		NodeShardEntry *entry = node_shards_insert(node->started, key, &found);

		entry->epoch = shards[i].epoch;
	}
	message = shard_node_to_coordinator(node, SHARD_CONTROL_SHARDS_STARTED);
	if (!message)
		return;
	message->n_shards = n_shards;
	message->shards = shard_arena_copy(node->out->arena, shards, n_shards * sizeof(ShardShardRef));
}

/*
 * HostShard: this node confirms the shards that run, and tells the workers the facts of the others
 * again.
 */
static void
host_shards(ShardNode *node, const ShardControl *message)
{
	ShardShardRef *running =
		shard_arena_alloc(node->out->arena, sizeof(ShardShardRef) * Max(message->n_shards, 1));
	int n_running = 0;

	for (int i = 0; i < message->n_shards; i++)
	{
		ShardShardKey key = {message->shards[i].type_id, message->shards[i].shard};
		NodeShardEntry *entry = node->started ? node_shards_lookup(node->started, key) : NULL;
		const ShardMapEntry *fact = find_home(node, key);

		if (entry && entry->epoch == message->shards[i].epoch)
			running[n_running++] = message->shards[i];
		else if (fact)
			shard_node_learn_tell_home(node, fact);
	}
	if (n_running > 0)
	{
		ShardControl *reply =
			shard_action_send(node->out, message->from, SHARD_CONTROL_SHARDS_STARTED);

		reply->n_shards = n_running;
		reply->shards = running;
	}
}

/* ---- orders about moves ----------------------------------------------------------------------- */

/* The epoch that an order is about ends with the move: the other orders name the one to come. */
static int64
ending_epoch(const ShardControl *message)
{
	bool comes =
		message->kind == SHARD_CONTROL_IMPORT || message->kind == SHARD_CONTROL_PREPARE_IMPORT;

	return (int64) message->shards[0].epoch - (comes ? 1 : 0);
}

/* Is that what the cluster has decided, with this node's part in it; or, to prepare, what can be decided next? */
static bool
is_decided(const ShardNode *node, const ShardControl *message, const ShardHomeRecord *home)
{
	int64 move_id = message->shards[0].move_id;
	int32 from = shard_record_home_node(home);
	bool moves;

#ifdef SHARD_MUTANT_ORDERS_OF_NO_MOVE
	return true;
#endif
	if (home->n_nodes == 0 || home->epoch != ending_epoch(message))
		return false;
	moves = home->phase == SHARD_HOME_MOVING && home->move_id == move_id;
	switch (message->kind)
	{
		case SHARD_CONTROL_PREPARE_IMPORT:
			return home->phase == SHARD_HOME_STABLE && move_id > 0 &&
				   home->move_id == move_id - 1 && from == message->node && from != node->id;
		case SHARD_CONTROL_HAND_OFF:
			return moves && from == node->id;
		case SHARD_CONTROL_IMPORT:
			return moves && home->to == node->id && from == message->node;
		default:
			return false;
	}
}

/* May the order be about a move that is decided, and not learned here yet? */
static bool
is_ahead(const ShardControl *message, const ShardHomeRecord *home)
{
	int64 epoch = ending_epoch(message);

	return epoch > home->epoch ||
		   (epoch == home->epoch && message->shards[0].move_id > home->move_id);
}

/*
 * An order about the move of a shard becomes one for the workers, if the learned map has that move (M25): otherwise
 * a caller could have a shard stopped, so that it stands still, or copied, and so read it. An order that comes ahead
 * of its decision is passed over, since it comes again; what is missing is asked for.
 */
static void
command(ShardNode *node, int64 now, ShardActionKind kind, const ShardControl *message)
{
	ShardHomeRecord home = {.epoch = -1};
	const ShardMapEntry *entry;
	ShardAction *action;

	if (message->n_shards != 1)
		return;
	entry = find_home(node, (ShardShardKey){message->shards[0].type_id, message->shards[0].shard});
	if (entry && !shard_record_get_home(entry, &home))
		return;
	if (is_decided(node, message, &home))
	{
		action = shard_action_add(node->out, kind);
		action->shard = message->shards[0];
		action->node = message->node;
	}
	else if (is_ahead(message, &home))
		shard_node_learn_ask(node, now, message->from);
}

/* What became of a stop or an import, for the coordinator. */
static void
report(ShardNode *node, ShardControlKind kind, const ShardNodeEvent *event)
{
	ShardControl *message = shard_node_to_coordinator(node, kind);

	if (!message)
		return;
	message->n_shards = event->n_shards;
	message->shards =
		shard_arena_copy(node->out->arena, event->shards, event->n_shards * sizeof(ShardShardRef));
	message->token = event->number;
	message->text = event->text
						? shard_arena_copy(node->out->arena, event->text, strlen(event->text) + 1)
						: NULL;
}

void
shard_node_region_leave(ShardNode *node, int64 now, int64 token)
{
	for (int i = 0; i < node->n_leaves; i++)
	{
		if (node->leaves[i] == token)
			return;
	}
	if (node->n_leaves == NODE_LEAVES)
	{
		shard_node_step_done(node, node->leaves[0], false,
							 "a later shard_leave() waits for the end instead");
		node->n_leaves--;
		memmove(&node->leaves[0], &node->leaves[1], sizeof(int64) * node->n_leaves);
	}
	node->leaves[node->n_leaves++] = token;
	shard_node_command_end_stays(node);
	node->leave_wished = true;
	node->leave_number = node->last_command = Max(node->last_command + 1, now);
	node->next_leave = now;
}

void
shard_node_region_end_leave(ShardNode *node, bool good, const char *why)
{
	for (int i = 0; i < node->n_leaves; i++)
		shard_node_step_done(node, node->leaves[i], good, why);
	node->n_leaves = 0;
	node->leave_wished = false;
}

/* This node cannot leave: the operator need not wait. */
static void
cannot_leave(ShardNode *node, const ShardControl *message)
{
	if (!node->leave_wished || node->leave_number != message->token)
		return;
	shard_node_region_end_leave(node, false,
								message->text ? shard_arena_copy(node->out->arena, message->text,
																 strlen(message->text) + 1)
											  : "");
}

/* ---- events ----------------------------------------------------------------------------------- */

void
shard_node_region_tick(ShardNode *node, int64 now)
{
	ShardControl *message;

	if (node->join.address || node->fenced)
		return;
	shard_node_type_finish_drops(node, now);
	shard_node_type_announce(node, now);
	ask_homes(node, now);
	if (node->leave_wished && now >= node->next_leave && node->status < SHARD_MEMBER_LEAVING &&
		shard_node_command_heard(node, now))
	{
		message = shard_node_to_coordinator(node, SHARD_CONTROL_GRACEFUL_SHUTDOWN_REQ);
		if (message)
		{
			message->token = message->wish = node->leave_number;
			message->uuid = node->code;
			node->leave_sent = true;
			node->next_leave = now + SHARD_RESEND_INTERVAL;
		}
	}
}

void
shard_node_region_receive(ShardNode *node, int64 now, const ShardControl *message)
{
	switch (message->kind)
	{
		case SHARD_CONTROL_HOST_SHARDS:
			host_shards(node, message);
			break;
		case SHARD_CONTROL_CANNOT_LEAVE:
			cannot_leave(node, message);
			break;
		case SHARD_CONTROL_HAND_OFF:
			command(node, now, SHARD_ACTION_STOP_SHARD, message);
			break;
		case SHARD_CONTROL_PREPARE_IMPORT:
			command(node, now, SHARD_ACTION_PREPARE_IMPORT, message);
			break;
		case SHARD_CONTROL_IMPORT:
			command(node, now, SHARD_ACTION_IMPORT_SHARD, message);
			break;
		default:
			break;
	}
}

void
shard_node_region_event(ShardNode *node, const ShardNodeEvent *event)
{
	switch (event->kind)
	{
		case SHARD_EVENT_HOMES_WANTED:
			want(node, event->shards, event->n_shards);
			break;
		case SHARD_EVENT_SHARDS_STARTED:
			shards_started(node, event->shards, event->n_shards);
			break;
		case SHARD_EVENT_SHARD_STOPPED:
			report(node, SHARD_CONTROL_SHARD_STOPPED, event);
			break;
		case SHARD_EVENT_STAGED:
			report(node, SHARD_CONTROL_STAGED, event);
			break;
		case SHARD_EVENT_IMPORT_READY:
			report(node, SHARD_CONTROL_IMPORT_READY, event);
			break;
		case SHARD_EVENT_IMPORT_FAILED:
			report(node, SHARD_CONTROL_IMPORT_FAILED, event);
			break;
		default:
			break;
	}
}

void
shard_node_region_destroy(ShardNode *node)
{
	if (node->wanted)
		node_shards_destroy(node->wanted);
	if (node->started)
		node_shards_destroy(node->started);
}
