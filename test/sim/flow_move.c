/*
 * flow_move.c
 *		The keeper: imports, delayed deletes, rotation of the log (M4, M7, M23, H7).
 *
 * An import is another process than the worker of the lane: it takes the turn lock exclusively, so it
 * waits until no turn of the lane is open (W3), and it tells the worker by a row of the log, which is
 * there before anything that follows from it. Deletes are the worker's own, between two turns.
 */
#include "flow_private.h"

#define KEEPER_EVERY (500 * MS)
#define DELETE_CHUNK 6
#define IMPORT_TRIES 6

/* States first. */
static const int shard_tables[] = {T_STATE, T_LEDGER, T_STASH, T_WAITING, T_ORDERED, T_BASE};

#define STATE_TABLES 2

static ShardOwn
read_own(const Flow *flow, const ShardShardRef *ref)
{
	const ShardOwn *own = store_get(flow->store, NULL, T_OWN, KEY(ref->type_id, ref->shard));
	ShardOwn none = {0};

	return own != NULL ? *own : none;
}

static RouteRow
read_route(const Flow *flow, const ShardShardRef *ref)
{
	const RouteRow *route = store_get(flow->store, NULL, T_ROUTE, KEY(ref->type_id, ref->shard));
	RouteRow none = {0};

	if (route == NULL)
		none.epoch = SHARD_NO_EPOCH;
	return route != NULL ? *route : none;
}

/* Delete up to limit rows of a shard from some of its tables; *left: there are more. False: disk full. */
static bool
delete_rows(StoreTransaction *tx, Store *store, int64 shard_key, int first, int end, int limit,
			bool *left)
{
	*left = false;
	for (int i = first; i < end; i++)
	{
		StoreKey key = KEY(shard_key, PG_INT64_MIN, PG_INT64_MIN, PG_INT64_MIN);

		while (store_at_or_next(store, tx, shard_tables[i], &key) != NULL && key.k[0] == shard_key)
		{
			if (limit-- == 0)
			{
				*left = true;
				return true;
			}
			if (!store_remove(tx, shard_tables[i], key))
				return false;
			key.k[3]++;
		}
	}
	return true;
}

bool
move_forget_waiting(StoreTransaction *tx, Store *store, int64 shard_key)
{
	bool left;

	return delete_rows(tx, store, shard_key, STATE_TABLES, lengthof(shard_tables), PG_INT32_MAX,
					   &left);
}

bool
move_has_states(const Store *store, int64 shard_key)
{
	for (int i = 0; i < STATE_TABLES; i++)
	{
		StoreKey key = KEY(shard_key, PG_INT64_MIN, PG_INT64_MIN, PG_INT64_MIN);

		if (store_at_or_next(store, NULL, shard_tables[i], &key) != NULL && key.k[0] == shard_key)
			return true;
	}
	return false;
}

/* The lane's worker meets it in the log, before anything that is appended from now on. */
static bool
append_own(Flow *flow, StoreTransaction *tx, const ShardShardRef *ref)
{
	FlowRow row = {.kind = ROW_OWN};

#ifdef SHARD_MUTANT_OWN_ROW_MISSING
	return true;
#endif
	row.item.type_id = ref->type_id;
	row.item.shard = ref->shard;
	row.item.epoch = SHARD_NO_EPOCH;
	if (!flow_append(flow, tx, &row))
		return false;
	if (flow->n_notices == MAX_NOTICES)
		memmove(&flow->notices[0], &flow->notices[1], --flow->n_notices * sizeof(flow->notices[0]));
	flow->notices[flow->n_notices++] = (OwnNotice){ref->type_id, ref->shard, flow->seq};
	return true;
}

/* The ownership row takes its step and the transaction commits. */
static int64
commit_own(Flow *flow, StoreTransaction *tx, const ShardShardRef *ref, const ShardOwn *before,
		   const ShardOwn *after)
{
	int64 lsn;

	if (after->state == SHARD_HOME_NONE)
		store_remove(tx, T_OWN, KEY(ref->type_id, ref->shard));
	else
		store_put(tx, T_OWN, KEY(ref->type_id, ref->shard), after);
	lsn = store_commit(tx);
	flow_own_changed(flow, ref->type_id, ref->shard, before, after, 0);
	return lsn;
}

static void
release_ref(Flow *flow, ReleaseKind kind, const ShardShardRef *ref, int64 lsn)
{
	Release release = {.kind = kind, .ref = *ref, .lsn = lsn};

	flow_release_at(flow, &release);
}

/* ---- the new home's side ---------------------------------------------------------------------- */

static void
end_import(Flow *flow, Operation *operation, bool failed)
{
	ShardShardRef ref = operation->ref;

	if (operation->copy != NULL)
		free(operation->copy->exports);
	free(operation->copy);
	memset(operation, 0, sizeof(*operation));
	if (failed)
		flow_event(flow, SHARD_EVENT_IMPORT_FAILED, &ref);
}

static void
ask_for_copy(Flow *flow, Operation *operation)
{
	Letter *letter = &flow->scratch;

	if (operation->tries++ == IMPORT_TRIES)
	{
		end_import(flow, operation, true);
		return;
	}
	memset(&letter->head, 0, sizeof(Datagram));
	letter->head.kind = D_EXPORT;
	letter->head.ref = operation->ref;
	letter->head.req = operation->req = ++flow->next_conn;
	operation->not_before = flow_now(flow) + flow->settings.call_timeout;
	link_send(flow, operation->node, letter);
}

/* Everything of the copy, in place of whatever was left here. False: the disk is full. */
static bool
insert_copy(Flow *flow, StoreTransaction *tx, const Letter *copy, int64 shard_key)
{
	bool left;

	if (!delete_rows(tx, flow->store, shard_key, 0, lengthof(shard_tables), PG_INT32_MAX, &left))
		return false;
	for (int i = 0; i < copy->head.n_exports; i++)
	{
		const ExportItem *item = &copy->exports[i];
		StoreKey key = item->key;

		if (item->table == T_STASH)
			key.k[2] = ++flow->arrival;
		if (item->table == T_PARKED && key.k[1] == 1)
			key.k[2] = ++flow->arrival;
#ifdef SHARD_MUTANT_IMPORT_WITHOUT_MARKS
		if (item->table == T_BASE)
			continue;
#endif
		if (!store_put(tx, item->table, key, &item->value))
			return false;
	}
	return true;
}

static void
import(Flow *flow, Operation *operation)
{
	ShardOwn before = read_own(flow, &operation->ref);
	ShardOwn own = before;
	RouteRow route = read_route(flow, &operation->ref);
	ShardShardRef ref = operation->ref;
	StoreTransaction *tx;

	switch (shard_handoff_import(&own, route.epoch, &ref))
	{
		case SHARD_HANDOFF_IGNORE:
			end_import(flow, operation, true);
			return;
		case SHARD_HANDOFF_DONE:
			release_ref(flow, R_STAGED, &ref, store_last_lsn(flow->store));
			end_import(flow, operation, false);
			return;
		case SHARD_HANDOFF_DO:
			break;
	}
	if (operation->copy == NULL)
	{
		ask_for_copy(flow, operation);
		return;
	}

	/* nobody writes states by SQL here: the product would refuse for ever what is its own */
	if (before.state == SHARD_HOME_NONE &&
		move_has_states(flow->store, SHARD_KEY(ref.type_id, ref.shard)))
		check_fail(flow->check, "M26: shard %d/%d on %d has states without an ownership row",
				   ref.type_id, ref.shard, flow->instance);
	tx = store_begin(flow->store);
	if (!insert_copy(flow, tx, operation->copy, SHARD_KEY(ref.type_id, ref.shard)) ||
		!append_own(flow, tx, &ref))
	{
		store_abort(tx);
		operation->not_before = flow_now(flow) + 100 * MS;
		return;
	}
	shard_handoff_step(&own, SHARD_HOME_IMPORT, ref.epoch, ref.move_id);
	release_ref(flow, R_STAGED, &ref, commit_own(flow, tx, &ref, &before, &own));
	flow_poke(flow);
	end_import(flow, operation, false);
}

/* ---- copying out ------------------------------------------------------------------------------ */

static void
add_export(Letter *letter, int table, StoreKey key, const void *value, size_t size)
{
	ExportItem *item;

	if (letter->head.n_exports == letter->export_space)
	{
		letter->export_space = Max(64, letter->export_space * 2);
		letter->exports = pg_realloc(letter->exports, letter->export_space * sizeof(ExportItem));
	}
	item = &letter->exports[letter->head.n_exports++];
	memset(item, 0, sizeof(*item));
	item->table = table;
	item->key = key;
	memcpy(&item->value, value, size);
}

static void
export_table(Flow *flow, Letter *letter, int table, int64 shard_key, size_t size)
{
	StoreKey key = KEY(shard_key, PG_INT64_MIN, PG_INT64_MIN, PG_INT64_MIN);
	const void *value;

	while ((value = store_at_or_next(flow->store, NULL, table, &key)) != NULL &&
		   key.k[0] == shard_key)
	{
		add_export(letter, table, key, value, size);
		key.k[3]++;
	}
}

/* A new home asks. A seal that is not past the gate yet is not answered: it asks again. */
static void
give_copy(Flow *flow, const Letter *question)
{
	Datagram head = question->head;
	Letter *letter = &flow->scratch;
	const ShardOwn *row =
		store_get(flow->store, NULL, T_OWN, KEY(head.ref.type_id, head.ref.shard));
	ShardOwn own = read_own(flow, &head.ref);
	int64 shard_key = SHARD_KEY(head.ref.type_id, head.ref.shard);

	if (row != NULL && !store_released(flow->store, store_row_lsn(row)))
		return;
	memset(&letter->head, 0, sizeof(Datagram));
	letter->head.kind = D_EXPORT_ANSWER;
	letter->head.req = head.req;
	letter->head.ref = head.ref;
	letter->head.to_inc = head.from_inc;
	letter->head.verdict = V_REFUSED;
	if (shard_handoff_export(&own, &head.ref))
	{
		letter->head.verdict = V_OK;
		export_table(flow, letter, T_STATE, shard_key, sizeof(StateRow));
		export_table(flow, letter, T_LEDGER, shard_key, sizeof(int64));
		export_table(flow, letter, T_STASH, shard_key, sizeof(StashRow));
		export_table(flow, letter, T_WAITING, shard_key, sizeof(StashRow));
#ifndef SHARD_MUTANT_COPY_WITHOUT_POSITIONS
		export_table(flow, letter, T_ORDERED, shard_key, sizeof(OrderedRow));
#endif
		export_table(flow, letter, T_BASE, shard_key, sizeof(int64));
#ifdef SHARD_MUTANT_COPY_PARKED_TOO
		export_table(flow, letter, T_PARKED, shard_key, sizeof(FlowRow));
#endif
	}
	link_send(flow, head.from, letter);
}

static void
take_copy(Flow *flow, const Letter *letter)
{
	for (int i = 0; i < flow->n_operations; i++)
	{
		Operation *operation = &flow->operations[i];

		if (operation->kind != OP_IMPORT || operation->req != letter->head.req ||
			operation->copy != NULL || letter->head.to_inc != flow->inc)
			continue;
		if (letter->head.verdict != V_OK)
		{
			end_import(flow, operation, true);
			return;
		}
		operation->copy = pg_malloc0(sizeof(Letter));
		operation->copy->head = letter->head;
		operation->copy->exports = pg_malloc0(letter->head.n_exports * sizeof(ExportItem) + 1);
		if (letter->head.n_exports > 0)
			memcpy(operation->copy->exports, letter->exports,
				   letter->head.n_exports * sizeof(ExportItem));
		operation->not_before = 0;
		return;
	}
}

void
move_receive(Flow *flow, const Letter *letter)
{
	if (letter->head.kind == D_EXPORT)
		give_copy(flow, letter);
	else if (letter->head.kind == D_EXPORT_ANSWER)
		take_copy(flow, letter);
}

/* ---- deleting and rotating -------------------------------------------------------------------- */

static void
delete_shard(Flow *flow, Operation *operation)
{
	ShardShardRef ref = operation->ref;
	ShardOwn before = read_own(flow, &ref);
	ShardOwn own = before;
	RouteRow route = read_route(flow, &ref);
	StoreTransaction *tx;
	bool clearing = own.state == SHARD_HOME_CLEARING;
	int first = 0;
	bool left;

	if (!shard_handoff_delete(&own, ref.epoch, flow->node, route.node, route.epoch))
	{
		operation->kind = OP_NONE;
		return;
	}
#ifdef SHARD_MUTANT_BEGIN_BEFORE_CLEARED
	if (clearing)
	{
		operation->kind = OP_BEGIN;
		return;
	}
#endif
#ifdef SHARD_MUTANT_STATES_OUTLIVE_OWN
	first = clearing ? 0 : STATE_TABLES;
#endif
	tx = store_begin(flow->store);
	if (!delete_rows(tx, flow->store, SHARD_KEY(ref.type_id, ref.shard), first,
					 clearing ? STATE_TABLES : (int) lengthof(shard_tables), DELETE_CHUNK, &left))
	{
		store_abort(tx);
		return;
	}
	if (left)
	{
		store_commit(tx);
		operation->not_before = flow_now(flow) + 50 * MS;
		return;
	}
	if (clearing)
	{
		store_commit(tx);
		operation->kind = OP_BEGIN;
		return;
	}
	operation->kind = OP_NONE;
	if (shard_handoff_step(&own, SHARD_HOME_DELETED, own.epoch, own.move_id))
	{
		commit_own(flow, tx, &ref, &before, &own);
		flow_reload(flow, ref.type_id, ref.shard);
	}
	else
		store_commit(tx);
}

/* Rows that are left: of a shard that lives elsewhere, of an aborted move, of a former life. They go, some time. */
static void
plan_deletes(Flow *flow)
{
	StoreKey key = KEY(0);
	const ShardOwn *own;

	while ((own = store_at_or_next(flow->store, NULL, T_OWN, &key)) != NULL)
	{
		ShardShardRef ref = {(int32) key.k[0], (int32) key.k[1], own->epoch, 0};
		RouteRow route = read_route(flow, &ref);
		Operation *operation;

		key.k[3]++;
		if (own->state == SHARD_HOME_ACTIVE || own->state == SHARD_HOME_STOPPING ||
			!shard_handoff_delete(own, own->epoch, flow->node, route.node, route.epoch))
			continue;
		operation = flow_operation(flow, OP_DELETE, &ref);
		if (operation != NULL)
			operation->not_before =
				flow_now(flow) +
				flow_random(flow, (uint32) (flow->settings.delete_delay / MS)) * MS;
	}
}

/* What every lane has passed, and whose marks are saved, can go. */
static bool
rotate(Flow *flow)
{
	int64 limit = PG_INT64_MAX;
	StoreKey key = KEY(0);
	StoreTransaction *tx;
	bool any = false;
	bool open;

	for (int lane = 0; lane < FLOW_LANES; lane++)
		limit = Min(limit, flow->saved[lane]);
	if (limit == 0 || store_full(flow->store))
		return false;
	tx = store_begin(flow->store);
	while (store_scan(flow->store, T_INBOX, &key, &open) != NULL && key.k[0] <= limit)
	{
		if (!open)
			any |= store_remove(tx, T_INBOX, key);
		key.k[3]++;
	}
	if (any)
		store_commit(tx);
	else
		store_abort(tx);
	return any;
}

/* Something that may be done now. */
static Operation *
due_operation(Flow *flow, int64 now)
{
	if (!flow->handles || store_full(flow->store))
		return NULL;
	while (flow->n_operations > 0 && flow->operations[flow->n_operations - 1].kind == OP_NONE)
		flow->n_operations--;
	for (int i = 0; i < flow->n_operations; i++)
	{
		Operation *operation = &flow->operations[i];

		if ((operation->kind != OP_IMPORT && operation->kind != OP_DELETE) ||
			operation->not_before > now)
			continue;
		if (operation->kind == OP_IMPORT && operation->copy == NULL)
			return operation;
		if (!flow_turn_runs(flow, flow_lane(flow, operation->ref.type_id, operation->ref.shard)))
			return operation;
	}
	return NULL;
}

bool
move_due(Flow *flow)
{
	int64 now = flow_now(flow);

	if (due_operation(flow, now) != NULL || now >= flow->keeper_at)
		return true;
	for (int i = 0; i < flow->n_peers; i++)
	{
		const Peer *peer = &flow->peers[i];

		if (flow->pushes && peer->n_notes > 0 &&
			(peer->note_req == 0 || now >= peer->note_deadline))
			return true;
	}
	return false;
}

void
move_step(Flow *flow)
{
	Operation *operation = due_operation(flow, flow_now(flow));

	if (operation == NULL)
	{
		if (link_notes(flow))
			return;
		flow->keeper_at = flow_now(flow) + KEEPER_EVERY;
		if (flow->handles)
		{
			plan_deletes(flow);
			rotate(flow);
		}
		return;
	}
	switch (operation->kind)
	{
		case OP_IMPORT:
			import(flow, operation);
			break;
		case OP_DELETE:
			delete_shard(flow, operation);
			break;
		default:
			break;
	}
	flow_poke(flow);
}

int64
move_wake(Flow *flow)
{
	int64 wake = flow->keeper_at;
	int64 now = flow_now(flow);

	for (int i = 0; i < flow->n_operations; i++)
	{
		const Operation *operation = &flow->operations[i];

		if (operation->kind != OP_NONE)
			wake = Min(wake, Max(operation->not_before, now + 10 * MS));
	}
	for (int i = 0; i < flow->n_peers; i++)
	{
		if (flow->peers[i].n_notes > 0)
			wake = Min(wake, flow->peers[i].note_deadline);
	}
	return wake;
}
