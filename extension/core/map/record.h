/*
 * core/map/record.h
 *		What the values of the replicated map say.
 *
 * Every value begins with the fields that this version knows; bytes behind them were written by a
 * newer version and are kept when the value is written again ("extra"). Encoders return bytes in
 * the arena; decoders take texts from the value's bytes, so a record lives as long as its entry.
 */
#pragma once

#include "core/allocation/allocation.h"
#include "core/base/wire.h"
#include "core/map/map.h"
#include "core/base/arena.h"

#define SHARD_MAX_VOTERS 7
#define SHARD_MAX_NODE_ID 0xfffe /* a ballot has 16 bits for it */
#define SHARD_MAX_ROLES 8

/* Bytes of the name of a role that owns types. */
#define SHARD_OWNER_BYTES (NAMEDATALEN - 1)
#define SHARD_MAX_HOMES 4	 /* nodes of one shard: its home, then its backups (core/map/set.h) */
#define SHARD_TERM_MEMORY 32 /* ballots that the map remembers as its lineage (R3) */

/* Bytes of a newer version behind the known fields. */
typedef struct ShardExtra
{
	const char *bytes;
	uint32 length;
} ShardExtra;

typedef struct ShardTermRecord
{
	int n_terms;
	ShardMapPoint
		terms[SHARD_TERM_MEMORY]; /* ballot, and the first n that it wrote; oldest first */
	ShardExtra extra;
} ShardTermRecord;

typedef struct ShardVotersRecord
{
	int n_current;
	int32 current[SHARD_MAX_VOTERS];
	int n_next; /* 0: no change under way */
	int32 next[SHARD_MAX_VOTERS];
	int32 era; /* raised by shard_force_voters (R13) */
	ShardExtra extra;
} ShardVotersRecord;

typedef struct ShardCountersRecord
{
	int32 last_node_id;
	int32 last_type_id;
	int64 last_age;
	int64 purge_n;
	ShardExtra extra;
} ShardCountersRecord;

typedef struct ShardRoleMinimum
{
	int32 role; /* shard_record_role */
	int32 members;
} ShardRoleMinimum;

typedef struct ShardSettingsRecord
{
	int32 lease_ttl_ms;
	int32 previous_lease_ttl_ms; /* what grants may still run under (L3) */
	int32 min_members;			 /* regions of a type before its first shard is placed (C4) */
	int n_role_minimums;
	ShardRoleMinimum role_minimums[SHARD_MAX_ROLES]; /* min_members for types of a role */
	ShardExtra extra;
} ShardSettingsRecord;

/* Legal steps: core/member/membership.c. Stored, never renumbered. */
typedef enum ShardMemberStatus
{
	SHARD_MEMBER_NONE = 0,
	SHARD_MEMBER_JOINING = 1,
	SHARD_MEMBER_WEAKLY_UP = 2,
	SHARD_MEMBER_UP = 3,
	SHARD_MEMBER_LEAVING = 4,
	SHARD_MEMBER_EXITING = 5,
	SHARD_MEMBER_REMOVED = 6,
	SHARD_MEMBER_DOWN = 7,
	SHARD_MEMBER_WRITTEN_OFF = 8
} ShardMemberStatus;

typedef enum ShardGateKind
{
	SHARD_GATE_LOCAL = 0,
	SHARD_GATE_STANDBY = 1
} ShardGateKind;

/* Bits of what a type needs of its members, and members have (I5). Stored, never renumbered. */
#define SHARD_FEATURE_REPLICAS UINT64CONST(1) /* copies of shards: sets, turn records */

/* The ground on which a member is taken to be at its address (I15). Stored, never renumbered. */
typedef enum ShardAddressGround
{
	SHARD_ADDRESS_SAID = 0,	  /* its operator: shard_join() there, or shard_set_address() */
	SHARD_ADDRESS_DIRECT = 1, /* a caller; the node found itself there, with no relay in between */
	SHARD_ADDRESS_LOCAL = 2,  /* as DIRECT, by a way that does not leave the machine */
	SHARD_ADDRESS_RELAYED = 3 /* a caller; a relay passes on what is sent there */
} ShardAddressGround;

typedef struct ShardMemberRecord
{
	int32 status; /* ShardMemberStatus */
	int32 inc_no;
	ShardUuid inc_uuid;
	ShardUuid join_token; /* makes joining idempotent (R16) */
	int64 age;			  /* smaller is older; 0 until up for the first time */
	int32 gate;			  /* ShardGateKind */
	bool identity_lease;  /* a standby may be promoted unsupervised (L7) */
	bool evacuated;		  /* is to have no shards, until it is started again (shard_evacuate) */
	int32 weight;		  /* its share of weighted types, as ShardAllocationMember has it; 0: one */
	int32 protocol_version;
	uint64 features; /* bits (I5): SHARD_FEATURE_… that the node's code has */
	const char *dsn;
	const char *app_version;
	int n_roles;
	const char *roles[SHARD_MAX_ROLES];
	int32 ground; /* ShardAddressGround: of dsn */
	ShardExtra extra;
} ShardMemberRecord;

/* The most shards of a type; and of one that claims its homes, which are one change of the map. */
#define SHARD_MAX_SHARDS 1000000
#define SHARD_MAX_CLAIMED 10000

typedef struct ShardTypeRecord
{
	const char *name;
	int32 number_of_shards;
	uint64 settings_hash; /* members must agree on it */
	bool leased;		  /* its shards run under leases: so of each type with replicas */
	int32 strategy;		  /* ShardAllocationKind */
	ShardAllocationSettings allocation; /* of that strategy; kind 0: its defaults */
	int32 handoff_timeout_ms;			/* 0: the default */
	const char *role;					/* "" = any */
	uint64 features;					/* that a member needs to host it */
	const char *hashing; /* how entity ids come to shards, in the hosts' own form: for proxies */
	const char *state;	 /* its structure as the hosts write it, by lines; "": not known */
	bool dropping; /* no member is known to have it: it goes once all members have said so (C9) */
	const char *owner; /* name of the role that owns it, the same at all members (C18) */
	int32 by;		   /* the member that has brought it (C20); 0: not known */
	bool own_worker;   /* no other type is in its group of lanes (C19) */
	bool claims;	   /* that member has the entities: so first homes are there (E65) */
	int32 replicas;	   /* nodes that keep copies beside the home; 0: none */
	int32
		min_insync; /* with replicas: nodes of the set without which nothing is shown (Q11); else 0 */
	int32 on_too_few; /* ShardOnTooFew: what a shard does that has fewer */
	ShardExtra extra;
} ShardTypeRecord;

#define SHARD_MAX_REPLICAS (SHARD_MAX_HOMES - 1)

/* Stored, never renumbered. */
typedef enum ShardOnTooFew
{
	SHARD_TOO_FEW_RUN = 0, /* goes on with those that a decision has left */
	SHARD_TOO_FEW_STOP = 1
} ShardOnTooFew;

typedef enum ShardHomePhase
{
	SHARD_HOME_STABLE = 0,
	SHARD_HOME_MOVING = 1
} ShardHomePhase;

/* Why a home is as it is; stored, never renumbered. */
typedef enum ShardHomeReason
{
	SHARD_HOME_REASON_NONE = 0,
	SHARD_HOME_REASON_FIRST = 1,	 /* its first message came */
	SHARD_HOME_REASON_REBALANCE = 2, /* the strategy */
	SHARD_HOME_REASON_OPERATOR = 3,	 /* shard_move() */
	SHARD_HOME_REASON_PIN = 4,		 /* shard_pin() */
	SHARD_HOME_REASON_LEAVING = 5,	 /* its home leaves the cluster */
	SHARD_HOME_REASON_EVACUATION = 6,
	SHARD_HOME_REASON_ABORTED = 7,	/* of a move */
	SHARD_HOME_REASON_LOST = 8,		/* its home was written off, or its state given up */
	SHARD_HOME_REASON_UNHOSTED = 9, /* its home does not host the type any more */
	SHARD_HOME_REASON_STATES = 10	/* its states were there before its first message (C21) */
} ShardHomeReason;

typedef struct ShardHomeRecord
{
	int32 epoch; /* 0: allocated for the first time */
	int n_nodes; /* the first is the home, the others are its backups (core/map/set.h) */
	int32 nodes[SHARD_MAX_HOMES];
	int32 want; /* wished number of nodes; 1: of a type without replicas */
	int32 phase;
	int64 move_id; /* of the last move */
	int32 to;	   /* where it moves; 0 while stable */
	int32 reason;  /* ShardHomeReason: of the last change */
	int32 lost;	   /* the newest epoch that began without the state of the one before; 0: none */
	ShardExtra extra;
} ShardHomeRecord;

#define shard_record_home_node(home) ((home)->nodes[0])

/* Each decodes a value; false if the bytes are no such record. */
extern bool shard_record_get_term(const ShardMapEntry *entry, ShardTermRecord *record);
extern bool shard_record_get_voters(const ShardMapEntry *entry, ShardVotersRecord *record);
extern bool shard_record_get_counters(const ShardMapEntry *entry, ShardCountersRecord *record);
extern bool shard_record_get_settings(const ShardMapEntry *entry, ShardSettingsRecord *record);
/* dsn, app_version, roles: terminated copies in the arena */
extern bool
shard_record_get_member(const ShardMapEntry *entry, ShardMemberRecord *record, ShardArena *arena);
/*
 * So for a type; without an arena its texts are empty, for a caller that reads the same type for each shard and needs its
 * numbers alone.
 */
extern bool
shard_record_get_type(const ShardMapEntry *entry, ShardTypeRecord *record, ShardArena *arena);
extern bool shard_record_get_home(const ShardMapEntry *entry, ShardHomeRecord *record);

/* Each makes an entry of the map; its n is the n that the key must still have when it is decided. */
extern ShardMapEntry
shard_record_put_term(const ShardTermRecord *record, int64 n, ShardArena *arena);
extern ShardMapEntry
shard_record_put_voters(const ShardVotersRecord *record, int64 n, ShardArena *arena);
extern ShardMapEntry
shard_record_put_counters(const ShardCountersRecord *record, int64 n, ShardArena *arena);
extern ShardMapEntry
shard_record_put_settings(const ShardSettingsRecord *record, int64 n, ShardArena *arena);
extern ShardMapEntry
shard_record_put_member(int32 node, const ShardMemberRecord *record, int64 n, ShardArena *arena);
extern ShardMapEntry
shard_record_put_type(int32 type_id, const ShardTypeRecord *record, int64 n, ShardArena *arena);
extern ShardMapEntry
shard_record_put_home(int32 type_id, int32 shard, const ShardHomeRecord *record, int64 n,
					  ShardArena *arena);
extern ShardMapEntry shard_record_put_formed(int32 role, int64 n, ShardArena *arena);
extern ShardMapEntry
shard_record_put_pin(int32 type_id, int32 shard, int32 node, int64 n, ShardArena *arena);

/* The map's lineage with one more ballot, whose first batch is first_n (R5). */
extern ShardMapEntry
shard_record_append_term(const ShardMap *map, int64 b, int64 first_n, ShardArena *arena);

/* The number of a role, 0 for "" (any): a hash, the same on every node. */
extern int32 shard_record_role(const char *role);

/* The node that a pin names, 0 if the value is none. */
extern int32 shard_record_get_pin(const ShardMapEntry *entry);

/* Is the node a voter, of today's or of those to come? */
extern bool shard_record_votes(const ShardVotersRecord *voters, int32 node);

extern bool shard_record_uuid_equal(ShardUuid a, ShardUuid b);
