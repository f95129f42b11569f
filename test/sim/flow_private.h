/*
 * flow_private.h
 *		What the files of the flow model share: its tables, its processes, their memory.
 */
#pragma once

#include "postgres_fe.h"

#include "core/flow/route.h"
#include "core/flow/stream.h"
#include "flow_messages.h"

#define MAX_PEERS 12
#define MAX_SENDERS 24
#define MAX_BEGINS 12
#define MAX_SESSION_TELLS 16
#define MAX_CALL_ROWS 64

#define MS INT64CONST(1000)
#define KEY(...) ((StoreKey){{__VA_ARGS__}})
#define SHARD_KEY(type_id, shard) (((int64) (type_id) << 32) | (uint32) (shard))

/* Tables of the node's database. */
typedef enum FlowTable
{
	T_INBOX = 0, /* seq: FlowRow */
	T_CURSOR,	 /* lane: CursorRow */
	T_OUTBOX,	 /* lane, destination, seq: FlowRow */
	T_KEPT,		 /* lane, shard key, rseq: FlowRow; received, but not known to be done */
	T_STREAM,	 /* lane, destination: StreamRow */
	T_LANE,		 /* lane: int64, the last rseq */
	T_POSITION,	 /* origin, lane: ShardStreamPosition */
	T_PARKED,	 /* shard key, 0 stamped or 1, rseq or arrival: FlowRow */
	T_STASH,	 /* shard key, entity, order: StashRow */
	T_WAITING,	 /* shard key, entity, number: StashRow; waits for lower numbers (D25) */
	T_ORDERED,	 /* shard key, entity: OrderedRow */
	T_STATE,	 /* shard key, entity: StateRow */
	T_LEDGER,	 /* shard key, entity, version: int64, id of the message that made it */
	T_BASE,		 /* shard key, kind, a, b: int64 */
	T_OWN,		 /* type, shard: ShardOwn */
	T_ROUTE,	 /* type, shard: RouteRow */
	T_DEAD,		 /* id: FlowRow */
	N_TABLES
} FlowTable;

typedef enum RowKind
{
	ROW_TELL = 1,
	ROW_FACT,
	ROW_FLOOR,
	ROW_VOID,
	ROW_MARK, /* a mark saved before rotation */
	ROW_OWN	  /* another process changed the shard's ownership row: read it again */
} RowKind;

/* A row of the inbox, an outbox, or held. item.body is not used. */
typedef struct FlowRow
{
	int32 kind;
	int32 entity;
	int64 xid; /* inbox: its sender */
	int64 id;
	int32 depth;   /* tells that led to this one */
	bool stops;	   /* its handler ends the entity */
	bool given_up; /* a dead letter that had no effect */
	int64 number;  /* within its entity (D25); 0: none */
	int32 fact_node;
	int32 fact_epoch;
	int32 fact_lost;
	int64 fact_n;
	int64 fact_move;
	ShardItem item;
} FlowRow;

typedef struct Sender
{
	int64 xid;
	int64 first;
} Sender;

typedef struct CursorRow
{
	int64 q;
	int32 n_senders;
	Sender senders[MAX_SENDERS];
} CursorRow;

typedef struct StreamRow
{
	int32 gen;
	int32 n_begins;
	int64 last;
	int64 acked;
	int64 truncated;
	ShardStreamBegin begins[MAX_BEGINS];
} StreamRow;

typedef struct StashRow
{
	int64 due;
	FlowRow row;
} StashRow;

/* How far an entity is in its numbers. */
typedef struct OrderedRow
{
	int64 began;
	int64 expected;
	int64 skipped;
	int64 late;
} OrderedRow;

typedef struct StateRow
{
	int64 version;
	int32 epoch;
} StateRow;

typedef struct RouteRow
{
	int32 node;
	int32 epoch;
	int32 lost;
	int32 doubt;
	int64 n;
	int64 move_id;
} RouteRow;

/* Messages between nodes. */
typedef enum DatagramKind
{
	D_HELLO = 1,
	D_CALL,
	D_ANSWER, /* to both */
	D_NOTE,	  /* marks and facts for an origin */
	D_NOTE_ANSWER,
	D_EXPORT,
	D_EXPORT_ANSWER
} DatagramKind;

typedef enum Verdict
{
	V_OK = 0,
	V_AGAIN,  /* say hello */
	V_FENCED, /* another incarnation of you lives */
	V_REFUSED
} Verdict;

typedef struct Section
{
	int32 lane;
	int32 gen;
	int64 first_seq;
	int32 n_rows;
	int64 base;
	ShardUuid writer;
	ShardStreamPosition position;
} Section;

typedef struct FactItem
{
	int32 type_id;
	int32 shard;
	int64 n;
	ShardHomeRecord home;
	int64 seq;	/* where it is in the log: it is met there */
	bool taken; /* by a running turn */
} FactItem;

typedef struct MarkItem
{
	int32 type_id;
	int32 shard;
	int64 rseq;
} MarkItem;

/* A row of a shard's copy. */
typedef struct ExportItem
{
	int32 table;
	StoreKey key;
	union
	{
		StashRow stash;
		OrderedRow ordered;
		StateRow state;
		FlowRow row;
		int64 number;
	} value;
} ExportItem;

typedef struct Datagram
{
	int32 kind;
	int32 from;
	int32 from_inc;
	int32 to_inc; /* 0: not known */
	int32 worker;
	int32 verdict;
	int32 era; /* of who calls */
	int64 conn;
	int64 req;
	ShardShardRef ref;
	int32 n_sections;
	int32 n_rows;
	int32 n_facts;
	int32 n_marks;
	int32 n_exports;
} Datagram;

/* One in the making or taken apart. */
typedef struct Letter
{
	Datagram head;
	Section sections[FLOW_LANES];
	FlowRow rows[MAX_CALL_ROWS];
	FactItem facts[MAX_CALL_ROWS];
	MarkItem marks[MAX_CALL_ROWS];
	int export_space;
	ExportItem *exports;
} Letter;

/* What waits for the gate. */
typedef enum ReleaseKind
{
	R_HANDLED,
	R_STASHED,
	R_REPORTED,
	R_DEAD,
	R_GIVEN_UP,
	R_POSITION, /* of an entity in its numbers */
	R_LOST,
	R_MARK,
	R_REFUSED,
	R_STARTED,
	R_STOPPED,
	R_STAGED
} ReleaseKind;

typedef struct Release
{
	ReleaseKind kind;
	int64 lsn;
	int64 id;
	int32 peer;
	int32 epoch;
	int64 number;
	int32 entity;
	bool begun; /* it has a position */
	OrderedRow position;
	ShardShardRef ref;
} Release;

typedef enum LinkState
{
	LINK_CLOSED = 0, /* next: HELLO */
	LINK_HELLO,		 /* next: OPEN or CLOSED */
	LINK_OPEN		 /* next: CLOSED */
} LinkState;

#define LINK_CALLS 2

/* A worker's connection to a peer. */
typedef struct Link
{
	LinkState state;
	int64 conn;
	int64 req;
	int32 to_inc;
	int64 deadline; /* of hello */
	struct
	{
		int64 req; /* 0: none */
		int64 deadline;
	} calls[LINK_CALLS]; /* that wait for their answers */
	int64 not_before;	 /* for a new connection */
	int64 last_call;
	int64 hello_at;
	int64
		unconfirmed_at; /* since then something was received that nobody has confirmed; 0: there is nothing */
	int64 hello_again; /* so long after it marks are asked for once more; 0: the first time */
	/* Facts told over this connection; of two that share a place, the later one. */
	struct
	{
		int32 type_id;
		int32 shard;
		int64 n;
	} told[32];
} Link;

typedef enum TurnPhase
{
	TURN_NONE = 0, /* next: SENDERS */
	TURN_SENDERS,  /* ended senders; next: STASH */
	TURN_STASH,	   /* next: PARKED */
	TURN_PARKED,   /* next: FORWARD */
	TURN_FORWARD,  /* next: COMMIT */
	TURN_COMMIT,   /* next: NONE, or CHECKED if a leased shard is in it */
	TURN_CHECKED   /* the lease was looked at for the last time; next: NONE */
} TurnPhase;

/* The order of an entity: its position, as in its row, and its queue, which is counted (D25). */
typedef struct Order
{
	bool known; /* its row was looked for */
	bool begun;
	OrderedRow row;
	int64 waiting; /* 0: the next two mean nothing */
	int64 lowest;
	int64 since;	  /* as long as this process knows of it */
	int64 not_before; /* the first attempt of the one that is next failed */
} Order;

typedef struct OrderedEntity
{
	int64 shard_key;
	int32 entity;
	bool in_turn;
	bool dirty;
	bool ended;	 /* the message that was just handled stopped it */
	Order now;	 /* in this turn */
	Order saved; /* as of the last commit */
} OrderedEntity;

#define MAX_ORDERED 32

typedef struct Worker
{
	Flow *flow;
	int index;
	uint32 lanes; /* owned now */
	ShardRoutes *routes;
	Link links[MAX_PEERS];
	bool poke;	   /* something happened */
	int64 wake_at; /* look again then */
	bool more;	   /* the last turn left something */

	/* the running turn */
	TurnPhase phase;
	StoreTransaction *tx;
	bool failed;	   /* a write did; abort */
	bool leased;	   /* something of a leased shard was handled */
	bool saves;		   /* marks were written to the log */
	int64 lease_until; /* as known when the turn took its facts (L12) */
	int64 tail;
	int n_open;
	int64 open[FLOW_SESSIONS + FLOW_BACKENDS + FLOW_WORKERS + 4];
	int handled;
	int64 at;		 /* next seq of the scan */
	uint32 changed;	 /* lanes whose cursor changed */
	uint32 appended; /* lanes whose streams changed */
	CursorRow cursors[FLOW_LANES];
	StoreKey stash_at;
	int n_children;
	int child_space;
	int64 *children;
	int64 *child_rows; /* where they are in the log */
	int n_outputs;
	int output_space;
	Release *outputs;
	int n_owned;
	struct
	{
		int32 type_id;
		int32 shard;
		int32 lost;
		ShardOwn before;
		ShardOwn after;
	} owned[64];
	bool arriving;	  /* the row came on a stream */
	int64 seen;		  /* the log was looked through up to here */
	int64 not_before; /* no turn */
	int64 ask_at;
	int64 truncate_at;
	int32 fact_lost;	/* of the fact that is being applied */
	FlowRow parked_row; /* the first parked one, last asked for */
	StoreKey parked_at;
	int64 marks_saved_at; /* seq when marks were written to the log */

	/* order by number */
	int n_ordered;
	OrderedEntity ordered[MAX_ORDERED];
	bool orders_done; /* in this turn */
	int64 turn_at;	  /* when it began */
	int64 read_until; /* the log is read up to what was there then, */
	int64
		reading_seq; /* and will be up to reading_at when this one is passed; 0: nothing is left */
	int64 reading_at;
} Worker;

typedef enum BackendState
{
	BACKEND_FREE = 0, /* next: BEGIN */
	BACKEND_BEGIN,	  /* next: COMMIT or ANSWER */
	BACKEND_COMMIT,	  /* next: POSITION or ANSWER */
	BACKEND_POSITION, /* of a mutant */
	BACKEND_ANSWER	  /* waits for the gate; next: FREE */
} BackendState;

/* A peer's call that is being carried out. */
typedef struct Backend
{
	BackendState state;
	Letter call;
	Letter *answer;
	StoreTransaction *tx;
	int64 lsn;
	uint32 locks; /* lanes of the streams from call.head.from */
	int n_fresh;
	ShardStreamPosition fresh[FLOW_LANES];
} Backend;

typedef struct Session
{
	StoreTransaction *tx;
	bool waits;
	int64 lsn;
	int n_tells;
	int64 tells[MAX_SESSION_TELLS];
	int n_redriven;
	int64 redriven[MAX_SESSION_TELLS];
} Session;

typedef enum OperationKind
{
	OP_NONE = 0,
	OP_STOP, /* worker: stopping; next: SEAL, TELL, OVER */
	OP_SEAL, /* worker, in a later turn: sealed; next: TELL, OVER */
	OP_TELL, /* that it is sealed */
	OP_OVER,
	OP_IMPORT, /* keeper: asks the old home, then copies; ends */
	OP_DELETE, /* keeper; ends, or next: BEGIN */
	OP_BEGIN   /* worker: the shard begins anew; next: OVER */
} OperationKind;

typedef struct Operation
{
	OperationKind kind;
	OperationKind next; /* by the running turn, when it commits */
	ShardShardRef ref;
	int32 node;
	int64 not_before;
	int64 req;
	int tries;
	bool granted; /* a stale delete's own idea of what it may do; only a mutant uses it */
	Letter *copy;
} Operation;

#define MAX_OPERATIONS 64

/* A row of the log that says that a shard's ownership row is to be read again. */
typedef struct OwnNotice
{
	int32 type_id;
	int32 shard;
	int64 seq;
} OwnNotice;

#define MAX_NOTICES 256

typedef struct PendingNote
{
	int32 type_id;
	int32 shard;
	int64 rseq;	  /* mark, 0 if none */
	bool refused; /* tell the fact */
} PendingNote;

typedef struct Peer
{
	int32 node;
	ShardStream streams[FLOW_LANES];
	int64 floor_told[FLOW_LANES];
	int64 head_since[FLOW_LANES]; /* the oldest row that is stored is the same since then */
	int64 head[FLOW_LANES];
	int n_notes;
	int note_space;
	PendingNote *notes;
	int64 note_req; /* of the note under way, 0: none */
	int64 note_deadline;
	int note_tries;
	ShardStreamPosition quarantine[FLOW_LANES]; /* what the receiver said then */
	int notes_sent;								/* the first of them are in it */
	uint32 stream_locks;
	uint32 accepted; /* lanes whose quarantine the operator ends */
} Peer;

struct Flow
{
	FlowHost host;
	FlowSettings settings;
	Store *store;
	Check *check;
	int instance;
	bool retired;
	bool copied; /* an old copy, which may know less than its peers */

	/* volatile: all that follows */
	bool up;
	bool handles; /* workers run */
	bool pushes;
	int32 node;
	int32 inc;
	ShardUuid uuid;
	int64 life; /* distinguishes sessions of different starts */
	int64 seq;	/* of the log */
	int64 arrival;
	int64 next_conn;
	int64 lease_until;
	uint32 exclusive; /* turn locks */
	int owner[FLOW_LANES];
	int64 saved[FLOW_LANES]; /* cursor as of the last saved marks; 0: none */
	Worker workers[FLOW_WORKERS];
	Backend backends[FLOW_BACKENDS];
	Session sessions[FLOW_SESSIONS];
	int n_operations; /* those behind are unused; some before may be */
	Operation operations[MAX_OPERATIONS];
	int n_peers;
	Peer peers[MAX_PEERS];
	int n_facts;
	int fact_space;
	FactItem *facts;
	int n_learned; /* homes as the control plane has told them since the start */
	int learned_space;
	FactItem *learned;
	int n_notices; /* the last of them */
	OwnNotice notices[MAX_NOTICES];
	int n_releases;
	int release_space;
	Release *releases;
	int n_reloads;
	struct
	{
		int32 type_id;
		int32 shard;
		uint32 lanes;
	} reloads[64];
	uint32 floors;	  /* lanes to be looked at for a new floor, */
	int64 floors_lsn; /* when this is durable */
	int64 keeper_at;
	int64 released_seen;
	int64 flush_at; /* 0: nothing was committed since */
	Letter scratch;
};

#define row_shard_key(row) SHARD_KEY((row)->item.type_id, (row)->item.shard)

/* flow.c */
extern int64 flow_now(const Flow *flow);
extern uint32 flow_random(const Flow *flow, uint32 below);
extern bool flow_percent(const Flow *flow, int percent);
extern void flow_note(const Flow *flow, const char *format, ...) pg_attribute_printf(2, 3);
extern int flow_lane(const Flow *flow, int32 type_id, int32 shard);
extern bool flow_is_leased(const Flow *flow, int32 type_id);
extern Peer *flow_peer(Flow *flow, int32 node);
extern void flow_poke(Flow *flow);
extern bool flow_append(Flow *flow, StoreTransaction *tx, const FlowRow *row);

/* flow_release.c */
extern void flow_release_at(Flow *flow, const Release *release);
extern void flow_let_go(Flow *flow);
extern void flow_report_rest(Flow *flow, int64 upto);

/* flow_session.c */
extern void flow_return_commits(Flow *flow);
extern bool flow_commits_return(const Flow *flow);

/* flow_action.c */
extern void flow_event(Flow *flow, ShardNodeEventKind kind, const ShardShardRef *ref);
extern void flow_reload(Flow *flow, int32 type_id, int32 shard);
extern void flow_kill_worker(Flow *flow, int lane);
extern bool flow_turn_runs(const Flow *flow, int lane);
extern void flow_own_changed(Flow *flow, int32 type_id, int32 shard, const ShardOwn *before,
							 const ShardOwn *after, int32 lost);

/* flow_fact.c */
extern void flow_learned(Flow *flow, const FactItem *fact);
extern bool flow_fact_is_learned(const Flow *flow, FactItem *fact);
extern int32 flow_era(const Flow *flow);
extern bool flow_facts_are_ahead(const Flow *flow, const Letter *letter);
extern void flow_learn(Flow *flow, const FactItem *fact);

/* flow_operation.c */
extern Operation *flow_operation(Flow *flow, OperationKind kind, const ShardShardRef *ref);

/* flow_turn.c */
extern bool turn_due(Worker *worker);
extern void turn_step(Worker *worker);
extern void turn_abort(Worker *worker);
extern int64 turn_wake(Worker *worker);

/* flow_worker.c */
extern void turn_start_worker(Worker *worker);
extern void turn_stop_worker(Worker *worker);

/* flow_stream.c */
extern void link_load_stream(Flow *flow, Peer *peer, int lane);
extern bool link_store_stream(StoreTransaction *tx, const Peer *peer, int lane);
extern bool link_truncate(Worker *worker);

/* flow_link.c */
extern void link_close(Worker *worker, int i, int64 pause);
extern bool link_push(Worker *worker);
extern int64 link_wake(Worker *worker);
extern void link_add_fact(Flow *flow, Letter *letter, Link *link, int32 type_id, int32 shard);
extern void link_take_answer(Flow *flow, const Letter *letter);

/* flow_backend.c */
extern void link_backend_step(Backend *backend, Flow *flow);
extern bool link_backend_ready(const Flow *flow, const Backend *backend);
extern void link_take_call(Flow *flow, const Letter *letter);

/* flow_mark.c */
extern void
link_add_note(Flow *flow, int32 node, int32 type_id, int32 shard, int64 rseq, bool refused);
extern bool link_notes(Flow *flow);
extern void link_take_marks(Flow *flow, const Letter *letter);
extern void link_take_note(Flow *flow, const Letter *letter);
extern void link_take_note_answer(Flow *flow, const Datagram *head);

/* flow_letter.c */
extern void link_send(Flow *flow, int32 to, Letter *letter);

/* flow_move.c */
extern bool move_due(Flow *flow);
extern void move_step(Flow *flow);
extern int64 move_wake(Flow *flow);
extern void move_receive(Flow *flow, const Letter *letter);
extern bool move_forget_waiting(StoreTransaction *tx, Store *store, int64 shard_key);
extern bool move_has_states(const Store *store, int64 shard_key);
