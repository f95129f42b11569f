/*
 * entity/replica_rows.c
 *		What records have beside states: whether it is sound, and the newest of each row (Q10).
 *
 * Comes from: replica_pass.c, record by record, as they follow one another. Goes to: replica_rows_write.c. Nothing is
 * copied: names and items point into the records, which the pass keeps. If the process dies right here, nothing has happened.
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "mb/pg_wchar.h"
#include "utils/timestamp.h"

#include "core/base/message.h"
#include "core/entity/timer.h"
#include "entity/replica_rows.h"
#include "registry/payload.h"

#include "base/compat.h"

/* ---- are they sound ------------------------------------------------------------------------------- */

static bool
is_text(const char *text, int length)
{
	return pg_verify_mbstr(GetDatabaseEncoding(), text, length, true);
}

static bool
is_place(const ShardTurnKey *key, const char *place)
{
	return key->name_len == (int) strlen(place) && memcmp(key->name, place, key->name_len) == 0;
}

/* A message that waits, as an import takes it (copy/import_stage.c). */
static bool
is_held(const ShardTurnKey *key, ShardReader *row)
{
	ShardCopyHeld held;
	bool ordered = is_place(key, "ordered");

	if (!ordered && !is_place(key, "stash") && !is_place(key, "start"))
		return false;
	if (key->row == NULL)
		return true;
	if (!shard_copy_get_held(row, &held) || held.ordered != ordered ||
		is_place(key, "start") != (held.kind == SHARD_KIND_RESTART) ||
		!is_text(held.error, held.error_len) || !is_text(held.sqlstate, held.sqlstate_len))
		return false;

	/* a stop message of the worker's own has a type, but nobody has sent it (stop.c) */
	if (held.src_type != 0 && !(held.kind == SHARD_KIND_PASSIVATE && held.src_entity_len == 0) &&
		!shard_payload_is_entity(held.src_entity, held.src_entity_len))
		return false;
	return (held.kind != SHARD_KIND_TELL && held.payload_len == 0) ||
		   shard_payload_is_jsonb(held.payload, held.payload_len);
}

static bool
is_timer(const ShardTurnKey *key, ShardReader *row)
{
	ShardCopyTimer timer;

	if (key->row == NULL)
		return is_text(key->name, key->name_len);
	return shard_copy_get_timer(row, &timer) && timer.due >= 0 && IS_VALID_TIMESTAMP(timer.due) &&
		   timer.first >= 0 && IS_VALID_TIMESTAMP(timer.first) && timer.period <= PG_INT32_MAX &&
		   timer.idle <= PG_INT64_MAX / 4 && timer.missed <= SHARD_TIMER_SKIP &&
		   is_text(key->name, key->name_len) && is_text(timer.zone, timer.zone_len) &&
		   shard_payload_is_jsonb(timer.message, timer.message_len);
}

static bool
is_failure(const ShardTurnKey *key, ShardReader *row)
{
	ShardCopyHistory history;

	return key->row != NULL && shard_copy_get_history(row, &history) &&
		   is_text(history.sqlstate, history.sqlstate_len) &&
		   is_text(history.error, history.error_len) &&
		   is_text(history.decision, history.decision_len) &&
		   is_text(history.outcome, history.outcome_len);
}

static bool
is_key(const ShardTurnKey *key)
{
	ShardReader row = {key->row, key->row + key->row_len};
	ShardCopyOrdered ordered;

	if (!shard_payload_is_entity(key->entity, key->entity_len))
		return false;
	switch (key->part)
	{
		case SHARD_COPY_STASH:
			return is_held(key, &row);
		case SHARD_COPY_ORDERED:
			return key->row == NULL || shard_copy_get_ordered(&row, &ordered);
		case SHARD_COPY_TIMERS:
			return is_timer(key, &row);
		case SHARD_COPY_HISTORY:
			return is_failure(key, &row);
		default:
			return false;
	}
}

static bool
is_mark(const ShardStamp *mark)
{
	return (mark->kind == SHARD_PREFIX_NODE || mark->kind == SHARD_PREFIX_SHARD) && mark->a > 0 &&
		   mark->b >= 0 && mark->seq > 0;
}

static bool
is_output(const ShardTurnOutput *output)
{
	return is_text(output->entity, output->entity_len) &&
		   is_text(output->src_entity, output->src_entity_len);
}

static bool
is_letter(const ShardTurnLetter *letter)
{
	if (letter->gone)
		return true;
	return shard_payload_is_entity(letter->entity, letter->entity_len) &&
		   is_text(letter->src_entity, letter->src_entity_len) &&
		   is_text(letter->sqlstate, letter->sqlstate_len) &&
		   is_text(letter->error, letter->error_len) &&
		   is_text(letter->detail, letter->detail_len) && is_text(letter->hint, letter->hint_len) &&
		   is_text(letter->context, letter->context_len);
}

/* All items of one kind, and nothing behind them. */
#define CHECK(get, good, type) \
	do \
	{ \
		type item; \
		while (get(&items, &item)) \
			if (!good(&item)) \
				return false; \
	} while (false)

static bool
is_any(const void *item)
{
	return true;
}

static bool
is_section(int32 kind, ShardReader items, bool columns)
{
	ShardTurnImage image;

	switch (kind)
	{
		case SHARD_TURN_IMAGES:
			while (shard_turn_get_image(&items, &image))
				if (!shard_payload_is_entity(image.entity, image.entity_len) ||
					(image.row != NULL && !columns))
					return false;
			break;
		case SHARD_TURN_KEYS:
			CHECK(shard_turn_get_key, is_key, ShardTurnKey);
			break;
		case SHARD_TURN_MARKS:
			CHECK(shard_turn_get_mark, is_mark, ShardStamp);
			break;
		case SHARD_TURN_OUTPUTS:
			CHECK(shard_turn_get_output, is_output, ShardTurnOutput);
			break;
		case SHARD_TURN_ODONE:
			CHECK(shard_turn_get_done, is_any, ShardTurnDone);
			break;
		case SHARD_TURN_LETTERS:
			CHECK(shard_turn_get_letter, is_letter, ShardTurnLetter);
			break;
		default:
			break;
	}
	return !items.failed;
}

const char *
shard_replica_rows_check(const ShardTurnRecord *record, bool columns)
{
	ShardReader sections = record->sections;
	ShardReader items;
	int32 kind;
	bool mandatory;

	while (shard_turn_record_section_next(&sections, &kind, &mandatory, &items))
	{
		columns |= kind == SHARD_TURN_COLUMNS;
		if (!is_section(kind, items, columns))
			return shard_turn_section_names[kind];
	}
	return NULL;
}

/* ---- the newest of each --------------------------------------------------------------------------- */

static uint32
hash_name(const void *key, Size size)
{
	const ShardReplicaRowName *id = key;
	uint32 hash = hash_bytes((const unsigned char *) id->entity, id->entity_len);

	hash = hash_combine(hash, hash_bytes((const unsigned char *) id->name, id->name_len));
	hash = hash_combine(hash, murmurhash32((uint32) id->number));
	hash = hash_combine(hash, murmurhash32((uint32) id->a ^ ((uint32) id->b << 16)));
	return hash_combine(hash,
						murmurhash32((uint32) (id->copy * SHARD_TURN_SECTIONS + id->section)));
}

static int
compare_bytes(const char *a, int a_len, const char *b, int b_len)
{
	int bytes = memcmp(a, b, Min(a_len, b_len));

	return bytes != 0 ? bytes : a_len - b_len;
}

static int
compare_names(const ShardReplicaRowName *x, const ShardReplicaRowName *y)
{
	int bytes;

	if (x->section != y->section)
		return x->section - y->section;
	if (x->a != y->a)
		return x->a < y->a ? -1 : 1;
	if (x->b != y->b)
		return x->b < y->b ? -1 : 1;
	bytes = compare_bytes(x->entity, x->entity_len, y->entity, y->entity_len);
	if (bytes == 0)
		bytes = compare_bytes(x->name, x->name_len, y->name, y->name_len);
	if (bytes != 0)
		return bytes;
	return x->number == y->number ? 0 : x->number < y->number ? -1 : 1;
}

static int
match_name(const void *a, const void *b, Size size)
{
	const ShardReplicaRowName *x = a;
	const ShardReplicaRowName *y = b;

	return x->copy != y->copy || compare_names(x, y) != 0;
}

HTAB *
shard_replica_rows_create(void)
{
	HASHCTL info = {.keysize = sizeof(ShardReplicaRowName), .entrysize = sizeof(ShardReplicaRow)};

	info.hash = hash_name;
	info.match = match_name;
	info.hcxt = CurrentMemoryContext;
	return hash_create("shard replica rows", 256, &info,
					   HASH_ELEM | HASH_FUNCTION | HASH_COMPARE | HASH_CONTEXT);
}

/* The next item of a section, and how it is called. number: how many stood before it. False: there is none. */
static bool
get_item(int kind, ShardReader *items, const ShardTurnRecord *record, int64 number,
		 ShardReplicaRowName *id, int64 *seq)
{
	ShardTurnKey key;
	ShardStamp mark;
	ShardTurnOutput output;
	ShardTurnDone done;
	ShardTurnLetter letter;

	switch (kind)
	{
		case SHARD_TURN_KEYS:
			if (!shard_turn_get_key(items, &key))
				return false;
			id->a = key.part;
			id->number = key.number;
			id->entity = key.entity;
			id->entity_len = key.entity_len;
			id->name = key.name;
			id->name_len = key.name_len;
			return true;
		case SHARD_TURN_MARKS:
			if (!shard_turn_get_mark(items, &mark))
				return false;
			id->a = mark.a;
			id->b = mark.b;
			id->number = mark.kind;
			*seq = mark.seq;
			return true;
		case SHARD_TURN_OUTPUTS:
			id->number = record->first_oseq + number;
			return shard_turn_get_output(items, &output);
		case SHARD_TURN_ODONE:
			if (!shard_turn_get_done(items, &done))
				return false;
			id->a = done.type_id;
			id->b = done.shard;
			*seq = done.oseq;
			return true;
		case SHARD_TURN_LETTERS:
			if (!shard_turn_get_letter(items, &letter))
				return false;
			id->number = letter.number;
			return true;
		default:
			return false;
	}
}

int64
shard_replica_rows_take(HTAB *rows, int copy, const ShardTurnRecord *record, int kind,
						ShardReader items, int64 before)
{
	for (int64 number = before;; number++)
	{
		ShardReplicaRowName id = {.copy = copy, .section = kind, .entity = "", .name = ""};
		const char *begin = items.at;
		int64 seq = 0;
		ShardReplicaRow *row;
		bool found;

		if (!get_item(kind, &items, record, number, &id, &seq))
			return number - before;
		row = hash_search(rows, &id, HASH_ENTER, &found);
#ifdef SHARD_MUTANT_OLDER_ROWS_APPLIED
		if (found && kind == SHARD_TURN_KEYS)
			continue;
#endif
		row->seq = found ? Max(row->seq, seq) : seq;
		row->turn = record->turn;
		row->item = (ShardReader){begin, items.at};
	}
}

bool
shard_replica_row_gone(const ShardReplicaRow *row)
{
	ShardReader item = row->item;
	ShardTurnKey key;
	ShardTurnLetter letter;

	if (row->id.section == SHARD_TURN_KEYS)
		return shard_turn_get_key(&item, &key) && key.row == NULL;
	return row->id.section == SHARD_TURN_LETTERS && shard_turn_get_letter(&item, &letter) &&
		   letter.gone;
}

/* A number that waited may wait again in another row, so what is gone goes first. */
static int
compare_rows(const void *a, const void *b)
{
	const ShardReplicaRow *x = *(ShardReplicaRow *const *) a;
	const ShardReplicaRow *y = *(ShardReplicaRow *const *) b;
	bool gone;

	if (x->id.copy != y->id.copy)
		return x->id.copy - y->id.copy;
	gone = shard_replica_row_gone(x);
	if (gone != shard_replica_row_gone(y))
		return gone ? -1 : 1;
	return compare_names(&x->id, &y->id);
}

ShardReplicaRow **
shard_replica_rows_list(HTAB *rows, int *count)
{
	HASH_SEQ_STATUS all;
	ShardReplicaRow *row;
	ShardReplicaRow **list =
		MemoryContextAllocHuge(CurrentMemoryContext,
							   Max(hash_get_num_entries(rows), 1) * sizeof(ShardReplicaRow *));

	*count = 0;
	hash_seq_init(&all, rows);
	while ((row = hash_seq_search(&all)) != NULL)
		list[(*count)++] = row;
	qsort(list, *count, sizeof(ShardReplicaRow *), compare_rows);
	return list;
}
