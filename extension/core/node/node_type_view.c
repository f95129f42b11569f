/*
 * core/node/node_type_view.c
 *		What a node knows of the types that were told, for its host.
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "core/node/node_private.h"

NodeType *
shard_node_find_type(const ShardNode *node, const char *name)
{
	for (int i = 0; i < node->n_types; i++)
	{
		if (strcmp(node->types[i].name, name) == 0)
			return &node->types[i];
	}
	return NULL;
}

/* it was dropped here, and the map still has it. */
bool
shard_node_drops_type(const ShardNode *node, int32 type_id)
{
	for (int i = 0; i < node->n_drops; i++)
	{
		if (node->drops[i].type_id == type_id)
			return true;
	}
	return false;
}

bool
shard_node_asks_for_type(const ShardNode *node, const char *name)
{
	const NodeType *type = shard_node_find_type(node, name);

	return type && (type->type_id == 0 ? !type->refused : type->altered);
}

ShardTypeRefusal
shard_node_type_lacks(const ShardNode *node, const char *name)
{
	const NodeType *type = shard_node_find_type(node, name);

	return type ? type->lacks : SHARD_TYPE_NOT_TAKEN;
}

bool
shard_node_asks_for_types(const ShardNode *node)
{
	return node->types_as_of < node->types_n;
}

const char *
shard_node_type_name(const ShardNode *node, int at)
{
	return at < node->n_types ? node->types[at].name : NULL;
}

/* What the cluster has not given an id yet was in no registration. */
bool
shard_node_registered(const ShardNode *node)
{
	for (int i = 0; i < node->n_types; i++)
	{
		if (node->types[i].type_id == 0 && !node->types[i].refused && !node->types[i].lacks)
			return false;
	}
	return node->admitted && node->registered;
}
