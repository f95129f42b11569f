/*
 * peer_failure.c
 *		What the other side, or libpq, says of a failure: kept, shown, raised again.
 *
 * Kept in fixed space, so that noting a failure cannot fail itself.
 */
#include "postgres.h"

#include "mb/pg_wchar.h"

#include "peer_private.h"

#include "compat.h"

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
 * Copies a text that came from anywhere: cut, without line ends, valid in our encoding. What is said
 * before a connection stands comes in the encoding of the other server.
 */
static void
copy_text(char *to, size_t size, const char *from)
{
	int length;

	to[0] = '\0';
	if (from == NULL)
		return;
	strlcpy(to, from, size);
	length = pg_mbcliplen(to, strlen(to), size - 1);
	to[length] = '\0';
	if (!pg_verifymbstr(to, length, true))
		for (char *c = to; *c != '\0'; c++)
			if (IS_HIGHBIT_SET(*c))
				*c = '?';
	while (length > 0 && (to[length - 1] == '\n' || to[length - 1] == ' '))
		to[--length] = '\0';
	one_line(to);
}

/*
 * Notes a failure; see peer_private.h.
 */
void
shard_peer_set_failure(ShardPeerFailure *failure, int sqlstate, const char *text,
					   const char *detail, const char *hint)
{
	failure->sqlstate = sqlstate;
	copy_text(failure->text, sizeof(failure->text), text);
	if (failure->text[0] == '\0')
		strlcpy(failure->text, "the connection was closed without a word", sizeof(failure->text));
	copy_text(failure->detail, sizeof(failure->detail), detail);
	copy_text(failure->hint, sizeof(failure->hint), hint);
}

int
shard_peer_error(const ShardPeer *peer, const char **text)
{
	if (text != NULL)
		*text = peer->failure.text;
	return peer->failure.sqlstate;
}

/*
 * Raises the last failure; see peer.h.
 */
void
shard_peer_throw(const ShardPeer *peer, const char *context)
{
	const ShardPeerFailure *failure = &peer->failure;
	const char *hint = failure->hint;

	if (hint[0] == '\0' && failure->sqlstate == ERRCODE_INSUFFICIENT_PRIVILEGE)
		hint = "Call shard_allow_peer() in that database for the role that connects.";

	ereport(ERROR,
			(errcode(failure->sqlstate != 0 ? failure->sqlstate
											: ERRCODE_SQLCLIENT_UNABLE_TO_ESTABLISH_SQLCONNECTION),
			 errmsg_internal("%s", failure->text),
			 failure->detail[0] != '\0' ? errdetail_internal("%s", failure->detail) : 0,
			 hint[0] != '\0' ? errhint("%s", hint) : 0, errcontext("%s", context)));
}
