/*
 * base/guc.h
 *		Settings of the server: shard.*
 */
#pragma once

#include "nodes/pg_list.h"

/* What a commit waits for before it may be told outside the database (G1). */
typedef enum ShardGateSetting
{
	SHARD_GATE_SET_AUTO,   /* as synchronous replication is configured */
	SHARD_GATE_SET_LOCAL,  /* flushed here */
	SHARD_GATE_SET_STANDBY /* flushed on the synchronous standbys */
} ShardGateSetting;

/* off: no worker of ours runs; honoured before any table is touched */
extern PGDLLIMPORT bool shard_enabled;

/* region workers of each database; the launcher regroups lanes when it changes */
extern PGDLLIMPORT int shard_region_workers;
extern PGDLLIMPORT int shard_max_region_workers;
extern PGDLLIMPORT bool shard_owners_may_share_workers;
extern PGDLLIMPORT int shard_owner_workers_keep;

/* kB of all segments of an inbox beyond which shard_tell refuses; 0: no limit */
extern PGDLLIMPORT int shard_inbox_max_size;

/* kB of entities in a region worker's memory beyond which the least recently used ones go */
extern PGDLLIMPORT int shard_cache_size;

/* ms a handler waits for a lock of another transaction; the workers' lock_timeout */
extern PGDLLIMPORT int shard_handler_lock_timeout;

/* Limits of what owners of types may ask for, superusers excepted; 0: no limit. */
extern PGDLLIMPORT int shard_max_handler_timeout; /* ms */
extern PGDLLIMPORT int shard_max_types_per_owner;
extern PGDLLIMPORT int shard_max_shards_per_type;
extern PGDLLIMPORT int shard_max_shards_per_owner;
extern PGDLLIMPORT int shard_max_stray_dead_letters;

extern PGDLLIMPORT int shard_gate; /* a ShardGateSetting */

/* This node's part in its cluster; read when the control plane starts (control_config.c). */
extern PGDLLIMPORT char *shard_app_version;
extern PGDLLIMPORT double shard_weight;
extern PGDLLIMPORT int shard_min_members;
extern PGDLLIMPORT char *shard_role_min_members;
extern PGDLLIMPORT int shard_downing_strategy;	  /* a ShardDowningKind */
extern PGDLLIMPORT int shard_static_quorum_size;  /* 0: the strategy is another one */
extern PGDLLIMPORT int shard_stable_after;		  /* ms */
extern PGDLLIMPORT int shard_lease_ttl;			  /* ms */
extern PGDLLIMPORT int shard_voters;			  /* 0: by the number of members */
extern PGDLLIMPORT int shard_voter_replace_after; /* ms */
extern PGDLLIMPORT bool shard_identity_lease;
extern PGDLLIMPORT int shard_recount_interval;	 /* ms; 0: never */
extern PGDLLIMPORT int shard_rebalance_interval; /* ms; 0: never */

/* ms that workers linger when the server shuts down; 0: they do not */
extern PGDLLIMPORT int shard_shutdown_timeout;

/* Where the cluster's map is kept (R14). */
typedef enum ShardStateStore
{
	SHARD_STATE_STORE_DDATA,  /* a majority of members that vote */
	SHARD_STATE_STORE_JOURNAL /* "persistence": one database, which is no member */
} ShardStateStore;

extern PGDLLIMPORT int shard_state_store_mode; /* a ShardStateStore */
extern PGDLLIMPORT char *shard_journal_dsn;
extern PGDLLIMPORT char *shard_journal_database; /* of this server; "": none */
extern PGDLLIMPORT bool shard_journal_ha;		 /* off: the journal needs no standby */

/* How this node connects to others (peer_files.c); "": none. */
typedef enum ShardSslMode
{
	SHARD_SSLMODE_DISABLE,
	SHARD_SSLMODE_ALLOW,
	SHARD_SSLMODE_PREFER,
	SHARD_SSLMODE_REQUIRE,
	SHARD_SSLMODE_VERIFY_CA,
	SHARD_SSLMODE_VERIFY_FULL
} ShardSslMode;

typedef enum ShardChannelBinding
{
	SHARD_CHANNEL_BINDING_DISABLE,
	SHARD_CHANNEL_BINDING_PREFER,
	SHARD_CHANNEL_BINDING_REQUIRE
} ShardChannelBinding;

extern int shard_peer_sslmode; /* a ShardSslMode */
extern char *shard_peer_sslrootcert;
extern char *shard_peer_sslcert;
extern char *shard_peer_sslkey;
extern char *shard_peer_sslcrl;
extern char *shard_peer_passfile;
extern char *shard_peer_user; /* empty: as the address says */

/* Both settings by libpq's names. */
extern const char *shard_guc_peer_sslmode(void);
extern const char *shard_guc_peer_channel_binding(void);

/* Defines the settings; from _PG_init. */
extern void shard_guc_init(void);

/* The names of shard.roles; and whether this node has a role, "": the role of every node. */
extern List *shard_guc_roles(void);
extern bool shard_guc_has_role(const char *role);
