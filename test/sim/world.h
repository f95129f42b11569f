/*
 * world.h
 *		The simulated world: machines with databases, their clocks and disks, the network between them,
 *		clients, operators, and what goes wrong.
 *
 * Everything that happens is an event in one queue, in the order of simulated time; whatever is random
 * comes from generators that the seed alone feeds. So a seed is a history: the same every time.
 *
 * An instance is one database: it hosts a node's control plane (core/node.h) and data plane (flow.h)
 * over one store. Several instances may be incarnations of one node: a standby, a copy, a clone.
 */
#pragma once

#include "postgres_fe.h"

#include "check.h"
#include "core/node/node.h"
#include "flow.h"
#include "store.h"

#define WORLD_MAX_INSTANCES 16
#define WORLD_MAX_NODES 9
#define WORLD_MAX_FAULTS 64
#define WORLD_MAX_TICKETS 64
#define WORLD_MAX_CACHED 32
#define WORLD_RESERVED_SHARDS 2 /* of histories in which nodes are lost: told only then */

/* Tokens of operators' commands. */
#define WORLD_JOIN 1
#define WORLD_COMMAND 2 /* and above: those that are looked for when they are done */
#define WORLD_PLAN (INT64CONST(1) << 40) /* above: questions for plans, and what follows them */

#define WORLD_JOURNAL 10000 /* the id of the journal (R14) */

#define WORLD_TYPE "counter"		 /* durable */
#define WORLD_LEASED_TYPE "presence" /* without durable state */

typedef enum FaultKind
{
	FAULT_CRASH, /* the server dies with what it had not flushed; comes up after a while */
	FAULT_CRASH_COORDINATOR, /* the same for whoever holds the office then */
	FAULT_CONTROL_CRASH,	 /* the control process alone dies and starts again */
	FAULT_FREEZE,			 /* no process of the instance runs; its clock does */
	FAULT_FREEZE_COORDINATOR,
	FAULT_FREEZE_WORKER,  /* one process of the data plane alone stands still, maybe in a turn */
	FAULT_PARTITION,	  /* the nodes in a mask on one side, all others on the other */
	FAULT_ONE_WAY,		  /* one direction of one link */
	FAULT_ISOLATE_REGION, /* a node is cut off for long: it learns nothing for several moves */
	FAULT_LOSS,			  /* bad network everywhere */
	FAULT_SLOW_DISK,
	FAULT_DISK_FULL,
	FAULT_WORKERS, /* the number of region workers changes */
	FAULT_MOVE,	   /* an operator moves a shard */
	FAULT_MOVE_BACK_AND_FORTH,
	FAULT_REBALANCE,
	FAULT_JOIN, /* a new node joins */
	FAULT_LEAVE,
	FAULT_DOWN,		 /* an operator downs a node that may well live */
	FAULT_WRITE_OFF, /* a node dies for good and is written off; it may come back nevertheless */
	FAULT_PROMOTE,	 /* the primary of an HA pair freezes, its standby takes over, then it thaws */
	FAULT_CLONE,	 /* a copy of a running machine comes up elsewhere */
	FAULT_RESTORE,	 /* a node is put back from an older copy, noticed at its start */
	FAULT_RESTORE_UNNOTICED, /* the same with files that look like the node's own */
	FAULT_JOURNAL_RESTORE, /* the journal is put back from an older copy, or its standby takes over */
	FAULT_LEASE_TTL,	   /* leases get another time */
	FAULT_PIN,			   /* an operator wishes a shard at a node, for a while */
	FAULT_EVACUATE,		   /* a node is to be emptied, for a while */
	FAULT_STOP,			   /* a server goes down in good order */
	FAULT_STOP_COORDINATOR,
	FAULT_UNHOST,	/* a node is a proxy of its types for a while; only where it is asked for */
	FAULT_TYPES,	/* a node starts a type, or drops it (C9); only where it is asked for */
	FAULT_LIE,		/* somebody speaks in a member's name (T7); only where it is asked for */
	FAULT_HEADLESS, /* the coordinator dies at a step of a leave; only where it is asked for */
	FAULT_KINDS
} FaultKind;

typedef struct Fault
{
	FaultKind kind;
	int64 at;
	int64 duration;
	int a;
	int b;
	uint32 number;
	bool off; /* left out while shrinking */
} Fault;

/* How a node is lost for ever. */
typedef enum WorldLost
{
	WORLD_LOST_NOT = 0,
	WORLD_LOST_CUT,
	WORLD_LOST_DEAF, /* it can send */
	WORLD_LOST_MUTE, /* it can hear */
	WORLD_LOST_CRASHED,
	WORLD_LOST_FROZEN
} WorldLost;

/* Where operators ask which moves would begin. */
typedef enum WorldPlans
{
	WORLD_PLANS_NONE = 0,
	WORLD_PLANS_COORDINATOR, /* at the coordinator's node */
	WORLD_PLANS_ANYWHERE
} WorldPlans;

/* What a history is made of; all derived from the seed unless given. */
typedef struct WorldOptions
{
	uint64 seed;
	int nodes;		   /* at the start; 1 .. 9 */
	int shards;		   /* of each type */
	int entities;	   /* of each shard */
	int64 duration;	   /* of the history's troubled part */
	int64 settle;	   /* how long it may take afterwards until all is well */
	bool liveness;	   /* some nodes are lost for ever; the majority has to make progress */
	bool storm;		   /* short troubles without a pause */
	bool leased;	   /* with a type that needs leases */
	int replicas;	   /* of that type; 0: none */
	bool functions;	   /* the durable type has strategy functions of its own */
	bool journal;	   /* state_store_mode = persistence */
	bool standby_gate; /* nodes are HA pairs with gate = standby */
	int loss_percent;  /* of messages, always */
	int64 delay;	   /* of messages, usually */
	int clock_ppm;	   /* how wrong clocks may be */
	WorldPlans plans;
	bool plans_refused; /* each of them; the history ends when all heals */
	int64 gap_timeout;	/* after which missing numbers are given up */
	bool gap_from_one;	/* entities with numbers begin with 1 */
	uint64 kinds;		/* faults that may occur, a bit each */
	int n_faults;
	Fault faults[WORLD_MAX_FAULTS];
	FILE *trace;
	const FlowModel *model; /* of data planes */
} WorldOptions;

/* Answers out of a map that are asked for with every message; good for one n of it. */
typedef struct WorldCache
{
	int generation;
	int n_instances;
	int64 n;
	bool has_types;
	int32 type_ids[2];				   /* WORLD_TYPE, WORLD_LEASED_TYPE */
	int16 addresses[WORLD_MAX_CACHED]; /* by node: instance + 1, 0: not known */
} WorldCache;

typedef struct Instance
{
	struct World *world;
	int index;
	char dsn[16];
	Store *store;
	Flow *flow;
	ShardNode *node; /* NULL while the server or its control process is down */
	ShardActions *out;
	bool exists;
	bool up;
	bool retired;	/* never comes up again */
	bool shadow;	/* a clone: nobody looks for anything in it */
	bool journal;	/* the journal's database: no member */
	int generation; /* of the server's start; events of an older one are void */
	int control_generation;
	bool frozen;
	int64 thaw_at;
	uint32 stuck;	  /* processes of the data plane that stand still, */
	uint32 sticks;	  /* and those that will, in the middle of a transaction */
	int64 clock_base; /* its own time at simulated time 0 */
	int clock_ppm;
	int64 step_delay; /* of its processes; long while the disk is slow */
	Store *standby;
	WorldLost lost;
	bool copied; /* came up as a copy, which cannot speak for the cluster */
	bool replicating;
	bool joined;	 /* the cluster, so that its clients may begin */
	Store *backup;	 /* made some time ago */
	int reply_to;	 /* instance whose message is being handled, -1: none */
	bool serving;	 /* that instance has called */
	int64 flow_at;	 /* when the data plane's next step is due */
	bool flow_soon;	 /* because there is work, not because time passes */
	int64 flow_turn; /* number of that event; others are void */
	int n_tickets;
	struct
	{
		int64 ticket;
		int64 lsn;
	} tickets[WORLD_MAX_TICKETS];
	ShardStartKind kind; /* of the server's start */
	ShardUuid incarnation;
	int32 node_id;	   /* as last known, for traces */
	int32 leased_type; /* id of the leased type, as last known */
	int32 era;		   /* as workers know it */
	bool downed_restart;
	int64 next_tell;
	bool unhosted;		  /* its types are proxies */
	int64 type_wanted;	  /* since then a start waits for its id (types.c); 0: none */
	int32 type_begun;	  /* the id of one whose transaction is open, 0: none */
	uint64 type_settings; /* of either */
	int32 type_owner;	  /* the same */
	bool leaving;		  /* it exits: its clients are refused */
	int clean;			  /* looks in a row that found nothing left then, */
	int64 homes;		  /* with its own homes known as in the last one */
	WorldCache cache;
} Instance;

typedef struct World
{
	WorldOptions options;
	const FlowModel *model;
	int64 now;
	Check *check;
	struct Heap *heap;
	int64 order;
	uint64 random;		 /* state of the history's generator */
	uint64 random_tells; /* of the clients' */
	ShardArena *history; /* bytes that live as long as the world */
	Instance instances[WORLD_MAX_INSTANCES];
	int n_instances;
	Instance *journal; /* NULL: members vote */
	bool blocked[WORLD_MAX_INSTANCES][WORLD_MAX_INSTANCES];
	int extra_loss;
	bool forced;   /* an operator made new voters */
	bool restored; /* a node was put back from a copy */
	bool healed;   /* the troubled part is over */
	bool quiet;	   /* no new messages */
	bool types;	   /* a type was started (types.c) */
	int64 healed_at;
	int64 mended_at;  /* all healed, one thawed or started, or voters were forced */
	int64 settled_at; /* 0: not yet */
	int settled_homes;
	int without_coordinator;   /* times that an operator saw none */
	struct Liveness *liveness; /* NULL: nobody is lost yet */
	int32 judged_era;		   /* the newest that a journal began */
	struct Chain *chain;	   /* what was decided, by n */
	struct Sets *sets;		   /* of shards with copies, as decided */
	struct Commands *commands; /* what operators wanted; NULL: nothing yet */
	struct Plans *plans;	   /* NULL: nobody asks for any */
	/* counts, for the report */
	int n_applied;
	int applied[FAULT_KINDS];
	int n_lost; /* instances, for ever */
	int n_plans;
	int n_plans_followed; /* and listed moves that a round then began */
	int64 n_messages;
	int64 n_events;
	int n_moves;
	int n_offices;
} World;

typedef struct Liveness Liveness;

/* Shards that clients tell something. */
#define world_told_shards(options) \
	((options)->shards - ((options)->liveness ? WORLD_RESERVED_SHARDS : 0))

/* world.c */
extern uint32 world_random(World *world, uint32 below);
extern uint64 world_random64(World *world);
extern World *world_create(const WorldOptions *options);
extern void world_destroy(World *world);

/* Run a history to its end. NULL: all was well; else the violation. */
extern const char *world_run(World *world);

typedef void (*WorldHandler)(World *world, Instance *instance, int64 a, int64 b, const char *bytes,
							 size_t length);

/*
 * Run a handler later. generation -1: for the world; else it is dropped if the instance's server was
 * started anew since, and waits while the instance is frozen.
 */
extern void world_later(World *world, int64 delay, WorldHandler handler, Instance *instance,
						bool bound, int64 a, int64 b, const char *bytes, size_t length);
extern void world_trace(World *world, const char *format, ...) pg_attribute_printf(2, 3);
extern int64 world_clock(const Instance *instance);
extern void world_send(World *world, Instance *from, int to, WorldHandler handler,
					   const char *bytes, size_t length);

/* host.c: the server of an instance */
extern void host_create(World *world, Instance *instance, const char *dsn);
extern void host_start(World *world, Instance *instance, ShardStartKind kind);
extern void host_stop(World *world, Instance *instance); /* the server dies */
extern void host_tell_types(World *world, Instance *instance);
extern void host_after(World *world, Instance *instance); /* after anything happened there */
extern Instance *host_at(World *world, const char *dsn);  /* who is reached at an address */
extern Instance *host_of(World *world, int32 node);		  /* the registered instance of a node */
extern Instance *host_coordinator(World *world);
extern int32 host_type_id(Instance *instance, const char *name);

/* host_control.c: its control process alone */
extern void host_stop_control(World *world, Instance *instance);
extern void host_start_control(World *world, Instance *instance);
extern void host_told(World *world, Instance *instance, int32 via, const char *bytes,
					  size_t length); /* by nobody's instance; via as for shard_node_receive */
extern void host_event(World *world, Instance *instance, const ShardNodeEvent *event);
extern void host_command(World *world, Instance *instance, const ShardCommand *command);

/* lies.c: the instance is told something in the name of a node */
extern void lies_tell(World *world, Instance *instance, int32 from, uint32 number);

/* functions.c: a type's own strategy functions are asked */
extern void host_asks_functions(World *world, Instance *instance, const ShardAction *action);
extern void host_reads_states(World *world, Instance *instance, const ShardAction *action);
/* Another node is welcome there: all states of before have homes, or that is a violation (C21). */
extern void host_lets_in(World *world, Instance *instance);

/* types.c: a type that comes and goes; a user's turn, each tick, what is learned, the end */
extern void types_define(Instance *instance);
extern void types_start(World *world, Instance *instance);
extern void types_crash(Instance *instance);
extern void types_change(World *world, Instance *instance, uint32 number);
extern void types_look(World *world, Instance *instance);
extern void types_judge(World *world, const Instance *teller, const ShardMapEntry *entry);
extern bool types_settled(World *world, Instance *coordinator, char *why, size_t size);

/* faults.c */
extern void fault_plan(WorldOptions *options);
extern void fault_apply(World *world, const Fault *fault);
extern void fault_heal(World *world);
extern void fault_end_wishes(World *world, Instance *instance, int64 a, int64 b, const char *bytes,
							 size_t length);
extern uint64 fault_storm(void);	/* kinds of a storm */
extern uint64 fault_operator(void); /* kinds that only an operator ends */
extern uint64 fault_wanted(void);	/* kinds that have to be asked for */
extern const char *fault_name(FaultKind kind);
extern void fault_print(const Fault *fault, FILE *out);

/* judge.c */
extern void judge_learned(World *world, const Instance *instance, const ShardMapEntry *entry);
extern void judge_end(World *world);
extern bool judge_settled(World *world, char *why, size_t size);
extern void judge_destroy(World *world);

/* ---- check_set.c: sets of shards with copies -------------------------------------------------- */

/* A home was decided in an era, and is shown for the first time. */
extern void check_set(World *world, int32 era, const ShardMapEntry *entry);
extern void check_sets_destroy(World *world);

/* commands.c: a node is given an operator's command; a value is learned for the first time; a command is done */
extern void commands_give(World *world, Instance *instance, ShardCommand *event);
extern void commands_learned(World *world, int32 era, const ShardMapEntry *entry);
extern void commands_done(World *world, const Instance *instance, int64 token);
extern void commands_destroy(World *world);

/*
 * plans.c: a history begins; a command is done; a node is asked, maybe by itself, to prepare an import; a node says something to
 * another one; the end
 */
extern void plans_begin(World *world);
extern void plans_done(World *world, const Instance *instance, const ShardAction *action);
extern void plans_prepares(World *world, int32 node, const ShardShardRef *shard);
extern void plans_sent(World *world, const Instance *instance, const ShardAction *action);
extern void plans_destroy(World *world);
/* Did nodes say the same in the same history with plans that were refused? False: text gets the violation. */
extern bool plans_have_no_trace(const World *with, const World *refused, char *text, size_t size);

/* liveness.c */
extern bool liveness_of_cluster(const Instance *instance); /* of a node that is there to stay */
extern void liveness_cut(World *world);					   /* some nodes are lost, from now on */
extern void liveness_block(World *world); /* their links, after others were mended */
extern bool liveness_settled(World *world, char *why, size_t size);
