/*
 * core/node/node_office.c
 *		A node as candidate and as coordinator.
 *
 * A voter that has heard no coordinator for the election time-out campaigns, the older one first
 * (R15). While the office is held, the roster looks after the members and the homes after the
 * shards; what they propose goes out as one batch at the end of a step. Decided batches reach this
 * node's own learned map by the same function as everybody's.
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "core/node/node_private.h"
#include "core/node/trust_private.h"

/*
 * Members that have to be told of decisions. Members that have just gone have to hear of that, too, if they are
 * there: one that was written off is dialled again only when it was heard.
 */
static int
audience(const ShardNode *node, int64 now, const ShardMap *map, int32 **members)
{
	int count;
	int n = 0;
	ShardMapEntry *entries = shard_map_list(map, SHARD_MAP_MEMBER, node->out->arena, &count);

	*members = shard_arena_alloc(node->out->arena, sizeof(int32) * (count + 1));
	for (int i = 0; i < count; i++)
	{
		ShardMemberRecord member;

		if (shard_record_get_member(&entries[i], &member, node->arena) &&
			(shard_membership_is_member(member.status) || member.status == SHARD_MEMBER_DOWN ||
			 (shard_proposer_learned_by(node->proposer, entries[i].key.a) < entries[i].n &&
			  shard_node_reachable(node, entries[i].key.a, now))))
			(*members)[n++] = entries[i].key.a;
	}
	/* The journal learns like a member; a node alone leaves it to others (R14). */
	if (node->config.journal_node != 0 && count > 1)
		(*members)[n++] = node->config.journal_node;
	return n;
}

/* Is this node the only one that votes, so that it need not wait to hear of others? */
static bool
votes_alone(const ShardNode *node)
{
	ShardVotersRecord voters;
	const ShardMapEntry *entry =
		shard_map_value(node->learned, (ShardMapKey){SHARD_MAP_VOTERS, 0, 0});

	return entry && shard_record_get_voters(entry, &voters) && voters.n_current == 1 &&
		   voters.n_next == 0 && voters.current[0] == node->id;
}

/* May this node campaign, and how many older ones go before it? -1: it may not. */
static int
candidate_rank(const ShardNode *node)
{
	ShardVotersRecord voters;
	ShardMemberRecord self;
	const ShardMapEntry *entry =
		shard_map_value(node->learned, (ShardMapKey){SHARD_MAP_VOTERS, 0, 0});

	if (!entry || !shard_record_get_voters(entry, &voters) ||
		!shard_node_get_member(node, node->id, &self) || node->config.journal_voter ||
		(node->stopping && !votes_alone(node)) ||
		(node->start_kind == SHARD_START_COPY && !node->admitted) || !shard_node_is_in_place(node))
		return -1;
	if (!node->admitted && node->start_kind != SHARD_START_RESTART &&
		self.gate != SHARD_GATE_STANDBY && !shard_node_is_alone(node))
		return -1;
	if (!shard_node_journal_votes(node) && (!shard_record_votes(&voters, node->id) ||
											shard_voter_state(node->voter) != SHARD_VOTER_OK))
		return -1;
	/*
	 * One that is not up yet votes only by an operator's word (R13): then it is the one that can; where
	 * a journal votes any member may campaign (R14). One that is exiting leaves the office to others,
	 * if there are any.
	 */
	if (!shard_membership_is_member(self.status) && self.status != SHARD_MEMBER_DOWN)
		return -1;
	if (self.status == SHARD_MEMBER_EXITING && !votes_alone(node))
		return -1;
	return shard_membership_rank(node->learned, node->id, node->arena);
}

/* Campaign if the office seems to be empty. */
static void
maybe_campaign(ShardNode *node, int64 now)
{
	int64 silence = now - node->coordinator_heard;
	int rank;

	if (shard_proposer_office(node->proposer) != SHARD_OFFICE_NONE || now < node->next_campaign)
		return;
	if (votes_alone(node))
		silence = PG_INT64_MAX;
	if (silence < SHARD_ELECTION_TIMEOUT)
		return;
	rank = candidate_rank(node);
	if (rank < 0 || silence < SHARD_ELECTION_TIMEOUT + rank * SHARD_CANDIDATE_STEP)
		return;
	/* Two candidates that fail against each other must not go on trying at the same time. */
	node->next_campaign = now + SHARD_ELECTION_TIMEOUT +
						  (rank + 1) * SHARD_CANDIDATE_STEP * (1 + Min(node->campaigns, 8));
	node->campaigns++;
	shard_proposer_campaign(node->proposer, now, node->learned, node->out);
}

/* The office was just taken, or lost. */
static void
follow_office(ShardNode *node, int64 now)
{
	bool held = shard_proposer_office(node->proposer) == SHARD_OFFICE_HELD;

	if (held == node->in_office)
		return;
	node->in_office = held;
	if (held)
	{
		if (node->first_office == 0)
			node->first_office = shard_proposer_ballot(node->proposer);
		/* It need not wait for its own heartbeat. */
		if (shard_proposer_ballot(node->proposer) > node->coordinator_ballot)
		{
			node->coordinator = node->id;
			node->coordinator_ballot = shard_proposer_ballot(node->proposer);
			node->coordinator_heard = now;
			shard_node_region_new_coordinator(node);
		}
		shard_roster_take_office(node->roster, now, node->proposer);
		shard_homes_take_office(node->homes, now, node->proposer);
		shard_action_log(node->out, 15 /* LOG */, "node %d is the coordinator", node->id);
	}
	else
	{
		shard_homes_lose_office(node->homes);
		shard_node_answer_lose_office(node);
		shard_action_log(node->out, 15 /* LOG */, "node %d is no longer the coordinator", node->id);
	}
}

/* What was decided here is learned here. */
static void
learn_decided(ShardNode *node)
{
	const ShardMap *decided;
	int64 known = shard_map_point(node->learned).n;
	ShardMapEntry *entries;
	int count;

	if (!node->in_office)
		return;
	decided = shard_proposer_decided(node->proposer);
	if (shard_map_point(decided).n <= known)
		return;
	entries = shard_map_since(decided, known, node->out->arena, &count);
	shard_node_learn(node, entries, count, known, shard_map_point(decided).n);
}

void
shard_node_office_after(ShardNode *node, int64 now)
{
	if (!node->running || !node->proposer)
		return;
	follow_office(node, now);
	learn_decided(node);
	if (node->in_office)
	{
		shard_homes_settle(node->homes, now, node->proposer, node->roster, node->out);
		shard_proposer_flush(node->proposer, now, node->out);
	}
	shard_node_answer_tick(node, now);
}

/*
 * The number of homes that a node has, or that come to it, and one more if others are being
 * decided.
 */
static int
homes_of(const void *context, int32 member)
{
	const ShardNode *node = context;

#ifdef SHARD_MUTANT_EMPTY_WHILE_UNDECIDED
	return shard_homes_to_leave(node->homes, member);
#endif
	return shard_homes_to_leave(node->homes, member) +
		   shard_proposer_pending_home(node->proposer, member, node->out->arena);
}

/*
 * Give up the office in good order: the members hear of it, so that one of them campaigns at once and
 * not after a silence (R32). It is safe whichever members hear of it, and when: ballots alone settle
 * which node decides, and the next coordinator waits for the leases (L4), from the promises of its
 * voters.
 */
static void
resign(ShardNode *node, int64 now)
{
	int32 *members;
	int n_members = audience(node, now, shard_proposer_decided(node->proposer), &members);
	int64 ballot = shard_proposer_ballot(node->proposer);

	for (int i = 0; i < n_members; i++)
	{
		if (members[i] != node->id)
			shard_action_send(node->out, members[i], SHARD_CONTROL_RESIGN)->b = ballot;
	}
	shard_action_log(node->out, 15 /* LOG */, "node %d hands over the office", node->id);
	shard_proposer_step_down(node->proposer);
	follow_office(node, now);
}

/* The coordinator gives up its office: the next one need not wait. */
static void
resigned(ShardNode *node, int64 now, const ShardControl *message)
{
	if (message->b != node->coordinator_ballot || message->from != node->coordinator)
		return;
	node->coordinator_heard = Min(node->coordinator_heard, now - SHARD_ELECTION_TIMEOUT);
	node->next_campaign = now;
}

/*
 * The server is going down. No shards come here any more, and the office goes to another node, if there
 * is one that could take it: a node that votes alone keeps it to its end.
 */
static void
stop(ShardNode *node, int64 now)
{
	node->stopping = true;
	shard_node_region_new_coordinator(node);
	shard_node_type_announce(node, now);
	if (node->in_office && !votes_alone(node))
		resign(node, now);
}

/*
 * A coordinator that leaves goes last: when it is exiting, and a quorum of the voters knows that, another one takes
 * the office and removes it. Members that are away then need not know: the next coordinator learns what is decided.
 */
static void
hand_over(ShardNode *node, int64 now)
{
	const ShardMap *decided = shard_proposer_decided(node->proposer);
	const ShardMapEntry *self =
		shard_map_value(decided, (ShardMapKey){SHARD_MAP_MEMBER, node->id, 0});
	ShardMemberRecord member;

	if (self && shard_record_get_member(self, &member, node->out->arena) &&
		member.status == SHARD_MEMBER_EXITING && !votes_alone(node) &&
		shard_proposer_quorum_learned(node->proposer, self->n))
		resign(node, now);
}

void
shard_node_office_tick(ShardNode *node, int64 now)
{
	int32 *members;
	int n_members;
	const ShardMap *map = node->learned;

	if (node->join.address || node->fenced)
		return;
	if (shard_node_step_is_stuck(node, now))
	{
		if (node->in_office)
			shard_action_log(node->out, 19 /* WARNING */,
							 "the database of node %d has not made anything durable for a while",
							 node->id);
		shard_proposer_step_down(node->proposer);
		follow_office(node, now);
		return;
	}
	maybe_campaign(node, now);
	if (shard_proposer_office(node->proposer) == SHARD_OFFICE_NONE)
		return;
	if (shard_proposer_office(node->proposer) == SHARD_OFFICE_HELD)
		map = shard_proposer_decided(node->proposer);
	n_members = audience(node, now, map, &members);
	shard_proposer_tick(node->proposer, now, members, n_members, node->out);
	follow_office(node, now);
	if (!node->in_office)
		return;
	shard_roster_heard(node->roster, now, node->id, true);
	shard_roster_tick(node->roster, now, node->proposer, homes_of, node, node->out);
	shard_homes_tick(node->homes, now, node->proposer, node->roster, node->out);
	hand_over(node, now);
}

/* A wish for another gate becomes a fact (G3). */
static void
note_gate(ShardNode *node, const ShardControl *message)
{
	const ShardMapEntry *entry = shard_map_value(shard_proposer_decided(node->proposer),
												 (ShardMapKey){SHARD_MAP_MEMBER, message->from, 0});
	ShardMemberRecord member;
	ShardMapEntry change;

	if (!entry || !shard_record_get_member(entry, &member, node->out->arena) ||
		member.gate == message->gate || message->from_inc != member.inc_no ||
		(message->gate != SHARD_GATE_LOCAL && message->gate != SHARD_GATE_STANDBY))
		return;
	member.gate = message->gate;
	change = shard_record_put_member(message->from, &member, entry->n, node->out->arena);
	(void) shard_proposer_propose(node->proposer, &change, 1);
}

/* A joiner takes this node for the coordinator, which it is not. */
static void
point_to_coordinator(ShardNode *node, const ShardControl *join)
{
	ShardMemberRecord member;
	ShardControl *hint;

	if (node->coordinator == 0 || !shard_node_get_member(node, node->coordinator, &member))
		return;
	hint = shard_action_send(node->out, 0, SHARD_CONTROL_COORDINATOR_HINT);
	hint->node = node->coordinator;
	hint->uuid2 = join->uuid;
	hint->text = shard_arena_copy(node->out->arena, member.dsn, strlen(member.dsn) + 1);
}

/* Does it come in the name of a member's incarnation of now? */
static bool
is_from_incarnation(const ShardNode *node, const ShardControl *message)
{
	ShardMemberRecord member;

	return message->from != 0 && message->from_inc != 0 &&
		   shard_node_get_member(node, message->from, &member) &&
		   member.inc_no == message->from_inc;
}

void
shard_node_office_receive(ShardNode *node, int64 now, const ShardControl *message)
{
	/* An earlier look at the same message, for its era or facts, may have ended the office. */
	follow_office(node, now);
	switch (message->kind)
	{
		case SHARD_CONTROL_PRE_VOTE_REPLY:
		case SHARD_CONTROL_PROMISE:
		case SHARD_CONTROL_STATE:
		case SHARD_CONTROL_SYNCED:
		case SHARD_CONTROL_ACCEPTED:
		case SHARD_CONTROL_NEED_SYNC:
		case SHARD_CONTROL_NACK:
		case SHARD_CONTROL_HEARTBEAT_ACK:
		case SHARD_CONTROL_GET_DELTA:
			/*
			 * A node that told a collector what it knew takes no office in that era any more (R14).
			 */
			if (node->journal.sealed == 0)
				shard_proposer_receive(node->proposer, now, message, node->out);
			follow_office(node, now);
			break;
		case SHARD_CONTROL_RESIGN:
			resigned(node, now, message);
			break;
		case SHARD_CONTROL_COMMAND:
		case SHARD_CONTROL_COMMAND_ANSWER:
		case SHARD_CONTROL_COMMAND_CODE:
			shard_node_command_receive(node, now, message);
			break;
		case SHARD_CONTROL_JOIN:
			if (node->join.address)
				return;
			if (!node->in_office)
				point_to_coordinator(node, message);
			break;
		default:
			break;
	}
	if (!node->in_office)
		return;
	/* an incarnation that claims a place is not the one that has it */
	if (is_from_incarnation(node, message) && message->kind != SHARD_CONTROL_ADMIT)
		shard_roster_heard(node->roster, now, message->from,
						   message->kind == SHARD_CONTROL_HEARTBEAT_ACK);
	/* A caller may say in any member's name that it wishes to leave. */
	if (message->kind == SHARD_CONTROL_GRACEFUL_SHUTDOWN_REQ &&
		(!is_from_incarnation(node, message) || !shard_node_trust_wish(node, now, message)))
		return;
	if (message->kind == SHARD_CONTROL_HEARTBEAT_ACK && is_from_incarnation(node, message) &&
		shard_node_trust_report(node, now, message))
		shard_roster_reported(node->roster, message, node->proposer);
	/* What this node itself no longer wishes for may still have been on its way. */
	if (message->kind == SHARD_CONTROL_START_TYPE && message->from == node->id &&
		!shard_node_type_is_wished(node, message))
		return;
		/*
		 * Which incarnation sits at an address the host of this node has to find there; what another node
		 * sends about it does not count (I16).
		 */
#ifndef SHARD_MUTANT_CALLED_BACK_BY_ANYBODY
	if (message->kind == SHARD_CONTROL_I_AM)
		return;
#endif
	if (message->kind == SHARD_CONTROL_REGISTER)
		note_gate(node, message);
	shard_roster_receive(node->roster, now, message, node->proposer, node->out);
	shard_homes_receive(node->homes, now, message, node->proposer, node->roster, node->out);
}

/* ---- operator's acts -------------------------------------------------------------------------- */

/* Are these nodes voters that may be forced: an odd number of members, each once, this node among them? */
static bool
may_be_forced(const ShardNode *node, const int32 *nodes, int n_nodes)
{
	bool listed = false;

	for (int i = 0; i < n_nodes; i++)
	{
		ShardMemberRecord member;

		for (int k = 0; k < i; k++)
		{
			if (nodes[k] == nodes[i])
				return false;
		}
		if (!shard_node_get_member(node, nodes[i], &member) ||
			member.status == SHARD_MEMBER_REMOVED || member.status == SHARD_MEMBER_WRITTEN_OFF)
			return false;
		listed |= nodes[i] == node->id;
	}
	return listed && n_nodes <= SHARD_MAX_VOTERS && n_nodes % 2 == 1;
}

void
shard_node_office_force(ShardNode *node, int64 now, const ShardCommand *command)
{
	ShardMapPoint point;
	int32 era = node->era;

	if (!may_be_forced(node, command->nodes, command->n_nodes))
	{
		shard_node_step_done(node, command->asker.token, false,
							 "voters are an odd number of members, this node among them");
		return;
	}

	/*
	 * A coordinator holds its office only as long as a majority of voters in good order hears it (R10): no voters are
	 * lost then. A sealed node cannot follow it any more (R14).
	 */
#ifndef SHARD_MUTANT_FORCED_WITH_A_MAJORITY
	if (node->journal.sealed == 0 && shard_node_command_heard(node, now))
	{
		shard_node_step_done(node, command->asker.token, false,
							 node->in_office
								 ? "this node is the coordinator, and has a majority of the voters"
								 : "a coordinator is heard that has a majority of the voters");
		return;
	}
#endif
	/*
	 * The era that this node was sealed for may have begun, at a journal that no node reaches. A stored era that is
	 * out of reach has not begun: no node would have entered it.
	 */
	if (shard_node_trust_era_to_come(node, node->journal.sealed))
		era = Max(era, node->journal.sealed);
	if (era == PG_INT32_MAX)
	{
		shard_node_step_done(node, command->asker.token, false, "there is no era after this one");
		return;
	}
	shard_voter_force(node->voter, shard_node_trust_next_ballot(node),
					  shard_node_learn_known(node, &point), command->nodes, command->n_nodes,
					  era + 1, node->out);
	shard_node_learn_forced(node);
	shard_node_learn_tell(node);
	shard_proposer_step_down(node->proposer);
	shard_proposer_forget_ballots(node->proposer);
	shard_proposer_saw_ballot(node->proposer, shard_voter_promised(node->voter));
	node->coordinator = 0;
	node->coordinator_ballot = 0;
	node->coordinator_heard = now - SHARD_ELECTION_TIMEOUT;
	node->next_campaign = now;
	shard_node_step_done(node, command->asker.token, true, NULL);
}

void
shard_node_office_event(ShardNode *node, int64 now, const ShardNodeEvent *event)
{
	ShardHomesStrategy strategy;
	ShardStatesAnswer states;

	switch (event->kind)
	{
		case SHARD_EVENT_WHO_ANSWERED:
			if (event->node == node->id)
				shard_node_place_who(node, now, event->uuid, (ShardAddressGround) event->number);
			if (node->in_office)
			{
				ShardControl message = {.kind = SHARD_CONTROL_I_AM};

				message.from = event->node;
				message.node = event->node;
				message.uuid2 = event->uuid;
				message.token = event->token;
				message.flag = event->flag;
				message.text = event->text;
				shard_roster_receive(node->roster, now, &message, node->proposer, node->out);
			}
			return;
		case SHARD_EVENT_STRATEGY:
			strategy = (ShardHomesStrategy){.token = event->number,
											.rebalance = event->flag,
											.n_shards = event->n_shards,
											.shards = event->shards,
											.n_nodes = event->n_nodes,
											.nodes = event->nodes,
											.error = event->text,
											.sqlstate = event->node};
			if (node->in_office)
				shard_homes_strategy(node->homes, now, &strategy, node->proposer, node->roster,
									 node->out);
			return;
		case SHARD_EVENT_STATES:
			states = (ShardStatesAnswer){.token = event->token,
										 .n_shards = event->n_shards,
										 .shards = event->shards,
										 .end = event->flag,
										 .why = event->text,
										 .refuse = event->flag};
			if (node->in_office)
				shard_roster_states(node->roster, now, &states, node->proposer);
			return;
		case SHARD_EVENT_STOPPING:
			stop(node, now);
			return;
		default:
			return;
	}
}
