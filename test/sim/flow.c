/*
 * flow.c
 *		The model of a data plane with messages: its life, and what all of its parts use.
 */
#include "flow_private.h"

#include "core/base/message.h"

int64
flow_now(const Flow *flow)
{
	return flow->host.now(flow->host.context);
}

uint32
flow_random(const Flow *flow, uint32 below)
{
	return flow->host.random(flow->host.context, below);
}

bool
flow_percent(const Flow *flow, int percent)
{
	return (int) flow_random(flow, 100) < percent;
}

void
flow_note(const Flow *flow, const char *format, ...)
{
	char text[256];
	int length;
	va_list args;

	if (flow->host.note == NULL)
		return;
	length = snprintf(text, sizeof(text), "node %d (%d): ", flow->node, flow->instance);
	va_start(args, format);
	vsnprintf(text + length, sizeof(text) - length, format, args);
	va_end(args);
	flow->host.note(flow->host.context, text);
}

/* Fewer lanes than in the product, so that shards share them. */
int
flow_lane(const Flow *flow, int32 type_id, int32 shard)
{
#ifdef SHARD_MUTANT_LANES_BY_WORKER
	return (type_id * 7 + shard) % flow->settings.workers;
#else
	(void) flow;
	return shard_message_lane(type_id, shard) % FLOW_LANES;
#endif
}

bool
flow_is_leased(const Flow *flow, int32 type_id)
{
	return flow->host.leased != NULL && flow->host.leased(flow->host.context, type_id);
}

static void
define_tables(Store *store)
{
	store_define(store, T_INBOX, "inbox", sizeof(FlowRow));
	store_define(store, T_CURSOR, "cursor", sizeof(CursorRow));
	store_define(store, T_OUTBOX, "outbox", sizeof(FlowRow));
	store_define(store, T_KEPT, "kept", sizeof(FlowRow));
	store_define(store, T_STREAM, "stream", sizeof(StreamRow));
	store_define(store, T_LANE, "lane", sizeof(int64));
	store_define(store, T_POSITION, "position", sizeof(ShardStreamPosition));
	store_define(store, T_PARKED, "parked", sizeof(FlowRow));
	store_define(store, T_STASH, "stash", sizeof(StashRow));
	store_define(store, T_WAITING, "waiting", sizeof(StashRow));
	store_define(store, T_ORDERED, "ordered", sizeof(OrderedRow));
	store_define(store, T_STATE, "state", sizeof(StateRow));
	store_define(store, T_LEDGER, "ledger", sizeof(int64));
	store_define(store, T_BASE, "base", sizeof(int64));
	store_define(store, T_OWN, "own", sizeof(ShardOwn));
	store_define(store, T_ROUTE, "route", sizeof(RouteRow));
	store_define(store, T_DEAD, "dead", sizeof(FlowRow));
}

static void
default_settings(FlowSettings *settings)
{
#define DEFAULT(field, value) \
	if (settings->field == 0) \
	settings->field = (value)
	DEFAULT(workers, 1);
	DEFAULT(turn_messages, 6);
	DEFAULT(step_messages, 2);
	DEFAULT(batch_rows, 8);
	DEFAULT(defer_percent, 5);
	DEFAULT(tell_percent, 15);
	DEFAULT(bury_percent, 2);
	DEFAULT(ordered_window, 4);
	DEFAULT(call_timeout, 500 * MS);
	DEFAULT(delete_delay, 3000 * MS);
#undef DEFAULT
}

Flow *
flow_create(const FlowHost *host, Store *store, Check *check, int instance,
			const FlowSettings *settings)
{
	Flow *flow = pg_malloc0(sizeof(Flow));

	flow->host = *host;
	flow->store = store;
	flow->check = check;
	flow->instance = instance;
	if (settings != NULL)
		flow->settings = *settings;
	default_settings(&flow->settings);
	define_tables(store);
	for (int i = 0; i < FLOW_WORKERS; i++)
	{
		flow->workers[i].flow = flow;
		flow->workers[i].index = i;
	}
	for (int i = 0; i < FLOW_LANES; i++)
		flow->owner[i] = -1;
	return flow;
}

/* Everything in memory is gone; allocations that only memory knew of are freed. */
static void
forget_memory(Flow *flow)
{
	for (int i = 0; i < FLOW_WORKERS; i++)
	{
		Worker *worker = &flow->workers[i];

		if (worker->routes != NULL)
			shard_route_destroy(worker->routes);
		free(worker->children);
		free(worker->child_rows);
		free(worker->outputs);
		memset(worker, 0, sizeof(*worker));
		worker->flow = flow;
		worker->index = i;
	}
	for (int i = 0; i < FLOW_LANES; i++)
	{
		flow->owner[i] = -1;
		flow->saved[i] = 0;
	}
	for (int i = 0; i < FLOW_BACKENDS; i++)
	{
		free(flow->backends[i].call.exports);
		free(flow->backends[i].answer);
		memset(&flow->backends[i], 0, sizeof(Backend));
	}
	for (int i = 0; i < MAX_OPERATIONS; i++)
	{
		if (flow->operations[i].copy != NULL)
			free(flow->operations[i].copy->exports);
		free(flow->operations[i].copy);
	}
	memset(flow->operations, 0, sizeof(flow->operations));
	memset(flow->sessions, 0, sizeof(flow->sessions));
	for (int i = 0; i < flow->n_peers; i++)
	{
		for (int lane = 0; lane < FLOW_LANES; lane++)
			shard_stream_free(&flow->peers[i].streams[lane]);
		free(flow->peers[i].notes);
	}
	memset(flow->peers, 0, sizeof(flow->peers));
	flow->n_peers = 0;
	flow->flush_at = 0;
	flow->n_facts = 0;
	flow->n_learned = 0;
	flow->n_notices = 0;
	flow->n_releases = 0;
	flow->n_reloads = 0;
	flow->exclusive = 0;
	flow->floors = 0;
	flow->lease_until = 0;
	flow->up = flow->handles = flow->pushes = false;
	free(flow->scratch.exports);
	flow->scratch.exports = NULL;
	flow->scratch.export_space = 0;
}

void
flow_destroy(Flow *flow)
{
	forget_memory(flow);
	free(flow->facts);
	free(flow->learned);
	free(flow->releases);
	free(flow);
}

FlowSettings *
flow_settings(Flow *flow)
{
	return &flow->settings;
}

Store *
flow_store(Flow *flow)
{
	return flow->store;
}

bool
flow_running(const Flow *flow)
{
	return flow->up;
}

/* Something happened that any worker may care for. */
void
flow_poke(Flow *flow)
{
	for (int i = 0; i < FLOW_WORKERS; i++)
		flow->workers[i].poke = true;
}

Peer *
flow_peer(Flow *flow, int32 node)
{
	Peer *peer;

	for (int i = 0; i < flow->n_peers; i++)
	{
		if (flow->peers[i].node == node)
			return &flow->peers[i];
	}
	if (flow->n_peers == MAX_PEERS)
		return NULL;
	peer = &flow->peers[flow->n_peers++];
	memset(peer, 0, sizeof(*peer));
	peer->node = node;
	for (int lane = 0; lane < FLOW_LANES; lane++)
		link_load_stream(flow, peer, lane);
	return peer;
}

/* Append to the log. False: the disk is full. */
bool
flow_append(Flow *flow, StoreTransaction *tx, const FlowRow *row)
{
	FlowRow copy = *row;

	copy.xid = store_xid(tx);
	copy.item.body = NULL;
	if (!store_put(tx, T_INBOX, KEY(++flow->seq), &copy))
		return false;
	return true;
}

/*
 * A new incarnation: what the streams hold from before was written by former ones (X4). The lineage
 * is in the log before any row that is appended under it.
 */
static void
write_lineage(Flow *flow)
{
	StoreTransaction *tx = store_begin(flow->store);
	StoreKey key = KEY(0);

	while (store_at_or_next(flow->store, NULL, T_STREAM, &key) != NULL)
	{
		Peer *peer = flow_peer(flow, (int32) key.k[1]);
		int lane = (int) key.k[0];

		if (peer != NULL && lane < FLOW_LANES)
		{
			shard_stream_begin(&peer->streams[lane], flow->uuid);
			link_store_stream(tx, peer, lane);
		}
		key.k[3]++;
	}
	store_commit(tx);
}

/* The log goes on behind the last row that is there. */
static void
find_end_of_log(Flow *flow)
{
	StoreKey key = KEY(0);
	bool open;

	flow->arrival = Max(flow->arrival, 1);
	for (int lane = 0; lane < FLOW_LANES; lane++)
	{
		const CursorRow *cursor = store_get(flow->store, NULL, T_CURSOR, KEY(lane));

		if (cursor != NULL)
			flow->seq = Max(flow->seq, cursor->q);
	}
	key.k[0] = flow->seq;
	while (store_scan(flow->store, T_INBOX, &key, &open) != NULL)
	{
		flow->seq = Max(flow->seq, key.k[0]);
		key.k[3]++;
	}
	key = KEY(0);
	while (store_at_or_next(flow->store, NULL, T_PARKED, &key) != NULL)
	{
		if (key.k[1] == 1)
			flow->arrival = Max(flow->arrival, key.k[2]);
		key.k[3]++;
	}
	key = KEY(0);
	while (store_at_or_next(flow->store, NULL, T_STASH, &key) != NULL)
	{
		flow->arrival = Max(flow->arrival, key.k[2]);
		key.k[3]++;
	}
}

/* What the database owns as it is found, for the checkers. */
static void
tell_owners(Flow *flow)
{
	StoreKey key = KEY(0);
	const ShardOwn *own;

	while ((own = store_at_or_next(flow->store, NULL, T_OWN, &key)) != NULL)
	{
		check_owns(flow->check, flow->instance, (int32) key.k[0], (int32) key.k[1], own);
		key.k[3]++;
	}
}

void
flow_start(Flow *flow, ShardStartKind kind, ShardUuid incarnation)
{
	Assert(!flow->up);
	flow->up = true;
	flow->uuid = incarnation;
	flow->copied |= kind == SHARD_START_COPY;
	flow->life++;
	flow->seq = 0;
	flow->node = flow->host.node(flow->host.context);
	find_end_of_log(flow);
	write_lineage(flow);
	flow_note(flow, "starts, kind %d", kind);
	if (kind == SHARD_START_PROMOTED && !flow->retired)
		tell_owners(flow);
}

/* What passed the gate is true of whoever takes over, too; the rest is unsure. */
void
flow_retire(Flow *flow)
{
	if (flow->retired)
		return;
	flow_report_rest(flow, store_release_position(flow->store));
	flow_return_commits(flow);
	check_replaced(flow->check, flow->instance);
	flow->retired = true;
}

void
flow_crash(Flow *flow)
{
	StoreKey key = KEY(0);
	const ShardOwn none = {0};

	flow_note(flow, "crashes");
	flow_report_rest(flow, store_flushed(flow->store));
	key = KEY(0);
	while (!flow->retired && store_at_or_next(flow->store, NULL, T_OWN, &key) != NULL)
	{
		check_owns(flow->check, flow->instance, (int32) key.k[0], (int32) key.k[1], &none);
		key.k[3]++;
	}
	store_crash(flow->store);
	if (!flow->retired)
		check_crashed(flow->check, flow->instance);
	/* rows of an old copy that has not looked at anything yet are nobody's */
	if (!flow->retired && !flow->copied)
		tell_owners(flow);
	forget_memory(flow);
}

const FlowModel flow_messages = {.create = flow_create,
								 .retire = flow_retire,
								 .strand = flow_strand,
								 .destroy = flow_destroy,
								 .settings = flow_settings,
								 .start = flow_start,
								 .crash = flow_crash,
								 .action = flow_action,
								 .receive = flow_receive,
								 .ready = flow_ready,
								 .wake = flow_wake,
								 .step = flow_step,
								 .midway = flow_midway,
								 .tell = flow_tell,
								 .session_open = flow_session_open,
								 .session_idle = flow_session_idle,
								 .commit = flow_commit,
								 .rollback = flow_rollback,
								 .redrive = flow_redrive,
								 .link_accept = flow_link_accept,
								 .pending = flow_pending,
								 .is_empty = flow_is_empty,
								 .active_epoch = flow_active_epoch,
								 .quarantined = flow_quarantined,
								 .check_end = flow_check_end};
