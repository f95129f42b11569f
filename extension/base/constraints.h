/*
 * base/constraints.h
 *		Constraints of the transaction.
 */
#pragma once

/*
 * From now on no constraint of this transaction is deferred: a deferred trigger of a user would run at the commit, with
 * the rights of the role that commits.
 */
extern void shard_constraints_immediate(void);
