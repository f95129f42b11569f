/*
 * entity/order_position.c
 *		How far entities are in the numbers of their messages: table shard.ordered (doc/protocol.md D25).
 *
 * Comes from: order.c, in a turn.
 *
 * A row is read when the first message of the entity with a number comes up, and written once per turn, by the turn's
 * transaction. This worker alone writes it: another worker of the lane, or another home of the shard, begins when this
 * one has ended. If the process dies right here, the row is that of the last commit.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "utils/array.h"
#include "utils/builtins.h"

#include "entity/internal.h"
#include "entity/record.h"
#include "registry/statement.h"

#include "base/compat.h"

#define COLUMNS 7

static ShardStatement select_position = {"SELECT began, expected, skipped, late FROM shard.ordered"
										 " WHERE type_id = $1 AND shard = $2 AND entity = $3",
										 3,
										 {INT4OID, INT4OID, TEXTOID}};

static ShardStatement write_positions = {
	"INSERT INTO shard.ordered (type_id, shard, entity, began, expected, skipped, late)"
	/* unnest() of several arrays is a matter of its bare name, which is not safe to use. */
	" SELECT * FROM ROWS FROM (pg_catalog.unnest($1), pg_catalog.unnest($2), pg_catalog.unnest($3),"
	" pg_catalog.unnest($4), pg_catalog.unnest($5), pg_catalog.unnest($6), pg_catalog.unnest($7))"
	" ON CONFLICT (type_id, shard, entity) DO UPDATE SET began = EXCLUDED.began,"
	" expected = EXCLUDED.expected, skipped = EXCLUDED.skipped, late = EXCLUDED.late",
	COLUMNS,
	{INT4ARRAYOID, INT4ARRAYOID, TEXTARRAYOID, INT8ARRAYOID, INT8ARRAYOID, INT8ARRAYOID,
	 INT8ARRAYOID}};

static ShardStatement delete_position = {
	"DELETE FROM shard.ordered WHERE type_id = $1 AND shard = $2 AND entity = $3",
	3,
	{INT4OID, INT4OID, TEXTOID}};

/* type_id, shard, entity */
static void
add_key(ShardArguments *arguments, const ShardEntity *entity)
{
	shard_statement_add(arguments, Int32GetDatum(entity->local->type->type_id), false);
	shard_statement_add(arguments, Int32GetDatum(entity->shard), false);
	shard_statement_add_text(arguments, entity->id, entity->id_len);
}

void
shard_order_read_position(const ShardEntity *entity, ShardOrderedPosition *position)
{
	ShardArguments arguments = {0};

	SPI_connect();
	add_key(&arguments, entity);
	shard_statement_run(&select_position, &arguments, SPI_OK_SELECT);
	position->known = true;
	position->begun = SPI_processed > 0;
	if (position->begun)
	{
		position->began = shard_statement_int8(0, 1);
		position->expected = shard_statement_int8(0, 2);
		position->skipped = shard_statement_int8(0, 3);
		position->late = shard_statement_int8(0, 4);
	}
	SPI_finish();
}

/* A column for write_positions. */
static Datum
make_column(List *entities, int column)
{
	static const Oid types[COLUMNS] = {INT4OID, INT4OID, TEXTOID, INT8OID,
									   INT8OID, INT8OID, INT8OID};
	Datum *values = palloc(list_length(entities) * sizeof(Datum));
	int count = 0;
	ListCell *cell;

	foreach (cell, entities)
	{
		const ShardEntity *entity = lfirst(cell);
		const ShardOrderedPosition *position = &entity->ordering->now.position;
		Datum *value = &values[count++];

		switch (column)
		{
			case 0:
				*value = Int32GetDatum(entity->local->type->type_id);
				break;
			case 1:
				*value = Int32GetDatum(entity->shard);
				break;
			case 2:
				*value = PointerGetDatum(cstring_to_text_with_len(entity->id, entity->id_len));
				break;
			case 3:
				*value = Int64GetDatum(position->began);
				break;
			case 4:
				*value = Int64GetDatum(position->expected);
				break;
			case 5:
				*value = Int64GetDatum(position->skipped);
				break;
			default:
				*value = Int64GetDatum(position->late);
		}
	}
	if (types[column] == TEXTOID)
		return PointerGetDatum(construct_array(values, count, TEXTOID, -1, false, TYPALIGN_INT));
	return PointerGetDatum(
		construct_array(values, count, types[column], types[column] == INT4OID ? 4 : 8,
						types[column] == INT4OID || FLOAT8PASSBYVAL,
						types[column] == INT4OID ? TYPALIGN_INT : TYPALIGN_DOUBLE));
}

/* For the turn's record, if the shard has replicas. */
static void
note(const ShardEntity *entity)
{
	shard_record_ordered(entity->local->type->type_id, entity->shard, entity->id, entity->id_len);
}

void
shard_order_write_positions(List *entities)
{
	ShardArguments arguments = {0};
	ListCell *cell;

	if (entities == NIL)
		return;
	for (int column = 0; column < COLUMNS; column++)
		shard_statement_add(&arguments, make_column(entities, column), false);
	shard_statement_change(&write_positions, &arguments, SPI_OK_INSERT);
	foreach (cell, entities)
		note(lfirst(cell));
}

void
shard_order_delete_position(const ShardEntity *entity)
{
	ShardArguments arguments = {0};

	add_key(&arguments, entity);
	shard_statement_change(&delete_position, &arguments, SPI_OK_DELETE);
	note(entity);
}
