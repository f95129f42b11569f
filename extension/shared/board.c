/*
 * shared/board.c
 *		What the control worker and the rest of a node tell each other through shared memory.
 *
 * One block per database slot. The view is copied under a spinlock; its generation is read without the lock, so that a
 * turn sees cheaply that nothing changed. Events and orders wait in rings of fixed size: a process that finds its ring
 * full asks again later, as it would after a lost event.
 */
#include "postgres.h"

#include "access/xact.h"
#include "core/base/message.h"
#include "core/flow/route.h"
#include "storage/shmem.h"

#include "shared/board.h"

#include "base/compat.h"

#define QUEUE_SIZE 4096

/*
 * Orders that wait for region workers: the most of all, the most of one lane, and the number of each group for which
 * there is room at any time.
 */
#define ALL_ORDERS 2048
#define LANE_ORDERS 128
#define GROUP_ORDERS 64

typedef struct ShardWaitingOrder
{
	int next; /* of the same lane, or free; -1: none */
	ShardShardRef order;
} ShardWaitingOrder;

/* One list for each lane: the orders for a worker that is not there are in no other worker's way. */
typedef struct ShardOrders
{
	int free;				/* the first one, linked from one to the next */
	int first[SHARD_LANES]; /* -1: none */
	int last[SHARD_LANES];
	int used_by[SHARD_GROUPS];
	ShardWaitingOrder list[ALL_ORDERS];
} ShardOrders;

typedef struct ShardBoard
{
	slock_t mutex; /* guards view, queues and incarnation */
	ShardBoardView view;
	pg_atomic_uint32 generation; /* of the view */
	pg_atomic_uint64 lease;		 /* the view's; 0: there is none */
	pg_atomic_uint32 directory;
	pg_atomic_uint32 returns;
	pg_atomic_uint32 door;				/* ShardBoardDoor: is sending allowed? */
	pg_atomic_uint32 types;				/* changes of shard.type */
	pg_atomic_uint64 rseq[SHARD_LANES]; /* the last one given; each written by its lane's worker, */
	pg_atomic_uint64 life[SHARD_LANES]; /* in that life of the node */

	/* of this start of the server */
	uint64 secret; /* set once */
	Oid extension; /* InvalidOid: not said yet */
	ShardUuid incarnation;
	ShardStartKind kind;

	/* first is the oldest event */
	int first;
	int count;
	ShardBoardEvent queue[QUEUE_SIZE];

	pg_atomic_uint64 ordered; /* lanes that have orders, as a mask; written under the mutex */
	ShardOrders orders;
} ShardBoard;

static ShardBoard *boards = NULL;

/* In this transaction. */
static bool types_change = false;

static ShardBoard *
board_of(const ShardDatabase *db)
{
	return &boards[shard_shmem_database_index(db)];
}

/* No order waits. */
static void
forget_orders(ShardOrders *orders)
{
	memset(orders->used_by, 0, sizeof(orders->used_by));
	orders->free = 0;
	for (int i = 0; i < ALL_ORDERS; i++)
		orders->list[i].next = i + 1 < ALL_ORDERS ? i + 1 : -1;
	for (int lane = 0; lane < SHARD_LANES; lane++)
		orders->first[lane] = orders->last[lane] = -1;
}

static Size
shmem_size(void)
{
	return mul_size(SHARD_MAX_DATABASES, sizeof(ShardBoard));
}

static void
startup(void)
{
	bool found;

	boards = ShmemInitStruct("shard board", shmem_size(), &found);
	if (found)
		return;
	memset(boards, 0, shmem_size());
	for (int i = 0; i < SHARD_MAX_DATABASES; i++)
	{
		SpinLockInit(&boards[i].mutex);
		if (!pg_strong_random(&boards[i].secret, sizeof(boards[i].secret)))
			ereport(FATAL, (errcode(ERRCODE_INTERNAL_ERROR),
							errmsg("could not generate a random number")));
		pg_atomic_init_u32(&boards[i].generation, 0);
		pg_atomic_init_u64(&boards[i].lease, 0);
		pg_atomic_init_u32(&boards[i].directory, 0);
		pg_atomic_init_u32(&boards[i].returns, 0);
		pg_atomic_init_u32(&boards[i].door, SHARD_BOARD_UNSAID);
		pg_atomic_init_u32(&boards[i].types, 0);
		pg_atomic_init_u64(&boards[i].ordered, 0);
		forget_orders(&boards[i].orders);
		for (int lane = 0; lane < SHARD_LANES; lane++)
		{
			pg_atomic_init_u64(&boards[i].rseq[lane], 0);
			pg_atomic_init_u64(&boards[i].life[lane], 0);
		}
	}
}

/*
 * Nothing that was said is in force any more; but numbers rise on, and an incarnation is one until the
 * server ends.
 */
void
shard_board_forget(ShardDatabase *db)
{
	ShardBoard *board = board_of(db);

	SpinLockAcquire(&board->mutex);
	memset(&board->view, 0, sizeof(ShardBoardView));
	pg_atomic_write_u64(&board->lease, 0);
	board->view.generation = pg_atomic_read_u32(&board->generation) + 1;
	board->first = board->count = 0;
	forget_orders(&board->orders);
	pg_atomic_write_u64(&board->ordered, 0);
	SpinLockRelease(&board->mutex);
	pg_atomic_write_u32(&board->door, SHARD_BOARD_UNSAID);
	pg_atomic_fetch_add_u32(&board->generation, 1);
}

/* ---- the view --------------------------------------------------------------------------------- */

void
shard_board_get(ShardDatabase *db, ShardBoardView *view)
{
	ShardBoard *board;

	if (db == NULL)
	{
		memset(view, 0, sizeof(ShardBoardView));
		return;
	}
	board = board_of(db);
	SpinLockAcquire(&board->mutex);
	*view = board->view;
	SpinLockRelease(&board->mutex);
}

ShardCallHeader
shard_board_header(const ShardBoardView *view, int32 to, int32 to_inc)
{
	return (ShardCallHeader){.protocol_version = SHARD_PROTOCOL_VERSION,
							 .cluster = view->cluster,
							 .era = view->era,
							 .from = view->node,
							 .from_inc = view->inc_no,
							 .incarnation = view->incarnation,
							 .to = to,
							 .to_inc = to_inc,
							 .known_n = view->learned_n};
}

uint32
shard_board_generation(ShardDatabase *db)
{
	return pg_atomic_read_u32(&board_of(db)->generation);
}

int64
shard_board_lease(ShardDatabase *db)
{
	uint64 until = pg_atomic_read_u64(&board_of(db)->lease);

	return until == 0 ? PG_INT64_MAX : (int64) until;
}

/*
 * Whether two views differ in more than those fields whose change wakes no process.
 */
static bool
differs(const ShardBoardView *a, const ShardBoardView *b)
{
	return a->known != b->known || a->handle != b->handle || a->push != b->push ||
		   a->fenced != b->fenced || a->downed != b->downed || a->node != b->node ||
		   a->inc_no != b->inc_no || !shard_record_uuid_equal(a->incarnation, b->incarnation) ||
		   !shard_record_uuid_equal(a->cluster, b->cluster) || a->era != b->era ||
		   a->coordinator != b->coordinator || a->gate != b->gate || a->members != b->members ||
		   a->leased != b->leased || strcmp(a->why, b->why) != 0;
}

void
shard_board_set(ShardDatabase *db, const ShardBoardView *view)
{
	ShardBoard *board = board_of(db);
	uint32 generation;
	bool changed;

	SpinLockAcquire(&board->mutex);
	generation = board->view.generation;
	changed = differs(&board->view, view);
	board->view = *view;
	board->view.generation = changed ? generation + 1 : generation;
	pg_atomic_write_u64(&board->lease, view->leased ? (uint64) Max(view->lease_until, 1) : 0);
	SpinLockRelease(&board->mutex);

	if (!changed)
		return;
	pg_atomic_write_u32(&board->generation, generation + 1);
	shard_shmem_wake_region(db);
}

void
shard_board_close(ShardDatabase *db, ShardBoardDoor door)
{
	pg_atomic_write_u32(&board_of(db)->door, door);
}

/* Why sending is refused here, by door. */
static const struct
{
	const char *message;
	const char *detail;
	const char *hint;
} door_errors[] = {
	[SHARD_BOARD_JOINING] =
		{"this node is joining a cluster and takes no messages",
		 "Its entity types are about to get the cluster's numbers, or it enters an era "
		 "that forced voters have begun.",
		 "Try again in a moment, or when shard_join() has returned."},
	[SHARD_BOARD_FENCED] = {"this node is fenced and takes no messages",
							"Another incarnation of the node lives.",
							"Send at another member. What is here can be read; to work on its own, "
							"drop and create the extension."},
	[SHARD_BOARD_WRITTEN_OFF] =
		{"this node was written off and takes no messages",
		 "Its shards begin empty at other members; what is here can be read.",
		 "Send at another member. When the data here are no longer wanted, drop the extension or "
		 "the database; or make it a node of its own with shard_reset_cluster_data(force => "
		 "true)."},
	[SHARD_BOARD_LEAVING] = {"this node is leaving its cluster and takes no messages",
							 "Its shards live at other members already.",
							 "Send at another member."},
	[SHARD_BOARD_LEFT] =
		{"this node has left its cluster and takes no messages",
		 "Its shards live at other members.",
		 "Send at one of them. Here, drop the extension or the database; an extension that is "
		 "created again is a node of its own."},
	[SHARD_BOARD_JOURNAL] = {"this database is a journal and takes no messages",
							 "It keeps the map of a cluster, and is no member.",
							 "Send at a member of the cluster."},
	[SHARD_BOARD_DOWNED] =
		{"this node was downed and takes no messages",
		 "The shards of the node wait for it, with "
		 "their states and messages.",
		 "Send at another member. This node comes back when its server is restarted, or by "
		 "shard_admit() here; see shard_health()."},
	[SHARD_BOARD_SUPERSEDED] = {
		"this node waits for its admission and takes no messages",
		"Another incarnation of the node lives: this database is a former life of it.",
		"Send at another member. Rebuild this database from the one that lives; or see "
		"shard_health()."}};

void
shard_board_refuse(ShardBoardDoor door)
{
	ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					errmsg_internal("%s", door_errors[door].message),
					errdetail_internal("%s", door_errors[door].detail),
					errhint("%s", door_errors[door].hint)));
}

bool
shard_board_check_open(void)
{
	ShardDatabase *db = shard_shmem_database();
	uint32 door = db == NULL ? SHARD_BOARD_UNSAID : pg_atomic_read_u32(&board_of(db)->door);

	if (likely(door == SHARD_BOARD_OPEN))
		return true;
	if (door != SHARD_BOARD_UNSAID)
		shard_board_refuse(door);
	return false;
}

uint32
shard_board_directory(ShardDatabase *db)
{
	return pg_atomic_read_u32(&board_of(db)->directory);
}

void
shard_board_directory_changed(ShardDatabase *db)
{
	pg_atomic_fetch_add_u32(&board_of(db)->directory, 1);
}

uint32
shard_board_returns(ShardDatabase *db)
{
	return pg_atomic_read_u32(&board_of(db)->returns);
}

void
shard_board_returned(ShardDatabase *db)
{
	pg_atomic_fetch_add_u32(&board_of(db)->returns, 1);
	shard_shmem_wake_region(db);
}

/* ---- events ----------------------------------------------------------------------------------- */

bool
shard_board_report(ShardDatabase *db, const ShardBoardEvent *event)
{
	ShardBoard *board = board_of(db);
	bool taken;

	SpinLockAcquire(&board->mutex);
	taken = board->count < QUEUE_SIZE;
	if (taken)
		board->queue[(board->first + board->count++) % QUEUE_SIZE] = *event;
	SpinLockRelease(&board->mutex);
	shard_shmem_wake_worker(db, SHARD_CONTROL_WORKER);
	return taken;
}

int
shard_board_take(ShardDatabase *db, ShardBoardEvent *events, int most)
{
	ShardBoard *board = board_of(db);
	int taken;

	SpinLockAcquire(&board->mutex);
	taken = Min(board->count, most);
	for (int i = 0; i < taken; i++)
		events[i] = board->queue[(board->first + i) % QUEUE_SIZE];
	board->first = (board->first + taken) % QUEUE_SIZE;
	board->count -= taken;
	SpinLockRelease(&board->mutex);
	return taken;
}

/* ---- orders ----------------------------------------------------------------------------------- */

/*
 * Whether the same order waits already: an order is repeated until a worker has carried it out. *count: how many wait
 * for the lane, if not.
 */
static bool
is_ordered(const ShardOrders *orders, int lane, const ShardShardRef *order, int *count)
{
	*count = 0;
	for (int at = orders->first[lane]; at >= 0; at = orders->list[at].next)
	{
		const ShardShardRef *other = &orders->list[at].order;

		if (other->type_id == order->type_id && other->shard == order->shard &&
			other->epoch == order->epoch && other->move_id == order->move_id)
			return true;
		(*count)++;
	}
	return false;
}

/* Whether there is room for an order of a group: in its own share, or in the room that no group has for itself. */
static bool
has_room(const ShardOrders *orders, int group)
{
	int common = 0;

	if (orders->used_by[group] < GROUP_ORDERS)
		return true;
	for (int i = 0; i < SHARD_GROUPS; i++)
		common += Max(orders->used_by[i] - GROUP_ORDERS, 0);
	return common < ALL_ORDERS - SHARD_GROUPS * GROUP_ORDERS;
}

/* There is room for it. */
static void
put_order(ShardOrders *orders, int lane, const ShardShardRef *order)
{
	int at = orders->free;
	ShardWaitingOrder *waiting = &orders->list[at];

	orders->free = waiting->next;
	waiting->order = *order;
	waiting->next = -1;
	if (orders->first[lane] < 0)
		orders->first[lane] = at;
	else
		orders->list[orders->last[lane]].next = at;
	orders->last[lane] = at;
	orders->used_by[lane / SHARD_GROUP_LANES]++;
}

/* The oldest one of a lane that has one. */
static ShardShardRef
take_order(ShardOrders *orders, int lane)
{
	int at = orders->first[lane];
	ShardWaitingOrder *waiting = &orders->list[at];

	orders->first[lane] = waiting->next;
	waiting->next = orders->free;
	orders->free = at;
	orders->used_by[lane / SHARD_GROUP_LANES]--;
	return waiting->order;
}

bool
shard_board_order(ShardDatabase *db, const ShardShardRef *order)
{
	ShardBoard *board = board_of(db);
	int lane = shard_message_lane(order->type_id, order->shard);
	int count;
	bool taken;

	SpinLockAcquire(&board->mutex);
	taken = is_ordered(&board->orders, lane, order, &count);
	if (!taken && count < LANE_ORDERS && has_room(&board->orders, lane / SHARD_GROUP_LANES))
	{
		put_order(&board->orders, lane, order);
		pg_atomic_fetch_or_u64(&board->ordered, (int64) shard_lane_bit(lane));
		taken = true;
	}
	SpinLockRelease(&board->mutex);
	shard_shmem_wake_worker(db, shard_shmem_lane_worker(db, lane));
	return taken;
}

bool
shard_board_is_ordered(ShardDatabase *db, ShardLanes lanes)
{
	return (pg_atomic_read_u64(&board_of(db)->ordered) & lanes) != 0;
}

int
shard_board_take_orders(ShardDatabase *db, ShardLanes lanes, ShardShardRef *orders, int most)
{
	ShardBoard *board = board_of(db);
	int taken = 0;

	/* a process that gives an order wakes the worker after it */
	if (!shard_board_is_ordered(db, lanes))
		return 0;
	SpinLockAcquire(&board->mutex);
	lanes &= pg_atomic_read_u64(&board->ordered);
	shard_each_lane (lane, lanes)
	{
		while (board->orders.first[lane] >= 0 && taken < most)
			orders[taken++] = take_order(&board->orders, lane);
		if (board->orders.first[lane] < 0)
			pg_atomic_fetch_and_u64(&board->ordered, (int64) ~shard_lane_bit(lane));
	}
	SpinLockRelease(&board->mutex);
	return taken;
}

/*
 * Transaction callback.
 */
static void
wake_at_commit(XactEvent event, void *arg)
{
	if (!types_change)
		return;
	if (event == XACT_EVENT_COMMIT)
		shard_board_types_announce();
	if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT || event == XACT_EVENT_PREPARE)
		types_change = false;
}

void
shard_board_types_change(void)
{
	static bool registered = false;

	if (!registered)
		RegisterXactCallback(wake_at_commit, NULL);
	registered = true;
	types_change = true;
}

void
shard_board_types_announce(void)
{
	ShardDatabase *db = shard_shmem_database();

	if (db == NULL)
		return;
	pg_atomic_fetch_add_u32(&board_of(db)->types, 1);
	shard_shmem_wake_worker(db, SHARD_CONTROL_WORKER);
}

bool
shard_board_types_changing(void)
{
	return types_change;
}

uint32
shard_board_types(ShardDatabase *db)
{
	return pg_atomic_read_u32(&board_of(db)->types);
}

/* ---- numbers and clock ------------------------------------------------------------------------ */

int64
shard_board_last_rseq(ShardDatabase *db, int lane, uint64 life, int32 inc_no)
{
	ShardBoard *board = board_of(db);
	int64 last = (int64) pg_atomic_read_u64(&board->rseq[lane]);

	if (pg_atomic_read_u64(&board->life[lane]) != life)
		last = 0;
	return Max(last, SHARD_FIRST_RSEQ(inc_no));
}

int64
shard_board_next_rseq(ShardDatabase *db, int lane, uint64 life, int32 inc_no)
{
	ShardBoard *board = board_of(db);
	int64 next = shard_board_last_rseq(db, lane, life, inc_no) + 1;

	pg_atomic_write_u64(&board->life[lane], life);
	pg_atomic_write_u64(&board->rseq[lane], (uint64) next);
	return next;
}

void
shard_board_raise_rseq(ShardDatabase *db, int lane, uint64 life, int64 rseq)
{
	ShardBoard *board = board_of(db);

	if (pg_atomic_read_u64(&board->life[lane]) == life &&
		(int64) pg_atomic_read_u64(&board->rseq[lane]) >= rseq)
		return;
	pg_atomic_write_u64(&board->life[lane], life);
	pg_atomic_write_u64(&board->rseq[lane], (uint64) rseq);
}

/* ---- the incarnation -------------------------------------------------------------------------- */

bool
shard_board_incarnation(ShardDatabase *db, Oid extension, ShardUuid *incarnation,
						ShardStartKind *kind)
{
	ShardBoard *board = board_of(db);
	bool known;

	SpinLockAcquire(&board->mutex);
	known = board->extension == extension;
	*incarnation = board->incarnation;
	*kind = board->kind;
	SpinLockRelease(&board->mutex);
	return known;
}

void
shard_board_keep(ShardDatabase *db, Oid extension, ShardUuid incarnation, ShardStartKind kind)
{
	ShardBoard *board = board_of(db);

	SpinLockAcquire(&board->mutex);
	board->extension = extension;
	board->incarnation = incarnation;
	board->kind = kind;
	SpinLockRelease(&board->mutex);
}

uint64
shard_board_secret(ShardDatabase *db)
{
	return board_of(db)->secret;
}

const ShardShmemPart shard_board_part = {
	.size = shmem_size,
	.startup = startup,
	.forget = shard_board_forget,
};
