/*
 * plane_end.c
 *		What is undone, and whether everything is where it must be at the end.
 */
#include "plane_private.h"

typedef struct Undone
{
	int count;
	size_t size;
	size_t length;
	char *text;
} Undone;

static void add_undone(Undone *undone, const char *format, ...) pg_attribute_printf(2, 3);

static void
add_undone(Undone *undone, const char *format, ...)
{
	va_list args;

	undone->count++;
	if (undone->text == NULL || undone->length + 2 >= undone->size)
		return;
	va_start(args, format);
	undone->length +=
		vsnprintf(undone->text + undone->length, undone->size - undone->length, format, args);
	va_end(args);
	undone->length = Min(undone->length, undone->size - 1);
}

/* A row of the log that no cursor has passed, or that an open sender left. */
static bool
is_unread(Plane *plane, const PlaneRow *row, int64 seq)
{
	int lane = row->kind == ROW_FLOOR ? row->item.stamp.b
									  : plane_lane(plane, row->item.type_id, row->item.shard);
	const CursorRow *cursor = store_get(plane->store, NULL, T_CURSOR, KEY(lane));

	if (cursor == NULL || seq > cursor->q)
		return true;
	for (int i = 0; i < cursor->n_senders; i++)
	{
		if (cursor->senders[i].xid == row->xid && seq >= cursor->senders[i].first)
			return true;
	}
	return false;
}

/* Does this row of an outbox still count, as its origin knows? */
static bool
is_undone(Plane *plane, const PlaneRow *row)
{
	int lane = plane_lane(plane, row->item.type_id, row->item.shard);
	int owner = plane->owner[lane];

	if (row->kind != ROW_TELL)
		return false;
	if (owner < 0)
		return true;
	return shard_route_kept(shard_route_get(plane->workers[owner].routes, row->item.type_id,
											row->item.shard),
							&row->item);
}

static void
look_at_log(Plane *plane, Undone *undone)
{
	StoreKey key = KEY(0);
	const PlaneRow *row;

	while ((row = store_at_or_next(plane->store, NULL, T_INBOX, &key)) != NULL)
	{
		if ((row->kind == ROW_TELL || row->kind == ROW_FACT) && is_unread(plane, row, key.k[0]))
			add_undone(undone, "inbox %d/%d id " INT64_FORMAT "; ", row->item.type_id,
					   row->item.shard, row->id);
		key.k[3]++;
	}
}

static void
look_at_rows(Plane *plane, Undone *undone)
{
	static const int tables[] = {T_OUTBOX, T_KEPT, T_PARKED};
	static const char *const names[] = {"outbox", "kept", "parked"};

	for (int i = 0; i < (int) lengthof(tables); i++)
	{
		StoreKey key = KEY(PG_INT64_MIN, PG_INT64_MIN);
		const PlaneRow *row;

		while ((row = store_at_or_next(plane->store, NULL, tables[i], &key)) != NULL)
		{
			if (tables[i] == T_PARKED || is_undone(plane, row))
				add_undone(undone,
						   "%s %d/%d id " INT64_FORMAT " tag %d rseq " INT64_FORMAT
						   " (key " INT64_FORMAT " " INT64_FORMAT " " INT64_FORMAT "); ",
						   names[i], row->item.type_id, row->item.shard, row->id, row->item.epoch,
						   row->item.stamp.seq, key.k[0], key.k[1], key.k[2]);
			key.k[3]++;
		}
	}
}

/*
 * Messages that wait for lower numbers; for a gap that will be given up, or while nothing else can come
 * between: then they may well wait for ever.
 */
static void
look_at_orders(Plane *plane, Undone *undone)
{
	StoreKey key = KEY(PG_INT64_MIN, PG_INT64_MIN, PG_INT64_MIN);

	while (store_at_or_next(plane->store, NULL, T_WAITING, &key) != NULL)
	{
		int32 type_id = (int32) (key.k[0] >> 32);
		int32 shard = (int32) key.k[0];
		const OrderedRow *row = store_get(plane->store, NULL, T_ORDERED, KEY(key.k[0], key.k[1]));

		if (plane->settings.ordered_timeout < PLANE_NO_TIMEOUT || row == NULL ||
			row->expected >= key.k[2] || plane->settings.ordered_no_more ||
			plane_active_epoch(plane, type_id, shard) < 0)
			add_undone(undone,
					   "number " INT64_FORMAT " waits of %d/%d, where " INT64_FORMAT
					   " is expected; ",
					   key.k[2], type_id, shard, row != NULL ? row->expected : 0);
		key = KEY(key.k[0], key.k[1] + 1, PG_INT64_MIN);
	}
}

/* Rows of shards that live elsewhere: all of them go, some time (M7, M23). */
static void
look_at_leftovers(Plane *plane, Undone *undone)
{
	StoreKey key = KEY(PG_INT64_MIN, PG_INT64_MIN);
	const ShardOwn *own;

	while ((own = store_at_or_next(plane->store, NULL, T_OWN, &key)) != NULL)
	{
		const RouteRow *route = store_get(plane->store, NULL, T_ROUTE, KEY(key.k[0], key.k[1]));

		if (route != NULL &&
			shard_handoff_delete(own, own->epoch, plane->node, route->node, route->epoch))
			add_undone(undone, "rows of %lld/%lld are left, %s(%d); ", (long long) key.k[0],
					   (long long) key.k[1], shard_home_machine.state_names[own->state],
					   own->epoch);
		key.k[3]++;
	}
}

static void
look_at_stash(Plane *plane, Undone *undone)
{
	StoreKey key = KEY(PG_INT64_MIN, PG_INT64_MIN);
	const StashRow *stash;

	while ((stash = store_at_or_next(plane->store, NULL, T_STASH, &key)) != NULL)
	{
		int32 type_id = stash->row.item.type_id;
		int32 shard = stash->row.item.shard;
		const ShardOwn *own = store_get(plane->store, NULL, T_OWN, KEY(type_id, shard));
		int state = own != NULL ? own->state : SHARD_HOME_NONE;

		add_undone(undone, "stash %d/%d %s(%d) id " INT64_FORMAT "; ", type_id, shard,
				   shard_home_machine.state_names[state], own != NULL ? own->epoch : 0,
				   stash->row.id);
		key.k[3]++;
	}
}

int
plane_pending(Plane *plane, char *text, size_t size)
{
	Undone undone = {.text = text, .size = size};

	if (text != NULL)
		text[0] = '\0';
	if (!plane->up)
		return 1;
	look_at_log(plane, &undone);
	look_at_rows(plane, &undone);
	look_at_stash(plane, &undone);
	look_at_orders(plane, &undone);
	look_at_leftovers(plane, &undone);
	for (int i = 0; i < MAX_OPERATIONS; i++)
	{
		if (plane->operations[i].kind != OP_NONE)
			add_undone(&undone, "operation %d on %d/%d; ", plane->operations[i].kind,
					   plane->operations[i].ref.type_id, plane->operations[i].ref.shard);
	}
	for (int i = 0; i < plane->n_facts; i++)
		add_undone(&undone, "fact; ");
	for (int i = 0; i < plane->n_releases; i++)
		add_undone(&undone, "gate %d; ", plane->releases[i].kind);
	for (int i = 0; i < PLANE_SESSIONS; i++)
	{
		if (plane->sessions[i].tx != NULL || plane->sessions[i].waits)
			add_undone(&undone, "session %d; ", i);
	}
	return undone.count;
}

bool
plane_is_empty(Plane *plane)
{
	StoreKey key = KEY(PG_INT64_MIN, PG_INT64_MIN);

#ifdef SHARD_MUTANT_LEAVES_MESSAGES
	return store_at_or_next(plane->store, NULL, T_OWN, &key) == NULL;
#endif
	return plane_running(plane) && plane_pending(plane, NULL, 0) == 0 &&
		   store_at_or_next(plane->store, NULL, T_OWN, &key) == NULL;
}

bool
plane_midway(const Plane *plane, int process)
{
	if (process < PLANE_WORKERS)
		return plane->workers[process].phase != TURN_NONE;
	return process < PLANE_KEEPER && plane->backends[process - PLANE_WORKERS].state != BACKEND_FREE;
}

int32
plane_active_epoch(Plane *plane, int32 type_id, int32 shard)
{
	const ShardOwn *own = store_get(plane->store, NULL, T_OWN, KEY(type_id, shard));

	return own != NULL && own->state == SHARD_HOME_ACTIVE ? own->epoch : -1;
}

/* Everything that waits somewhere in a database, and every effect in a shard that is active there. */
static void
look_into(Plane *plane, Check *check)
{
	static const int tables[] = {T_OUTBOX, T_KEPT, T_PARKED, T_DEAD};
	StoreKey key = KEY(0);
	const PlaneRow *row;
	const StashRow *stash;
	const int64 *id;

	while ((row = store_at_or_next(plane->store, NULL, T_INBOX, &key)) != NULL)
	{
		if (row->kind == ROW_TELL && is_unread(plane, row, key.k[0]))
			check_seen_waiting(check, row->id);
		key.k[3]++;
	}
	for (int i = 0; i < (int) lengthof(tables); i++)
	{
		key = KEY(PG_INT64_MIN, PG_INT64_MIN);
		while ((row = store_at_or_next(plane->store, NULL, tables[i], &key)) != NULL)
		{
			check_seen_waiting(check, row->id);
			key.k[3]++;
		}
	}
	for (int table = T_STASH; table <= T_WAITING; table++)
	{
		key = KEY(PG_INT64_MIN, PG_INT64_MIN);
		while ((stash = store_at_or_next(plane->store, NULL, table, &key)) != NULL)
		{
			check_seen_waiting(check, stash->row.id);
			key.k[3]++;
		}
	}
	key = KEY(PG_INT64_MIN, PG_INT64_MIN);
	while ((id = store_at_or_next(plane->store, NULL, T_LEDGER, &key)) != NULL)
	{
		if (plane_active_epoch(plane, (int32) (key.k[0] >> 32), (int32) key.k[0]) >= 0)
			check_seen_effect(check, *id);
		key.k[3]++;
	}
}

int
plane_wrong(const Plane *plane)
{
	return plane->wrong;
}

/* Of a kept item of this origin there is one row that counts (V7). */
void
plane_check_places(Plane *plane)
{
	static const int tables[] = {T_OUTBOX, T_KEPT, T_PARKED};
	int64 seen[256];
	int n = 0;

	for (int i = 0; i < PLANE_WORKERS; i++)
	{
		if (plane->workers[i].phase != TURN_NONE)
			return;
	}
	for (int i = 0; i < (int) lengthof(tables); i++)
	{
		StoreKey key = KEY(PG_INT64_MIN, PG_INT64_MIN);
		const PlaneRow *row;

		while ((row = store_at_or_next(plane->store, NULL, tables[i], &key)) != NULL)
		{
			key.k[3]++;
			if (plane->owner[plane_lane(plane, row->item.type_id, row->item.shard)] < 0 ||
				(tables[i] != T_PARKED && !is_undone(plane, row)))
				continue;
			for (int j = 0; j < n && !plane->retired; j++)
			{
				if (seen[j] == row->id)
					check_fail(plane->check,
							   "V7: message " INT64_FORMAT " is kept twice by node %d", row->id,
							   plane->node);
			}
			if (n < (int) lengthof(seen))
				seen[n++] = row->id;
		}
	}
}

void
plane_strand(Plane *plane)
{
	const StashRow *stash;

	for (int table = T_STASH; table <= T_WAITING; table++)
	{
		StoreKey key = KEY(PG_INT64_MIN, PG_INT64_MIN);

		while ((stash = store_at_or_next(plane->store, NULL, table, &key)) != NULL)
		{
			check_stranded(plane->check, stash->row.id);
			key.k[3]++;
		}
	}
}

/* V3: what is received was sent, what is acknowledged was received. */
static void
look_at_streams(Plane *origin, Plane *receiver, Check *check)
{
	for (int lane = 0; lane < PLANE_LANES; lane++)
	{
		const StreamRow *stream =
			store_get(origin->store, NULL, T_STREAM, KEY(lane, receiver->node));
		const ShardStreamPosition *position =
			store_get(receiver->store, NULL, T_POSITION, KEY(origin->node, lane));

		if (origin->copied || receiver->copied || stream == NULL || position == NULL ||
			stream->gen != position->gen)
			continue;
		if (position->seq > stream->last || stream->acked > position->seq)
			check_fail(check,
					   "V3: stream %d -> %d, lane %d: acknowledged " INT64_FORMAT
					   ", received " INT64_FORMAT ", last " INT64_FORMAT,
					   origin->node, receiver->node, lane, stream->acked, position->seq,
					   stream->last);
	}
}

void
plane_check_end(Plane *const *planes, int n_planes, Check *check)
{
	bool quarantined = check_any_excused(check);

	check_end_begin(check);
	for (int i = 0; i < n_planes; i++)
	{
		look_into(planes[i], check);
		quarantined |= plane_quarantined(planes[i]);
	}
	for (int i = 0; i < n_planes && !quarantined; i++)
	{
		for (int j = 0; j < n_planes; j++)
			look_at_streams(planes[i], planes[j], check);
	}
	check_end(check);
}
