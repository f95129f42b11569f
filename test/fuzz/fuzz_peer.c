/*
 * fuzz_peer.c
 *		Messages as a member may send them, at a cluster of three: by somebody who has got the role of node 2, and speaks in its name
 *		to the others, while node 2 itself runs.
 *
 * The input is a list of pieces: to whom, what kind of message, and bytes by which its fields are chosen from what would fit:
 * ballots, versions, incarnations, epochs and entries as they are, as they might be next, and as they can never be. Some
 * come as answers over a connection to node 2.
 *
 * What a member is trusted with is no breach: decisions under a ballot of its own, operators' commands, facts and eras that it
 * answers at its address. From then on nothing but bytes and assertions is looked at. Else: nobody is fenced, no era begins,
 * ballots stay in reach, no home is learned that was not decided; and when he has gone, there is one coordinator, and a shard
 * without a home gets one.
 */
#include "fuzz.h"

#include "../unit/node_world.h"

#define MAX_PIECES 32
#define THIEF 2 /* whose role it is; machine 1 */
#define TYPE 1
#define SHARDS 8
#define FREE_SHARD 7		   /* never named: gets its home at the end */
#define FORGED_EPOCH (1 << 20) /* no home comes so far by itself */
#define FAR_BALLOT ((INT64CONST(1) << 62) - 2)

/* Of the byte that says how. */
#define HOW_TARGET 0x01 /* node 3, not node 1 */
#define HOW_ANSWER 0x02 /* over a connection to node 2 */
#define HOW_TIME 0x0c	/* how much of it passes */

/* The world as it is before each input: what is durable, and the clock. */
static ShardMap *first_rows[3][STORES];
static int64 first_now;
static uint64 first_uuid;
static bool prepared;

static ShardArena *arena;

/* The bytes that are left, each of them a choice; then only zeros. */
typedef struct Choices
{
	const uint8 *at;
	const uint8 *end;
} Choices;

static int
choose(Choices *choices, int count)
{
	return choices->at < choices->end ? *choices->at++ % count : 0;
}

/* ---- the cluster ------------------------------------------------------------------------------ */

static ShardMap *
copy_of(const ShardMap *rows)
{
	ShardMap *copy = shard_map_create();
	int count;
	ShardMapEntry *entries = shard_map_since(rows, -2, arena, &count);

	for (int i = 0; i < count; i++)
		shard_map_put(copy, &entries[i]);
	return copy;
}

static int
coordinators(void)
{
	int count = 0;

	for (int i = 0; i < 3; i++)
		count += is_coordinator(i);
	return count;
}

static void
want_home(int at, int32 shard)
{
	ShardShardRef ref = {.type_id = TYPE, .shard = shard};
	ShardNodeEvent want = {.kind = SHARD_EVENT_HOMES_WANTED, .n_shards = 1, .shards = &ref};

	happen(at, &want);
	deliver();
}

static bool
has_home(int at, int32 shard)
{
	return shard_map_value(shard_node_learned(machines[at].node),
						   (ShardMapKey){SHARD_MAP_HOME, TYPE, shard}) != NULL;
}

/* Three members with a type, whose shards have homes but for one. */
static void
prepare(void)
{
	begin_world();
	arena = shard_arena_create();
	for (int i = 0; i < 3; i++)
		start(i);
	run(2 * SHARD_SECOND);
	join(1, 0);
	join(2, 0);
	run(20 * SHARD_SECOND);
	FUZZ_CHECK(count_members(0) == 3);
	for (int i = 0; i < 3; i++)
		add_type(i, "thing", SHARDS);
	run(5 * SHARD_SECOND);
	for (int32 shard = 0; shard < FREE_SHARD; shard++)
		want_home(shard % 3, shard);
	run(5 * SHARD_SECOND);
	FUZZ_CHECK(has_home(2, 0) && !has_home(2, FREE_SHARD));
	for (int i = 0; i < 3; i++)
	{
		stop(i);
		for (int s = SHARD_STORE_NODE; s < STORES; s++)
			first_rows[i][s] = copy_of(machines[i].rows[s]);
	}
	first_now = now;
	first_uuid = last_uuid;
	server_runs_on = true;
}

/* The same again: processes that start with what is durable, as the incarnations that they were. */
static void
begin_again(void)
{
	now = first_now;
	last_uuid = first_uuid;
	for (int i = 0; i < 3; i++)
	{
		Machine *machine = &machines[i];

		machine->n_started = 0;
		for (int s = SHARD_STORE_NODE; s < STORES; s++)
		{
			if (machine->rows[s])
				shard_map_destroy(machine->rows[s]);
			machine->rows[s] = copy_of(first_rows[i][s]);
		}
		start(i);
	}
	for (int i = 0; i < 3; i++)
		add_type(i, "thing", SHARDS);
	for (int i = 0; i < 40 && coordinators() == 0; i++)
		run(SHARD_SECOND / 2);
	run(SHARD_SECOND);
	FUZZ_CHECK(coordinators() == 1);
}

/* ---- what he says ----------------------------------------------------------------------------- */

/* Kinds under a ballot that is his who sends them. */
static bool
is_of_office(ShardControlKind kind)
{
	return kind == SHARD_CONTROL_SYNC || kind == SHARD_CONTROL_ACCEPT ||
		   kind == SHARD_CONTROL_HEARTBEAT || kind == SHARD_CONTROL_FETCH;
}

static int64
a_ballot(Choices *choices, int at)
{
	int64 promised = shard_voter_promised(shard_node_voter(machines[at].node));

	switch (choose(choices, 8))
	{
		case 0:
		case 1:
		case 2:
			return promised;
		case 3:
			return promised - (INT64CONST(1) << 16);
		case 4:
			return ((promised >> 16) + 1) << 16 | THIEF;
		case 5:
			return ((promised >> 16) + (1 << 20) - 1) << 16 | THIEF;
		case 6:
			return FAR_BALLOT >> 16 << 16 | THIEF;
		default:
			return 0;
	}
}

static int64
a_version(Choices *choices, int at)
{
	int64 n = shard_map_point(shard_node_learned(machines[at].node)).n;
	int how = choose(choices, 16);

	return how == 0	   ? 0
		   : how == 1  ? INT64CONST(1) << 61
		   : how == 2  ? n + SHARD_ERA_LEAP
		   : how < 8   ? n
		   : how == 15 ? n + 1000
					   : Max(n + how - 11, 0);
}

static ShardMapPoint
a_point(Choices *choices, int at)
{
	ShardMapPoint point = shard_map_point(shard_voter_map(shard_node_voter(machines[at].node)));

	switch (choose(choices, 4))
	{
		case 0:
			return point;
		case 1:
			point.n++;
			return point;
		default:
			return (ShardMapPoint){a_ballot(choices, at), a_version(choices, at)};
	}
}

static int32
a_number(Choices *choices)
{
	static const int32 numbers[] = {0, 1, 2, 3, 4, 5, 7, 65534, 65535, FORGED_EPOCH, PG_INT32_MAX,
									-1};

	return numbers[choose(choices, lengthof(numbers))];
}

static ShardUuid
a_uuid(Choices *choices)
{
	int how = choose(choices, 6);

	return how < 3	  ? machines[how].incarnation
		   : how == 3 ? shard_node_cluster(machines[0].node)
		   : how == 4 ? (ShardUuid){0xbad, 0xbad}
					  : (ShardUuid){0, 0};
}

static const char *
a_text(Choices *choices)
{
	static const char *const texts[] = {NULL, "", "m0", "m1", "m2", "m9", "thing", "host=x"};

	return texts[choose(choices, lengthof(texts))];
}

static ShardShardRef
a_shard(Choices *choices)
{
	ShardShardRef shard = {.type_id = choose(choices, 8) == 0 ? a_number(choices) : TYPE};

	shard.shard = choose(choices, 16) == 0 ? a_number(choices) : choose(choices, FREE_SHARD);
	shard.epoch = choose(choices, 4) == 0 ? a_number(choices) : choose(choices, 3);
	shard.move_id = choose(choices, 4);
	return shard;
}

/* A record as it is, with something changed; or bytes. */
static ShardMapEntry
an_entry(Choices *choices, int at)
{
	ShardHomeRecord home = {.n_nodes = 1, .want = 1};
	ShardMemberRecord member = {.status = SHARD_MEMBER_UP, .inc_no = 1};
	ShardTypeRecord type = {.number_of_shards = SHARDS, .role = ""};
	ShardVotersRecord voters = {.n_current = 1};
	ShardCountersRecord counters = {.last_node_id = 3, .last_type_id = 1, .last_age = 3};
	ShardSettingsRecord settings = {.lease_ttl_ms = 4000, .min_members = 1};
	ShardTermRecord term = {.n_terms = 1};
	ShardMapEntry entry;
	int64 n = a_version(choices, at);

	switch (choose(choices, 10))
	{
		case 0:
			term.terms[0] = a_point(choices, at);
			entry = shard_record_put_term(&term, n, arena);
			break;
		case 1:
			voters.current[0] = a_number(choices);
			voters.era = choose(choices, 3);
			entry = shard_record_put_voters(&voters, n, arena);
			break;
		case 2:
			counters.last_node_id = a_number(choices);
			counters.purge_n = a_version(choices, at);
			entry = shard_record_put_counters(&counters, n, arena);
			break;
		case 3:
			settings.min_members = a_number(choices);
			entry = shard_record_put_settings(&settings, n, arena);
			break;
		case 4:
			member.status = choose(choices, SHARD_MEMBER_WRITTEN_OFF + 2);
			member.inc_no = a_number(choices);
			member.inc_uuid = a_uuid(choices);
			member.join_token = a_uuid(choices);
			member.weight = a_number(choices);
			member.protocol_version = SHARD_PROTOCOL_VERSION;
			member.dsn = a_text(choices);
			member.dsn = member.dsn ? member.dsn : "";
			member.app_version = "1";
			entry = shard_record_put_member(a_number(choices), &member, n, arena);
			break;
		case 5:
			type.name = choose(choices, 2) ? "thing" : "forged";
			type.number_of_shards = a_number(choices);
			type.leased = choose(choices, 2);
			type.strategy = choose(choices, 8);
			entry = shard_record_put_type(a_number(choices), &type, n, arena);
			break;
		case 6:
			entry = shard_record_put_pin(TYPE, choose(choices, FREE_SHARD), a_number(choices), n,
										 arena);
			break;
		case 7:
			entry = shard_record_put_formed(a_number(choices), n, arena);
			break;
		default:
			home.epoch = FORGED_EPOCH + choose(choices, 4);
			home.nodes[0] = 1 + choose(choices, 4);
			home.phase = choose(choices, 2);
			home.to = home.phase ? 1 + choose(choices, 3) : 0;
			home.move_id = choose(choices, 4);
			home.lost = choose(choices, 4) == 0 ? home.epoch : 0;
			entry = shard_record_put_home(TYPE, choose(choices, FREE_SHARD), &home, n, arena);
			break;
	}
	if (choose(choices, 16) == 1)
		entry.deleted = true;
	if (entry.length > 0 && choose(choices, 16) == 1)
	{
		char *bytes = shard_arena_copy(arena, entry.value, entry.length);

		bytes[choose(choices, 255) % entry.length] ^= (char) (1 + choose(choices, 255));
		entry.value = bytes;
		if (choose(choices, 2))
			entry.length = choose(choices, 255) % entry.length;
	}
	return entry;
}

/* A message of a kind that there is, in the name of node 2 as it is. */
static ShardControl
a_message(Choices *choices, int at)
{
	static ShardControlKind kinds[100];
	static int n_kinds;
	ShardControl message = {.from = THIEF};

	for (int kind = n_kinds == 0 ? 1 : lengthof(kinds); kind < (int) lengthof(kinds); kind++)
	{
		if (shard_control_name((ShardControlKind) kind))
			kinds[n_kinds++] = (ShardControlKind) kind;
	}
	message.kind = kinds[choose(choices, n_kinds)];
	message.cluster = shard_node_cluster(machines[at].node);
	message.protocol_version = SHARD_PROTOCOL_VERSION;
	message.era = shard_node_era(machines[at].node);
	message.from_inc = shard_node_incarnation(machines[1].node);
	message.to = shard_node_id(machines[at].node);
	if (choose(choices, 16) == 1)
		message.era += a_number(choices) > 0 ? a_number(choices) : 1;
	if (choose(choices, 16) == 1)
		message.from_inc = a_number(choices);
	if (choose(choices, 16) == 1)
		message.to_inc = a_number(choices);
	message.b = a_ballot(choices, at);
	message.ballot = a_ballot(choices, at);
	message.any_point = a_point(choices, at);
	message.any_n = a_version(choices, at);
	message.commit_n = a_version(choices, at);
	message.token =
		choose(choices, 4) == 0 ? now + choose(choices, 4) * SHARD_SECOND : choose(choices, 8);
	message.flag = choose(choices, 2);
	message.node = a_number(choices);
	message.word1 = a_number(choices);
	message.word2 = a_number(choices);
	message.type_id = a_number(choices);
	message.uuid = a_uuid(choices);
	message.uuid2 = a_uuid(choices);
	message.text = a_text(choices);
	message.n_entries = choose(choices, 4);
	message.entries = shard_arena_alloc(arena, sizeof(ShardMapEntry) * 4);
	for (int i = 0; i < message.n_entries; i++)
		message.entries[i] = an_entry(choices, at);
	message.n_shards = choose(choices, 4);
	message.shards = shard_arena_alloc(arena, sizeof(ShardShardRef) * 4);
	for (int i = 0; i < message.n_shards; i++)
		message.shards[i] = a_shard(choices);
	message.n_nodes = choose(choices, 4);
	message.nodes = shard_arena_alloc(arena, sizeof(int32) * 4);
	for (int i = 0; i < message.n_nodes; i++)
		message.nodes[i] = a_number(choices);
	message.n_nodes2 = choose(choices, 3);
	message.nodes2 = message.nodes;
	return message;
}

/* Is it something that a member is trusted with? */
static bool
is_trusted(const ShardControl *message, int at, bool answer)
{
	if (shard_node_coordinator(machines[at].node, now) == THIEF)
		return true;
	if (is_of_office(message->kind) && (uint16) message->b == THIEF)
		return true;
	if (answer &&
		(message->era > shard_node_era(machines[at].node) || message->kind == SHARD_CONTROL_LEARN ||
		 message->kind == SHARD_CONTROL_SHARD_HOMES))
		return true;
	switch (message->kind)
	{
		case SHARD_CONTROL_COMMAND:				  /* of its operator */
		case SHARD_CONTROL_GRACEFUL_SHUTDOWN_REQ: /* it leaves */
		case SHARD_CONTROL_PROMISE:				  /* its vote */
		case SHARD_CONTROL_STATE:
		case SHARD_CONTROL_SYNCED:
		case SHARD_CONTROL_ACCEPTED:
		case SHARD_CONTROL_HEARTBEAT_ACK:
		case SHARD_CONTROL_SHARD_STOPPED: /* and shards that are there */
		case SHARD_CONTROL_STAGED:
			return true;
		default:
			return false;
	}
}

/* ---- what has to hold ------------------------------------------------------------------------- */

static void
check_learned(int at)
{
	int count;
	ShardMapEntry *homes =
		shard_map_list(shard_node_learned(machines[at].node), SHARD_MAP_HOME, arena, &count);

	for (int i = 0; i < count; i++)
	{
		ShardHomeRecord home;

		FUZZ_CHECK(shard_record_get_home(&homes[i], &home));
		FUZZ_CHECK(home.epoch < FORGED_EPOCH);
		FUZZ_CHECK(shard_record_home_node(&home) >= 1 && shard_record_home_node(&home) <= 3);
	}
}

static void
check(void)
{
	for (int i = 0; i < 3; i++)
	{
		FUZZ_CHECK(!shard_node_fenced(machines[i].node));
		FUZZ_CHECK(shard_node_era(machines[i].node) == 0);
		FUZZ_CHECK(shard_voter_promised(shard_node_voter(machines[i].node)) < INT64CONST(1)
																				  << (16 + 20 + 8));
		check_learned(i);
	}
}

/* He has gone. Elections may take some rounds. */
static void
check_end(void)
{
	int at = -1;

	for (int i = 0; i < 60 && coordinators() != 1; i++)
		run(SHARD_SECOND);
	run(2 * SHARD_SECOND);
	FUZZ_CHECK(coordinators() == 1);
	for (int i = 0; i < 60 && at < 0; i++)
	{
		want_home(0, FREE_SHARD);
		want_home(2, FREE_SHARD);
		run(SHARD_SECOND);
		at = has_home(0, FREE_SHARD) && has_home(2, FREE_SHARD) ? 0 : -1;
	}
	FUZZ_CHECK(at == 0);
	check();
}

/* One message, and what follows; true: it was trusted, or one before was. */
static bool
give(const ShardControl *message, int at, bool answer, bool before)
{
	bool trusted = before || is_trusted(message, at, answer);
	StringInfoData bytes;

	initStringInfo(&bytes);
	shard_control_encode(&bytes, message);
	shard_node_receive(machines[at].node, now, answer ? THIEF : 0, bytes.data, bytes.len, out);
	for (int i = 0; i < out->n_actions && !trusted; i++)
	{
		FUZZ_CHECK(out->actions[i].kind != SHARD_ACTION_STOP_SHARD);
		FUZZ_CHECK(out->actions[i].kind != SHARD_ACTION_PREPARE_IMPORT);
		FUZZ_CHECK(out->actions[i].kind != SHARD_ACTION_IMPORT_SHARD);
	}
	act(at, NO_LINK);
	deliver();
	pfree(bytes.data);
	return trusted;
}

int
LLVMFuzzerTestOneInput(const uint8 *data, size_t size)
{
	static const int64 times[] = {0, STEP, SHARD_SECOND / 2, 2 * SHARD_SECOND};
	Choices choices = {data, data + size};
	bool trusted = false;

	if (!prepared)
		prepare();
	prepared = true;
	shard_arena_reset(arena);
	begin_again();
	for (int i = 0; i < MAX_PIECES && choices.at < choices.end; i++)
	{
		uint8 how = *choices.at++;
		int at = how & HOW_TARGET ? 2 : 0;
		ShardControl message;

		shard_arena_reset(arena);
		message = a_message(&choices, at);
		trusted = give(&message, at, (how & HOW_ANSWER) != 0, trusted);
		run(times[(how & HOW_TIME) >> 2]);
		if (!trusted)
			check();
	}
	if (trusted)
		run(5 * SHARD_SECOND);
	else
		check_end();
	for (int i = 0; i < 3; i++)
		stop(i);
	return 0;
}
