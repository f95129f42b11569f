/*
 * link/peer_login.c
 *		How much work a server may ask of a client that logs in by a password (P73).
 *
 * SCRAM (RFC 5802) has the server say how often the password is hashed. libpq does as it is told, up to 2^31 - 1 times,
 * which takes an hour, and neither looks at interrupts nor at the time. The number comes from whatever server has the
 * address, before that server has shown that it knows the password. So what a server says is looked at before libpq
 * reads it, and not read if it asks for too much.
 *
 * libpq reads all that has come, and hashes once it has both sent its nonce and met an answer to it. So that libpq
 * reads nothing unseen, whatever comes between look and read: only whole messages are read, the answer to a nonce is
 * all that may follow the question for one, and a nonce that is not sent cannot be answered. Other ways to log in take
 * no work, or none that a server names.
 *
 * Under TLS it is OpenSSL that has the bytes, if libpq was built with that.
 *
 * Nothing is durable. A connection that is refused here is tried again after the usual back-off.
 */
#include "postgres.h"

#include <dlfcn.h>
#include <poll.h>
#include <sys/socket.h>

#include "port/pg_bswap.h"

#include "link/peer_private.h"

/*
 * PostgreSQL's own scram_iterations is 4096. This many take some 50 ms, in which nothing else is done.
 */
#define MOST_ITERATIONS 65536

/* libpq takes no longer ones while logging in. */
#define MOST_MESSAGE 2000

/* Kind and length. */
#define HEADER 5

/* Kinds of authentication, as the protocol numbers them. */
enum
{
	AUTH_OK = 0,
	AUTH_GSS_CONTINUE = 8,
	AUTH_SASL = 10,
	AUTH_SASL_CONTINUE = 11
};

typedef struct Look
{
	ShardPeer *peer;
	char bytes[2 * (MOST_MESSAGE + 1)]; /* what is said of versions, and a message */
	ssize_t length;
} Look;

/* ---- what has come, and was not read ---------------------------------------------------------- */

/* libpq's own copy of OpenSSL, which is in the process with it. */
typedef struct Tls
{
	int (*peek)(void *ssl, void *bytes, int length);
	int (*error)(const void *ssl, int result);
	void (*clear)(void);
	unsigned long (*last)(void);
	const char *(*reason)(unsigned long error);
} Tls;

/* SSL_ERROR_SSL and SSL_ERROR_WANT_READ */
#define TLS_ERROR 1
#define TLS_WANT_READ 2

static const Tls *
tls(void)
{
	static Tls found;

	if (found.peek == NULL)
	{
		found.error = (int (*)(const void *, int)) dlsym(RTLD_DEFAULT, "SSL_get_error");
		found.clear = (void (*)(void)) dlsym(RTLD_DEFAULT, "ERR_clear_error");
		found.last = (unsigned long (*)(void)) dlsym(RTLD_DEFAULT, "ERR_get_error");
		found.reason =
			(const char *(*) (unsigned long) ) dlsym(RTLD_DEFAULT, "ERR_reason_error_string");
		if (found.error != NULL && found.clear != NULL && found.last != NULL &&
			found.reason != NULL)
			found.peek = (int (*)(void *, void *, int)) dlsym(RTLD_DEFAULT, "SSL_peek");
	}
	return found.peek != NULL ? &found : NULL;
}

/*
 * The end of TLS is met once, by the process that looks: a server tells in it that it does not take the client's
 * certificate, and libpq would find nothing more to read. So it is said here as libpq says it.
 */
static void
note_end(Look *look, const char *reason)
{
	char text[256];

	snprintf(text, sizeof(text), "SSL error: %s", reason != NULL ? reason : "unknown");
	shard_peer_set_failure(&look->peer->failure, 0, text, NULL, NULL);
}

static ShardPeerLogin
peek_tls(Look *look, void *ssl)
{
	const Tls *t = tls();
	int error;

	t->clear();
	look->length = t->peek(ssl, look->bytes, sizeof(look->bytes));
	if (look->length > 0)
		return SHARD_PEER_LOGIN_READ;
	error = t->error(ssl, (int) look->length);
	look->length = 0;
	if (error == TLS_WANT_READ)
		return SHARD_PEER_LOGIN_WAIT;
	if (error != TLS_ERROR)
		return SHARD_PEER_LOGIN_READ;
	note_end(look, t->reason(t->last()));
	t->clear();
	return SHARD_PEER_LOGIN_REFUSED;
}

/* WAIT: nothing has come. READ with a length of 0: libpq is to find out what it is, an end or an error. */
static ShardPeerLogin
peek(Look *look)
{
	PGconn *conn = look->peer->conn;

	if (PQsslInUse(conn))
		return peek_tls(look, PQsslStruct(conn, "OpenSSL"));
	look->length = recv(PQsocket(conn), look->bytes, sizeof(look->bytes), MSG_PEEK | MSG_DONTWAIT);
	if (look->length < 0 && (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR))
		return SHARD_PEER_LOGIN_WAIT;
	look->length = Max(look->length, 0);
	return SHARD_PEER_LOGIN_READ;
}

/*
 * This many bytes wake the process that waits for the socket: a message that comes in pieces is waited for, and not
 * looked at again and again.
 */
static void
wake_by(const ShardPeer *peer, int bytes)
{
	(void) setsockopt(PQsocket(peer->conn), SOL_SOCKET, SO_RCVLOWAT, &bytes, sizeof(bytes));
}

/* ---- what it says ----------------------------------------------------------------------------- */

static uint32
number_at(const char *bytes)
{
	uint32 number;

	memcpy(&number, bytes, sizeof(number));
	return pg_ntoh32(number);
}

/* "r=nonce,s=salt,i=iterations": how many; 0: libpq is to say that it is malformed. */
static long
iterations(const char *bytes, int length)
{
	char text[MOST_MESSAGE + 1];
	char *salt;
	char *count;

	memcpy(text, bytes, length);
	text[length] = '\0';
	salt = strncmp(text, "r=", 2) == 0 ? strchr(text, ',') : NULL;
	count = salt != NULL && strncmp(salt, ",s=", 3) == 0 ? strchr(salt + 1, ',') : NULL;
	return count != NULL && strncmp(count, ",i=", 3) == 0 ? strtol(count + 3, NULL, 10) : 0;
}

static ShardPeerLogin
refuse(ShardPeer *peer, const char *text, const char *hint)
{
	shard_peer_set_failure(&peer->failure, ERRCODE_PROTOCOL_VIOLATION, text, NULL, hint);
	return SHARD_PEER_LOGIN_REFUSED;
}

static ShardPeerLogin
refuse_order(ShardPeer *peer)
{
	return refuse(peer, "the server sent a message that is not part of a login",
				  "Find out whether it is PostgreSQL that answers there.");
}

/* The answer to a nonce; after it there is nothing more to be hashed. */
static ShardPeerLogin
take_answer(ShardPeer *peer, const char *bytes, int length)
{
	long count = iterations(bytes, length);
	char text[160];

	if (count <= MOST_ITERATIONS)
	{
		peer->login = SHARD_PEER_LOGIN_OVER;
		return SHARD_PEER_LOGIN_READ;
	}
	snprintf(text, sizeof(text),
			 "the server has passwords hashed %ld times at login, and %d times are the most for "
			 "links",
			 count, MOST_ITERATIONS);
	return refuse(
		peer, text,
		"Lower scram_iterations there, and set the password of the role again; or let nodes log "
		"in by certificates.");
}

/*
 * One message, whole, of authentication. What is read with it though it came later: see above.
 */
static ShardPeerLogin
take_authentication(ShardPeer *peer, const char *message, int length)
{
	uint32 kind = length >= HEADER + 4 ? number_at(message + HEADER) : PG_UINT32_MAX;

	if (kind == AUTH_SASL_CONTINUE)
		return take_answer(peer, message + HEADER + 4, length - HEADER - 4);
	if (kind == AUTH_OK && peer->login != SHARD_PEER_LOGIN_NONCE)
		peer->login = SHARD_PEER_LOGIN_OVER;
	else if (kind == AUTH_SASL && peer->login == SHARD_PEER_LOGIN_BEGINS)
		peer->login = SHARD_PEER_LOGIN_NONCE;
	else if (peer->login == SHARD_PEER_LOGIN_BEGINS ||
			 (kind == AUTH_GSS_CONTINUE && peer->login == SHARD_PEER_LOGIN_ASKED))
		peer->login = SHARD_PEER_LOGIN_ASKED;
	else
		return refuse_order(peer);
	return SHARD_PEER_LOGIN_READ;
}

/* Has the server closed its end, so that what is there is all that will come? Or it was not there yet when that was looked at. */
static bool
is_closed(const ShardPeer *peer)
{
	struct pollfd fd = {.fd = PQsocket(peer->conn), .events = POLLRDHUP};

	return poll(&fd, 1, 0) > 0;
}

/*
 * More of the message has to come. A socket that is closed would stay ready; what is cut off is not for libpq, which
 * may find more there.
 */
static ShardPeerLogin
wait_for(const Look *look, int bytes)
{
	if (PQsslInUse(look->peer->conn))
		return refuse_order(look->peer); /* honest servers say it in one record */
	if (is_closed(look->peer))
		return refuse(look->peer, "the server closed the connection within a message of the login",
					  NULL);
	wake_by(look->peer, bytes);
	return SHARD_PEER_LOGIN_WAIT;
}

/*
 * The messages that are there. A server that speaks of versions first goes on at once, so nothing is read of that alone.
 */
static ShardPeerLogin
take(Look *look)
{
	const char *at = look->bytes;
	ShardPeerLogin login = SHARD_PEER_LOGIN_WAIT;

	while (look->peer->login != SHARD_PEER_LOGIN_OVER)
	{
		int before = at - look->bytes;
		int left = look->length - before;
		uint32 length;

		if (left == 0 && login == SHARD_PEER_LOGIN_READ)
			return login;
		if (left >= 1 && *at != 'R' && *at != 'v')
			return *at == 'E' ? SHARD_PEER_LOGIN_READ : refuse_order(look->peer);
		if (left < HEADER)
			return wait_for(look, before + HEADER);
		length = number_at(at + 1);
		if (length < 4 || length > MOST_MESSAGE ||
			(*at == 'v' && (before > 0 || look->peer->login != SHARD_PEER_LOGIN_BEGINS)))
			return refuse_order(look->peer);
		length++;
		if (left < (int) length)
			return wait_for(look, before + length);
		if (*at == 'R')
			login = take_authentication(look->peer, at, length);
		if (login == SHARD_PEER_LOGIN_REFUSED)
			return login;
		at += length;
	}
	return SHARD_PEER_LOGIN_READ;
}

ShardPeerLogin
shard_peer_login_look(ShardPeer *peer)
{
	Look look = {.peer = peer};
	ShardPeerLogin login;

	/* It is connecting, to one host after the other perhaps, or it is in. */
	if (PQstatus(peer->conn) != CONNECTION_AWAITING_RESPONSE)
	{
		peer->login = SHARD_PEER_LOGIN_BEGINS;
		return SHARD_PEER_LOGIN_READ;
	}
	if (peer->login == SHARD_PEER_LOGIN_OVER || peer->connecting != PGRES_POLLING_READING)
		return SHARD_PEER_LOGIN_READ;
	if (PQsslInUse(peer->conn) && (PQsslStruct(peer->conn, "OpenSSL") == NULL || tls() == NULL))
		return SHARD_PEER_LOGIN_READ;
	login = peek(&look);
	if (login == SHARD_PEER_LOGIN_READ && look.length > 0)
		login = take(&look);
	if (login != SHARD_PEER_LOGIN_WAIT)
		wake_by(peer, 1);
	return login;
}
