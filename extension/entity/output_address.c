/*
 * entity/output_address.c
 *		To whom an output goes that leaves: its receiver may have been resharded since it was told (Q29, E64).
 *
 * Comes from: outputs_leave.c, in a turn. What a type is resharded to has another number, and its entities are in other shards; the row of
 * the type says which numbers it had before. If the process dies right here: nothing has happened.
 *
 * Whatever keeps the receiver from being found passes, or somebody ends it: then the output stays, and is no dead letter.
 */
#include "postgres.h"

#include "catalog/pg_type.h"
#include "executor/spi.h"
#include "utils/snapmgr.h"

#include "base/attempt.h"
#include "core/base/message.h"
#include "core/base/text.h"
#include "entity/internal.h"
#include "entity/outputs.h"
#include "log/log_read.h"
#include "log/session.h"
#include "registry/reshard_lock.h"
#include "registry/security.h"
#include "registry/statement.h"
#include "shared/told.h"

#include "base/compat.h"

static ShardStatement select_successor = {
	"SELECT type_id FROM shard.type WHERE $1 OPERATOR(pg_catalog.=) ANY (former)", 1, {INT4OID}};

/* The type that has come in the place of one that is gone, maybe since the turn began; NULL: none has. */
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
	PushActiveSnapshot(GetLatestSnapshot());
	shard_security_open_system(&security);
	shard_statement_read(&select_successor, &arguments, 1);
	if (SPI_processed > 0)
		successor = shard_statement_int4(0, 1);
	shard_security_close_system(&security);
	PopActiveSnapshot();
	return successor == 0 ? NULL : shard_registry_known(successor);
}

/*
 * The type as it stays until the turn has committed, as far as it is stopped (E64); NULL: it is gone for good. False: it is being
 * resharded at this moment.
 */
static bool
find_receiver(int32 type_id, ShardType **type)
{
	for (;;)
	{
		int32 found;

		*type = shard_registry_known(type_id);
		if (unlikely(*type == NULL))
			*type = find_successor(type_id);
		if (*type == NULL || (*type)->mode != SHARD_MODE_STOPPED)
			return true;
#ifdef SHARD_MUTANT_OUTPUTS_BESIDE_RESHARDING
		return true;
#endif
		found = (*type)->type_id;
		if (!shard_reshard_lock_send(found, true))
			return false;
		shard_registry_catch_up();
		if (shard_registry_known(found) != NULL)
			return true;
	}
}

typedef struct Search
{
	ShardType *type;
	const ShardRow *row;
	bool suspended;
	int32 shard;
} Search;

/* Whether code of the type must not run, since it had to be ended with its worker again and again, for example; as of this turn. */
static bool
cannot_run(const ShardType *type)
{
	const ShardLocalType *local = shard_turn_ready_type(type->type_id);

	return type->problem != NULL || (local != NULL && !local->runnable &&
									 type->mode == SHARD_MODE_HOSTING && !shard_local_keeps());
}

/* For shard_attempt: an extractor is the owner's code. */
static void
find_shard(void *argument)
{
	Search *search = argument;

	if (search->suspended)
		ereport(ERROR, (errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
						errmsg("the type cannot run, as shard_types says")));
#ifndef SHARD_MUTANT_EXTRACTOR_UNWATCHED
	shard_call_watch(search->type);
#endif
	search->shard =
		shard_registry_shard_id(search->type, search->row->entity, search->row->entity_len);
#ifndef SHARD_MUTANT_EXTRACTOR_UNWATCHED
	shard_call_watched();
#endif
}

static void
report(const Search *search, const ErrorData *error)
{
	const ShardRow *row = search->row;
	const char *more;

	if (shard_told_may(shard_shmem_database(), shard_log_read_self(), "unplaced output",
					   search->type->type_id, &more))
		ereport(WARNING,
				(errcode(error->sqlerrcode),
				 errmsg("a message to entity \"%s\" of entity type \"%s\", which was resharded "
						"since it was told, has no shard: %s%s",
						shard_text_shown(pnstrdup(row->entity, row->entity_len)),
						search->type->name, error->message, more),
				 errdetail("It is not sent, nor is what its sender's shard has told behind it. It "
						   "is tried again."),
				 error->hint != NULL ? errhint("%s", error->hint) : 0));
}

ShardOutputPlace
shard_output_address(ShardRow *row)
{
	Search search = {.row = row};
	ErrorData *error;

	if (!find_receiver(row->type_id, &search.type))
		return SHARD_OUTPUT_BUSY;
	if (unlikely(search.type == NULL))
	{
		/* it becomes a dead letter, of a type that is gone */
		shard_session_appended(shard_message_lane(row->type_id, row->shard));
		return SHARD_OUTPUT_PLACED;
	}
	if (likely(search.type->type_id == row->type_id))
	{
		shard_session_answered(row->type_id, row->shard);
		return SHARD_OUTPUT_PLACED;
	}
	search.suspended = cannot_run(search.type);
	error = shard_attempt(find_shard, &search);
	if (error != NULL)
	{
		(void) shard_call_was_cancelled(error);
		shard_call_aborted();
		shard_call_explain(error);
		report(&search, error);
		return SHARD_OUTPUT_UNPLACED;
	}
	row->type_id = search.type->type_id;
	row->shard = search.shard;
	shard_session_answered(row->type_id, row->shard);
	return SHARD_OUTPUT_PLACED_BY_CODE;
}
