/*
 * entity/state_purge.h
 *		Rows of a shard leave this database: it lives elsewhere, or its state is lost.
 */
#pragma once

/* How far a purge has come; all zero at first. */
typedef struct ShardStatePurge
{
	char *
		after; /* rows up to this entity id are gone, palloc'd in memory; NULL: from the first on */
	int after_len;
	MemoryContext memory; /* NULL: after is not kept */
	bool left;			  /* after the last call there are more rows, */
	bool busy;			  /* of which other transactions hold some, and all have been tried */
	bool held;			  /* other transactions held some rows, so far */
	TransactionId
		since;	   /* the shard was closed by then; invalid: does not matter. In the last call, */
	int64 changed; /* rows that users had changed since, by SQL */
} ShardStatePurge;

/*
 * Deletes rows of a shard from a state table, at most limit, as TRUNCATE would if it could empty a part of a table: no
 * trigger fires, no foreign key is looked at, since nothing happened to an entity. So it runs no user's code, and none
 * can keep rows from going. Rows that another transaction holds stay and are passed over, without waiting. A table that
 * is not there, or has no column shard, has none. Needs a snapshot.
 */
extern void shard_state_purge(ShardStatePurge *purge, Oid table, int32 shard, int64 limit);

/*
 * After a call: warns of rows that users changed by SQL after the shard had been closed here; those changes are lost.
 */
extern void
shard_state_purge_report(const ShardStatePurge *purge, const char *type_name, int32 shard);
