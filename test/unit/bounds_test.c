/*
 * bounds_test.c
 *		What others say is taken within bounds (T7): registrations, texts, homes, what is held for later.
 */
#include "postgres_fe.h"

#include "trust_world.h"

/* P50: somebody registers all nodes with no types, under the greatest numbers there are: they say again what they have. */
static void
test_registrations(void)
{
	static const int64 tokens[] = {PG_INT64_MAX, SHARD_REGISTRATION_FAR,
								   SHARD_REGISTRATION_FAR + SHARD_REGISTRATION_STEP};
	ShardTypeRecord type = {.name = "thing", .number_of_shards = 100, .role = ""};
	ShardNodeEvent event = {.kind = SHARD_EVENT_TYPE, .type = &type};
	ShardNodeEvent told = {.kind = SHARD_EVENT_TYPES_TOLD};
	int at = 0;
	char name[32];

	three_nodes();
	for (int i = 0; i < 3; i++)
	{
		happen(i, &event);
		run(SHARD_SECOND);
	}
	run(5 * SHARD_SECOND);
	while (!is_coordinator(at))
		at++;
	ok(has_type(at, "thing"), "the cluster has a type");
	for (int k = 0; k < (int) lengthof(tokens); k++)
		for (int far = 0; far < 2; far++)
		{
			for (int32 from = 1; from <= 3; from++)
				give_as(at, from, 0,
						(ShardControl){
							.kind = SHARD_CONTROL_REGISTER,
							.learned_n = shard_map_point(shard_node_learned(machines[at].node)).n,
							.commit_n =
								far ? INT64CONST(1) << 60
									: shard_map_point(shard_node_learned(machines[at].node)).n,
							.token = tokens[k]});
			/* Something new is to be told, which has a lower number than the lie. */
			snprintf(name, sizeof(name), "thing %d %d", k, far);
			type.name = name;
			for (int i = 0; i < 3; i++)
			{
				told.number = shard_map_point(shard_node_learned(machines[i].node)).n;
				happen(i, &told);
				happen(i, &event);
				run(SHARD_SECOND);
			}
			run(20 * SHARD_SECOND);
			ok(has_type(at, "thing"), "it has it still");
			for (int i = 0; i < 3; i++)
				ok(shard_node_registered(machines[i].node), "and its host is registered");
		}
}

/* P63: lists that are longer than any node's, which the coordinator would work on instead of being heard, mean nothing. */
static void
test_long_lists(void)
{
	static ShardShardRef refs[1001];
	static int32 ids[5000];
	ShardTypeRecord type = {.name = "thing", .number_of_shards = 100, .role = ""};
	ShardNodeEvent event = {.kind = SHARD_EVENT_TYPE, .type = &type};
	ShardControl wanted = {.kind = SHARD_CONTROL_GET_SHARD_HOMES, .shards = refs};
	ShardControl has = {.kind = SHARD_CONTROL_REGISTER, .token = 1 << 20, .nodes = ids};

	three_nodes();
	for (int i = 0; i < 3; i++)
	{
		happen(i, &event);
		run(SHARD_SECOND);
	}
	run(5 * SHARD_SECOND);
	for (int i = 0; i < (int) lengthof(refs); i++)
		refs[i] = (ShardShardRef){.type_id = 1, .shard = i % 100};
	for (int i = 0; i < (int) lengthof(ids); i++)
		ids[i] = 100 + i;
	has.commit_n = shard_map_point(shard_node_learned(machines[0].node)).n;
	has.n_nodes = lengthof(ids);
	give_as(0, 2, 0, has);
	ok(strstr(last_log, "node 2") && strstr(last_log, "registers more entity types"),
	   "P63 the log says who: %s", last_log);
	wanted.n_shards = lengthof(refs);
	give_as(0, 3, 0, wanted);
	ok(strstr(last_log, "node 3") && strstr(last_log, "homes of more shards"), "of both: %s",
	   last_log);
	run(SHARD_SECOND);
	is_int(count_homes(0, 1) + count_homes(0, 2) + count_homes(0, 3), 0,
		   "P63 homes of more shards than one asks for at a time are not given");
	wanted.n_shards--;
	give_as(0, 3, 0, wanted);
	run(SHARD_SECOND);
	is_int(count_homes(0, 1) + count_homes(0, 2) + count_homes(0, 3), 100, "of as many they are");
	ok(count_homes(0, 2) > 0, "P63 and who is said to have five thousand types has what it had");
}

/* C9: a registration that was overtaken by a newer one is not taken, also where the node has not said yet that it has told all its types. */
static void
test_overtaken_registration(void)
{
	static ShardShardRef refs[100];
	ShardControl wanted = {.kind = SHARD_CONTROL_GET_SHARD_HOMES, .shards = refs, .n_shards = 100};
	ShardControl late = {.kind = SHARD_CONTROL_REGISTER};

	three_nodes();
	for (int i = 0; i < 3; i++)
		add_type(i, "thing", 100);
	run(5 * SHARD_SECOND);
	for (int i = 0; i < (int) lengthof(refs); i++)
		refs[i] = (ShardShardRef){.type_id = 1, .shard = i};
	late.token = machines[1].node->registration - 1;
	late.from_inc = machines[1].node->inc_no;
	give_as(0, 2, 0, late);
	give_as(0, 3, 0, wanted);
	run(SHARD_SECOND);
	ok(count_homes(0, 2) > 0, "a registration that comes late takes no type from its node");
}

/* P34: who speaks for one node does not decide under another one's ballot, nor end its office. */
static void
test_holders(void)
{
	static const ShardControlKind kinds[] = {SHARD_CONTROL_PREPARE, SHARD_CONTROL_SYNC,
											 SHARD_CONTROL_ACCEPT, SHARD_CONTROL_HEARTBEAT,
											 SHARD_CONTROL_RESIGN};
	ShardArena *arena = shard_arena_create();
	ShardHomeRecord home = {.epoch = 7, .n_nodes = 1, .nodes = {2}, .want = 1};
	const ShardMap *accepted;
	ShardMapPoint mine;
	ShardMapEntry entry;
	int64 ballot;

	three_nodes();
	ballot = shard_proposer_ballot(shard_node_proposer(machines[0].node));
	accepted = shard_voter_map(shard_node_voter(machines[2].node));
	mine = shard_map_point(accepted);
	entry = shard_record_put_home(1, 5, &home, mine.n, arena);
	entry.n = mine.n + 1;
	for (int i = 0; i < (int) lengthof(kinds); i++)
	{
		ShardControl message = {.kind = kinds[i], .b = ballot, .n_entries = 1, .entries = &entry};

		message.any_point = mine;
		if (kinds[i] == SHARD_CONTROL_ACCEPT)
			message.batch_n = mine.n + 1;
		if (kinds[i] == SHARD_CONTROL_SYNC)
			message.target.n++;
		give_as(2, 2, 0, message);
	}
	ok(shard_map_compare(shard_map_point(accepted), mine) == 0 &&
		   shard_map_value(accepted, entry.key) == NULL,
	   "nothing is accepted from who is not the ballot's node");
	is_int(shard_node_coordinator(machines[2].node, now), 1, "nor is he followed");
	shard_arena_destroy(arena);
}

/* T10: names and addresses that are no texts are passed over, and sentences made some. */
static void
test_texts(void)
{
	ShardMemberRecord record = {.dsn = "away \xff", .app_version = ""};
	ShardTypeRecord type = {.name = "type\xff", .number_of_shards = 4};
	ShardControl join = {.kind = SHARD_CONTROL_JOIN, .uuid = {1, 2}, .uuid2 = {3, 4}};
	ShardControl start = {.kind = SHARD_CONTROL_START_TYPE, .token = 1};
	ShardControl command = {.kind = SHARD_CONTROL_COMMAND, .token = 77, .text = "by \xff."};
	ShardArena *arena = shard_arena_create();
	ShardMapEntry entries[2];
	int at = 0;
	int other;
	int count;

	three_nodes();
	while (!is_coordinator(at))
		at++;
	other = (at + 1) % 3;
	entries[0] = shard_record_put_member(0, &record, 0, arena);
	entries[1] = shard_record_put_type(0, &type, 0, arena);
	join.entries = &entries[0];
	start.entries = &entries[1];
	join.n_entries = start.n_entries = 1;
	joiners_asked = 0;
	give_as(at, 0, 0, join);
	is_int(joiners_asked, 0, "a joiner whose address is no text is not looked for");
	give_as(at, other + 1, 0, start);
	run(5 * SHARD_SECOND);
	(void) shard_map_list(shard_node_learned(machines[at].node), SHARD_MAP_TYPE, arena, &count);
	is_int(count, 0, "a type whose name is none is not taken");
	command.command = SHARD_COMMAND_EVACUATE;
	command.flag = true;
	command.node = other + 1;
	command.b = shard_proposer_ballot(shard_node_proposer(machines[at].node));
	give_as(at, other + 1, 0, command);
	deliver();
	command.uuid = machines[other].node->code;
	give_as(at, other + 1, 0, command);
	run(5 * SHARD_SECOND);
	ok(strstr(machines[at].decision_text, "by ?.") != NULL, "a sentence is made one: %s",
	   machines[at].decision_text);
	shard_arena_destroy(arena);
}

/* What the types of a map come to in shards. */
static int64
shards_of(int at)
{
	ShardArena *arena = shard_arena_create();
	int64 shards = 0;
	int count;
	ShardMapEntry *types =
		shard_map_list(shard_node_learned(machines[at].node), SHARD_MAP_TYPE, arena, &count);

	for (int i = 0; i < count; i++)
	{
		ShardTypeRecord type;

		if (shard_record_get_type(&types[i], &type, arena))
			shards += type.number_of_shards;
	}
	shard_arena_destroy(arena);
	return shards;
}

/* A member, or who speaks for it, brings a type. */
static void
bring(int at, int32 from, const char *name, int32 shards, const char *state)
{
	ShardTypeRecord type = {.name = name, .number_of_shards = shards, .state = state};
	ShardArena *arena = shard_arena_create();
	ShardMapEntry entry = shard_record_put_type(0, &type, 0, arena);

	give_as(at, from, 0,
			(ShardControl){.kind = SHARD_CONTROL_START_TYPE, .entries = &entry, .n_entries = 1});
	deliver();
	run(200 * SHARD_MS);
	shard_arena_destroy(arena);
}

/* C20, P55: types have a million shards at most, and those that one member has alone as many together. */
static void
test_room(void)
{
	ShardTypeRecord honest = {.name = "honest", .number_of_shards = SHARD_MAX_SHARDS};
	ShardNodeEvent event = {.kind = SHARD_EVENT_TYPE, .type = &honest};
	char *state = palloc0(SHARD_ROOM_BYTES / 2);
	char name[20];
	int64 most = 0;
	int large = 0;
	int at = 0;
	int other;

	three_nodes();
	while (!is_coordinator(at))
		at++;
	other = (at + 1) % 3;
	bring(at, other + 1, "wide", 2000000000, "");
	ok(!has_type(at, "wide"), "a type of two thousand million shards is not taken");
	bring(at, other + 1, "wider", SHARD_MAX_SHARDS + 1, "");
	ok(!has_type(at, "wider"), "nor one of a million and one");
	memset(state, 'x', SHARD_ROOM_BYTES / 3);
	for (int i = 0; i < 4; i++)
	{
		snprintf(name, sizeof(name), "large%d", i);
		bring(at, other + 1, name, 1, state);
		large += has_type(at, name);
	}
	is_int(large, 1, "types that describe themselves in megabytes fill no map");
	for (int i = 0; i < 8; i++)
	{
		snprintf(name, sizeof(name), "many%d", i);
		bring(at, other + 1, name, 300000, "");
		most = Max(most, shards_of(at));
	}
	is_int((int) most, 900001, "a member gets a million shards alone");
	happen((at + 2) % 3, &event);
	run(SHARD_SECOND);
	ok(has_type(at, "honest"), "and leaves room to others");
	pfree(state);
}

/* How often a machine says what was decided, by what it was just told; nothing is done of it. */
static int
count_learns(void)
{
	ShardControl message;
	int count = 0;

	for (int i = 0; i < out->n_actions; i++)
	{
		const ShardAction *action = &out->actions[i];

		count += action->kind == SHARD_ACTION_SEND &&
				 shard_control_decode(action->bytes, action->length, out->arena, &message) &&
				 message.kind == SHARD_CONTROL_LEARN;
	}
	shard_action_reset(out);
	return count;
}

/* P66: a member that says again and again that it lacks something, each time something else, has the map sent a few times. */
static void
test_deltas(void)
{
	int64 decided;
	int learns = 0;
	int at = 0;
	int other;

	three_nodes();
	while (!is_coordinator(at))
		at++;
	other = (at + 1) % 3;
	run(SHARD_SECOND);
	decided = shard_map_point(shard_node_learned(machines[at].node)).n;
	ok(decided > 5, "there is something to say");
	for (int64 n = 1; n < decided; n++)
	{
		receive_as(at, other + 1, 0,
				   (ShardControl){.kind = SHARD_CONTROL_GET_DELTA, .learned_n = n});
		learns += count_learns();
	}
	is_int(learns, 4, "it is told a few times");
	run(SHARD_RESEND_INTERVAL);
	receive_as(at, other + 1, 0, (ShardControl){.kind = SHARD_CONTROL_GET_DELTA, .learned_n = 1});
	is_int(count_learns(), 1, "and again when that may have been lost");
}

/* What waits at a machine, for another node or for its disk alone, of whichever kind. */
static int
count_held(int at, int32 to, size_t *bytes)
{
	int count = 0;

	*bytes = 0;
	for (const NodeHeld *held = machines[at].node->held.first; held; held = held->next)
	{
		if (held->is_done || held->to != to)
			continue;
		count++;
		*bytes += held->length;
	}
	return count;
}

/*
 * P68: what a member causes to be said while the disk takes its time is kept as far as a link would keep it: the newest, no
 * command is lost for it, nor what is for others or for the node itself.
 */
static void
test_held(void)
{
	ShardControl prepare = {.kind = SHARD_CONTROL_PREPARE};
	ShardControl command = {.kind = SHARD_CONTROL_COMMAND_ANSWER};
	ShardControl decoded;
	ShardArena *arena;
	size_t bytes;
	int answers = 0;
	int own;
	int64 b;

	three_nodes();
	b = ((promised(0) >> 16) + 2) << 16 | 2;
	prepare.b = ((promised(0) >> 16) + 1) << 16 | 3;
	receive_as(0, 3, 0, prepare);
	is_int(count_held(0, 3, &bytes), 1, "a promise waits for the disk");
	own = machines[0].node->held.count - 1;
	for (int i = 0; i < 3; i++)
	{
		shard_action_reset(out);
		machines[0].node->out = out;
		machines[0].node->first_action = 0;
		command.token = i;
		*shard_action_send(out, 2, command.kind) = command;
		shard_node_step_finish(machines[0].node);
	}
	prepare.b = b;
	for (int i = 0; i < 5 * SHARD_CONTROL_MAX_MESSAGES; i++)
		receive_as(0, 2, 0, prepare);
	is_int(count_held(0, 2, &bytes), SHARD_CONTROL_MAX_MESSAGES, "no more than a link would take");
	is_int(count_held(0, 3, &bytes), 1, "others' are there");
	is_int(machines[0].node->held.count, own + 1 + SHARD_CONTROL_MAX_MESSAGES, "and the own ones");
	arena = shard_arena_create();
	for (const NodeHeld *held = machines[0].node->held.first; held; held = held->next)
		answers += !held->is_done && held->to == 2 &&
				   shard_control_decode(held->bytes, held->length, arena, &decoded) &&
				   decoded.kind == SHARD_CONTROL_COMMAND_ANSWER && decoded.token == answers;
	shard_arena_destroy(arena);
	is_int(answers, 3, "answers to commands make no room");
	shard_node_persisted(machines[0].node, now, machines[0].node->last_ticket, out);
	act(0, NO_LINK);
	is_int(machines[0].node->held.count, 0, "all goes when it is durable");
}

/* P68: so it is with what is long. */
static void
test_held_bytes(void)
{
	StringInfoData text;
	size_t bytes;
	int count;

	three_nodes();
	initStringInfo(&text);
	while (text.len < 10 * 1024 * 1024)
		appendStringInfoString(&text, "why it is so ");
	receive_as(0, 3, 0,
			   (ShardControl){.kind = SHARD_CONTROL_PREPARE,
							  .b = ((promised(0) >> 16) + 1) << 16 | 3});
	for (int i = 0; i < 20; i++)
	{
		shard_action_reset(out);
		machines[0].node->out = out;
		machines[0].node->first_action = 0;
		shard_action_send(out, 2, SHARD_CONTROL_NACK)->text = text.data;
		shard_node_step_finish(machines[0].node);
	}
	count = count_held(0, 2, &bytes);
	ok(count == 3 && bytes <= 32 * 1024 * 1024, "long messages make room for one another");
	is_int(count_held(0, 3, &bytes), 1, "not others' for them");
	shard_node_persisted(machines[0].node, now, machines[0].node->last_ticket, out);
	act(0, NO_LINK);
	pfree(text.data);
}

/* C20: types that grow beyond the room, and what others have, too. */
static void
test_room_for_grown(void)
{
	char *large = palloc0(SHARD_ROOM_BYTES / 3 + 1);
	char *state = palloc0(SHARD_ROOM_BYTES / 4 + 1);
	ShardTypeRecord more = {.name = "more", .number_of_shards = 200000, .settings_hash = 1};
	ShardNodeEvent event = {.kind = SHARD_EVENT_TYPE, .type = &more};
	bool refused = false;
	int at = 0;
	int one;
	int other;

	memset(large, 'x', SHARD_ROOM_BYTES / 3);
	memset(state, 'y', SHARD_ROOM_BYTES / 4);
	three_nodes();
	while (!is_coordinator(at))
		at++;
	one = (at + 1) % 3;
	other = (at + 2) % 3;
	has(one, "large", 1, large);
	has(one, "shared", 900000, "");
	has(other, "shared", 900000, "");
	has(one, "grown", 1, "");
	has(one, "grown", 1, state);
	ok(shard_node_asks_for_type(machines[one].node, "grown") &&
		   shard_node_type_lacks(machines[one].node, "grown") == SHARD_TYPE_LACKS_ROOM,
	   "a type that grows beyond the room hears so, and asks again");
	has(one, "next", 1, "");
	ok(has_type(at, "next"), "and keeps none behind it waiting");
	has(other, "grown", 1, "");
	run(10 * SHARD_SECOND);
	ok(!shard_node_type_lacks(machines[one].node, "grown") &&
		   !shard_node_asks_for_type(machines[one].node, "grown"),
	   "what others have, too, is not counted as one's alone when it grows");

	stop(at);
	happen(one, &event);
	for (int64 i = 0; i < 40 * SHARD_SECOND && !has_type(one, "more"); i += STEP)
	{
		run(STEP);
		refused |= shard_node_type_lacks(machines[one].node, "more") != SHARD_TYPE_NOT_TAKEN;
	}
	ok(has_type(one, "more"), "a new coordinator takes types");
	ok(!refused, "and takes nothing for one's alone before all have spoken up");
	pfree(state);
	pfree(large);
}

/* C20: who is heard and never registers keeps nobody waiting. */
static void
test_room_without_registration(void)
{
	char *large = palloc0(SHARD_ROOM_BYTES / 3 + 1);
	int at = 0;
	int one;
	int other;

	memset(large, 'x', SHARD_ROOM_BYTES / 3);
	three_nodes();
	while (!is_coordinator(at))
		at++;
	one = (at + 1) % 3;
	other = (at + 2) % 3;
	stop(other);
	machines[other].unheard = true;
	start(other);
	run(10 * SHARD_SECOND);
	has(one, "large", 1, large);
	has(one, "larger", 1, large);
	run(20 * SHARD_SECOND);
	ok(has_type(at, "large") && !has_type(at, "larger"), "there is room for one type");
	is_int(shard_node_type_lacks(machines[one].node, "larger"), SHARD_TYPE_LACKS_ROOM,
		   "who wants another one hears so, also if a member does not register");
	pfree(large);
}

int
main(void)
{
	begin_world();
	test_room();
	test_room_for_grown();
	test_room_without_registration();
	test_registrations();
	test_long_lists();
	test_overtaken_registration();
	test_deltas();
	test_held();
	test_held_bytes();
	test_texts();
	test_holders();
	end_world();
	return unit_done();
}
