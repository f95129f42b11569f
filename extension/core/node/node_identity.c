/*
 * core/node/node_identity.c
 *		The durable identity of a node: which cluster, which member, which incarnation, what it joins; and its voter's.
 *
 * One row. A function that changes a part of it writes all of it, in the transaction of the step.
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "core/node/node_private.h"

void
shard_node_write_identity(ShardNode *node)
{
	StringInfoData value;
	ShardMapEntry entry = {0};

	initStringInfo(&value);
	shard_wire_put_uuid(&value, node->cluster);
	shard_wire_put_int(&value, node->era);
	shard_wire_put_int(&value, node->id);
	shard_wire_put_int(&value, node->inc_no);
	shard_wire_put_uuid(&value, node->inc_uuid);
	shard_wire_put_uint(&value, node->fenced ? 1 : 0);
	shard_wire_put_int(&value, node->journal.sealed);
	shard_wire_put_uuid(&value, node->journal.sealed_for);
	shard_wire_put_uint(&value, node->n_claimed);
	for (int i = 0; i < node->n_claimed; i++)
	{
		shard_wire_put_uuid(&value, node->claimed[i]);
	}
	shard_wire_put_uuid(&value, node->secret);
	shard_wire_put_uuid(&value, node->join.token);
	shard_wire_put_text(&value, node->join.address);
	entry.length = value.len;
	entry.value = shard_arena_copy(node->out->arena, value.data, value.len);
	pfree(value.data);
	shard_action_write(node->out, SHARD_STORE_NODE, &entry);
}

bool
shard_node_load_identity(ShardNode *node, const ShardMapEntry *entry)
{
	ShardReader reader = {entry->value, entry->value + entry->length, false};
	const char *address;
	size_t length;
	uint64 n_claimed;

	node->cluster = shard_wire_get_uuid(&reader);
	node->era = shard_wire_get_int32(&reader);
	node->id = shard_wire_get_int32(&reader);
	node->inc_no = shard_wire_get_int32(&reader);
	node->inc_uuid = shard_wire_get_uuid(&reader);
	node->fenced = shard_wire_get_uint(&reader) != 0;
	node->journal.sealed = shard_wire_get_int32(&reader);
	node->journal.sealed_for = shard_wire_get_uuid(&reader);
	n_claimed = shard_wire_get_uint(&reader);
	if (n_claimed > NODE_CLAIMS)
		return false;
	node->n_claimed = (int) n_claimed;
	for (int i = 0; i < node->n_claimed; i++)
	{
		node->claimed[i] = shard_wire_get_uuid(&reader);
	}
	node->secret = shard_wire_get_uuid(&reader);
	node->join.token = shard_wire_get_uuid(&reader);
	address = shard_wire_get_bytes(&reader, &length);
	if (reader.failed)
		return false;
	if (length > 0)
	{
		node->join.address = palloc(length + 1);
		memcpy(node->join.address, address, length);
		node->join.address[length] = '\0';
	}
	node->has_identity = true;
	return true;
}

/* ShardVoterSeal, with the node. */
static ShardUuid
seal(const void *arg, int64 promised, ShardMapPoint point)
{
	const ShardNode *node = arg;
	const uint64 said[] = {node->cluster.high, node->cluster.low, (uint64) node->era,
						   (uint64) node->id,  (uint64) promised, (uint64) point.b,
						   (uint64) point.n};

	return node->config.seal ? node->config.seal(node->secret, said, sizeof(said))
							 : (ShardUuid){0, 0};
}

ShardVoter *
shard_node_create_voter(const ShardNode *node)
{
	ShardVoter *voter = shard_voter_create(node->id);

	shard_voter_set_seal(voter, seal, node);
	return voter;
}

void
shard_node_new_voter(ShardNode *node)
{
	shard_voter_destroy(node->voter);
	node->voter = shard_node_create_voter(node);
	shard_action_clear(node->out, SHARD_STORE_VOTER);
	shard_action_clear(node->out, SHARD_STORE_ACCEPTED);
}
