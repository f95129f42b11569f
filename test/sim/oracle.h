/*
 * oracle.h
 *		The world of mode flow: nodes of which each is a data plane alone, and an oracle instead of a control plane.
 *
 * Two to four nodes, sessions that tell, shards that move, aborted moves, crashes, freezes, a network
 * that loses, repeats, delays and reorders, full disks, now and then a node that is written off or put
 * back from an old copy. Then everything heals, and all messages must come to their end. The oracle
 * knows all and decides homes at once; its commands and facts are late, repeated, or do not come at
 * all for a while.
 */
#pragma once

#include "flow_messages.h"

#define MS INT64CONST(1000)
#define MAX_NODES 4
#define TYPES 2
#define SHARDS 4
#define ENTITIES 3
#define MAX_EVENTS 4096
#define CHAOS (8000 * MS)
#define REST (90000 * MS)
#define MAX_INSTANCES 16

typedef enum EventKind
{
	EVENT_DATAGRAM,
	EVENT_FACT,
	EVENT_ACTION,
	EVENT_RESTART
} EventKind;

typedef struct Event
{
	EventKind kind;
	int64 at;
	int64 order;
	int node; /* to; index */
	int from;
	size_t length;
	char *bytes;
	int shard; /* index */
	int64 n;
	ShardHomeRecord home;
	ShardAction action;
} Event;

typedef enum MoveStep
{
	MOVE_NONE = 0,
	MOVE_STOPPING,
	MOVE_IMPORTING,
	MOVE_STAGED
} MoveStep;

typedef struct Home
{
	bool known;
	bool started;
	ShardHomeRecord home;
	int64 n;
	MoveStep step;
	int64 deadline;
	int64 command_at;
	int32 again; /* moves there once more as soon as it can; 0: nowhere */
} Home;

typedef struct OracleWorld OracleWorld;

typedef struct OracleNode
{
	OracleWorld *world;
	Flow *flow;
	Store *store;
	Store *backup;
	int64 backup_at; /* by the clock of the checkers */
	Store *standby;
	Flow *old; /* the former primary, which does not know that it is */
	int32 id;
	int32 inc;
	bool gone;
	bool cut; /* hears no facts */
	bool isolated;
	int64 frozen[FLOW_PROCESSES];
	int64 traps_until; /* until then its workers freeze in the middle of turns */
	int64 known_n[TYPES * SHARDS];
	ShardHomeRecord known[TYPES * SHARDS];
	int64 sync_at;
} OracleNode;

struct OracleWorld
{
	uint64 state;
	bool trace;
	bool chaos;
	int64 now;
	int64 order;
	int n_nodes;
	OracleNode nodes[MAX_NODES];
	int n_flows;
	Flow *flows[MAX_INSTANCES];
	int n_instances;
	Check *check;
	Home homes[TYPES * SHARDS];
	int64 n;
	int64 moves;
	int loss; /* percent */
	bool with_restore;
	bool with_write_off;
	bool with_standby;
	bool with_returns;
	int64 gap_timeout;
	int gap_window;
	bool gap_from_one;
	bool drops_order; /* ordered_by is taken back */
	bool ghost;		  /* a former primary makes a step: nobody listens to it */
	bool special_done;
	int n_events;
	Event events[MAX_EVENTS];
};

#define type_of(i) (1 + (i) / SHARDS)
#define shard_of(i) ((i) % SHARDS)

/* oracle.c */
extern uint32 oracle_random(OracleWorld *world, uint32 below);
extern bool oracle_percent(OracleWorld *world, int chance);
extern void oracle_trace(OracleWorld *world, const char *format, ...) pg_attribute_printf(2, 3);
extern Event *oracle_event(OracleWorld *world, EventKind kind, int node, int64 delay);
extern OracleNode *oracle_node(OracleWorld *world, int32 id);
extern int32 oracle_draw_node(OracleWorld *world, int32 other_than);

/* oracle_homes.c */
extern void oracle_begin_move(OracleWorld *world, int i, int32 to);
extern void oracle_drive_moves(OracleWorld *world);
extern void oracle_lose_shards(OracleWorld *world, const OracleNode *node);
extern void oracle_hear(void *context, const ShardNodeEvent *event); /* from the node */

/* oracle_nodes.c */
extern void oracle_create_flow(OracleWorld *world, OracleNode *node);
extern void oracle_start(OracleWorld *world, OracleNode *node, ShardStartKind kind);
extern void oracle_give_fact(OracleNode *node, int i, const ShardHomeRecord *home, int64 n);
extern void oracle_crash(OracleWorld *world, OracleNode *node);
extern void oracle_write_off(OracleWorld *world);
extern void oracle_restore(OracleWorld *world, OracleNode *node);
extern void oracle_promote(OracleWorld *world, OracleNode *node);
extern void oracle_standby_step(OracleWorld *world, OracleNode *node);

/* oracle_trouble.c */
extern void oracle_client_step(OracleWorld *world);
extern void oracle_fault_step(OracleWorld *world);
extern void oracle_heal(OracleWorld *world);
