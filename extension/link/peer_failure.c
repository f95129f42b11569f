/*
 * link/peer_failure.c
 *		What the other side, or libpq, says of a failure: kept, shown, raised again.
 *
 * Kept in fixed space, so that noting a failure cannot fail itself.
 */
#include "postgres.h"

#include <ctype.h>

#include "mb/pg_wchar.h"

#include "link/peer_private.h"

#include "base/compat.h"

/*
 * Line ends and tabs become one blank each.
 */
static void
one_line(char *text)
{
	char *to = text;

	for (const char *from = text; *from != '\0'; from++)
	{
		bool space = *from == '\n' || *from == '\t' || *from == ' ';

		if (!space || (to > text && to[-1] != ' '))
			*to++ = space ? ' ' : *from;
	}
	*to = '\0';
}

/*
 * Copies a text that came from anywhere: cut, without line ends, valid in this database's encoding. What is said before
 * a connection stands comes in the encoding of the other server.
 */
static void
copy_text(char *to, size_t size, const char *from)
{
	int length;

	to[0] = '\0';
	if (from == NULL)
		return;
	length = pg_mbcliplen(from, strlen(from), size - 1);
	memcpy(to, from, length);
	to[length] = '\0';
	if (!pg_verifymbstr(to, length, true))
		for (char *c = to; *c != '\0'; c++)
			if (IS_HIGHBIT_SET(*c))
				*c = '?';
	while (length > 0 && (to[length - 1] == '\n' || to[length - 1] == ' '))
		to[--length] = '\0';
	one_line(to);
}

void
shard_peer_set_failure(ShardPeerFailure *failure, int sqlstate, const char *text,
					   const char *detail, const char *hint)
{
	failure->sqlstate = sqlstate;
	failure->refused = 0;
	copy_text(failure->text, sizeof(failure->text), text);
	if (failure->text[0] == '\0')
		strlcpy(failure->text, "the server closed the connection without an error message",
				sizeof(failure->text));
	copy_text(failure->detail, sizeof(failure->detail), detail);
	copy_text(failure->hint, sizeof(failure->hint), hint);
}

/* A line of verbose messages that says where in the server's source: "LOCATION:  InitPostgres, postinit.c:998". */
static bool
is_location(const char *line, size_t length)
{
	while (length > 0 && isdigit((unsigned char) line[length - 1]))
		length--;
	return length > 3 && strncmp(line + length - 3, ".c:", 3) == 0;
}

/* The SQLSTATE of such a line, as in "FATAL:  3D000: database"; NULL: none. */
static char *
state_in(char *line)
{
	for (char *at = strstr(line, ":  "); at != NULL; at = strstr(at + 1, ":  "))
		if (strspn(at + 3, "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ") == 5 &&
			strncmp(at + 8, ": ", 2) == 0)
			return at + 3;
	return NULL;
}

/*
 * Takes out of verbose messages what makes them that, and returns the last SQLSTATE, 0: none. Errors of a server before
 * a login have none elsewhere, and words of any language.
 */
static int
take_states(char *text)
{
	char *to = text;
	char *next;
	int sqlstate = 0;

	for (char *line = text; *line != '\0'; line = next)
	{
		size_t length = strcspn(line, "\n");
		bool ends = line[length] == '\0';
		char *state;

		line[length] = '\0';
		next = line + length + (ends ? 0 : 1);
		state = state_in(line);
		if (state != NULL)
		{
			sqlstate = MAKE_SQLSTATE(state[0], state[1], state[2], state[3], state[4]);
			memmove(state, state + 7, strlen(state + 7) + 1);
		}
		if (is_location(line, strlen(line)))
			continue;
		length = strlen(line);
		memmove(to, line, length);
		to += length;
		*to++ = ends ? '\0' : '\n';
	}
	*to = '\0';
	return sqlstate;
}

/* What an operator can do for a role that is not let in; "": nothing in general. */
static const char *
login_hint(int refused, const PGconn *conn)
{
	if (PQconnectionNeedsPassword(conn))
		return "The file that setting shard.peer_passfile of this node names has the passwords of "
			   "links: it needs a line for that host, database and role.";
	if (refused == ERRCODE_INVALID_PASSWORD)
		return "The file that setting shard.peer_passfile of this node names has the passwords of "
			   "links: the password in its line for that host, database and role is not the one that "
			   "the role has there.";
	if (ERRCODE_TO_CATEGORY(refused) == ERRCODE_INVALID_AUTHORIZATION_SPECIFICATION)
		return "The server's process connects, not the client: as the role that the address names "
			   "with user=, or else as the server's operating system user. Name a role there that "
			   "exists and is let in.";
	return "";
}

/* The connection gives verbose messages. */
void
shard_peer_set_login_failure(ShardPeerFailure *failure, const PGconn *conn)
{
	char text[sizeof(failure->text) + 512];
	int sqlstate;
	int refused = 0;

	strlcpy(text, PQerrorMessage(conn), sizeof(text) - 1);
	sqlstate = take_states(text);
	if (PQconnectionNeedsPassword(conn))
		refused = ERRCODE_INVALID_PASSWORD;
	else if (sqlstate == ERRCODE_UNDEFINED_DATABASE ||
			 ERRCODE_TO_CATEGORY(sqlstate) == ERRCODE_INVALID_AUTHORIZATION_SPECIFICATION)
		refused = sqlstate;
	shard_peer_set_failure(failure, 0, text[0] != '\0' ? text : "the connection failed", NULL,
						   login_hint(refused, conn));
	failure->refused = refused;
}

int
shard_peer_error(const ShardPeer *peer, const char **text)
{
	if (text != NULL)
		*text = peer->failure.text;
	return peer->failure.sqlstate;
}

void
shard_peer_throw(const ShardPeer *peer, const char *what, const char *context)
{
	const ShardPeerFailure *failure = &peer->failure;
	const char *hint = failure->hint;
	/* A server that lets no role in gives the reason as its own code, as to any client of it. */
	int sqlstate = failure->sqlstate != 0 ? failure->sqlstate : failure->refused;
	const char *text = what != NULL && failure->sqlstate == 0
						   ? psprintf("%s: %s", what, failure->text)
						   : failure->text;

	if (hint[0] == '\0' && failure->sqlstate == ERRCODE_INSUFFICIENT_PRIVILEGE)
		hint = "Call shard_allow_peer() in that database for the role that connects.";

	ereport(ERROR, (errcode(sqlstate != 0 ? sqlstate
										  : ERRCODE_SQLCLIENT_UNABLE_TO_ESTABLISH_SQLCONNECTION),
					errmsg_internal("%s", text),
					failure->detail[0] != '\0' ? errdetail_internal("%s", failure->detail) : 0,
					hint[0] != '\0' ? errhint("%s", hint) : 0, errcontext("%s", context)));
}
