/*
 * coordinator_actions.c
 *		What the control plane wants done: the actions of a step, in their order.
 *
 * All durable changes of a step, and the decided homes that it brings, are one transaction. It commits
 * before anything else of the step is carried out, and is told to the machine when the release gate
 * has passed it (G2); until then other events may come.
 *
 * If the process dies right here: before the commit, nothing of the step was, and nobody has heard of
 * it; after it, the next process reads the records. A decided home is a row of the log by then, or is
 * told again by the next start.
 */
#include "postgres.h"

#include "access/xlog.h"
#include "executor/spi.h"
#include "utils/memutils.h"

#include "coordinator_link.h"
#include "control_store.h"
#include "coordinator_private.h"
#include "core/message.h"
#include "core/packet.h"
#include "gate.h"
#include "log.h"

#include "compat.h"

/* The same line is not repeated within this time. */
#define LOG_QUIET (60 * SHARD_SECOND)

/* A downed incarnation's workers have seen by then that it is no more. */
#define REVIVE_AFTER (1 * SHARD_SECOND)

/* Homes that were appended to the log by this process. */
typedef struct FactKey
{
	int32 type_id;
	int32 shard;
} FactKey;

typedef struct FactEntry
{
	FactKey key;
	int64 n;
} FactEntry;

static HTAB *told = NULL;
static ShardUuid told_of; /* the cluster whose facts they are */

/* ---- facts ------------------------------------------------------------------------------------ */

/*
 * Versions count within one cluster: what was told of another says nothing.
 */
static void
follow_cluster(void)
{
	ShardUuid cluster = shard_node_cluster(shard_coordinator.node);

	if (told != NULL && !shard_record_uuid_equal(cluster, told_of))
	{
		hash_destroy(told);
		told = NULL;
	}
	told_of = cluster;
}

static FactEntry *
fact_entry(const ShardFact *fact, bool *found)
{
	FactKey key = {fact->type_id, fact->shard};

	if (told == NULL)
	{
		HASHCTL control = {.keysize = sizeof(FactKey), .entrysize = sizeof(FactEntry)};

		control.hcxt = TopMemoryContext;
		told = hash_create("shard facts", 256, &control, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	}
	return hash_search(told, &key, HASH_ENTER, found);
}

/*
 * One number about a shard, or a default.
 */
static int64
look_up(SPIPlanPtr *plan, const char *query, const ShardFact *fact, int64 otherwise)
{
	Oid types[2] = {INT4OID, INT4OID};
	Datum values[2] = {Int32GetDatum(fact->type_id), Int32GetDatum(fact->shard)};
	bool isnull;

	if (*plan == NULL)
	{
		*plan = SPI_prepare(query, 2, types);
		if (*plan == NULL)
			elog(ERROR, "could not prepare a look-up of a shard");
		SPI_keepplan(*plan);
	}
	if (SPI_execute_plan(*plan, values, NULL, true, 1) != SPI_OK_SELECT)
		elog(ERROR, "could not look up a shard");
	if (SPI_processed == 0)
		return otherwise;
	return DatumGetInt64(SPI_getbinval(SPI_tuptable->vals[0], SPI_tuptable->tupdesc, 1, &isnull));
}

/*
 * Is the shard active here in that epoch, durably?
 */
static bool
is_active(const ShardFact *fact)
{
	static SPIPlanPtr plan = NULL;

	return look_up(&plan,
				   "SELECT epoch::int8 FROM shard.own WHERE type_id OPERATOR(pg_catalog.=) $1 "
				   "AND shard OPERATOR(pg_catalog.=) $2 "
				   "AND state OPERATOR(pg_catalog.=) 'active'",
				   fact, -1) == fact->epoch;
}

/*
 * Does the lane's worker know the fact, or will it when it has read the log?
 */
static bool
is_known(const ShardFact *fact)
{
	static SPIPlanPtr plan = NULL;

	return look_up(&plan,
				   "SELECT n FROM shard.route WHERE type_id OPERATOR(pg_catalog.=) $1 "
				   "AND shard OPERATOR(pg_catalog.=) $2",
				   fact, -1) >= fact->n;
}

static void
append_fact(const ShardFact *fact)
{
	StringInfoData payload;
	ShardRow row = {.type_id = fact->type_id,
					.shard = fact->shard,
					.kind = SHARD_KIND_FACT,
					.entity = "",
					.epoch = -1};

	initStringInfo(&payload);
	shard_packet_put_fact(&payload, fact);
	row.payload = payload.data;
	row.payload_len = payload.len;
	shard_log_append(&row);
	pfree(payload.data);
}

/*
 * The facts of a step: newer ones become rows of the log. The others are told again because the
 * coordinator asks whether the shard runs: that is answered here. Returns the lanes that have news.
 */
static uint32
take_facts(const ShardFact *facts, int count, ShardShardRef *active, int *n_active)
{
	uint32 lanes = 0;

	follow_cluster();
	SPI_connect();
	for (int i = 0; i < count; i++)
	{
		bool found;
		FactEntry *entry = fact_entry(&facts[i], &found);

		if (!found)
			entry->n = -1;
		if (facts[i].node == shard_node_id(shard_coordinator.node) && is_active(&facts[i]))
			active[(*n_active)++] =
				(ShardShardRef){facts[i].type_id, facts[i].shard, facts[i].epoch, 0};
		if (entry->n >= facts[i].n || is_known(&facts[i]))
			continue;
		append_fact(&facts[i]);
		entry->n = facts[i].n;
		lanes |= 1u << shard_message_lane(facts[i].type_id, facts[i].shard);
	}
	(void) shard_log_flush();
	SPI_finish();
	return lanes;
}

static void
wake_lanes(uint32 lanes)
{
	ShardDatabase *db = shard_coordinator.db;
	uint32 workers = 0;

	for (int lane = 0; lane < SHARD_LANES; lane++)
		if (lanes & (1u << lane))
			workers |= 1u << shard_shmem_lane_worker(db, lane);
	for (int worker = 0; worker < SHARD_MAX_WORKERS; worker++)
		if (workers & (1u << worker))
			shard_shmem_wake_worker(db, worker);
}

/* ---- the transaction -------------------------------------------------------------------------- */

/*
 * What the row of shard.node should say. A start on another timeline is one until it is admitted.
 */
static void
present_row(ShardNodeRow *row)
{
	static const char *const voter_states[] = {[SHARD_VOTER_OK] = "ok",
											   [SHARD_VOTER_AMNESIAC] = "amnesiac",
											   [SHARD_VOTER_UNUSED] = "unused"};
	const ShardNode *node = shard_coordinator.node;
	ShardStartKind kind;

	*row = shard_coordinator.row;
	row->cluster = shard_node_cluster(node);
	row->node = shard_node_id(node);
	row->inc_no = shard_node_incarnation(node);
	(void) shard_plane_incarnation(shard_coordinator.db, shard_coordinator.extension,
								   &row->incarnation, &kind);
	if (shard_node_admitted(node))
		row->timeline = shard_node_timeline();
	row->voter_state = voter_states[shard_voter_state(shard_node_voter(node))];
	if (!shard_node_fenced(node))
		row->fenced = NULL;
	else if (row->fenced == NULL)
		row->fenced = "fenced";
}

static bool
row_differs(const ShardNodeRow *a, const ShardNodeRow *b)
{
	return !shard_record_uuid_equal(a->cluster, b->cluster) || a->node != b->node ||
		   a->inc_no != b->inc_no || !shard_record_uuid_equal(a->incarnation, b->incarnation) ||
		   a->timeline != b->timeline || strcmp(a->voter_state, b->voter_state) != 0 ||
		   (a->fenced == NULL) != (b->fenced == NULL);
}

static void
mirror_identity(void)
{
	ShardNodeRow row;

	present_row(&row);
	if (!row_differs(&row, &shard_coordinator.row))
		return;
	shard_node_row_write(&row);
	/* Its texts are constants, or those that were there. */
	shard_coordinator.row = row;
}

static void
add_ticket(int64 ticket, XLogRecPtr lsn)
{
	CoordinatorState *state = &shard_coordinator;

	if (state->n_tickets == state->ticket_space)
	{
		state->ticket_space = Max(2 * state->ticket_space, 16);
		state->tickets =
			state->tickets
				? repalloc(state->tickets, state->ticket_space * sizeof(CoordinatorTicket))
				: MemoryContextAlloc(TopMemoryContext,
									 state->ticket_space * sizeof(CoordinatorTicket));
	}
	state->tickets[state->n_tickets++] = (CoordinatorTicket){ticket, lsn};
}

/*
 * Carries out what has to be durable. SHARDS_STARTED for those that run already comes back as events.
 */
static void
make_durable(ShardShardRef **active, int *n_active)
{
	const ShardActions *out = shard_coordinator.out;
	ShardFact *facts = palloc(sizeof(ShardFact) * Max(out->n_actions, 1));
	int n_facts = 0;
	int64 ticket = 0;
	uint32 lanes;

	for (int i = 0; i < out->n_actions; i++)
	{
		const ShardAction *action = &out->actions[i];
		ShardHomeRecord home;

		if (action->kind == SHARD_ACTION_PERSIST)
			ticket = action->ticket;
		if (action->kind == SHARD_ACTION_FACT && action->entry->key.kind == SHARD_MAP_HOME &&
			!action->entry->deleted && shard_record_get_home(action->entry, &home))
			facts[n_facts++] = (ShardFact){.type_id = action->entry->key.a,
										   .shard = action->entry->key.b,
										   .n = action->entry->n,
										   .node = shard_record_home_node(&home),
										   .epoch = home.epoch,
										   .lost = home.lost,
										   .move_id = home.move_id};
	}
	if (ticket == 0 && n_facts == 0)
		return;

	*active = palloc(sizeof(ShardShardRef) * Max(n_facts, 1));
	shard_coordinator_begin();
	for (int i = 0; i < out->n_actions; i++)
		if (out->actions[i].kind == SHARD_ACTION_PERSIST)
			shard_control_store_apply(out->actions[i].writes, out->actions[i].n_writes);
	lanes = take_facts(facts, n_facts, *active, n_active);
	if (ticket != 0)
		mirror_identity();
	shard_coordinator_commit();
	wake_lanes(lanes);
	if (ticket != 0)
		add_ticket(ticket, XactLastCommitEnd);
}

/*
 * Tells the machine which transactions the gate has released. True: one was.
 */
bool
shard_coordinator_report_tickets(void)
{
	CoordinatorState *state = &shard_coordinator;
	bool any = false;

	while (state->n_tickets > 0 && shard_gate_released(0, 0, 0, state->tickets[0].lsn))
	{
		int64 ticket = state->tickets[0].ticket;
		MemoryContext old;

		state->n_tickets--;
		memmove(&state->tickets[0], &state->tickets[1],
				state->n_tickets * sizeof(CoordinatorTicket));
		old = MemoryContextSwitchTo(state->context);
		shard_node_persisted(state->node, shard_plane_now(), ticket, state->out);
		MemoryContextSwitchTo(old);
		shard_coordinator_carry_out();
		any = true;
	}
	return any;
}

/* ---- the rest --------------------------------------------------------------------------------- */

/*
 * A message goes to a member's registered address, to an address, or back to where the question came
 * from.
 */
static void
send(const ShardAction *action)
{
	/* Whoever speaks for an incarnation that is over does not sit at the registered address any more. */
	if (shard_coordinator.serving && action->message != NULL &&
		action->message->kind == SHARD_CONTROL_FENCED)
		shard_wire_put_bytes(&shard_coordinator.answers, action->bytes, action->length);
	else if (action->node != 0)
		shard_coordinator_link_send(action->node, action->bytes, (int) action->length);
	else if (action->text != NULL && action->text[0] != '\0')
		shard_coordinator_link_send_to(action->text, action->bytes, (int) action->length);
	else if (shard_coordinator.serving)
		shard_wire_put_bytes(&shard_coordinator.answers, action->bytes, action->length);
	else
		shard_coordinator_link_send_back(action->bytes, (int) action->length);
}

/*
 * Lines of the machine; the same one again is left out for a while.
 */
static void
log_line(const ShardAction *action)
{
	static char last[256] = "";
	static int64 said = 0;
	int64 now = shard_plane_now();

	if (strncmp(last, action->text, sizeof(last) - 1) == 0 && now - said < LOG_QUIET)
		return;
	strlcpy(last, action->text, sizeof(last));
	said = now;
	ereport(action->status >= WARNING ? WARNING : LOG,
			(errcode(action->status >= WARNING ? ERRCODE_WARNING : ERRCODE_SUCCESSFUL_COMPLETION),
			 errmsg_internal("shard: %s", action->text)));
}

static void
stop_workers(const ShardAction *action)
{
	CoordinatorState *state = &shard_coordinator;

	state->starting = false;
	strlcpy(state->stopped, action->text ? action->text : "", sizeof(state->stopped));
	/* Region workers have to hear of it before the node comes back under a new number (I9). */
	if (action->flag)
		state->revive_at = shard_plane_now() + REVIVE_AFTER;
}

static void
import_failed(const ShardAction *action)
{
	ShardNodeEvent event = {.kind = SHARD_EVENT_IMPORT_FAILED, .n_shards = 1};
	ShardShardRef shard = action->shard;

	event.shards = &shard;
	event.text = "moving shards is not supported yet";
	shard_coordinator_event(&event);
}

/*
 * One action. STOP_SHARD is not answered: a coordinator that knows what this version can does not ask.
 */
static void
carry_out(const ShardAction *action)
{
	CoordinatorState *state = &shard_coordinator;

	switch (action->kind)
	{
		case SHARD_ACTION_SEND:
			send(action);
			break;
		case SHARD_ACTION_START_WORKERS:
			state->starting = true;
			state->pushing = action->flag;
			state->stopped[0] = '\0';
			break;
		case SHARD_ACTION_STOP_WORKERS:
			stop_workers(action);
			break;
		case SHARD_ACTION_LEASE:
			state->view.lease_until = action->until;
			break;
		case SHARD_ACTION_WHO_AT:
			shard_coordinator_link_who(action->node);
			break;
		case SHARD_ACTION_COMMAND_DONE:
			shard_coordinator_command_done(action->token, action->flag, action->text);
			break;
		case SHARD_ACTION_LOG:
			log_line(action);
			break;
		default:
			break;
	}
}

/*
 * The actions of the last step. Events that follow from them are steps of their own, which begin when
 * the list has been read to its end.
 */
void
shard_coordinator_carry_out(void)
{
	CoordinatorState *state = &shard_coordinator;
	ShardShardRef *active = NULL;
	ShardAction *imports;
	int n_active = 0;
	int n_imports = 0;

	if (state->out->n_actions == 0)
		return;
	make_durable(&active, &n_active);
	imports = palloc(sizeof(ShardAction) * state->out->n_actions);
	for (int i = 0; i < state->out->n_actions; i++)
	{
		carry_out(&state->out->actions[i]);
		if (state->out->actions[i].kind == SHARD_ACTION_IMPORT_SHARD)
			imports[n_imports++] = state->out->actions[i];
	}
	state->out->n_actions = 0;
	for (int i = 0; i < n_imports; i++)
		import_failed(&imports[i]);
	if (n_active > 0)
		shard_coordinator_event(&(ShardNodeEvent){.kind = SHARD_EVENT_SHARDS_STARTED,
												  .n_shards = n_active,
												  .shards = active});
}

/* ---- what is told ----------------------------------------------------------------------------- */

/*
 * How many members there are, and whether any record of one has changed since the last time.
 */
static int
look_at_members(bool *changed)
{
	static int64 newest_n = -1;
	static int newest_count = -1;
	static ShardUuid cluster;
	ShardArena *arena = shard_arena_create();
	int count;
	int alive = 0;
	int64 n = 0;
	ShardMapEntry *members =
		shard_map_list(shard_node_learned(shard_coordinator.node), SHARD_MAP_MEMBER, arena, &count);

	for (int i = 0; i < count; i++)
	{
		ShardMemberRecord member;

		n = Max(n, members[i].n);
		if (shard_record_get_member(&members[i], &member, arena) &&
			member.status != SHARD_MEMBER_REMOVED && member.status != SHARD_MEMBER_WRITTEN_OFF)
			alive++;
	}
	shard_arena_destroy(arena);
	*changed = n != newest_n || count != newest_count ||
			   !shard_record_uuid_equal(cluster, shard_node_cluster(shard_coordinator.node));
	newest_n = n;
	newest_count = count;
	cluster = shard_node_cluster(shard_coordinator.node);
	return alive;
}

/*
 * The decided gate of this node.
 */
static int32
decided_gate(void)
{
	const ShardNode *node = shard_coordinator.node;
	const ShardMapEntry *entry =
		shard_map_value(shard_node_learned(node),
						(ShardMapKey){SHARD_MAP_MEMBER, shard_node_id(node), 0});
	ShardArena *arena = shard_arena_create();
	ShardMemberRecord member;
	int32 gate = SHARD_GATE_LOCAL;

	if (entry && shard_record_get_member(entry, &member, arena))
		gate = member.gate;
	shard_arena_destroy(arena);
	return gate;
}

/*
 * Why nothing is handled, for people.
 */
static const char *
why_not(void)
{
	CoordinatorState *state = &shard_coordinator;

	if (state->journal)
		return "this database is the journal of a cluster";
	if (shard_node_fenced(state->node))
		return "the node is fenced";
	if (shard_node_joining(state->node))
		return "joining another cluster";
	if (state->starting)
		return "entity types are not registered yet";
	if (state->stopped[0] != '\0')
		return state->stopped;
	return "the node was not admitted yet";
}

/*
 * Tells region workers and backends what the node is now.
 */
void
shard_coordinator_publish(void)
{
	CoordinatorState *state = &shard_coordinator;
	ShardPlaneView *view = &state->view;
	ShardStartKind kind;
	bool changed;

	view->known = true;
	view->members = look_at_members(&changed);
	view->fenced = shard_node_fenced(state->node);
	view->node = shard_node_id(state->node);
	view->inc_no = shard_node_incarnation(state->node);
	view->cluster = shard_node_cluster(state->node);
	view->era = shard_node_era(state->node);
	view->coordinator = shard_node_coordinator(state->node);
	view->gate = decided_gate();
	view->learned_n = shard_map_point(shard_node_learned(state->node)).n;
	(void) shard_plane_incarnation(state->db, state->extension, &view->incarnation, &kind);
	view->handle = state->starting && shard_coordinator_types_settled() && !view->fenced;
	view->push = view->handle && state->pushing;
	strlcpy(view->why, view->handle ? "" : why_not(), sizeof(view->why));
	if (state->journal)
		shard_plane_close(state->db, SHARD_PLANE_JOURNAL);
	else if (view->fenced)
		shard_plane_close(state->db, SHARD_PLANE_FENCED);
	else if (shard_node_joining(state->node) || !shard_coordinator_types_settled())
		shard_plane_close(state->db, SHARD_PLANE_JOINING);
	else
		shard_plane_close(state->db, SHARD_PLANE_OPEN);
	if (changed)
		shard_plane_directory_changed(state->db);
	shard_plane_set(state->db, view);
}
