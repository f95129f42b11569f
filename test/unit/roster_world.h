/*
 * roster_world.h
 *		A small world for the coordinator's roster: real proposers, voters and maps, no delays.
 *
 * A peer of this world is what a node needs to be a member: voter, learned map, proposer, roster,
 * lease. Everything it writes is durable at once. What a peer is and where it sits are two things:
 * clones share a node id, and "addresses" says who answers at a node's registered address.
 */
#pragma once

#include "core/member/downing.h"
#include "core/member/lease.h"
#include "core/member/membership.h"
#include "core/node/node.h"
#include "core/member/roster.h"
#include "core/base/timing.h"
#include "core/map/voter.h"
#include "shard.h"
#include "unit.h"

#define S SHARD_SECOND
#define STEP (50 * SHARD_MS)
#define PEERS 10

typedef struct Peer
{
	bool there;
	bool cut;	 /* nothing comes or goes */
	bool silent; /* sends nothing of its own accord but what a voter has to answer */
	int32 id;
	int32 inc_no; /* 0: not admitted */
	int32 previous;
	ShardUuid uuid;
	ShardUuid token;
	int32 kind;
	bool loaded; /* says so when it joins */
	bool asks_lease;
	int64 campaign_at; /* when the test says so */
	int64 heard_at;	   /* the coordinator; for elections of their own accord */
	bool fenced;
	int n_claimed;
	ShardUuid claimed[8]; /* durable: this node's incarnations, newest last */
	ShardVoter *voter;
	ShardProposer *proposer;
	ShardRoster *roster;
	ShardMap *learned;
	ShardLease lease;
	bool in_office;
	int32 coordinator;
	int n_unreachable;
	int32 unreachable[4];

	/* Last answers */
	int refusals;
	char text[700];
	int grants;
} Peer;

typedef struct Letter
{
	struct Letter *next;
	int from;
	int to;
	size_t length;
	char bytes[FLEXIBLE_ARRAY_MEMBER];
} Letter;

static Peer peers[PEERS];
static int addresses[PEERS + 2]; /* by node id: index of the peer */
static int homes[PEERS + 2];
static Letter *first;
static Letter *last;
static ShardActions *out;
static ShardArena *arena;
static int64 now;
static ShardRosterSettings settings;
static const ShardLiveSettings live;
static int32 gate;	   /* of all who join */
static bool elections; /* voters campaign of their own accord */
static int rivals;	   /* log lines about two claimants */
static int questions;  /* that joiners were called back */
static char last_log[1100];
static int32 last_which; /* of that line, by which it is bounded how often it is written (T11) */

static const ShardUuid cluster = {42, 42};

/* ---- the world ----------------------------------------------------------------------------------- */

/* Who sits at an address: of a member, or as a joiner has it; -1: nobody who answers. */
static int
sits_at(const ShardAction *action)
{
	int at = action->node != 0 ? addresses[action->node] : atoi(action->text + strlen("host="));

	return at >= 0 && at < PEERS && peers[at].there && !peers[at].cut ? at : -1;
}

/* Put the messages of the last step on their ways; link: to whom node 0 answers. */
static void
post(int from, int link)
{
	StringInfoData buffer;

	initStringInfo(&buffer);
	for (int i = 0; i < out->n_actions; i++)
	{
		ShardAction *action = &out->actions[i];
		ShardControl message;
		Letter *letter;

		if (action->kind == SHARD_ACTION_LOG)
		{
			snprintf(last_log, sizeof(last_log), "%s", action->text);
			last_which = action->to;
			rivals += strstr(action->text, "two incarnations") ? 1 : 0;
		}
		if (action->kind == SHARD_ACTION_STATES)
			shard_roster_states(peers[from].roster, now,
								&(ShardStatesAnswer){.token = action->token, .end = true},
								peers[from].proposer);
		questions += action->kind == SHARD_ACTION_WHO_AT && action->node == 0;
		if (action->kind == SHARD_ACTION_WHO_AT && sits_at(action) >= 0)
		{
			ShardControl answer = {.kind = SHARD_CONTROL_I_AM, .node = action->node};

			answer.uuid = action->uuid;
			answer.uuid2 = peers[sits_at(action)].uuid;
			answer.token = action->token;
			answer.flag = shard_record_uuid_equal(action->uuid, peers[sits_at(action)].token);
			answer.from = from; /* for the loop below: to itself */
			message = answer;
		}
		else if (action->kind == SHARD_ACTION_SEND)
			message = *action->message;
		else
			continue;
		message.cluster = cluster;
		message.protocol_version = SHARD_PROTOCOL_VERSION;
		message.from = peers[from].id;
		message.from_inc = peers[from].inc_no;
		resetStringInfo(&buffer);
		shard_control_encode(&buffer, &message);
		letter = palloc(offsetof(Letter, bytes) + buffer.len);
		letter->next = NULL;
		letter->from = from;
		letter->to = action->kind == SHARD_ACTION_WHO_AT ? from
					 : action->node == 0				 ? link
														 : addresses[action->node];
		letter->length = buffer.len;
		memcpy(letter->bytes, buffer.data, buffer.len);
		if (last)
			last->next = letter;
		else
			first = letter;
		last = letter;
	}
	pfree(buffer.data);
	shard_action_reset(out);
}

static int
homes_of(const void *context, int32 node)
{
	return ((const int *) context)[node];
}

/* The decided map of the coordinator, of two of them the newer; NULL: there is none. */
static const ShardMap *
decided(void)
{
	const ShardMap *newest = NULL;

	for (int i = 0; i < PEERS; i++)
		if (peers[i].there && peers[i].in_office && !peers[i].cut && !peers[i].fenced)
		{
			const ShardMap *map = shard_proposer_decided(peers[i].proposer);

			if (!newest || shard_map_compare(shard_map_point(map), shard_map_point(newest)) > 0)
				newest = map;
		}
	return newest;
}

static bool
get_member(const ShardMap *map, int32 node, ShardMemberRecord *record)
{
	const ShardMapEntry *entry = shard_map_value(map, (ShardMapKey){SHARD_MAP_MEMBER, node, 0});

	return entry && shard_record_get_member(entry, record, arena);
}

/* A peer learns what was decided, and whether it is admitted. */
static void
learn(Peer *peer, const ShardMapEntry *entries, int n_entries, int64 upto)
{
	ShardMemberRecord record;
	ShardMapPoint point = {0, upto};

	for (int i = 0; i < n_entries; i++)
		(void) shard_map_learn(peer->learned, &entries[i]);
	shard_map_set_point(peer->learned, point);
	if (get_member(peer->learned, peer->id, &record))
	{
		bool mine = shard_record_uuid_equal(record.inc_uuid, peer->uuid);

		if (mine && record.status != SHARD_MEMBER_DOWN)
			peer->inc_no = record.inc_no;
		for (int i = 0; i < peer->n_claimed && peer->inc_no == 0; i++)
			if (shard_record_uuid_equal(record.inc_uuid, peer->claimed[i]))
				peer->previous = record.inc_no;
		if ((!mine && record.inc_no > peer->inc_no && peer->inc_no > 0) ||
			record.status == SHARD_MEMBER_REMOVED || (record.status == SHARD_MEMBER_DOWN && mine))
			peer->fenced = true;
	}
}

static void
follow(Peer *peer)
{
	bool held = shard_proposer_office(peer->proposer) == SHARD_OFFICE_HELD;

	if (held && !peer->in_office)
		shard_roster_take_office(peer->roster, now, peer->proposer);
	peer->in_office = held;
	if (!held)
		return;
	if (shard_map_point(shard_proposer_decided(peer->proposer)).n >
		shard_map_point(peer->learned).n)
	{
		int count;
		ShardMapEntry *entries =
			shard_map_since(shard_proposer_decided(peer->proposer),
							shard_map_point(peer->learned).n, out->arena, &count);

		learn(peer, entries, count, shard_map_point(shard_proposer_decided(peer->proposer)).n);
	}
	shard_proposer_flush(peer->proposer, now, out);
}

static void
heartbeat(Peer *peer, const ShardControl *message)
{
	ShardControl *reply;

	if (message->b < shard_voter_promised(peer->voter))
	{
		reply = shard_action_send(out, message->from, SHARD_CONTROL_NACK);
		reply->b = message->b;
		reply->ballot = shard_voter_promised(peer->voter);
		return;
	}
	peer->coordinator = message->from;
	peer->campaign_at = PG_INT64_MAX;
	peer->heard_at = now;
	reply = shard_action_send(out, message->from, SHARD_CONTROL_HEARTBEAT_ACK);
	reply->b = message->b;
	reply->token = message->token;
	reply->learned_n = shard_map_point(peer->learned).n;
	reply->accepted = shard_map_point(shard_voter_map(peer->voter));
	reply->voter_state = shard_voter_state(peer->voter);
	reply->nodes = peer->unreachable;
	reply->n_nodes = peer->n_unreachable;
}

/* What a node does with a message, as far as it concerns members. */
static void
receive(Peer *peer, const ShardControl *message)
{
	ShardMemberRecord record;

	switch (message->kind)
	{
		case SHARD_CONTROL_PRE_VOTE:
		case SHARD_CONTROL_PREPARE:
		case SHARD_CONTROL_FETCH:
		case SHARD_CONTROL_SYNC:
		case SHARD_CONTROL_ACCEPT:
			shard_voter_receive(peer->voter, now, message, false, out);
			return;
		case SHARD_CONTROL_HEARTBEAT:
			heartbeat(peer, message);
			return;
		case SHARD_CONTROL_LEARN:
			if (message->above <= shard_map_point(peer->learned).n &&
				message->commit_n > shard_map_point(peer->learned).n)
				learn(peer, message->entries, message->n_entries, message->commit_n);
			return;
		case SHARD_CONTROL_GRANT:
			shard_lease_grant(&peer->lease, message->token, message->ttl_ms, message->facts_n, now);
			peer->grants++;
			return;
		case SHARD_CONTROL_JOIN_REPLY:
		case SHARD_CONTROL_ADMIT_REPLY:
			if (message->kind == SHARD_CONTROL_JOIN_REPLY && message->flag && peer->id == 0)
			{
				peer->id = message->node;
				addresses[peer->id] = (int) (peer - peers);
				shard_proposer_destroy(peer->proposer);
				shard_roster_destroy(peer->roster);
				shard_voter_destroy(peer->voter);
				peer->proposer = shard_proposer_create(peer->id);
				settings.incarnation = peer->uuid;
				peer->roster = shard_roster_create(peer->id, &settings, &live);
				peer->voter = shard_voter_create(peer->id);
			}
			if (!message->flag)
			{
				peer->refusals++;
				snprintf(peer->text, sizeof(peer->text), "%s", message->text);
			}
			return;
		default:
			break;
	}
	shard_proposer_receive(peer->proposer, now, message, out);
	follow(peer);
	if (!peer->in_office)
		return;
	if (message->from_inc > 0 && get_member(peer->learned, message->from, &record) &&
		record.inc_no == message->from_inc)
		shard_roster_heard(peer->roster, now, message->from,
						   message->kind == SHARD_CONTROL_HEARTBEAT_ACK);
	if (message->kind == SHARD_CONTROL_HEARTBEAT_ACK)
		shard_roster_reported(peer->roster, message, peer->proposer);
	shard_roster_receive(peer->roster, now, message, peer->proposer, out);
}

/* Deliver until nobody has anything to say. */
static void
deliver(void)
{
	int letters = 0;

	while (first)
	{
		Letter *letter = first;
		Peer *peer = letter->to >= 0 ? &peers[letter->to] : NULL;
		ShardControl message;

		first = letter->next;
		if (!first)
			last = NULL;
		if (peer && peer->there && !peer->fenced &&
			(letter->from == letter->to || (!peer->cut && !peers[letter->from].cut)) &&
			++letters < 20000 &&
			shard_control_decode(letter->bytes, letter->length, arena, &message))
		{
			receive(peer, &message);
			follow(peer);
			post(letter->to, letter->from);
			shard_arena_reset(arena);
		}
		pfree(letter);
	}
}

/* Wishes that a peer repeats: to join, to be admitted, to keep its lease. */
static void
wish(int from)
{
	Peer *peer = &peers[from];
	ShardControl *message;

	if (peer->id == 0)
	{
		ShardMemberRecord record = {.app_version = ""};
		ShardMapEntry *entry = shard_arena_alloc(out->arena, sizeof(ShardMapEntry));

		record.gate = gate;
		record.dsn = psprintf("host=%d", from);
		*entry = shard_record_put_member(0, &record, 0, out->arena);
		pfree((char *) record.dsn);
		message = shard_action_send(out, peer->coordinator, SHARD_CONTROL_JOIN);
		message->uuid = peer->token;
		message->uuid2 = peer->uuid;
		message->flag = peer->loaded;
		message->entries = entry;
		message->n_entries = 1;
	}
	else if (peer->inc_no == 0)
	{
		message = shard_action_send(out, peer->coordinator, SHARD_CONTROL_ADMIT);
		message->node = peer->id;
		message->inc_no = peer->previous;
		message->uuid = peer->uuid;
		message->start_kind = peer->kind;
	}
	else
	{
		shard_action_send(out, peer->coordinator, SHARD_CONTROL_MEMBER_HEARTBEAT);
		if (peer->asks_lease)
			shard_action_send(out, peer->coordinator, SHARD_CONTROL_RENEW)->token =
				shard_lease_renew(&peer->lease, now);
	}
}

/* May a voter that has not heard of a coordinator campaign now, the older first? */
static bool
is_elector(Peer *peer)
{
	const ShardMapEntry *entry =
		shard_map_value(peer->learned, (ShardMapKey){SHARD_MAP_VOTERS, 0, 0});
	ShardVotersRecord voters;
	int rank;

	if (!elections || !shard_record_get_voters(entry, &voters) ||
		(peer->inc_no == 0 && peer->kind != SHARD_START_RESTART) ||
		shard_voter_state(peer->voter) != SHARD_VOTER_OK)
		return false;
	rank = shard_membership_rank(peer->learned, peer->id, arena);
	for (int i = 0; i < voters.n_current + voters.n_next; i++)
		if ((i < voters.n_current ? voters.current[i] : voters.next[i - voters.n_current]) ==
			peer->id)
			return now - peer->heard_at > 2 * S + rank * 150 * SHARD_MS;
	return false;
}

static void
tick(int at)
{
	Peer *peer = &peers[at];
	int32 members[PEERS + 2];
	int n_members = 0;
	const ShardMap *map = peer->in_office ? shard_proposer_decided(peer->proposer) : peer->learned;

	for (int32 node = 1; node < PEERS + 2; node++)
	{
		ShardMemberRecord record;

		if (get_member(map, node, &record) &&
			(shard_membership_is_member(record.status) || record.status == SHARD_MEMBER_DOWN))
			members[n_members++] = node;
	}
	if (is_elector(peer))
	{
		peer->campaign_at = now;
		peer->heard_at = now + at * 100 * SHARD_MS;
	}
	if (now >= peer->campaign_at && shard_proposer_office(peer->proposer) == SHARD_OFFICE_NONE)
	{
		shard_proposer_campaign(peer->proposer, now, peer->learned, out);
		peer->campaign_at = now + 2 * S;
	}
	shard_proposer_tick(peer->proposer, now, members, n_members, out);
	follow(peer);
	if (peer->in_office)
	{
		shard_roster_heard(peer->roster, now, peer->id, true);
		shard_roster_tick(peer->roster, now, peer->proposer, homes_of, homes, out);
	}
	if (now % (500 * SHARD_MS) == 0 && !peer->silent)
		wish(at);
	follow(peer);
	post(at, at);
	shard_arena_reset(arena);
	deliver();
}

static void
run(int64 time)
{
	for (int64 end = now + time; now < end; now += STEP)
		for (int i = 0; i < PEERS; i++)
			if (peers[i].there && !peers[i].fenced)
				tick(i);
}

/* A new process at a place, as a node that it was before, or as nobody. */
static Peer *
start(int at, int32 id, int32 previous, uint64 uuid, int32 kind)
{
	Peer *peer = &peers[at];

	memset(peer, 0, sizeof(*peer));
	peer->there = true;
	peer->id = id;
	peer->previous = previous;
	peer->uuid = (ShardUuid){uuid, 1};
	peer->token = (ShardUuid){uuid, 2};
	peer->kind = kind;
	peer->campaign_at = PG_INT64_MAX;
	peer->heard_at = now;
	peer->claimed[0] = peer->uuid;
	peer->n_claimed = 1;
	peer->coordinator = 1;
	peer->voter = shard_voter_create(id);
	peer->proposer = shard_proposer_create(id);
	settings.incarnation = peer->uuid;
	peer->roster = shard_roster_create(id, &settings, &live);
	peer->learned = shard_map_create();
	return peer;
}

static void
end_peer(Peer *peer)
{
	shard_voter_destroy(peer->voter);
	shard_proposer_destroy(peer->proposer);
	shard_roster_destroy(peer->roster);
	shard_map_destroy(peer->learned);
	peer->there = false;
}

/* The process dies and starts again with what its node has durably: its voter, what it has learned. */
static inline Peer *
restart(int at, uint64 uuid, int32 kind)
{
	Peer old = peers[at];
	Peer *peer;

	shard_proposer_destroy(old.proposer);
	shard_roster_destroy(old.roster);
	peer = start(at, old.id, old.inc_no > 0 ? old.inc_no : old.previous, uuid, kind);
	shard_voter_destroy(peer->voter);
	shard_map_destroy(peer->learned);
	peer->voter = old.voter;
	peer->learned = old.learned;
	peer->coordinator = old.coordinator;
	peer->token = old.token;
	for (int i = 0; i < old.n_claimed && peer->n_claimed < 8; i++)
		peer->claimed[peer->n_claimed++] = old.claimed[i];
	return peer;
}

/* Node 1 alone, in office. */
static void
found(void)
{
	ShardTermRecord term = {.n_terms = 1, .terms = {{(INT64CONST(1) << 16) | 1, 1}}};
	ShardVotersRecord voters = {.n_current = 1, .current = {1}};
	ShardCountersRecord counters = {.last_node_id = 1, .last_age = 1};
	ShardSettingsRecord lease = {.lease_ttl_ms = 4000, .previous_lease_ttl_ms = 4000};
	ShardMemberRecord member = {.status = SHARD_MEMBER_UP,
								.inc_no = 1,
								.age = 1,
								.inc_uuid = {100, 1},
								.dsn = "host=0",
								.app_version = ""};
	ShardMapEntry entries[5];
	Peer *peer;

	now = 100 * S;
	memset(homes, 0, sizeof(homes));
	memset(addresses, -1, sizeof(addresses));
	rivals = 0;
	peer = start(0, 1, 1, 100, SHARD_START_RESTART);
	peer->inc_no = 1;
	peer->campaign_at = now;
	addresses[1] = 0;
	entries[0] = shard_record_put_term(&term, 1, out->arena);
	entries[1] = shard_record_put_voters(&voters, 1, out->arena);
	entries[2] = shard_record_put_counters(&counters, 1, out->arena);
	entries[3] = shard_record_put_settings(&lease, 1, out->arena);
	entries[4] = shard_record_put_member(1, &member, 1, out->arena);
	shard_voter_found(peer->voter, (INT64CONST(1) << 16) | 1, entries, lengthof(entries), out);
	learn(peer, entries, lengthof(entries), 1);
	post(0, 0);
	run(2 * S);
}

static void
finish(void)
{
	for (int i = 0; i < PEERS; i++)
		if (peers[i].there)
			end_peer(&peers[i]);
	while (first)
	{
		Letter *letter = first;

		first = letter->next;
		pfree(letter);
	}
	last = NULL;
}

/* Cluster of n nodes, all up. */
static inline void
form(int n)
{
	found();
	for (int i = 1; i < n; i++)
		(void) start(i, 0, 0, 100 + i, SHARD_START_RESTART);
	run(6 * S);
}

/* ---- questions ------------------------------------------------------------------------------- */

static inline void
is_member(int32 node, ShardMemberStatus status, int32 inc_no, const char *name)
{
	ShardMemberRecord record = {0};

	if (decided())
		(void) get_member(decided(), node, &record);
	ok(record.status == (int32) status && record.inc_no == inc_no,
	   "%s: node %d is %s, incarnation %d (%s, %d)", name, node,
	   shard_membership_status_name(status), inc_no,
	   shard_membership_status_name((ShardMemberStatus) record.status), record.inc_no);
	shard_arena_reset(arena);
}

static inline int64
age_of(int32 node)
{
	ShardMemberRecord record = {0};

	(void) get_member(decided(), node, &record);
	return record.age;
}

/* Voters as digits. */
static inline void
is_voters(const char *wanted, const char *name)
{
	ShardVotersRecord voters = {0};
	char got[SHARD_MAX_VOTERS + 1] = "";

	if (decided())
		(void) shard_record_get_voters(shard_map_value(decided(),
													   (ShardMapKey){SHARD_MAP_VOTERS, 0, 0}),
									   &voters);
	for (int i = 0; i < voters.n_current; i++)
		got[i] = (char) ('0' + voters.current[i]);
	ok(strcmp(got, wanted) == 0 && voters.n_next == 0, "%s: voters %s (%s, changing to %d)", name,
	   wanted, got, voters.n_next);
}

static inline bool
says(const char *text, const char *wanted)
{
	return strstr(text, wanted) != NULL;
}
