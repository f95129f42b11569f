/*
 * core/node/node_type.c
 *		The types that run on a node: their ids in the cluster, registration, and dropping them.
 *
 * A type is known by its name until the cluster has given it an id. A host that had to give it a number
 * before wishes for that number; it is granted if it cannot have been given. Registration is volatile and
 * repeated until it is acknowledged (C3); a later one replaces what an earlier one said.
 *
 * A type that is dropped leaves the map if this node is its cluster: one batch, the type with all its homes
 * and pins, so that no reader can meet one without the other. It waits until no change of the type is under
 * way; meanwhile the workers hear nothing of it, and a new type of that name waits. If the process dies
 * before the batch is decided, the map still has a type that its host lacks: the host compares them when it
 * starts, and drops it again.
 *
 * In a cluster with others the coordinator finds out that no member has a type any more (C9). For that the
 * host says as of when it has told all that it has, or may be about to have; and a name that is only wished
 * for is not taken for a type that was there before: only the coordinator knows whether that type goes, or a
 * member has it.
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "core/member/difference.h"
#include "core/node/node_private.h"
#include "core/map/type_number.h"

static NodeDrop *
find_drop(const ShardNode *node, const char *name)
{
	for (int i = 0; i < node->n_drops; i++)
	{
		if (strcmp(node->drops[i].name, name) == 0)
			return &node->drops[i];
	}
	return NULL;
}

/* The id of a type in a map, 0 if it is not there. */
static int32
find_id(const ShardNode *node, const ShardMap *map, const char *name)
{
	int count;
	ShardMapEntry *known = shard_map_list(map, SHARD_MAP_TYPE, node->out->arena, &count);

	for (int i = 0; i < count; i++)
	{
		ShardTypeRecord record;

		if (shard_record_get_type(&known[i], &record, node->arena) &&
			strcmp(record.name, name) == 0)
			return known[i].key.a;
	}
	return 0;
}

/* Owners' types may go, and the setting that lets owners share a group may change. */
#define GROUP_AGAIN (5 * SHARD_SECOND)

/* The coordinator says what it knows of a type by then, or marks it. */
#define WISH_PATIENCE (2 * SHARD_RESEND_INTERVAL)

/* What runs here has changed: the coordinator has to be told. */
static void
changed(ShardNode *node)
{
	node->registered = false;
	node->next_register = 0;
	node->registration++;
}

/*
 * Is the type only wished for? Its row, if it ever gets one, is not committed: a wish without a number of its own.
 */
static bool
is_wish(const NodeType *type)
{
	return type->proxy && type->wish.key.a == 0;
}

/* ---- types ------------------------------------------------------------------------------------ */

/* The type's value and number as this node would have it. False: it is as it was. */
static bool
set_wish(ShardNode *node, NodeType *type, const ShardTypeRecord *record, int32 number)
{
	ShardMapEntry wish = shard_record_put_type(number, record, 0, node->out->arena);

	if (type->wish.value && type->wish.key.a == number && type->wish.length == wish.length &&
		memcmp(type->wish.value, wish.value, wish.length) == 0)
		return false;
	if (type->wish.value)
		pfree(unconstify(char *, type->wish.value));
	type->wish = wish;
	type->wish.value = memcpy(palloc(Max(wish.length, 1)), wish.value, wish.length);
	type->settings_hash = record->settings_hash;
	type->refused = false;
	type->lacks = SHARD_TYPE_NOT_TAKEN;
	return true;
}

/*
 * Do its states have another structure here than in the cluster? Only hosts know, and nodes that are about
 * to be hosts.
 */
static bool
state_differs(const NodeType *type, const ShardTypeRecord *known, ShardArena *arena)
{
	ShardTypeRecord wish;

	return shard_record_get_type(&type->wish, &wish, arena) && wish.state[0] != '\0' &&
		   strcmp(wish.state, known->state) != 0;
}

/* Does it belong to another role in the cluster than here? */
static bool
owner_differs(const NodeType *type, const ShardTypeRecord *known, ShardArena *arena)
{
	ShardTypeRecord wish;

	return shard_record_get_type(&type->wish, &wish, arena) &&
		   shard_difference_of_owners(known, &wish);
}

/* The same, of what has an id. */
static bool
is_altered(const ShardNode *node, const NodeType *type)
{
	const ShardMapEntry *entry =
		shard_map_value(node->learned, (ShardMapKey){SHARD_MAP_TYPE, type->type_id, 0});
	ShardTypeRecord known;

	return entry && shard_record_get_type(entry, &known, node->arena) &&
		   state_differs(type, &known, node->arena);
}

/*
 * A type with an id is told again: the coordinator hears if the structure of its states differs, also if it is what this
 * node has said before, and another member has said something else since.
 */
static void
wish_again(ShardNode *node, NodeType *type, const ShardTypeRecord *record, int32 number)
{
	bool other = set_wish(node, type, record, number);

	type->altered = (other && !type->proxy) || is_altered(node, type);
	if (other || type->altered)
		node->next_register = 0;
}

/*
 * Which owner has the type in the cluster? As long as it is another owner than here the type runs nowhere here, and the
 * coordinator is asked once: where no other member has the type, the record follows. known: the record, NULL: the one
 * that was learned. True: it is not as before.
 */
static bool
judge_owner(ShardNode *node, NodeType *type, const ShardMapEntry *known)
{
	ShardTypeRecord record;
	bool foreign;

	if (!known)
		known = shard_map_value(node->learned, (ShardMapKey){SHARD_MAP_TYPE, type->type_id, 0});
	if (!known || !shard_record_get_type(known, &record, node->arena))
		return false;
	foreign = owner_differs(type, &record, node->arena);
	type->altered |= foreign;
	if (foreign == type->foreign)
		return false;
	type->foreign = foreign;
	if (!foreign)
		type->altered = !type->proxy && state_differs(type, &record, node->arena);
	return true;
}

/*
 * A type is to run here, or to be known here as a proxy. The same name again: what the cluster has not
 * granted yet is wished for as it is now; of what it has, only whether it is a proxy can change, and the
 * structure of its states.
 */
static void
add_type(ShardNode *node, const ShardTypeRecord *record, bool proxy, int32 number)
{
	NodeType *type = shard_node_find_type(node, record->name);
	bool other;

	if (!type)
	{
		node->types = node->types ? repalloc(node->types, (node->n_types + 1) * sizeof(NodeType))
								  : palloc(sizeof(NodeType));
		type = &node->types[node->n_types++];
		memset(type, 0, sizeof(NodeType));
		type->name = pstrdup(record->name);
		type->proxy = !proxy;
		type->since = shard_map_point(node->learned).n;
	}
	other = type->proxy != proxy;
	type->proxy = proxy;
	type->lacks = SHARD_TYPE_NOT_TAKEN;
	if (type->type_id == 0)
		other |= set_wish(node, type, record, number);
	else if (record->settings_hash == type->settings_hash)
	{
		wish_again(node, type, record, number);
		other |= judge_owner(node, type, NULL);
	}
	if (other)
		changed(node);
}

/*
 * A type of this node got its id. Was the type of its states altered before the cluster could hear of
 * it?
 */
static void
resolved(ShardNode *node, NodeType *type, int32 type_id, const ShardTypeRecord *known)
{
	type->type_id = type_id;
	type->lacks = SHARD_TYPE_NOT_TAKEN;
	type->altered = state_differs(type, known, node->arena);
	type->foreign = owner_differs(type, known, node->arena);
	type->altered |= type->foreign;
}

/* The cluster has another type of that name. */
static void
refused(ShardNode *node, NodeType *type, const ShardTypeRecord *known)
{
	ShardTypeRecord wish;
	const char *difference = NULL;

	if (shard_record_get_type(&type->wish, &wish, node->arena))
		difference = shard_difference_of_types(known, &wish, false, node->arena);
	type->refused = true;
	shard_action_log(node->out, 19 /* WARNING */,
					 "entity type \"%s\" has other settings in the cluster: %s", type->name,
					 difference ? difference : "they differ");
}

/*
 * Has a type of this node the id of a record of that name? A record that goes belongs only to nodes that had
 * it before. A record that was there when the type was wished for may be about to go: the coordinator knows,
 * if it can be asked.
 */
static bool
is_same(const NodeType *type, const ShardMapEntry *known, const ShardTypeRecord *record, int64 now)
{
	if (type->wish.key.a == known->key.a)
		return true;
	return !record->dropping &&
		   (!is_wish(type) || known->n > type->since || type->taken == known->key.a ||
			(type->asked != 0 && now - type->asked >= WISH_PATIENCE));
}

/*
 * Is what this node has the type of that record? A type that has the record's number is, even if its owner has
 * changed meanwhile; a new type is not, if its owner is another role.
 */
static bool
agrees(const NodeType *type, const ShardMapEntry *known, const ShardTypeRecord *record,
	   ShardArena *arena)
{
	return record->settings_hash == type->settings_hash &&
		   (type->wish.key.a == known->key.a || !owner_differs(type, record, arena));
}

/* Give each type of this node the id that the cluster knows it by. */
static void
resolve_types(ShardNode *node, int64 now)
{
	int count = -1;
	ShardMapEntry *known = NULL;

	for (int i = 0; i < node->n_types; i++)
	{
		NodeType *type = &node->types[i];

		if (type->type_id != 0 || type->refused || find_drop(node, type->name))
			continue;
		if (count < 0)
			known = shard_map_list(node->learned, SHARD_MAP_TYPE, node->out->arena, &count);
		for (int k = 0; k < count; k++)
		{
			ShardTypeRecord record;

			if (!shard_record_get_type(&known[k], &record, node->arena) ||
				strcmp(record.name, type->name) != 0 || !is_same(type, &known[k], &record, now))
				continue;
			if (agrees(type, &known[k], &record, node->arena))
				resolved(node, type, known[k].key.a, &record);
			else
				refused(node, type, &record);
			changed(node);
		}
	}
}

/*
 * Of the types that the cluster does not know, or not as they are now, the one with the lowest wish; one
 * without comes last.
 */
static NodeType *
next_wish(const ShardNode *node, int64 now)
{
	NodeType *next = NULL;

	for (int i = 0; i < node->n_types; i++)
	{
		NodeType *type = &node->types[i];

		if ((type->type_id != 0 && !type->altered) || type->refused ||
			(type->lacks && now < type->ask_again))
			continue;
		if (!next || (uint32) type->wish.key.a - 1 < (uint32) next->wish.key.a - 1)
			next = type;
	}
	return next;
}

/*
 * Wish for a type that the cluster does not know. One after the other, in the order of the wishes: of
 * two the greater one, granted first, would use up the other one's number.
 */
static void
ask_for_type(ShardNode *node, int64 now)
{
	NodeType *type = next_wish(node, now);
	ShardControl *message;

	if (!type || find_drop(node, type->name))
		return;
	if (type->asked == 0)
		type->asked = now;
	message = shard_node_to_coordinator(node, SHARD_CONTROL_START_TYPE);
	if (!message)
		return;
	message->entries = &type->wish;
	message->n_entries = 1;
	node->next_register = now + SHARD_RESEND_INTERVAL;
}

/* Tell the coordinator what runs here. */
static void
send_registration(ShardNode *node, int64 now)
{
	ShardControl *message = shard_node_to_coordinator(node, SHARD_CONTROL_REGISTER);

	if (!message)
		return;
	node->next_register = now + SHARD_RESEND_INTERVAL;
	message->learned_n = shard_map_point(node->learned).n;
	message->commit_n = node->types_as_of;
	message->token = node->registration;
	message->gate = node->config.live.gate;
	message->flag = node->stopping;
	message->nodes = shard_arena_alloc(node->out->arena, sizeof(int32) * Max(node->n_types, 1));
	message->nodes2 = shard_arena_alloc(node->out->arena, sizeof(int32) * Max(node->n_types, 1));
	for (int i = 0; i < node->n_types; i++)
	{
		const NodeType *type = &node->types[i];
		int32 id = type->type_id != 0 ? type->type_id : type->wish.key.a;

		/*
		 * A type that this node may not host yet, or not any more, is listed as one that the node
		 * has.
		 */
		if (type->type_id != 0 && !type->proxy && !type->foreign)
			message->nodes[message->n_nodes++] = id;
		else if (id != 0)
			message->nodes2[message->n_nodes2++] = id;
	}
}

void
shard_node_type_announce(ShardNode *node, int64 now)
{
	if (!node->admitted || now < node->next_register)
		return;
	resolve_types(node, now);
	if (!node->registered || node->tell_as_of)
		send_registration(node, now);
	ask_for_type(node, now);
}

/*
 * There is no group of lanes for the type's owner now, or no room; of what has a number already, for how it is here now.
 * Others are asked for meanwhile.
 */
static void
lacks(ShardNode *node, NodeType *type, ShardTypeRefusal what, int64 now)
{
	if (type->lacks != what)
		shard_action_log(node->out, 19 /* WARNING */,
						 type->type_id == 0
							 ? "the cluster has no number for entity type \"%s\": %s"
							 : "the cluster does not take entity type \"%s\" as it is here now: %s",
						 type->name, shard_type_number_why(what));
	type->lacks = what;
	type->ask_again = now + GROUP_AGAIN;
	node->next_register = 0;
}

/* Does the answer say that the cluster has no group or room, for what this node still asks for? */
static bool
is_lack(const NodeType *type, const ShardControl *message, const ShardTypeRecord *record)
{
	return !message->flag && !type->refused && (type->type_id == 0 || type->altered) &&
		   type->settings_hash == record->settings_hash &&
		   (message->refusal == SHARD_TYPE_LACKS_GROUP ||
			message->refusal == SHARD_TYPE_LACKS_ROOM);
}

/*
 * The cluster does not take the type as this node has it: it is not asked again, nor hosted here, unless it may be taken
 * later.
 */
static void
type_answered(ShardNode *node, int64 now, const ShardControl *message)
{
	ShardTypeRecord record;
	NodeType *type;

	if (message->n_entries != 1 ||
		!shard_record_get_type(&message->entries[0], &record, node->arena))
		return;
	type = shard_node_find_type(node, record.name);
	if (!type)
		return;
#ifdef SHARD_MUTANT_GROWN_ASKS_WITHOUT_END
	if (type->type_id == 0)
#endif
		if (is_lack(type, message, &record))
		{
			lacks(node, type, (ShardTypeRefusal) message->refusal, now);
			return;
		}
	/*
	 * A host goes on until the cluster knows; a node that wants to be one, until it has learned that, or is
	 * refused.
	 */
	if ((message->flag || type->proxy) && message->entries[0].length == type->wish.length &&
		memcmp(message->entries[0].value, type->wish.value, type->wish.length) == 0)
		type->altered = message->flag && type->proxy && is_altered(node, type);
	else if (!message->flag && type->foreign)
		type->altered = false;
	if (message->flag && message->type_id != 0)
	{
		type->taken = message->type_id;
		type->lacks = SHARD_TYPE_NOT_TAKEN;
		node->next_register = 0;
	}
	if (message->flag || type->refused || type->type_id != 0 ||
		type->settings_hash != record.settings_hash)
		return;
	type->refused = true;
	node->next_register = 0;
	shard_action_log(node->out, 19 /* WARNING */, "entity type \"%s\" is refused: %s", type->name,
					 message->text ? message->text : "");
}

/* ---- types that go ---------------------------------------------------------------------------- */

/* A type is dropped here. */
static void
drop_type(ShardNode *node, const char *name)
{
	NodeType *type = shard_node_find_type(node, name);
	NodeDrop *drop;

	if (type)
	{
		pfree(type->name);
		pfree(unconstify(char *, type->wish.value));
		*type = node->types[--node->n_types];
		changed(node);
	}
	if (find_drop(node, name))
		return;
	node->drops = node->drops ? repalloc(node->drops, (node->n_drops + 1) * sizeof(NodeDrop))
							  : palloc(sizeof(NodeDrop));
	drop = &node->drops[node->n_drops++];
	drop->name = pstrdup(name);
	drop->type_id = find_id(node, node->learned, name);
	if (drop->type_id != 0)
		shard_node_region_drop(node, drop->type_id);
}

/* A drop is done, or cannot be: a type of that name may come again. */
static void
end_drop(ShardNode *node, NodeDrop *drop)
{
	pfree(drop->name);
	*drop = node->drops[--node->n_drops];
	node->next_register = 0;
}

void
shard_node_type_finish_drops(ShardNode *node, int64 now)
{
	for (int i = node->n_drops - 1; i >= 0; i--)
	{
		NodeDrop *drop = &node->drops[i];

		if (!shard_node_is_alone(node))
		{
			end_drop(node, drop);
			continue;
		}
		if (!node->in_office)
			continue;
		drop->type_id = find_id(node, shard_proposer_decided(node->proposer), drop->name);
		if (drop->type_id != 0)
		{
			shard_node_region_drop(node, drop->type_id);
			(void) shard_homes_drop_type(node->homes, now, drop->type_id, node->proposer,
										 node->out);
		}
		else if (!shard_proposer_pending(node->proposer, (ShardMapKey){SHARD_MAP_COUNTERS, 0, 0}))
			end_drop(node, drop);
	}
}

bool
shard_node_type_is_wished(const ShardNode *node, const ShardControl *message)
{
	for (int i = 0; message->n_entries == 1 && i < node->n_types; i++)
	{
		const ShardMapEntry *wish = &node->types[i].wish;

		if (wish->key.a == message->entries[0].key.a &&
			wish->length == message->entries[0].length &&
			memcmp(wish->value, message->entries[0].value, wish->length) == 0)
			return !find_drop(node, node->types[i].name);
	}
	return false;
}

/* ---- events ----------------------------------------------------------------------------------- */

/* All types were told. The coordinator has to hear that of each record of a type. */
static void
types_told(ShardNode *node, int64 as_of)
{
	bool asked = shard_node_asks_for_types(node);

	node->types_as_of = as_of;
	if (!asked)
		return;
	node->registration++;
	node->next_register = 0;
	node->tell_as_of = true;
}

void
shard_node_type_recount(ShardNode *node)
{
	int count;
	ShardMapEntry *types = shard_map_list(node->learned, SHARD_MAP_TYPE, node->out->arena, &count);

	node->types_n = 0;
	for (int i = 0; i < count; i++)
		node->types_n = Max(node->types_n, types[i].n);
}

void
shard_node_type_event(ShardNode *node, const ShardNodeEvent *event)
{
	if (event->kind == SHARD_EVENT_TYPE)
		add_type(node, event->type, event->flag, (int32) Min(Max(event->number, 0), PG_INT32_MAX));
	else if (event->kind == SHARD_EVENT_DROP_TYPE)
		drop_type(node, event->text);
	else if (event->kind == SHARD_EVENT_TYPES_TOLD)
		types_told(node, event->number);
}

void
shard_node_type_receive(ShardNode *node, int64 now, const ShardControl *message)
{
	if (message->kind == SHARD_CONTROL_TYPE_STARTED)
		type_answered(node, now, message);
	/* An answer to an earlier registration says nothing of what was told since. */
	else if (message->kind == SHARD_CONTROL_REGISTER_ACK && message->from == node->coordinator &&
			 message->token == node->registration)
	{
		node->registered = true;
		node->tell_as_of = false;
	}
#ifndef SHARD_MUTANT_ANY_REGISTRATION
	else if (message->kind == SHARD_CONTROL_REGISTER_ACK && message->from == node->coordinator &&
			 message->token > node->registration)
	{
		/* Another process has registered this node with a list of its own. */
		node->registration = message->token;
		changed(node);
		shard_action_log_peer(
			node->out, 19 /* WARNING */, message->from, message->kind,
			"a caller in this node's name has told the coordinator, node %d, which entity types "
			"are here; this node tells the coordinator again",
			message->from);
	}
#endif
}

/* A type's present record was learned: a type that was refused may agree with it now. */
static void
type_learned(ShardNode *node, NodeType *type, const ShardMapEntry *entry)
{
	ShardTypeRecord record;

	if (type->type_id == entry->key.a && judge_owner(node, type, entry))
		changed(node);
	if (type->refused && shard_record_get_type(entry, &record, node->arena) &&
		strcmp(record.name, type->name) == 0)
		type->refused = false;
}

void
shard_node_type_learned(ShardNode *node, const ShardMapEntry *entry)
{
	for (int i = 0; i < node->n_types && entry->deleted; i++)
	{
		/* What was refused may be the only one of its name now. */
		node->types[i].refused = false;
		node->types[i].ask_again = 0;
		if (node->types[i].type_id != entry->key.a)
			continue;
		node->types[i].type_id = 0;
		changed(node);
	}
	for (int i = 0; i < node->n_types && !entry->deleted; i++)
		type_learned(node, &node->types[i], entry);
	if (entry->deleted)
		shard_node_region_drop(node, entry->key.a);
	else
		node->types_n = Max(node->types_n, entry->n);
	node->next_register = 0;
	node->next_want = 0;
}

void
shard_node_type_new_coordinator(ShardNode *node)
{
	/* what was forged in the office before is over */
	node->registration = Min(node->registration, SHARD_REGISTRATION_FAR / 2);
	changed(node);
	for (int i = 0; i < node->n_types; i++)
	{
		node->types[i].refused = false;
		node->types[i].ask_again = 0;
		node->types[i].altered |= node->types[i].foreign;
	}
}

void
shard_node_type_forget(ShardNode *node)
{
	node->types_n = node->types_as_of = 0;
	for (int i = 0; i < node->n_types; i++)
	{
		node->types[i].type_id = node->types[i].taken = 0;
		node->types[i].since = 0;
		node->types[i].foreign = false;
		node->types[i].lacks = SHARD_TYPE_NOT_TAKEN;
	}
	for (int i = 0; i < node->n_drops; i++)
		node->drops[i].type_id = 0;
}

void
shard_node_type_destroy(ShardNode *node)
{
	for (int i = 0; i < node->n_types; i++)
	{
		pfree(node->types[i].name);
		pfree(unconstify(char *, node->types[i].wish.value));
	}
	if (node->types)
		pfree(node->types);
	for (int i = 0; i < node->n_drops; i++)
		pfree(node->drops[i].name);
	if (node->drops)
		pfree(node->drops);
}
