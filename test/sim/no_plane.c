/*
 * no_plane.c
 *		A data plane without messages: ownership rows only, so that many more histories of the control
 *		plane fit into a minute.
 *
 * Stands in for plane.c in the program "control". Shards are stopped, sealed, copied and started by
 * the same functions of core/handoff.h, and each change is a transaction whose effects wait for the
 * gate; the copy itself is taken for granted.
 */
#include "plane.h"

#include "core/flow/handoff.h"

#define OWN_TABLE 0
#define NOTES 256

typedef struct OwnRow
{
	ShardOwn own;
	int64 n; /* of the fact that made it so */
	int32 known_node;
	int32 known_epoch;
	int32 doubt;
} OwnRow;

/* An event for the control plane that waits for the gate. */
typedef struct Note
{
	ShardNodeEventKind kind;
	ShardShardRef ref;
	int64 lsn;
} Note;

struct Plane
{
	PlaneHost host;
	Store *store;
	Check *check;
	PlaneSettings settings;
	int instance;
	bool retired;
	bool handles;
	int told;
	int n_notes;
	Note notes[NOTES];
};

Plane *
plane_create(const PlaneHost *host, Store *store, Check *check, int instance,
			 const PlaneSettings *settings)
{
	Plane *plane = palloc0(sizeof(Plane));

	plane->host = *host;
	plane->store = store;
	plane->check = check;
	plane->instance = instance;
	plane->settings = *settings;
	store_define(store, OWN_TABLE, "own", sizeof(OwnRow));
	return plane;
}

void
plane_destroy(Plane *plane)
{
	pfree(plane);
}

void
plane_retire(Plane *plane)
{
	plane->retired = true;
	check_replaced(plane->check, plane->instance);
}

void
plane_strand(Plane *plane)
{
}

PlaneSettings *
plane_settings(Plane *plane)
{
	return &plane->settings;
}

Store *
plane_store(Plane *plane)
{
	return plane->store;
}

static StoreKey
own_key(int32 type_id, int32 shard)
{
	return (StoreKey){{type_id, shard, 0, 0}};
}

static OwnRow
read_own(const Plane *plane, int32 type_id, int32 shard)
{
	const OwnRow *row = store_get(plane->store, NULL, OWN_TABLE, own_key(type_id, shard));
	OwnRow none = {0};

	return row ? *row : none;
}

/* Change a row in a transaction of its own; what follows from it is told after the gate. */
static bool
write_own(Plane *plane, const ShardShardRef *ref, const OwnRow *row, ShardNodeEventKind kind,
		  int32 lost)
{
	StoreTransaction *transaction = store_begin(plane->store);
	OwnRow before = read_own(plane, ref->type_id, ref->shard);
	int64 lsn;

	if (!store_put(transaction, OWN_TABLE, own_key(ref->type_id, ref->shard), row))
	{
		store_abort(transaction);
		return false;
	}
	lsn = store_commit(transaction);
	if (!plane->retired && memcmp(&before.own, &row->own, sizeof(ShardOwn)) != 0)
		check_owner(plane->check, plane->instance, ref->type_id, ref->shard, &before.own, &row->own,
					lost, plane->host.leased(plane->host.context, ref->type_id));
	if (kind != 0 && plane->n_notes < NOTES)
		plane->notes[plane->n_notes++] = (Note){kind, *ref, lsn};
	return true;
}

void
plane_start(Plane *plane, ShardStartKind kind, ShardUuid incarnation)
{
}

bool
plane_running(const Plane *plane)
{
	return plane->handles;
}

/* Rows that were not flushed are gone; the checkers see the others. */
void
plane_crash(Plane *plane)
{
	StoreKey key = {{PG_INT64_MIN, PG_INT64_MIN, PG_INT64_MIN, PG_INT64_MIN}};
	const OwnRow *row;

	store_crash(plane->store);
	plane->handles = false;
	plane->n_notes = 0;
	while (!plane->retired && (row = store_next(plane->store, NULL, OWN_TABLE, &key)) != NULL)
		check_owns(plane->check, plane->instance, (int32) key.k[0], (int32) key.k[1], &row->own);
}

static void
say(Plane *plane, ShardNodeEventKind kind, const ShardShardRef *ref)
{
	ShardNodeEvent event = {.kind = kind, .n_shards = 1, .shards = ref};

	plane->host.node_event(plane->host.context, &event);
}

/* Say it again, after the gate like the first time. */
static void
repeat(Plane *plane, ShardNodeEventKind kind, const ShardShardRef *ref)
{
	if (plane->n_notes < NOTES)
		plane->notes[plane->n_notes++] = (Note){kind, *ref, store_last_lsn(plane->store)};
}

/*
 * Rows that are left: those of a shard that begins anew are gone at once. A copy that is not needed any more
 * goes, too, or stays for the next one to find.
 */
static void
delete_left(OwnRow *row, int32 self)
{
	bool due = row->own.state == SHARD_HOME_CLEARING ||
			   (row->own.state == SHARD_HOME_STAGED && row->n % 2 == 0);

	if (due &&
		shard_handoff_delete(&row->own, row->own.epoch, self, row->known_node, row->known_epoch))
		(void) shard_handoff_step(&row->own, SHARD_HOME_DELETED, 0, 0);
}

/* See plane.h. */
void
plane_fact(Plane *plane, int32 type_id, int32 shard, const ShardHomeRecord *home, int64 n)
{
	OwnRow row = read_own(plane, type_id, shard);
	ShardShardRef ref = {type_id, shard, home->epoch, home->move_id};
	int32 self = plane->host.node(plane->host.context);
	ShardHomeEvent event;

	if (n <= row.n)
	{
		if (row.own.state == SHARD_HOME_ACTIVE && row.own.epoch == home->epoch)
			repeat(plane, SHARD_EVENT_SHARDS_STARTED, &ref);
		return;
	}
	if (shard_handoff_undone(row.known_node, row.known_epoch, home))
		row.doubt = home->epoch;
	/* T2: an equal epoch changes the version and nothing else. */
	event = row.n > 0 && home->epoch <= row.known_epoch
				? SHARD_HOME_NOTHING
				: shard_handoff_read(&row.own, self, home, row.doubt);
	row.n = n;
	row.known_node = shard_record_home_node(home);
	row.known_epoch = home->epoch;
	/*
	 * A node that was put back may lack what came to it since; the operator has to give that up. An old primary that
	 * thaws may learn what was decided of its node, and then only that it is not that any more, which may be in the same
	 * message: the shard was staged and began at its standby. It is right not to begin it here; and whatever it begins
	 * passes no gate, since the standby that would have to confirm it is a primary itself.
	 */
	if (event == SHARD_HOME_WRONG && !plane->retired && !check_any_excused(plane->check))
		check_fail(plane->check, "M6: shard %d/%d on %d: a decided home contradicts the row here",
				   type_id, shard, plane->instance);
	if (event != SHARD_HOME_NOTHING)
		(void) shard_handoff_step(&row.own, event, home->epoch, home->move_id);
	delete_left(&row, self);
	(void) write_own(plane, &ref, &row,
					 row.own.state == SHARD_HOME_ACTIVE && row.own.epoch == home->epoch
						 ? SHARD_EVENT_SHARDS_STARTED
						 : 0,
					 home->lost);
}

/* HandOff: stop and seal in one go, since no message is being handled. */
static void
stop(Plane *plane, const ShardShardRef *ref)
{
	OwnRow row = read_own(plane, ref->type_id, ref->shard);

	switch (shard_handoff_stop(&row.own, row.known_epoch, ref))
	{
		case SHARD_HANDOFF_DO:
			(void) shard_handoff_step(&row.own, SHARD_HOME_STOP, ref->epoch, ref->move_id);
			(void) shard_handoff_step(&row.own, SHARD_HOME_SEAL, ref->epoch, ref->move_id);
			(void) write_own(plane, ref, &row, SHARD_EVENT_SHARD_STOPPED, 0);
			break;
		case SHARD_HANDOFF_DONE:
			repeat(plane, SHARD_EVENT_SHARD_STOPPED, ref);
			break;
		case SHARD_HANDOFF_IGNORE:
			break;
	}
}

static void
import(Plane *plane, const ShardShardRef *ref)
{
	OwnRow row = read_own(plane, ref->type_id, ref->shard);

	switch (shard_handoff_import(&row.own, row.known_epoch, ref))
	{
		case SHARD_HANDOFF_DO:
			if (shard_handoff_step(&row.own, SHARD_HOME_IMPORT, ref->epoch, ref->move_id))
				(void) write_own(plane, ref, &row, SHARD_EVENT_STAGED, 0);
			break;
		case SHARD_HANDOFF_DONE:
			repeat(plane, SHARD_EVENT_STAGED, ref);
			break;
		case SHARD_HANDOFF_IGNORE:
			break;
	}
}

/* See plane.h. */
void
plane_action(Plane *plane, const ShardAction *action)
{
	ShardHomeRecord home;

	switch (action->kind)
	{
		case SHARD_ACTION_START_WORKERS:
			plane->handles = true;
			break;
		case SHARD_ACTION_STOP_WORKERS:
			plane->handles = false;
			break;
		case SHARD_ACTION_FACT:
			if (plane->handles && shard_record_get_home(action->entry, &home))
				plane_fact(plane, action->entry->key.a, action->entry->key.b, &home,
						   action->entry->n);
			break;
		case SHARD_ACTION_STOP_SHARD:
			if (plane->handles)
				stop(plane, &action->shard);
			break;
		case SHARD_ACTION_PREPARE_IMPORT:
			repeat(plane, SHARD_EVENT_IMPORT_READY, &action->shard);
			break;
		case SHARD_ACTION_IMPORT_SHARD:
			if (plane->handles)
				import(plane, &action->shard);
			break;
		default:
			break;
	}
}

void
plane_receive(Plane *plane, int32 from, const void *bytes, size_t length)
{
}

uint32
plane_ready(Plane *plane)
{
	bool unflushed =
		store_last_lsn(plane->store) > store_flushed(plane->store) && !store_full(plane->store);
	bool told = plane->n_notes > 0 && store_released(plane->store, plane->notes[0].lsn);

	return (unflushed ? 1U << PLANE_FLUSHER : 0) | (told ? 1U << PLANE_KEEPER : 0);
}

int64
plane_wake(Plane *plane)
{
	return PG_INT64_MAX;
}

bool
plane_step(Plane *plane, int process)
{
	if (process == PLANE_FLUSHER)
		store_flush(plane->store);
	else
	{
		Note note = plane->notes[0];

		plane->n_notes--;
		memmove(&plane->notes[0], &plane->notes[1], plane->n_notes * sizeof(Note));
		say(plane, note.kind, &note.ref);
	}
	return true;
}

/* A tell is no more than the wish to know a home. */
int64
plane_tell(Plane *plane, int session, int32 type_id, int32 shard, int32 entity)
{
	ShardShardRef ref = {type_id, shard, 0, 0};

	if (plane->handles && read_own(plane, type_id, shard).n == 0)
		say(plane, SHARD_EVENT_HOMES_WANTED, &ref);
	return ++plane->told;
}

void
plane_redrive(Plane *plane, int session)
{
}

bool
plane_session_open(const Plane *plane, int session)
{
	return false;
}

bool
plane_session_idle(const Plane *plane, int session)
{
	return true;
}

void
plane_commit(Plane *plane, int session)
{
}

void
plane_rollback(Plane *plane, int session)
{
}

void
plane_link_accept(Plane *plane, int32 peer)
{
}

int
plane_pending(Plane *plane, char *text, size_t size)
{
	if (plane->n_notes > 0 && text)
		snprintf(text, size, "%d answers wait", plane->n_notes);
	return plane->n_notes;
}

/* What was copied elsewhere, or for a move that was aborted, is left where it is, here. */
bool
plane_is_empty(Plane *plane)
{
	StoreKey key = {{PG_INT64_MIN, PG_INT64_MIN, PG_INT64_MIN, PG_INT64_MIN}};
	int32 self = plane->host.node(plane->host.context);
	const OwnRow *row;

	while ((row = store_next(plane->store, NULL, OWN_TABLE, &key)) != NULL)
	{
		if (row->own.state != SHARD_HOME_NONE && row->own.state != SHARD_HOME_SEALED &&
			!shard_handoff_delete(&row->own, row->own.epoch, self, row->known_node,
								  row->known_epoch))
			return false;
	}
	return plane->n_notes == 0;
}

bool
plane_midway(const Plane *plane pg_attribute_unused(), int process pg_attribute_unused())
{
	return false;
}

int32
plane_active_epoch(Plane *plane, int32 type_id, int32 shard)
{
	OwnRow row = read_own(plane, type_id, shard);

	return row.own.state == SHARD_HOME_ACTIVE ? row.own.epoch : -1;
}

bool
plane_quarantined(Plane *plane)
{
	return false;
}

void
plane_check_end(Plane *const *planes, int n_planes, Check *check)
{
}
