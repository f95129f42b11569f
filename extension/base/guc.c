/*
 * base/guc.c
 *		Settings of the server: shard.*
 *
 * All of them follow the configuration file: workers and senders of a database
 * have to agree on them.
 */
#include "postgres.h"

#include <limits.h>

#include "utils/guc.h"
#include "utils/varlena.h"

#include "core/member/downing.h"
#include "core/member/lease.h"
#include "core/map/record.h"
#include "base/fault.h"
#include "base/guc.h"
#include "shard.h"

bool shard_enabled = true;
int shard_region_workers = 1;
int shard_max_region_workers = SHARD_MAX_WORKERS;
bool shard_owners_may_share_workers = false;
int shard_owner_workers_keep = 5 * 60 * 1000;
int shard_inbox_max_size = 8 * 1024 * 1024;
int shard_cache_size = 512 * 1024;
int shard_handler_lock_timeout = 500;
int shard_max_handler_timeout = 60 * 1000;
int shard_max_types_per_owner = 100;
int shard_max_shards_per_owner = 100000;
int shard_max_shards_per_type = 10000;
int shard_max_stray_dead_letters = 100000;
int shard_gate = SHARD_GATE_SET_AUTO;
static char *roles = NULL;
char *shard_app_version = NULL;
double shard_weight = 1;
int shard_min_members = 1;
char *shard_role_min_members = NULL;
int shard_downing_strategy = SHARD_DOWNING_MANUAL;
int shard_static_quorum_size = 0;
int shard_stable_after = 20 * 1000;
int shard_lease_ttl = SHARD_LEASE_TTL_MS;
int shard_voters = 0;
int shard_voter_replace_after = 60 * 1000;
bool shard_identity_lease = false;
int shard_recount_interval = 60 * 1000;
int shard_rebalance_interval = 10 * 1000;
int shard_shutdown_timeout = 0;
int shard_state_store_mode = SHARD_STATE_STORE_DDATA;
char *shard_journal_dsn = NULL;
char *shard_journal_database = NULL;
bool shard_journal_ha = true;
int shard_peer_sslmode = SHARD_SSLMODE_PREFER;
static int channel_binding = SHARD_CHANNEL_BINDING_PREFER;
char *shard_peer_sslrootcert = NULL;
char *shard_peer_sslcert = NULL;
char *shard_peer_sslkey = NULL;
char *shard_peer_sslcrl = NULL;
char *shard_peer_passfile = NULL;
char *shard_peer_user = NULL;

static const struct config_enum_entry gate_options[] = {{"auto", SHARD_GATE_SET_AUTO, false},
														{"local", SHARD_GATE_SET_LOCAL, false},
														{"standby", SHARD_GATE_SET_STANDBY, false},
														{NULL, 0, false}};

static const struct config_enum_entry downing_options[] = {
	{"manual", SHARD_DOWNING_MANUAL, false},
	{"auto", SHARD_DOWNING_AUTO, false},
	{"static_quorum", SHARD_DOWNING_STATIC_QUORUM, false},
	{"keep_majority", SHARD_DOWNING_KEEP_MAJORITY, false},
	{"keep_oldest", SHARD_DOWNING_KEEP_OLDEST, false},
	{"down_all", SHARD_DOWNING_ALL, false},
	{NULL, 0, false}};

/*
 * Two voters are worse than one, and four than three.
 */
static bool
check_voters(int *value, void **extra, GucSource source)
{
	if (*value == 0 || *value % 2 == 1)
		return true;
	GUC_check_errdetail("The number of voters must be odd, or 0.");
	return false;
}

/*
 * The names of shard.roles, as they were written: "Front" is not "front" (C4). None if the server was started
 * without the library.
 */
List *
shard_guc_roles(void)
{
	List *names;

	if (roles == NULL)
		return NIL;
	if (!SplitGUCList(pstrdup(roles), ',', &names))
		elog(ERROR, "invalid shard.roles \"%s\"", roles);
	return names;
}

/*
 * Whether this node has a role; "" is the role of every node.
 */
bool
shard_guc_has_role(const char *role)
{
	ListCell *cell;

	if (role[0] == '\0')
		return true;
	foreach (cell, shard_guc_roles())
		if (strcmp(lfirst(cell), role) == 0)
			return true;
	return false;
}

/*
 * Error detail of a check that found one name of a list wanting.
 */
static bool
is_role(const char *name)
{
	size_t length = strlen(name);

	if (length == 0 || length >= NAMEDATALEN)
		GUC_check_errdetail("A role has between 1 and %d bytes.", NAMEDATALEN - 1);
	else if (strpbrk(name, "=, ") != NULL)
		GUC_check_errdetail("Role \"%s\" contains a space, a comma or an equals sign.", name);
	else
		return true;
	return false;
}

/*
 * A list of a limited number of roles, each of them once.
 */
static bool
check_roles(char **value, void **extra, GucSource source)
{
	char *copy;
	List *names;
	ListCell *cell;
	bool good = true;

	if (*value == NULL)
		return true;
	copy = pstrdup(*value);
	if (!SplitGUCList(copy, ',', &names))
	{
		GUC_check_errdetail("The value must be a list of names, separated by commas.");
		return false;
	}
	if (list_length(names) > SHARD_MAX_ROLES)
	{
		GUC_check_errdetail("A node can have %d roles, not %d.", SHARD_MAX_ROLES,
							list_length(names));
		good = false;
	}
	foreach (cell, names)
		good = good && is_role(lfirst(cell));
	list_free(names);
	pfree(copy);
	return good;
}

/*
 * "role=number": a number of members.
 */
static bool
is_role_minimum(char *item)
{
	char *number = strchr(item, '=');
	char *end;
	long members;

	if (number == NULL)
	{
		GUC_check_errdetail("\"%s\" is not role=number.", item);
		return false;
	}
	*number++ = '\0';
	members = strtol(number, &end, 10);
	if (*number == '\0' || *end != '\0' || members < 1 || members > 1000)
	{
		GUC_check_errdetail("\"%s\" is not a number of members between 1 and 1000.", number);
		return false;
	}
	return is_role(item);
}

/*
 * A list of a limited number of roles with their least numbers of members.
 */
static bool
check_role_min_members(char **value, void **extra, GucSource source)
{
	char *copy;
	char *rest = NULL;
	bool good = true;
	int count = 0;

	if (*value == NULL)
		return true;
	copy = pstrdup(*value);
	for (char *item = strtok_r(copy, ", ", &rest); good && item != NULL;
		 item = strtok_r(NULL, ", ", &rest))
	{
		good = is_role_minimum(item);
		if (good && ++count > SHARD_MAX_ROLES)
		{
			GUC_check_errdetail("There can be %d roles.", SHARD_MAX_ROLES);
			good = false;
		}
	}
	pfree(copy);
	return good;
}

static const struct config_enum_entry store_options[] = {{"ddata", SHARD_STATE_STORE_DDATA, false},
														 {"persistence", SHARD_STATE_STORE_JOURNAL,
														  false},
														 {NULL, 0, false}};

/*
 * Settings of the journal that keeps the map of a cluster, if members do not.
 */
static void
define_journal(void)
{
	DefineCustomEnumVariable(
		"shard.state_store_mode",
		"Sets where the map of the cluster is kept: by members that vote, or by a journal.",
		"All members must have the same value.", &shard_state_store_mode, SHARD_STATE_STORE_DDATA,
		store_options, PGC_POSTMASTER, 0, NULL, NULL, NULL);
	DefineCustomStringVariable("shard.journal_dsn", "Sets the address of the journal's database.",
							   "Used if shard.state_store_mode is persistence.", &shard_journal_dsn,
							   "", PGC_POSTMASTER, GUC_SUPERUSER_ONLY, NULL, NULL, NULL);
	DefineCustomStringVariable("shard.journal_database",
							   "Sets the database of this server that is a journal instead of a "
							   "member.",
							   NULL, &shard_journal_database, "", PGC_POSTMASTER, 0, NULL, NULL,
							   NULL);
	DefineCustomBoolVariable("shard.journal_ha",
							 "Sets whether a journal has to have a synchronous standby.",
							 "If the setting is off, and the journal is put back from a copy, "
							 "all members have to be asked.",
							 &shard_journal_ha, true, PGC_POSTMASTER, 0, NULL, NULL, NULL);
}

static const struct config_enum_entry sslmode_options[] = {
	{"disable", SHARD_SSLMODE_DISABLE, false},
	{"allow", SHARD_SSLMODE_ALLOW, false},
	{"prefer", SHARD_SSLMODE_PREFER, false},
	{"require", SHARD_SSLMODE_REQUIRE, false},
	{"verify-ca", SHARD_SSLMODE_VERIFY_CA, false},
	{"verify-full", SHARD_SSLMODE_VERIFY_FULL, false},
	{NULL, 0, false}};

static const struct config_enum_entry channel_binding_options[] = {
	{"disable", SHARD_CHANNEL_BINDING_DISABLE, false},
	{"prefer", SHARD_CHANNEL_BINDING_PREFER, false},
	{"require", SHARD_CHANNEL_BINDING_REQUIRE, false},
	{NULL, 0, false}};

static const char *
name_of(const struct config_enum_entry *options, int value)
{
	for (const struct config_enum_entry *option = options; option->name != NULL; option++)
		if (option->val == value)
			return option->name;
	elog(ERROR, "unknown value %d of a setting", value);
	pg_unreachable();
}

const char *
shard_guc_peer_sslmode(void)
{
	return name_of(sslmode_options, shard_peer_sslmode);
}

const char *
shard_guc_peer_channel_binding(void)
{
	return name_of(channel_binding_options, channel_binding);
}

/*
 * A key's file. If the name has a colon, libpq takes the text before it for the name of an engine, and has that loaded
 * as a library.
 */
static bool
check_key_file(char **value, void **extra, GucSource source)
{
	if (strchr(*value, ':') == NULL)
		return true;
	GUC_check_errdetail("A key from an engine, with \":\" in its name, is not supported.");
	GUC_check_errhint("Name a file.");
	return false;
}

static void
define_peer_file(const char *name, const char *what, char **value, GucStringCheckHook check)
{
	DefineCustomStringVariable(
		name, what,
		"Used for connections to other nodes. The file has to be a regular file; empty means none.",
		value, "", PGC_SIGHUP, GUC_SUPERUSER_ONLY, check, NULL, NULL);
}

/*
 * Settings of connections to other nodes. The server's own: an address is what others say.
 */
static void
define_peers(void)
{
	DefineCustomEnumVariable("shard.peer_sslmode",
							 "Sets how far other nodes have to prove their identity.",
							 "Has the values of libpq's sslmode; between machines use verify-full.",
							 &shard_peer_sslmode, SHARD_SSLMODE_PREFER, sslmode_options, PGC_SIGHUP,
							 GUC_SUPERUSER_ONLY, NULL, NULL, NULL);
	DefineCustomEnumVariable(
		"shard.peer_channel_binding",
		"Sets whether a login by password has to be bound to the other server's certificate.",
		"Has the values of libpq's channel_binding. With require no server in between can pass a "
		"login on; logins by certificate, or without TLS, are refused.",
		&channel_binding, SHARD_CHANNEL_BINDING_PREFER, channel_binding_options, PGC_SIGHUP,
		GUC_SUPERUSER_ONLY, NULL, NULL, NULL);
	define_peer_file("shard.peer_sslrootcert",
					 "Sets the file of authorities that vouch for other nodes.",
					 &shard_peer_sslrootcert, NULL);
	define_peer_file("shard.peer_sslcert", "Sets the file of this node's client certificate.",
					 &shard_peer_sslcert, NULL);
	define_peer_file("shard.peer_sslkey",
					 "Sets the file of the key of this node's client certificate.",
					 &shard_peer_sslkey, check_key_file);
	define_peer_file("shard.peer_sslcrl", "Sets the file of certificates that were revoked.",
					 &shard_peer_sslcrl, NULL);
	define_peer_file("shard.peer_passfile", "Sets the file of passwords for other nodes.",
					 &shard_peer_passfile, NULL);
	DefineCustomStringVariable("shard.peer_user",
							   "Sets the role as which this node connects to other nodes.",
							   "Empty means the user that each address names.", &shard_peer_user,
							   "", PGC_SIGHUP, GUC_SUPERUSER_ONLY, NULL, NULL, NULL);
}

/*
 * Settings of this node's part in its cluster.
 */
static void
define_cluster(void)
{
	DefineCustomStringVariable("shard.roles", "Sets the roles of this node in its cluster.",
							   "A list of names; an entity type with a role runs on members that "
							   "have that role.",
							   &roles, "", PGC_POSTMASTER, 0, check_roles, NULL, NULL);
	DefineCustomStringVariable("shard.app_version",
							   "Sets the version of the application that this node runs.",
							   "Members with a newer one are preferred when shards are allocated.",
							   &shard_app_version, "0.0.0", PGC_POSTMASTER, 0, NULL, NULL, NULL);
	DefineCustomRealVariable(
		"shard.weight", "Sets the share of shards that this node takes, compared with others.",
		"Counts for entity types whose allocation_settings have weighted = true.", &shard_weight, 1,
		0.001, 1000, PGC_POSTMASTER, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("shard.min_members",
							"Sets how many members a cluster must have before it hosts shards.",
							"Takes effect in a cluster that this node founds.", &shard_min_members,
							1, 1, 1000, PGC_POSTMASTER, 0, NULL, NULL, NULL);
	DefineCustomStringVariable("shard.role_min_members",
							   "Sets how many members with a role a "
							   "cluster must have before it hosts "
							   "shards of that role's entity types.",
							   "A list of role=number. Takes effect in a cluster that this node "
							   "founds.",
							   &shard_role_min_members, "", PGC_POSTMASTER, 0,
							   check_role_min_members, NULL, NULL);
	DefineCustomEnumVariable("shard.downing_strategy",
							 "Sets which members are given up when some cannot be reached.",
							 "manual means that operators give members up.",
							 &shard_downing_strategy, SHARD_DOWNING_MANUAL, downing_options,
							 PGC_POSTMASTER, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("shard.static_quorum_size",
							"Sets how many members a side needs so that static_quorum keeps it.",
							"0 means that static_quorum cannot be chosen.",
							&shard_static_quorum_size, 0, 0, SHARD_DOWNING_MAX_MEMBERS,
							PGC_POSTMASTER, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("shard.stable_after",
							"Sets how long nothing may change before a downing strategy decides.",
							NULL, &shard_stable_after, 20 * 1000, 1000, 3600 * 1000, PGC_POSTMASTER,
							GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomIntVariable("shard.lease_ttl", "Sets how long a lease of a member lasts.",
							"Takes effect in a cluster that this node founds.", &shard_lease_ttl,
							SHARD_LEASE_TTL_MS, 1000, SHARD_LEASE_MAX_TTL_MS, PGC_POSTMASTER,
							GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomIntVariable("shard.voters", "Sets how many members vote on the cluster's map.",
							"0 means 1, 3 or 5, by the number of members; other values are 1, 3, "
							"5 and 7.",
							&shard_voters, 0, 0, SHARD_MAX_VOTERS, PGC_POSTMASTER, 0, check_voters,
							NULL, NULL);
	DefineCustomIntVariable(
		"shard.voter_replace_after",
		"Sets after which time a voter that cannot be reached is replaced by another member.", NULL,
		&shard_voter_replace_after, 60 * 1000, 1000, 24 * 3600 * 1000, PGC_POSTMASTER, GUC_UNIT_MS,
		NULL, NULL, NULL);
	DefineCustomBoolVariable(
		"shard.identity_lease", "Sets whether this node runs under a lease of its identity.",
		"A standby of this node may then be promoted unattended: the cluster admits the standby "
		"when the lease has ended.",
		&shard_identity_lease, false, PGC_POSTMASTER, 0, NULL, NULL, NULL);
}

/*
 * The strategy static_quorum downs no member without its number. Error 22023: the server does not start.
 */
static void
check_cluster(void)
{
	if (shard_downing_strategy != SHARD_DOWNING_STATIC_QUORUM || shard_static_quorum_size > 0)
		return;
	ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					errmsg("shard.static_quorum_size is not set"),
					errdetail("shard.downing_strategy is static_quorum."),
					errhint("Set it to more than half of the members that are planned.")));
}

/*
 * Settings of moves.
 */
static void
define_moves(void)
{
	DefineCustomIntVariable(
		"shard.rebalance_interval",
		"Sets how often this node, as coordinator, looks whether shards should move.",
		"0 means never; shard_rebalance() has the coordinator look at once.",
		&shard_rebalance_interval, 10 * 1000, 0, 24 * 3600 * 1000, PGC_SIGHUP, GUC_UNIT_MS, NULL,
		NULL, NULL);
	DefineCustomIntVariable(
		"shard.shutdown_timeout",
		"Sets how long a shutdown of the server waits until messages and the coordinator's "
		"office are handed over.",
		"0 means that the shutdown does not wait.", &shard_shutdown_timeout, 0, 0, 3600 * 1000,
		PGC_SIGHUP, GUC_UNIT_MS, NULL, NULL, NULL);
}

/*
 * What owners of entity types may ask for; superusers may set them for a role, too (admin_limit.c).
 */
static void
define_limits(void)
{
	DefineCustomIntVariable("shard.max_handler_timeout",
							"Sets how long handler_timeout of an entity type may be.",
							"0 means no limit. Superusers are not bound.",
							&shard_max_handler_timeout, 60 * 1000, 0, 24 * 3600 * 1000, PGC_SUSET,
							GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomIntVariable("shard.max_types_per_owner",
							"Sets how many entity types a role may own in a database.",
							"0 means no limit. Superusers are not bound.",
							&shard_max_types_per_owner, 100, 0, 1000000, PGC_SUSET, 0, NULL, NULL,
							NULL);
	DefineCustomIntVariable("shard.max_shards_per_type",
							"Sets how many shards an entity type may have.",
							"0 means no limit. Superusers are not bound.",
							&shard_max_shards_per_type, 10000, 0, 1000000, PGC_SUSET, 0, NULL, NULL,
							NULL);
	DefineCustomIntVariable(
		"shard.max_shards_per_owner",
		"Sets how many shards the entity types of a role in a database may have.",
		"0 means no limit. Superusers are not bound.", &shard_max_shards_per_owner, 100000, 0,
		2000000, PGC_SUSET, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("shard.max_stray_dead_letters",
							"Sets how many dead letters there may be of entity types that this "
							"database does not have.",
							"The oldest are deleted.", &shard_max_stray_dead_letters, 100000, 1,
							10000000, PGC_SIGHUP, 0, NULL, NULL, NULL);
}

/*
 * Defines the settings. From _PG_init, if the library is preloaded.
 */
void
shard_guc_init(void)
{
	DefineCustomBoolVariable("shard.enabled", "Sets whether workers of the extension run.",
							 "Messages can be sent while the setting is off; the messages wait.",
							 &shard_enabled, true, PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomIntVariable(
		"shard.region_workers",
		"Sets the number of region workers of each owner of types in a database.",
		"Each entity is run by one of these workers; a change of the setting restarts them.",
		&shard_region_workers, 1, 1, SHARD_GROUP_LANES, PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomIntVariable(
		"shard.max_region_workers", "Sets how many region workers a database may have.",
		"Types of an owner for which no worker is left wait, or share the workers of another owner.",
		&shard_max_region_workers, SHARD_MAX_WORKERS, 1, SHARD_MAX_WORKERS, PGC_SIGHUP, 0, NULL,
		NULL, NULL);
	DefineCustomIntVariable(
		"shard.owner_workers_keep",
		"Sets how long region workers of an owner stay after the owner's last type is gone.",
		"Worker 0 starts again when these workers end.", &shard_owner_workers_keep, 5 * 60 * 1000,
		0, 24 * 3600 * 1000, PGC_SIGHUP, GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomBoolVariable(
		"shard.owners_may_share_workers",
		"Sets whether owners of types share region workers when there are fewer workers than "
		"owners.",
		"Then handlers of one of these owners hold up those of the others.",
		&shard_owners_may_share_workers, false, PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("shard.inbox_max_size",
							"Sets the size of a database's inbox beyond which sending is refused.",
							"0 means no limit.", &shard_inbox_max_size, 8 * 1024 * 1024, 0,
							MAX_KILOBYTES, PGC_SIGHUP, GUC_UNIT_KB, NULL, NULL, NULL);
	DefineCustomIntVariable(
		"shard.cache_size", "Sets the memory of a region worker for entities.",
		"Beyond this size the least recently used entities leave memory, whatever settings their "
		"types have.",
		&shard_cache_size, 512 * 1024, 1024, MAX_KILOBYTES, PGC_SIGHUP, GUC_UNIT_KB, NULL, NULL,
		NULL);
	DefineCustomIntVariable(
		"shard.handler_lock_timeout",
		"Sets how long a handler waits for a lock that another transaction holds.",
		"The message of the handler is tried again later. The setting is the lock_timeout of the "
		"region workers.",
		&shard_handler_lock_timeout, 500, 1, 60 * 1000, PGC_SIGHUP, GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomIntVariable(
		"shard.recount_interval",
		"Sets how often an idle region worker compares its counts with the tables.",
		"0 means never.", &shard_recount_interval, 60 * 1000, 0, 24 * 3600 * 1000, PGC_SIGHUP,
		GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomEnumVariable(
		"shard.gate", "Sets where a commit must be durable before its results leave the database.",
		"auto means on the synchronous standbys if there are any, else on this server.",
		&shard_gate, SHARD_GATE_SET_AUTO, gate_options, PGC_SIGHUP, 0, NULL, NULL, NULL);
	define_limits();
	define_cluster();
	check_cluster();
	define_moves();
	define_journal();
	define_peers();
	shard_fault_define();
	MarkGUCPrefixReserved("shard");
}
