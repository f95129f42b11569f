/*
 * base/attempt.h
 *		What may fail without the transaction failing, and errors that outlive it.
 */
#pragma once

/*
 * Calls a function in a subtransaction. Returns NULL; or, after the subtransaction was rolled back, the function's
 * error, long texts cut (error_text.h), in the caller's memory.
 */
extern ErrorData *shard_attempt(void (*function)(void *argument), void *argument);

/*
 * In a PG_CATCH block: the error, long texts cut (error_text.h), in memory of its own, which shard_attempt_free_error()
 * frees; FreeErrorData() does not free all that a copy has. Texts added to the error belong into its assoc_context.
 */
extern ErrorData *shard_attempt_take_error(void);
extern void shard_attempt_free_error(ErrorData *error);
