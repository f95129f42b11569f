/*
 * core/mark.c
 *		Marks: up to where a shard has taken in what came from each origin (H7, X6).
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "core/mark.h"

void
shard_mark_init(ShardMarks *marks)
{
	memset(marks, 0, sizeof(*marks));
}

void
shard_mark_free(ShardMarks *marks)
{
	if (marks->marks != NULL)
		pfree(marks->marks);
	shard_mark_init(marks);
}

/* Forget all marks, the memory is kept. Nothing is left to abort. */
void
shard_mark_clear(ShardMarks *marks)
{
	marks->n_marks = 0;
}

void
shard_mark_drop(ShardMarks *marks)
{
	for (int i = 0; i < marks->n_marks; i++)
	{
		marks->marks[i].stamp.seq = 0;
		marks->marks[i].touched = true;
	}
}

/* The mark of a prefix, NULL if the shard has none. */
static ShardMark *
find_mark(const ShardMarks *marks, ShardStamp stamp)
{
	for (int i = 0; i < marks->n_marks; i++)
	{
		ShardMark *mark = &marks->marks[i];

		if (mark->stamp.kind == stamp.kind && mark->stamp.a == stamp.a && mark->stamp.b == stamp.b)
			return mark;
	}
	return NULL;
}

bool
shard_mark_passed(const ShardMarks *marks, ShardStamp stamp)
{
	const ShardMark *mark;

	if (stamp.kind == SHARD_PREFIX_NONE)
		return false;
	mark = find_mark(marks, stamp);
	return mark != NULL && stamp.seq <= mark->stamp.seq;
}

/*
 * A new mark for a prefix that has none. The array grows in the context that is current, which must
 * live as long as the shard's entry; it grows once per prefix, not per message.
 */
static ShardMark *
add_mark(ShardMarks *marks, ShardStamp stamp)
{
	ShardMark *mark;

	if (marks->n_marks == marks->space)
	{
		int space = Max(4, marks->space * 2);

		marks->marks = marks->marks == NULL ? palloc(space * sizeof(ShardMark))
											: repalloc(marks->marks, space * sizeof(ShardMark));
		marks->space = space;
	}
	mark = &marks->marks[marks->n_marks++];
	memset(mark, 0, sizeof(*mark));
	mark->stamp = stamp;
	mark->stamp.seq = 0;
	return mark;
}

void
shard_mark_raise(ShardMarks *marks, ShardStamp stamp)
{
	ShardMark *mark = find_mark(marks, stamp);

	if (mark == NULL)
		mark = add_mark(marks, stamp);
	mark->stamp.seq = Max(mark->stamp.seq, stamp.seq);
	mark->touched = true;
}

void
shard_mark_floor(ShardMarks *marks, ShardStamp floor)
{
	ShardMark *mark = find_mark(marks, floor);

	if (mark == NULL || mark->stamp.seq >= floor.seq)
		return;
	mark->stamp.seq = 0;
	mark->touched = true;
}

void
shard_mark_commit(ShardMarks *marks, ShardMarkTell tell, void *context)
{
	int kept = 0;

	for (int i = 0; i < marks->n_marks; i++)
	{
		ShardMark mark = marks->marks[i];

		if (mark.touched && mark.stamp.seq > 0 && tell != NULL)
			tell(context, mark.stamp);
		mark.committed = mark.stamp.seq;
		mark.touched = false;
		if (mark.committed > 0)
			marks->marks[kept++] = mark;
	}
	marks->n_marks = kept;
}

void
shard_mark_abort(ShardMarks *marks)
{
	int kept = 0;

	for (int i = 0; i < marks->n_marks; i++)
	{
		ShardMark mark = marks->marks[i];

		mark.stamp.seq = mark.committed;
		mark.touched = false;
		if (mark.committed > 0)
			marks->marks[kept++] = mark;
	}
	marks->n_marks = kept;
}
