/*
 * shared/bar.h
 *		Keeping our workers out of a database until a transaction ends.
 *
 * DROP DATABASE and its like need a database without other sessions. Their backend raises a bar; the launcher stops the
 * workers, marks the bar as ready, and starts none while the bar stands. The bar falls when the transaction that raised
 * it ends, by commit or by abort.
 */
#pragma once

#include "shared/shmem.h"

/* From _PG_init: registers the transaction callback. */
extern void shard_bar_init(void);

/*
 * Raises a bar and waits until the workers are gone. Warns if they do not go in time. Error if too many bars stand.
 */
extern void shard_bar_raise(Oid dboid);

/* At the end of this transaction the launcher reads pg_database again. */
extern void shard_bar_announce(void);

/* Whether a bar stands. The caller holds the control lock. */
extern bool shard_bar_stands(Oid dboid);

/* Launcher: drops bars whose transaction has ended. Returns whether any bar is left. Runs a transaction. */
extern bool shard_bar_sweep(void);

/* Launcher: marks as ready each bar whose database has no workers. */
extern void shard_bar_acknowledge(bool (*has_workers)(Oid dboid));
