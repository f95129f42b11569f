/*
 * sql/view/health_states.c
 *		State rows that no entity uses, and states that a crash would take; a part of shard_health.
 *
 * A restored dump, or SQL, puts states where their shards do not live: into a table whose type is not started, or of
 * shards whose home is another node, or any that comes first. Entities start without them, at their home. No move
 * brings such a shard here before they are gone (M26).
 *
 * Tables are read without SQL (state_door.h), no lock is waited for, and of a large type only a part is looked at,
 * another one each time, so that the look takes a moment.
 */
#include "postgres.h"

#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "common/pg_prng.h"
#include "executor/spi.h"
#include "lib/stringinfo.h"
#include "nodes/bitmapset.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"

#include "registry/cluster_map.h"
#include "sql/view/health.h"
#include "shared/board.h"
#include "registry/registry.h"
#include "registry/security.h"
#include "shared/shmem.h"
#include "entity/state_door.h"
#include "entity/state_orphan.h"
#include "registry/statement.h"

#include "base/compat.h"

/* Shards of which it is looked whether there are rows: of all types, but some of each. */
#define ALL_LOOKS 2000
#define LEAST_LOOKS 10

/* Of a type this many shards are told apart, and this many named. */
#define STRANGE 100
#define NAMED 5

static const ShardStatement own_shards = {"SELECT shard FROM shard.own WHERE type_id = $1",
										  1,
										  {INT4OID}};

/* Those that were active here by a home that was undone with its voters (R29). */
static const ShardStatement undone_shards = {
	"SELECT o.shard FROM shard.own o JOIN shard.route r USING (type_id, shard)"
	" WHERE o.type_id = $1 AND o.state = 'sealed' AND r.doubt > o.epoch",
	1,
	{INT4OID}};

/* Those of them for which messages wait. This node took these messages in, so no other node has them. */
static const ShardStatement undone_held = {
	"SELECT DISTINCT h.shard FROM shard.held h JOIN shard.own o USING (type_id, shard)"
	" JOIN shard.route r USING (type_id, shard)"
	" WHERE h.type_id = $1 AND o.state = 'sealed' AND r.doubt > o.epoch",
	1,
	{INT4OID}};

/* A type to be looked at: the registry may change meanwhile. */
typedef struct Candidate
{
	int32 type_id;
	int32 number_of_shards;
	Oid table;
	char *name;
} Candidate;

/* Shards of a type whose rows no entity uses. */
typedef struct Strange
{
	int count;
	StringInfoData names;
} Strange;

static void
check_orphans(ShardHealth *health)
{
	ShardSecurity security = {0};
	ListCell *cell;

	shard_security_begin_system(&security);
	SPI_connect();
	foreach (cell, shard_state_orphans())
	{
		const ShardStateOrphan *orphan = lfirst(cell);

		if (!orphan->busy)
			shard_health_add(
				health,
				psprintf(
					"table %s has states, and no entity type: a restored dump brings none; "
					"entities do not use them, and while this node is alone no other can join; bring the type back as \"Backup and restore\" in doc/operations.md says, or drop "
					"the table",
					orphan->table));
	}
	SPI_finish();
	shard_security_end(&security);
}

/* The shards of a type for which a statement says so now, by ownership rows. */
static Bitmapset *
read_shards(int32 type_id, const ShardStatement *look)
{
	MemoryContext context = CurrentMemoryContext;
	ShardSecurity security = {0};
	ShardArguments arguments = {0};
	Bitmapset *own = NULL;

	PushActiveSnapshot(GetLatestSnapshot());
	shard_security_begin_system(&security);
	SPI_connect();
	shard_statement_add(&arguments, Int32GetDatum(type_id), false);
	shard_statement_once_read(look, &arguments, 0);
	for (uint64 i = 0; i < SPI_processed; i++)
	{
		MemoryContext old = MemoryContextSwitchTo(context);

		own = bms_add_member(own, shard_statement_int4(i, 1));
		MemoryContextSwitchTo(old);
	}
	SPI_finish();
	shard_security_end(&security);
	PopActiveSnapshot();
	return own;
}

/*
 * Finds shards with rows and without an ownership row, at most STRANGE; looks at the given number of shards, a part of
 * them all.
 */
static int
find_strange(const Candidate *type, int looks, int32 *strange)
{
	Bitmapset *own = read_shards(type->type_id, &own_shards);
	int32 *shards = palloc(looks * sizeof(int32));
	int32 after = -1;
	int found = 0;
	int count;

	if (type->number_of_shards > looks)
		after = Max((int32) pg_prng_uint64_range(&pg_global_prng_state, 0,
												 (uint64) type->number_of_shards + looks) -
						looks,
					0) -
				1;
	(void) shard_state_door_shards(type->table, after, type->number_of_shards - 1, false, shards,
								   looks, &count);
	for (int i = 0; i < count && found < STRANGE; i++)
		if (!bms_is_member(shards[i], own))
			strange[found++] = shards[i];
	pfree(shards);
	bms_free(own);
	return found;
}

/* What the cluster says of the shard; NULL: it is here, or comes. */
static char *
where_is(const Candidate *type, int32 shard, int32 self)
{
	ShardHomeRecord home;
	int32 node;

	if (!shard_cluster_map_home(type->type_id, shard, &home))
		return psprintf("shard %d has no home", shard);
	node = shard_record_home_node(&home);
	if (node == self || (home.phase == SHARD_HOME_MOVING && home.to == self))
		return NULL;
	return psprintf("shard %d lives at node %d", shard, node);
}

/* What came or went between the looks has an ownership row now, or is on its way. */
static void
check_type(ShardHealth *health, const Candidate *type, int looks, int32 self)
{
	int32 shards[STRANGE];
	int found = find_strange(type, looks, shards);
	Bitmapset *own = found > 0 ? read_shards(type->type_id, &own_shards) : NULL;
	Strange strange = {0};

	initStringInfo(&strange.names);
	for (int i = 0; i < found; i++)
	{
		const char *where = bms_is_member(shards[i], own) ? NULL : where_is(type, shards[i], self);

		if (where != NULL && strange.count++ < NAMED)
			appendStringInfo(&strange.names, "%s%s", strange.count > 1 ? ", " : "", where);
	}
	if (strange.count > 0)
		shard_health_add(
			health,
			psprintf("the state table of entity type \"%s\" has rows of %s%d shard%s that %s not "
					 "here: %s%s; entities do not use them, and no move brings such a shard here; "
					 "see \"Restored rows of a shard that lives elsewhere\" in doc/operations.md",
					 type->name,
					 found == STRANGE || type->number_of_shards > looks ? "at least " : "",
					 strange.count, strange.count > 1 ? "s" : "", strange.count > 1 ? "are" : "is",
					 strange.names.data, strange.count > NAMED ? ", ..." : ""));
}

/* Has the shard rows here? Of a table that another session has locked that is unknown. */
static bool
has_rows(const Candidate *type, int32 shard)
{
	int count;
	int32 found;

	(void) shard_state_door_shards(type->table, shard - 1, shard, false, &found, 1, &count);
	return count > 0;
}

/* Two homes were active: what the one here did does not count, until an operator has seen to it. */
static void
check_undone(ShardHealth *health, const Candidate *type, int looks, int32 self)
{
	Bitmapset *undone = read_shards(type->type_id, &undone_shards);
	Bitmapset *held = undone == NULL ? NULL : read_shards(type->type_id, &undone_held);
	Strange shards = {0};
	int32 shard = -1;

	initStringInfo(&shards.names);
	while (looks-- > 0 && (shard = bms_next_member(undone, shard)) >= 0)
	{
		bool left = bms_is_member(shard, held) || has_rows(type, shard);
		const char *where = left ? where_is(type, shard, self) : NULL;

		if (where != NULL && shards.count++ < NAMED)
			appendStringInfo(&shards.names, "%s%s", shards.count > 1 ? ", " : "", where);
	}
	if (shards.count > 0)
		shard_health_add(
			health,
			psprintf(
				"%d shard%s of entity type \"%s\" %s active at this node, %d, by decisions that went with lost voters, and "
				"at another one: %s%s; what was done here counts no more, its rows are kept in the state table%s; "
				"compare them, and take them out: see \"Shards that were active twice\" in doc/operations.md",
				shards.count, shards.count > 1 ? "s" : "", type->name,
				shards.count > 1 ? "were" : "was", self, shards.names.data,
				shards.count > NAMED ? ", ..." : "",
				held == NULL
					? ""
					: ", and messages that waited, which no worker handles, in shard.held"));
	bms_free(held);
	bms_free(undone);
}

static void
gather(ShardType *type, void *arg)
{
	List **types = arg;
	Candidate *candidate;

	if (!OidIsValid(type->state_table) || type->mode == SHARD_MODE_PROXY)
		return;
	candidate = palloc(sizeof(Candidate));
	*candidate =
		(Candidate){type->type_id, type->number_of_shards, type->state_table, pstrdup(type->name)};
	*types = lappend(*types, candidate);
}

/* A node that is alone takes the homes of the shards that it has states of before another node joins (C21). */
static void
check_strange(ShardHealth *health)
{
	ShardDatabase *db = shard_preloaded ? shard_shmem_database() : NULL;
	ShardBoardView view;
	List *types = NIL;
	ListCell *cell;

	if (db == NULL || db->paused)
		return;
	shard_board_get(db, &view);
	if (!view.known || view.fenced || view.downed || view.members < 2)
		return;
	shard_registry_refresh();
	shard_registry_each(gather, &types);
	foreach (cell, types)
	{
		int looks = Max(ALL_LOOKS / list_length(types), LEAST_LOOKS);

		check_type(health, lfirst(cell), looks, view.node);
		check_undone(health, lfirst(cell), looks, view.node);
	}
}

/* What is in an unlogged table is gone after a crash, and with it states that were told to be durable (P1). */
static void
check_logged(ShardType *type, void *arg)
{
	/* its owner may have dropped it */
	if (get_rel_relkind(type->state_table) == '\0' ||
		get_rel_persistence(type->state_table) != RELPERSISTENCE_UNLOGGED)
		return;
	shard_health_add(
		arg, psprintf("the state table of entity type \"%s\" is unlogged: a crash of the server "
					  "would empty it, and entities would go on without state; its owner can "
					  "SET it LOGGED again",
					  type->name));
}

void
shard_health_states(ShardHealth *health)
{
	shard_registry_each(check_logged, health);
	check_orphans(health);
	check_strange(health);
}
