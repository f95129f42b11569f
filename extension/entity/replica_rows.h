/*
 * entity/replica_rows.h
 *		What records have beside states, as a backup applies it: rows of our own tables (Q10).
 *
 *		section		table
 *		keys		shard.held, shard.ordered, shard.timer, shard.history
 *		marks		shard.shard_input
 *		outputs		shard.output, until a section odone says that they are done
 *		letters		shard.letter, until they are gone
 *
 * Such rows mean nothing here as long as the shard's home is another node: view shard.backup_here has these shards, and what
 * loads, counts, shows or fires rows passes over them.
 */
#pragma once

#include "utils/hsearch.h"

#include "core/flow/record.h"
#include "shared/copy_set.h"

struct ShardReplicaPass;
struct ShardType;

/* ---- replica_rows.c: the newest of each, of the records of a pass ----------------------------------- */

/* What is told of more than once: the newest one counts. */
typedef struct ShardReplicaRowName
{
	int copy;	 /* which one of the pass */
	int section; /* ShardTurnSection */

	/* keys: part, 0, number; marks: node or type, lane or shard, kind; outputs and letters: 0, 0, number; odone: type, shard, 0 */
	int32 a;
	int32 b;
	int64 number;
	const char *entity; /* of keys */
	int entity_len;
	const char *name;
	int name_len;
} ShardReplicaRowName;

typedef struct ShardReplicaRow
{
	ShardReplicaRowName id;
	int64 turn;
	int64 seq;		  /* of a mark, or of what is done */
	ShardReader item; /* as it stands in the record */
} ShardReplicaRow;

/* In the caller's memory. */
extern HTAB *shard_replica_rows_create(void);

/* What of the record's sections is damaged, or cannot be stored in this database; NULL: nothing. columns: some are known. */
extern const char *shard_replica_rows_check(const ShardTurnRecord *record, bool columns);

/*
 * Takes a section of a record that was looked at; copy: which one of the pass; before: outputs that stand in sections of the
 * record before it. Returns how many items it has.
 */
extern int64 shard_replica_rows_take(HTAB *rows, int copy, const ShardTurnRecord *record, int kind,
									 ShardReader items, int64 before);

/* All that were taken, palloc'd: by copy, what is gone before what is there, and keys in their order. */
extern ShardReplicaRow **shard_replica_rows_list(HTAB *rows, int *count);

/* Whether the row is only that there is none. */
extern bool shard_replica_row_gone(const ShardReplicaRow *row);

/* ---- replica_rows_write.c ----------------------------------------------------------------------------- */

/* In the transaction of the pass, outside of user code: what was taken is in the tables. */
extern void
shard_replica_rows_write(const struct ShardReplicaPass *pass, const struct ShardType *type);

/* ---- replica_rows_clear.c ----------------------------------------------------------------------------- */

/* In a transaction, as the bootstrap superuser: deletes all that these tables have of a shard. */
extern void shard_replica_rows_clear(int32 type_id, int32 shard);

/* The same if the node has a copy of the shard of before the epoch lost, in which it began without its state. */
extern void shard_replica_rows_give_up(int32 type_id, int32 shard, int32 lost);

/* The same for all shards of a type whose home is another node; type_id 0: of all types. */
extern void shard_replica_rows_drop(int32 type_id);
