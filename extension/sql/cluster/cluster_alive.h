/*
 * sql/cluster/cluster_alive.h
 *		Whether members that are not heard are there, and entities run at them (N7, N8).
 *
 * Unheard is the member's control worker. It may stand still alone, while the member's region workers go on.
 */
#pragma once

#include "core/base/wire.h"
#include "lib/stringinfo.h"
#include "nodes/pg_list.h"
#include "shard.h"

/* A member that is asked about, and what was found. Silence of a member says nothing. */
typedef struct ShardAlive
{
	int32 node;

	/* shard_cluster_alive(): what its database says */
	bool answers;
	bool entities;	  /* its region workers run, and may handle messages */
	bool coordinator; /* its control worker answers there */
	bool fails; /* its control worker does not run there, since it met an error, or has no slot */
	bool mute;	/* its server takes connections, and nothing comes: it may be frozen */

	/* shard_cluster_alive_ask_others(): of members that this node hears */
	List *heard_by;	  /* these members hear it */
	List *reached_by; /* its database answers these members */
	int32 runs_by;	  /* the member to which its database has said that entities run; 0: none */
} ShardAlive;

/*
 * Asks all of them at the same time, at their registered addresses, and returns when all have answered or failed, or time is
 * up. Serves interrupts, raises nothing else, takes no lock. The directory has been refreshed; must not run in a handler.
 */
extern void shard_cluster_alive(ShardAlive *asked, int count, int timeout_ms);

/*
 * The same, asked of members that this node hears; reports as of shard_cluster_view_reports(). *witness: one of them
 * that hears a coordinator; the result is that coordinator, 0: none hears one. At most SHARD_ALIVE_MOST are asked
 * about.
 */
#define SHARD_ALIVE_MOST 16

extern int32 shard_cluster_alive_ask_others(ShardAlive *asked, int count, List *reports,
											int timeout_ms, int32 *witness);

/*
 * For shard_health: do entities run at members that are neither heard nor answer (N7), and which members hear those
 * that do not say so? Puts the answers into the reports. A member whose place is free already, or that was downed, is
 * not asked: others say what becomes of it. If there are more than SHARD_ALIVE_MOST, it is this node that is cut off.
 */
extern void shard_cluster_alive_ask_silent(List *reports);

/* Nodes as in "node 2" or "nodes 2, 3"; palloc'd. */
extern const char *shard_cluster_alive_names(const List *nodes);

/* For shard_peer.stats(): what this node answers; false: the question cannot be read. */
extern void shard_cluster_alive_put(StringInfo out);
extern bool shard_cluster_alive_put_witness(StringInfo out, ShardReader *reader);
