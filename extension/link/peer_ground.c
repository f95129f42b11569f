/*
 * link/peer_ground.c
 *		Whether a connection of this server to itself is direct, or passes through a process in between (I15).
 *
 * What comes over it says nothing of that: a process that passes it on can write what it likes. But both ends of a
 * direct connection are known here: a backend of this server has the socket's own number as its client's, and no other
 * connection can have it.
 */
#include "postgres.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include "miscadmin.h"
#include "postmaster/postmaster.h"
#include "utils/backend_status.h"

#include "link/peer_private.h"

#include "base/compat.h"

static bool
is_same_end(const SockAddr *client, const struct sockaddr_storage *own)
{
	if (client->addr.ss_family != own->ss_family)
		return false;
	if (own->ss_family == AF_INET)
	{
		const struct sockaddr_in *a = (const struct sockaddr_in *) &client->addr;
		const struct sockaddr_in *b = (const struct sockaddr_in *) own;

		return a->sin_port == b->sin_port && a->sin_addr.s_addr == b->sin_addr.s_addr;
	}
	if (own->ss_family == AF_INET6)
	{
		const struct sockaddr_in6 *a = (const struct sockaddr_in6 *) &client->addr;
		const struct sockaddr_in6 *b = (const struct sockaddr_in6 *) own;

		return a->sin6_port == b->sin6_port &&
			   memcmp(&a->sin6_addr, &b->sin6_addr, sizeof(a->sin6_addr)) == 0;
	}
	return false;
}

/*
 * Is a backend of this database at the other end of a socket?
 */
static bool
is_ours(const struct sockaddr_storage *own)
{
	bool found = false;
	int count;

	pgstat_clear_backend_activity_snapshot();
	count = pgstat_fetch_stat_numbackends();
	for (int i = 0; i < count && !found; i++)
	{
		const PgBackendStatus *backend = &ShardBackendStatus(i)->backendStatus;

		found = backend->st_databaseid == MyDatabaseId && is_same_end(&backend->st_clientaddr, own);
	}
	pgstat_clear_backend_activity_snapshot();
	return found;
}

static bool
is_loopback(const struct sockaddr_storage *own)
{
	if (own->ss_family == AF_INET)
		return ntohl(((const struct sockaddr_in *) own)->sin_addr.s_addr) >> 24 == IN_LOOPBACKNET;
	return IN6_IS_ADDR_LOOPBACK(&((const struct sockaddr_in6 *) own)->sin6_addr);
}

ShardAddressGround
shard_peer_ground(const ShardPeer *peer)
{
	struct sockaddr_storage own = {0};
	socklen_t length = sizeof(own);

	if (peer->conn == NULL || PQsocket(peer->conn) < 0 ||
		getsockname(PQsocket(peer->conn), (struct sockaddr *) &own, &length) != 0)
		return SHARD_ADDRESS_RELAYED;
	/* A folder is one of this server's (peer_dsn.c), and no other server's socket has its port. */
	if (own.ss_family == AF_UNIX)
		return strtol(PQport(peer->conn), NULL, 10) == PostPortNumber ? SHARD_ADDRESS_LOCAL
																	  : SHARD_ADDRESS_RELAYED;
	if (!is_ours(&own))
		return SHARD_ADDRESS_RELAYED;
	return is_loopback(&own) ? SHARD_ADDRESS_LOCAL : SHARD_ADDRESS_DIRECT;
}
