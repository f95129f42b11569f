/*
 * link/peer_dsn.c
 *		Addresses of nodes: which options they may have, and what this node adds.
 *
 * An address says where a node is, and under which role to call there; it comes from others, and all members know it.
 * So it holds no secret, and nothing that has a file read, a library loaded, or a connection be weaker or go elsewhere
 * than its host says: a list of what it may have, and the rest is refused. Files and TLS are of the settings of each
 * server (peer_files.c). Nothing is kept here but a counter.
 */
#include "postgres.h"

#include <netdb.h>

#include "common/hashfn.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "postmaster/postmaster.h"
#include "utils/builtins.h"

#include "base/guc.h"
#include "link/peer_private.h"

#include "base/compat.h"

/* Most that is waited for a connection, for one host of the address. */
#define CONNECT_TIMEOUT 5

/* Options that an address may have: names, and numbers that are smaller than this node's. */
static const char *const allowed[] = {
	"host",
	"port",
	"dbname",
	"user",
	"connect_timeout",
	"keepalives",
	"keepalives_idle",
	"keepalives_interval",
	"keepalives_count",
	"tcp_user_timeout",
};

/* What to do instead, for options that an operator may well want. */
typedef struct Advice
{
	const char *option;
	const char *hint;
} Advice;

#define BY_SETTING(option) \
	{ \
#option, "Remove it, and set shard.peer_" #option " at each server." \
	}

static const Advice advices[] = {
	BY_SETTING(sslmode),
	BY_SETTING(sslrootcert),
	BY_SETTING(sslcert),
	BY_SETTING(sslkey),
	BY_SETTING(sslcrl),
	BY_SETTING(passfile),
	{"hostaddr", "Give the address in host, or let /etc/hosts have the name."},
	{"service", "Write down what the service says: host, port, dbname, user."},
	{"target_session_attrs",
	 "Remove it: of several hosts the one that can be written to is taken."},
	{"load_balance_hosts", "Remove it: of several hosts the one that can be written to is taken."},
};

/* Numbers that are this node's unless the address says less. */
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
 * What a call relies on, whatever role and database say there. With client_connection_check_interval a call whose
 * connection the caller closed ends within a second; that is the cancel of calls. (PQcancel waits for a connection of
 * its own, for as long as the network likes.) By shard.link the session is ended there when a command wants the
 * database to itself, though nothing was called in it yet (visitor.c); a server without the library takes it for a
 * placeholder setting.
 */
static const char *const server_options =
	"-c search_path=pg_catalog,pg_temp"
	" -c statement_timeout=0 -c lock_timeout=0"
	" -c idle_in_transaction_session_timeout=0 -c idle_session_timeout=0"
	" -c default_transaction_isolation=read\\ committed -c default_transaction_read_only=off"
	" -c default_transaction_deferrable=off"
	" -c client_connection_check_interval=1000"
	" -c client_min_messages=error -c plan_cache_mode=force_generic_plan -c jit=off"
	" -c shard.link=on";

/*
 * How often hosts at an address did not answer, by the address's hash. Two addresses that share a place only begin with
 * another host than need be.
 */
#define TURNS 64
static uint32 turns[TURNS];

/* Hosts of an address: one server, and its standbys. */
#define MOST_HOSTS 8

/* The options of the address, of this node, and the end. */
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

static const char *
given_value(const PQconninfoOption *options, const char *keyword)
{
	for (; options->keyword != NULL; options++)
		if (strcmp(options->keyword, keyword) == 0)
			return is_given(options) ? options->val : NULL;
	return NULL;
}

/*
 * Whether a host is a name or a number, or a folder of this server's sockets; "/dev" would be a file.
 */
static bool
is_good_host(const char *host, int length)
{
	const char *folders = Unix_socket_directories != NULL ? Unix_socket_directories : "";

	if (length == 0 || (host[0] != '/' && host[0] != '@'))
		return true;
	while (length > 1 && host[length - 1] == '/')
		length--;
	while (*folders != '\0')
	{
		const char *end;

		folders += strspn(folders, " ,\"");
		end = folders + strcspn(folders, ",\"");
		if (strncmp(folders, host, length) == 0 &&
			strspn(folders + length, " /") == (size_t) (end - folders - length))
			return true;
		folders = end;
	}
	return false;
}

static bool
are_good_hosts(const char *list)
{
	for (;;)
	{
		size_t length = strcspn(list, ",");

		if (!is_good_host(list, (int) length))
			return false;
		if (list[length] == '\0')
			return true;
		list += length + 1;
	}
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

/*
 * Whether an option may be in an address with this value.
 */
static bool
is_good(const PQconninfoOption *option)
{
	/* A connection string for libpq, which may have a password: never the name of a database. */
	return is_allowed(option->keyword) &&
		   (strcmp(option->keyword, "dbname") != 0 || strstr(option->val, "://") == NULL);
}

static const char *
advice_of(const char *option)
{
	if (is_secret(option))
		return "Put the password into the file of shard.peer_passfile, or use a client certificate.";
	for (int i = 0; i < lengthof(advices); i++)
		if (strcmp(advices[i].option, option) == 0)
			return advices[i].hint;
	return "Remove it, or set it for the role that connects.";
}

/*
 * Says which options are refused. Their names are libpq's, whatever was given.
 */
static void
refuse_options(const PQconninfoOption *options, ShardPeerFailure *failure)
{
	const char *first = "";
	bool secret = false;
	char names[512] = "";
	char text[640];
	int count = 0;

	for (; options->keyword != NULL; options++)
	{
		size_t length = strlen(names);

		if (!is_given(options) || is_good(options))
			continue;
		if (count == 0 || (is_secret(options->keyword) && !secret))
			first = options->keyword;
		secret |= is_secret(options->keyword);
		snprintf(names + length, sizeof(names) - length, "%s\"%s\"", count++ > 0 ? ", " : "",
				 options->keyword);
	}
	snprintf(text, sizeof(text),
			 count == 1 ? "option %s is not allowed" : "options %s are not allowed", names);
	shard_peer_set_failure(failure, ERRCODE_INVALID_PARAMETER_VALUE, text,
						   secret ? "All members know the addresses of all."
								  : "An address has host, port, dbname and user; files, TLS and "
									"sessions are for each server to set.",
						   advice_of(first));
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
	const char *hosts;
	bool given = false;
	bool good = true;

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
	for (const PQconninfoOption *option = options; option->keyword != NULL; option++)
	{
		given |= is_given(option);
		good &= !is_given(option) || is_good(option);
	}
	hosts = given_value(options, "host");
	if (!good)
		refuse_options(options, failure);
	else if (!given)
		shard_peer_set_failure(failure, ERRCODE_INVALID_PARAMETER_VALUE, "it is empty", NULL,
							   "Write it like \"host=name port=5432 dbname=app user=peer\".");
	else if (hosts != NULL && count_elements(hosts) > MOST_HOSTS)
	{
		char text[64];

		snprintf(text, sizeof(text), "it names more than %d hosts", MOST_HOSTS);
		shard_peer_set_failure(
			failure, ERRCODE_INVALID_PARAMETER_VALUE, text,
			"libpq looks up the names of all hosts one after the other, and nothing else is done "
			"meanwhile.",
			"A node is one database: name its host, and the hosts that may take its place.");
	}
	else if (hosts != NULL && !are_good_hosts(hosts))
		shard_peer_set_failure(
			failure, ERRCODE_INVALID_PARAMETER_VALUE,
			"its host is a folder that this server has no sockets in",
			"Another machine cannot be reached by a socket's folder, and another file is no "
			"address.",
			"Give a name or number as host, or a folder of unix_socket_directories.");
	else
		return options;
	PQconninfoFree(options);
	return NULL;
}

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

const char *
shard_peer_dsn_problem(const char *dsn)
{
	ShardPeerFailure failure;
	PQconninfoOption *options = parse(dsn, &failure);

	if (options == NULL)
		return pstrdup(failure.text);
	PQconninfoFree(options);
	return NULL;
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

/* This node's number, unless the address says less; 0 there is "no limit", and so more. */
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

/* Whether the system's resolver has to look up a host of such a list; not a number, nor the folder of a socket. */
static bool
is_name(const char *host, size_t length)
{
	struct addrinfo hint = {.ai_flags = AI_NUMERICHOST};
	struct addrinfo *found = NULL;
	char *text;
	bool number;

	if (length == 0 || host[0] == '/' || host[0] == '@')
		return false;
	text = pnstrdup(host, length);
	number = getaddrinfo(text, NULL, &hint, &found) == 0;
	if (number)
		freeaddrinfo(found);
	pfree(text);
	return !number;
}

bool
shard_peer_dsn_has_names(const char *dsn)
{
	ShardPeerFailure failure;
	PQconninfoOption *options = parse(dsn, &failure);
	const char *hosts = options == NULL ? NULL : given_value(options, "host");
	bool names = false;

	while (hosts != NULL && !names)
	{
		size_t length = strcspn(hosts, ",");

		names = is_name(hosts, length);
		hosts = hosts[length] == '\0' ? NULL : hosts + length + 1;
	}
	if (options != NULL)
		PQconninfoFree(options);
	return names;
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
	hosts = given_value(options, "host");
	if (hosts != NULL)
		count = count_elements(hosts);
	PQconninfoFree(options);
	return count;
}

/*
 * A list that begins with another of its elements. libpq goes on to the next host when one refuses, but not, in
 * asynchronous use, when one is silent: then this file begins with the next one.
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
 * The options of an address, and this node's. The numbers are those of the first host if there are several.
 */
static void
collect(Options *all, const PQconninfoOption *given, const char *purpose, uint32 turn)
{
	ShardPeerOption secure[SHARD_PEER_SECURE_OPTIONS];
	const char *hosts = given_value(given, "host");
	int n_secure;

	all->count = 0;
	for (const PQconninfoOption *option = given; option->keyword != NULL; option++)
	{
		bool list = strcmp(option->keyword, "host") == 0 || strcmp(option->keyword, "port") == 0;

		if (is_given(option) && !is_limit(option->keyword))
			add(all, option->keyword, list ? rotated(option->val, turn) : option->val);
	}
	/* each node has a role of its own, and an address is one for all nodes that call there: the last one counts */
	if (shard_peer_user[0] != '\0')
		add(all, "user", shard_peer_user);
	for (int i = 0; i < lengthof(limits); i++)
		add(all, limits[i].option, psprintf("%d", limited(given, &limits[i])));
	add(all, "keepalives", "1");
	/* Looking for tickets of Kerberos may wait for its server. */
	add(all, "gssencmode", "disable");
	if (hosts != NULL && strchr(hosts, ',') != NULL)
		add(all, "target_session_attrs", "read-write");
	n_secure = shard_peer_secure_options(secure);
	for (int i = 0; i < n_secure; i++)
		add(all, secure[i].keyword, secure[i].value);
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

/* What says where a node is. */
static bool
is_place(const char *keyword)
{
	return strcmp(keyword, "host") == 0 || strcmp(keyword, "port") == 0 ||
		   strcmp(keyword, "dbname") == 0;
}

char *
shard_peer_own_dsn(const char *dsn, const char *database)
{
	ShardPeerFailure failure;
	PQconninfoOption *options = parse(dsn, &failure);
	StringInfoData own;

	if (options == NULL)
		return NULL;
	initStringInfo(&own);
	append_option(&own, "port", psprintf("%d", PostPortNumber));
	append_option(&own, "dbname", database);
	for (PQconninfoOption *option = options; option->keyword != NULL; option++)
		if (is_given(option) && !is_place(option->keyword))
			append_option(&own, option->keyword, option->val);
	PQconninfoFree(options);
	return own.data;
}

/* An address that names no server means this very one, wherever it listens. */
char *
shard_peer_complete_dsn(const char *dsn, const char *socket_folder)
{
	ShardPeerFailure failure;
	PQconninfoOption *options = parse(dsn, &failure);
	StringInfoData whole;

	if (options == NULL || given_value(options, "host") != NULL)
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

uint32
shard_peer_dsn_hash(const char *dsn)
{
	return hash_bytes((const unsigned char *) dsn, (int) strlen(dsn));
}

/* The system's resolver looks up names of hosts in here, and may wait. */
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
	if (!shard_peer_secure_check(failure))
	{
		PQconninfoFree(given);
		return NULL;
	}
	context = AllocSetContextCreate(CurrentMemoryContext, "shard peer dsn", ALLOCSET_SMALL_SIZES);
	old = MemoryContextSwitchTo(context);
	*address = shard_peer_dsn_hash(dsn);
	collect(&options, given, purpose, turns[*address % TURNS]);
	*timeout_ms = limited(given, &limits[0]) * 1000;
	conn = PQconnectStartParams(options.keyword, options.value, 0);
	MemoryContextSwitchTo(old);
	MemoryContextDelete(context);
	PQconninfoFree(given);
	if (conn == NULL)
		shard_peer_set_failure(failure, ERRCODE_OUT_OF_MEMORY, "out of memory", NULL, NULL);
	else
	{
		PQsetNoticeReceiver(conn, ignore_notice, NULL);
		/* until it stands: nothing else has the SQLSTATE of a refusal */
		(void) PQsetErrorVerbosity(conn, PQERRORS_VERBOSE);
	}
	return conn;
}
