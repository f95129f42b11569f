/*
 * core/node/node.c
 *		One node's control plane: identity, steps, and what leaves it when.
 *
 * A step is one event and everything that follows from it at once. All durable changes of a step are
 * one transaction (SHARD_ACTION_PERSIST), and what a step sends leaves only when that transaction and
 * all before it are durable and past the gate (T3): a promise, an acceptance, an identity can never be
 * known outside and forgotten inside. Exempt are heartbeats, leases and plain requests, which
 * presuppose nothing durable of this node: a slow disk must not make the node look dead.
 *
 * Messages to the node itself take the same way, so that its own vote counts when it is durable and
 * not before.
 *
 * If the process dies at any point, the durable records are those of the last finished transaction:
 * the new process reads them (shard_node_load) and starts as if every later message had been lost.
 * Lost, late and repeated messages are harmless, since each of them is a question, a decided fact, or
 * carries a ballot, version, epoch, move or incarnation that is compared.
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "core/node/node_private.h"
#include "core/node/trust_private.h"
#include "shard.h"

#define FIRST_BALLOT ((INT64CONST(1) << 16) | SHARD_FIRST_NODE)

/* ---- the object ------------------------------------------------------------------------------- */

/* A copy of a text of the configuration; NULL stays NULL. */
static const char *
copy_text(const char *text)
{
	return text ? pstrdup(text) : NULL;
}

ShardNode *
shard_node_create(const ShardNodeConfig *config)
{
	ShardNode *node = palloc0(sizeof(ShardNode));

	node->config = *config;
	node->config.roster.journal_node = config->journal_node;
	node->config.dsn = copy_text(config->dsn);
	node->config.app_version = copy_text(config->app_version);
	for (int i = 0; i < config->n_roles; i++)
		node->config.roles[i] = copy_text(config->roles[i]);
	node->learned = shard_map_create();
	node->voter = shard_node_create_voter(node);
	node->arena = shard_arena_create();
	return node;
}

static void
free_queue(NodeQueue *queue)
{
	NodeHeld *held;

	while ((held = shard_node_step_take(queue)) != NULL)
		pfree(held);
}

void
shard_node_destroy(ShardNode *node)
{
	shard_node_region_destroy(node);
	shard_node_type_destroy(node);
	shard_node_command_destroy(node);
	shard_node_journal_new_era(node);
	if (node->past)
		shard_map_destroy(node->past);
	free_queue(&node->held);
	free_queue(&node->loop);
	if (node->proposer)
		shard_proposer_destroy(node->proposer);
	if (node->roster)
		shard_roster_destroy(node->roster);
	if (node->homes)
		shard_homes_destroy(node->homes);
	shard_voter_destroy(node->voter);
	shard_map_destroy(node->learned);
	shard_arena_destroy(node->arena);
	if (node->peers)
		pfree(node->peers);
	if (node->join.address)
		pfree(node->join.address);
	if (node->looked_at)
		pfree(node->looked_at);
	if (node->config.dsn)
		pfree((char *) node->config.dsn);
	if (node->config.app_version)
		pfree((char *) node->config.app_version);
	for (int i = 0; i < node->config.n_roles; i++)
		pfree((char *) node->config.roles[i]);
	pfree(node);
}

/* ---- steps ------------------------------------------------------------------------------------ */

static void receive(ShardNode *node, int64 now, int32 via, const char *bytes, size_t length);

/* Steps for the messages that the node sent to itself. */
static void
drain_loop(ShardNode *node, int64 now)
{
	NodeHeld *held;

	while ((held = shard_node_step_take(&node->loop)) != NULL)
	{
		receive(node, now, node->id, held->bytes, held->length);
		pfree(held);
		shard_node_office_after(node, now);
		shard_node_step_finish(node);
	}
}

static void
begin(ShardNode *node, int64 now, ShardActions *out)
{
	shard_node_trust_step(node, now);
	shard_action_reset(out);
	shard_arena_reset(node->arena);
	node->out = out;
	node->first_action = 0;
}

static void
end(ShardNode *node, int64 now)
{
	shard_node_office_after(node, now);
	shard_node_step_finish(node);
	drain_loop(node, now);
}

/* ---- events ----------------------------------------------------------------------------------- */

/* The map of a cluster of one: this node is its member, voter and first coordinator (R16). */
static void
found_cluster(ShardNode *node)
{
	ShardArena *arena = node->out->arena;
	ShardTermRecord term = {.n_terms = 1, .terms = {{FIRST_BALLOT, 1}}};
	ShardVotersRecord voters = {.n_current = 1, .current = {SHARD_FIRST_NODE}};
	ShardCountersRecord counters = {.last_node_id = SHARD_FIRST_NODE, .last_age = 1};
	ShardSettingsRecord settings = {.lease_ttl_ms = node->config.lease_ttl_ms,
									.previous_lease_ttl_ms = node->config.lease_ttl_ms,
									.min_members = Max(node->config.min_members, 1),
									.n_role_minimums = node->config.n_role_minimums};
	ShardMemberRecord member = {.status = SHARD_MEMBER_UP, .inc_no = 1, .age = 1};
	ShardMapEntry entries[5];

	memcpy(settings.role_minimums, node->config.role_minimums, sizeof(settings.role_minimums));
	member.inc_uuid = node->inc_uuid;
	shard_node_join_describe(node, &member);

	entries[0] = shard_record_put_term(&term, 1, arena);
	entries[1] = shard_record_put_voters(&voters, 1, arena);
	entries[2] = shard_record_put_counters(&counters, 1, arena);
	entries[3] = shard_record_put_settings(&settings, 1, arena);
	entries[4] = shard_record_put_member(SHARD_FIRST_NODE, &member, 1, arena);
	shard_voter_found(node->voter, FIRST_BALLOT, entries, lengthof(entries), node->out);
	for (int i = 0; i < (int) lengthof(entries); i++)
		shard_map_put(node->learned, &entries[i]);
	shard_map_set_point(node->learned, shard_map_point(shard_voter_map(node->voter)));
	shard_node_learn_founded(node);
}

/* May this start be trusted to remember its promises (R12)? */
static bool
voter_may_forget(const ShardNode *node)
{
	ShardMemberRecord member;

	if (node->start_kind == SHARD_START_RESTART)
		return false;
	if (node->start_kind == SHARD_START_COPY)
		return true;
	if (node->config.journal_voter)
		return node->config.live.gate != SHARD_GATE_STANDBY;
	if (shard_node_get_member(node, node->id, &member) && member.gate == SHARD_GATE_STANDBY)
		return false;
	return !shard_node_is_alone(node);
}

bool
shard_node_obeyed(const ShardNode *node, const ShardCommand *command)
{
	ShardMemberRecord record;

#ifdef SHARD_MUTANT_OWN_END_UNKNOWN
	return false;
#endif
	return command->node == node->id && shard_node_get_member(node, node->id, &record) &&
		   ((command->kind == SHARD_COMMAND_DOWN && record.status == SHARD_MEMBER_DOWN) ||
			(command->kind == SHARD_COMMAND_WRITE_OFF &&
			 record.status == SHARD_MEMBER_WRITTEN_OFF));
}

/* The incarnation of this start is one that may be granted from now on. */
static void
remember_claim(ShardNode *node)
{
	for (int i = 0; i < node->n_claimed; i++)
	{
		if (shard_record_uuid_equal(node->claimed[i], node->inc_uuid))
			return;
	}
	if (node->n_claimed == NODE_CLAIMS)
	{
		/* The oldest is the least likely to be granted yet; then the operator has to admit the node. */
		memmove(&node->claimed[0], &node->claimed[1], (NODE_CLAIMS - 1) * sizeof(ShardUuid));
		node->n_claimed--;
	}
	node->claimed[node->n_claimed++] = node->inc_uuid;
}

void
shard_node_start(ShardNode *node, int64 now, ShardStartKind kind, ShardUuid cluster,
				 ShardUuid incarnation, ShardActions *out)
{
	begin(node, now, out);
	node->running = true;
	node->start_kind = kind;
	node->disk_moved = now;
	if (!node->has_identity)
	{
		node->has_identity = true;
		node->secret = node->config.secret;
		/* Whatever the database was before, as a node it begins here: nothing can be forgotten. */
		node->start_kind = SHARD_START_RESTART;
		node->inc_uuid = incarnation;
		node->found_itself = true;
		if (node->config.journal_voter)
		{
			/* Of the cluster that speaks to it first. */
			node->id = node->config.journal_node;
			shard_voter_set_state(node->voter, SHARD_VOTER_UNUSED, out);
		}
		else
		{
			node->cluster = cluster;
			node->id = SHARD_FIRST_NODE;
			node->inc_no = 1;
			found_cluster(node);
		}
	}
	else
	{
		node->leave_sent = shard_record_uuid_equal(node->inc_uuid, incarnation);
		node->inc_uuid = incarnation;
	}
	shard_node_type_recount(node);
	/* Numbers of registrations rise over the processes of an incarnation, too. */
	node->registration = now;
	shard_voter_set_self(node->voter, node->id);
	remember_claim(node);
	shard_node_write_identity(node);
	if (voter_may_forget(node))
		shard_voter_set_state(node->voter, SHARD_VOTER_AMNESIAC, out);
	node->proposer = shard_proposer_create(node->id);
	node->config.roster.incarnation = node->inc_uuid;
	node->roster = shard_roster_create(node->id, &node->config.roster, &node->config.live);
	node->homes = shard_homes_create(node->id, &node->config.homes, &node->config.live);
	node->coordinator_heard = now;
	shard_node_member_start(node, now);
	end(node, now);
}

/*
 * Are the numbers of a message such as some node may have sent? Ballots and versions leave room for
 * those to come: one that is near the end would end all voting.
 */
static bool
numbers_are_good(const ShardControl *message)
{
	const int64 most = PG_INT64_MAX / 2;
	const int64 numbers[] = {message->b,		   message->ballot, message->any_point.b,
							 message->any_point.n, message->any_n,	message->commit_n};

	for (int i = 0; i < (int) lengthof(numbers); i++)
	{
		if (numbers[i] < 0 || numbers[i] > most)
			return false;
	}
	return message->from >= 0 && message->from <= PG_UINT16_MAX && message->to >= 0 &&
		   message->from_inc >= 0 && message->to_inc >= 0 && message->era >= 0;
}

/* Tells a caller which incarnation of it is the cluster's, as this node has learned. */
static void
tell_incarnation(ShardNode *node, int32 to, const ShardMemberRecord *member)
{
	ShardControl *reply = shard_action_send(node->out, to, SHARD_CONTROL_FENCED);

	reply->inc_no = member->inc_no;
	reply->uuid = member->inc_uuid;
	reply->member_status = member->status;
}

/* Does a claim follow an incarnation that is over, and is it not the one that was granted (I4)? */
static bool
claims_after_another(const ShardControl *message, const ShardMemberRecord *member)
{
#ifdef SHARD_MUTANT_CLAIMANTS_HEAR_NOTHING
	return false;
#endif
	return message->kind == SHARD_CONTROL_ADMIT && message->node == message->from &&
		   message->inc_no < member->inc_no &&
		   !shard_record_uuid_equal(message->uuid, member->inc_uuid) &&
		   !shard_membership_is_gone(member->status);
}

/* Is the message one that this node may act upon (I5)? Answers FENCED where that helps the sender. */
static bool
header_is_good(ShardNode *node, int64 now, const ShardControl *message)
{
	ShardMemberRecord member;
	bool joining = message->kind == SHARD_CONTROL_JOIN ||
				   (node->join.address && (message->kind == SHARD_CONTROL_JOIN_REPLY ||
										   message->kind == SHARD_CONTROL_COORDINATOR_HINT));

	if (message->protocol_version != SHARD_PROTOCOL_VERSION && !joining)
		return false;
	/*
	 * a joiner is no member: members do not say JOIN, neither by calling nor when they are called
	 * (T8)
	 */
	if (message->kind == SHARD_CONTROL_JOIN)
#ifdef SHARD_MUTANT_JOINS_OF_MEMBERS
		return true;
#else
		return message->from == 0 && node->via == 0;
#endif
	if (joining)
		return true;
	shard_node_journal_claimed(node, message);
	if (!shard_record_uuid_equal(message->cluster, node->cluster) || node->join.address)
		return false;
	if (message->to != 0 && message->to != node->id)
		return false;
	if (message->era < node->era)
	{
		shard_node_journal_late(node, message);
		/*
		 * a member that was given up by voters that were forced knows nothing of their era, and has
		 * to be told
		 */
		if (shard_node_get_member(node, message->from, &member) &&
			!shard_membership_is_member(member.status))
			shard_node_member_heard(node, now, message->from);
		/* the caller hears the era, as an answer over its own connection (T7) */
		shard_action_send(node->out, message->from, SHARD_CONTROL_FENCED);
		return false;
	}
	if (message->to_inc != 0 && node->admitted && message->to_inc != node->inc_no &&
		message->kind == SHARD_CONTROL_GRANT)
		return false;
	/* Votes are judged by their ballots; a claim is what an unknown incarnation has to make. */
	if (message->from == node->id || !shard_node_get_member(node, message->from, &member))
		return true;
	if (message->from_inc != 0 && message->from_inc < member.inc_no)
	{
		/*
		 * A node that was removed for good hears so, instead of hearing that another start of it
		 * lives.
		 */
		if (shard_membership_is_gone(member.status))
		{
			shard_node_member_called(node, message);
			return false;
		}
		tell_incarnation(node, message->from, &member);
		return false;
	}
	if (claims_after_another(message, &member))
		tell_incarnation(node, message->from, &member);
	return true;
}

/* A message of the replicated map, for the voter of this node. */
static bool
is_for_voter(ShardControlKind kind)
{
	return kind == SHARD_CONTROL_PRE_VOTE || kind == SHARD_CONTROL_PREPARE ||
		   kind == SHARD_CONTROL_FETCH || kind == SHARD_CONTROL_SYNC ||
		   kind == SHARD_CONTROL_ACCEPT;
}

/* One received message, within a step. */
static void
receive(ShardNode *node, int64 now, int32 via, const char *bytes, size_t length)
{
	ShardControl message;

	node->via = via;
	shard_arena_reset(node->arena);
	if (!node->running || !shard_control_decode(bytes, length, node->arena, &message) ||
		!numbers_are_good(&message) || !shard_node_trust_sender(node, &message) ||
		!header_is_good(node, now, &message) || !shard_node_trust_texts(node, &message))
		return;
	if (node->fenced && message.kind == SHARD_CONTROL_JOIN)
	{
		ShardControl *reply = shard_action_send(node->out, 0, SHARD_CONTROL_JOIN_REPLY);

		reply->uuid2 = message.uuid;
		reply->text = "the node that was asked is no member of its cluster any more";
	}
	if (node->fenced && message.kind != SHARD_CONTROL_LEARN)
		return;

	/* What another cluster says to a joiner is not about this node's own. */
	if (message.era > node->era && message.kind != SHARD_CONTROL_JOIN && !node->join.address)
	{
		if (!shard_node_trust_era(node, &message))
			return;
		shard_node_learn_era(node, message.era, message.from);
	}
	if (!node->join.address &&
		(!shard_node_trust_ballots(node, &message) || !shard_node_trust_orders(node, &message)))
		return;
		/* Who only asks may be no incarnation that counts. */
#ifdef SHARD_MUTANT_ASKING_IS_LIFE
	if (message.from != 0)
#else
	if (message.from != 0 && !shard_node_step_asks(&message))
#endif
		shard_node_member_heard(node, now, message.from);
	shard_node_member_called(node, &message);
	if (is_for_voter(message.kind))
	{
		bool heard = now - node->coordinator_heard < SHARD_ELECTION_TIMEOUT &&
					 node->coordinator != 0 && node->coordinator != message.from;

		if (!shard_node_is_in_place(node))
		{
			shard_node_member_remind_former(node, &message);
			return;
		}
		shard_proposer_saw_ballot(node->proposer, message.b);
		shard_voter_observe(node->voter, &message);
		shard_voter_receive(node->voter, now, &message, heard, node->out);
		return;
	}
	shard_voter_observe(node->voter, &message);
	shard_node_journal_receive(node, now, &message);
	shard_node_learn_receive(node, now, &message);
	shard_node_member_receive(node, now, &message);
	shard_node_type_receive(node, now, &message);
	shard_node_region_receive(node, now, &message);
	shard_node_office_receive(node, now, &message);
}

void
shard_node_receive(ShardNode *node, int64 now, int32 via, const char *bytes, size_t length,
				   ShardActions *out)
{
	begin(node, now, out);
	/* it calls itself by its loop alone: such a link is left from when it had another number */
	receive(node, now, via == node->id ? SHARD_VIA_SEED : via, bytes, length);
	end(node, now);
}

void
shard_node_tick(ShardNode *node, int64 now, ShardActions *out)
{
	begin(node, now, out);
	if (node->last_ticket <= node->persisted)
		node->disk_moved = now;
	if (node->running && !node->fenced)
	{
		shard_node_member_tick(node, now);
		shard_node_region_tick(node, now);
		/* What the node asks itself as coordinator is met by the office's tick. */
		end(node, now);
	}
	if (node->running && !node->fenced)
	{
		shard_node_office_tick(node, now);
		shard_node_journal_tick(node, now);
	}
	shard_node_command_tick(node, now);
	end(node, now);
}

void
shard_node_persisted(ShardNode *node, int64 now, int64 ticket, ShardActions *out)
{
	begin(node, now, out);
	if (ticket > node->persisted)
		node->disk_moved = now;
	node->persisted = Max(node->persisted, ticket);
	shard_node_step_release(node);
	end(node, now);
}

void
shard_node_event(ShardNode *node, int64 now, const ShardNodeEvent *event, ShardActions *out)
{
	begin(node, now, out);
	if (node->running && !node->fenced)
	{
		shard_node_member_event(node, event);
		shard_node_type_event(node, event);
		shard_node_region_event(node, event);
		shard_node_office_event(node, now, event);
	}
	end(node, now);
}

/* An incarnation that is downed or fenced takes no part: its operator is told so. */
void
shard_node_command(ShardNode *node, int64 now, const ShardCommand *command, ShardActions *out)
{
	begin(node, now, out);
	if (node->running && !node->fenced)
		shard_node_command_give(node, now, command);
	else
		shard_node_step_done(node, command->asker.token, false,
							 node->fenced ? "this node is fenced" : "this incarnation was downed");
	end(node, now);
}

const ShardLiveSettings *
shard_node_live(const ShardNode *node)
{
	return &node->config.live;
}

void
shard_node_reload(ShardNode *node, int64 now, const ShardLiveSettings *live, ShardActions *out)
{
	ShardLiveSettings before = node->config.live;

	begin(node, now, out);
	/* with its padding, so that callers may compare bytes */
	memcpy(&node->config.live, live, sizeof(ShardLiveSettings));
	if (node->homes && live->rebalance_interval != before.rebalance_interval)
		shard_homes_new_interval(node->homes, now);
	/* the coordinator is told by the next registration */
	if (live->gate != before.gate)
		shard_node_region_new_coordinator(node);
	end(node, now);
}

/* ---- questions -------------------------------------------------------------------------------- */

bool
shard_node_get_member(const ShardNode *node, int32 id, ShardMemberRecord *record)
{
	const ShardMapEntry *entry =
		shard_map_value(node->learned, (ShardMapKey){SHARD_MAP_MEMBER, id, 0});

	return entry && shard_record_get_member(entry, record, node->arena);
}

bool
shard_node_is_alone(const ShardNode *node)
{
	int count;
	int others = 0;
	ShardMapEntry *members =
		shard_map_list(node->learned, SHARD_MAP_MEMBER, node->out->arena, &count);

	for (int i = 0; i < count; i++)
	{
		ShardMemberRecord member;

		if (members[i].key.a != node->id &&
			shard_record_get_member(&members[i], &member, node->arena) &&
			member.status != SHARD_MEMBER_REMOVED && member.status != SHARD_MEMBER_WRITTEN_OFF)
			others++;
	}
	return others == 0;
}

ShardControl *
shard_node_to_coordinator(ShardNode *node, ShardControlKind kind)
{
	if (node->coordinator == 0)
		return NULL;
	return shard_action_send(node->out, node->coordinator, kind);
}

int32
shard_node_id(const ShardNode *node)
{
	return node->id;
}

int32
shard_node_incarnation(const ShardNode *node)
{
	return node->inc_no;
}

int32
shard_node_era(const ShardNode *node)
{
	return node->era;
}

ShardUuid
shard_node_cluster(const ShardNode *node)
{
	return node->cluster;
}

/* A node that has lost the office, or is not heard any more, may not be shown in it (C15). */
int32
shard_node_coordinator(const ShardNode *node, int64 now)
{
#ifdef SHARD_MUTANT_COORDINATOR_FOR_EVER
	return node->coordinator;
#endif
	if (!node->running)
		return 0;
	if (node->coordinator == node->id)
		return node->in_office ? node->id : 0;
	return now - node->coordinator_heard < SHARD_CONTROL_FORGOTTEN ? node->coordinator : 0;
}

bool
shard_node_joining(const ShardNode *node)
{
	return node->join.address != NULL;
}

ShardUuid
shard_node_join_token(const ShardNode *node)
{
	return node->join.address != NULL ? node->join.token : (ShardUuid){0, 0};
}

bool
shard_node_admitted(const ShardNode *node)
{
	return node->admitted;
}

const char *
shard_node_refusal(const ShardNode *node)
{
	return node->admitted ? "" : node->refusal;
}

bool
shard_node_fenced(const ShardNode *node)
{
	return node->fenced;
}

int32
shard_node_superseded_by(const ShardNode *node)
{
	return node->superseded_by;
}

int64
shard_node_own_homes(const ShardNode *node)
{
	return node->own_homes;
}

const ShardMap *
shard_node_learned(const ShardNode *node)
{
	return node->learned;
}

const ShardVoter *
shard_node_voter(const ShardNode *node)
{
	return node->voter;
}

const ShardProposer *
shard_node_proposer(const ShardNode *node)
{
	return node->proposer;
}
