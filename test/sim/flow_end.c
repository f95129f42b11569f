/*
 * flow_end.c
 *		What is undone, and whether everything is where it must be at the end.
 */
#include "flow_private.h"

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
is_unread(Flow *flow, const FlowRow *row, int64 seq)
{
	int lane = row->kind == ROW_FLOOR ? row->item.stamp.b
									  : flow_lane(flow, row->item.type_id, row->item.shard);
	const CursorRow *cursor = store_get(flow->store, NULL, T_CURSOR, KEY(lane));

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
is_undone(Flow *flow, const FlowRow *row)
{
	int lane = flow_lane(flow, row->item.type_id, row->item.shard);
	int owner = flow->owner[lane];

	if (row->kind != ROW_TELL)
		return false;
	if (owner < 0)
		return true;
	return shard_route_kept(shard_route_get(flow->workers[owner].routes, row->item.type_id,
											row->item.shard),
							&row->item);
}

static void
look_at_log(Flow *flow, Undone *undone)
{
	StoreKey key = KEY(0);
	const FlowRow *row;

	while ((row = store_at_or_next(flow->store, NULL, T_INBOX, &key)) != NULL)
	{
		if ((row->kind == ROW_TELL || row->kind == ROW_FACT) && is_unread(flow, row, key.k[0]))
			add_undone(undone, "inbox %d/%d id " INT64_FORMAT "; ", row->item.type_id,
					   row->item.shard, row->id);
		key.k[3]++;
	}
}

static void
look_at_rows(Flow *flow, Undone *undone)
{
	static const int tables[] = {T_OUTBOX, T_KEPT, T_PARKED};
	static const char *const names[] = {"outbox", "kept", "parked"};

	for (int i = 0; i < (int) lengthof(tables); i++)
	{
		StoreKey key = KEY(PG_INT64_MIN, PG_INT64_MIN);
		const FlowRow *row;

		while ((row = store_at_or_next(flow->store, NULL, tables[i], &key)) != NULL)
		{
			if (tables[i] == T_PARKED || is_undone(flow, row))
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
look_at_orders(Flow *flow, Undone *undone)
{
	StoreKey key = KEY(PG_INT64_MIN, PG_INT64_MIN, PG_INT64_MIN);

	while (store_at_or_next(flow->store, NULL, T_WAITING, &key) != NULL)
	{
		int32 type_id = (int32) (key.k[0] >> 32);
		int32 shard = (int32) key.k[0];
		const OrderedRow *row = store_get(flow->store, NULL, T_ORDERED, KEY(key.k[0], key.k[1]));

		if (flow->settings.ordered_timeout < FLOW_NO_TIMEOUT || row == NULL ||
			row->expected >= key.k[2] || flow->settings.ordered_no_more ||
			flow_active_epoch(flow, type_id, shard) < 0)
			add_undone(undone,
					   "number " INT64_FORMAT " waits of %d/%d, where " INT64_FORMAT
					   " is expected; ",
					   key.k[2], type_id, shard, row != NULL ? row->expected : 0);
		key = KEY(key.k[0], key.k[1] + 1, PG_INT64_MIN);
	}
}

/* Rows of shards that live elsewhere: all of them go, some time (M7, M23). */
static void
look_at_leftovers(Flow *flow, Undone *undone)
{
	StoreKey key = KEY(PG_INT64_MIN, PG_INT64_MIN);
	const ShardOwn *own;

	while ((own = store_at_or_next(flow->store, NULL, T_OWN, &key)) != NULL)
	{
		const RouteRow *route = store_get(flow->store, NULL, T_ROUTE, KEY(key.k[0], key.k[1]));

		if (route != NULL &&
			shard_handoff_delete(own, own->epoch, flow->node, route->node, route->epoch))
			add_undone(undone, "rows of %lld/%lld are left, %s(%d); ", (long long) key.k[0],
					   (long long) key.k[1], shard_home_machine.state_names[own->state],
					   own->epoch);
		key.k[3]++;
	}
}

static void
look_at_stash(Flow *flow, Undone *undone)
{
	StoreKey key = KEY(PG_INT64_MIN, PG_INT64_MIN);
	const StashRow *stash;

	while ((stash = store_at_or_next(flow->store, NULL, T_STASH, &key)) != NULL)
	{
		int32 type_id = stash->row.item.type_id;
		int32 shard = stash->row.item.shard;
		const ShardOwn *own = store_get(flow->store, NULL, T_OWN, KEY(type_id, shard));
		int state = own != NULL ? own->state : SHARD_HOME_NONE;

		add_undone(undone, "stash %d/%d %s(%d) id " INT64_FORMAT "; ", type_id, shard,
				   shard_home_machine.state_names[state], own != NULL ? own->epoch : 0,
				   stash->row.id);
		key.k[3]++;
	}
}

int
flow_pending(Flow *flow, char *text, size_t size)
{
	Undone undone = {.text = text, .size = size};

	if (text != NULL)
		text[0] = '\0';
	if (!flow->up)
		return 1;
	look_at_log(flow, &undone);
	look_at_rows(flow, &undone);
	look_at_stash(flow, &undone);
	look_at_orders(flow, &undone);
	look_at_leftovers(flow, &undone);
	for (int i = 0; i < MAX_OPERATIONS; i++)
	{
		if (flow->operations[i].kind != OP_NONE)
			add_undone(&undone, "operation %d on %d/%d; ", flow->operations[i].kind,
					   flow->operations[i].ref.type_id, flow->operations[i].ref.shard);
	}
	for (int i = 0; i < flow->n_facts; i++)
		add_undone(&undone, "fact; ");
	for (int i = 0; i < flow->n_releases; i++)
		add_undone(&undone, "gate %d; ", flow->releases[i].kind);
	for (int i = 0; i < FLOW_SESSIONS; i++)
	{
		if (flow->sessions[i].tx != NULL || flow->sessions[i].waits)
			add_undone(&undone, "session %d; ", i);
	}
	return undone.count;
}

bool
flow_is_empty(Flow *flow)
{
	StoreKey key = KEY(PG_INT64_MIN, PG_INT64_MIN);

#ifdef SHARD_MUTANT_LEAVES_MESSAGES
	return store_at_or_next(flow->store, NULL, T_OWN, &key) == NULL;
#endif
	return flow_running(flow) && flow_pending(flow, NULL, 0) == 0 &&
		   store_at_or_next(flow->store, NULL, T_OWN, &key) == NULL;
}

bool
flow_midway(const Flow *flow, int process)
{
	if (process < FLOW_WORKERS)
		return flow->workers[process].phase != TURN_NONE;
	return process < FLOW_KEEPER && flow->backends[process - FLOW_WORKERS].state != BACKEND_FREE;
}

int32
flow_active_epoch(Flow *flow, int32 type_id, int32 shard)
{
	const ShardOwn *own = store_get(flow->store, NULL, T_OWN, KEY(type_id, shard));

	return own != NULL && own->state == SHARD_HOME_ACTIVE ? own->epoch : -1;
}

/* Everything that waits somewhere in a database, and every effect in a shard that is active there. */
static void
look_into(Flow *flow, Check *check)
{
	static const int tables[] = {T_OUTBOX, T_KEPT, T_PARKED, T_DEAD};
	StoreKey key = KEY(0);
	const FlowRow *row;
	const StashRow *stash;
	const int64 *id;

	while ((row = store_at_or_next(flow->store, NULL, T_INBOX, &key)) != NULL)
	{
		if (row->kind == ROW_TELL && is_unread(flow, row, key.k[0]))
			check_seen_waiting(check, row->id);
		key.k[3]++;
	}
	for (int i = 0; i < (int) lengthof(tables); i++)
	{
		key = KEY(PG_INT64_MIN, PG_INT64_MIN);
		while ((row = store_at_or_next(flow->store, NULL, tables[i], &key)) != NULL)
		{
			check_seen_waiting(check, row->id);
			key.k[3]++;
		}
	}
	for (int table = T_STASH; table <= T_WAITING; table++)
	{
		key = KEY(PG_INT64_MIN, PG_INT64_MIN);
		while ((stash = store_at_or_next(flow->store, NULL, table, &key)) != NULL)
		{
			check_seen_waiting(check, stash->row.id);
			key.k[3]++;
		}
	}
	key = KEY(PG_INT64_MIN, PG_INT64_MIN);
	while ((id = store_at_or_next(flow->store, NULL, T_LEDGER, &key)) != NULL)
	{
		if (flow_active_epoch(flow, (int32) (key.k[0] >> 32), (int32) key.k[0]) >= 0)
			check_seen_effect(check, *id);
		key.k[3]++;
	}
}

/* Of a kept item of this origin there is one row that counts (V7). */
void
flow_check_places(Flow *flow)
{
	static const int tables[] = {T_OUTBOX, T_KEPT, T_PARKED};
	int64 seen[256];
	int n = 0;

	for (int i = 0; i < FLOW_WORKERS; i++)
	{
		if (flow->workers[i].phase != TURN_NONE)
			return;
	}
	for (int i = 0; i < (int) lengthof(tables); i++)
	{
		StoreKey key = KEY(PG_INT64_MIN, PG_INT64_MIN);
		const FlowRow *row;

		while ((row = store_at_or_next(flow->store, NULL, tables[i], &key)) != NULL)
		{
			key.k[3]++;
			if (flow->owner[flow_lane(flow, row->item.type_id, row->item.shard)] < 0 ||
				(tables[i] != T_PARKED && !is_undone(flow, row)))
				continue;
			for (int j = 0; j < n && !flow->retired; j++)
			{
				if (seen[j] == row->id)
					check_fail(flow->check, "V7: message " INT64_FORMAT " is kept twice by node %d",
							   row->id, flow->node);
			}
			if (n < (int) lengthof(seen))
				seen[n++] = row->id;
		}
	}
}

void
flow_strand(Flow *flow)
{
	const StashRow *stash;

	for (int table = T_STASH; table <= T_WAITING; table++)
	{
		StoreKey key = KEY(PG_INT64_MIN, PG_INT64_MIN);

		while ((stash = store_at_or_next(flow->store, NULL, table, &key)) != NULL)
		{
			check_stranded(flow->check, stash->row.id);
			key.k[3]++;
		}
	}
}

/* V3: what is received was sent, what is acknowledged was received. */
static void
look_at_streams(Flow *origin, Flow *receiver, Check *check)
{
	for (int lane = 0; lane < FLOW_LANES; lane++)
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
flow_check_end(Flow *const *flows, int n_flows, Check *check)
{
	bool quarantined = check_any_excused(check);

	check_end_begin(check);
	for (int i = 0; i < n_flows; i++)
	{
		look_into(flows[i], check);
		quarantined |= flow_quarantined(flows[i]);
	}
	for (int i = 0; i < n_flows && !quarantined; i++)
	{
		for (int j = 0; j < n_flows; j++)
			look_at_streams(flows[i], flows[j], check);
	}
	check_end(check);
}
