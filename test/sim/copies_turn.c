/*
 * copies_turn.c
 *		A worker in mode copies: what a home's memory is made of at the start, and turns (Q5, Q19, Q28 to Q31).
 *
 * A turn is one transaction in two steps, so that the process may die, or stand still, before its commit: then there is no turn.
 */
#include "copies.h"

#define KEY(...) ((StoreKey){{__VA_ARGS__}})
#define TURN_MESSAGES 4

/* ---- at the start ---------------------------------------------------------------------------- */

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

static void
keep_record(HomeShard *shard, const ShardTurnRecord *record)
{
	StringInfoData bytes;
	KeptRecord *kept = &shard->records[record->turn % COPIES_TURNS];

	initStringInfo(&bytes);
	shard_turn_record_ship(&bytes, record);
	free(kept->bytes);
	*kept = (KeptRecord){bytes.len, pg_malloc(bytes.len)};
	memcpy(kept->bytes, bytes.data, bytes.len);
	pfree(bytes.data);
}

/* Marks, outputs, states as the tables have them, as of the end; and the records that are there, kept is the oldest one. */
static void
load_shard(const Node *home, StoreTransaction *tx, int32 number, HomeShard *shard, int64 *kept)
{
	const Store *store = home->store;
	StoreKey key = KEY(number, 0);
	const int64 *seq;
	const UndoneRow *undone;
	ShardTurnRecord record;

	while ((seq = store_at_or_next(store, tx, T_MARK, &key)) != NULL && key.k[0] == number)
	{
		shard_mark_raise(&shard->marks,
						 (ShardStamp){(int32) key.k[1], (int32) key.k[2], (int32) key.k[3], *seq});
		key.k[3]++;
	}
	key = KEY(number, 0);
	while (store_at_or_next(store, tx, T_STATE, &key) != NULL && key.k[0] == number)
	{
		shard->count = key.k[1] + 1;
		key.k[3]++;
	}
	key = KEY(number, 0);
	while ((undone = store_at_or_next(store, tx, T_UNDONE, &key)) != NULL && key.k[0] == number)
	{
		add_output(shard, &(Output){.oseq = key.k[1],
									.turn = undone->turn,
									.id = undone->id,
									.type_id = undone->type_id,
									.shard = undone->shard});
		key.k[3]++;
	}
	*kept = home->copies[number].copy.end.turn + 1;
	while (copies_read_turn(store, tx, number, *kept - 1, &record))
	{
		keep_record(shard, &record);
		--*kept;
	}
	shard_mark_commit(&shard->marks, NULL, NULL);
}

/*
 * Of a node that is home by the fact that it has met; what is not applied yet was so in tx. What was released is not known. So
 * everything that is told when a turn is released is told anew once the last turn is, and all outputs that are not done are
 * appended once more.
 */
void
copies_load(CopiesWorld *world, Node *home, StoreTransaction *tx)
{
	const ShardHomeRecord *fact = copies_fact(world, home->own.n);

	copies_node_forget_home(home);
	for (int32 i = 0; i < COPIES_SHARDS; i++)
	{
		HomeShard *shard = &home->shards[i];
		const ShardReplicaCopy *copy = &home->copies[i].copy;
		int64 turn = copy->end.turn;
		int64 kept;

		shard->n_outputs = 0;
		load_shard(home, tx, i, shard, &kept);
		shard_replica_begin(&shard->replica, home->own.own.epoch, &copy->end, copy->oseq, kept);
		shard_replica_require(&shard->replica, home->index + 1, home->own.n, fact->nodes,
							  fact->n_nodes);
		shard->seal = home->own.own.state == SHARD_TAKEOVER_SEALED ? turn : 0;
		shard->first = turn;
		if (tx == NULL)
			home->gates[home->n_gates++] = (Gate){store_last_lsn(home->store), i, turn};
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
touch(Node *home, int32 number)
{
	Draft *draft = &home->draft;

	if (draft->shards[number].dirty)
		return;
	draft->shards[number].dirty = true;
	draft->shards[number].count = home->shards[number].count;
}

/* A handler: it may tell the other shard, its own one, or the plain one at the other node. */
static void
run_handler(CopiesWorld *world, Node *home, int32 number)
{
	Draft *draft = &home->draft;
	Output *output = &draft->shards[number].outputs[draft->shards[number].n_outputs];
	bool plain = copies_percent(world, 50);

	if (!world->chaos || world->ids + 1 >= COPIES_IDS || !copies_percent(world, 35) ||
		draft->shards[number].n_outputs >= (int) lengthof(draft->shards[number].outputs))
		return;
	world->kinds[++world->ids] = LOG_OUTPUT;
	world->senders[world->ids] = (uint8) (COPIES_NODES + 1 + number);
	*output = (Output){.id = world->ids,
					   .type_id = plain ? COPIES_PLAIN : COPIES_TYPE,
					   .shard = plain ? 0 : (int32) copies_random(world, COPIES_SHARDS)};
	draft->shards[number].n_outputs++;
}

/* A message is taken in, unless its stamp says that it was (Q30: one told here has none until now). */
static void
take_in(CopiesWorld *world, Node *home, const LogRow *row, int64 seq)
{
	Draft *draft = &home->draft;
	HomeShard *shard = &home->shards[row->shard];
	ShardStamp stamp = row->stamp;

	if (shard_mark_passed(&shard->marks, stamp))
	{
		shard_mark_raise(&shard->marks, stamp); /* it stays what it is, and is told again */
		return;
	}
	touch(home, row->shard);
	if (row->kind == LOG_INPUT)
	{
		draft->shards[row->shard].inputs[draft->shards[row->shard].n_inputs++] =
			(ShardTurnInput){seq, home->rseq + 1};
		stamp = (ShardStamp){SHARD_PREFIX_NODE, home->index + 1, 0, ++home->rseq};
#ifdef SHARD_MUTANT_COPIES_INPUTS_UNSTAMPED
		stamp.kind = SHARD_PREFIX_NONE;
#endif
	}
	if (stamp.kind != SHARD_PREFIX_NONE)
		shard_mark_raise(&shard->marks, stamp);
	draft->shards[row->shard].ids[draft->shards[row->shard].n_ids++] = row->id;
	run_handler(world, home, row->shard);
}

/* What was parked here comes before rows that have no stamp yet (Q30). False: not all of it was taken in. */
static bool
read_parked(CopiesWorld *world, Node *home, int *n)
{
	for (int32 shard = 0; shard < COPIES_SHARDS; shard++)
	{
		StoreKey key = KEY(shard, 0);
		const int64 *id;

		while ((id = store_at_or_next(home->store, NULL, T_PARKED, &key)) != NULL &&
			   key.k[0] == shard)
		{
			LogRow row = {.kind = LOG_ARRIVED,
						  .type_id = COPIES_TYPE,
						  .shard = shard,
						  .id = *id,
						  .stamp = {SHARD_PREFIX_NODE, home->index + 1, 0, key.k[1]}};

			key.k[3]++;
			if (shard_mark_passed(&home->shards[shard].marks, row.stamp))
				continue;
			if (*n == TURN_MESSAGES)
				return false;
			take_in(world, home, &row, 0);
			++*n;
		}
	}
	return true;
}

/*
 * A row for a shard whose home is elsewhere. What was told here gets its stamp, and is sent there. Others have an origin, which
 * sends them again.
 */
static void
park(CopiesWorld *world, Node *node, const LogRow *row)
{
	if (row->kind == LOG_INPUT)
	{
		store_put(node->draft.tx, T_PARKED, KEY(row->shard, ++node->rseq), &row->id);
		node->resent++;
	}
#ifdef SHARD_MUTANT_COPIES_HOME_FORWARDS
	else if (row->kind == LOG_ARRIVED)
		copies_send(world,
					&(Message){.kind = M_TELL,
							   .from = COPIES_NODES,
							   .to = shard_record_home_node(copies_fact(world, node->own.n)) - 1,
							   .shard = row->shard,
							   .epoch = node->own.own.epoch,
							   .number = row->stamp.seq,
							   .stamp = row->stamp,
							   .id = row->id});
#endif
}

static void
read_log(CopiesWorld *world, Node *home)
{
	Draft *draft = &home->draft;
	const int64 *cursor = store_get(home->store, draft->tx, T_CURSOR, KEY(0));
	int64 passed = cursor != NULL ? *cursor : 0;
	StoreKey key = KEY(passed + 1);
	bool is_home = home->own.own.state == SHARD_TAKEOVER_HOME;
	const LogRow *row;
	int n = 0;

	draft->cursor = passed;
	if (home->own.own.state == SHARD_TAKEOVER_SEALED || (is_home && !read_parked(world, home, &n)))
		return;
	while (n < TURN_MESSAGES && (row = store_at_or_next(home->store, NULL, T_LOG, &key)) != NULL)
	{
		LogRow copy = *row;
		bool takes = copy.kind == LOG_INPUT || shard_takeover_takes(&home->own.own, copy.epoch);

#ifdef SHARD_MUTANT_COPIES_OLD_OUTPUT_ROWS
		takes |= copy.kind == LOG_OUTPUT;
#endif
		draft->cursor = key.k[0];
		key.k[3]++;
		if (copy.type_id != COPIES_TYPE)
			continue;
		if (!is_home)
			park(world, home, &copy);
		else if (takes)
			take_in(world, home, &copy, draft->cursor);
		else
			continue;
		n++;
	}
}

/* Q29: the released ones, in their order, with their stamps; one for a shard here under its epoch. */
static bool
append_outputs(Node *home, int32 number)
{
	HomeShard *shard = &home->shards[number];
	Draft *draft = &home->draft;
	int *n = &draft->shards[number].n_appended;

	for (int i = 0; i < shard->n_outputs && *n < (int) lengthof(draft->shards[number].appended);
		 i++)
	{
		Output *output = &shard->outputs[i];
		LogRow row = {.kind = LOG_OUTPUT,
					  .type_id = output->type_id,
					  .shard = output->shard,
					  .epoch = home->own.own.epoch,
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
write_record(Node *home, int32 number, StringInfo out)
{
	HomeShard *shard = &home->shards[number];
	Draft *draft = &home->draft;
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
	if (draft->activates)
		shard_turn_put_control(out, SHARD_TURN_ACTIVATE);
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

/* A record, and what it does: a home's rows are those of its newest turn. */
static void
write_shard(Node *home, int32 number)
{
	Draft *draft = &home->draft;
	CopyRow *copy = &draft->shards[number].copy;
	StringInfoData out;
	TurnRow row;
	ShardTurnRecord record;

	initStringInfo(&out);
	write_record(home, number, &out);
	Assert(out.len <= COPIES_ROW);
	memset(&row, 0, sizeof(row));
	row.length = out.len;
	memcpy(row.bytes, out.data, out.len);
	pfree(out.data);
	copies_row_record(&row, &record);
	row.shipped = record.shipped_len;
	store_put(draft->tx, T_TURN, KEY(number, record.turn), &row);
	copies_apply_record(draft->tx, home->store, &record);
	*copy = home->copies[number];
	shard_replica_stored(&copy->copy, &record);
	copy->shows = record.turn;
	store_put(draft->tx, T_COPY, KEY(number), copy);
}

static void
write_turn(Node *home)
{
	Draft *draft = &home->draft;

	for (int32 i = 0; i < COPIES_SHARDS; i++)
		if (draft->shards[i].dirty)
			write_shard(home, i);
	store_put(draft->tx, T_CURSOR, KEY(0), &draft->cursor);
}

/* A seal is the last record of its epoch. */
static bool
seal(Node *home)
{
	OwnRow own = home->own;

	if (own.own.state != SHARD_TAKEOVER_HOME || home->stop_epoch != own.own.epoch)
		return false;
	shard_takeover_step(&own.own, SHARD_TAKEOVER_SEAL, 0);
	home->draft.seals = true;
	for (int32 i = 0; i < COPIES_SHARDS; i++)
		touch(home, i);
	store_put(home->draft.tx, T_OWN, KEY(0), &own);
	return true;
}

/* What a home does beside what comes. */
static bool
begin_home(Node *home)
{
	Draft *draft = &home->draft;
	bool something = seal(home);
	bool sealed = home->own.own.state == SHARD_TAKEOVER_SEALED;

	for (int32 i = 0; i < COPIES_SHARDS; i++)
	{
		something |= append_outputs(home, i);
		if (sealed)
			continue;
		draft->shards[i].n_dones = home->shards[i].n_dones;
		if (home->shards[i].n_dones > 0)
			touch(home, i);
	}
	return something;
}

/* False: there is nothing to do. */
static bool
begin_turn(CopiesWorld *world, Node *home)
{
	Draft *draft = &home->draft;
	const int64 *cursor = store_get(home->store, NULL, T_CURSOR, KEY(0));
	bool is_home = shard_takeover_is_home(&home->own.own);
	int64 passed = cursor != NULL ? *cursor : 0;
	bool something;

	memset(draft, 0, sizeof(*draft));
	draft->runs = true;
	draft->tx = store_begin(home->store);
	draft->cursor = passed;
	something = is_home && begin_home(home);
	if (!draft->seals)
		read_log(world, home);
	for (int32 i = 0; i < COPIES_SHARDS; i++)
		something |= draft->shards[i].dirty;
	if (!something && draft->cursor == passed)
	{
		copies_turn_abort(home);
		return false;
	}
	write_turn(home);
	return true;
}

void
copies_turn_abort(Node *home)
{
	if (home->draft.tx != NULL)
		store_abort(home->draft.tx);
	for (int32 i = 0; i < COPIES_SHARDS; i++)
		shard_mark_abort(&home->shards[i].marks);
	memset(&home->draft, 0, sizeof(home->draft));
}

/* The next turns say that these outputs are done; one that runs has said all that it will. */
void
copies_add_done(Node *home, int32 source, const ShardTurnDone *done)
{
	HomeShard *shard = &home->shards[source];
	bool news = false;

	if (!shard_takeover_is_home(&home->own.own))
	{
		take_done(shard, done);
		return;
	}
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

/* As it is shipped. */
static void
keep_turn(Node *home, int32 number, int64 turn)
{
	ShardTurnRecord record;

	if (copies_read_turn(home->store, NULL, number, turn, &record))
		keep_record(&home->shards[number], &record);
}

static void
publish_shard(CopiesWorld *world, Node *home, int32 number, int64 lsn)
{
	HomeShard *shard = &home->shards[number];
	Draft *draft = &home->draft;
	const ShardTurnRecord *record = &draft->shards[number].record;

	for (int i = 0; i < draft->shards[number].n_appended; i++)
	{
		Output *output = &shard->outputs[draft->shards[number].appended[i]];

		output->lsn = lsn;
		copies_check_appended(world, home, number, output);
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
	if (draft->activates)
		shard->first = record->turn;
	shard_replica_committed(&shard->replica, record);
	home->copies[number] = draft->shards[number].copy;
	home->gates[home->n_gates++] = (Gate){lsn, number, record->turn};
	copies_check_made(world, number, record);
	keep_turn(home, number, record->turn);
}

static void
end_turn(CopiesWorld *world, Node *home)
{
	int64 lsn = store_commit(home->draft.tx);

	home->draft.tx = NULL;
	for (int32 i = 0; i < COPIES_SHARDS && shard_takeover_is_home(&home->own.own); i++)
	{
		HomeShard *shard = &home->shards[i];

		publish_shard(world, home, i, lsn);
		shard_mark_commit(&shard->marks, tell_later, &(Telling){shard, shard->replica.end.turn});
	}
	if (home->draft.seals)
		shard_takeover_step(&home->own.own, SHARD_TAKEOVER_SEAL, 0);
	memset(&home->draft, 0, sizeof(home->draft));
}

/* The first turn of an epoch whose home begins from what it had stored (Q19). */
void
copies_activate(CopiesWorld *world, Node *home)
{
	home->draft.activates = true;
	for (int32 i = 0; i < COPIES_SHARDS; i++)
		touch(home, i);
	write_turn(home);
	end_turn(world, home);
}

bool
copies_turn(CopiesWorld *world, Node *home)
{
	if (!home->draft.runs)
		return home->n_gates + COPIES_SHARDS < (int) lengthof(home->gates) &&
			   begin_turn(world, home);
	end_turn(world, home);
	return true;
}
