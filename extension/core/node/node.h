/*
 * core/node/node.h
 *		One node's control plane as a machine: events in, actions out.
 *
 * Ties together the voter, the proposer, the learned map, the coordinator's roster and homes, and the
 * member's side: admission, heartbeats, lease, registration, and what its region workers want.
 * The host owns clock, disk, network and workers; doc/protocol.md says what it must do with each action.
 */
#pragma once

#include "core/map/action.h"
#include "core/map/command.h"
#include "core/home/homes.h"
#include "core/member/membership.h"
#include "core/map/voter.h"

typedef struct ShardNode ShardNode;

typedef struct ShardNodeConfig
{
	const char *dsn; /* its own address */
	const char *app_version;
	int32 weight; /* of this node, as ShardAllocationMember has it; 0: one */
	int n_roles;
	const char *roles[SHARD_MAX_ROLES];
	bool identity_lease;
	uint64 features;
	int32 lease_ttl_ms;
	int32 min_members; /* of a cluster that is founded here; 0: 1 */
	int n_role_minimums;
	ShardRoleMinimum role_minimums[SHARD_MAX_ROLES];
	int32 journal_node; /* state_store_mode = persistence: the id of the journal, the same at all
						 * members, whose address the host knows; 0: members vote */
	bool journal_voter; /* this is the journal's database: a voter, no member */
	bool (*is_text)(const char *bytes,
					size_t length); /* one that this database can have; NULL: all are (T10) */
	ShardUuid
		secret; /* drawn at random: for seals of a database that begins to be a node now; else its own counts */
	ShardUuid (*seal)(
		ShardUuid secret, const void *bytes,
		size_t length); /* a code that cannot be made without the secret (R23); NULL: in tests */
	ShardRosterSettings roster;
	ShardHomesSettings homes;
	ShardLiveSettings live;
} ShardNodeConfig;

/*
 * What region workers, importers and the host tell the node. Numbers that are left out are those of commands
 * (core/map/command.h).
 */
typedef enum ShardNodeEventKind
{
	SHARD_EVENT_HOMES_WANTED = 1, /* shards: no route is known */
	SHARD_EVENT_SHARDS_STARTED,	  /* shards, epoch: active here */
	SHARD_EVENT_SHARD_STOPPED,	  /* shards[0]: sealed durably for that move; number: rows */
	SHARD_EVENT_STAGED,			  /* shards[0]: staged durably for that move */
	SHARD_EVENT_IMPORT_FAILED,	  /* shards[0], text */
	SHARD_EVENT_IMPORT_READY,	  /* shards[0]: can be copied here for that move (M16) */
	SHARD_EVENT_STRATEGY,		  /* number: token of the action; flag: rebalance; shards: of which
								   * type_id and shard count; nodes: for allocate, as many, 0: none;
								   * text: why there is no answer, else NULL; node: SQLSTATE of
								   * that, 0: it is none of the functions */
	SHARD_EVENT_WHO_ANSWERED, /* node, uuid: the incarnation at the registered address; of this node itself number:
								   * ShardAddressGround, how it was reached. Node 0: of a joiner, token: of the question, flag:
								   * it joins as was asked; text: why no database was reached, NULL: one was */
	SHARD_EVENT_TYPE, /* type: it is to run here; flag: as proxy only; number: the id
								   * wished for, 0: any. Again: when it has changed */
	SHARD_EVENT_STOPPING =
		25,				 /* number: until when; the server is going down: give up the office, say
						   * that no shard can be given here */
	SHARD_EVENT_GOODBYE, /* the process ends now: the last step of this machine */
	SHARD_EVENT_EMPTIED, /* this node exits, and nothing of it is left: no sender may begin, all that it
						   * had for others is taken in, no rows of shards are here (M20) */
	SHARD_EVENT_DROP_TYPE, /* text: name of a type that is no more here; of a node that is alone in its
							* cluster also at start, for what only the map still has, or has under
							* another number */
	SHARD_EVENT_TYPES_TOLD =
		30, /* number: n of the learned map at which the node had no other types than those that were told, nor anything under
			 * way that could give it others (C9) */
	SHARD_EVENT_STATES /* token: of SHARD_ACTION_STATES, shards: the next ones, flag: there are no more; text: why the host
					    * cannot tell now, else NULL, and flag with it: nor before an operator has done something about it */
} ShardNodeEventKind;

typedef struct ShardNodeEvent
{
	ShardNodeEventKind kind;
	int n_shards;
	const ShardShardRef *shards;
	int n_nodes;
	const int32 *nodes;
	int32 node;
	ShardUuid uuid;
	int64 token;
	int64 number;
	bool flag;
	const char *text;
	const ShardTypeRecord *type;
} ShardNodeEvent;

/* Makes a node; the configuration is copied. The caller ends the node with shard_node_destroy(). */
extern ShardNode *shard_node_create(const ShardNodeConfig *config);

/* Frees the node; durable records stay with the host. */
extern void shard_node_destroy(ShardNode *node);

/*
 * Durable records of a store as they were written, before the start; in the order of their n is fastest. Returns how many were
 * taken: the one behind those is damaged.
 */
extern int
shard_node_load(ShardNode *node, ShardStore store, const ShardMapEntry *entries, int count);

/*
 * Begin. cluster: random, used by a node that has no durable identity yet, which founds a cluster of
 * its own; incarnation: random, fresh at each start of the server.
 */
extern void shard_node_start(ShardNode *node, int64 now, ShardStartKind kind, ShardUuid cluster,
							 ShardUuid incarnation, ShardActions *out);

/*
 * A message that came; bytes from anywhere. link: what SEND's node 0 answers to. via: the node at whose registered address
 * this one has called, if the message came back over that connection; SHARD_VIA_SEED: the same of an address whose node is
 * not known yet; 0: another node has called here.
 */
#define SHARD_VIA_SEED (-1)
extern void shard_node_receive(ShardNode *node, int64 now, int32 via, const char *bytes,
							   size_t length, ShardActions *out);

/* Time has passed: due at least every SHARD_TICK_INTERVAL. */
extern void shard_node_tick(ShardNode *node, int64 now, ShardActions *out);

/* The transaction of that ticket, and all before, is durable and past the gate. */
extern void shard_node_persisted(ShardNode *node, int64 now, int64 ticket, ShardActions *out);

/* An event of the host, a region worker or an importer, as ShardNodeEventKind lists them. */
extern void
shard_node_event(ShardNode *node, int64 now, const ShardNodeEvent *event, ShardActions *out);

/* The settings that count, and those that count from now on; as equal bytes as these were. */
extern const ShardLiveSettings *shard_node_live(const ShardNode *node);
extern void
shard_node_reload(ShardNode *node, int64 now, const ShardLiveSettings *live, ShardActions *out);

/* A command of this node's operator; its end is the action COMMAND_DONE, with the command's token. Nothing of it is kept. */
extern void
shard_node_command(ShardNode *node, int64 now, const ShardCommand *command, ShardActions *out);

/* Questions for views, simulator and workers. */
extern int32 shard_node_id(const ShardNode *node);
extern int32 shard_node_incarnation(const ShardNode *node);
extern int32 shard_node_era(const ShardNode *node); /* R13 */
extern ShardUuid shard_node_cluster(const ShardNode *node);
extern int32 shard_node_coordinator(const ShardNode *node, int64 now); /* 0: none is heard of */
extern bool shard_node_reachable(const ShardNode *node, int32 id, int64 now);

extern bool shard_node_joining(const ShardNode *node);
extern const char *shard_node_join_why(const ShardNode *node); /* not yet; "": it is not said */
extern ShardUuid shard_node_join_token(const ShardNode *node); /* 0: no join is under way */
extern bool
shard_node_drops_type(const ShardNode *node, int32 type_id); /* it is to leave the map */
extern bool shard_node_admitted(const ShardNode *node);

/*
 * Is it to be told again that the host has told all its types (SHARD_EVENT_TYPES_TOLD)? Records of types have
 * changed since.
 */
extern bool shard_node_asks_for_types(const ShardNode *node);

/* The names of the types that were told; NULL behind the last one. */
extern const char *shard_node_type_name(const ShardNode *node, int at);

/* What the cluster says of a type that was told (SHARD_EVENT_TYPE) is still to come. */
extern bool shard_node_asks_for_type(const ShardNode *node, const char *name);

/* What the cluster has not got for a type that was told, as the coordinator said last (C19, C20). */
extern ShardTypeRefusal shard_node_type_lacks(const ShardNode *node, const char *name);

/* What was found at this node's registered address lately. */
typedef enum ShardNodePlace
{
	SHARD_NODE_PLACE_UNKNOWN = 0, /* it has no address, or the host has not looked yet */
	SHARD_NODE_PLACE_FOUND,		  /* itself, */
	SHARD_NODE_PLACE_RELAYED,	  /* itself, through a relay */
	SHARD_NODE_PLACE_OTHER,		  /* another database */
	SHARD_NODE_PLACE_NOBODY
} ShardNodePlace;

extern ShardNodePlace shard_node_place(const ShardNode *node, int64 now);

/*
 * Why this start was not admitted, as the coordinator said last; "": it is, or the coordinator has
 * not said.
 */
extern const char *shard_node_refusal(const ShardNode *node);

typedef enum ShardNodeClaim
{
	SHARD_NODE_UNCLAIMED,
	SHARD_NODE_CLAIMED,			 /* by the incarnation at its registered address, */
	SHARD_NODE_CLAIMED_ELSEWHERE /* or by others alone */
} ShardNodeClaim;

/*
 * Is the place of that node claimed by an incarnation that is refused until an operator says
 * shard_admit(), as the coordinator has said last (I14)?
 */
extern ShardNodeClaim shard_node_is_claimed(const ShardNode *node, int32 id, int64 now);

/*
 * Has the present coordinator acknowledged what runs here: all types that were told (SHARD_EVENT_TYPE),
 * except those that the cluster refuses? Before, it gives none of their shards to this node.
 */
extern bool shard_node_registered(const ShardNode *node);
extern bool shard_node_fenced(const ShardNode *node);

/* The incarnation that is the cluster's, if this database is a former life of the node and not admitted (I4); else 0. */
extern int32 shard_node_superseded_by(const ShardNode *node);

/*
 * Rises when a home at this node is learned to be another: SHARD_EVENT_EMPTIED from before counts no more, and one
 * that was found out by looks from before must not be told (M20).
 */
extern int64 shard_node_own_homes(const ShardNode *node);
extern const ShardMap *shard_node_learned(const ShardNode *node); /* decided as far as known (R7) */
extern const ShardVoter *shard_node_voter(const ShardNode *node);
extern const ShardProposer *shard_node_proposer(const ShardNode *node);
