/*
 * peer_surplus.c
 *		How much a server says over a connection beside what was asked for (P37).
 *
 * libpq keeps, until the connection ends, each setting that a server reports (ParameterStatus), in a list that it walks for
 * the next one, and notifications. A server that is not what it should be could say them without end. So the bytes that came are
 * compared with the answers: by the system's count of the socket, as libpq has none. Connections without such a count (not
 * of TCP, not of Linux) are bounded by the time alone that reading takes.
 *
 * Nothing is durable. A connection with too much surplus is closed, and begun anew after the usual back-off.
 */
#include "postgres.h"

#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#ifdef __linux__
#include <linux/tcp.h>
#include <netinet/in.h>
#endif

#include "utils/memutils.h"

#include "peer_private.h"

/*
 * So much may come over a connection that nobody has asked for: what is said while connecting, with certificates, and
 * years of settings that are changed. Many more of the shortest ones would take seconds to be put into their list.
 */
#define MOST_SURPLUS (128 * 1024)

/*
 * Reading may take so much of the processor at a time, in microseconds, and as much more as copying what has come takes. It is
 * what tells a long list of settings while an answer is awaited, whose length nobody knows.
 */
#define LOOK_US 100000
#define COPIED_BYTES_US 200

/* A step takes so many bytes beside the answer: descriptions of rows and ends of commands, each in a record of TLS. */
#define STEP_BYTES 192

/* An answer in records of TLS is longer by less than this part. */
#define RECORD_PART 128

/* Bytes that libpq has read from the socket; 0: nobody knows. */
static uint64
bytes_read(const ShardPeer *peer)
{
#ifdef __linux__
	struct tcp_info info;
	socklen_t length = sizeof(info);
	int unread = 0;

	memset(&info, 0, sizeof(info));
	if (getsockopt(PQsocket(peer->conn), IPPROTO_TCP, TCP_INFO, &info, &length) != 0 ||
		length <
			offsetof(struct tcp_info, tcpi_bytes_received) + sizeof(info.tcpi_bytes_received) ||
		ioctl(PQsocket(peer->conn), FIONREAD, &unread) != 0)
		return 0;
	/* what comes between both is counted as unread */
	return info.tcpi_bytes_received > (uint64) unread ? info.tcpi_bytes_received - unread : 0;
#else
	return 0;
#endif
}

/* See peer_private.h. */
void
shard_peer_surplus_begin(ShardPeer *peer)
{
	peer->read = 0;
	peer->surplus = 0;
}

/* See peer_private.h. */
void
shard_peer_surplus_step(ShardPeer *peer, uint64 answer)
{
	uint64 now = bytes_read(peer);
	uint64 asked = answer + answer / RECORD_PART + STEP_BYTES;

	if (now > peer->read + asked)
		peer->surplus += now - peer->read - asked;
	peer->read = Max(peer->read, now);
}

/* See peer_private.h. */
int64
shard_peer_surplus_clock(void)
{
	struct timespec now;

	if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now) != 0)
		return 0;
	return now.tv_sec * INT64CONST(1000000) + now.tv_nsec / 1000;
}

/* See peer_private.h. Nobody listens here, so libpq would keep notifications for good. */
void
shard_peer_surplus_look(ShardPeer *peer, int64 began)
{
	int64 took = shard_peer_surplus_clock() - began;
	PGnotify *notification;

	while ((notification = PQnotifies(peer->conn)) != NULL)
		PQfreemem(notification);
	if (took > LOOK_US)
	{
		uint64 now = bytes_read(peer);
		uint64 beside = now > peer->read ? now - peer->read : 0;

		if (took > LOOK_US + (int64) (beside / COPIED_BYTES_US))
			peer->surplus = MOST_SURPLUS + 1;
	}
}

/* See peer_private.h. While an answer comes nobody knows how long it is, but that it is one value. */
bool
shard_peer_surplus_fails(ShardPeer *peer)
{
	uint64 now = bytes_read(peer);
	uint64 beside = now > peer->read ? now - peer->read : 0;
	char detail[128];

	if (peer->step == SHARD_PEER_STEP_IDLE && peer->result == NULL)
	{
		peer->surplus += beside;
		peer->read = Max(peer->read, now);
		beside = 0;
	}
	if (peer->step == SHARD_PEER_STEP_EXECUTE && beside <= MaxAllocSize)
		beside = 0;
	if (peer->surplus + beside <= MOST_SURPLUS)
		return false;
	snprintf(detail, sizeof(detail),
			 "More than %d kB came that answer no call, or what came took more than %d ms to read.",
			 MOST_SURPLUS / 1024, LOOK_US / 1000);
	shard_peer_set_failure(&peer->failure, ERRCODE_PROTOCOL_VIOLATION,
						   "the server at the address says what nobody has asked for", detail,
						   "Find out what listens there: a server of PostgreSQL does not do that.");
	return true;
}
