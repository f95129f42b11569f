/*
 * entity/state_structure.h
 *		The structure of a type's states as text: what must be alike at all nodes of a cluster, since shards move.
 */
#pragma once

#include "postgres.h"

/*
 * A line for the type and one for each attribute, nested ones behind theirs: "public.account", "balance numeric(10,2)".
 * Palloc'd; "" if there is no such type. In a transaction. Waits for transactions that have a relation of it locked;
 * 54000 if it is too large.
 */
extern char *shard_state_structure(Oid type);

/*
 * The same for workers, which must not hold others up: waits for no lock, and raises no error. NULL: a relation of it
 * is locked, or else why it cannot be described, palloc'd.
 */
extern char *shard_state_structure_now(Oid type, Oid *locked, char **why);

/* Rises when a type that was described may have been altered. */
extern uint64 shard_state_structure_changes(void);
