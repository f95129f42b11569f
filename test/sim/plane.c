/*
 * plane.c
 *		The data plane of one node: its life, its processes, its clients, what waits for the gate.
 */
#include "plane_private.h"

#include "core/base/message.h"

#define FLUSH_MOST (3 * MS)
#define MAX_REDRIVEN 4 /* by one transaction */

int64
plane_now(const Plane *plane)
{
	return plane->host.now(plane->host.context);
}

uint32
plane_random(const Plane *plane, uint32 below)
{
	return plane->host.random(plane->host.context, below);
}

bool
plane_percent(const Plane *plane, int percent)
{
	return (int) plane_random(plane, 100) < percent;
}

void
plane_note(const Plane *plane, const char *format, ...)
{
	char text[256];
	int length;
	va_list args;

	if (plane->host.note == NULL)
		return;
	length = snprintf(text, sizeof(text), "node %d (%d): ", plane->node, plane->instance);
	va_start(args, format);
	vsnprintf(text + length, sizeof(text) - length, format, args);
	va_end(args);
	plane->host.note(plane->host.context, text);
}

/* Fewer lanes than in the product, so that shards share them. */
int
plane_lane(const Plane *plane, int32 type_id, int32 shard)
{
#ifdef SHARD_MUTANT_LANES_BY_WORKER
	return (type_id * 7 + shard) % plane->settings.workers;
#else
	(void) plane;
	return shard_message_lane(type_id, shard) % PLANE_LANES;
#endif
}

bool
plane_is_leased(const Plane *plane, int32 type_id)
{
	return plane->host.leased != NULL && plane->host.leased(plane->host.context, type_id);
}

static void
define_tables(Store *store)
{
	store_define(store, T_INBOX, "inbox", sizeof(PlaneRow));
	store_define(store, T_CURSOR, "cursor", sizeof(CursorRow));
	store_define(store, T_OUTBOX, "outbox", sizeof(PlaneRow));
	store_define(store, T_KEPT, "kept", sizeof(PlaneRow));
	store_define(store, T_STREAM, "stream", sizeof(StreamRow));
	store_define(store, T_LANE, "lane", sizeof(int64));
	store_define(store, T_POSITION, "position", sizeof(ShardStreamPosition));
	store_define(store, T_PARKED, "parked", sizeof(PlaneRow));
	store_define(store, T_STASH, "stash", sizeof(StashRow));
	store_define(store, T_WAITING, "waiting", sizeof(StashRow));
	store_define(store, T_ORDERED, "ordered", sizeof(OrderedRow));
	store_define(store, T_STATE, "state", sizeof(StateRow));
	store_define(store, T_LEDGER, "ledger", sizeof(int64));
	store_define(store, T_BASE, "base", sizeof(int64));
	store_define(store, T_OWN, "own", sizeof(ShardOwn));
	store_define(store, T_ROUTE, "route", sizeof(RouteRow));
	store_define(store, T_DEAD, "dead", sizeof(PlaneRow));
}

static void
default_settings(PlaneSettings *settings)
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

Plane *
plane_create(const PlaneHost *host, Store *store, Check *check, int instance,
			 const PlaneSettings *settings)
{
	Plane *plane = pg_malloc0(sizeof(Plane));

	plane->host = *host;
	plane->store = store;
	plane->check = check;
	plane->instance = instance;
	if (settings != NULL)
		plane->settings = *settings;
	default_settings(&plane->settings);
	define_tables(store);
	for (int i = 0; i < PLANE_WORKERS; i++)
	{
		plane->workers[i].plane = plane;
		plane->workers[i].index = i;
	}
	for (int i = 0; i < PLANE_LANES; i++)
		plane->owner[i] = -1;
	return plane;
}

/* Everything in memory is gone; allocations that only memory knew of are freed. */
static void
forget_memory(Plane *plane)
{
	for (int i = 0; i < PLANE_WORKERS; i++)
	{
		Worker *worker = &plane->workers[i];

		if (worker->routes != NULL)
			shard_route_destroy(worker->routes);
		free(worker->children);
		free(worker->child_rows);
		free(worker->outputs);
		memset(worker, 0, sizeof(*worker));
		worker->plane = plane;
		worker->index = i;
	}
	for (int i = 0; i < PLANE_LANES; i++)
	{
		plane->owner[i] = -1;
		plane->saved[i] = 0;
	}
	for (int i = 0; i < PLANE_BACKENDS; i++)
	{
		free(plane->backends[i].call.exports);
		free(plane->backends[i].answer);
		memset(&plane->backends[i], 0, sizeof(Backend));
	}
	for (int i = 0; i < MAX_OPERATIONS; i++)
	{
		if (plane->operations[i].copy != NULL)
			free(plane->operations[i].copy->exports);
		free(plane->operations[i].copy);
	}
	memset(plane->operations, 0, sizeof(plane->operations));
	memset(plane->sessions, 0, sizeof(plane->sessions));
	for (int i = 0; i < plane->n_peers; i++)
	{
		for (int lane = 0; lane < PLANE_LANES; lane++)
			shard_stream_free(&plane->peers[i].streams[lane]);
		free(plane->peers[i].notes);
	}
	memset(plane->peers, 0, sizeof(plane->peers));
	plane->n_peers = 0;
	plane->flush_at = 0;
	plane->n_facts = 0;
	plane->n_learned = 0;
	plane->n_notices = 0;
	plane->n_releases = 0;
	plane->n_reloads = 0;
	plane->exclusive = 0;
	plane->floors = 0;
	plane->lease_until = 0;
	plane->up = plane->handles = plane->pushes = false;
	free(plane->scratch.exports);
	plane->scratch.exports = NULL;
	plane->scratch.export_space = 0;
}

void
plane_destroy(Plane *plane)
{
	forget_memory(plane);
	free(plane->facts);
	free(plane->learned);
	free(plane->releases);
	free(plane);
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

bool
plane_running(const Plane *plane)
{
	return plane->up;
}

/* Something happened that any worker may care for. */
void
plane_poke(Plane *plane)
{
	for (int i = 0; i < PLANE_WORKERS; i++)
		plane->workers[i].poke = true;
}

Peer *
plane_peer(Plane *plane, int32 node)
{
	Peer *peer;

	for (int i = 0; i < plane->n_peers; i++)
	{
		if (plane->peers[i].node == node)
			return &plane->peers[i];
	}
	if (plane->n_peers == MAX_PEERS)
		return NULL;
	peer = &plane->peers[plane->n_peers++];
	memset(peer, 0, sizeof(*peer));
	peer->node = node;
	for (int lane = 0; lane < PLANE_LANES; lane++)
		link_load_stream(plane, peer, lane);
	return peer;
}

/* Append to the log. False: the disk is full. */
bool
plane_append(Plane *plane, StoreTransaction *tx, const PlaneRow *row)
{
	PlaneRow copy = *row;

	copy.xid = store_xid(tx);
	copy.item.body = NULL;
	if (!store_put(tx, T_INBOX, KEY(++plane->seq), &copy))
		return false;
	return true;
}

/*
 * A new incarnation: what the streams hold from before was written by former ones (X4). The lineage
 * is in the log before any row that is appended under it.
 */
static void
write_lineage(Plane *plane)
{
	StoreTransaction *tx = store_begin(plane->store);
	StoreKey key = KEY(0);

	while (store_at_or_next(plane->store, NULL, T_STREAM, &key) != NULL)
	{
		Peer *peer = plane_peer(plane, (int32) key.k[1]);
		int lane = (int) key.k[0];

		if (peer != NULL && lane < PLANE_LANES)
		{
			shard_stream_begin(&peer->streams[lane], plane->uuid);
			link_store_stream(tx, peer, lane);
		}
		key.k[3]++;
	}
	store_commit(tx);
}

/* The log goes on behind the last row that is there. */
static void
find_end_of_log(Plane *plane)
{
	StoreKey key = KEY(0);
	bool open;

	plane->arrival = Max(plane->arrival, 1);
	for (int lane = 0; lane < PLANE_LANES; lane++)
	{
		const CursorRow *cursor = store_get(plane->store, NULL, T_CURSOR, KEY(lane));

		if (cursor != NULL)
			plane->seq = Max(plane->seq, cursor->q);
	}
	key.k[0] = plane->seq;
	while (store_scan(plane->store, T_INBOX, &key, &open) != NULL)
	{
		plane->seq = Max(plane->seq, key.k[0]);
		key.k[3]++;
	}
	key = KEY(0);
	while (store_at_or_next(plane->store, NULL, T_PARKED, &key) != NULL)
	{
		if (key.k[1] == 1)
			plane->arrival = Max(plane->arrival, key.k[2]);
		key.k[3]++;
	}
	key = KEY(0);
	while (store_at_or_next(plane->store, NULL, T_STASH, &key) != NULL)
	{
		plane->arrival = Max(plane->arrival, key.k[2]);
		key.k[3]++;
	}
}

/* What the database owns as it is found, for the checkers. */
static void
tell_owners(Plane *plane)
{
	StoreKey key = KEY(0);
	const ShardOwn *own;

	while ((own = store_at_or_next(plane->store, NULL, T_OWN, &key)) != NULL)
	{
		check_owns(plane->check, plane->instance, (int32) key.k[0], (int32) key.k[1], own);
		key.k[3]++;
	}
}

void
plane_start(Plane *plane, ShardStartKind kind, ShardUuid incarnation)
{
	Assert(!plane->up);
	plane->up = true;
	plane->uuid = incarnation;
	plane->copied |= kind == SHARD_START_COPY;
	plane->life++;
	plane->seq = 0;
	plane->node = plane->host.node(plane->host.context);
	find_end_of_log(plane);
	write_lineage(plane);
	plane_note(plane, "starts, kind %d", kind);
	if (kind == SHARD_START_PROMOTED && !plane->retired)
		tell_owners(plane);
}

static void
report_position(Plane *plane, const Release *release)
{
	CheckPosition position = {.began = release->position.began,
							  .expected = release->position.expected,
							  .skipped = release->position.skipped,
							  .late = release->position.late};

	check_position(plane->check, plane->instance, release->ref.type_id, release->ref.shard,
				   release->entity, release->epoch, release->begun ? &position : NULL);
}

/* What only the checkers hear of. True: it was such a thing. */
static bool
report(Plane *plane, const Release *release)
{
	if (plane->retired)
		return release->kind <= R_LOST;
	switch (release->kind)
	{
		case R_HANDLED:
			check_handled(plane->check, release->id, plane->instance, release->epoch);
			if (release->number > 0)
				check_in_order(plane->check, release->id, plane->instance, release->epoch);
			return true;
		case R_STASHED:
			check_stashed(plane->check, release->id, release->epoch);
			return true;
		case R_REPORTED:
			check_reported(plane->check, release->id);
			return true;
		case R_DEAD:
			check_dead(plane->check, release->id);
			return true;
		case R_GIVEN_UP:
			check_given_up(plane->check, release->id, plane->instance);
			return true;
		case R_POSITION:
			report_position(plane, release);
			return true;
		case R_LOST:
			check_lost(plane->check, release->ref.type_id, release->ref.shard);
			return true;
		default:
			return false;
	}
}

/* What is durable happened, whether or not anybody heard of it. */
static void
report_rest(Plane *plane, int64 upto)
{
	for (int i = 0; i < plane->n_releases; i++)
	{
		if (plane->releases[i].lsn <= upto)
			report(plane, &plane->releases[i]);
	}
}

/* Commits of clients that are durable now return. */
static void
return_commits(Plane *plane)
{
	for (int i = 0; i < PLANE_SESSIONS; i++)
	{
		Session *session = &plane->sessions[i];

		if (!session->waits || !store_released(plane->store, session->lsn))
			continue;
		for (int j = 0; j < session->n_tells && !plane->retired; j++)
			check_reported(plane->check, session->tells[j]);
		for (int j = 0; j < session->n_redriven && !plane->retired; j++)
			check_redriven(plane->check, session->redriven[j], plane->instance);
		session->n_tells = session->n_redriven = 0;
		session->waits = false;
	}
}

/* What passed the gate is true of whoever takes over, too; the rest is unsure. */
void
plane_retire(Plane *plane)
{
	if (plane->retired)
		return;
	report_rest(plane, store_release_position(plane->store));
	return_commits(plane);
	check_replaced(plane->check, plane->instance);
	plane->retired = true;
}

void
plane_crash(Plane *plane)
{
	StoreKey key = KEY(0);
	const ShardOwn none = {0};

	plane_note(plane, "crashes");
	report_rest(plane, store_flushed(plane->store));
	key = KEY(0);
	while (!plane->retired && store_at_or_next(plane->store, NULL, T_OWN, &key) != NULL)
	{
		check_owns(plane->check, plane->instance, (int32) key.k[0], (int32) key.k[1], &none);
		key.k[3]++;
	}
	store_crash(plane->store);
	if (!plane->retired)
		check_crashed(plane->check, plane->instance);
	/* rows of an old copy that has not looked at anything yet are nobody's */
	if (!plane->retired && !plane->copied)
		tell_owners(plane);
	forget_memory(plane);
}

/* Learn a decided home: it is applied by the next turn of its lane. */
void
plane_learn(Plane *plane, const FactItem *fact)
{
	if (!plane->up)
		return;
	for (int i = 0; i < plane->n_facts; i++)
	{
		const FactItem *known = &plane->facts[i];

		if (known->type_id == fact->type_id && known->shard == fact->shard && known->n == fact->n)
			return;
	}
	if (plane->n_facts == plane->fact_space)
	{
		plane->fact_space = Max(32, plane->fact_space * 2);
		plane->facts = pg_realloc(plane->facts, plane->fact_space * sizeof(FactItem));
	}
	plane->facts[plane->n_facts] = *fact;
	plane->facts[plane->n_facts].taken = false;
	plane->facts[plane->n_facts].seq = plane->seq;
	plane->n_facts++;
	plane_poke(plane);
}

void
plane_fact(Plane *plane, int32 type_id, int32 shard, const ShardHomeRecord *home, int64 n)
{
	FactItem fact = {.type_id = type_id, .shard = shard, .n = n, .home = *home};
	const RouteRow *route;

	if (!plane->up)
		return;
	plane_learned(plane, &fact);
	route = store_get(plane->store, NULL, T_ROUTE, KEY(type_id, shard));
	if (route == NULL || route->n < n)
		plane_learn(plane, &fact);
}

Operation *
plane_operation(Plane *plane, OperationKind kind, const ShardShardRef *ref)
{
	Operation *unused = NULL;

	for (int i = 0; i < MAX_OPERATIONS; i++)
	{
		Operation *operation = &plane->operations[i];

		if (operation->kind == OP_NONE)
			unused = unused == NULL ? operation : unused;
		else if (operation->ref.type_id == ref->type_id && operation->ref.shard == ref->shard &&
				 operation->ref.move_id == ref->move_id && operation->ref.epoch == ref->epoch &&
				 (operation->kind == kind || kind == OP_STOP))
			return NULL; /* under way */
	}
	if (unused == NULL)
		return NULL;
	plane->n_operations = Max(plane->n_operations, (int) (unused - plane->operations) + 1);
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
confirm_start(Plane *plane, const ShardMapEntry *entry)
{
	ShardShardRef ref = {entry->key.a, entry->key.b, 0, 0};
	ShardHomeRecord home;

	if (!shard_record_get_home(entry, &home) || shard_record_home_node(&home) != plane->node ||
		plane_active_epoch(plane, ref.type_id, ref.shard) != home.epoch)
		return;
	ref.epoch = home.epoch;
	plane_event(plane, SHARD_EVENT_SHARDS_STARTED, &ref);
}

/* A fact that comes as an entry of the map. */
static void
take_entry(Plane *plane, const ShardMapEntry *entry)
{
	ShardHomeRecord home;

	if (entry->key.kind == SHARD_MAP_HOME && !entry->deleted && shard_record_get_home(entry, &home))
		plane_fact(plane, entry->key.a, entry->key.b, &home, entry->n);
}

void
plane_action(Plane *plane, const ShardAction *action)
{
	Operation *operation;

	if (!plane->up)
		return;
	switch (action->kind)
	{
		case SHARD_ACTION_FACT:
			take_entry(plane, action->entry);
			confirm_start(plane, action->entry);
			break;
		case SHARD_ACTION_STOP_SHARD:
			/* A worker that does not come to its end is terminated; the next one is asked again. */
			if (plane_percent(plane, 10))
				plane_kill_worker(plane,
								  plane_lane(plane, action->shard.type_id, action->shard.shard));
			plane_operation(plane, OP_STOP, &action->shard);
			break;
		case SHARD_ACTION_PREPARE_IMPORT:
			/* Now and then the tables do not fit, or nobody answers. */
			if (!plane_percent(plane, 5))
				plane_event(plane,
							plane_percent(plane, 5) ? SHARD_EVENT_IMPORT_FAILED
													: SHARD_EVENT_IMPORT_READY,
							&action->shard);
			break;
		case SHARD_ACTION_IMPORT_SHARD:
			operation = plane_operation(plane, OP_IMPORT, &action->shard);
			if (operation != NULL)
				operation->node = action->node;
			break;
		case SHARD_ACTION_START_WORKERS:
			plane->node = plane->host.node(plane->host.context);
			plane->inc = plane->host.incarnation(plane->host.context);
			plane->handles = true;
			plane->pushes = action->flag;
			/* What was held may go on now. */
			for (int i = 0; i < PLANE_WORKERS; i++)
				plane->workers[i].more = true;
			break;
		case SHARD_ACTION_STOP_WORKERS:
			plane->handles = plane->pushes = false;
			break;
		case SHARD_ACTION_LEASE:
			plane->lease_until = action->until;
			break;
		default:
			break; /* parking early is a hint */
	}
	plane_poke(plane);
}

void
plane_event(Plane *plane, ShardNodeEventKind kind, const ShardShardRef *ref)
{
	ShardNodeEvent event = {.kind = kind, .n_shards = 1, .shards = ref};

	if (kind == SHARD_EVENT_IMPORT_FAILED)
		event.text = "could not be copied";
	plane->host.node_event(plane->host.context, &event);
}

/* The ownership row was changed outside its worker. */
void
plane_reload(Plane *plane, int32 type_id, int32 shard)
{
	int lane = plane_lane(plane, type_id, shard);

	for (int i = 0; i < plane->n_reloads; i++)
	{
		if (plane->reloads[i].type_id == type_id && plane->reloads[i].shard == shard)
			return;
	}
	if (plane->n_reloads == lengthof(plane->reloads))
		return;
	plane->reloads[plane->n_reloads].type_id = type_id;
	plane->reloads[plane->n_reloads].shard = shard;
	plane->reloads[plane->n_reloads].lanes = 1u << lane;
	plane->n_reloads++;
	plane_poke(plane);
}

/* The worker of a lane dies; another one will take its lanes. */
void
plane_kill_worker(Plane *plane, int lane)
{
	int owner = plane->owner[lane];

	if (owner < 0)
		return;
	plane_note(plane, "worker %d is terminated", owner);
	if (plane->workers[owner].phase != TURN_NONE)
		turn_abort(&plane->workers[owner]);
	turn_stop_worker(&plane->workers[owner]);
}

/* Is a turn of that lane open? Whoever takes the turn lock exclusively waits for it (W3). */
bool
plane_turn_runs(const Plane *plane, int lane)
{
#ifdef SHARD_MUTANT_NO_TURN_LOCK
	(void) plane;
	(void) lane;
	return false;
#else
	int owner = plane->owner[lane];

	return owner >= 0 && plane->workers[owner].phase != TURN_NONE;
#endif
}

void
plane_own_changed(Plane *plane, int32 type_id, int32 shard, const ShardOwn *before,
				  const ShardOwn *after, int32 lost)
{
	plane_note(plane, "shard %d/%d: %s(%d) -> %s(%d)", type_id, shard,
			   shard_home_machine.state_names[before->state], before->epoch,
			   shard_home_machine.state_names[after->state], after->epoch);
	if (!plane->retired)
		check_owner(plane->check, plane->instance, type_id, shard, before, after, lost,
					plane_is_leased(plane, type_id));
}

/* Something to be done or told once its commit is past the gate. */
void
plane_release_at(Plane *plane, const Release *release)
{
	if (plane->n_releases == plane->release_space)
	{
		plane->release_space = Max(64, plane->release_space * 2);
		plane->releases = pg_realloc(plane->releases, plane->release_space * sizeof(Release));
	}
	plane->releases[plane->n_releases++] = *release;
}

static void
let_one_go(Plane *plane, const Release *release)
{
	if (report(plane, release))
		return;
	switch (release->kind)
	{
		case R_MARK:
		case R_REFUSED:
			link_add_note(plane, release->peer, release->ref.type_id, release->ref.shard,
						  release->number, release->kind == R_REFUSED);
			break;
		case R_STARTED:
			plane_event(plane, SHARD_EVENT_SHARDS_STARTED, &release->ref);
			break;
		case R_STOPPED:
			plane_event(plane, SHARD_EVENT_SHARD_STOPPED, &release->ref);
			break;
		case R_STAGED:
			plane_event(plane, SHARD_EVENT_STAGED, &release->ref);
			break;
		default:
			break;
	}
}

/* Events are called last, from a list that is no longer ours: they may lead to more. */
void
plane_let_go(Plane *plane)
{
	int n = 0;

	if (plane->released_seen != store_release_position(plane->store))
	{
		plane->released_seen = store_release_position(plane->store);
		/* Rows and floors may leave now. */
		if (plane->floors != 0 || store_count(plane->store, T_OUTBOX) > 0)
			plane_poke(plane);
	}
	return_commits(plane);
	while (n < plane->n_releases && store_released(plane->store, plane->releases[n].lsn))
		n++;
	for (int i = 0; i < n; i++)
	{
		Release release = plane->releases[i];

		let_one_go(plane, &release);
	}
	if (n > 0)
	{
		plane->n_releases -= n;
		memmove(plane->releases, plane->releases + n, plane->n_releases * sizeof(Release));
	}
}

bool
plane_session_open(const Plane *plane, int session)
{
	return plane->sessions[session].tx != NULL;
}

bool
plane_session_idle(const Plane *plane, int session)
{
	return plane->up && plane->sessions[session].tx == NULL && !plane->sessions[session].waits;
}

int64
plane_tell(Plane *plane, int session, int32 type_id, int32 shard, int32 entity)
{
	Session *s = &plane->sessions[session];
	PlaneRow row = {.kind = ROW_TELL, .entity = entity};

	if (!plane->up || s->waits || s->n_tells == MAX_SESSION_TELLS || store_full(plane->store))
		return 0;
	if (s->tx == NULL)
		s->tx = store_begin(plane->store);
	row.item.type_id = type_id;
	row.item.shard = shard;
	row.item.epoch = SHARD_NO_EPOCH;
	row.id = check_tell(plane->check, plane->instance, plane->life * PLANE_SESSIONS + session,
						type_id, shard, entity);
	if (plane_is_ordered(plane, type_id, shard, entity))
		row.number = check_draw_number(plane->check, row.id, plane_now(plane), &row.stops);
	plane_append(plane, s->tx, &row);
	plane_note(plane,
			   "session %d tells message " INT64_FORMAT
			   " to shard %d/%d entity %d, number " INT64_FORMAT,
			   session, row.id, type_id, shard, entity, row.number);
	s->tells[s->n_tells++] = row.id;
	return row.id;
}

/* As a new message of this node, with nothing of the way that it went (D26). */
void
plane_redrive(Plane *plane, int session)
{
	Session *s = &plane->sessions[session];
	StoreKey key = KEY(0);
	const PlaneRow *dead;

	if (!plane->up || s->waits || store_full(plane->store))
		return;
	if (s->tx == NULL)
		s->tx = store_begin(plane->store);
	while (s->n_redriven < MAX_REDRIVEN &&
		   (dead = store_at_or_next(plane->store, s->tx, T_DEAD, &key)) != NULL)
	{
		PlaneRow row = *dead;

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
			plane_append(plane, s->tx, &row);
			plane_note(plane, "session %d redrives message " INT64_FORMAT, session, row.id);
			s->redriven[s->n_redriven++] = row.id;
		}
		key.k[3]++;
	}
}

void
plane_commit(Plane *plane, int session)
{
	Session *s = &plane->sessions[session];

	if (s->tx == NULL)
		return;
	s->lsn = store_commit(s->tx);
	s->tx = NULL;
	s->waits = true;
	for (int i = 0; i < s->n_tells; i++)
		check_committed(plane->check, s->tells[i]);
	plane_poke(plane);
}

void
plane_rollback(Plane *plane, int session)
{
	Session *s = &plane->sessions[session];

	if (s->tx == NULL)
		return;
	store_abort(s->tx);
	s->tx = NULL;
	for (int i = 0; i < s->n_tells; i++)
		check_aborted(plane->check, s->tells[i]);
	s->n_tells = s->n_redriven = 0;
	plane_poke(plane);
}

/* Which lanes a worker is to have; and does it have them? */
static uint32
wanted_lanes(const Plane *plane, int index)
{
	uint32 lanes = 0;

	if (!plane->handles || index >= plane->settings.workers)
		return 0;
	for (int lane = index; lane < PLANE_LANES; lane += plane->settings.workers)
		lanes |= 1u << lane;
	return lanes;
}

static bool
lanes_free(const Plane *plane, uint32 lanes)
{
	for (int lane = 0; lane < PLANE_LANES; lane++)
	{
		if ((lanes & (1u << lane)) && plane->owner[lane] >= 0)
			return false;
	}
	return true;
}

/* One step: changes of the lanes first, then turns, pushes, tidying up. False: nothing to do. */
static bool
worker_step(Worker *worker)
{
	Plane *plane = worker->plane;
	uint32 wanted;

	if (worker->phase != TURN_NONE)
	{
		turn_step(worker);
		return true;
	}
	wanted = wanted_lanes(plane, worker->index);
	if (wanted != worker->lanes)
	{
		if (worker->lanes != 0)
			turn_stop_worker(worker);
		else if (lanes_free(plane, wanted))
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
	if ((plane->pushes && link_push(worker)) || link_truncate(worker))
		return true;
	worker->poke = false;
	worker->wake_at = Min(turn_wake(worker), link_wake(worker));
	return false;
}

static bool
worker_ready(const Worker *worker, int64 now)
{
	const Plane *plane = worker->plane;
	uint32 wanted = wanted_lanes(plane, worker->index);

	if (worker->phase != TURN_NONE)
		return true;
	if (wanted != worker->lanes)
		return worker->lanes != 0 || lanes_free(plane, wanted);
	return worker->lanes != 0 && (worker->poke || worker->wake_at <= now);
}

/* Is there a commit of a client that could return? */
static bool
commits_return(const Plane *plane)
{
	for (int i = 0; i < PLANE_SESSIONS; i++)
	{
		if (plane->sessions[i].waits && store_released(plane->store, plane->sessions[i].lsn))
			return true;
	}
	return false;
}

/* Commits wait for one another: the log is flushed a while after the first that it has to be for. */
static bool
flush_due(Plane *plane, int64 now)
{
	if (store_full(plane->store) || store_flushed(plane->store) >= store_last_lsn(plane->store))
		return false;
	if (plane->flush_at == 0)
		plane->flush_at = now + 1 + plane_random(plane, FLUSH_MOST);
	return now >= plane->flush_at;
}

uint32
plane_ready(Plane *plane)
{
	uint32 ready = 0;
	int64 now;

	if (!plane->up)
		return 0;
	now = plane_now(plane);
	for (int i = 0; i < PLANE_WORKERS; i++)
	{
		if (worker_ready(&plane->workers[i], now))
			ready |= 1u << i;
	}
	for (int i = 0; i < PLANE_BACKENDS; i++)
	{
		if (plane->backends[i].state != BACKEND_FREE &&
			link_backend_ready(plane, &plane->backends[i]))
			ready |= 1u << PLANE_BACKEND(i);
	}
	if (move_due(plane))
		ready |= 1u << PLANE_KEEPER;
	if (flush_due(plane, now))
		ready |= 1u << PLANE_FLUSHER;
	else if (plane->released_seen != store_release_position(plane->store) ||
			 (plane->n_releases > 0 && store_released(plane->store, plane->releases[0].lsn)) ||
			 commits_return(plane))
		ready |= 1u << PLANE_FLUSHER;
	return ready;
}

int64
plane_wake(Plane *plane)
{
	int64 wake = PG_INT64_MAX;

	if (!plane->up)
		return wake;
	for (int i = 0; i < PLANE_WORKERS; i++)
	{
		if (plane->workers[i].lanes != 0)
			wake = Min(wake, plane->workers[i].wake_at);
	}
	if (plane->flush_at != 0 && !store_full(plane->store))
		wake = Min(wake, plane->flush_at);
	return Min(wake, move_wake(plane));
}

bool
plane_step(Plane *plane, int process)
{
	if (!plane->up)
		return false;
	if (process < PLANE_WORKERS)
		return worker_step(&plane->workers[process]);
	if (process < PLANE_KEEPER)
		link_backend_step(&plane->backends[process - PLANE_WORKERS], plane);
	else if (process == PLANE_KEEPER)
		move_step(plane);
	else
	{
		store_flush(plane->store);
		plane->flush_at = 0;
		plane_let_go(plane);
	}
	return true;
}
