/*
 * link/peer_role.c
 *		For which node a role of links may speak (T8).
 *
 * Table shard.peer_role, by the role that has logged in: a role that sets another role of which it is a member still
 * counts as itself. A backend remembers what it has read until the table changes.
 *
 * If the process dies right here: the table is as it was, or as the transaction left it.
 */
#include "postgres.h"

#include "catalog/namespace.h"
#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "utils/inval.h"
#include "utils/lsyscache.h"
#include "utils/snapmgr.h"

#include "link/peer_role.h"
#include "registry/security.h"
#include "registry/statement.h"

#include "base/compat.h"

static ShardStatement find = {
	"SELECT node FROM shard.peer_role WHERE role OPERATOR(pg_catalog.=) $1", 1, {OIDOID}};
static ShardStatement put = {"INSERT INTO shard.peer_role AS p (role, node) VALUES ($1, $2) "
							 "ON CONFLICT (role) DO UPDATE SET node = excluded.node",
							 2,
							 {OIDOID, INT4OID}};
static ShardStatement take = {"DELETE FROM shard.peer_role WHERE role OPERATOR(pg_catalog.=) $1",
							  1,
							  {OIDOID}};

/* Of the role that has logged in; 0: any node. */
static bool known = false;
static uint32 changes = 0;
static int32 bound;
static Oid table = InvalidOid;

static void
relation_changed(Datum arg, Oid relid)
{
	if (relid != InvalidOid && relid != table)
		return;
	known = false;
	changes++;
}

static Oid
table_oid(void)
{
	return get_relname_relid("peer_role", get_namespace_oid("shard", false));
}

static void
look(void)
{
	static bool registered = false;
	ShardSecurity security = {0};
	ShardArguments arguments = {0};
	uint32 before;

	if (!registered)
		CacheRegisterRelcacheCallback(relation_changed, (Datum) 0);
	registered = true;
	table = table_oid();
	before = changes;
	PushActiveSnapshot(GetLatestSnapshot());
	shard_security_begin_system(&security);
	SPI_connect();
	shard_statement_add(&arguments, ObjectIdGetDatum(GetSessionUserId()), false);
	shard_statement_run(&find, &arguments, SPI_OK_SELECT);
	bound = SPI_processed > 0 ? shard_statement_int4(0, 1) : 0;
	SPI_finish();
	shard_security_end(&security);
	PopActiveSnapshot();
	/* what changed meanwhile is read by the next call */
	known = before == changes;
}

void
shard_peer_role_check(int32 from)
{
	if (!known)
		look();
	if (bound == 0 || bound == from)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
			 from == 0 ? errmsg("role \"%s\" may not speak for a node that is to join",
								GetUserNameFromId(GetSessionUserId(), false))
					   : errmsg("role \"%s\" may not speak for node %d",
								GetUserNameFromId(GetSessionUserId(), false), from),
			 errdetail("The role was given to node %d alone.", bound),
			 errhint("See shard_allow_peer() here, and shard.peer_user at the node that calls.")));
}

void
shard_peer_role_bind(Oid role, int32 node)
{
	ShardSecurity security = {0};
	ShardArguments arguments = {0};

	shard_security_begin_system(&security);
	SPI_connect();
	shard_statement_add(&arguments, ObjectIdGetDatum(role), false);
	if (node != 0)
		shard_statement_add(&arguments, Int32GetDatum(node), false);
	shard_statement_change(node != 0 ? &put : &take, &arguments,
						   node != 0 ? SPI_OK_INSERT : SPI_OK_DELETE);
	SPI_finish();
	shard_security_end(&security);
	CacheInvalidateRelcacheByRelid(table_oid());
}
