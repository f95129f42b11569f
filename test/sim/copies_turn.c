/*
 * copies_turn.c
 *		The home's worker in mode copies: what its memory is made of at the start, and a turn (Q5, Q28 to Q31).
 *
 * A turn is one transaction in two steps, so that the process may die, or stand still, before its commit: then there is no turn.
 */
#include "copies.h"

#define KEY(...) ((StoreKey){{__VA_ARGS__}})
#define TURN_MESSAGES 4

/* ---- at the start ---------------------------------------------------------------------------- */

static HomeShard *
shard_of(CopiesWorld *world, int32 shard)
{
	return &world->home.shards[shard];
}

static void
add_output(HomeShard *shard, const Output *output)
{
	if (shard->n_outputs < COPIES_TURNS)
		shard->outputs[shard->n_outputs++] = *output;
}

/* Those to that shard up to a number are done. */
static void
take_done(HomeShard *shard, const ShardTurnDone *done)
{
	for (int i = 0; i < shard->n_outputs; i++)
	{
		Output *output = &shard->outputs[i];

		if (output->type_id == done->type_id && output->shard == done->shard &&
			output->oseq <= done->oseq)
			output->done = true;
	}
}

static int64
id_at(const char *bytes, int length)
{
	int64 id = 0;

	memcpy(&id, bytes, Min(length, (int) sizeof(id)));
	return id;
}

static void
keep_record(HomeShard *shard, const ShardTurnRecord *record, int64 row)
{
	StringInfoData bytes;
	KeptRecord *kept = &shard->records[record->turn % COPIES_TURNS];

	initStringInfo(&bytes);
	shard_turn_record_ship(&bytes, record);
	free(kept->bytes);
	*kept = (KeptRecord){row, bytes.len, pg_malloc(bytes.len)};
	memcpy(kept->bytes, bytes.data, bytes.len);
	pfree(bytes.data);
}

/* A record that was found in the log: marks, outputs, what is done. */
static void
load_record(CopiesWorld *world, const ShardTurnRecord *record, int64 row)
{
	HomeShard *shard = shard_of(world, record->shard);
	ShardReader sections = record->sections;
	ShardReader items;
	int32 kind;
	bool mandatory;
	int64 oseq = record->first_oseq;

	keep_record(shard, record, row);
	while (shard_turn_record_section_next(&sections, &kind, &mandatory, &items))
	{
		ShardStamp mark;
		ShardTurnOutput output;
		ShardTurnDone done;
		ShardTurnControl control;

		while (kind == SHARD_TURN_MARKS && shard_turn_get_mark(&items, &mark))
			shard_mark_raise(&shard->marks, mark);
		while (kind == SHARD_TURN_OUTPUTS && shard_turn_get_output(&items, &output))
			add_output(shard, &(Output){.oseq = oseq++,
										.turn = record->turn,
										.id = id_at(output.payload, output.payload_len),
										.type_id = output.type_id,
										.shard = output.shard});
		while (kind == SHARD_TURN_ODONE && shard_turn_get_done(&items, &done))
			take_done(shard, &done);
		while (kind == SHARD_TURN_CONTROL && shard_turn_get_control(&items, &control))
			shard->seal = control == SHARD_TURN_SEAL ? record->turn : shard->seal;
	}
}

/* What the table says of records that are forgotten. */
static void
load_end(CopiesWorld *world, int32 number, EndRow *end)
{
	HomeShard *shard = shard_of(world, number);
	Store *store = world->home.store;
	const EndRow *row = store_get(store, NULL, T_END, KEY(number));
	StoreKey key = KEY(number, 0);
	const int64 *seq;

	*end = (EndRow){.kept = 1};
	if (row != NULL)
		*end = *row;
	while ((seq = store_at_or_next(store, NULL, T_MARK, &key)) != NULL && key.k[0] == number)
	{
		shard_mark_raise(&shard->marks,
						 (ShardStamp){(int32) key.k[1], (int32) key.k[2], (int32) key.k[3], *seq});
		key.k[3]++;
	}
	key = KEY(number, 0);
	while (store_at_or_next(store, NULL, T_STATE, &key) != NULL && key.k[0] == number)
	{
		shard->count = key.k[1] + 1;
		key.k[3]++;
	}
}

/* The rows of the log: its end, the records, and where each shard's history ends. */
static void
load_log(CopiesWorld *world, EndRow *ends)
{
	HomeNode *home = &world->home;
	StoreKey key = KEY(0);
	const LogRow *row;

	while ((row = store_at_or_next(home->store, NULL, T_LOG, &key)) != NULL)
	{
		ShardReader reader = {row->bytes, row->bytes + row->length, false};
		ShardTurnRecord record;
		ShardTurnFault fault;

		home->seq = Max(home->seq, key.k[0]);
		while (row->kind == LOG_TURN && shard_turn_record_next(&reader, &record, &fault))
		{
			EndRow *end = &ends[record.shard];

			if (record.turn < end->kept)
				continue;
			load_record(world, &record, key.k[0]);
			end->end = shard_turn_record_point(&record);
			end->oseq = record.first_oseq - 1 + record.n_outputs;
		}
		key.k[3]++;
	}
}

static int64
mark_of_inputs(const HomeShard *shard)
{
	int64 newest = 0;

	for (int i = 0; i < shard->marks.n_marks; i++)
	{
		const ShardStamp *stamp = &shard->marks.marks[i].stamp;

		if (stamp->kind == SHARD_PREFIX_NODE && stamp->a == COPIES_HOME)
			newest = Max(newest, stamp->seq);
	}
	return newest;
}

/*
 * What was released is not known. So everything that is told when a turn is released is told anew once the last turn is, and all
 * outputs that are not done are appended once more.
 */
void
copies_load(CopiesWorld *world)
{
	HomeNode *home = &world->home;
	const int64 *cursor = store_get(home->store, NULL, T_CURSOR, KEY(0));
	const OwnRow *own = store_get(home->store, NULL, T_OWN, KEY(0));
	EndRow ends[COPIES_SHARDS];
	int32 nodes[1 + COPIES_BACKUPS] = {COPIES_HOME, COPIES_HOME + 1, COPIES_HOME + 2};

	home->own = own != NULL ? *own : (OwnRow){0};
	home->seq = cursor != NULL ? *cursor : 0;
	home->rseq = (int64) home->inc << 40;
	for (int32 i = 0; i < COPIES_SHARDS; i++)
		load_end(world, i, &ends[i]);
	load_log(world, ends);
	for (int32 i = 0; i < COPIES_SHARDS; i++)
	{
		HomeShard *shard = shard_of(world, i);
		int64 turn = ends[i].end.turn;

		shard_mark_commit(&shard->marks, NULL, NULL);
		home->rseq = Max(home->rseq, mark_of_inputs(shard));
		shard_replica_begin(&shard->replica, home->own.epoch, &ends[i].end, ends[i].oseq,
							ends[i].kept);
		shard_replica_require(&shard->replica, COPIES_HOME, 1, nodes, 1 + world->n_backups);
		home->gates[home->n_gates++] = (Gate){store_last_lsn(home->store), i, turn};
		if (!home->own.sealed)
			shard->seal = 0;
		for (int j = 0; j < shard->marks.n_marks; j++)
			shard->tells[shard->n_tells++] = (Tell){turn, shard->marks.marks[j].stamp};
#ifdef SHARD_MUTANT_COPIES_OUTPUTS_ONCE
		for (int j = 0; j < shard->n_outputs; j++)
			shard->outputs[j].lsn = 1;
#endif
	}
}

/* ---- a turn ---------------------------------------------------------------------------------- */

/* It writes for that shard: from here on it has a record. */
static void
touch(CopiesWorld *world, int32 number)
{
	Draft *draft = &world->home.draft;

	if (draft->shards[number].dirty)
		return;
	draft->shards[number].dirty = true;
	draft->shards[number].count = shard_of(world, number)->count;
}

/* A handler: it may tell the other shard, its own one, or the plain one at the other node. */
static void
run_handler(CopiesWorld *world, int32 number)
{
	Draft *draft = &world->home.draft;
	Output *output = &draft->shards[number].outputs[draft->shards[number].n_outputs];
	bool plain = copies_percent(world, 50);

	if (!world->chaos || world->ids + 1 >= COPIES_IDS || !copies_percent(world, 35) ||
		draft->shards[number].n_outputs >= (int) lengthof(draft->shards[number].outputs))
		return;
	world->kinds[++world->ids] = LOG_OUTPUT;
	*output = (Output){.id = world->ids,
					   .type_id = plain ? COPIES_PLAIN : COPIES_TYPE,
					   .shard = plain ? 0 : (int32) copies_random(world, COPIES_SHARDS)};
	draft->shards[number].n_outputs++;
}

/* A message is taken in, unless its stamp says that it was (Q30: one told here has none until now). */
static void
take_in(CopiesWorld *world, const LogRow *row, int64 seq)
{
	HomeNode *home = &world->home;
	Draft *draft = &home->draft;
	HomeShard *shard = shard_of(world, row->shard);
	ShardStamp stamp = row->stamp;

	if (shard_mark_passed(&shard->marks, stamp))
	{
		shard_mark_raise(&shard->marks, stamp); /* it stays what it is, and is told again */
		return;
	}
	touch(world, row->shard);
	if (row->kind == LOG_INPUT)
	{
		draft->shards[row->shard].inputs[draft->shards[row->shard].n_inputs++] =
			(ShardTurnInput){seq, home->rseq + 1};
		stamp = (ShardStamp){SHARD_PREFIX_NODE, COPIES_HOME, 0, ++home->rseq};
#ifdef SHARD_MUTANT_COPIES_INPUTS_UNSTAMPED
		stamp.kind = SHARD_PREFIX_NONE;
#endif
	}
	if (stamp.kind != SHARD_PREFIX_NONE)
		shard_mark_raise(&shard->marks, stamp);
	draft->shards[row->shard].ids[draft->shards[row->shard].n_ids++] = row->id;
	store_put(draft->tx, T_STATE,
			  KEY(row->shard,
				  draft->shards[row->shard].count + draft->shards[row->shard].n_ids - 1),
			  &row->id);
	run_handler(world, row->shard);
}

static void
read_log(CopiesWorld *world)
{
	HomeNode *home = &world->home;
	Draft *draft = &home->draft;
	const int64 *cursor = store_get(home->store, draft->tx, T_CURSOR, KEY(0));
	int64 passed = cursor != NULL ? *cursor : 0;
	StoreKey key = KEY(passed + 1);
	const LogRow *row;

	for (int n = 0; n < TURN_MESSAGES && !home->own.sealed;)
	{
		LogRow copy;

		if ((row = store_at_or_next(home->store, NULL, T_LOG, &key)) == NULL)
			break;
		copy = *row;
		passed = key.k[0];
		if (copy.kind != LOG_TURN && copy.type_id == COPIES_TYPE)
		{
			take_in(world, &copy, passed);
			n++;
		}
		key.k[3]++;
	}
	draft->cursor = passed;
}

/* Q29: the released ones, in their order, with their stamps. */
static bool
append_outputs(CopiesWorld *world, int32 number)
{
	HomeNode *home = &world->home;
	HomeShard *shard = shard_of(world, number);
	Draft *draft = &home->draft;
	int *n = &draft->shards[number].n_appended;

	for (int i = 0; i < shard->n_outputs && *n < (int) lengthof(draft->shards[number].appended);
		 i++)
	{
		Output *output = &shard->outputs[i];
		LogRow row = {.kind = LOG_OUTPUT,
					  .type_id = output->type_id,
					  .shard = output->shard,
					  .id = output->id,
					  .stamp = {SHARD_PREFIX_SHARD, COPIES_TYPE, number, output->oseq}};

		if (output->done || output->lsn > 0)
			continue;
#ifdef SHARD_MUTANT_COPIES_LOCAL_OUTPUT_EARLY
		if (output->type_id == COPIES_PLAIN)
#endif
			if (!shard_replica_is_released(&shard->replica, output->turn))
				break;
		store_put(draft->tx, T_LOG, KEY(++home->seq), &row);
		draft->shards[number].appended[(*n)++] = i;
	}
	return *n > 0;
}

/* The record of a shard, behind what is in out. */
static void
write_record(CopiesWorld *world, int32 number, StringInfo out)
{
	HomeShard *shard = shard_of(world, number);
	Draft *draft = &world->home.draft;
	ShardTurnRecord *record = &draft->shards[number].record;
	ShardTurnInput last = {0, 0};
	ShardTurnWriter writer;

	memset(record, 0, sizeof(*record));
	record->type_id = COPIES_TYPE;
	record->shard = number;
	shard_replica_next(&shard->replica, draft->shards[number].n_outputs, record);
	shard_turn_record_begin(&writer, out, record);
	shard_turn_record_section(&writer, SHARD_TURN_IMAGES);
	for (int i = 0; i < draft->shards[number].n_ids; i++)
	{
		char entity[24];
		int length =
			snprintf(entity, sizeof(entity), "%lld", (long long) draft->shards[number].count + i);

		shard_turn_put_image(out, &(ShardTurnImage){entity, length,
													(char *) &draft->shards[number].ids[i],
													sizeof(int64)});
	}
	shard_turn_record_section(&writer, SHARD_TURN_MARKS);
	for (int i = 0; i < shard->marks.n_marks; i++)
		if (shard->marks.marks[i].touched && shard->marks.marks[i].stamp.seq > 0)
			shard_turn_put_mark(out, &shard->marks.marks[i].stamp);
	shard_turn_record_section(&writer, SHARD_TURN_OUTPUTS);
	for (int i = 0; i < draft->shards[number].n_outputs; i++)
	{
		Output *output = &draft->shards[number].outputs[i];

		output->oseq = record->first_oseq + i;
		output->turn = record->turn;
		shard_turn_put_output(out, &(ShardTurnOutput){SHARD_KIND_TELL, output->type_id,
													  output->shard, "e", 1, "e", 1,
													  (char *) &output->id, sizeof(int64)});
	}
	shard_turn_record_section(&writer, SHARD_TURN_ODONE);
	for (int i = 0; i < draft->shards[number].n_dones; i++)
		shard_turn_put_done(out, &shard->dones[i]);
	shard_turn_record_section(&writer, SHARD_TURN_CONTROL);
	if (draft->seals)
		shard_turn_put_control(out, SHARD_TURN_SEAL);
	if (draft->shards[number].n_inputs > 0)
		shard_turn_record_inputs(&writer);
	for (int i = 0; i < draft->shards[number].n_inputs; i++)
	{
		const ShardTurnInput *input = &draft->shards[number].inputs[i];

		shard_turn_put_input(out, &last, input);
		last = *input;
	}
	record->sum = shard_turn_record_end(&writer);
}

/* All records of the turn are one row of the log. */
static void
write_turn(CopiesWorld *world)
{
	HomeNode *home = &world->home;
	Draft *draft = &home->draft;
	LogRow row = {.kind = LOG_TURN};
	StringInfoData out;

	initStringInfo(&out);
	for (int32 i = 0; i < COPIES_SHARDS; i++)
		if (draft->shards[i].dirty)
			write_record(world, i, &out);
	if (out.len > 0)
	{
		Assert(out.len <= COPIES_ROW);
		row.length = out.len;
		memcpy(row.bytes, out.data, out.len);
		draft->row = ++home->seq;
		store_put(draft->tx, T_LOG, KEY(draft->row), &row);
	}
	pfree(out.data);
	store_put(draft->tx, T_CURSOR, KEY(0), &draft->cursor);
}

/* A newer fact makes the shards active in its epoch (no turn of theirs); a seal is the last record of its epoch. */
static bool
change_ownership(CopiesWorld *world)
{
	HomeNode *home = &world->home;
	Draft *draft = &home->draft;
	OwnRow own = home->own;
	bool newer = home->fact_epoch > own.epoch;

#ifdef SHARD_MUTANT_COPIES_UNSEALED
	newer |= own.sealed && home->fact_epoch == own.epoch && copies_percent(world, 10);
#endif
	if (newer)
	{
		own = (OwnRow){home->fact_epoch, false};
		draft->epoch = own.epoch;
	}
	else if (home->stop_epoch == own.epoch && own.epoch > 0 && !own.sealed)
	{
		own.sealed = draft->seals = true;
		for (int32 i = 0; i < COPIES_SHARDS; i++)
			touch(world, i);
	}
	else
		return false;
	store_put(draft->tx, T_OWN, KEY(0), &own);
	return true;
}

/* False: there is nothing to do. */
static bool
begin_turn(CopiesWorld *world)
{
	HomeNode *home = &world->home;
	Draft *draft = &home->draft;
	const int64 *cursor = store_get(home->store, NULL, T_CURSOR, KEY(0));
	bool something;

	memset(draft, 0, sizeof(*draft));
	draft->runs = true;
	draft->tx = store_begin(home->store);
	draft->cursor = cursor != NULL ? *cursor : 0;
	something = change_ownership(world);
	for (int32 i = 0; i < COPIES_SHARDS && draft->epoch == 0; i++)
	{
		HomeShard *shard = shard_of(world, i);

		something |= append_outputs(world, i);
		draft->shards[i].n_dones = shard->n_dones;
		if (shard->n_dones > 0 && (!home->own.sealed || draft->seals))
			touch(world, i);
		if (home->own.sealed)
			draft->shards[i].n_dones = 0;
	}
	if (draft->epoch == 0 && !draft->seals)
		read_log(world);
	for (int32 i = 0; i < COPIES_SHARDS; i++)
		something |= draft->shards[i].dirty;
	if (!something && draft->cursor == (cursor != NULL ? *cursor : 0))
	{
		copies_turn_abort(home);
		return false;
	}
	write_turn(world);
	return true;
}

void
copies_turn_abort(HomeNode *home)
{
	if (home->draft.tx != NULL)
		store_abort(home->draft.tx);
	for (int32 i = 0; i < COPIES_SHARDS; i++)
		shard_mark_abort(&home->shards[i].marks);
	memset(&home->draft, 0, sizeof(home->draft));
}

/* The next turns say that these outputs are done; one that runs has said all that it will. */
void
copies_add_done(HomeNode *home, int32 source, const ShardTurnDone *done)
{
	HomeShard *shard = &home->shards[source];
	bool news = false;

	for (int i = 0; i < shard->n_outputs; i++)
	{
		const Output *output = &shard->outputs[i];

		news |= !output->done && output->oseq <= done->oseq && output->type_id == done->type_id &&
				output->shard == done->shard;
	}
	for (int i = home->draft.shards[source].n_dones; i < shard->n_dones && news; i++)
	{
		ShardTurnDone *other = &shard->dones[i];

		if (other->type_id == done->type_id && other->shard == done->shard)
		{
			other->oseq = Max(other->oseq, done->oseq);
			news = false;
		}
	}
	if (news && shard->n_dones < (int) lengthof(shard->dones))
		shard->dones[shard->n_dones++] = *done;
}

/* ---- its commit ------------------------------------------------------------------------------ */

typedef struct Telling
{
	HomeShard *shard;
	int64 turn;
} Telling;

static void
tell_later(void *context, ShardStamp mark)
{
	Telling *telling = context;

	if (telling->shard->n_tells < COPIES_TURNS)
		telling->shard->tells[telling->shard->n_tells++] = (Tell){telling->turn, mark};
}

static void
publish_shard(CopiesWorld *world, int32 number, int64 lsn)
{
	HomeNode *home = &world->home;
	HomeShard *shard = shard_of(world, number);
	Draft *draft = &home->draft;
	const ShardTurnRecord *record = &draft->shards[number].record;

	for (int i = 0; i < draft->shards[number].n_appended; i++)
	{
		Output *output = &shard->outputs[draft->shards[number].appended[i]];

		output->lsn = lsn;
		copies_check_appended(world, number, output);
	}
	if (!draft->shards[number].dirty)
		return;
	for (int i = 0; i < draft->shards[number].n_dones; i++)
		take_done(shard, &shard->dones[i]);
	memmove(shard->dones, shard->dones + draft->shards[number].n_dones,
			(shard->n_dones - draft->shards[number].n_dones) * sizeof(ShardTurnDone));
	shard->n_dones -= draft->shards[number].n_dones;
	for (int i = 0; i < draft->shards[number].n_outputs; i++)
		add_output(shard, &draft->shards[number].outputs[i]);
	shard->count += draft->shards[number].n_ids;
	if (draft->seals)
		shard->seal = record->turn;
	shard_replica_committed(&shard->replica, record);
	home->gates[home->n_gates++] = (Gate){lsn, number, record->turn};
	copies_check_made(world, number, record);
}

/* The records as they stand in the row that is committed now. */
static void
keep_records(CopiesWorld *world)
{
	HomeNode *home = &world->home;
	const LogRow *row = store_get(home->store, NULL, T_LOG, KEY(home->draft.row));
	ShardTurnRecord record;
	ShardTurnFault fault;
	ShardReader reader;

	if (row == NULL)
		return;
	reader = (ShardReader){row->bytes, row->bytes + row->length, false};
	while (shard_turn_record_next(&reader, &record, &fault))
		keep_record(shard_of(world, record.shard), &record, home->draft.row);
}

static void
take_home(CopiesWorld *world)
{
	HomeNode *home = &world->home;
	int32 nodes[1 + COPIES_BACKUPS] = {COPIES_HOME, COPIES_HOME + 1, COPIES_HOME + 2};

	for (int32 i = 0; i < COPIES_SHARDS; i++)
	{
		HomeShard *shard = shard_of(world, i);
		ShardReplicaHome before = shard->replica;

		shard_replica_begin(&shard->replica, home->draft.epoch, &before.end, before.oseq,
							before.kept);
		shard_replica_require(&shard->replica, COPIES_HOME, 1, nodes, 1 + world->n_backups);
		shard_replica_passed(&shard->replica, before.passed);
		shard->seal = 0;
	}
	memset(home->calls, 0, sizeof(home->calls));
	home->own = (OwnRow){home->draft.epoch, false};
	home->stopped = false;
}

static void
end_turn(CopiesWorld *world)
{
	HomeNode *home = &world->home;
	int64 lsn = store_commit(home->draft.tx);

	home->draft.tx = NULL;
	keep_records(world);
	for (int32 i = 0; i < COPIES_SHARDS; i++)
	{
		HomeShard *shard = shard_of(world, i);

		publish_shard(world, i, lsn);
		shard_mark_commit(&shard->marks, tell_later, &(Telling){shard, shard->replica.end.turn});
	}
	home->own.sealed |= home->draft.seals;
	if (home->draft.epoch > 0)
		take_home(world);
	memset(&home->draft, 0, sizeof(home->draft));
}

bool
copies_turn(CopiesWorld *world)
{
	if (!world->home.draft.runs)
		return world->home.n_gates + COPIES_SHARDS < (int) lengthof(world->home.gates) &&
			   begin_turn(world);
	end_turn(world);
	return true;
}
