/*
 * entity/output_address.c
 *		To whom an output goes that leaves: its receiver may have been resharded since it was told (Q29, E64).
 *
 * Comes from: outputs.c, in a turn. What a type is resharded to has another number, and its entities are in other shards; the row of
 * the type says which numbers it had before. If the process dies right here: nothing has happened.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "executor/spi.h"

#include "base/attempt.h"
#include "core/base/message.h"
#include "entity/internal.h"
#include "entity/outputs.h"
#include "log/session.h"
#include "registry/security.h"
#include "registry/statement.h"

#include "base/compat.h"

static ShardStatement select_successor = {
	"SELECT type_id FROM shard.type WHERE $1 OPERATOR(pg_catalog.=) ANY (former)", 1, {INT4OID}};

/* The type that has come in the place of one that is gone; NULL: none has. */
static ShardType *
find_successor(int32 type_id)
{
	ShardArguments arguments = {0};
	ShardSecurity security = {0};
	int32 successor = 0;

#ifdef SHARD_MUTANT_OUTPUTS_TO_FORMER_SHARDS
	return NULL;
#endif
	shard_statement_add(&arguments, Int32GetDatum(type_id), false);
	shard_security_open_system(&security);
	shard_statement_read(&select_successor, &arguments, 1);
	if (SPI_processed > 0)
		successor = shard_statement_int4(0, 1);
	shard_security_close_system(&security);
	return successor == 0 ? NULL : shard_registry_known(successor);
}

typedef struct Search
{
	ShardType *type;
	const ShardRow *row;
	int32 shard;
} Search;

/* For shard_attempt: an extractor is the owner's code. */
static void
find_shard(void *argument)
{
	Search *search = argument;

	search->shard =
		shard_registry_shard_id(search->type, search->row->entity, search->row->entity_len);
}

void
shard_output_address(ShardRow *row)
{
	const ShardType *type = shard_registry_known(row->type_id);
	Search search = {.row = row};
	ErrorData *error;

	if (unlikely(type == NULL) && (search.type = find_successor(row->type_id)) != NULL)
	{
		error = shard_attempt(find_shard, &search);
		if (error == NULL)
		{
			type = search.type;
			row->type_id = type->type_id;
			row->shard = search.shard;
		}
		else
		{
			/* it becomes a dead letter, of a type that is gone */
			ereport(LOG, (errcode(error->sqlerrcode),
						  errmsg("a message to entity \"%.*s\" of entity type \"%s\", which was "
								 "resharded since it was told, has no shard: %s",
								 row->entity_len, row->entity, search.type->name, error->message)));
		}
	}

	/* of a type that is being resharded the turn finds out before it commits */
	if (type != NULL)
		shard_session_answered(row->type_id, row->shard);
	else
		shard_session_appended(shard_message_lane(row->type_id, row->shard));
}
