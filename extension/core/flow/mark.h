/*
 * core/flow/mark.h
 *		Marks: up to where a shard has taken in what came from each origin (H7, X6).
 *
 * A stamp names one item and is never given to another: a prefix (a node and its lane, or a sending
 * shard) and a number that rises. Under one home epoch a prefix comes on one stream in the order of
 * its numbers, so for each shard and prefix one number says what was taken in. A home compares
 * arriving items with its marks; it tells them to the origins, which keep an item until its mark is
 * heard of.
 *
 * Marks change with the turn: shard_mark_commit or shard_mark_abort ends what was done since the last
 * of them. A worker holds one ShardMarks for each shard that is active in its lanes.
 */
#pragma once

typedef enum ShardPrefixKind
{
	SHARD_PREFIX_NONE = 0, /* not stamped yet */
	SHARD_PREFIX_NODE = 1, /* a: origin node, b: its lane */
	SHARD_PREFIX_SHARD = 2 /* a: type id, b: shard that sent it; reserved (N3) */
} ShardPrefixKind;

typedef struct ShardStamp
{
	int32 kind; /* ShardPrefixKind */
	int32 a;
	int32 b;
	int64 seq;
} ShardStamp;

typedef struct ShardMark
{
	ShardStamp stamp; /* its seq is the mark; 0: dropped, once this turn commits */
	int64 committed;  /* what an abort returns to; 0: there was none */
	bool touched;	  /* since the last commit or abort */
} ShardMark;

/* Marks of one shard, in the order of their prefixes. */
typedef struct ShardMarks
{
	int n_marks;
	int space;
	ShardMark *marks;
} ShardMarks;

extern void shard_mark_init(ShardMarks *marks);
extern void shard_mark_free(ShardMarks *marks);

/* Forget all marks. clear: for good; drop: an abort brings them back. */
extern void shard_mark_clear(ShardMarks *marks);
extern void shard_mark_drop(ShardMarks *marks);

/* Was an item with this stamp taken in? False for an item without a stamp. */
extern bool shard_mark_passed(const ShardMarks *marks, ShardStamp stamp);

/* The same, by a turn that has committed. */
extern bool shard_mark_committed(const ShardMarks *marks, ShardStamp stamp);

/*
 * Can a shard have that mark, with numbers given to nodes up to last_node? Its items come by its own lane (H7).
 */
extern bool shard_mark_can_be(ShardStamp stamp, int32 type_id, int32 shard, int32 last_node);

/*
 * An item with this stamp is taken in now. The mark never falls. New prefixes cost least in their order.
 */
extern void shard_mark_raise(ShardMarks *marks, ShardStamp stamp);

/* The origin stores nothing of this prefix below the floor any more: a mark below it has no use. */
extern void shard_mark_floor(ShardMarks *marks, ShardStamp floor);

/*
 * The turn is over. commit: tell is called for each mark that the turn set, and may be NULL.
 */
typedef void (*ShardMarkTell)(void *context, ShardStamp mark);
extern void shard_mark_commit(ShardMarks *marks, ShardMarkTell tell, void *context);
extern void shard_mark_abort(ShardMarks *marks);
