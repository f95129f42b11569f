/*
 * entity/handle.c
 *		Running a message or an ask in a subtransaction, and what its failure means.
 *
 * Whatever goes wrong in the fence is undone with it: the effects of user code and what the turn knew of
 * the entity. So the rest of the turn goes on, and the message can be run again or given up in it.
 */
#include "postgres.h"

#include "access/xact.h"
#include "utils/memutils.h"
#include "utils/resowner.h"

#include "base/error_text.h"
#include "entity/internal.h"
#include "base/guc.h"
#include "registry/owner_session.h"
#include "registry/registry.h"
#include "shared/board.h"
#include "shared/shmem.h"

#include "base/compat.h"

/* An error made up here, in the turn's memory; its strings are constants, or there as well. */
ErrorData *
shard_failure_keep(const ErrorData *error)
{
	ErrorData *kept = MemoryContextAlloc(shard_turn.context, sizeof(ErrorData));

	*kept = *error;
	return kept;
}

/* Why a type cannot run, as its users see it; it may be known before they can. */
static char *
why_not(const ShardType *type)
{
	int sqlstate;
	char *problem = type->problem;

	if (problem == NULL)
		problem = shard_run_problem(type, &sqlstate);
	return problem != NULL ? psprintf("%c%s.", pg_toupper((unsigned char) problem[0]), problem + 1)
						   : NULL;
}

/*
 * What an ask is told whose type cannot run; NULL: it is not here. Who asked may be at another node, and looks for
 * the reason in vain there.
 */
ErrorData *
shard_failure_of_type(const ShardType *type)
{
	MemoryContext old = MemoryContextSwitchTo(shard_turn.context);
	ErrorData error = {.sqlerrcode = ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE};
	ShardBoardView view;

	shard_board_get(shard_shmem_database(), &view);
	if (type == NULL)
	{
		error.message = psprintf("the entity type does not exist at node %d", view.node);
		error.hint = "Start it there with shard_start().";
	}
	else if (type->mode == SHARD_MODE_HOSTING && shard_run_keeps())
	{
		error.message = psprintf("entity type \"%s\" cannot run at node %d", type->name, view.node);
		error.detail =
			psprintf("Its owner has no region worker there: shard.max_region_workers is %d.",
					 shard_max_region_workers);
		error.hint = "See shard_health() at that node. Messages sent with shard_tell() wait.";
	}
	else if (type->mode == SHARD_MODE_HOSTING)
	{
		error.message = psprintf("entity type \"%s\" cannot run at node %d", type->name, view.node);
		error.detail = why_not(type);
		error.hint = "See column problem of shard_types at that node. Messages sent with "
					 "shard_tell() wait.";
	}
	else
	{
		const char *what = type->mode == SHARD_MODE_STOPPED	  ? "is stopped"
						   : type->mode == SHARD_MODE_DROPPED ? "was dropped"
															  : "is a proxy";

		error.message = psprintf("entity type \"%s\" %s at node %d", type->name, what, view.node);
		error.hint = "Start it there with shard_start(), or ask again if its shards move away. "
					 "Messages sent with shard_tell() wait.";
	}
	MemoryContextSwitchTo(old);
	return shard_failure_keep(&error);
}

/* Whether the type itself cannot run as it is now, so that no message of it is to blame. */
static bool
has_problem(const ShardType *type)
{
	int sqlstate;

	return shard_run_problem(type, &sqlstate) != NULL;
}

/*
 * Whether the state could not be written because somebody else has inserted, changed or locked the row since it was
 * found to be so.
 */
static bool
was_overtaken(ShardEntity *entity, ShardCopy *found)
{
	ShardRun *run = entity->run;
	bool result;

	shard_security_begin(&shard_turn.security, run->type);
	result = shard_state_open(&run->table, run->type) &&
			 shard_state_is_overtaken(&run->table, entity, found);
	shard_state_close(&run->table);
	return result;
}

/*
 * What is done in the fence: in a careful turn all of it, from reading the state to writing it. False: somebody
 * else has the row, or changed it.
 */
static bool
run_in_fence(ShardEntity *entity, const ShardRow *row, const ShardRequest *ask,
			 ShardExecution *execution, ShardCopy *found)
{
	bool good = shard_turn_check(entity);

	if (good && (row == NULL || shard_kind_is_message(row->kind)))
		shard_call_message(entity, row, ask, execution);
	if (!shard_turn.careful)
		return good;
	*found = entity->now;
	good = good && shard_turn_write(entity);
	shard_call_close(entity->run);
	return good;
}

/* Runs a message in a subtransaction. Returns its error, NULL if it went well; *overtaken: try later. */
static ErrorData *
run_fenced(ShardEntity *entity, const ShardRow *row, const ShardRequest *ask,
		   ShardExecution *execution, bool *overtaken)
{
	MemoryContext caller = CurrentMemoryContext;
	ResourceOwner owner = CurrentResourceOwner;
	static ShardCopy found; /* before it was written; known: it was tried */
	ShardCopy before = entity->now;
	bool checked = entity->checked;
	bool dirty = entity->dirty;
	bool let_go = entity->let_go;
	ErrorData *volatile error = NULL;
	volatile bool cancelled = false;

	*overtaken = false;
	found.known = false;

	/* what is opened in the subtransaction must be closed in it */
	shard_security_begin(&shard_turn.security, entity->run->type);
	if (shard_turn.careful)
		shard_state_close(&entity->run->table);
	BeginInternalSubTransaction(NULL);
	MemoryContextSwitchTo(shard_turn.context);
	PG_TRY();
	{
		shard_turn.fenced = true;
		*overtaken = !run_in_fence(entity, row, ask, execution, &found);
		shard_owner_session_tidy();
		if (*overtaken)
			RollbackAndReleaseCurrentSubTransaction();
		else
			ReleaseCurrentSubTransaction();
	}
	PG_CATCH();
	{
		MemoryContextSwitchTo(shard_turn.context);
		error = CopyErrorData();
		FlushErrorState();
		shard_error_text_cut(error);
		RollbackAndReleaseCurrentSubTransaction();
		if (shard_turn.careful)
			shard_state_forget(&entity->run->table);
		cancelled = shard_call_was_cancelled(error);
		shard_call_aborted();
		shard_call_explain(error);
	}
	PG_END_TRY();
	shard_turn.fenced = false;
	MemoryContextSwitchTo(caller);
	CurrentResourceOwner = owner;

	/*
	 * The type was changed meanwhile, or the row, or somebody cancelled the worker: the message is not to
	 * blame. An ask is not tried later: it may run in an optimistic turn, where going back to the saved state would
	 * undo tells that are not written yet.
	 */
	if (error != NULL && has_problem(entity->run->type))
	{
		error = row == NULL ? shard_failure_of_type(entity->run->type) : NULL;
		*overtaken = row != NULL;
	}
	else if (error != NULL &&
			 ((cancelled && row != NULL) || (found.known && was_overtaken(entity, &found))))
	{
		error = NULL;
		*overtaken = true;
	}
	if (error != NULL || *overtaken)
	{
		entity->now = before;
		entity->checked = checked;
		entity->dirty = dirty;
		entity->let_go = let_go;
		if (entity->ordering != NULL)
			entity->ordering->ended = false;
	}
	return error;
}

/*
 * Runs a message or an ask fenced, and once more if the plans it ran with are older than a change that may have made them
 * wrong: nothing is left of the first run.
 */
ErrorData *
shard_handle_fenced(ShardEntity *entity, const ShardRow *row, const ShardRequest *ask,
					ShardExecution *execution, bool *overtaken)
{
	ErrorData *error = run_fenced(entity, row, ask, execution, overtaken);

	if (error == NULL || *overtaken || !shard_plans_renew(error))
		return error;
	memset(execution, 0, sizeof(*execution));
	return run_fenced(entity, row, ask, execution, overtaken);
}
