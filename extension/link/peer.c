/*
 * link/peer.c
 *		An asynchronous libpq connection to another node: one call at a time.
 *
 * A connection is a small machine (peer_private.h): connect, check, idle, prepare, execute. Its owner moves it on by
 * shard_peer_poll(). Nothing is durable. After any error, time-out or close in the midst of a call the connection is
 * gone, and it is unknown whether the call was executed: the callers deal with that (X5, X8). The backend over there
 * ends within a second (peer_dsn.c), or at its next attempt to write to this process.
 *
 * Nothing here raises an error but for lack of memory; a descriptor is reserved for each connection.
 */
#include "postgres.h"

#include <poll.h>

#include "catalog/pg_type.h"
#include "common/pg_prng.h"
#include "miscadmin.h"
#include "storage/fd.h"
#include "storage/latch.h"
#include "utils/memutils.h"

#include "link/peer_private.h"
#include "base/clock.h"
#include "base/fault.h"

#include "base/compat.h"

#define FIRST_BACKOFF (100 * 1000)
#define LAST_BACKOFF (5 * 1000 * 1000)

/*
 * A node that a running server refused is let in by an operator, and not soon: each attempt is a line in that server's
 * log.
 */
#define REFUSED_BACKOFF (10 * 1000 * 1000)

/*
 * After a look-up that took this long or longer, in microseconds, the process makes the next one only after a multiple
 * of that time; at most five minutes.
 */
#define LONG_LOOK_UP (1000 * 1000)
#define LOOK_UP_BACKOFFS 20
#define LONGEST_BACKOFF (INT64CONST(300) * 1000 * 1000)

/* A connection that answers after that is a good one; in microseconds. */
#define SETTLED (1000 * 1000)

/* A long call takes its time: a millisecond more for each of so many bytes, as slow as they may go over and be stored. */
#define SLOWEST_MS 2000

/* Encrypted connections may have read more than they show; in ms. */
#define ENCRYPTED_POLL 100

/*
 * A role that may make schemas over there could put procedures of its own in the place of the extension's, and they
 * would run as the role that connects. Only superusers make C procedures, and only its owner can replace procedure
 * "who", so what holds once goes on to hold. Columns: the extension is there; something in its schema is not from it.
 * 13 is language C, 17 bytea.
 */
static const char *const check_query =
	"SELECT pg_catalog.bool_or(p.prolang = 13 AND p.prokind = 'p' AND p.proname = 'who'"
	" AND p.proargtypes = '17 17'::pg_catalog.oidvector), pg_catalog.bool_or(p.prolang <> 13)"
	" FROM pg_catalog.pg_proc p JOIN pg_catalog.pg_namespace n ON n.oid = p.pronamespace"
	" WHERE n.nspname = 'shard_peer'";

dlist_head shard_peer_list = DLIST_STATIC_INIT(shard_peer_list);

static ShardPeerEvent poll_connect(ShardPeer *peer);
static ShardPeerEvent poll_step(ShardPeer *peer);
static ShardPeerEvent end_connect(ShardPeer *peer);
static ShardPeerEvent end_step(ShardPeer *peer);
static bool send_prepare(ShardPeer *peer);
static bool send_execute(ShardPeer *peer, const char *bytes, int length);
static ShardPeerEvent fail(ShardPeer *peer);
static ShardPeerEvent fail_by_result(ShardPeer *peer);

ShardPeer *
shard_peer_create(const char *purpose)
{
	ShardPeer *peer = MemoryContextAllocZero(TopMemoryContext, sizeof(ShardPeer));

	strlcpy(peer->purpose, purpose, sizeof(peer->purpose));
	peer->position = -1;
	peer->last_backoff = LAST_BACKOFF;
	dlist_push_tail(&shard_peer_list, &peer->link);
	return peer;
}

static void
drop_result(ShardPeer *peer)
{
	PQclear(peer->result);
	peer->result = NULL;
}

static void
drop_argument(ShardPeer *peer)
{
	if (peer->argument != NULL)
		pfree(peer->argument);
	peer->argument = NULL;
}

/*
 * Closes the connection, if there is one. What it had to send is not waited for.
 */
static void
disconnect(ShardPeer *peer)
{
	drop_result(peer);
	drop_argument(peer);
	peer->n_prepared = 0;
	peer->deadline = 0;
	if (peer->conn == NULL)
		return;
	PQfinish(peer->conn);
	peer->conn = NULL;
	ReleaseExternalFD();
	shard_peer_wait_changed();
}

void
shard_peer_destroy(ShardPeer *peer)
{
	disconnect(peer);
	dlist_delete(&peer->link);
	pfree(peer);
}

/*
 * The next open waits: twice as long as after the failure before, less some chance, so that nodes which lost the same
 * peer do not come back together. Where the system's resolver kept this process from all else, the pause is much
 * longer.
 */
static void
back_off(ShardPeer *peer)
{
	int64 longest = FIRST_BACKOFF;
	int64 limit = peer->failure.refused != 0 ? REFUSED_BACKOFF : peer->last_backoff;

	for (int i = 0; i < peer->failures && longest < limit; i++)
		longest *= 2;
	longest = Min(longest, limit);
	peer->failures++;
	peer->backoff = (int64) (longest * (0.5 + 0.5 * pg_prng_double(&pg_global_prng_state)));
	peer->next_open = shard_clock_now() + peer->backoff;
	/* without names it is a process that was not given the processor */
	if (peer->looking_up >= LONG_LOOK_UP && peer->has_names)
		peer->next_open =
			Max(peer->next_open,
				peer->began_at + Min(LOOK_UP_BACKOFFS * peer->looking_up, LONGEST_BACKOFF));
}

void
shard_peer_heard(ShardPeer *peer, int32 incarnation)
{
	if (peer->incarnation == incarnation)
		return;
	peer->incarnation = incarnation;
	peer->failures = 0;
	peer->next_open = 0;
}

void
shard_peer_limit_backoff(ShardPeer *peer, int longest_ms)
{
	peer->last_backoff = (int64) longest_ms * 1000;
}

void
shard_peer_close(ShardPeer *peer, bool failed)
{
	disconnect(peer);
	peer->unreported = false;
	if (failed)
		back_off(peer);
	else
	{
		peer->failures = 0;
		peer->next_open = 0;
	}
}

void
shard_peer_hurry(void)
{
	dlist_iter iter;

	dlist_foreach (iter, &shard_peer_list)
	{
		ShardPeer *peer = dlist_container(ShardPeer, link, iter.cur);

		peer->failures = 0;
		peer->backoff = 0;
		peer->next_open = 0;
	}
}

/* A failure on the spot is told by the next poll. */
bool
shard_peer_open(ShardPeer *peer, const char *dsn)
{
	int timeout_ms;
	int64 began;

	peer->open_refused = false;
	if (peer->conn != NULL)
		return true;
	if (peer->unreported || shard_clock_now() < peer->next_open || !shard_peer_take_turn(peer))
	{
		peer->open_refused = true;
		return false;
	}
	if (!shard_peer_has_room() || !AcquireExternalFD())
	{
		shard_peer_set_failure(&peer->failure, ERRCODE_INSUFFICIENT_RESOURCES,
							   "could not connect: too many open files", NULL,
							   "Raise max_files_per_process, or \"ulimit -n\" of the server.");
		(void) fail(peer);
		return true;
	}
	began = shard_clock_now();
	peer->conn =
		shard_peer_dsn_connect(dsn, peer->purpose, &peer->address, &timeout_ms, &peer->failure);
	peer->began_at = began;
	peer->looking_up = shard_clock_now() - began;
	peer->has_names = shard_peer_dsn_has_names(dsn);
	if (peer->conn == NULL)
	{
		ReleaseExternalFD();
		(void) fail(peer);
		return true;
	}
	shard_peer_wait_changed();
	shard_peer_surplus_begin(peer);
	peer->step = SHARD_PEER_STEP_CONNECT;
	peer->connecting = PGRES_POLLING_WRITING;
	peer->deadline = shard_clock_now() + timeout_ms * INT64CONST(1000);
	peer->timeout_ms = timeout_ms;
	if (PQstatus(peer->conn) == CONNECTION_BAD)
		(void) fail_by_result(peer);
	return true;
}

bool
shard_peer_is_at(const ShardPeer *peer, const char *dsn)
{
	return peer->conn == NULL || peer->address == shard_peer_dsn_hash(dsn);
}

static bool
is_prepared(const ShardPeer *peer)
{
	for (int i = 0; i < peer->n_prepared; i++)
		if (strcmp(peer->prepared[i], peer->procedure) == 0)
			return true;
	return false;
}

/* A procedure is prepared at its first call over a connection. */
void
shard_peer_call(ShardPeer *peer, const char *procedure, const char *bytes, int length,
				int timeout_ms)
{
	bool sent;

	if (shard_peer_state(peer) != SHARD_PEER_READY)
		elog(ERROR, "connection \"%s\" is not ready for a call", peer->purpose);
	drop_result(peer);
	strlcpy(peer->procedure, procedure, sizeof(peer->procedure));
	peer->timeout_ms = timeout_ms + length / SLOWEST_MS;
	peer->deadline = shard_clock_now() + peer->timeout_ms * INT64CONST(1000);
	if (is_prepared(peer))
		sent = send_execute(peer, bytes, length);
	else
	{
		drop_argument(peer);
		peer->argument = MemoryContextAllocHuge(TopMemoryContext, Max(length, 1));
		memcpy(peer->argument, bytes, length);
		peer->argument_length = length;
		sent = send_prepare(peer);
	}
	if (!sent)
		(void) fail_by_result(peer);
}

/*
 * Writes as much as the socket takes.
 */
static bool
flush(ShardPeer *peer)
{
	int left = PQflush(peer->conn);

	peer->flushed = left == 0;
	return left >= 0;
}

static bool
send_prepare(ShardPeer *peer)
{
	char query[64 + SHARD_PEER_PROCEDURE_NAME];
	Oid type = BYTEAOID;

	snprintf(query, sizeof(query), "CALL shard_peer.%s($1, NULL)", peer->procedure);
	peer->step = SHARD_PEER_STEP_PREPARE;
	return PQsendPrepare(peer->conn, peer->procedure, query, 1, &type) && flush(peer);
}

static bool
send_execute(ShardPeer *peer, const char *bytes, int length)
{
	const char *values[1] = {bytes};
	int lengths[1] = {length};
	int formats[1] = {1};

	peer->step = SHARD_PEER_STEP_EXECUTE;
	return PQsendQueryPrepared(peer->conn, peer->procedure, 1, values, lengths, formats, 1) &&
		   flush(peer);
}

ShardPeerEvent
shard_peer_poll(ShardPeer *peer)
{
	if (peer->unreported)
	{
		peer->unreported = false;
		return SHARD_PEER_FAILED;
	}
	if (peer->conn == NULL)
		return SHARD_PEER_NOTHING;
	if (peer->step == SHARD_PEER_STEP_IDLE)
		drop_result(peer);
	if (peer->step == SHARD_PEER_STEP_CONNECT)
		return poll_connect(peer);
	return poll_step(peer);
}

static bool
is_late(const ShardPeer *peer)
{
	return peer->deadline != 0 && shard_clock_now() >= peer->deadline;
}

static ShardPeerEvent
fail_late(ShardPeer *peer)
{
	char text[128];

	if (peer->step == SHARD_PEER_STEP_CONNECT)
	{
		snprintf(text, sizeof(text), "could not connect within %d ms", peer->timeout_ms);
		peer->silent++;
		shard_peer_dsn_silent(peer->address);
	}
	else
		snprintf(text, sizeof(text), "no answer within %d ms", peer->timeout_ms);
	shard_peer_set_failure(&peer->failure, ERRCODE_CONNECTION_FAILURE, text, NULL, NULL);
	return fail(peer);
}

/*
 * Whether the socket is ready for the next step of connecting: libpq would wait if it were not. The
 * wait before may have ended for another reason, or may not have looked at sockets at all.
 */
static bool
is_ready_to_connect(const ShardPeer *peer)
{
	struct pollfd fd = {.fd = PQsocket(peer->conn)};

	fd.events = peer->connecting == PGRES_POLLING_WRITING ? POLLOUT : POLLIN;
	return poll(&fd, 1, 0) > 0;
}

/* The socket was looked at, or what came over it, and there is nothing to go on with yet. */
static ShardPeerEvent
wait_to_connect(ShardPeer *peer)
{
	return is_late(peer) ? fail_late(peer) : SHARD_PEER_NOTHING;
}

static ShardPeerEvent
poll_connect(ShardPeer *peer)
{
	ShardPeerLogin login;
	int64 began;

	while (peer->connecting != PGRES_POLLING_OK)
	{
		if (peer->connecting == PGRES_POLLING_FAILED)
		{
			shard_peer_set_login_failure(&peer->failure, peer->conn);
			return fail(peer);
		}
		if (!is_ready_to_connect(peer))
			return wait_to_connect(peer);
		login = shard_peer_login_look(peer);
		if (login == SHARD_PEER_LOGIN_WAIT)
			return wait_to_connect(peer);
		if (login == SHARD_PEER_LOGIN_REFUSED || shard_peer_surplus_fails(peer))
			return fail(peer);
		began = shard_clock_now();
		shard_fault("peer_connects");
		peer->connecting = PQconnectPoll(peer->conn);
		peer->looking_up += shard_clock_now() - began;
		shard_peer_wait_changed();
	}
	return end_connect(peer);
}

/* The connection stands. What older servers do not know cannot be told them while connecting. */
static ShardPeerEvent
end_connect(ShardPeer *peer)
{
	char query[1024];

	peer->opened_at = shard_clock_now();
	peer->flushed = true;
	(void) PQsetErrorVerbosity(peer->conn, PQERRORS_DEFAULT);
	peer->failure.refused = 0;
	if (PQsetnonblocking(peer->conn, 1) != 0)
		return fail_by_result(peer);
	snprintf(query, sizeof(query), "%s%s",
			 PQserverVersion(peer->conn) < 170000 ? "" : "SET transaction_timeout = 0; ",
			 check_query);
	peer->step = SHARD_PEER_STEP_CHECK;
	peer->deadline = peer->opened_at + peer->timeout_ms * INT64CONST(1000);
	if (!PQsendQuery(peer->conn, query) || !flush(peer))
		return fail_by_result(peer);
	return SHARD_PEER_NOTHING;
}

/* The connection may be used if what is there is the extension's. */
static ShardPeerEvent
end_check(ShardPeer *peer)
{
	const PGresult *result = peer->result;
	bool whole = PQntuples(result) == 1 && PQnfields(result) == 2;
	bool here = whole && PQgetvalue(result, 0, 0)[0] == 't';
	bool others = whole && PQgetvalue(result, 0, 1)[0] == 't';

	drop_result(peer);
	if (here && !others)
	{
		peer->step = SHARD_PEER_STEP_IDLE;
		peer->deadline = 0;
		return SHARD_PEER_OPENED;
	}
	if (others)
		shard_peer_set_failure(
			&peer->failure, ERRCODE_INSUFFICIENT_PRIVILEGE,
			"the database at the address has procedures of schema shard_peer "
			"that are not the extension's",
			"Nothing was called there.",
			"Drop these procedures, and find out which role made them: they would have run with "
			"the rights of the role that connects.");
	else
		shard_peer_set_failure(&peer->failure, ERRCODE_INVALID_SCHEMA_NAME,
							   "the database at the address does not have extension \"shard\"",
							   NULL, "Correct the address, or run CREATE EXTENSION shard there.");
	return fail(peer);
}

/*
 * Keeps the last result of a step, but an error above all. False: libpq has the same one again for each look, without an end, as
 * the server began a copy.
 */
static bool
keep_result(ShardPeer *peer, PGresult *result)
{
	ExecStatusType status = PQresultStatus(result);

	if (status == PGRES_COPY_IN || status == PGRES_COPY_OUT || status == PGRES_COPY_BOTH)
	{
		PQclear(result);
		shard_peer_set_failure(&peer->failure, ERRCODE_PROTOCOL_VIOLATION,
							   "the server began a copy that was not asked for", NULL, NULL);
		return false;
	}
	if (peer->result != NULL && PQresultStatus(peer->result) == PGRES_FATAL_ERROR)
		PQclear(result);
	else
	{
		drop_result(peer);
		peer->result = result;
	}
	return true;
}

static ShardPeerEvent
poll_step(ShardPeer *peer)
{
	if (!shard_peer_receive(peer) || (!peer->flushed && !flush(peer)))
		return fail_by_result(peer);
	if (shard_peer_surplus_fails(peer))
		return fail(peer);
	while (peer->step != SHARD_PEER_STEP_IDLE && !PQisBusy(peer->conn))
	{
		PGresult *result = PQgetResult(peer->conn);
		ShardPeerEvent event;

		if (result != NULL && !keep_result(peer, result))
			return fail(peer);
		if (result != NULL)
			continue;
		event = end_step(peer);
		if (event != SHARD_PEER_NOTHING)
			return event;
		shard_peer_note_addresses(peer); /* to send takes room, too */
	}
	if (shard_peer_announces_much(peer))
		return fail(peer);
	return is_late(peer) ? fail_late(peer) : SHARD_PEER_NOTHING;
}

/*
 * The server has answered a step.
 */
static ShardPeerEvent
end_step(ShardPeer *peer)
{
	ExecStatusType status = PQresultStatus(peer->result);
	int length;

	if (status != PGRES_TUPLES_OK && status != PGRES_COMMAND_OK)
		return fail_by_result(peer);
	(void) shard_peer_answer(peer, &length);
	shard_peer_surplus_step(peer, length);
	if (peer->step == SHARD_PEER_STEP_PREPARE)
	{
		bool sent;

		drop_result(peer);
		if (peer->n_prepared < SHARD_PEER_PROCEDURES)
			strlcpy(peer->prepared[peer->n_prepared++], peer->procedure, SHARD_PEER_PROCEDURE_NAME);
		sent = send_execute(peer, peer->argument, peer->argument_length);
		drop_argument(peer);
		return sent ? SHARD_PEER_NOTHING : fail_by_result(peer);
	}
	if (peer->step == SHARD_PEER_STEP_CHECK)
		return end_check(peer);
	peer->deadline = 0;
	peer->step = SHARD_PEER_STEP_IDLE;
	/* An owner may close after its first answers, again and again: then pauses go on to grow. */
	if (shard_clock_now() - peer->opened_at >= Min(peer->backoff, SETTLED))
	{
		peer->failures = 0;
		peer->backoff = 0;
	}
	return SHARD_PEER_ANSWER;
}

/*
 * The failure has been noted: close, and wait before the next attempt.
 */
static ShardPeerEvent
fail(ShardPeer *peer)
{
	disconnect(peer);
	back_off(peer);
	peer->unreported = true;
	return SHARD_PEER_FAILED;
}

/*
 * Notes what the server or libpq says, and fails.
 */
static ShardPeerEvent
fail_by_result(ShardPeer *peer)
{
	const PGresult *result = peer->result;
	const char *state = PQresultErrorField(result, PG_DIAG_SQLSTATE);
	const char *text = PQresultErrorField(result, PG_DIAG_MESSAGE_PRIMARY);

	if (text == NULL)
		text = PQresultErrorMessage(result);
	if (text[0] == '\0')
		text = PQerrorMessage(peer->conn);
	if (text[0] == '\0')
		text = "the connection failed";
	shard_peer_set_failure(&peer->failure,
						   state != NULL && strlen(state) == 5
							   ? MAKE_SQLSTATE(state[0], state[1], state[2], state[3], state[4])
							   : 0,
						   text, PQresultErrorField(result, PG_DIAG_MESSAGE_DETAIL),
						   PQresultErrorField(result, PG_DIAG_MESSAGE_HINT));
	return fail(peer);
}

ShardPeerState
shard_peer_state(const ShardPeer *peer)
{
	if (peer->conn == NULL)
		return SHARD_PEER_CLOSED;
	switch (peer->step)
	{
		case SHARD_PEER_STEP_CONNECT:
		case SHARD_PEER_STEP_CHECK:
			return SHARD_PEER_CONNECTING;
		case SHARD_PEER_STEP_IDLE:
			return SHARD_PEER_READY;
		case SHARD_PEER_STEP_PREPARE:
		case SHARD_PEER_STEP_EXECUTE:
			break;
	}
	return SHARD_PEER_BUSY;
}

const char *
shard_peer_answer(const ShardPeer *peer, int *length)
{
	const PGresult *result = peer->result;

	*length = 0;
	if (result == NULL || PQntuples(result) != 1 || PQnfields(result) != 1 ||
		PQgetisnull(result, 0, 0))
		return NULL;
	*length = PQgetlength(result, 0, 0);
	return PQgetvalue(result, 0, 0);
}

uint32
shard_peer_wanted_events(const ShardPeer *peer)
{
	if (peer->conn == NULL || PQsocket(peer->conn) < 0)
		return 0;
	if (peer->step == SHARD_PEER_STEP_CONNECT)
		return peer->connecting == PGRES_POLLING_WRITING ? WL_SOCKET_WRITEABLE : WL_SOCKET_READABLE;
	return WL_SOCKET_READABLE | (peer->flushed ? 0 : WL_SOCKET_WRITEABLE);
}

/*
 * Microseconds until the connection needs to be polled, or may be opened again by a caller that wanted to; -1: never.
 */
static int64
time_left(const ShardPeer *peer)
{
	int64 left;

	if (peer->unreported)
		return 0;
	if (peer->conn == NULL)
		return peer->open_refused ? Max(peer->next_open - shard_clock_now(), 0) : -1;
	if (peer->deadline == 0)
		return -1;
	left = Max(peer->deadline - shard_clock_now(), 0);
	if (peer->step != SHARD_PEER_STEP_CONNECT && shard_peer_is_encrypted(peer))
		left = Min(left, ENCRYPTED_POLL * 1000);
	return left;
}

/* A peer that is not opened again when its time has come is not reported once more. */
long
shard_peer_next_due(void)
{
	int64 least = -1;
	dlist_iter iter;

	dlist_foreach (iter, &shard_peer_list)
	{
		ShardPeer *peer = dlist_container(ShardPeer, link, iter.cur);
		int64 left = time_left(peer);

		if (left == 0 && peer->conn == NULL)
			peer->open_refused = false;
		if (left >= 0 && (least < 0 || left < least))
			least = left;
	}
	return least < 0 ? -1 : (long) ((least + 999) / 1000);
}
