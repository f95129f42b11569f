/*
 * entity/stuck.h
 *		Messages because of which a worker had to end: what it leaves to the next one.
 */
#pragma once

#include "log/log.h"
#include "shared/shmem.h"

/* The message, if it is one of an order: the type's ordered_by has returned its number. */
typedef struct ShardStuckNumber
{
	bool known;
	int64 number;
} ShardStuckNumber;

/* This process ends because of a message: its handler cannot be cancelled, or, fatal, raised an error that ends it. */
extern void shard_stuck_note(int lane, int64 seq, bool fatal, ShardStuckNumber number);

/* The process begins, with these lanes. */
extern void shard_stuck_init(ShardLanes lanes);

/* Whether a process before this one has ended because of the message; by an error; and which number the message has. */
extern bool shard_stuck_is(const ShardRow *row);
extern bool shard_stuck_was_fatal(const ShardRow *row);
extern ShardStuckNumber shard_stuck_number(const ShardRow *row);
