/*
 * peer_dsn.c
 *		Addresses of nodes: which options they may have, and what we add.
 *
 * An address is told to all members and shown in views, so it holds no secret: passwords are in a
 * password file or a service file, or there is a certificate. Who may give an address must not be able
 * to change what a connection does to either server either, hence the list of options. A service
 * file is allowed though it may name any option: who writes it owns the server's machine. What we set
 * ourselves it cannot change, since what is given goes before it.
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "postmaster/postmaster.h"
#include "utils/builtins.h"

#include "peer_private.h"

#include "compat.h"

/* Most that is waited for a connection, for one host of the address. */
#define CONNECT_TIMEOUT 5

/* Options that an address may have. */
static const char *const allowed[] = {
	"host",
	"hostaddr",
	"port",
	"dbname",
	"user",
	"passfile",
	"service",
	"sslmode",
	"sslcert",
	"sslkey",
	"sslrootcert",
	"sslcrl",
	"sslcrldir",
	"sslsni",
	"sslnegotiation",
	"ssl_min_protocol_version",
	"ssl_max_protocol_version",
	"channel_binding",
	"require_auth",
	"requirepeer",
	"gssencmode",
	"krbsrvname",
	"target_session_attrs",
	"load_balance_hosts",
	"connect_timeout",
	"keepalives",
	"keepalives_idle",
	"keepalives_interval",
	"keepalives_count",
	"tcp_user_timeout",
};

/* Numbers that are ours unless the address says less. */
typedef struct OurLimit
{
	const char *option;
	int value;
} OurLimit;

static const OurLimit limits[] = {
	{"connect_timeout", CONNECT_TIMEOUT}, {"keepalives_idle", 5},
	{"keepalives_interval", 2},			  {"keepalives_count", 3},
	{"tcp_user_timeout", 10000},
};

/*
 * What a call relies on, whatever role and database say there. With client_connection_check_interval a
 * call whose connection we closed ends within a second; that is our cancel. (PQcancel waits for a
 * connection of its own, for as long as the network likes.)
 */
static const char *const server_options =
	"-c search_path=pg_catalog,pg_temp"
	" -c statement_timeout=0 -c lock_timeout=0"
	" -c idle_in_transaction_session_timeout=0 -c idle_session_timeout=0"
	" -c default_transaction_isolation=read\\ committed -c default_transaction_read_only=off"
	" -c default_transaction_deferrable=off"
	" -c client_connection_check_interval=1000"
	" -c client_min_messages=error -c plan_cache_mode=force_generic_plan -c jit=off";

/*
 * How often nobody answered at an address, by its hash. Two that share a place only begin with another
 * host than need be.
 */
#define TURNS 64
static uint32 turns[TURNS];

/* Of the address, of ours, and the end. */
#define MAX_OPTIONS 96

typedef struct Options
{
	int count;
	const char *keyword[MAX_OPTIONS + 1];
	const char *value[MAX_OPTIONS + 1];
} Options;

static bool
is_allowed(const char *option)
{
	for (int i = 0; i < lengthof(allowed); i++)
		if (strcmp(allowed[i], option) == 0)
			return true;
	return false;
}

static bool
is_secret(const char *option)
{
	return strcmp(option, "password") == 0 || strcmp(option, "sslpassword") == 0 ||
		   strncmp(option, "scram_", 6) == 0 || strncmp(option, "oauth_", 6) == 0;
}

static bool
is_given(const PQconninfoOption *option)
{
	return option->val != NULL && option->val[0] != '\0';
}

/*
 * Takes an address apart. NULL, with *failure set: it is none, or has an option that is not allowed.
 * To be given back by PQconninfoFree().
 */
static PQconninfoOption *
parse(const char *dsn, ShardPeerFailure *failure)
{
	char *error = NULL;
	PQconninfoOption *options = PQconninfoParse(dsn, &error);
	bool given = false;

	if (options == NULL)
	{
		/* What libpq says of it has pieces of it, a password maybe. */
		shard_peer_set_failure(
			failure, ERRCODE_INVALID_PARAMETER_VALUE, "it is not a connection string",
			"It has an unknown option, a quote that does not end, or a word without \"=\".",
			"Write it like \"host=name port=5432 dbname=app user=peer\".");
		PQfreemem(error);
		return NULL;
	}
	for (PQconninfoOption *option = options; option->keyword != NULL; option++)
	{
		char text[NAMEDATALEN * 2];

		if (!is_given(option))
			continue;
		given = true;
		/* A connection string for libpq, with a password maybe: nobody's name of a database. */
		if (is_allowed(option->keyword) &&
			(strcmp(option->keyword, "dbname") != 0 || strstr(option->val, "://") == NULL))
			continue;
		snprintf(text, sizeof(text), "option \"%s\" is not allowed", option->keyword);
		if (is_secret(option->keyword))
			shard_peer_set_failure(failure, ERRCODE_INVALID_PARAMETER_VALUE, text,
								   "All members know the addresses of all.",
								   "Put the password into a password file (option passfile) or a "
								   "service file of the server, or use a client certificate.");
		else
			shard_peer_set_failure(failure, ERRCODE_INVALID_PARAMETER_VALUE, text, NULL,
								   "Remove it, or set it for the role that connects.");
		PQconninfoFree(options);
		return NULL;
	}
	if (!given)
	{
		shard_peer_set_failure(failure, ERRCODE_INVALID_PARAMETER_VALUE, "it is empty", NULL,
							   "Write it like \"host=name port=5432 dbname=app user=peer\".");
		PQconninfoFree(options);
		return NULL;
	}
	return options;
}

/*
 * Checks an address; see peer.h.
 */
void
shard_peer_check_dsn(const char *dsn, const char *what)
{
	ShardPeerFailure failure;
	PQconninfoOption *options = parse(dsn, &failure);

	if (options != NULL)
	{
		PQconninfoFree(options);
		return;
	}
	ereport(ERROR, (errcode(failure.sqlstate), errmsg("%s cannot be used: %s", what, failure.text),
					failure.detail[0] != '\0' ? errdetail_internal("%s", failure.detail) : 0,
					failure.hint[0] != '\0' ? errhint("%s", failure.hint) : 0));
}

static void
add(Options *options, const char *keyword, const char *value)
{
	if (options->count >= MAX_OPTIONS)
		elog(ERROR, "too many connection options");
	options->keyword[options->count] = keyword;
	options->value[options->count++] = value;
	options->keyword[options->count] = NULL;
	options->value[options->count] = NULL;
}

static const char *
given_value(const PQconninfoOption *options, const char *keyword)
{
	for (; options->keyword != NULL; options++)
		if (strcmp(options->keyword, keyword) == 0)
			return is_given(options) ? options->val : NULL;
	return NULL;
}

/*
 * Ours, unless the address says less; 0 there is "no limit", and so more.
 */
static int
limited(const PQconninfoOption *options, const OurLimit *limit)
{
	const char *given = given_value(options, limit->option);
	int value = given != NULL ? atoi(given) : 0;

	return value > 0 ? Min(value, limit->value) : limit->value;
}

static bool
is_limit(const char *keyword)
{
	for (int i = 0; i < lengthof(limits); i++)
		if (strcmp(limits[i].option, keyword) == 0)
			return true;
	return strcmp(keyword, "keepalives") == 0;
}

static int
count_elements(const char *list)
{
	int count = 1;

	for (; *list != '\0'; list++)
		if (*list == ',')
			count++;
	return count;
}

void
shard_peer_dsn_silent(uint32 address)
{
	turns[address % TURNS]++;
}

int
shard_peer_dsn_hosts(const char *dsn)
{
	ShardPeerFailure failure;
	PQconninfoOption *options = parse(dsn, &failure);
	const char *hosts;
	int count = 1;

	if (options == NULL)
		return 0;
	hosts = given_value(options, "hostaddr");
	if (hosts == NULL)
		hosts = given_value(options, "host");
	if (hosts != NULL)
		count = count_elements(hosts);
	PQconninfoFree(options);
	return count;
}

/*
 * A list that begins with another of its elements. libpq goes on to the next host when one refuses,
 * but not, in asynchronous use, when one is silent: then we begin with the next one ourselves.
 */
static const char *
rotated(const char *list, uint32 turn)
{
	int first = turn % (uint32) count_elements(list);
	const char *begin = list;

	if (first == 0)
		return list;
	for (int i = 0; i < first; i++)
		begin = strchr(begin, ',') + 1;
	return psprintf("%s,%.*s", begin, (int) (begin - 1 - list), list);
}

/*
 * The options of an address, and ours. The numbers are those of the first host if there are several.
 */
static void
collect(Options *all, const PQconninfoOption *given, const char *purpose, uint32 turn)
{
	all->count = 0;
	for (const PQconninfoOption *option = given; option->keyword != NULL; option++)
	{
		bool list = strcmp(option->keyword, "host") == 0 ||
					strcmp(option->keyword, "hostaddr") == 0 ||
					strcmp(option->keyword, "port") == 0;

		if (is_given(option) && !is_limit(option->keyword))
			add(all, option->keyword, list ? rotated(option->val, turn) : option->val);
	}
	for (int i = 0; i < lengthof(limits); i++)
		add(all, limits[i].option, psprintf("%d", limited(given, &limits[i])));
	add(all, "keepalives", "1");
	/* Looking for tickets of Kerberos may wait for its server: on request only. */
	if (given_value(given, "gssencmode") == NULL)
		add(all, "gssencmode", "disable");
	add(all, "application_name", psprintf("shard %s", purpose));
	add(all, "client_encoding", GetDatabaseEncodingName());
	add(all, "options", server_options);
}

/*
 * Appends option = 'value', quoted.
 */
static void
append_option(StringInfo out, const char *keyword, const char *value)
{
	appendStringInfo(out, "%s%s='", out->len > 0 ? " " : "", keyword);
	for (; *value != '\0'; value++)
	{
		if (*value == '\'' || *value == '\\')
			appendStringInfoChar(out, '\\');
		appendStringInfoChar(out, *value);
	}
	appendStringInfoChar(out, '\'');
}

/* What says where a node is, and which one of several. */
static bool
is_place(const char *keyword)
{
	static const char *const places[] = {
		"host",
		"hostaddr",
		"port",
		"dbname",
		"service",
		"target_session_attrs",
		"load_balance_hosts",
	};

	for (int i = 0; i < lengthof(places); i++)
		if (strcmp(places[i], keyword) == 0)
			return true;
	return false;
}

/*
 * The address of this database but for its host, in the manner of another address; see peer.h.
 */
char *
shard_peer_own_dsn(const char *dsn, const char *database)
{
	ShardPeerFailure failure;
	PQconninfoOption *options = parse(dsn, &failure);
	StringInfoData own;

	if (options == NULL || given_value(options, "service") != NULL)
	{
		if (options != NULL)
			PQconninfoFree(options);
		return NULL;
	}
	initStringInfo(&own);
	append_option(&own, "port", psprintf("%d", PostPortNumber));
	append_option(&own, "dbname", database);
	for (PQconninfoOption *option = options; option->keyword != NULL; option++)
		if (is_given(option) && !is_place(option->keyword))
			append_option(&own, option->keyword, option->val);
	PQconninfoFree(options);
	return own.data;
}

/*
 * An address that names no server means this very one, wherever it listens; see peer.h.
 */
char *
shard_peer_complete_dsn(const char *dsn, const char *socket_folder)
{
	ShardPeerFailure failure;
	PQconninfoOption *options = parse(dsn, &failure);
	StringInfoData whole;

	if (options == NULL || given_value(options, "service") != NULL ||
		given_value(options, "host") != NULL || given_value(options, "hostaddr") != NULL)
	{
		if (options != NULL)
			PQconninfoFree(options);
		return pstrdup(dsn);
	}
	initStringInfo(&whole);
	append_option(&whole, "host", socket_folder[0] != '\0' ? socket_folder : "localhost");
	if (given_value(options, "port") == NULL)
		append_option(&whole, "port", psprintf("%d", PostPortNumber));
	for (PQconninfoOption *option = options; option->keyword != NULL; option++)
		if (is_given(option))
			append_option(&whole, option->keyword, option->val);
	PQconninfoFree(options);
	return whole.data;
}

static void
ignore_notice(void *arg, const PGresult *notice)
{
}

/*
 * Begins to connect; see peer_private.h. Names of hosts are looked up in here, by the system's
 * resolver, which may wait.
 */
PGconn *
shard_peer_dsn_connect(const char *dsn, const char *purpose, uint32 *address, int *timeout_ms,
					   ShardPeerFailure *failure)
{
	PQconninfoOption *given = parse(dsn, failure);
	MemoryContext context;
	MemoryContext old;
	Options options;
	PGconn *conn;

	if (given == NULL)
		return NULL;
	context = AllocSetContextCreate(CurrentMemoryContext, "shard peer dsn", ALLOCSET_SMALL_SIZES);
	old = MemoryContextSwitchTo(context);
	*address = hash_bytes((const unsigned char *) dsn, (int) strlen(dsn));
	collect(&options, given, purpose, turns[*address % TURNS]);
	*timeout_ms = limited(given, &limits[0]) * 1000;
	conn = PQconnectStartParams(options.keyword, options.value, 0);
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
	PQconninfoFree(given);
	if (conn == NULL)
		shard_peer_set_failure(failure, ERRCODE_OUT_OF_MEMORY, "out of memory", NULL, NULL);
	else
		PQsetNoticeReceiver(conn, ignore_notice, NULL);
	return conn;
}
