/*
 * entity/replica_pass.c
 *		The records of some copies of one type that are to be applied, and the newest image of each row in them (Q10).
 *
 * Comes from: replica_apply.c. Records are read once, first those of table shard.turn_kept, then those of the log, from where
 * the oldest that is looked for may be. A later one takes the place of those that have its turn, or a later turn (Q8): so none
 * is believed before the log was read to its end. If the process dies right here, nothing has happened.
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "utils/memutils.h"

#include "core/base/message.h"
#include "core/base/shard_key.h"
#include "entity/replica_pass.h"
#include "entity/replica_rows.h"
#include "log/turn_log.h"

#include "base/compat.h"

/* What one pass takes: memory, and work that is lost if it fails. */
#define PIECE_BYTES (8 * 1024 * 1024)

/* Where in the log the records of a copy are that are not applied. In memory alone: a place from which on they are. */
typedef struct Place
{
	ShardShardKey key;
	int64 seq;
	int64 rests_until; /* by shard_clock_now(): its next record cannot be applied */
} Place;

static HTAB *places = NULL;

static Place *
place_of(const ShardCopySetKey *copy, bool make)
{
	ShardShardKey key = {copy->type_id, copy->shard};
	Place *place;
	bool found;

	if (places == NULL)
	{
		HASHCTL info = {.keysize = sizeof(ShardShardKey), .entrysize = sizeof(Place)};

		info.hcxt = TopMemoryContext;
		places =
			hash_create("shard replica places", 64, &info, HASH_ELEM | HASH_BLOBS | HASH_CONTEXT);
	}
	place = hash_search(places, &key, make ? HASH_ENTER : HASH_FIND, &found);
	if (make && !found)
		place->seq = place->rests_until = 0;
	return place;
}

void
shard_replica_pass_note(const ShardReplicaPassCopy *copy)
{
	int64 done = copy->reached - copy->applied;

	/* the row may have more of them */
	if (done > 0 && copy->records[done - 1].seq != 0)
		place_of(&copy->item.key, true)->seq = copy->records[done - 1].seq;
}

void
shard_replica_pass_rest(const ShardReplicaPassCopy *copy, int64 until)
{
	place_of(&copy->item.key, true)->rests_until = until;
}

bool
shard_replica_pass_rests(const ShardCopySetKey *copy, int64 now)
{
	const Place *place = place_of(copy, false);

	return place != NULL && place->rests_until > now;
}

/* ---- begin ---------------------------------------------------------------------------------------- */

static uint32
hash_key(const void *key, Size size)
{
	const ShardReplicaPassImageKey *image = key;

	return hash_combine(hash_bytes((const unsigned char *) image->entity, image->len),
						murmurhash32((uint32) image->copy));
}

static int
match_key(const void *a, const void *b, Size size)
{
	const ShardReplicaPassImageKey *x = a;
	const ShardReplicaPassImageKey *y = b;

	return x->copy != y->copy || x->len != y->len || memcmp(x->entity, y->entity, x->len) != 0;
}

ShardReplicaPass *
shard_replica_pass_begin(const ShardCopySetItem *items, int count, int32 self)
{
	ShardReplicaPass *pass = palloc0(sizeof(ShardReplicaPass));
	HASHCTL info = {.keysize = sizeof(ShardReplicaPassImageKey),
					.entrysize = sizeof(ShardReplicaPassImage)};

	pass->type_id = items[0].key.type_id;
	pass->self = self;
	pass->n_copies = count;
	pass->copies = palloc0(count * sizeof(ShardReplicaPassCopy));
	for (int i = 0; i < count; i++)
	{
		pass->copies[i].item = items[i];
		pass->copies[i].to = shard_replica_may_apply(&items[i].end.copy);
	}
	info.hash = hash_key;
	info.match = match_key;
	info.hcxt = CurrentMemoryContext;
	pass->images = hash_create("shard replica images", 256, &info,
							   HASH_ELEM | HASH_FUNCTION | HASH_COMPARE | HASH_CONTEXT);
	pass->rows = shard_replica_rows_create();
	return pass;
}

/* ---- reading -------------------------------------------------------------------------------------- */

static ShardReplicaPassCopy *
find_copy(const ShardReplicaPass *pass, int32 type_id, int32 shard)
{
	int low = 0;
	int high = pass->n_copies - 1;

	if (type_id != pass->type_id)
		return NULL;
	while (low <= high)
	{
		int middle = (low + high) / 2;
		int32 there = pass->copies[middle].item.key.shard;

		if (there == shard)
			return &pass->copies[middle];
		if (there < shard)
			low = middle + 1;
		else
			high = middle - 1;
	}
	return NULL;
}

/* Keeps the bytes of a record. */
static void
add_record(ShardReplicaPass *pass, ShardReplicaPassCopy *copy, const ShardTurnRecord *record,
		   int64 seq)
{
	ShardReplicaPassRecord *kept;
	int length = shard_turn_record_ship_len(record);
	StringInfoData bytes = {.data = palloc(length + 1), .maxlen = length + 1};

	if (copy->n_records == copy->space)
	{
		copy->space = Max(8, 2 * copy->space);
		copy->records =
			copy->records == NULL
				? palloc(copy->space * sizeof(ShardReplicaPassRecord))
				: repalloc_huge(copy->records, copy->space * sizeof(ShardReplicaPassRecord));
	}
	shard_turn_record_ship(&bytes, record);
	kept = &copy->records[copy->n_records++];
	*kept = (ShardReplicaPassRecord){record->turn, seq, bytes.data, bytes.len};
	pass->bytes += bytes.len + sizeof(ShardReplicaPassRecord);
}

/* The copy that waits for the record; NULL: none does. What has its turn, or a later one, gives way to it. */
static ShardReplicaPassCopy *
make_way(const ShardReplicaPass *pass, const ShardTurnRecord *record)
{
	ShardReplicaPassCopy *copy = find_copy(pass, record->type_id, record->shard);

	if (copy == NULL || copy->to == 0 || record->epoch < copy->item.set.lost ||
		record->turn <= copy->applied || record->turn > copy->to)
		return NULL;
	copy->n_records = (int) Min(copy->n_records, record->turn - copy->applied - 1);
	return copy;
}

static bool
visit(const ShardTurnRecord *record, int64 seq, void *arg)
{
	ShardReplicaPass *pass = arg;
	ShardReplicaPassCopy *copy = make_way(pass, record);

	if (copy == NULL || record->turn != copy->applied + 1 + copy->n_records)
		return true;
	if (pass->bytes >= PIECE_BYTES && copy->n_records > 0)
		pass->full = true;
	else
		add_record(pass, copy, record, seq);
	return true;
}

/* The copy stands still there, unless the record comes once more. */
static bool
visit_damaged(const ShardTurnRecord *record, int64 seq, void *arg)
{
	(void) make_way(arg, record);
	return true;
}

/* What rotation has moved is older than what the log has. Nothing is moved meanwhile. */
static void
read_records(ShardReplicaPass *pass)
{
	ShardLanes lanes = 0;
	int64 from = PG_INT64_MAX;

	shard_turn_log_hold(true);
	for (int i = 0; i < pass->n_copies; i++)
	{
		const ShardReplicaPassCopy *copy = &pass->copies[i];
		const Place *place = place_of(&copy->item.key, false);
		int32 shard = copy->item.key.shard;

		if (copy->to <= copy->applied)
			continue;
		lanes |= shard_lane_bit(shard_message_lane(pass->type_id, shard));
		from = Min(from, place != NULL ? place->seq : 0);
		(void) shard_turn_log_read_kept(pass->type_id, shard, copy->applied + 1, copy->to, visit,
										visit_damaged, pass);
	}
	if (lanes != 0)
		shard_turn_log_read(lanes, from, visit, visit_damaged, pass);
	shard_turn_log_hold(false);
}

/* ---- what they have ------------------------------------------------------------------------------- */

static void
take_images(ShardReplicaPass *pass, ShardReplicaPassCopy *copy, ShardReader items)
{
	ShardTurnImage image;

	while (shard_turn_get_image(&items, &image))
	{
		ShardReplicaPassImageKey key = {(int) (copy - pass->copies), image.entity_len,
										image.entity};
		ShardReplicaPassImage *newest = hash_search(pass->images, &key, HASH_ENTER, NULL);

		newest->image = image;
		newest->columns = copy->columns;
		newest->columns_len = copy->columns_len;
	}
}

/* Has it a part that has to be applied, and that is not known here? */
static bool
is_strange(const ShardTurnRecord *record)
{
	ShardReader sections = record->sections;
	ShardReader items;
	int32 kind;
	bool mandatory;

	while (shard_turn_record_section_next(&sections, &kind, &mandatory, &items))
		if (kind > SHARD_TURN_COLUMNS && mandatory)
			return true;
	return false;
}

/* Of one record, which is sound. */
static void
take_record(ShardReplicaPass *pass, ShardReplicaPassCopy *copy, const ShardTurnRecord *record)
{
	ShardReader sections = record->sections;
	ShardReader items;
	int64 outputs = 0;
	int32 kind;
	bool mandatory;

	while (shard_turn_record_section_next(&sections, &kind, &mandatory, &items))
	{
		if (kind == SHARD_TURN_IMAGES)
			take_images(pass, copy, items);
		else if (kind == SHARD_TURN_COLUMNS)
		{
			copy->columns = items.at;
			copy->columns_len = (int) (items.end - items.at);
			copy->told = true;
		}
		else if (kind == SHARD_TURN_OUTPUTS)
			outputs += shard_replica_rows_take(pass->rows, (int) (copy - pass->copies), record,
											   kind, items, outputs);
		else
			(void) shard_replica_rows_take(pass->rows, (int) (copy - pass->copies), record, kind,
										   items, 0);
	}
}

/* Why the record cannot be applied; NULL: it can. */
static char *
problem_of(const ShardReplicaPassCopy *copy, const ShardReplicaPassRecord *kept,
		   ShardTurnRecord *record)
{
	ShardReader reader = {kept->bytes, kept->bytes + kept->length};
	ShardTurnFault fault;
	const char *what;

	if (!shard_turn_record_next(&reader, record, &fault))
		what = shard_turn_fault_names[fault];
	else if (is_strange(record))
		return psprintf("record " INT64_FORMAT
						" of shard %d has a part that only a newer version knows",
						kept->turn, copy->item.key.shard);
	else
		what = shard_replica_rows_check(record, copy->columns != NULL);
	return what == NULL ? NULL
						: psprintf("record " INT64_FORMAT " of shard %d is damaged: %s", kept->turn,
								   copy->item.key.shard, what);
}

static void
take_copy(ShardReplicaPass *pass, ShardReplicaPassCopy *copy)
{
	if (copy->to > copy->applied && copy->n_records == 0)
		copy->problem = psprintf("record " INT64_FORMAT " of shard %d is gone, or damaged",
								 copy->applied + 1, copy->item.key.shard);
	for (int i = 0; i < copy->n_records; i++)
	{
		ShardTurnRecord record;

		copy->problem = problem_of(copy, &copy->records[i], &record);
		if (copy->problem != NULL)
			return;
		take_record(pass, copy, &record);
		copy->reached = copy->records[i].turn;
	}
}

void
shard_replica_pass_read(ShardReplicaPass *pass)
{
	read_records(pass);
	for (int i = 0; i < pass->n_copies; i++)
	{
		take_copy(pass, &pass->copies[i]);
		pass->full |=
			pass->copies[i].problem == NULL && pass->copies[i].reached < pass->copies[i].to;
	}
}
