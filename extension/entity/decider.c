/*
 * entity/decider.c
 *		The type's own word on a failure: its decider, a function of SQLSTATE, message and attempts (E22).
 *
 * Comes from: failure.c, with a message that has failed. Goes to: handler.c, as the type's owner, under a timer.
 *
 * It runs in a subtransaction that is undone in any case: a decider decides, and changes nothing. One that fails, or says
 * what is no decision, has said nothing; the message that failed is not judged by the failure of another function.
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "base/attempt.h"
#include "entity/internal.h"
#include "registry/owner_session.h"

#include "base/compat.h"

typedef struct Question
{
	ShardLocalType *local;
	const char *sqlstate;
	const char *message;
	int attempts;
	char *answer; /* in the turn's memory; NULL: it leaves the decision to the setting */
} Question;

/* In the subtransaction, and in the stretch of the owner's code that was begun before it. */
static void
ask(void *argument)
{
	Question *question = argument;
	ShardLocalType *local = question->local;
	char *answer;

	shard_call_watch(local->type);
	if (!shard_handler_valid(&local->decider))
		shard_handler_compile_decider(&local->decider, local->type);
	answer = shard_handler_call_decider(&local->decider, question->sqlstate, question->message,
										question->attempts);
	shard_call_watched();
	if (answer != NULL)
		question->answer = MemoryContextStrdup(shard_turn.context,
											   pnstrdup(answer, Min(strlen(answer), NAMEDATALEN)));
	shard_owner_session_tidy();
}

static void
tell(const ShardEntity *entity, int sqlstate, const char *why)
{
	const ShardType *type = entity->local->type;

	if (shard_turn_log_counts(SHARD_TURN_LOG_DECIDER))
		shard_turn_log(SHARD_TURN_LOG_DECIDER, sqlstate,
					   psprintf("decider %s of entity type \"%s\" did not decide: %s",
								type->decider_name, type->name, why),
					   psprintf("It was asked about a failure of entity \"%s\". Setting "
								"\"supervision\" has decided: %s.",
								entity->id, shard_entity_decision_name(type->supervision)),
					   "Have it return restart, resume, stop, escalate or null.");
}

bool
shard_decider_ask(ShardEntity *entity, const ErrorData *error, int attempts,
				  ShardEntityDecision *decision)
{
	ShardLocalType *local = entity->local;
	Question question = {.local = local,
						 .message = error->message == NULL ? "" : error->message,
						 .attempts = attempts};
	ErrorData *failed;

	if (local->type->decider_name == NULL)
		return false;
	question.sqlstate = pstrdup(unpack_sql_state(error->sqlerrcode));
	shard_security_begin(&shard_turn.security, local->type);
	failed = shard_attempt_undone(ask, &question);
	if (failed != NULL)
	{
		(void) shard_call_was_cancelled(failed);
		shard_call_aborted();
		shard_handler_free(&local->decider);
		shard_call_explain(failed);
	}
	shard_execution_end_user_code();
	if (failed != NULL)
	{
		tell(entity, failed->sqlerrcode, failed->message);
		return false;
	}
	if (question.answer == NULL)
		return false;
	*decision = shard_entity_decision(question.answer);
	if (*decision == SHARD_ENTITY_DECISIONS)
		tell(entity, ERRCODE_INVALID_PARAMETER_VALUE,
			 psprintf("it returned \"%s\"", question.answer));
#ifdef SHARD_MUTANT_DECIDER_IGNORED
	return false;
#else
	return *decision != SHARD_ENTITY_DECISIONS;
#endif
}
