/*
 * flow.c
 *		The data plane of one node: its life, its processes, its clients, what waits for the gate.
 */
#include "flow_private.h"

#include "core/base/message.h"

#define FLUSH_MOST (3 * MS)
#define MAX_REDRIVEN 4 /* by one transaction */

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

static void
report_position(Flow *flow, const Release *release)
{
	CheckPosition position = {.began = release->position.began,
							  .expected = release->position.expected,
							  .skipped = release->position.skipped,
							  .late = release->position.late};

	check_position(flow->check, flow->instance, release->ref.type_id, release->ref.shard,
				   release->entity, release->epoch, release->begun ? &position : NULL);
}

/* What only the checkers hear of. True: it was such a thing. */
static bool
report(Flow *flow, const Release *release)
{
	if (flow->retired)
		return release->kind <= R_LOST;
	switch (release->kind)
	{
		case R_HANDLED:
			check_handled(flow->check, release->id, flow->instance, release->epoch);
			if (release->number > 0)
				check_in_order(flow->check, release->id, flow->instance, release->epoch);
			return true;
		case R_STASHED:
			check_stashed(flow->check, release->id, release->epoch);
			return true;
		case R_REPORTED:
			check_reported(flow->check, release->id);
			return true;
		case R_DEAD:
			check_dead(flow->check, release->id);
			return true;
		case R_GIVEN_UP:
			check_given_up(flow->check, release->id, flow->instance);
			return true;
		case R_POSITION:
			report_position(flow, release);
			return true;
		case R_LOST:
			check_lost(flow->check, release->ref.type_id, release->ref.shard);
			return true;
		default:
			return false;
	}
}

/* What is durable happened, whether or not anybody heard of it. */
static void
report_rest(Flow *flow, int64 upto)
{
	for (int i = 0; i < flow->n_releases; i++)
	{
		if (flow->releases[i].lsn <= upto)
			report(flow, &flow->releases[i]);
	}
}

/* Commits of clients that are durable now return. */
static void
return_commits(Flow *flow)
{
	for (int i = 0; i < FLOW_SESSIONS; i++)
	{
		Session *session = &flow->sessions[i];

		if (!session->waits || !store_released(flow->store, session->lsn))
			continue;
		for (int j = 0; j < session->n_tells && !flow->retired; j++)
			check_reported(flow->check, session->tells[j]);
		for (int j = 0; j < session->n_redriven && !flow->retired; j++)
			check_redriven(flow->check, session->redriven[j], flow->instance);
		session->n_tells = session->n_redriven = 0;
		session->waits = false;
	}
}

/* What passed the gate is true of whoever takes over, too; the rest is unsure. */
void
flow_retire(Flow *flow)
{
	if (flow->retired)
		return;
	report_rest(flow, store_release_position(flow->store));
	return_commits(flow);
	check_replaced(flow->check, flow->instance);
	flow->retired = true;
}

void
flow_crash(Flow *flow)
{
	StoreKey key = KEY(0);
	const ShardOwn none = {0};

	flow_note(flow, "crashes");
	report_rest(flow, store_flushed(flow->store));
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

/* Learn a decided home: it is applied by the next turn of its lane. */
void
flow_learn(Flow *flow, const FactItem *fact)
{
	if (!flow->up)
		return;
	for (int i = 0; i < flow->n_facts; i++)
	{
		const FactItem *known = &flow->facts[i];

		if (known->type_id == fact->type_id && known->shard == fact->shard && known->n == fact->n)
			return;
	}
	if (flow->n_facts == flow->fact_space)
	{
		flow->fact_space = Max(32, flow->fact_space * 2);
		flow->facts = pg_realloc(flow->facts, flow->fact_space * sizeof(FactItem));
	}
	flow->facts[flow->n_facts] = *fact;
	flow->facts[flow->n_facts].taken = false;
	flow->facts[flow->n_facts].seq = flow->seq;
	flow->n_facts++;
	flow_poke(flow);
}

void
flow_fact(Flow *flow, int32 type_id, int32 shard, const ShardHomeRecord *home, int64 n)
{
	FactItem fact = {.type_id = type_id, .shard = shard, .n = n, .home = *home};
	const RouteRow *route;

	if (!flow->up)
		return;
	flow_learned(flow, &fact);
	route = store_get(flow->store, NULL, T_ROUTE, KEY(type_id, shard));
	if (route == NULL || route->n < n)
		flow_learn(flow, &fact);
}

Operation *
flow_operation(Flow *flow, OperationKind kind, const ShardShardRef *ref)
{
	Operation *unused = NULL;

	for (int i = 0; i < MAX_OPERATIONS; i++)
	{
		Operation *operation = &flow->operations[i];

		if (operation->kind == OP_NONE)
			unused = unused == NULL ? operation : unused;
		else if (operation->ref.type_id == ref->type_id && operation->ref.shard == ref->shard &&
				 operation->ref.move_id == ref->move_id && operation->ref.epoch == ref->epoch &&
				 (operation->kind == kind || kind == OP_STOP))
			return NULL; /* under way */
	}
	if (unused == NULL)
		return NULL;
	flow->n_operations = Max(flow->n_operations, (int) (unused - flow->operations) + 1);
	memset(unused, 0, sizeof(*unused));
	unused->kind = kind;
	unused->ref = *ref;
	return unused;
}

/*
 * The control plane asks again whether a shard is active here, by telling its fact once more: it may
 * have been started anew and know nothing of what was said before.
 */
static void
confirm_start(Flow *flow, const ShardMapEntry *entry)
{
	ShardShardRef ref = {entry->key.a, entry->key.b, 0, 0};
	ShardHomeRecord home;

	if (!shard_record_get_home(entry, &home) || shard_record_home_node(&home) != flow->node ||
		flow_active_epoch(flow, ref.type_id, ref.shard) != home.epoch)
		return;
	ref.epoch = home.epoch;
	flow_event(flow, SHARD_EVENT_SHARDS_STARTED, &ref);
}

/* A fact that comes as an entry of the map. */
static void
take_entry(Flow *flow, const ShardMapEntry *entry)
{
	ShardHomeRecord home;

	if (entry->key.kind == SHARD_MAP_HOME && !entry->deleted && shard_record_get_home(entry, &home))
		flow_fact(flow, entry->key.a, entry->key.b, &home, entry->n);
}

void
flow_action(Flow *flow, const ShardAction *action)
{
	Operation *operation;

	if (!flow->up)
		return;
	switch (action->kind)
	{
		case SHARD_ACTION_FACT:
			take_entry(flow, action->entry);
			confirm_start(flow, action->entry);
			break;
		case SHARD_ACTION_STOP_SHARD:
			/* A worker that does not come to its end is terminated; the next one is asked again. */
			if (flow_percent(flow, 10))
				flow_kill_worker(flow, flow_lane(flow, action->shard.type_id, action->shard.shard));
			flow_operation(flow, OP_STOP, &action->shard);
			break;
		case SHARD_ACTION_PREPARE_IMPORT:
			/* Now and then the tables do not fit, or nobody answers. */
			if (!flow_percent(flow, 5))
				flow_event(flow,
						   flow_percent(flow, 5) ? SHARD_EVENT_IMPORT_FAILED
												 : SHARD_EVENT_IMPORT_READY,
						   &action->shard);
			break;
		case SHARD_ACTION_IMPORT_SHARD:
			operation = flow_operation(flow, OP_IMPORT, &action->shard);
			if (operation != NULL)
				operation->node = action->node;
			break;
		case SHARD_ACTION_START_WORKERS:
			flow->node = flow->host.node(flow->host.context);
			flow->inc = flow->host.incarnation(flow->host.context);
			flow->handles = true;
			flow->pushes = action->flag;
			/* What was held may go on now. */
			for (int i = 0; i < FLOW_WORKERS; i++)
				flow->workers[i].more = true;
			break;
		case SHARD_ACTION_STOP_WORKERS:
			flow->handles = flow->pushes = false;
			break;
		case SHARD_ACTION_LEASE:
			flow->lease_until = action->until;
			break;
		default:
			break; /* parking early is a hint */
	}
	flow_poke(flow);
}

void
flow_event(Flow *flow, ShardNodeEventKind kind, const ShardShardRef *ref)
{
	ShardNodeEvent event = {.kind = kind, .n_shards = 1, .shards = ref};

	if (kind == SHARD_EVENT_IMPORT_FAILED)
		event.text = "could not be copied";
	flow->host.node_event(flow->host.context, &event);
}

/* The ownership row was changed outside its worker. */
void
flow_reload(Flow *flow, int32 type_id, int32 shard)
{
	int lane = flow_lane(flow, type_id, shard);

	for (int i = 0; i < flow->n_reloads; i++)
	{
		if (flow->reloads[i].type_id == type_id && flow->reloads[i].shard == shard)
			return;
	}
	if (flow->n_reloads == lengthof(flow->reloads))
		return;
	flow->reloads[flow->n_reloads].type_id = type_id;
	flow->reloads[flow->n_reloads].shard = shard;
	flow->reloads[flow->n_reloads].lanes = 1u << lane;
	flow->n_reloads++;
	flow_poke(flow);
}

/* The worker of a lane dies; another one will take its lanes. */
void
flow_kill_worker(Flow *flow, int lane)
{
	int owner = flow->owner[lane];

	if (owner < 0)
		return;
	flow_note(flow, "worker %d is terminated", owner);
	if (flow->workers[owner].phase != TURN_NONE)
		turn_abort(&flow->workers[owner]);
	turn_stop_worker(&flow->workers[owner]);
}

/* Is a turn of that lane open? Whoever takes the turn lock exclusively waits for it (W3). */
bool
flow_turn_runs(const Flow *flow, int lane)
{
#ifdef SHARD_MUTANT_NO_TURN_LOCK
	(void) flow;
	(void) lane;
	return false;
#else
	int owner = flow->owner[lane];

	return owner >= 0 && flow->workers[owner].phase != TURN_NONE;
#endif
}

void
flow_own_changed(Flow *flow, int32 type_id, int32 shard, const ShardOwn *before,
				 const ShardOwn *after, int32 lost)
{
	flow_note(flow, "shard %d/%d: %s(%d) -> %s(%d)", type_id, shard,
			  shard_home_machine.state_names[before->state], before->epoch,
			  shard_home_machine.state_names[after->state], after->epoch);
	if (!flow->retired)
		check_owner(flow->check, flow->instance, type_id, shard, before, after, lost,
					flow_is_leased(flow, type_id));
}

/* Something to be done or told once its commit is past the gate. */
void
flow_release_at(Flow *flow, const Release *release)
{
	if (flow->n_releases == flow->release_space)
	{
		flow->release_space = Max(64, flow->release_space * 2);
		flow->releases = pg_realloc(flow->releases, flow->release_space * sizeof(Release));
	}
	flow->releases[flow->n_releases++] = *release;
}

static void
let_one_go(Flow *flow, const Release *release)
{
	if (report(flow, release))
		return;
	switch (release->kind)
	{
		case R_MARK:
		case R_REFUSED:
			link_add_note(flow, release->peer, release->ref.type_id, release->ref.shard,
						  release->number, release->kind == R_REFUSED);
			break;
		case R_STARTED:
			flow_event(flow, SHARD_EVENT_SHARDS_STARTED, &release->ref);
			break;
		case R_STOPPED:
			flow_event(flow, SHARD_EVENT_SHARD_STOPPED, &release->ref);
			break;
		case R_STAGED:
			flow_event(flow, SHARD_EVENT_STAGED, &release->ref);
			break;
		default:
			break;
	}
}

/* Events are called last, from a list that is no longer ours: they may lead to more. */
void
flow_let_go(Flow *flow)
{
	int n = 0;

	if (flow->released_seen != store_release_position(flow->store))
	{
		flow->released_seen = store_release_position(flow->store);
		/* Rows and floors may leave now. */
		if (flow->floors != 0 || store_count(flow->store, T_OUTBOX) > 0)
			flow_poke(flow);
	}
	return_commits(flow);
	while (n < flow->n_releases && store_released(flow->store, flow->releases[n].lsn))
		n++;
	for (int i = 0; i < n; i++)
	{
		Release release = flow->releases[i];

		let_one_go(flow, &release);
	}
	if (n > 0)
	{
		flow->n_releases -= n;
		memmove(flow->releases, flow->releases + n, flow->n_releases * sizeof(Release));
	}
}

bool
flow_session_open(const Flow *flow, int session)
{
	return flow->sessions[session].tx != NULL;
}

bool
flow_session_idle(const Flow *flow, int session)
{
	return flow->up && flow->sessions[session].tx == NULL && !flow->sessions[session].waits;
}

int64
flow_tell(Flow *flow, int session, int32 type_id, int32 shard, int32 entity)
{
	Session *s = &flow->sessions[session];
	FlowRow row = {.kind = ROW_TELL, .entity = entity};

	if (!flow->up || s->waits || s->n_tells == MAX_SESSION_TELLS || store_full(flow->store))
		return 0;
	if (s->tx == NULL)
		s->tx = store_begin(flow->store);
	row.item.type_id = type_id;
	row.item.shard = shard;
	row.item.epoch = SHARD_NO_EPOCH;
	row.id = check_tell(flow->check, flow->instance, flow->life * FLOW_SESSIONS + session, type_id,
						shard, entity);
	if (flow_is_ordered(flow, type_id, shard, entity))
		row.number = check_draw_number(flow->check, row.id, flow_now(flow), &row.stops);
	flow_append(flow, s->tx, &row);
	flow_note(flow,
			  "session %d tells message " INT64_FORMAT
			  " to shard %d/%d entity %d, number " INT64_FORMAT,
			  session, row.id, type_id, shard, entity, row.number);
	s->tells[s->n_tells++] = row.id;
	return row.id;
}

/* As a new message of this node, with nothing of the way that it went (D26). */
void
flow_redrive(Flow *flow, int session)
{
	Session *s = &flow->sessions[session];
	StoreKey key = KEY(0);
	const FlowRow *dead;

	if (!flow->up || s->waits || store_full(flow->store))
		return;
	if (s->tx == NULL)
		s->tx = store_begin(flow->store);
	while (s->n_redriven < MAX_REDRIVEN &&
		   (dead = store_at_or_next(flow->store, s->tx, T_DEAD, &key)) != NULL)
	{
		FlowRow row = *dead;

		if (row.given_up && store_remove(s->tx, T_DEAD, key))
		{
			row.given_up = false;
			row.item.sent = false;
#ifndef SHARD_MUTANT_REDRIVE_OLD_STAMP
			memset(&row.item.stamp, 0, sizeof(row.item.stamp));
#ifndef SHARD_MUTANT_REDRIVE_OLD_TAG
			row.item.epoch = SHARD_NO_EPOCH;
#endif
#endif
			flow_append(flow, s->tx, &row);
			flow_note(flow, "session %d redrives message " INT64_FORMAT, session, row.id);
			s->redriven[s->n_redriven++] = row.id;
		}
		key.k[3]++;
	}
}

void
flow_commit(Flow *flow, int session)
{
	Session *s = &flow->sessions[session];

	if (s->tx == NULL)
		return;
	s->lsn = store_commit(s->tx);
	s->tx = NULL;
	s->waits = true;
	for (int i = 0; i < s->n_tells; i++)
		check_committed(flow->check, s->tells[i]);
	flow_poke(flow);
}

void
flow_rollback(Flow *flow, int session)
{
	Session *s = &flow->sessions[session];

	if (s->tx == NULL)
		return;
	store_abort(s->tx);
	s->tx = NULL;
	for (int i = 0; i < s->n_tells; i++)
		check_aborted(flow->check, s->tells[i]);
	s->n_tells = s->n_redriven = 0;
	flow_poke(flow);
}

/* Which lanes a worker is to have; and does it have them? */
static uint32
wanted_lanes(const Flow *flow, int index)
{
	uint32 lanes = 0;

	if (!flow->handles || index >= flow->settings.workers)
		return 0;
	for (int lane = index; lane < FLOW_LANES; lane += flow->settings.workers)
		lanes |= 1u << lane;
	return lanes;
}

static bool
lanes_free(const Flow *flow, uint32 lanes)
{
	for (int lane = 0; lane < FLOW_LANES; lane++)
	{
		if ((lanes & (1u << lane)) && flow->owner[lane] >= 0)
			return false;
	}
	return true;
}

/* One step: changes of the lanes first, then turns, pushes, tidying up. False: nothing to do. */
static bool
worker_step(Worker *worker)
{
	Flow *flow = worker->flow;
	uint32 wanted;

	if (worker->phase != TURN_NONE)
	{
		turn_step(worker);
		return true;
	}
	wanted = wanted_lanes(flow, worker->index);
	if (wanted != worker->lanes)
	{
		if (worker->lanes != 0)
			turn_stop_worker(worker);
		else if (lanes_free(flow, wanted))
		{
			worker->lanes = wanted;
			turn_start_worker(worker);
		}
		return true;
	}
	if (worker->lanes == 0)
	{
		worker->poke = false;
		worker->wake_at = PG_INT64_MAX;
		return false;
	}
	if (turn_due(worker))
	{
		turn_step(worker);
		return true;
	}
	if ((flow->pushes && link_push(worker)) || link_truncate(worker))
		return true;
	worker->poke = false;
	worker->wake_at = Min(turn_wake(worker), link_wake(worker));
	return false;
}

static bool
worker_ready(const Worker *worker, int64 now)
{
	const Flow *flow = worker->flow;
	uint32 wanted = wanted_lanes(flow, worker->index);

	if (worker->phase != TURN_NONE)
		return true;
	if (wanted != worker->lanes)
		return worker->lanes != 0 || lanes_free(flow, wanted);
	return worker->lanes != 0 && (worker->poke || worker->wake_at <= now);
}

/* Is there a commit of a client that could return? */
static bool
commits_return(const Flow *flow)
{
	for (int i = 0; i < FLOW_SESSIONS; i++)
	{
		if (flow->sessions[i].waits && store_released(flow->store, flow->sessions[i].lsn))
			return true;
	}
	return false;
}

/* Commits wait for one another: the log is flushed a while after the first that it has to be for. */
static bool
flush_due(Flow *flow, int64 now)
{
	if (store_full(flow->store) || store_flushed(flow->store) >= store_last_lsn(flow->store))
		return false;
	if (flow->flush_at == 0)
		flow->flush_at = now + 1 + flow_random(flow, FLUSH_MOST);
	return now >= flow->flush_at;
}

uint32
flow_ready(Flow *flow)
{
	uint32 ready = 0;
	int64 now;

	if (!flow->up)
		return 0;
	now = flow_now(flow);
	for (int i = 0; i < FLOW_WORKERS; i++)
	{
		if (worker_ready(&flow->workers[i], now))
			ready |= 1u << i;
	}
	for (int i = 0; i < FLOW_BACKENDS; i++)
	{
		if (flow->backends[i].state != BACKEND_FREE && link_backend_ready(flow, &flow->backends[i]))
			ready |= 1u << FLOW_BACKEND(i);
	}
	if (move_due(flow))
		ready |= 1u << FLOW_KEEPER;
	if (flush_due(flow, now))
		ready |= 1u << FLOW_FLUSHER;
	else if (flow->released_seen != store_release_position(flow->store) ||
			 (flow->n_releases > 0 && store_released(flow->store, flow->releases[0].lsn)) ||
			 commits_return(flow))
		ready |= 1u << FLOW_FLUSHER;
	return ready;
}

int64
flow_wake(Flow *flow)
{
	int64 wake = PG_INT64_MAX;

	if (!flow->up)
		return wake;
	for (int i = 0; i < FLOW_WORKERS; i++)
	{
		if (flow->workers[i].lanes != 0)
			wake = Min(wake, flow->workers[i].wake_at);
	}
	if (flow->flush_at != 0 && !store_full(flow->store))
		wake = Min(wake, flow->flush_at);
	return Min(wake, move_wake(flow));
}

bool
flow_step(Flow *flow, int process)
{
	if (!flow->up)
		return false;
	if (process < FLOW_WORKERS)
		return worker_step(&flow->workers[process]);
	if (process < FLOW_KEEPER)
		link_backend_step(&flow->backends[process - FLOW_WORKERS], flow);
	else if (process == FLOW_KEEPER)
		move_step(flow);
	else
	{
		store_flush(flow->store);
		flow->flush_at = 0;
		flow_let_go(flow);
	}
	return true;
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
