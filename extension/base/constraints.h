/*
 * base/constraints.h
 *		Constraints of the transaction.
 */
#pragma once

/*
 * No constraint of this transaction is deferred, from now on: a deferred trigger of a user's would run at the commit, with
 * the rights of who commits.
 */
extern void shard_constraints_immediate(void);
