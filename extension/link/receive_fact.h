/*
 * link/receive_fact.h
 *		Decided homes that another node tells with its call, beside what this node has learned (T6).
 */
#pragma once

#include "link/callee.h"

/*
 * Reads the sections of a call: those facts that the learned map has, as it has them, go to *facts, an array of the
 * call's memory; returns how many. What the map contradicts is left out, and its teller is named in the server's log and by
 * shard_health(). For what the map does not reach yet it waits, with transactions of its own and nothing held, so nothing
 * is locked before; SHARD_CALLEE_PATIENCE at most, then error SH003. Error 08P01 if the bytes are damaged.
 */
extern int shard_receive_fact_read(ShardCallee *callee, ShardFact **facts);
