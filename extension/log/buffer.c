/*
 * log/buffer.c
 *		buffer_size: how many messages of a type that cannot be handled now this node keeps (D11).
 *
 * The counter is kept by the workers, after their commits. A full buffer refuses what would go into it, and
 * nothing else: a message for an entity that can be handled, here or at a node that can be reached, needs
 * no room in it. What that depends on is read when a buffer is full, and not before.
 */
#include "postgres.h"

#include "access/xact.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "nodes/pg_list.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/snapmgr.h"
#include "utils/timestamp.h"

#include "log/buffer.h"
#include "catalog/pg_type.h"
#include "core/base/message.h"
#include "shared/board.h"
#include "registry/security.h"
#include "shared/shmem.h"
#include "registry/statement.h"
#include "core/base/division.h"

#include "base/compat.h"

/* How often buffers are looked at for the log. */
#define LOOK_MS 500

/* How often the server's log tells of messages that wait for types that were dropped here. */
#define TELL_MS 60000

/* Of an entity and its shard: whether messages wait, whether the shard is active here, and its home as known. */
static ShardStatement look = {
	"SELECT EXISTS (SELECT FROM shard.held h WHERE h.type_id = $1 AND h.shard = $2 AND h.entity = $3)"
	" AND NOT EXISTS (SELECT FROM shard.backup_here b WHERE b.type_id = $1 AND b.shard = $2)"
	" OR EXISTS (SELECT FROM shard.parked p WHERE p.type_id = $1 AND p.shard = $2 AND p.turn IS NULL),"
	" (SELECT o.state = 'active' FROM shard.own o WHERE o.type_id = $1 AND o.shard = $2),"
	" (SELECT r.node FROM shard.route r WHERE r.type_id = $1 AND r.shard = $2)",
	3,
	{INT4OID, INT4OID, TEXTOID}};

int64
shard_buffer_held(ShardType *type)
{
	return shard_shmem_held(&type->counter, MyDatabaseId, type->type_id);
}

int64
shard_buffer_enter(ShardType *type)
{
	if (!shard_shmem_is_counter(type->counter, MyDatabaseId, type->type_id))
		type->counter = shard_shmem_type_counter(MyDatabaseId, type->type_id);
	return (int64) pg_atomic_read_u64(&type->counter->held);
}

static bool
is_away(int32 node)
{
	ShardDatabase *db = shard_shmem_database();

	return db == NULL || pg_atomic_read_u32(&db->away[node % SHARD_AWAY_COUNTERS]) != 0;
}

void
shard_buffer_away(int32 node, bool away)
{
	ShardDatabase *db = shard_shmem_database();

	if (db != NULL)
		pg_atomic_fetch_add_u32(&db->away[node % SHARD_AWAY_COUNTERS], away ? 1 : -1);
}

/* Whether the type's owner has no worker yet and waits for one. */
static bool
has_no_worker(int32 type_id, int32 shard)
{
	const ShardDatabase *db = shard_shmem_database();

	return db != NULL &&
		   shard_division_is_keeper(&db->division,
									shard_shmem_lane_worker(db,
															shard_message_lane(type_id, shard)));
}

/* The type's counter, if it has one. */
static ShardTypeCounter *
counter_of(const ShardType *type)
{
	return shard_shmem_is_counter(type->counter, MyDatabaseId, type->type_id) ? type->counter
																			  : NULL;
}

static bool
is_aside(const ShardType *type)
{
	ShardTypeCounter *counter = counter_of(type);

	return counter != NULL && pg_atomic_read_u32(&counter->aside) != 0;
}

void
shard_buffer_put_aside(ShardType *type)
{
	ShardTypeCounter *counter = shard_shmem_type_counter(MyDatabaseId, type->type_id);

	type->counter = counter;
	pg_atomic_write_u32(&counter->aside, 1);
}

void
shard_buffer_catch_up(ShardType *type)
{
	ShardTypeCounter *counter = counter_of(type);

	if (counter != NULL && pg_atomic_read_u32(&counter->aside) != 0 && !shard_buffer_is_half(type))
		pg_atomic_write_u32(&counter->aside, 0);
}

bool
shard_buffer_takes(const ShardType *type, int32 shard, const char *entity, int len)
{
	ShardArguments arguments = {0};
	ShardSecurity security = {0};
	ShardBoardView view;
	bool waits;
	bool active;
	bool no_own;
	bool isnull;
	int32 node;

	shard_board_get(shard_shmem_database(), &view);
	PushActiveSnapshot(GetLatestSnapshot());
	shard_security_begin_system(&security);
	SPI_connect();
	shard_statement_add(&arguments, Int32GetDatum(type->type_id), false);
	shard_statement_add(&arguments, Int32GetDatum(shard), false);
	shard_statement_add_text(&arguments, entity, len);
	shard_statement_run(&look, &arguments, SPI_OK_SELECT);
	waits = DatumGetBool(shard_statement_column(0, 1, &isnull));
	active = DatumGetBool(shard_statement_column(0, 2, &no_own));
	node = shard_statement_int4(0, 3);
	SPI_finish();
	shard_security_end(&security);
	PopActiveSnapshot();

	if (waits)
		return true;
	if (!no_own && active)
		return type->mode != SHARD_MODE_HOSTING || type->problem != NULL || !view.handle ||
			   has_no_worker(type->type_id, shard) || is_aside(type);
	return node == 0 || node == view.node || is_away(node);
}

bool
shard_buffer_is_half(ShardType *type)
{
	return type->buffer_size > 1 && shard_buffer_held(type) >= (type->buffer_size + 1) / 2;
}

void
shard_buffer_free_counters(void)
{
	ShardTypeCounter *counters[SHARD_TYPE_COUNTERS];
	int64 held[SHARD_TYPE_COUNTERS];
	int count = shard_shmem_list_counters(MyDatabaseId, counters, held);
	bool reloaded = false;

	for (int i = 0; i < count; i++)
	{
		int32 type_id = counters[i]->type_id;

		if (shard_registry_known(type_id) != NULL)
			continue;
		if (!reloaded)
			shard_registry_reload();
		reloaded = true;
		if (shard_registry_known(type_id) == NULL)
			shard_shmem_free_counter(counters[i], MyDatabaseId, type_id, held[i]);
	}
}

static void
warn_of_type(ShardType *type, void *arg)
{
	List **warned = arg;

	if (!shard_buffer_is_half(type))
	{
		/* Not at each message around the middle. */
		if (shard_buffer_held(type) < type->buffer_size / 4)
			*warned = list_delete_int(*warned, type->type_id);
		return;
	}
	if (list_member_int(*warned, type->type_id))
		return;
	*warned = lappend_int(*warned, type->type_id);
	ereport(WARNING,
			(errcode(ERRCODE_CONFIGURATION_LIMIT_EXCEEDED),
			 errmsg("the buffer of entity type \"%s\" is half full", type->name),
			 errdetail(INT64_FORMAT " messages cannot be handled now, buffer_size is " INT64_FORMAT
									".",
					   shard_buffer_held(type), type->buffer_size),
			 errhint("At buffer_size senders of such messages get an error. See shard_health() for "
					 "what they wait for.")));
}

static void
tell_dropped(ShardType *type, void *arg)
{
	int64 held = shard_buffer_held(type);
	bool *told = arg;

	if (held <= 0)
		return;
	*told = true;
	ereport(
		WARNING,
		(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
		 errmsg("messages wait for entity type \"%s\", which was dropped on this node", type->name),
		 errdetail("There are " INT64_FORMAT " such messages, parked ones included.", held),
		 errhint("Shards of the type that are here move with their messages to members that host "
				 "the type, if there are any; after shard_start() for the type here, the "
				 "messages are handled here.")));
}

/* Says what waits for types that were dropped here, but may run elsewhere (D28). */
static void
tell_of_dropped(TimestampTz now)
{
	static TimestampTz told_at = 0;
	bool told = false;

	if (told_at != 0 && !TimestampDifferenceExceeds(told_at, now, TELL_MS))
		return;
	shard_registry_each_dropped(tell_dropped, &told);
	if (told)
		told_at = now;
}

void
shard_buffer_warn(void)
{
	static List *warned = NIL;
	static TimestampTz last = 0;
	TimestampTz now = GetCurrentTransactionStartTimestamp();
	MemoryContext old;

	if (!TimestampDifferenceExceeds(last, now, LOOK_MS))
		return;
	last = now;
	old = MemoryContextSwitchTo(TopMemoryContext);
	shard_registry_each(warn_of_type, &warned);
	MemoryContextSwitchTo(old);
	tell_of_dropped(now);
}
