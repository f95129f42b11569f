/*
 * entity/state_copy.h
 *		Rows of state tables on their way from one node to another (M4, M17).
 *
 * All of it runs as the type's owner: the caller has begun the security context, and has a transaction
 * and a snapshot. Row security of the table does not apply: all rows of a shard are its state.
 */
#pragma once

#include "core/flow/copy.h"
#include "entity/state.h"

typedef struct ShardStateField
{
	AttrNumber number;
	bool text; /* else binary */
	Oid parameter;
	int32 modifier;
	FmgrInfo function; /* of the type: send or output; receive or input */
} ShardStateField;

typedef struct ShardStateCopy
{
	const ShardType *type;
	ShardStateTable table;
	const char *label; /* what errors call the table; NULL: by its name */
	int32 self;		   /* this node; and below the other node, for errors */
	int32 node;
	int n_fields;
	ShardStateField *fields; /* as the old home's table has them */
	MemoryContext row;
} ShardStateCopy;

/*
 * Opens the table; waits for transactions that have it locked. Error if there is a problem with it. Memory: the current
 * context's. Closed by shard_state_copy_close; an abort closes it as well.
 */
extern void shard_state_copy_open(ShardStateCopy *copy, const ShardType *type);
extern void shard_state_copy_close(ShardStateCopy *copy);

/*
 * Old home: the table's columns; how many rows a shard has. writer: NULL, or set to a transaction that at the moment
 * changes one of them by SQL, or has it locked to change it, if there is one. Without it a very large shard is not
 * counted to its end: the number is then a lower bound.
 */
extern void shard_state_copy_put_columns(ShardStateCopy *copy, StringInfo out);
extern int64 shard_state_copy_count(ShardStateCopy *copy, int32 shard, TransactionId *writer);

/*
 * Old home: appends rows behind the one of that entity (NULL: from the first one), until there are max_bytes, or no
 * rows are left; returns how many. entity: set to that of the last row; *all: that was the last row of the shard.
 */
extern int
shard_state_copy_put_rows(ShardStateCopy *copy, int32 shard, const char *after, int after_len,
						  int max_bytes, StringInfo out, StringInfo entity, bool *all);

/*
 * Prepares the fields of rows, in the order in which columns are told; and appends one row, whose columns the slot has. For
 * records of turns, which have it written just now; table, row and type are set.
 */
extern void shard_state_copy_prepare(ShardStateCopy *copy);
extern void shard_state_copy_put_slot(ShardStateCopy *copy, TupleTableSlot *slot, StringInfo out);

/* New home, node self: raises an error unless rows of those columns, of the table at node, can be stored here. */
extern void
shard_state_copy_match(ShardStateCopy *copy, ShardReader *columns, int32 node, int32 self);

/*
 * Rows are about to be written, which are no news to anybody: triggers fire as those of a replica. The writing ends with
 * the copy, or with shard_state_door_end_write().
 */
extern void shard_state_copy_begin_write(ShardStateCopy *copy);

/* Fills the slot "next" of the table with a row of the shard, whose fields the reader has. Writing has begun. */
extern void shard_state_copy_form(ShardStateCopy *copy, int32 shard, ShardReader *rows);

/* New home: stores count rows, whose fields the reader has. */
extern void
shard_state_copy_insert(ShardStateCopy *copy, int32 shard, ShardReader *rows, int count);
