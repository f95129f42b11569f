/*
 * registry/reshard_lock.h
 *		Senders to a type that is stopped, and the end of its resharding, wait for each other (E64).
 */
#pragma once

/*
 * Before a transaction that has sent to the type commits, when its rows are in the log; to the end of the transaction.
 * False: with nowait, a session has the other lock.
 */
extern bool shard_reshard_lock_send(int32 type_id, bool nowait);

/* Keeps senders from committing, to the end of the transaction. False: some are about to, or are prepared. */
extern bool shard_reshard_lock_senders(int32 type_id);
