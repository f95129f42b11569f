/*
 * link/peer_surplus.c
 *		How much a server says over a connection: in answer to a call, and beside what was asked for (P37, P67).
 *
 * libpq keeps, until the connection ends, each setting that a server reports (ParameterStatus), in a list that it walks
 * for the next one, and notifications. A server that is not what it should be could say them without end. So the bytes
 * that came are compared with the answers: by the system's count for the socket, as libpq keeps none. Connections
 * without such a count (not of TCP, not of Linux) are bounded by the time alone that reading takes.
 *
 * libpq keeps an answer, too, until all of it is there. So no more of it is read than the call can have in answer, and
 * what is too much is not looked into. And it makes room for a whole message once that begins, and then reads as long
 * as there is room and something to read, which there always is if the sender is as fast as the reader. So the room
 * that libpq has made is looked at before more is read: by the size of the process's address space (on Linux), as libpq
 * does not tell it.
 *
 * Nothing is durable. A connection with too much surplus is closed, and opened again after the usual back-off.
 */
#include "postgres.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>
#ifdef __linux__
#include <linux/tcp.h>
#include <netinet/in.h>
#endif

#include "core/map/control.h"
#include "storage/fd.h"
#include "utils/memutils.h"

#include "link/peer_private.h"

/*
 * The bytes that may come over a connection unasked: what is said while connecting, with certificates, and years of
 * settings that are changed. Many more of the shortest settings would take seconds to be put into libpq's list.
 */
#define MOST_SURPLUS (128 * 1024)

/*
 * The processor time, in microseconds, that reading what comes in a step may take, beside the time for copying it; what
 * each look takes at least does not count. Without a count of bytes the limit is for each read. It finds a long list of
 * settings while an answer of unknown length is awaited, also if the list comes in small pieces.
 */
#define READ_US 100000
#define COPIED_BYTES_US 50
#define LOOK_US 50

/* The bytes of a step beside the answer: descriptions of rows and ends of commands, each in a record of TLS. */
#define STEP_BYTES 192

/* An answer in records of TLS is longer by less than this part. */
#define RECORD_PART 128

#define KB 1024
#define MB (1024 * KB)

/*
 * libpq makes room by doubling, and has a result beside it. malloc asks the system for somewhat more, within this
 * factor.
 */
#define ROOMS 4
#define LEAST_ROOM (512 * KB)

/* The longest answer of a procedure that is not named below: the identity of a node, positions of lanes, that it was done. */
#define MOST_ANSWER (64 * KB)

/*
 * The largest answers that nodes give. A row of a state may have all that a value can; it comes to a backend of its own. A
 * reply is jsonb, which has a quarter of that. For each shard of a cluster: the names of type and shard, and a number; for each of a
 * type, a number.
 */
static const struct
{
	const char *procedure;
	uint64 bytes;
} answers[] = {
	{"control", SHARD_CONTROL_MAX_BYTES},
	{"export", MaxAllocSize},
	{"ask", 257 * MB},
	{"stats", 256 * MB},
	{"strategy", 16 * MB},
};

/* Bytes that libpq has read from the socket; 0: unknown. */
static uint64
bytes_read(const ShardPeer *peer)
{
#ifdef __linux__
	struct tcp_info info;
	socklen_t length = sizeof(info);
	int unread = 0;

	memset(&info, 0, sizeof(info));
	/*
	 * What comes between both calls counts as read: a server that sends without end, while other processes have the
	 * processor, hides nothing.
	 */
	if (ioctl(PQsocket(peer->conn), FIONREAD, &unread) != 0 ||
		getsockopt(PQsocket(peer->conn), IPPROTO_TCP, TCP_INFO, &info, &length) != 0 ||
		length < offsetof(struct tcp_info, tcpi_bytes_received) + sizeof(info.tcpi_bytes_received))
		return 0;
	return info.tcpi_bytes_received > (uint64) unread ? info.tcpi_bytes_received - unread : 0;
#else
	return 0;
#endif
}

/* Bytes of the process's address space; 0: unknown. The file stays open, as it is asked at each look. */
static uint64
addresses(void)
{
#ifdef __linux__
	static int file = -1;
	static uint64 page = 0;
	char text[128];
	ssize_t length;

	if (file < 0 && page == 0)
	{
		page = (uint64) sysconf(_SC_PAGESIZE);
		file = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
		if (file >= 0)
			ReserveExternalFD();
	}
	length = file >= 0 ? pread(file, text, sizeof(text) - 1, 0) : 0;
	if (length <= 0)
		return 0;
	text[length] = '\0';
	return page * strtoull(text, NULL, 10);
#else
	return 0;
#endif
}

/* What came since the last step. */
static uint64
since_step(const ShardPeer *peer)
{
	uint64 now = bytes_read(peer);

	return now > peer->read ? now - peer->read : 0;
}

void
shard_peer_surplus_begin(ShardPeer *peer)
{
	peer->read = 0;
	peer->surplus = 0;
	peer->reading = 0;
}

void
shard_peer_surplus_step(ShardPeer *peer, uint64 answer)
{
	uint64 now = bytes_read(peer);
	uint64 asked = answer + answer / RECORD_PART + STEP_BYTES;

	if (now > peer->read + asked)
		peer->surplus += now - peer->read - asked;
	peer->read = Max(peer->read, now);
	peer->reading = 0;
}

/* What the process has had of the processor, in microseconds. */
static int64
processor_clock(void)
{
	struct timespec now;

	if (clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now) != 0)
		return 0;
	return now.tv_sec * INT64CONST(1000000) + now.tv_nsec / 1000;
}

/* The most bytes that may come in answer to the step. */
static uint64
most_answer(const ShardPeer *peer)
{
	uint64 most = MOST_ANSWER;

	if (peer->step != SHARD_PEER_STEP_EXECUTE)
		return 0;
	for (int i = 0; i < lengthof(answers); i++)
		if (strcmp(peer->procedure, answers[i].procedure) == 0)
			most = answers[i].bytes;
	if (peer->expected != 0)
		most = Min(most, peer->expected);
	return most + most / RECORD_PART;
}

void
shard_peer_expect(ShardPeer *peer, uint64 bytes)
{
	peer->expected = bytes;
}

/* Has more come than any answer, and what goes with it, may have? Then it is not to be looked into. */
static bool
is_much(const ShardPeer *peer)
{
	return peer->surplus + since_step(peer) > MOST_SURPLUS + most_answer(peer);
}

/*
 * No code of this process listens to notifications, so libpq would keep them for good; asking for them makes libpq look
 * into what came. sends: libpq had something left to send, and what that took does not count: with a long call it moves
 * all that is left each time that the socket has taken a piece of it.
 */
static void
look(ShardPeer *peer, int64 began, bool sends)
{
	int64 took = sends ? 0 : processor_clock() - began;
	PGnotify *notification;

	if (is_much(peer))
		return;
	while ((notification = PQnotifies(peer->conn)) != NULL)
		PQfreemem(notification);
	/* without a count of bytes a long answer cannot be told from many looks */
	if (bytes_read(peer) == 0)
		peer->reading = 0;
	peer->reading += Max(took - LOOK_US, 0);
	if (peer->reading > READ_US &&
		peer->reading > READ_US + (int64) (since_step(peer) / COPIED_BYTES_US))
		peer->surplus = MOST_SURPLUS + 1;
}

/* What was asked for, and how much came, or was announced. */
static void
say_long(ShardPeer *peer, const char *came)
{
	char text[128];
	char detail[128];

	snprintf(text, sizeof(text), "the answer to shard_peer.%s() is longer than an answer may be",
			 peer->procedure);
	snprintf(detail, sizeof(detail), "More than " UINT64_FORMAT " kB %s.", most_answer(peer) / KB,
			 came);
	shard_peer_set_failure(&peer->failure, ERRCODE_PROTOCOL_VIOLATION, text, detail,
						   "Find out what listens at the address: a node does not do that.");
}

/* What was sent unasked. */
static void
say_surplus(ShardPeer *peer, const char *detail)
{
	shard_peer_set_failure(&peer->failure, ERRCODE_PROTOCOL_VIOLATION,
						   "the server at the address sends what was not asked for", detail,
						   "Find out what listens there: a server of PostgreSQL does not do that.");
}

/* While an answer comes its length is unknown, but its longest possible length is known. */
bool
shard_peer_surplus_fails(ShardPeer *peer)
{
	char detail[128];

	if (peer->step == SHARD_PEER_STEP_IDLE && peer->result == NULL)
	{
		uint64 beside = since_step(peer);

		peer->surplus += beside;
		peer->read += beside;
	}
	if (peer->surplus <= MOST_SURPLUS && !is_much(peer))
		return false;
	if (peer->surplus <= MOST_SURPLUS && peer->step == SHARD_PEER_STEP_EXECUTE)
	{
		say_long(peer, "came");
		return true;
	}
	snprintf(detail, sizeof(detail),
			 "More than %d kB came that answer no call, or what came took more than %d ms to read.",
			 MOST_SURPLUS / KB, READ_US / 1000);
	say_surplus(peer, detail);
	return true;
}

void
shard_peer_note_addresses(ShardPeer *peer)
{
	peer->addresses = addresses();
}

/* Has libpq made room for more than any answer has? */
static bool
has_much_room(const ShardPeer *peer)
{
	uint64 now = addresses();

	return now > peer->addresses && now - peer->addresses > ROOMS * most_answer(peer) + LEAST_ROOM;
}

bool
shard_peer_announces_much(ShardPeer *peer)
{
	if (!has_much_room(peer))
		return false;
	if (peer->step == SHARD_PEER_STEP_EXECUTE)
		say_long(peer, "were announced");
	else
		say_surplus(peer, "A message was announced that answers no call.");
	return true;
}

bool
shard_peer_is_encrypted(const ShardPeer *peer)
{
	return PQsslInUse(peer->conn) || PQgssEncInUse(peer->conn);
}

/* Under encryption a part of what was read may be left where the socket does not show it, so look more than once. */
bool
shard_peer_receive(ShardPeer *peer)
{
	int looks = shard_peer_is_encrypted(peer) ? 4 : 1;
	int64 began = processor_clock();
	bool sends = !peer->flushed;

	shard_peer_note_addresses(peer);
	for (int i = 0; i < looks; i++)
	{
		if (!PQconsumeInput(peer->conn))
			return false;
		if (is_much(peer) || !PQisBusy(peer->conn) || (looks > 1 && has_much_room(peer)))
			break;
	}
	look(peer, began, sends);
	return true;
}
