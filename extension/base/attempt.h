/*
 * base/attempt.h
 *		What may fail without the transaction failing, and errors that outlive it.
 */
#pragma once

/*
 * Calls a function in a subtransaction. NULL, or its error, long texts cut (error_text.h), in the caller's memory, when
 * nothing that it did has happened.
 */
extern ErrorData *shard_attempt(void (*function)(void *argument), void *argument);

/*
 * In a PG_CATCH block: the error, long texts cut (error_text.h), in memory of its own, which ends with shard_attempt_free_error();
 * FreeErrorData() does not free all that a copy has. What is added to it belongs into its assoc_context.
 */
extern ErrorData *shard_attempt_take_error(void);
extern void shard_attempt_free_error(ErrorData *error);
