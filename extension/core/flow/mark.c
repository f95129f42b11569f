/*
 * core/flow/mark.c
 *		Marks: up to where a shard has taken in what came from each origin (H7, X6).
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "core/flow/mark.h"
#include "core/base/message.h"

#define FEW 16

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

/* Prefixes have an order, by which marks are found. */
static int
compare(const ShardStamp *x, const ShardStamp *y)
{
	if (x->kind != y->kind)
		return x->kind < y->kind ? -1 : 1;
	if (x->a != y->a)
		return x->a < y->a ? -1 : 1;
	return x->b < y->b ? -1 : x->b > y->b;
}

/* The place of the first mark whose prefix is not before that one. */
static int
place_of(const ShardMarks *marks, const ShardStamp *stamp)
{
	int low = 0;
	int high = marks->n_marks;

	while (low < high)
	{
		int middle = low + (high - low) / 2;

		if (compare(&marks->marks[middle].stamp, stamp) < 0)
			low = middle + 1;
		else
			high = middle;
	}
	return high;
}

/* The mark of a prefix, NULL if the shard has none. A few are looked through sooner than halved. */
static ShardMark *
find_mark(const ShardMarks *marks, const ShardStamp *stamp)
{
	int place = marks->n_marks > FEW ? place_of(marks, stamp) : 0;
	int end = marks->n_marks > FEW ? Min(place + 1, marks->n_marks) : marks->n_marks;

	for (; place < end; place++)
	{
		ShardMark *mark = &marks->marks[place];

		if (mark->stamp.kind == stamp->kind && mark->stamp.a == stamp->a &&
			mark->stamp.b == stamp->b)
			return mark;
	}
	return NULL;
}

bool
shard_mark_can_be(ShardStamp stamp, int32 type_id, int32 shard, int32 last_node)
{
	return stamp.kind == SHARD_PREFIX_NODE && stamp.a > 0 && stamp.a <= last_node &&
		   stamp.b == shard_message_lane(type_id, shard) && stamp.seq > 0;
}

bool
shard_mark_passed(const ShardMarks *marks, ShardStamp stamp)
{
	const ShardMark *mark;

	if (stamp.kind == SHARD_PREFIX_NONE)
		return false;
	mark = find_mark(marks, &stamp);
	return mark != NULL && stamp.seq <= mark->stamp.seq;
}

bool
shard_mark_committed(const ShardMarks *marks, ShardStamp stamp)
{
	const ShardMark *mark;

	if (stamp.kind == SHARD_PREFIX_NONE)
		return false;
	mark = find_mark(marks, &stamp);
	return mark != NULL && stamp.seq <= mark->committed;
}

/*
 * A new mark for a prefix that has none, at its place. The array grows in the context that is current, which must
 * live as long as the shard's entry; it grows once per prefix, not per message.
 */
static ShardMark *
add_mark(ShardMarks *marks, const ShardStamp *stamp)
{
	int place = place_of(marks, stamp);
	ShardMark *mark;

	if (marks->n_marks == marks->space)
	{
		int space = Max(4, marks->space * 2);

		marks->marks = marks->marks == NULL ? palloc(space * sizeof(ShardMark))
											: repalloc(marks->marks, space * sizeof(ShardMark));
		marks->space = space;
	}
	mark = &marks->marks[place];
	memmove(mark + 1, mark, (marks->n_marks++ - place) * sizeof(ShardMark));
	memset(mark, 0, sizeof(*mark));
	mark->stamp = *stamp;
	mark->stamp.seq = 0;
	return mark;
}

void
shard_mark_raise(ShardMarks *marks, ShardStamp stamp)
{
	ShardMark *mark = find_mark(marks, &stamp);

	if (mark == NULL)
		mark = add_mark(marks, &stamp);
	mark->stamp.seq = Max(mark->stamp.seq, stamp.seq);
	mark->touched = true;
}

void
shard_mark_floor(ShardMarks *marks, ShardStamp floor)
{
	ShardMark *mark = find_mark(marks, &floor);

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
