/*
 * core/node_region.c
 *		The region's side of the sharding protocol: what the workers of a node want from the
 *		coordinator, and what the coordinator wants from them.
 *
 * Everything here is volatile and asked again: registration until it is acknowledged, homes until
 * they are learned, starts and stops whenever the coordinator repeats its question. The workers answer
 * from their durable rows, so a repeated command gets the same answer (M11).
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "core/node_private.h"

typedef struct NodeShardKey
{
	int32 type_id;
	int32 shard;
} NodeShardKey;

typedef struct NodeShardEntry
{
	NodeShardKey key;
	int32 epoch;
	char status;
} NodeShardEntry;

#ifdef FRONTEND
#include "common/logging.h" /* simplehash reports its failures by it */
#endif
#define SH_PREFIX node_shards
#define SH_ELEMENT_TYPE NodeShardEntry
#define SH_KEY_TYPE NodeShardKey
#define SH_KEY key
#define SH_HASH_KEY(table, k) \
	((uint32) (k).type_id * 0x9E3779B1U ^ (uint32) (k).shard * 0x85EBCA6BU)
#define SH_EQUAL(table, a, b) ((a).type_id == (b).type_id && (a).shard == (b).shard)
#define SH_SCOPE static inline
#define SH_RAW_ALLOCATOR palloc0
#define SH_DECLARE
#define SH_DEFINE
#include "lib/simplehash.h"

/* Shards in one message; larger lists are cut. */
#define LIST_LIMIT 1000

/* ---- types and registration ------------------------------------------------------------------- */

/* A type is to run here, or to be known here as a proxy. The same name again replaces nothing. */
static void
add_type(ShardNode *node, const ShardTypeRecord *record, bool proxy)
{
	NodeType *type;
	ShardMapEntry wish;

	for (int i = 0; i < node->n_types; i++)
	{
		if (strcmp(node->types[i].name, record->name) == 0)
			return;
	}
	node->types = node->types ? repalloc(node->types, (node->n_types + 1) * sizeof(NodeType))
							  : palloc(sizeof(NodeType));
	type = &node->types[node->n_types++];
	memset(type, 0, sizeof(NodeType));
	type->name = pstrdup(record->name);
	type->proxy = proxy;
	type->settings_hash = record->settings_hash;
	wish = shard_record_put_type(0, record, 0, node->out->arena);
	type->wish = wish;
	type->wish.value = memcpy(palloc(Max(wish.length, 1)), wish.value, wish.length);
	node->registered = false;
	node->next_register = 0;
}

/* Give each type of this node the id that the cluster knows it by. */
static void
resolve_types(ShardNode *node)
{
	int count = -1;
	ShardMapEntry *known = NULL;

	for (int i = 0; i < node->n_types; i++)
	{
		NodeType *type = &node->types[i];

		if (type->type_id != 0 || type->refused)
			continue;
		if (count < 0)
			known = shard_map_list(node->learned, SHARD_MAP_TYPE, node->out->arena, &count);
		for (int k = 0; k < count; k++)
		{
			ShardTypeRecord record;

			if (!shard_record_get_type(&known[k], &record, node->arena) ||
				strcmp(record.name, type->name) != 0)
				continue;
			if (record.settings_hash == type->settings_hash)
				type->type_id = known[k].key.a;
			else
			{
				type->refused = true;
				shard_action_log(node->out, 19 /* WARNING */,
								 "entity type \"%s\" has other settings in the cluster",
								 type->name);
			}
			node->registered = false;
		}
	}
}

/* Announce what runs here, until the coordinator of the day has acknowledged it (C3). */
static void
announce(ShardNode *node, int64 now)
{
	ShardControl *message;

	if (!node->admitted || now < node->next_register)
		return;
	resolve_types(node);
	for (int i = 0; i < node->n_types; i++)
	{
		NodeType *type = &node->types[i];

		if (type->type_id != 0 || type->refused)
			continue;
		message = shard_node_to_coordinator(node, SHARD_CONTROL_START_TYPE);
		if (!message)
			return;
		message->entries = &type->wish;
		message->n_entries = 1;
		node->next_register = now + SHARD_RESEND_INTERVAL;
	}
	if (node->registered)
		return;
	message = shard_node_to_coordinator(node, SHARD_CONTROL_REGISTER);
	if (!message)
		return;
	node->next_register = now + SHARD_RESEND_INTERVAL;
	message->n = shard_map_point(node->learned).n;
	message->status = node->config.gate;
	message->nodes = shard_arena_alloc(node->out->arena, sizeof(int32) * Max(node->n_types, 1));
	message->nodes2 = shard_arena_alloc(node->out->arena, sizeof(int32) * Max(node->n_types, 1));
	for (int i = 0; i < node->n_types; i++)
	{
		if (node->types[i].type_id == 0)
			continue;
		if (node->types[i].proxy)
			message->nodes2[message->n_nodes2++] = node->types[i].type_id;
		else
			message->nodes[message->n_nodes++] = node->types[i].type_id;
	}
}

/* The cluster does not take the type as this node has it: it is not asked again, nor hosted here. */
static void
type_answered(ShardNode *node, const ShardControl *message)
{
	ShardTypeRecord record;

	if (message->flag || message->n_entries != 1 ||
		!shard_record_get_type(&message->entries[0], &record, node->arena))
		return;
	for (int i = 0; i < node->n_types; i++)
	{
		NodeType *type = &node->types[i];

		if (strcmp(type->name, record.name) != 0 || type->refused || type->type_id != 0)
			continue;
		type->refused = true;
		shard_action_log(node->out, 19 /* WARNING */, "entity type \"%s\" is refused: %s",
						 type->name, message->text ? message->text : "");
	}
}

/* Another coordinator knows nothing of this node yet. */
void
shard_node_region_new_coordinator(ShardNode *node)
{
	node->registered = false;
	node->next_register = 0;
	node->next_want = 0;
	node->next_leave = 0;
	node->next_renewal = 0;
	for (int i = 0; i < node->n_types; i++)
		node->types[i].refused = false;
}

/* Nothing runs any more of what was started. */
void
shard_node_region_stopped(ShardNode *node)
{
	if (node->started)
		node_shards_reset(node->started);
}

/* The ids of types and what goes by them belong to a cluster, and an era, that is no more. */
void
shard_node_region_forget(ShardNode *node)
{
	for (int i = 0; i < node->n_types; i++)
		node->types[i].type_id = 0;
	if (node->wanted)
		node_shards_reset(node->wanted);
	shard_node_region_stopped(node);
	shard_node_region_new_coordinator(node);
}

/* ---- wanted homes ----------------------------------------------------------------------------- */

static const ShardMapEntry *
find_home(const ShardNode *node, NodeShardKey key)
{
	return shard_map_value(node->learned, (ShardMapKey){SHARD_MAP_HOME, key.type_id, key.shard});
}

/* Workers met shards without a route. They are told of those that are known; the others are asked for. */
static void
want(ShardNode *node, const ShardShardRef *shards, int n_shards)
{
	if (!node->wanted)
		node->wanted = node_shards_create(64, NULL);
	for (int i = 0; i < n_shards; i++)
	{
		NodeShardKey key = {shards[i].type_id, shards[i].shard};
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

/* Ask for the homes that are still wanted; the workers were told of those that were learned meanwhile. */
static void
ask_homes(ShardNode *node, int64 now)
{
	node_shards_iterator iterator;
	NodeShardEntry *entry;
	ShardControl *message = NULL;

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
		NodeShardKey key = {shards[i].type_id, shards[i].shard};
		NodeShardEntry *entry = node_shards_insert(node->started, key, &found);

		entry->epoch = shards[i].epoch;
	}
	message = shard_node_to_coordinator(node, SHARD_CONTROL_SHARDS_STARTED);
	if (!message)
		return;
	message->n_shards = n_shards;
	message->shards = shard_arena_copy(node->out->arena, shards, n_shards * sizeof(ShardShardRef));
}

/* HostShard: those that run are confirmed, the workers are told the facts of the others again. */
static void
host_shards(ShardNode *node, const ShardControl *message)
{
	ShardShardRef *running =
		shard_arena_alloc(node->out->arena, sizeof(ShardShardRef) * Max(message->n_shards, 1));
	int n_running = 0;

	for (int i = 0; i < message->n_shards; i++)
	{
		NodeShardKey key = {message->shards[i].type_id, message->shards[i].shard};
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

/* A command of the coordinator for one shard becomes one for the workers. */
static void
command(ShardNode *node, ShardActionKind kind, const ShardControl *message)
{
	for (int i = 0; i < message->n_shards; i++)
	{
		ShardAction *action = shard_action_add(node->out, kind);

		action->shard = message->shards[i];
		action->node = message->node;
	}
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

/* ---- events ----------------------------------------------------------------------------------- */

void
shard_node_region_tick(ShardNode *node, int64 now)
{
	ShardControl *message;

	if (node->join.address || node->fenced)
		return;
	announce(node, now);
	ask_homes(node, now);
	if (node->leave_wished && now >= node->next_leave && node->status < SHARD_MEMBER_LEAVING)
	{
		message = shard_node_to_coordinator(node, SHARD_CONTROL_GRACEFUL_SHUTDOWN_REQ);
		if (message)
			node->next_leave = now + SHARD_RESEND_INTERVAL;
	}
}

void
shard_node_region_receive(ShardNode *node, const ShardControl *message)
{
	switch (message->kind)
	{
		case SHARD_CONTROL_REGISTER_ACK:
			if (message->from == node->coordinator)
				node->registered = true;
			break;
		case SHARD_CONTROL_TYPE_STARTED:
			type_answered(node, message);
			break;
		case SHARD_CONTROL_HOST_SHARDS:
			host_shards(node, message);
			break;
		case SHARD_CONTROL_BEGIN_HAND_OFF:
			command(node, SHARD_ACTION_PARK_SHARD, message);
			break;
		case SHARD_CONTROL_HAND_OFF:
			command(node, SHARD_ACTION_STOP_SHARD, message);
			break;
		case SHARD_CONTROL_IMPORT:
			command(node, SHARD_ACTION_IMPORT_SHARD, message);
			break;
		default:
			break;
	}
}

void
shard_node_region_event(ShardNode *node, int64 now, const ShardNodeEvent *event)
{
	switch (event->kind)
	{
		case SHARD_EVENT_TYPE:
			add_type(node, event->type, event->flag);
			break;
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
		case SHARD_EVENT_IMPORT_FAILED:
			report(node, SHARD_CONTROL_IMPORT_FAILED, event);
			break;
		case SHARD_EVENT_LEAVE:
			node->leave_wished = true;
			node->leave_command = event->token;
			node->next_leave = now;
			break;
		case SHARD_EVENT_WORKERS_STOPPED:
			(void) shard_node_to_coordinator(node, SHARD_CONTROL_REGION_STOPPED);
			break;
		default:
			break;
	}
}

void
shard_node_region_destroy(ShardNode *node)
{
	for (int i = 0; i < node->n_types; i++)
	{
		pfree(node->types[i].name);
		pfree(unconstify(char *, node->types[i].wish.value));
	}
	if (node->types)
		pfree(node->types);
	if (node->wanted)
		node_shards_destroy(node->wanted);
	if (node->started)
		node_shards_destroy(node->started);
}
