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

static void
identity_fields(ShardFields *fields, ShardNode *node, const char **address, int *length)
{
	shard_fields_uuid(fields, &node->cluster);
	shard_fields_int32(fields, &node->era);
	shard_fields_int32(fields, &node->id);
	shard_fields_int32(fields, &node->inc_no);
	shard_fields_uuid(fields, &node->inc_uuid);
	shard_fields_bool(fields, &node->fenced);
	shard_fields_int32(fields, &node->journal.sealed);
	shard_fields_uuid(fields, &node->journal.sealed_for);
	shard_fields_count(fields, &node->n_claimed, NODE_CLAIMS);
	for (int i = 0; i < node->n_claimed; i++)
		shard_fields_uuid(fields, &node->claimed[i]);
	shard_fields_uuid(fields, &node->secret);
	shard_fields_uuid(fields, &node->join.token);
	shard_fields_piece(fields, address, length);
}

void
shard_node_write_identity(ShardNode *node)
{
	const char *address = node->join.address;
	int length = address != NULL ? (int) strlen(address) : 0;
	StringInfoData value;
	ShardMapEntry entry = {0};

	initStringInfo(&value);
	identity_fields(&(ShardFields){.out = &value}, node, &address, &length);
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
	int length;

	identity_fields(&(ShardFields){.reader = &reader}, node, &address, &length);
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
