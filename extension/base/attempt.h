/*
 * base/attempt.h
 *		What may fail without the transaction failing, and errors that outlive it.
 */
#pragma once

/*
 * Calls a function in a subtransaction. Returns NULL; or, after the subtransaction was rolled back, the function's
 * error, long texts cut, in the caller's memory.
 */
extern ErrorData *shard_attempt(void (*function)(void *argument), void *argument);

/* The same in a subtransaction that is rolled back in any case, and so keeps no locks. */
extern ErrorData *shard_attempt_undone(void (*function)(void *argument), void *argument);

/*
 * In a PG_CATCH block: the error, long texts cut, in memory of its own, which shard_attempt_free_error()
 * frees; FreeErrorData() does not free all that a copy has. Texts added to the error belong into its assoc_context.
 */
extern ErrorData *shard_attempt_take_error(void);
extern void shard_attempt_free_error(ErrorData *error);

/*
 * A handler raises errors of any length, for each message that it is sent. They come into the stash, among the dead
 * letters, into the server's log and to askers, none of which is the handler's to fill. So at most this many bytes of each
 * text are kept; a text that was cut says at its end how long it was.
 */
#define SHARD_ATTEMPT_TEXT_BYTES 8192

/*
 * Cuts all texts of an error that CopyErrorData() has just made, in the error's memory. To be called before anything
 * else is done with the error: its texts are freed, so none may be a constant.
 */
extern void shard_attempt_cut_error(ErrorData *error);
