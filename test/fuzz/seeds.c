/*
 * seeds.c
 *		Writes inputs for the fuzzers to begin with: one good message of each kind, one good packet of
 *		each form, and conversations with a node.
 *
 * usage: seeds FOLDER     makes FOLDER/control, FOLDER/packet, FOLDER/node
 */
#include "fuzz.h"

#include <sys/stat.h>

#include "core/map/control.h"
#include "core/flow/copy.h"
#include "core/flow/packet.h"
#include "core/flow/replica.h"
#include "core/flow/reply.h"

static const char *folder;

static void
save(const char *what, const char *name, int number, const StringInfo bytes)
{
	char path[1024];
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s", folder, what);
	(void) mkdir(path, 0777);
	snprintf(path, sizeof(path), "%s/%s/%s-%d", folder, what, name, number);
	file = fopen(path, "wb");
	if (!file || fwrite(bytes->data, 1, bytes->len, file) != (size_t) bytes->len ||
		fclose(file) != 0)
	{
		perror(path);
		exit(1);
	}
}

/* Values of the map, one of each kind. */
static int
make_entries(ShardMapEntry *entries, ShardArena *arena)
{
	ShardTermRecord term = {.n_terms = 1, .terms = {{65537, 1}}};
	ShardVotersRecord voters = {.n_current = 1, .current = {1}};
	ShardCountersRecord counters = {.last_node_id = 2, .last_type_id = 1, .last_age = 2};
	ShardSettingsRecord settings = {.lease_ttl_ms = 4000, .min_members = 1};
	ShardMemberRecord member = {.status = SHARD_MEMBER_UP, .inc_no = 1, .age = 2, .dsn = "host=b"};
	ShardTypeRecord type = {.name = "other", .number_of_shards = 8, .role = ""};
	ShardHomeRecord home = {.n_nodes = 1, .nodes = {2}, .want = 1};
	int n = 0;

	member.app_version = "1";
	member.protocol_version = SHARD_PROTOCOL_VERSION;
	entries[n++] = shard_record_put_member(0, &member, 0, arena);
	entries[n++] = shard_record_put_type(3, &type, 5, arena);
	entries[n++] = shard_record_put_term(&term, 5, arena);
	entries[n++] = shard_record_put_voters(&voters, 5, arena);
	entries[n++] = shard_record_put_counters(&counters, 5, arena);
	entries[n++] = shard_record_put_settings(&settings, 5, arena);
	entries[n++] = shard_record_put_member(2, &member, 5, arena);
	entries[n++] = shard_record_put_home(1, 2, &home, 5, arena);
	entries[n++] = shard_record_put_pin(1, 2, 1, 5, arena);
	entries[n++] = shard_record_put_formed(0, 5, arena);
	return n;
}

/* A message of a kind that uses most fields. */
static ShardControl
make_message(int kind, ShardMapEntry *entries, int n_entries)
{
	static ShardShardRef shards[] = {{1, 1, 0, 0}, {1, 2, 1, 1}};
	static int32 nodes[] = {1, 2};
	ShardControl message = {.kind = (ShardControlKind) kind, .from = 2, .from_inc = 1, .b = 131073};

	message.any_point.b = 131073;
	message.any_point.n = 3;
	message.any_n = 4;
	message.commit_n = 6;
	message.token = 1;
	message.node = 2;
	message.uuid.low = 14;
	message.uuid.high = 13;
	message.text = "host=b";
	message.entries = entries;
	message.n_entries = n_entries;
	message.shards = shards;
	message.n_shards = lengthof(shards);
	message.nodes = nodes;
	message.n_nodes = lengthof(nodes);
	message.nodes2 = nodes;
	message.n_nodes2 = 1;
	return message;
}

static void
put_piece(StringInfo out, int how, const ShardControl *message)
{
	StringInfoData bytes;

	initStringInfo(&bytes);
	shard_control_encode(&bytes, message);
	appendStringInfoChar(out, (char) how);
	appendStringInfoChar(out, (char) (bytes.len & 0xff));
	appendStringInfoChar(out, (char) (bytes.len >> 8));
	appendBinaryStringInfo(out, bytes.data, bytes.len);
	pfree(bytes.data);
}

static void
write_control(void)
{
	ShardArena *arena = shard_arena_create();
	ShardMapEntry entries[16];
	int n_entries = make_entries(entries, arena);
	StringInfoData out;

	initStringInfo(&out);
	for (int kind = 0; kind < 100; kind++)
	{
		ShardControl message = make_message(kind, entries, kind % 2 == 0 ? 1 : n_entries);

		if (!shard_control_name((ShardControlKind) kind))
			continue;
		resetStringInfo(&out);
		shard_control_encode(&out, &message);
		save("control", "message", kind, &out);

		/* From a stranger, from the node itself, and from the node as coordinator. */
		resetStringInfo(&out);
		put_piece(&out, 0x21, &message);
		put_piece(&out, 0x27, &message);
		put_piece(&out, 0x3f, &message);
		message.n_entries = 1;
		put_piece(&out, 0x2f, &message);
		save("node", "message", kind, &out);
	}
	for (int i = 0; i < n_entries; i++)
	{
		resetStringInfo(&out);
		appendBinaryStringInfo(&out, entries[i].value, (int) entries[i].length);
		save("control", "value", i, &out);
	}
	pfree(out.data);
	shard_arena_destroy(arena);
}

/* A second member joins, is admitted, comes up, hosts the type and asks for homes. */
static void
write_join(void)
{
	ShardArena *arena = shard_arena_create();
	ShardMapEntry entries[16];
	int n_entries = make_entries(entries, arena);
	ShardShardRef shards[] = {{1, 2, 0, 0}, {1, 3, 0, 0}, {1, 4, 0, 0}};
	int32 types[] = {1};
	StringInfoData out;
	ShardControl join = {.kind = SHARD_CONTROL_JOIN, .entries = entries, .n_entries = 1};
	ShardControl admit = {.kind = SHARD_CONTROL_ADMIT, .from = 2, .node = 2};
	ShardControl ack = {.kind = SHARD_CONTROL_HEARTBEAT_ACK,
						.from = 2,
						.from_inc = 1,
						.learned_n = 20};
	ShardControl host = {.kind = SHARD_CONTROL_REGISTER, .from = 2, .from_inc = 1, .learned_n = 20};
	ShardControl homes = {.kind = SHARD_CONTROL_GET_SHARD_HOMES, .from = 2, .from_inc = 1};

	Assert(n_entries > 1);
	join.uuid = (ShardUuid){21, 22};
	admit.uuid = (ShardUuid){23, 24};
	host.nodes = types;
	host.n_nodes = 1;
	homes.shards = shards;
	homes.n_shards = lengthof(shards);
	initStringInfo(&out);
	for (int i = 0; i < 2; i++)
		put_piece(&out, 0x41, &join);
	for (int i = 0; i < 2; i++)
		put_piece(&out, 0x61, &admit);
	for (int i = 0; i < 6; i++)
	{
		/* Heartbeats are numbered by their time. */
		ack.token = INT64CONST(100000000) + (i + 4) * 400000;
		put_piece(&out, 0xe9, &ack);
	}
	put_piece(&out, 0x21, &host);
	put_piece(&out, 0x41, &homes);
	homes.kind = SHARD_CONTROL_SHARDS_STARTED;
	put_piece(&out, 0x41, &homes);
	for (int i = 0; i < 20; i++)
	{
		ack.token = INT64CONST(100000000) + (i + 11) * 400000;
		put_piece(&out, 0xe9, &ack);
	}
	host.kind = SHARD_CONTROL_GRACEFUL_SHUTDOWN_REQ;
	put_piece(&out, 0x61, &host);
	save("node", "join", 0, &out);
	pfree(out.data);
	shard_arena_destroy(arena);
}

/* The parts of a call, behind the byte that the fuzzer knows them by. */
static void
write_parts(void)
{
	ShardParcel parcel = {.kind = SHARD_KIND_TELL, .type_id = 1, .entity = "e", .entity_len = 1};
	ShardFact fact = {.type_id = 1,
					  .shard = 2,
					  .n = 3,
					  .node = 4,
					  .epoch = 5,
					  .move_id = 7,
					  .want = 3,
					  .n_backups = 2,
					  .backups = {1, 5}};
	ShardDone done = {1, 2, 3};
	ShardReceived received = {1, 0, 3};
	ShardStreamPositionSection position = {1, 0, 1, 0, 3, {1, 2}};
	ShardStreamSection stream = {1, 0, 0, 3, 0, {1, 2}};
	ShardAskCall ask = {1, 2, 3, 4, 5, 6, "e", 1, "p", 1};
	ShardAskAnswer answer = {SHARD_ASK_REPLY, true, "p", 1};
	ShardReplyToken token = {SHARD_REPLY_ASK, {1, 2}, 1, "e", 1, 2, 3, 4, 5, {6, 7}};
	StringInfoData out[9];

	parcel.stamp = (ShardStamp){SHARD_PREFIX_NODE, 1, 2, 3};
	parcel.src_entity = "f";
	parcel.src_entity_len = 1;
	parcel.src_type = 1;
	parcel.payload = "{}";
	parcel.payload_len = 2;
	for (int i = 0; i < (int) lengthof(out); i++)
	{
		initStringInfo(&out[i]);
		appendStringInfoChar(&out[i], (char) i);
	}
	for (int i = 0; i < 2; i++)
	{
		shard_packet_put(&out[1], &parcel);
		shard_packet_put_fact(&out[2], &fact);
		shard_packet_put_done(&out[3], &done);
		shard_packet_put_received(&out[4], &received);
		shard_packet_put_position(&out[5], &position);
		shard_packet_put_stream(&out[6], &stream);
	}
	shard_packet_put_ask(&out[7], &ask);
	shard_packet_put_answer(&out[8], &answer);
	for (int i = 1; i < (int) lengthof(out); i++)
		save("packet", "part", i, &out[i]);

	/* A call with a section of each kind; the parts follow their byte. */
	{
		ShardCallHeader header = {.protocol_version = SHARD_PROTOCOL_VERSION, .from = 1, .to = 2};
		static const int kinds[][2] = {{SHARD_SECTION_FACTS, 2},	{SHARD_SECTION_DONE, 3},
									   {SHARD_SECTION_REFUSED, 2},	{SHARD_SECTION_GREET, 6},
									   {SHARD_SECTION_RECEIVED, 4}, {SHARD_SECTION_POSITION, 5}};
		StringInfoData rows;
		StringInfoData made;
		StringInfoData replies;

		initStringInfo(&made);
		initStringInfo(&replies);
		shard_reply_put_token(&made, &token);
		shard_packet_put_reply(&replies, &(ShardReplyParcel){made.data, made.len, "p", 1});
		initStringInfo(&rows);
		stream.n_rows = 2;
		shard_packet_put_stream(&rows, &stream);
		appendBinaryStringInfo(&rows, out[1].data + 1, out[1].len - 1);
		shard_packet_put_header(&out[0], &header);
		shard_packet_put_section(&out[0], SHARD_SECTION_STREAM, SHARD_SECTION_MANDATORY, rows.data,
								 rows.len);
		for (int i = 0; i < (int) lengthof(kinds); i++)
			shard_packet_put_section(&out[0], (ShardSectionKind) kinds[i][0], 0,
									 out[kinds[i][1]].data + 1, out[kinds[i][1]].len - 1);
		shard_packet_put_section(&out[0], SHARD_SECTION_REPLIES, SHARD_SECTION_MANDATORY,
								 replies.data, replies.len);
		save("packet", "call", 0, &out[0]);
		pfree(rows.data);
		pfree(made.data);
		pfree(replies.data);
	}
	for (int i = 0; i < (int) lengthof(out); i++)
		pfree(out[i].data);
}

/* The parts of what copies shards, behind their bytes, and an answer that has them all. */
static void
write_copy(void)
{
	ShardCallHeader header = {.protocol_version = SHARD_PROTOCOL_VERSION, .from = 1, .to = 2};
	ShardExportCall export = {SHARD_COPY_ROWS, {1, 2, 3, 4}, "t", 1, 1000, {1, "e", 1}, "o", 1};
	ShardImportCall import = {SHARD_COPY_ROWS, {1, 2, 3, 4}, 1, 5};
	ShardCopyColumn column = {"state", 5, "jsonb", 5, 0};
	ShardCopyCount count = {SHARD_COPY_STATE, 2};
	ShardCopyPosition next = {SHARD_COPY_STASH, "e", 1};
	ShardCopyOrdered ordered = {"e", 1, 1, 2, 0, 0};
	ShardCopyTimer timer = {.entity = "e", .entity_len = 1, .name = "n", .name_len = 1};
	ShardStamp mark = {SHARD_PREFIX_NODE, 1, 2, 3};
	ShardCopyHeld held = {.entity = "e", .entity_len = 1, .kind = SHARD_KIND_TELL, .mid_node = 1};
	ShardCopyHistory history = {"e", 1, 1, 2, "22012", 5, "no", 2, 3, "restart", 7, "retry", 5, 4};
	StringInfoData out[12];
	StringInfoData answer;

	timer.repeats = true;
	timer.days = 1;
	timer.zone = "UTC";
	timer.zone_len = 3;
	timer.missed = 1;
	timer.message = "{}";
	timer.message_len = 2;
	held.stamp = mark;
	held.payload = "{}";
	held.payload_len = 2;
	held.has_next = true;
	held.sqlstate = "22012";
	held.sqlstate_len = 5;
	held.error = "no";
	held.error_len = 2;
	for (int i = 0; i < (int) lengthof(out); i++)
	{
		initStringInfo(&out[i]);
		appendStringInfoChar(&out[i], (char) (9 + i));
	}
	shard_copy_put_export(&out[0], &export);
	shard_copy_put_import(&out[1], &import);
	shard_copy_put_column(&out[2], &column);
	shard_copy_put_count(&out[3], &count);
	shard_copy_put_position(&out[5], &next);
	shard_copy_put_held(&out[6], &held);
	shard_copy_put_ordered(&out[7], &ordered);
	shard_copy_put_mark(&out[8], &mark);
	shard_copy_put_field(&out[9], "x", 1);
	shard_copy_put_field(&out[9], NULL, 0);
	shard_copy_put_timer(&out[10], &timer);
	shard_copy_put_history(&out[11], &history);

	initStringInfo(&answer);
	appendStringInfoChar(&answer, '\0');
	shard_packet_put_header(&answer, &header);
	shard_packet_put_section(&answer, SHARD_SECTION_COLUMNS, 1, out[2].data + 1, out[2].len - 1);
	shard_packet_put_section(&answer, SHARD_SECTION_COUNTS, 1, out[3].data + 1, out[3].len - 1);
	for (int part = SHARD_COPY_STATE; part < SHARD_COPY_PARTS; part++)
	{
		static const int rows_of[SHARD_COPY_PARTS] = {0, 9, 6, 8, 7, 10, 11};
		const StringInfoData *rows = &out[rows_of[part]];
		ShardCopyChunk chunk = {part, 1, rows->data + 1, rows->len - 1};
		int begin = out[4].len;

		shard_copy_put_chunk(&out[4], &chunk);
		shard_packet_put_section(&answer, SHARD_SECTION_CHUNK, 1, out[4].data + begin,
								 out[4].len - begin);
	}
	shard_packet_put_section(&answer, SHARD_SECTION_NEXT, 1, out[5].data + 1, out[5].len - 1);
	save("packet", "copy", 0, &answer);
	for (int i = 0; i < (int) lengthof(out); i++)
	{
		save("packet", "part", 9 + i, &out[i]);
		pfree(out[i].data);
	}
	pfree(answer.data);
}

/* A call that ships a record, a question, and an answer, behind the byte of whole calls. */
static void
write_shipment(const ShardTurnRecord *head, const ShardReplicaOffer *question,
			   const ShardReplicaAnswer *answer)
{
	ShardCallHeader header = {.protocol_version = SHARD_PROTOCOL_VERSION, .from = 1, .to = 2};
	ShardReplicaOffer offer = {.type_id = head->type_id,
							   .shard = head->shard,
							   .epoch = head->epoch,
							   .n_records = 1};
	ShardTurnWriter writer;
	StringInfoData call;
	StringInfoData bytes;

	initStringInfo(&call);
	initStringInfo(&bytes);
	appendStringInfoChar(&call, '\0');
	shard_packet_put_header(&call, &header);
	shard_replica_put_offer(&bytes, &offer);
	shard_turn_record_begin(&writer, &bytes, head);
	shard_turn_record_end(&writer);
	shard_replica_put_offer(&bytes, question);
	shard_packet_put_section(&call, SHARD_SECTION_RECORDS, SHARD_SECTION_MANDATORY, bytes.data,
							 bytes.len);
	resetStringInfo(&bytes);
	shard_replica_put_answer(&bytes, answer);
	shard_packet_put_section(&call, SHARD_SECTION_TURNS, SHARD_SECTION_MANDATORY, bytes.data,
							 bytes.len);
	save("packet", "shipment", 0, &call);
	pfree(call.data);
	pfree(bytes.data);
}

/* Turn records, what they ship, their items, and what their calls say. */
static void
write_records(void)
{
	ShardTurnRecord head = {.type_id = 1, .epoch = 1, .turn = 1, .first_oseq = 1, .n_outputs = 1};
	ShardTurnImage image = {"e", 1, "row", 3};
	ShardTurnKey key = {SHARD_COPY_STASH, "e", 1, "stash", 5, 9, NULL, 0};
	ShardStamp mark = {SHARD_PREFIX_SHARD, 1, 2, 3};
	ShardTurnOutput output = {SHARD_KIND_TELL, 1, 2, "e", 1, "f", 1, "{}", 2};
	ShardTurnDone done = {1, 2, 3};
	ShardTurnLetter letter = {.number = 9, .entity = "e", .entity_len = 1, .kind = SHARD_KIND_TELL};
	ShardReplicaAnswer answer = {1, 2, 3, SHARD_REPLICA_NEED, 4, 5};
	ShardReplicaOffer offer = {1, 2, 3, 4, 0, true, {1, 2, 3}};
	ShardTurnInput none = {0, 0};
	ShardTurnInput input = {5, 6};
	ShardTurnWriter writer;
	StringInfoData out[12];

	letter.mid_node = 1;
	letter.sqlstate = "22012";
	letter.sqlstate_len = 5;
	for (int i = 0; i < (int) lengthof(out); i++)
	{
		initStringInfo(&out[i]);
		appendStringInfoChar(&out[i], (char) (192 + i));
	}
	shard_turn_put_image(&out[2], &image);
	shard_turn_put_key(&out[3], &key);
	shard_turn_put_mark(&out[4], &mark);
	shard_turn_put_output(&out[5], &output);
	shard_turn_put_done(&out[6], &done);
	shard_turn_put_letter(&out[7], &letter);
	shard_turn_put_control(&out[8], SHARD_TURN_SEAL);
	shard_turn_put_input(&out[9], &none, &input);
	shard_replica_put_answer(&out[10], &answer);
	shard_replica_put_offer(&out[11], &offer);
	shard_turn_record_begin(&writer, &out[0], &head);
	for (int kind = SHARD_TURN_IMAGES; kind <= SHARD_TURN_CONTROL; kind++)
	{
		shard_turn_record_section(&writer, kind);
		appendBinaryStringInfo(&out[0], out[1 + kind].data + 1, out[1 + kind].len - 1);
	}
	shard_turn_record_inputs(&writer);
	appendBinaryStringInfo(&out[1], out[0].data + 9, out[0].len - 9 - 4);
	shard_turn_put_input(&out[0], &none, &input);
	shard_turn_record_end(&writer);
	for (int i = 0; i < (int) lengthof(out); i++)
	{
		save("packet", "record", i, &out[i]);
		pfree(out[i].data);
	}
	write_shipment(&head, &offer, &answer);
}

int
main(int argc, char **argv)
{
	if (argc != 2)
	{
		fprintf(stderr, "usage: seeds FOLDER\n");
		return 2;
	}
	folder = argv[1];
	write_control();
	write_join();
	write_parts();
	write_copy();
	write_records();
	return 0;
}
