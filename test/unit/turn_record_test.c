/*
 * turn_record_test.c
 *		Turn records: round trips, records of a row, what is shipped, sums, every byte damaged, sections of newer versions.
 */
#include "postgres_fe.h"

#include "port/pg_crc32c.h"

#include "core/flow/record.h"
#include "forms.h"

FORM_FUNCTIONS(shard_turn, image, ShardTurnImage, _image)
FORM_FUNCTIONS(shard_turn, key, ShardTurnKey, _key)
FORM_FUNCTIONS(shard_turn, mark, ShardStamp, _mark)
FORM_FUNCTIONS(shard_turn, output, ShardTurnOutput, _output)
FORM_FUNCTIONS(shard_turn, done, ShardTurnDone, _done)
FORM_FUNCTIONS(shard_turn, letter, ShardTurnLetter, _letter)

static const Form forms[] = {FORM(image, ShardTurnImage), FORM(key, ShardTurnKey),
							 FORM(mark, ShardStamp),	  FORM(output, ShardTurnOutput),
							 FORM(done, ShardTurnDone),	  FORM(letter, ShardTurnLetter)};

static const ShardTurnImage image = {"e", 1, "\x03{}", 3};
static const ShardTurnOutput output = {SHARD_KIND_TELL, 3, 4, "f", 1, "e", 1, "[]", 2};
static const ShardStamp mark = {SHARD_PREFIX_NODE, 2, 15, 77};

static void
check_good(const char *name, const void *record, const char *what)
{
	check_round_trip(find_form(forms, lengthof(forms), name), record, what);
}

static void
test_items(void)
{
	ShardTurnImage gone = {"e", 1, NULL, 0};
	ShardTurnImage empty = {"e", 1, "", 0};
	ShardTurnKey key = {
		SHARD_COPY_STASH, "e", 1, "stash", 5, shard_turn_row_number(7, 3), "row", 3};
	ShardTurnKey timer = {SHARD_COPY_TIMERS, "e", 1, "", 0, 0, NULL, 0};
	ShardTurnOutput reply = {SHARD_KIND_REPLY, 3, 4, "", 0, "e", 1, "\0token", 6};
	ShardStamp of_shard = {SHARD_PREFIX_SHARD, 7, 999999, SHARD_PACKET_MAX_SEQ - 1};
	ShardTurnDone done = {3, 4, 9};
	ShardTurnDone appended = {0, 0, 9};
	ShardTurnLetter letter = {.number = shard_turn_row_number(1, 0), .gone = true};

	check_good("image", &image, "a state");
	check_good("image", &gone, "one that is gone");
	check_good("image", &empty, "one of a table without fields");
	check_good("key", &key, "a waiting message");
	check_good("key", &timer, "a timer that is gone");
	check_good("mark", &mark, "of a node");
	check_good("mark", &of_shard, "of a shard");
	check_good("output", &output, "a message");
	check_good("output", &reply, "a reply");
	check_good("done", &done, "of a shard");
	check_good("done", &appended, "of no shard");
	check_good("letter", &letter, "one that is gone");
	letter = (ShardTurnLetter){.number = 5,
							   .at = -1,
							   .entity = "e",
							   .entity_len = 1,
							   .kind = SHARD_KIND_TELL,
							   .epoch = -1,
							   .stamp = of_shard,
							   .src_type = 3,
							   .src_entity = "f",
							   .src_entity_len = 1,
							   .mid_node = 1,
							   .mid_seq = 9,
							   .payload = "\0",
							   .payload_len = 1,
							   .sqlstate = "22P02",
							   .sqlstate_len = 5,
							   .error = "it failed",
							   .error_len = 9,
							   .hint = "mend it",
							   .hint_len = 7,
							   .attempts = 3};
	check_good("letter", &letter, "a dead letter");
}

/* A record with a section of most kinds, and with inputs if there are any. */
static uint32
put_record(StringInfo out, int32 shard, int64 turn, uint32 before, int inputs)
{
	ShardTurnRecord head = {.type_id = 7,
							.shard = shard,
							.epoch = 2,
							.turn = turn,
							.before_epoch = turn > 1 ? 1 : 0,
							.before_sum = before,
							.first_oseq = 10,
							.n_outputs = 2};
	ShardTurnInput last = {0, 0};
	ShardTurnWriter writer;

	shard_turn_record_begin(&writer, out, &head);
	shard_turn_record_section(&writer, SHARD_TURN_KEYS);
	shard_turn_record_section(&writer, SHARD_TURN_IMAGES);
	shard_turn_put_image(out, &image);
	shard_turn_record_section(&writer, SHARD_TURN_OUTPUTS);
	shard_turn_put_output(out, &output);
	shard_turn_put_output(out, &output);
	shard_turn_record_section(&writer, SHARD_TURN_MARKS);
	shard_turn_put_mark(out, &mark);
	shard_turn_record_section(&writer, SHARD_TURN_CONTROL);
	shard_turn_put_control(out, SHARD_TURN_SEAL);
	shard_turn_record_section(&writer, SHARD_TURN_LETTERS);
	if (inputs > 0)
		shard_turn_record_inputs(&writer);
	for (int i = 0; i < inputs; i++)
	{
		ShardTurnInput input = {100 + 3 * i, (INT64CONST(1) << 40) + i};

		shard_turn_put_input(out, &last, &input);
		last = input;
	}
	return shard_turn_record_end(&writer);
}

/* All sections of a record, as kinds in a number. */
static int
kinds_of(const ShardTurnRecord *record)
{
	ShardReader sections = record->sections;
	ShardReader items;
	int32 kind;
	bool mandatory;
	int kinds = 0;

	while (shard_turn_record_section_next(&sections, &kind, &mandatory, &items))
		kinds = kinds * 10 + kind;
	return sections.failed ? -1 : kinds;
}

static int
inputs_of(const ShardTurnRecord *record)
{
	ShardReader items = record->inputs;
	ShardTurnInput input = {0, 0};
	int n = 0;

	for (; shard_turn_get_input(&items, &input); n++)
		if (input.seq != 100 + 3 * n || input.rseq != (INT64CONST(1) << 40) + n)
			return -1;
	return items.failed ? -1 : n;
}

static void
test_row(void)
{
	StringInfoData row;
	StringInfoData call;
	StringInfoData again;
	ShardTurnRecord record;
	ShardTurnRecord shipped;
	ShardTurnFault fault;
	ShardTurnPoint point;
	ShardReader reader;
	char *copy;
	uint32 sums[2];

	initStringInfo(&row);
	initStringInfo(&call);
	initStringInfo(&again);
	sums[0] = put_record(&row, 5, 1, 0, 3);
	sums[1] = put_record(&row, 6, 4, 99, 0);
	reader = reader_of(row.data, row.len, &copy);
	ok(shard_turn_record_next(&reader, &record, &fault), "the first record of a row");
	ok(record.type_id == 7 && record.shard == 5 && record.epoch == 2 && record.turn == 1 &&
		   record.before_epoch == 0 && record.before_sum == 0 && record.first_oseq == 10 &&
		   record.n_outputs == 2 && record.sum == sums[0],
	   "its head comes back");
	is_int(kinds_of(&record), 1437, "its sections, without those that are empty");
	is_int(inputs_of(&record), 3, "its inputs");
	shard_turn_record_ship(&call, &record);
	is_int(call.len, shard_turn_record_ship_len(&record), "what is shipped is as long as it said");
	ok(shard_turn_record_next(&reader, &record, &fault) && record.shard == 6, "the second one");
	point = shard_turn_record_before(&record);
	ok(point.epoch == 1 && point.turn == 3 && point.sum == 99, "it says what is before it");
	is_int(inputs_of(&record), 0, "it has no inputs");
	ok(!shard_turn_record_next(&reader, &record, &fault) && !reader.failed &&
		   fault == SHARD_TURN_SOUND,
	   "then comes the end");
	free(copy);

	reader = reader_of(row.data, row.len, &copy);
	copy[row.len - 1] ^= 1;
	ok(shard_turn_record_skip(&reader) && shard_turn_record_next(&reader, &record, &fault) == false,
	   "the first one is passed over, the second is damaged");
	free(copy);
	reader = reader_of(row.data, row.len, &copy);
	ok(shard_turn_record_skip(&reader) && shard_turn_record_skip(&reader) &&
		   reader.at == reader.end,
	   "each ends where the next one begins");
	ok(!shard_turn_record_skip(&reader), "behind them is none");
	free(copy);
	reader = reader_of(row.data, row.len - 1, &copy);
	ok(shard_turn_record_skip(&reader) && !shard_turn_record_skip(&reader),
	   "nor is one that is cut");
	free(copy);

	reader = reader_of(call.data, call.len, &copy);
	ok(shard_turn_record_next(&reader, &shipped, &fault) && reader.at == reader.end,
	   "what is shipped is a record");
	ok(shipped.sum == sums[0] && inputs_of(&shipped) == 0 && kinds_of(&shipped) == 1437,
	   "of the same sum and sections, without inputs");
	shard_turn_record_ship(&again, &shipped);
	ok(again.len == call.len && memcmp(again.data, call.data, call.len) == 0,
	   "a copy ships the same bytes");
	free(copy);

	resetStringInfo(&again);
	ok(put_record(&again, 5, 1, 0, 0) == sums[0], "inputs are not in the sum");
	ok(put_record(&again, 5, 2, sums[0], 0) != put_record(&again, 5, 2, sums[0] + 1, 0),
	   "the sum before is");
	pfree(row.data);
	pfree(call.data);
	pfree(again.data);
}

/* Of a row of two records: no beginning of it, and none of its bytes changed, gives the same two. */
static void
test_damage(void)
{
	StringInfoData row;
	ShardTurnRecord record;
	ShardTurnFault fault;
	ShardReader reader;
	char *copy;
	int first;
	int wrong = 0;
	int read = 0;
	int faults[SHARD_TURN_FAULTS] = {0};

	initStringInfo(&row);
	put_record(&row, 5, 1, 0, 2);
	first = row.len;
	put_record(&row, 5, 2, 3, 2);
	for (int length = 0; length < row.len; length++)
	{
		reader = reader_of(row.data, length, &copy);
		while (shard_turn_record_next(&reader, &record, &fault))
			continue;
		wrong += (fault == SHARD_TURN_CUT) != (length != 0 && length != first);
		wrong += reader.failed != (fault != SHARD_TURN_SOUND);
		free(copy);
	}
	is_int(wrong, 0, "a beginning is cut, unless it ends with a record");
	for (int i = 0; i < row.len * 8; i++)
	{
		row.data[i / 8] ^= (char) (1 << i % 8);
		reader = reader_of(row.data, row.len, &copy);
		while (shard_turn_record_next(&reader, &record, &fault))
			read += kinds_of(&record) == 1437 && inputs_of(&record) >= -1;
		faults[fault]++;
		free(copy);
		row.data[i / 8] ^= (char) (1 << i % 8);
	}
	ok(read > 0, "what is sound is read to its end");
	ok(faults[SHARD_TURN_SUM] > 0 && faults[SHARD_TURN_CUT] > 0, "a changed bit is found");
	is_int(faults[SHARD_TURN_HEAD] + faults[SHARD_TURN_FRAME] + faults[SHARD_TURN_VERSION], 0,
		   "by the sum, before anything is believed");
	ok(faults[SHARD_TURN_SOUND] <= 8 * 20, "but those of inputs, which have no sum");
	pfree(row.data);
}

/* What a record says of itself that cannot be read. */
static void
test_head(void)
{
	StringInfoData row;
	ShardTurnRecord record;
	ShardTurnFault fault;
	ShardReader reader;
	char *copy;
	uint32 sum;
	int wrong = 0;

	initStringInfo(&row);
	sum = put_record(&row, 5, 4, 99, 2);
	row.data[row.len / 2] ^= 1;
	reader = reader_of(row.data, row.len, &copy);
	ok(shard_turn_record_head(&reader, &record) && record.shard == 5 && record.turn == 4 &&
		   record.before_sum == 99 && record.sum == sum && kinds_of(&record) == 0,
	   "its head and its sum are read, and no sections");
	ok(record.shipped == copy && record.shipped + record.shipped_len + 4 == record.inputs.at &&
		   record.inputs.end == copy + row.len,
	   "and where it ends");
	ok(!shard_turn_record_next(&reader, &record, &fault) && fault == SHARD_TURN_SUM,
	   "though it is damaged");
	free(copy);
	reader = reader_of(row.data, row.len - 1, &copy);
	ok(shard_turn_record_head(&reader, &record) && record.turn == 4 && record.shipped_len == 0,
	   "without its end, where it ends is not to be seen");
	free(copy);
	for (int i = 0; i < 8 * row.len; i++)
	{
		row.data[i / 8] ^= (char) (1 << i % 8);
		reader = reader_of(row.data, row.len, &copy);
		if (!shard_turn_record_head(&reader, &record))
			wrong += record.type_id != 0 || record.shipped != NULL;
		free(copy);
		row.data[i / 8] ^= (char) (1 << i % 8);
	}
	is_int(wrong, 0, "a head that is none leaves nothing");
	pfree(row.data);
}

/* A record whose body is these bytes, with a sum. */
static ShardTurnFault
fault_of(const char *body, int length, ShardTurnRecord *record)
{
	static char bytes[256];
	pg_crc32c crc;
	ShardTurnFault fault;
	ShardReader reader;

	INIT_CRC32C(crc);
	COMP_CRC32C(crc, body, length);
	FIN_CRC32C(crc);
	memset(bytes, 0, sizeof(bytes));
	bytes[0] = (char) length;
	for (int i = 0; i < 4; i++)
		bytes[4 + i] = (char) (crc >> (8 * i));
	memcpy(bytes + 8, body, length);
	reader = (ShardReader){bytes, bytes + 8 + length + 4, false};
	shard_turn_record_next(&reader, record, &fault);
	return fault;
}

static void
test_faults(void)
{
	/* version, type 1, shard 0, epoch 0, turn 1, before (0, 0), first oseq 1, no outputs */
	static const char head[] = {1, 2, 0, 0, 2, 0, 0, 2, 0};
	char body[64];
	ShardTurnRecord record;
	ShardReader sections;
	ShardReader items;
	int32 kind;
	bool mandatory;

	is_int(fault_of(head, sizeof(head), &record), SHARD_TURN_SOUND, "a head alone");
	memcpy(body, head, sizeof(head));
	body[0] = 2;
	is_int(fault_of(body, sizeof(head), &record), SHARD_TURN_VERSION, "of a version to come");
	body[0] = 1;
	body[4] = 0;
	is_int(fault_of(body, sizeof(head), &record), SHARD_TURN_HEAD, "of turn 0");
	body[4] = 2;
	body[6] = 9;
	is_int(fault_of(body, sizeof(head), &record), SHARD_TURN_HEAD, "of turn 1, with one before it");
	body[6] = 0;
	body[7] = 0;
	is_int(fault_of(body, sizeof(head), &record), SHARD_TURN_HEAD, "of outputs from 0 on");
	body[7] = 2;
	memcpy(body + sizeof(head), "\x63\0\x02\0\0\0ab", 8);
	is_int(fault_of(body, sizeof(head) + 8, &record), SHARD_TURN_SOUND,
		   "with a section that is not known");
	sections = record.sections;
	ok(shard_turn_record_section_next(&sections, &kind, &mandatory, &items) && kind == 99 &&
		   !mandatory && items.end - items.at == 2,
	   "which is passed over");
	body[sizeof(head) + 1] = 1;
	fault_of(body, sizeof(head) + 8, &record);
	sections = record.sections;
	ok(shard_turn_record_section_next(&sections, &kind, &mandatory, &items) && mandatory,
	   "or not, if it says so");
	body[sizeof(head) + 1] = 2;
	is_int(fault_of(body, sizeof(head) + 8, &record), SHARD_TURN_FRAME, "with a flag that is not");
	body[sizeof(head) + 1] = 0;
	is_int(fault_of(body, sizeof(head) + 7, &record), SHARD_TURN_FRAME, "with half of a section");
	is_int(record.turn, 0, "nothing of it is handed out");
}

static void
test_given_up(void)
{
	StringInfoData out;
	ShardTurnWriter writer;
	ShardTurnRecord head = {.type_id = 1, .turn = 1, .first_oseq = 1};
	ShardTurnInput input = {0, 0};
	ShardReader reader;

	initStringInfo(&out);
	appendStringInfoString(&out, "before");
	shard_turn_record_begin(&writer, &out, &head);
	out.len = writer.begin;
	is_int(out.len, 6, "a record that is given up leaves nothing");
	resetStringInfo(&out);
	shard_wire_put_int(&out, -5);
	shard_wire_put_int(&out, PG_INT64_MAX);
	reader = (ShardReader){out.data, out.data + out.len, false};
	ok(!shard_turn_get_input(&reader, &input) && reader.failed && input.rseq == 0,
	   "inputs are numbers of rows");
	pfree(out.data);
}

int
main(void)
{
	test_items();
	test_row();
	test_damage();
	test_head();
	test_faults();
	test_given_up();
	return unit_done();
}
