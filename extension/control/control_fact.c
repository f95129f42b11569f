/*
 * control/control_fact.c
 *		Decided homes, for the workers of this node: rows of the log.
 *
 * Written in the transaction of the step that learned them. A fact is appended once by a process, unless
 * the lane's worker has it already.
 */
#include "postgres.h"

#include "executor/spi.h"
#include "utils/memutils.h"

#include "control/control_private.h"
#include "core/base/message.h"
#include "core/flow/packet.h"
#include "log/log.h"
#include "registry/statement.h"

#include "base/compat.h"

/* Homes that were appended to the log by this process. */
typedef struct FactKey
{
	int32 type_id;
	int32 shard;
} FactKey;

typedef struct FactEntry
{
	FactKey key;
	int64 n;
} FactEntry;

static HTAB *told = NULL;
static ShardUuid told_of; /* the cluster of these facts */

/*
 * Versions count within one cluster: what was told of another says nothing.
 */
static void
follow_cluster(void)
{
	ShardUuid cluster = shard_node_cluster(shard_control.node);

	if (told != NULL && !shard_record_uuid_equal(cluster, told_of))
	{
		hash_destroy(told);
		told = NULL;
	}
	told_of = cluster;
}

static FactEntry *
fact_entry(const ShardFact *fact, bool *found)
{
	FactKey key = {fact->type_id, fact->shard};

	if (told == NULL)
	{
		HASHCTL control = {.keysize = sizeof(FactKey), .entrysize = sizeof(FactEntry)};

		control.hcxt = TopMemoryContext;
		told = hash_create("shard facts", 256, &control, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	}
	return hash_search(told, &key, HASH_ENTER, found);
}

void
shard_control_facts_forget(int32 type_id)
{
	HASH_SEQ_STATUS status;
	FactEntry *entry;

	if (told == NULL)
		return;
	hash_seq_init(&status, told);
	while ((entry = hash_seq_search(&status)) != NULL)
	{
		if (entry->key.type_id == type_id)
			(void) hash_search(told, &entry->key, HASH_REMOVE, NULL);
	}
}

static ShardStatement select_active = {
	"SELECT epoch::int8 FROM shard.own WHERE type_id = $1 AND shard = $2 AND state = 'active'",
	2,
	{INT4OID, INT4OID}};

static ShardStatement select_known = {"SELECT n FROM shard.route WHERE type_id = $1 AND shard = $2",
									  2,
									  {INT4OID, INT4OID}};

/*
 * One number about a shard; -1: there is none.
 */
static int64
look_up(ShardStatement *statement, const ShardFact *fact)
{
	ShardArguments arguments = {0};

	shard_statement_add(&arguments, Int32GetDatum(fact->type_id), false);
	shard_statement_add(&arguments, Int32GetDatum(fact->shard), false);
	shard_statement_read(statement, &arguments, 1);
	return SPI_processed == 0 ? -1 : shard_statement_int8(0, 1);
}

/*
 * Is the shard active here in that epoch, durably?
 */
static bool
is_active(const ShardFact *fact)
{
	return look_up(&select_active, fact) == fact->epoch;
}

/*
 * Does the lane's worker know the fact, or will it when it has read the log?
 */
static bool
is_known(const ShardFact *fact)
{
	return look_up(&select_known, fact) >= fact->n;
}

static void
append_fact(const ShardFact *fact)
{
	StringInfoData payload;
	ShardRow row = {.type_id = fact->type_id,
					.shard = fact->shard,
					.kind = SHARD_KIND_FACT,
					.entity = "",
					.epoch = -1};

	initStringInfo(&payload);
	shard_packet_put_fact(&payload, fact);
	row.payload = payload.data;
	row.payload_len = payload.len;
	shard_log_append(&row);
	pfree(payload.data);
}

/*
 * The facts of a step: newer ones become rows of the log. The others are told again because the coordinator asks
 * whether the shard runs: that is answered here. Returns the lanes that have news. While another session has the tables
 * locked the look is left out: a node that knows a fact passes over it (T2), and the coordinator asks again.
 */
ShardLanes
shard_control_facts(const ShardFact *facts, int count, ShardShardRef *active, int *n_active)
{
	static const char *const tables[] = {"own", "route"};
	ShardLanes lanes = 0;
	bool readable = shard_control_lock(tables, lengthof(tables));

	follow_cluster();
	SPI_connect();
	for (int i = 0; i < count; i++)
	{
		bool found;
		FactEntry *entry = fact_entry(&facts[i], &found);

		if (!found)
			entry->n = -1;
		if (facts[i].node == shard_node_id(shard_control.node) && readable && is_active(&facts[i]))
			active[(*n_active)++] =
				(ShardShardRef){facts[i].type_id, facts[i].shard, facts[i].epoch, 0};
		if (entry->n >= facts[i].n || (readable && is_known(&facts[i])))
			continue;
		append_fact(&facts[i]);
		entry->n = facts[i].n;
		lanes |= shard_lane_bit(shard_message_lane(facts[i].type_id, facts[i].shard));
	}
	(void) shard_log_flush();
	SPI_finish();
	return lanes;
}

void
shard_control_wake_lanes(ShardLanes lanes)
{
	shard_shmem_wake_lanes(shard_control.db, lanes);
}
