/*
 * sql/send/trial.h
 *		shard_try: a handler runs in the caller's transaction, and nothing is kept.
 */
#pragma once

#include "entity/execution.h"

/* Notes a message that the handler tells in a trial, instead of sending it. */
extern void shard_trial_tell(ShardExecution *execution, const ShardType *type, const ShardRow *row);
