/*
 * entity/record_image.c
 *		States as they were written, for the turn's records (Q5, Q28, Q32).
 *
 * Comes from: turn_entity.c, right after a state was written, as the type's owner: the functions that make bytes of values
 * may be the owner's. Goes to: record.c. Rows are in the form in which a shard is copied (state_copy.c), and in the order
 * of columns that the first record says, of each shard and worker, and again the first one after they have changed.
 */
#include "postgres.h"

#include "utils/memutils.h"
#include "utils/rel.h"

#include "entity/internal.h"
#include "entity/record.h"
#include "entity/state_copy.h"

#include "base/compat.h"

/* How rows of a type's table become images; made anew when the columns are others. */
typedef struct ShardRecordImages
{
	MemoryContext context; /* of all of it */
	TupleDesc desc;		   /* of the table that it was made for */
	uint32 version;		   /* of the columns; rises */
	StringInfoData columns;
	ShardStateCopy copy;
} ShardRecordImages;

/* Versions are of the worker: a type that comes back does not begin with one that its shards have told. */
static uint32 last_version = 0;

static void
make_images(ShardLocalType *local)
{
	MemoryContext context =
		AllocSetContextCreate(TopMemoryContext, "shard record images", ALLOCSET_SMALL_SIZES);
	MemoryContext old = MemoryContextSwitchTo(context);
	ShardRecordImages *images = palloc0(sizeof(ShardRecordImages));

	images->context = context;
	images->copy.type = local->type;
	images->copy.table.rel = local->table.rel;
	images->copy.row = AllocSetContextCreate(context, "shard record row", ALLOCSET_SMALL_SIZES);
	initStringInfo(&images->columns);
	shard_state_copy_put_columns(&images->copy, &images->columns);
	shard_state_copy_prepare(&images->copy);
	images->desc = CreateTupleDescCopyConstr(RelationGetDescr(local->table.rel));
	images->copy.table.rel = NULL;
	MemoryContextSwitchTo(old);
	images->version = ++last_version;
	if (local->images != NULL)
		MemoryContextDelete(local->images->context);
	local->images = images;
}

void
shard_record_row(ShardEntity *entity, TupleTableSlot *slot)
{
	ShardLocalType *local = entity->local;
	ShardTurnImage image = {.entity = entity->id, .entity_len = entity->id_len};
	StringInfoData row;
	StringInfo bytes;

	if (local->images == NULL ||
		!equalTupleDescs(local->images->desc, RelationGetDescr(local->table.rel)))
		make_images(local);
	if (slot != NULL)
	{
		initStringInfo(&row);
		shard_state_copy_put_slot(&local->images->copy, slot, &row);
		image.row = row.data;
		image.row_len = row.len;
	}
	bytes = shard_record_begin(local->type->type_id, entity->shard, SHARD_TURN_IMAGES);
	shard_turn_put_image(bytes, &image);
	shard_record_end();
	if (image.row != NULL)
		pfree(row.data);
}

void
shard_record_image(ShardEntity *entity)
{
	shard_record_row(entity, entity->now.exists ? entity->local->table.next : NULL);
}

const StringInfoData *
shard_record_columns(int32 type_id, uint32 *version)
{
	const ShardLocalType *local = shard_local_known(type_id);

	*version = 0;
	if (local == NULL || local->images == NULL)
		return NULL;
	*version = local->images->version;
	return &local->images->columns;
}
