/*
 * attempt.h
 *		What may fail without the transaction failing.
 */
#pragma once

/*
 * Calls a function in a subtransaction. NULL, or its error, in the caller's memory, when nothing that it did
 * has happened.
 */
extern ErrorData *shard_attempt(void (*function)(void *argument), void *argument);
