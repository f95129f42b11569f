/*
 * flow_ownership.c
 *		A data plane without messages: ownership rows only, so that many more histories of the control
 *		plane fit into a minute.
 *
 * Shards are stopped, sealed, copied and started by the same functions of core/flow/handoff.h, and
 * each change is a transaction whose effects wait for the gate; the copy itself is taken for granted.
 */
#include "flow.h"

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

struct Flow
{
	FlowHost host;
	Store *store;
	Check *check;
	FlowSettings settings;
	int instance;
	bool retired;
	bool handles;
	int told;
	int n_notes;
	Note notes[NOTES];
};

static Flow *
own_create(const FlowHost *host, Store *store, Check *check, int instance,
		   const FlowSettings *settings)
{
	Flow *flow = palloc0(sizeof(Flow));

	flow->host = *host;
	flow->store = store;
	flow->check = check;
	flow->instance = instance;
	flow->settings = *settings;
	store_define(store, OWN_TABLE, "own", sizeof(OwnRow));
	return flow;
}

static void
own_destroy(Flow *flow)
{
	pfree(flow);
}

static void
own_retire(Flow *flow)
{
	flow->retired = true;
	check_replaced(flow->check, flow->instance);
}

static void
own_strand(Flow *flow)
{
}

static FlowSettings *
own_settings(Flow *flow)
{
	return &flow->settings;
}

static StoreKey
own_key(int32 type_id, int32 shard)
{
	return (StoreKey){{type_id, shard, 0, 0}};
}

static OwnRow
read_own(const Flow *flow, int32 type_id, int32 shard)
{
	const OwnRow *row = store_get(flow->store, NULL, OWN_TABLE, own_key(type_id, shard));
	OwnRow none = {0};

	return row ? *row : none;
}

/* Change a row in a transaction of its own; what follows from it is told after the gate. */
static bool
write_own(Flow *flow, const ShardShardRef *ref, const OwnRow *row, ShardNodeEventKind kind,
		  int32 lost)
{
	StoreTransaction *transaction = store_begin(flow->store);
	OwnRow before = read_own(flow, ref->type_id, ref->shard);
	int64 lsn;

	if (!store_put(transaction, OWN_TABLE, own_key(ref->type_id, ref->shard), row))
	{
		store_abort(transaction);
		return false;
	}
	lsn = store_commit(transaction);
	if (!flow->retired && memcmp(&before.own, &row->own, sizeof(ShardOwn)) != 0)
		check_owner(flow->check, flow->instance, ref->type_id, ref->shard, &before.own, &row->own,
					lost, flow->host.leased(flow->host.context, ref->type_id));
	if (kind != 0 && flow->n_notes < NOTES)
		flow->notes[flow->n_notes++] = (Note){kind, *ref, lsn};
	return true;
}

static void
own_start(Flow *flow, ShardStartKind kind, ShardUuid incarnation)
{
}

/* Rows that were not flushed are gone; the checkers see the others. */
static void
own_crash(Flow *flow)
{
	StoreKey key = {{PG_INT64_MIN, PG_INT64_MIN, PG_INT64_MIN, PG_INT64_MIN}};
	const OwnRow *row;

	store_crash(flow->store);
	flow->handles = false;
	flow->n_notes = 0;
	while (!flow->retired && (row = store_next(flow->store, NULL, OWN_TABLE, &key)) != NULL)
		check_owns(flow->check, flow->instance, (int32) key.k[0], (int32) key.k[1], &row->own);
}

static void
say(Flow *flow, ShardNodeEventKind kind, const ShardShardRef *ref)
{
	ShardNodeEvent event = {.kind = kind, .n_shards = 1, .shards = ref};

	flow->host.node_event(flow->host.context, &event);
}

/* Say it again, after the gate like the first time. */
static void
repeat(Flow *flow, ShardNodeEventKind kind, const ShardShardRef *ref)
{
	if (flow->n_notes < NOTES)
		flow->notes[flow->n_notes++] = (Note){kind, *ref, store_last_lsn(flow->store)};
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

static void
learn(Flow *flow, int32 type_id, int32 shard, const ShardHomeRecord *home, int64 n)
{
	OwnRow row = read_own(flow, type_id, shard);
	ShardShardRef ref = {type_id, shard, home->epoch, home->move_id};
	int32 self = flow->host.node(flow->host.context);
	ShardHomeEvent event;

	if (n <= row.n)
	{
		if (row.own.state == SHARD_HOME_ACTIVE && row.own.epoch == home->epoch)
			repeat(flow, SHARD_EVENT_SHARDS_STARTED, &ref);
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
	if (event == SHARD_HOME_WRONG && !flow->retired && !check_any_excused(flow->check))
		check_fail(flow->check, "M6: shard %d/%d on %d: a decided home contradicts the row here",
				   type_id, shard, flow->instance);
	if (event != SHARD_HOME_NOTHING)
		(void) shard_handoff_step(&row.own, event, home->epoch, home->move_id);
	delete_left(&row, self);
	(void) write_own(flow, &ref, &row,
					 row.own.state == SHARD_HOME_ACTIVE && row.own.epoch == home->epoch
						 ? SHARD_EVENT_SHARDS_STARTED
						 : 0,
					 home->lost);
}

/* HandOff: stop and seal in one go, since no message is being handled. */
static void
stop(Flow *flow, const ShardShardRef *ref)
{
	OwnRow row = read_own(flow, ref->type_id, ref->shard);

	switch (shard_handoff_stop(&row.own, row.known_epoch, ref))
	{
		case SHARD_HANDOFF_DO:
			(void) shard_handoff_step(&row.own, SHARD_HOME_STOP, ref->epoch, ref->move_id);
			(void) shard_handoff_step(&row.own, SHARD_HOME_SEAL, ref->epoch, ref->move_id);
			(void) write_own(flow, ref, &row, SHARD_EVENT_SHARD_STOPPED, 0);
			break;
		case SHARD_HANDOFF_DONE:
			repeat(flow, SHARD_EVENT_SHARD_STOPPED, ref);
			break;
		case SHARD_HANDOFF_IGNORE:
			break;
	}
}

static void
import(Flow *flow, const ShardShardRef *ref)
{
	OwnRow row = read_own(flow, ref->type_id, ref->shard);

	switch (shard_handoff_import(&row.own, row.known_epoch, ref))
	{
		case SHARD_HANDOFF_DO:
			if (shard_handoff_step(&row.own, SHARD_HOME_IMPORT, ref->epoch, ref->move_id))
				(void) write_own(flow, ref, &row, SHARD_EVENT_STAGED, 0);
			break;
		case SHARD_HANDOFF_DONE:
			repeat(flow, SHARD_EVENT_STAGED, ref);
			break;
		case SHARD_HANDOFF_IGNORE:
			break;
	}
}

static void
own_action(Flow *flow, const ShardAction *action)
{
	ShardHomeRecord home;

	switch (action->kind)
	{
		case SHARD_ACTION_START_WORKERS:
			flow->handles = true;
			break;
		case SHARD_ACTION_STOP_WORKERS:
			flow->handles = false;
			break;
		case SHARD_ACTION_FACT:
			if (flow->handles && shard_record_get_home(action->entry, &home))
				learn(flow, action->entry->key.a, action->entry->key.b, &home, action->entry->n);
			break;
		case SHARD_ACTION_STOP_SHARD:
			if (flow->handles)
				stop(flow, &action->shard);
			break;
		case SHARD_ACTION_PREPARE_IMPORT:
			repeat(flow, SHARD_EVENT_IMPORT_READY, &action->shard);
			break;
		case SHARD_ACTION_IMPORT_SHARD:
			if (flow->handles)
				import(flow, &action->shard);
			break;
		default:
			break;
	}
}

static void
own_receive(Flow *flow, int32 from, const void *bytes, size_t length)
{
}

static uint32
own_ready(Flow *flow)
{
	bool unflushed =
		store_last_lsn(flow->store) > store_flushed(flow->store) && !store_full(flow->store);
	bool told = flow->n_notes > 0 && store_released(flow->store, flow->notes[0].lsn);

	return (unflushed ? 1U << FLOW_FLUSHER : 0) | (told ? 1U << FLOW_KEEPER : 0);
}

static int64
own_wake(Flow *flow)
{
	return PG_INT64_MAX;
}

static bool
own_step(Flow *flow, int process)
{
	if (process == FLOW_FLUSHER)
		store_flush(flow->store);
	else
	{
		Note note = flow->notes[0];

		flow->n_notes--;
		memmove(&flow->notes[0], &flow->notes[1], flow->n_notes * sizeof(Note));
		say(flow, note.kind, &note.ref);
	}
	return true;
}

/* A tell is no more than the wish to know a home. */
static int64
own_tell(Flow *flow, int session, int32 type_id, int32 shard, int32 entity)
{
	ShardShardRef ref = {type_id, shard, 0, 0};

	if (flow->handles && read_own(flow, type_id, shard).n == 0)
		say(flow, SHARD_EVENT_HOMES_WANTED, &ref);
	return ++flow->told;
}

static void
own_redrive(Flow *flow, int session)
{
}

static bool
own_session_open(const Flow *flow, int session)
{
	return false;
}

static bool
own_session_idle(const Flow *flow, int session)
{
	return true;
}

static void
own_commit(Flow *flow, int session)
{
}

static void
own_rollback(Flow *flow, int session)
{
}

static void
own_link_accept(Flow *flow, int32 peer)
{
}

static int
own_pending(Flow *flow, char *text, size_t size)
{
	if (flow->n_notes > 0 && text)
		snprintf(text, size, "%d answers wait", flow->n_notes);
	return flow->n_notes;
}

/* What was copied elsewhere, or for a move that was aborted, is left where it is, here. */
static bool
own_is_empty(Flow *flow)
{
	StoreKey key = {{PG_INT64_MIN, PG_INT64_MIN, PG_INT64_MIN, PG_INT64_MIN}};
	int32 self = flow->host.node(flow->host.context);
	const OwnRow *row;

	while ((row = store_next(flow->store, NULL, OWN_TABLE, &key)) != NULL)
	{
		if (row->own.state != SHARD_HOME_NONE && row->own.state != SHARD_HOME_SEALED &&
			!shard_handoff_delete(&row->own, row->own.epoch, self, row->known_node,
								  row->known_epoch))
			return false;
	}
	return flow->n_notes == 0;
}

static bool
own_midway(const Flow *flow pg_attribute_unused(), int process pg_attribute_unused())
{
	return false;
}

static int32
own_active_epoch(Flow *flow, int32 type_id, int32 shard)
{
	OwnRow row = read_own(flow, type_id, shard);

	return row.own.state == SHARD_HOME_ACTIVE ? row.own.epoch : -1;
}

static bool
own_quarantined(Flow *flow)
{
	return false;
}

static void
own_check_end(Flow *const *flows, int n_flows, Check *check)
{
}

const FlowModel flow_ownership = {.create = own_create,
								  .retire = own_retire,
								  .strand = own_strand,
								  .destroy = own_destroy,
								  .settings = own_settings,
								  .start = own_start,
								  .crash = own_crash,
								  .action = own_action,
								  .receive = own_receive,
								  .ready = own_ready,
								  .wake = own_wake,
								  .step = own_step,
								  .midway = own_midway,
								  .tell = own_tell,
								  .session_open = own_session_open,
								  .session_idle = own_session_idle,
								  .commit = own_commit,
								  .rollback = own_rollback,
								  .redrive = own_redrive,
								  .link_accept = own_link_accept,
								  .pending = own_pending,
								  .is_empty = own_is_empty,
								  .active_epoch = own_active_epoch,
								  .quarantined = own_quarantined,
								  .check_end = own_check_end};
