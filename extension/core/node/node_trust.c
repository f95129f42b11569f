/*
 * core/node/node_trust.c
 *		What a node believes of which sender (T7): ballots and eras in reach, ends of incarnations from the nodes that were asked.
 *
 * A caller can say anything in any node's name. What would be for good is therefore taken from the process at the registered
 * address of the node that it is said for, when this node has called there; and numbers that have only one direction, ballots
 * and eras, rise by steps that leave room for as many more as there can ever be.
 *
 * Nothing here is durable. If the process dies right here, the nodes are asked again.
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "core/node/node_private.h"
#include "core/node/trust_private.h"

/*
 * A ballot may be this far above all ballots that this node knows: 2^20 rounds, as many as 43 hours of elections
 * take. Ballots have room for 2^26 such steps, each of which has to become durable before the next.
 */
#define BALLOT_STEP (INT64CONST(1) << (16 + 20))

/*
 * After a pause of the own process all others look silent; a live member has been heard again after so
 * long.
 */
#ifdef SHARD_MUTANT_ALL_SILENT_AFTER_PAUSE
#define LISTEN_AFTER_PAUSE 0
#else
#define LISTEN_AFTER_PAUSE (5 * SHARD_SECOND)
#endif

/* An era begins by an operator's word. */
#define ERA_STEP 1024

/*
 * Does it come from the address of the node that it is said for? A joiner is no node yet and has no address
 * here.
 */
static bool
is_answer(const ShardNode *node, const ShardControl *message)
{
	return message->from != 0 && node->via == message->from;
}

/*
 * An answer to a joiner is of another cluster, in which numbers belong to other nodes (it has the join's
 * token); nothing else counts that a seed says.
 */
bool
shard_node_trust_sender(ShardNode *node, const ShardControl *message)
{
#ifdef SHARD_MUTANT_ANSWERS_FOR_ANYBODY
	return true;
#endif
	if (node->via == node->id ||
		(node->join.address && (message->kind == SHARD_CONTROL_JOIN_REPLY ||
								message->kind == SHARD_CONTROL_COORDINATOR_HINT)))
		return true;
	if (node->via == 0 ? message->from != node->id : message->from == node->via)
		return true;
	/* While this node joins, members of the other cluster have numbers as its own one has: they say nothing of this one. */
	if (!shard_record_uuid_equal(message->cluster, node->cluster))
		return false;
	if (node->via > 0)
		shard_action_log_peer(
			node->out, 19 /* WARNING */, node->via, message->kind,
			"node %d, or another database at its address, answers in the name of node %d; the "
			"message is ignored",
			node->via, message->from);
	else if (message->from == node->id)
		shard_action_log_peer(
			node->out, 19 /* WARNING */, message->from, message->kind,
			"a caller speaks in the name of this node, %d; the message is ignored", node->id);
	return false;
}

/* The greatest ballot under which something was decided, as learned. */
static int64
learned_ballot(const ShardNode *node)
{
	const ShardMapEntry *entry =
		shard_map_value(node->learned, (ShardMapKey){SHARD_MAP_TERM, 0, 0});
	ShardTermRecord term;

	if (!entry || !shard_record_get_term(entry, &term) || term.n_terms == 0)
		return 0;
	return term.terms[term.n_terms - 1].b;
}

static bool
is_vote(ShardControlKind kind)
{
	return kind < SHARD_CONTROL_HEARTBEAT || kind == SHARD_CONTROL_HEARTBEAT ||
		   kind == SHARD_CONTROL_HEARTBEAT_ACK || kind == SHARD_CONTROL_RESIGN;
}

/* Only the node that a ballot is of says these under it. */
static bool
is_of_holder(ShardControlKind kind)
{
	switch (kind)
	{
		case SHARD_CONTROL_PRE_VOTE:
		case SHARD_CONTROL_PREPARE:
		case SHARD_CONTROL_FETCH:
		case SHARD_CONTROL_SYNC:
		case SHARD_CONTROL_ACCEPT:
		case SHARD_CONTROL_HEARTBEAT:
		case SHARD_CONTROL_RESIGN:
			return true;
		default:
			return false;
	}
}

/*
 * Is it of another node's ballot? Otherwise a caller that may speak for one node could decide in the name of
 * another one.
 */
static bool
is_usurped(const ShardControl *message)
{
#ifdef SHARD_MUTANT_BALLOT_OF_ANYBODY
	return false;
#endif
	return is_of_holder(message->kind) && (uint16) message->b != message->from;
}

/*
 * Is a ballot further up than elections can have come? A node that has learned nothing yet of its cluster cannot
 * know.
 */
static bool
is_out_of_reach(ShardNode *node, const ShardControl *message)
{
	int64 known = Max(Max(node->coordinator_ballot, shard_voter_promised(node->voter)),
					  Max(shard_proposer_seen(node->proposer), learned_ballot(node)));
	int64 most = Max(message->b, Max(message->ballot, message->any_point.b));

#ifdef SHARD_MUTANT_ANY_BALLOT
	return false;
#endif
	return is_vote(message->kind) && shard_map_point(node->learned).n > 0 && most > known &&
		   most - known > BALLOT_STEP;
}

bool
shard_node_trust_ballots(ShardNode *node, const ShardControl *message)
{
	const char *what = is_out_of_reach(node, message) ? "a ballot that no election can have reached"
					   : is_usurped(message)		  ? "another node's ballot as its own"
													  : NULL;

	if (what == NULL)
		return true;
	shard_action_log_peer(node->out, 19 /* WARNING */, message->from, message->kind,
						  "node %d, or a caller in its name, names %s; the message is ignored",
						  message->from, what);
	return false;
}

/*
 * What the coordinator alone says to members. It says it again, to members that have not heard of its
 * office yet.
 */
static bool
is_order(ShardControlKind kind)
{
	switch (kind)
	{
		case SHARD_CONTROL_GRANT:
		case SHARD_CONTROL_TYPE_STARTED:
		case SHARD_CONTROL_HOST_SHARDS:
		case SHARD_CONTROL_HAND_OFF:
		case SHARD_CONTROL_PREPARE_IMPORT:
		case SHARD_CONTROL_IMPORT:
		case SHARD_CONTROL_CANNOT_LEAVE:
			return true;
		default:
			return false;
	}
}

/*
 * A shard that is stopped for a move that was not decided would handle nothing any more. Who has just come into office may be
 * ahead of the news of it.
 */
bool
shard_node_trust_orders(ShardNode *node, const ShardControl *message)
{
#ifdef SHARD_MUTANT_ORDERS_OF_ANYBODY
	return true;
#endif
	if (!is_order(message->kind) || (message->from != 0 && message->from == node->coordinator))
		return true;
	shard_action_log_peer(
		node->out, 15 /* LOG */, message->from, message->kind,
		"node %d sends %s, which only the coordinator does: it came into office just now, and will "
		"send it again, or a caller speaks in its name; the message is ignored",
		message->from, shard_control_name(message->kind));
	return false;
}

int64
shard_node_trust_next_ballot(const ShardNode *node)
{
	int64 decided = learned_ballot(node);
	int64 ballot = Max(node->coordinator_ballot, shard_voter_promised(node->voter));

	/* one that was stored and is out of reach for the others was never used */
#ifndef SHARD_MUTANT_FORCED_ABOVE_ANY
	if (ballot - decided > BALLOT_STEP)
		ballot = decided;
#endif
	return (((ballot >> 16) + 1) << 16) | (uint16) node->id;
}

bool
shard_node_trust_era(ShardNode *node, const ShardControl *message)
{
#ifdef SHARD_MUTANT_ERA_OF_ANYBODY
	return true;
#endif
	/* a journal calls no node: its members are those that may connect to its database */
	if (message->era - node->era <= ERA_STEP &&
		(is_answer(node, message) || node->config.journal_voter))
		return true;
	if (message->from != 0 && message->from != node->id)
		shard_action_send(node->out, message->from, SHARD_CONTROL_GET_DELTA)->learned_n =
			shard_map_point(node->learned).n;
	return false;
}

bool
shard_node_trust_era_to_come(const ShardNode *node, int32 era)
{
	return (int64) era - node->era < ERA_STEP;
}

/*
 * The era that a node is sealed for leaves room for the one that forced voters begin above it, which
 * others have to enter.
 */
bool
shard_node_trust_journal(const ShardNode *node, const ShardControl *message)
{
#ifdef SHARD_MUTANT_SEALED_BY_ANYBODY
	return true;
#endif
	if (message->kind != SHARD_CONTROL_COLLECT && message->kind != SHARD_CONTROL_COLLECTED &&
		message->kind != SHARD_CONTROL_RESTORE_JOURNAL)
		return true;
	return (node->config.journal_node != 0 || node->config.journal_voter) &&
		   shard_node_trust_era_to_come(node, message->new_era);
}

/* Does it come from the database that keeps the map, which this node has called? */
static bool
is_of_journal(const ShardNode *node, const ShardControl *message)
{
	return node->config.journal_node != 0 && message->from == node->config.journal_node &&
		   is_answer(node, message);
}

/*
 * A node that has no office decides nothing, also if it is asked. A member that has not heard of the
 * office yet hears of it, by a heartbeat or as the answer to its join, before what is decided there.
 */
bool
shard_node_trust_facts(ShardNode *node, int64 now, const ShardControl *message)
{
#ifdef SHARD_MUTANT_FACTS_OF_ANYBODY
	return true;
#endif
#ifdef SHARD_MUTANT_FACTS_OF_WHO_IS_ASKED
	if (is_answer(node, message))
		return true;
#endif
	if ((message->from != 0 && message->from == shard_node_coordinator(node, now)) ||
		(is_answer(node, message) && message->from == node->coordinator) ||
		message->from == node->id || is_of_journal(node, message) || node->config.journal_voter)
		return true;
	shard_action_log_peer(
		node->out, 15 /* LOG */, message->from, message->kind,
		"node %d, or a caller in its name, tells what was decided, and is not the coordinator "
		"that this node follows; the message is ignored",
		message->from);
	return false;
}

/* ---- what operators wish ----------------------------------------------------------------------- */

/*
 * The code of a member's incarnation at its address, in this office. It is said to that address alone, so another caller in
 * its name has not got it, nor has a process at its former address. What voters seal has a node's id where this has a
 * ballot, which is greater than all of those (node_identity.c).
 */
static ShardUuid
code_of(const ShardNode *node, int32 member, int32 inc_no)
{
	const uint64 said[] = {node->cluster.high, node->cluster.low,
						   (uint64) node->era, (uint64) shard_proposer_ballot(node->proposer),
						   (uint64) member,	   (uint64) inc_no};
	ShardMemberRecord record pg_attribute_unused();
	const char *dsn = "";
	size_t length;
	char *bytes;

#ifndef SHARD_MUTANT_CODE_OF_ANY_ADDRESS
	if (shard_node_get_member(node, member, &record) && record.dsn)
		dsn = record.dsn;
#endif
	length = sizeof(said) + strlen(dsn);
	bytes = shard_arena_alloc(node->arena, length);
	memcpy(bytes, said, sizeof(said));
	memcpy(bytes + sizeof(said), dsn, strlen(dsn));
	return node->config.seal ? node->config.seal(node->secret, bytes, length) : (ShardUuid){0, 0};
}

/*
 * Is the code on its way to the member already? It need not be said again for each message of a flood; one that was lost is said
 * again after a while.
 */
static bool
was_told(ShardNode *node, int64 now, int32 member, ShardUuid code)
{
#ifdef SHARD_MUTANT_CODES_WITHOUT_END
	return false;
#endif
	for (int i = 0; i < node->n_peers; i++)
	{
		NodePeer *peer = &node->peers[i];

		if (peer->node != member)
			continue;
		if (shard_record_uuid_equal(peer->code, code) &&
			now - peer->told < SHARD_HEARTBEAT_INTERVAL)
			return true;
		peer->code = code;
		peer->told = now;
	}
	return false;
}

bool
shard_node_trust_wish(ShardNode *node, int64 now, const ShardControl *message)
{
	ShardUuid code = code_of(node, message->from, message->from_inc);
	ShardControl *reply;

#ifdef SHARD_MUTANT_WISHES_OF_ANYBODY
	return true;
#endif
	if (shard_record_uuid_equal(message->uuid, code))
		return true;
	if (was_told(node, now, message->from, code))
		return false;
	reply = shard_action_send(node->out, message->from, SHARD_CONTROL_COMMAND_CODE);
	reply->b = shard_proposer_ballot(node->proposer);
	reply->uuid = code;
	return false;
}

bool
shard_node_trust_report(ShardNode *node, int64 now, const ShardControl *message)
{
#ifdef SHARD_MUTANT_REPORTS_OF_ANYBODY
	return true;
#endif
	return is_answer(node, message) || shard_node_trust_wish(node, now, message);
}

/* ---- texts ------------------------------------------------------------------------------------ */

static bool
is_text(const ShardNode *node, const char *text)
{
	return text == NULL || node->config.is_text(text, strlen(text));
}

/*
 * Are all texts of a record such as this database can have? A record that cannot be read has none.
 */
static bool
has_texts(ShardNode *node, const ShardMapEntry *entry)
{
	ShardMemberRecord member;
	ShardTypeRecord type;
	bool good;

	if (entry->deleted)
		return true;
	if (entry->key.kind == SHARD_MAP_MEMBER && shard_record_get_member(entry, &member, node->arena))
	{
		good = is_text(node, member.dsn) && is_text(node, member.app_version);
		for (int i = 0; i < member.n_roles; i++)
			good = good && is_text(node, member.roles[i]);
		return good;
	}
	if (entry->key.kind == SHARD_MAP_TYPE && shard_record_get_type(entry, &type, node->arena))
		/* names of roles are the server's, which has databases of several encodings: it does not look at them either */
		return is_text(node, type.name) && is_text(node, type.role) &&
			   is_text(node, type.hashing) && is_text(node, type.state);
	return true;
}

/* A sentence may have been cut within a character, by the node that made it. */
bool
shard_node_trust_texts(ShardNode *node, ShardControl *message)
{
#ifndef SHARD_MUTANT_ANY_BYTES
	if (node->config.is_text == NULL)
		return true;
	if (!is_text(node, message->text))
	{
		char *text = shard_arena_copy(node->arena, message->text, strlen(message->text) + 1);

		for (char *c = text; *c != '\0'; c++)
			*c = (*c & 0x80) != 0 ? '?' : *c;
		message->text = text;
	}
	for (int i = 0; i < message->n_entries; i++)
	{
		if (has_texts(node, &message->entries[i]))
			continue;
		if (message->kind == SHARD_CONTROL_JOIN)
		{
			ShardControl *reply = shard_action_send(node->out, 0, SHARD_CONTROL_JOIN_REPLY);

			reply->uuid2 = message->uuid;
			reply->text =
				"names or addresses of the node are no texts in the encoding of the cluster's databases";
			return false;
		}
		shard_action_log_peer(
			node->out, 19 /* WARNING */, message->from, message->kind,
			"node %d, or a caller in its name, sends %s with names or addresses that are no "
			"texts in the encoding of this database; the message is ignored",
			message->from, shard_control_name(message->kind));
		return false;
	}
#endif
	return true;
}

/* ---- the end of an incarnation ---------------------------------------------------------------- */

static bool
is_unreachable(const ShardNode *node, int64 now, int32 id)
{
	for (int i = 0; i < node->n_peers; i++)
	{
		if (node->peers[i].node == id)
			return !shard_detector_available(&node->peers[i].detector, now);
	}
	return false;
}

/* A host takes a step more often, but for a node that is alone. */
void
shard_node_trust_step(ShardNode *node, int64 now)
{
	if (now - node->stepped > SHARD_SECOND)
		node->awake_since = now;
	node->stepped = now;
}

/*
 * Have more than half of those members said it that can be heard? After a pause of its own a node has to listen before it
 * knows.
 */
static bool
most_say_so(const ShardNode *node, int64 now)
{
	int count;
	int others = 0;
	int say = 0;
	bool listens = now - node->awake_since < LISTEN_AFTER_PAUSE;
	ShardMapEntry *members =
		shard_map_list(node->learned, SHARD_MAP_MEMBER, node->out->arena, &count);

	for (int i = 0; i < count; i++)
	{
		ShardMemberRecord member;
		bool says = false;

		if (members[i].key.a == node->id ||
			!shard_record_get_member(&members[i], &member, node->arena) ||
			!shard_membership_is_member(member.status))
			continue;
		for (int k = 0; k < node->n_fenced_by; k++)
			says |= node->fenced_by[k] == members[i].key.a;
		say += says;
		others += says || listens || !is_unreachable(node, now, members[i].key.a);
	}
	return 2 * say > others;
}

void
shard_node_trust_era_begins(ShardNode *node)
{
#ifdef SHARD_MUTANT_ENDS_OF_ANOTHER_ERA
	if (node->running)
		return;
#endif
	node->n_fenced_by = 0;
}

/* Is what it brings this node's own record, by which it is no member any more? */
static bool
tells_end(const ShardNode *node, const ShardControl *message)
{
	const ShardMapEntry *entry = &message->entries[0];
	ShardMemberRecord member;

	return node->journal.sealed == 0 && entry->key.kind == SHARD_MAP_MEMBER &&
		   entry->key.a == node->id && !entry->deleted &&
		   shard_record_get_member(entry, &member, node->arena) &&
		   shard_membership_is_gone(member.status);
}

/* Does it say that another incarnation lives? What this database has claimed is no other one: it has not heard of the grant. */
static bool
tells_successor(const ShardNode *node, const ShardControl *message)
{
	return message->inc_no > node->inc_no && !shard_node_member_claimed(node, message->uuid);
}

bool
shard_node_trust_fenced(ShardNode *node, int64 now, const ShardControl *message)
{
	bool known = false;

	if (!(message->n_entries > 0 ? tells_end(node, message) : tells_successor(node, message)))
		return false;
#ifdef SHARD_MUTANT_FENCED_BY_ANYBODY
	return true;
#endif
	if (!is_answer(node, message))
	{
		/*
		 * The process at that node's address answers, when its own time has come: it is called all the
		 * time.
		 */
		shard_action_log_peer(
			node->out, 15 /* LOG */, message->from, message->kind,
			"node %d, or a caller in its name, says that incarnation %d of node %d is over; this "
			"is believed when the node answers so at its address",
			message->from, node->inc_no, node->id);
		return false;
	}
	for (int i = 0; i < node->n_fenced_by; i++)
		known |= node->fenced_by[i] == message->from;
	if (!known && node->n_fenced_by < (int) lengthof(node->fenced_by))
		node->fenced_by[node->n_fenced_by++] = message->from;
	return most_say_so(node, now) || message->from == node->coordinator;
}
