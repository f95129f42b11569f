/*
 * shared/plane.c
 *		What the coordinator worker and the rest of a node tell each other through shared memory.
 *
 * One block per database slot. The view is copied under a spinlock; its generation is read without, so
 * that a turn can see cheaply that nothing changed. Events and orders wait in rings of fixed size:
 * whoever finds his full asks again later, as he would after a lost one.
 */
#include "postgres.h"

#include <time.h>

#include "access/xact.h"
#include "core/base/message.h"
#include "core/flow/route.h"
#include "storage/shmem.h"

#include "shared/plane.h"

#include "base/compat.h"

#define QUEUE_SIZE 4096

/* Orders that wait for region workers: of all, of one lane, and so many of each group have room at any time. */
#define ALL_ORDERS 2048
#define LANE_ORDERS 128
#define GROUP_ORDERS 64

typedef struct ShardWaitingOrder
{
	int next; /* of the same lane, or free; -1: none */
	ShardPlaneOrder order;
} ShardWaitingOrder;

/* One list for each lane: a worker that is not there is in nobody else's way. */
typedef struct ShardOrders
{
	int free;				/* the first one, linked from one to the next */
	int first[SHARD_LANES]; /* -1: none */
	int last[SHARD_LANES];
	int used_by[SHARD_GROUPS];
	ShardWaitingOrder list[ALL_ORDERS];
} ShardOrders;

typedef struct ShardPlane
{
	slock_t mutex; /* guards view, queues and incarnation */
	ShardPlaneView view;
	pg_atomic_uint32 generation; /* of the view */
	pg_atomic_uint64 lease;		 /* the view's; 0: there is none */
	pg_atomic_uint32 directory;
	pg_atomic_uint32 returns;
	pg_atomic_uint32 door;				/* ShardPlaneDoor: may anybody send? */
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
	ShardPlaneEvent queue[QUEUE_SIZE];

	pg_atomic_uint64 ordered; /* lanes that have orders, as a mask; written under the mutex */
	ShardOrders orders;
} ShardPlane;

static ShardPlane *planes = NULL;

/* In this transaction. */
static bool types_change = false;

static ShardPlane *
plane_of(const ShardDatabase *db)
{
	return &planes[shard_shmem_database_index(db)];
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

Size
shard_plane_shmem_size(void)
{
	return mul_size(SHARD_MAX_DATABASES, sizeof(ShardPlane));
}

void
shard_plane_shmem_startup(void)
{
	bool found;

	planes = ShmemInitStruct("shard plane", shard_plane_shmem_size(), &found);
	if (found)
		return;
	memset(planes, 0, shard_plane_shmem_size());
	for (int i = 0; i < SHARD_MAX_DATABASES; i++)
	{
		SpinLockInit(&planes[i].mutex);
		if (!pg_strong_random(&planes[i].secret, sizeof(planes[i].secret)))
			ereport(FATAL, (errcode(ERRCODE_INTERNAL_ERROR),
							errmsg("could not generate a random number")));
		pg_atomic_init_u32(&planes[i].generation, 0);
		pg_atomic_init_u64(&planes[i].lease, 0);
		pg_atomic_init_u32(&planes[i].directory, 0);
		pg_atomic_init_u32(&planes[i].returns, 0);
		pg_atomic_init_u32(&planes[i].door, SHARD_PLANE_UNSAID);
		pg_atomic_init_u32(&planes[i].types, 0);
		pg_atomic_init_u64(&planes[i].ordered, 0);
		forget_orders(&planes[i].orders);
		for (int lane = 0; lane < SHARD_LANES; lane++)
		{
			pg_atomic_init_u64(&planes[i].rseq[lane], 0);
			pg_atomic_init_u64(&planes[i].life[lane], 0);
		}
	}
}

/*
 * Nothing that was said is in force any more; but numbers rise on, and an incarnation is one until the
 * server ends.
 */
void
shard_plane_forget(ShardDatabase *db)
{
	ShardPlane *plane = plane_of(db);

	SpinLockAcquire(&plane->mutex);
	memset(&plane->view, 0, sizeof(ShardPlaneView));
	pg_atomic_write_u64(&plane->lease, 0);
	plane->view.generation = pg_atomic_read_u32(&plane->generation) + 1;
	plane->first = plane->count = 0;
	forget_orders(&plane->orders);
	pg_atomic_write_u64(&plane->ordered, 0);
	SpinLockRelease(&plane->mutex);
	pg_atomic_write_u32(&plane->door, SHARD_PLANE_UNSAID);
	pg_atomic_fetch_add_u32(&plane->generation, 1);
}

/* ---- the view --------------------------------------------------------------------------------- */

void
shard_plane_get(ShardDatabase *db, ShardPlaneView *view)
{
	ShardPlane *plane;

	if (db == NULL)
	{
		memset(view, 0, sizeof(ShardPlaneView));
		return;
	}
	plane = plane_of(db);
	SpinLockAcquire(&plane->mutex);
	*view = plane->view;
	SpinLockRelease(&plane->mutex);
}

uint32
shard_plane_generation(ShardDatabase *db)
{
	return pg_atomic_read_u32(&plane_of(db)->generation);
}

int64
shard_plane_lease(ShardDatabase *db)
{
	uint64 until = pg_atomic_read_u64(&plane_of(db)->lease);

	return until == 0 ? PG_INT64_MAX : (int64) until;
}

/*
 * Whether two views differ in more than what may change without anybody's notice.
 */
static bool
differs(const ShardPlaneView *a, const ShardPlaneView *b)
{
	return a->known != b->known || a->handle != b->handle || a->push != b->push ||
		   a->fenced != b->fenced || a->downed != b->downed || a->node != b->node ||
		   a->inc_no != b->inc_no || !shard_record_uuid_equal(a->incarnation, b->incarnation) ||
		   !shard_record_uuid_equal(a->cluster, b->cluster) || a->era != b->era ||
		   a->coordinator != b->coordinator || a->gate != b->gate || a->members != b->members ||
		   a->leased != b->leased || strcmp(a->why, b->why) != 0;
}

void
shard_plane_set(ShardDatabase *db, const ShardPlaneView *view)
{
	ShardPlane *plane = plane_of(db);
	uint32 generation;
	bool changed;

	SpinLockAcquire(&plane->mutex);
	generation = plane->view.generation;
	changed = differs(&plane->view, view);
	plane->view = *view;
	plane->view.generation = changed ? generation + 1 : generation;
	pg_atomic_write_u64(&plane->lease, view->leased ? (uint64) Max(view->lease_until, 1) : 0);
	SpinLockRelease(&plane->mutex);

	if (!changed)
		return;
	pg_atomic_write_u32(&plane->generation, generation + 1);
	shard_shmem_wake_region(db);
}

void
shard_plane_close(ShardDatabase *db, ShardPlaneDoor door)
{
	pg_atomic_write_u32(&plane_of(db)->door, door);
}

/* Why nobody may send here, by door. */
static const struct
{
	const char *message;
	const char *detail;
	const char *hint;
} door_errors[] = {
	[SHARD_PLANE_JOINING] =
		{"this node is joining a cluster and takes no messages",
		 "Its entity types are about to get the cluster's numbers, or it enters an era "
		 "that forced voters have begun.",
		 "Try again in a moment, or when shard_join() has returned."},
	[SHARD_PLANE_FENCED] = {"this node is fenced and takes no messages",
							"Another incarnation of it lives.",
							"Send at another member. What is here can be read; to work on its own, "
							"drop and create the extension."},
	[SHARD_PLANE_WRITTEN_OFF] =
		{"this node was written off and takes no messages",
		 "Its shards begin empty at other members; what is here can be read.",
		 "Send at another member. When nothing of what is here is wanted any "
		 "more, drop the extension or the database; or make it a node of its own with "
		 "shard_reset_cluster_data(force => true)."},
	[SHARD_PLANE_LEAVING] = {"this node is leaving its cluster and takes no messages",
							 "Its shards live at other members already.",
							 "Send at another member."},
	[SHARD_PLANE_LEFT] =
		{"this node has left its cluster and takes no messages",
		 "Its shards live at other members.",
		 "Send at one of them. Here, drop the extension or the database; an extension "
		 "that is created anew is a node of its own."},
	[SHARD_PLANE_JOURNAL] = {"this database is a journal and takes no messages",
							 "It keeps the map of a cluster, and is no member.",
							 "Send at a member of the cluster."},
	[SHARD_PLANE_DOWNED] = {
		"this node was downed and takes no messages", "Its shards wait for it, with all they have.",
		"Send at another member. It comes back when its server is restarted, or by "
		"shard_admit() here; see shard_health()."}};

void
shard_plane_refuse(ShardPlaneDoor door)
{
	ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
					errmsg_internal("%s", door_errors[door].message),
					errdetail_internal("%s", door_errors[door].detail),
					errhint("%s", door_errors[door].hint)));
}

bool
shard_plane_check_open(void)
{
	ShardDatabase *db = shard_shmem_database();
	uint32 door = db == NULL ? SHARD_PLANE_UNSAID : pg_atomic_read_u32(&plane_of(db)->door);

	if (likely(door == SHARD_PLANE_OPEN))
		return true;
	if (door != SHARD_PLANE_UNSAID)
		shard_plane_refuse(door);
	return false;
}

uint32
shard_plane_directory(ShardDatabase *db)
{
	return pg_atomic_read_u32(&plane_of(db)->directory);
}

void
shard_plane_directory_changed(ShardDatabase *db)
{
	pg_atomic_fetch_add_u32(&plane_of(db)->directory, 1);
}

uint32
shard_plane_returns(ShardDatabase *db)
{
	return pg_atomic_read_u32(&plane_of(db)->returns);
}

void
shard_plane_returned(ShardDatabase *db)
{
	pg_atomic_fetch_add_u32(&plane_of(db)->returns, 1);
	shard_shmem_wake_region(db);
}

/* ---- events ----------------------------------------------------------------------------------- */

bool
shard_plane_report(ShardDatabase *db, const ShardPlaneEvent *event)
{
	ShardPlane *plane = plane_of(db);
	bool taken;

	SpinLockAcquire(&plane->mutex);
	taken = plane->count < QUEUE_SIZE;
	if (taken)
		plane->queue[(plane->first + plane->count++) % QUEUE_SIZE] = *event;
	SpinLockRelease(&plane->mutex);
	shard_shmem_wake_worker(db, SHARD_COORDINATOR);
	return taken;
}

int
shard_plane_take(ShardDatabase *db, ShardPlaneEvent *events, int most)
{
	ShardPlane *plane = plane_of(db);
	int taken;

	SpinLockAcquire(&plane->mutex);
	taken = Min(plane->count, most);
	for (int i = 0; i < taken; i++)
		events[i] = plane->queue[(plane->first + i) % QUEUE_SIZE];
	plane->first = (plane->first + taken) % QUEUE_SIZE;
	plane->count -= taken;
	SpinLockRelease(&plane->mutex);
	return taken;
}

/* ---- orders ----------------------------------------------------------------------------------- */

/*
 * Whether the same order waits already: it is repeated as long as nobody has carried it out. *count: how many
 * wait for the lane, if not.
 */
static bool
is_ordered(const ShardOrders *orders, int lane, const ShardPlaneOrder *order, int *count)
{
	*count = 0;
	for (int at = orders->first[lane]; at >= 0; at = orders->list[at].next)
	{
		const ShardPlaneOrder *other = &orders->list[at].order;

		if (other->kind == order->kind && other->shard.type_id == order->shard.type_id &&
			other->shard.shard == order->shard.shard && other->shard.epoch == order->shard.epoch &&
			other->shard.move_id == order->shard.move_id)
			return true;
		(*count)++;
	}
	return false;
}

/* Whether there is room for an order of a group: its own, or what nobody has a right to. */
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
put_order(ShardOrders *orders, int lane, const ShardPlaneOrder *order)
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
static ShardPlaneOrder
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
shard_plane_order(ShardDatabase *db, const ShardPlaneOrder *order)
{
	ShardPlane *plane = plane_of(db);
	int lane = shard_message_lane(order->shard.type_id, order->shard.shard);
	int count;
	bool taken;

	SpinLockAcquire(&plane->mutex);
	taken = is_ordered(&plane->orders, lane, order, &count);
	if (!taken && count < LANE_ORDERS && has_room(&plane->orders, lane / SHARD_GROUP_LANES))
	{
		put_order(&plane->orders, lane, order);
		pg_atomic_fetch_or_u64(&plane->ordered, (int64) shard_lane_bit(lane));
		taken = true;
	}
	SpinLockRelease(&plane->mutex);
	shard_shmem_wake_worker(db, shard_shmem_lane_worker(db, lane));
	return taken;
}

bool
shard_plane_is_ordered(ShardDatabase *db, ShardLanes lanes)
{
	return (pg_atomic_read_u64(&plane_of(db)->ordered) & lanes) != 0;
}

int
shard_plane_take_orders(ShardDatabase *db, ShardLanes lanes, ShardPlaneOrder *orders, int most)
{
	ShardPlane *plane = plane_of(db);
	int taken = 0;

	/* whoever gives one wakes the worker after it */
	if (!shard_plane_is_ordered(db, lanes))
		return 0;
	SpinLockAcquire(&plane->mutex);
	lanes &= pg_atomic_read_u64(&plane->ordered);
	shard_each_lane (lane, lanes)
	{
		while (plane->orders.first[lane] >= 0 && taken < most)
			orders[taken++] = take_order(&plane->orders, lane);
		if (plane->orders.first[lane] < 0)
			pg_atomic_fetch_and_u64(&plane->ordered, (int64) ~shard_lane_bit(lane));
	}
	SpinLockRelease(&plane->mutex);
	return taken;
}

/*
 * Transaction callback.
 */
static void
wake_at_commit(XactEvent event, void *arg)
{
	ShardDatabase *db = shard_shmem_database();

	if (!types_change)
		return;
	if (event == XACT_EVENT_COMMIT && db != NULL)
	{
		pg_atomic_fetch_add_u32(&plane_of(db)->types, 1);
		shard_shmem_wake_worker(db, SHARD_COORDINATOR);
	}
	if (event == XACT_EVENT_COMMIT || event == XACT_EVENT_ABORT || event == XACT_EVENT_PREPARE)
		types_change = false;
}

void
shard_plane_types_change(void)
{
	static bool registered = false;

	if (!registered)
		RegisterXactCallback(wake_at_commit, NULL);
	registered = true;
	types_change = true;
}

bool
shard_plane_types_changing(void)
{
	return types_change;
}

uint32
shard_plane_types(ShardDatabase *db)
{
	return pg_atomic_read_u32(&plane_of(db)->types);
}

/* ---- numbers and clock ------------------------------------------------------------------------ */

int64
shard_plane_last_rseq(ShardDatabase *db, int lane, uint64 life, int32 inc_no)
{
	ShardPlane *plane = plane_of(db);
	int64 last = (int64) pg_atomic_read_u64(&plane->rseq[lane]);

	if (pg_atomic_read_u64(&plane->life[lane]) != life)
		last = 0;
	return Max(last, SHARD_FIRST_RSEQ(inc_no));
}

int64
shard_plane_next_rseq(ShardDatabase *db, int lane, uint64 life, int32 inc_no)
{
	ShardPlane *plane = plane_of(db);
	int64 next = shard_plane_last_rseq(db, lane, life, inc_no) + 1;

	pg_atomic_write_u64(&plane->life[lane], life);
	pg_atomic_write_u64(&plane->rseq[lane], (uint64) next);
	return next;
}

int64
shard_plane_now(void)
{
	struct timespec now;

	(void) clock_gettime(CLOCK_BOOTTIME, &now);
	return (int64) now.tv_sec * INT64CONST(1000000) + now.tv_nsec / 1000;
}

/* ---- the incarnation -------------------------------------------------------------------------- */

bool
shard_plane_incarnation(ShardDatabase *db, Oid extension, ShardUuid *incarnation,
						ShardStartKind *kind)
{
	ShardPlane *plane = plane_of(db);
	bool known;

	SpinLockAcquire(&plane->mutex);
	known = plane->extension == extension;
	*incarnation = plane->incarnation;
	*kind = plane->kind;
	SpinLockRelease(&plane->mutex);
	return known;
}

void
shard_plane_keep(ShardDatabase *db, Oid extension, ShardUuid incarnation, ShardStartKind kind)
{
	ShardPlane *plane = plane_of(db);

	SpinLockAcquire(&plane->mutex);
	plane->extension = extension;
	plane->incarnation = incarnation;
	plane->kind = kind;
	SpinLockRelease(&plane->mutex);
}

uint64
shard_plane_secret(ShardDatabase *db)
{
	return plane_of(db)->secret;
}
