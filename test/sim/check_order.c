/*
 * check_order.c
 *		Numbers of messages: who sends which, and whether entities see them in order (D25).
 *
 * Senders of an entity draw its numbers one after the other, at whichever node, and commit as they like. A
 * number whose message was rolled back, or may have been, is sent once more, mostly; now and then one is sent
 * twice, or left for later.
 *
 * Of each entity what was last heard is kept: its position, and the highest number that was handled. When
 * it has come to its end, or its state was lost, all begins anew.
 */
#include "check_private.h"

#define RECENT 32
#define MAX_BOOKS 256

typedef struct Book
{
	int32 type_id;
	int32 shard;
	int32 entity;
	int64 last;				/* number that was drawn */
	int64 messages[RECENT]; /* by number; 0: none was sent */

	int32 epoch;
	bool begun;
	CheckPosition position;
	int64 handled; /* 0: none */
	int64 by;	   /* that message */
} Book;

struct CheckOrders
{
	int n_books;
	Book books[MAX_BOOKS];
};

CheckOrders *
check_orders_create(void)
{
	return pg_malloc0(sizeof(CheckOrders));
}

static Book *
find_book(Check *check, int32 type_id, int32 shard, int32 entity)
{
	CheckOrders *orders = check_orders(check);
	Book *book;

	for (int i = 0; i < orders->n_books; i++)
	{
		book = &orders->books[i];
		if (book->type_id == type_id && book->shard == shard && book->entity == entity)
			return book;
	}
	if (orders->n_books == MAX_BOOKS)
	{
		check_fail(check, "too many entities with an order");
		orders->n_books--;
	}
	book = &orders->books[orders->n_books++];
	*book = (Book){.type_id = type_id, .shard = shard, .entity = entity};
	return book;
}

/* What was heard of an entity does not count any more. */
static void
forget(Book *book)
{
	book->begun = false;
	book->handled = 0;
}

void
check_orders_forget(Check *check)
{
	CheckOrders *orders = check_orders(check);

	for (int i = 0; i < orders->n_books; i++)
		forget(&orders->books[i]);
}

void
check_orders_lost(Check *check, int32 type_id, int32 shard)
{
	CheckOrders *orders = check_orders(check);

	for (int i = 0; i < orders->n_books; i++)
	{
		if (orders->books[i].type_id == type_id && orders->books[i].shard == shard)
			forget(&orders->books[i]);
	}
}

/* ---- senders ---------------------------------------------------------------------------------- */

/* Chance without a generator: what clients do must not change what else happens. */
static uint32
dice(uint64 *state, uint32 below)
{
	uint64 z = (*state += UINT64CONST(0x9e3779b97f4a7c15));

	z = (z ^ (z >> 30)) * UINT64CONST(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64CONST(0x94d049bb133111eb);
	return (uint32) ((z ^ (z >> 31)) >> 32) % below;
}

/* A number that was drawn before, and is not known to have been sent. 0: there is none. */
static int64
find_open(const Check *check, const Book *book)
{
	for (int64 number = Max(1, book->last - RECENT + 1); number <= book->last; number++)
	{
		int64 id = book->messages[number % RECENT];
		CheckFate fate = id != 0 ? check_fate(check, id) : CHECK_ABORTED;

		if (fate == CHECK_ABORTED || fate == CHECK_UNSURE)
			return number;
	}
	return 0;
}

static int64
draw(const Check *check, Book *book, uint64 *state)
{
	int64 open = find_open(check, book);

	if (open != 0 && dice(state, 100) < 70)
		return open;
	if (book->last > 0 && dice(state, 100) < 8)
		return book->last - dice(state, (uint32) Min(book->last, 6));
	/* one is left for later */
	if (dice(state, 100) < 15)
		book->messages[++book->last % RECENT] = 0;
	return ++book->last;
}

int64
check_draw_number(Check *check, int64 id, uint64 chance, bool *stops)
{
	const CheckPlace place = check_place(check, id);
	Book *book = find_book(check, place.type_id, place.shard, place.entity);
	uint64 state = chance * 31 + (uint64) id;
	int64 number = draw(check, book, &state);

	book->messages[number % RECENT] = id;
	*stops = dice(&state, 100) < 3;
	check_set_number(check, id, number);
	return number;
}

/* ---- homes ------------------------------------------------------------------------------------ */

/* The book of an entity, if what is heard in this epoch counts; what was before its state was lost does not. */
static Book *
book_of(Check *check, int instance, int32 type_id, int32 shard, int32 entity, int32 epoch)
{
	Book *book = find_book(check, type_id, shard, entity);
	int32 lost = check_lost_epoch(check, type_id, shard);

	if (check_is_excused(check, instance) || epoch < lost)
		return NULL;
	if (book->epoch < lost)
		forget(book);
	book->epoch = epoch;
	return book;
}

void
check_in_order(Check *check, int64 id, int instance, int32 epoch)
{
	const CheckPlace place = check_place(check, id);
	Book *book = book_of(check, instance, place.type_id, place.shard, place.entity, epoch);

	if (book == NULL)
		return;
	if (book->handled >= place.number)
		check_fail(check,
				   "D25: message " INT64_FORMAT
				   " (shard %d/%d, entity %d) with number " INT64_FORMAT
				   " is handled by %d in epoch %d after " INT64_FORMAT " with number " INT64_FORMAT,
				   id, place.type_id, place.shard, place.entity, place.number, instance, epoch,
				   book->by, book->handled);
	book->handled = place.number;
	book->by = id;
}

void
check_position(Check *check, int instance, int32 type_id, int32 shard, int32 entity, int32 epoch,
			   const CheckPosition *position)
{
	Book *book = book_of(check, instance, type_id, shard, entity, epoch);

	if (book == NULL)
		return;
	if (position == NULL)
	{
		forget(book);
		return;
	}
	if (book->begun &&
		(position->began != book->position.began || position->expected < book->position.expected ||
		 position->skipped < book->position.skipped || position->late < book->position.late))
		check_fail(check,
				   "D25: the position of shard %d/%d, entity %d goes back on %d in epoch %d: began "
				   "%lld -> %lld, expected %lld -> %lld, skipped %lld -> %lld, late %lld -> %lld",
				   type_id, shard, entity, instance, epoch, (long long) book->position.began,
				   (long long) position->began, (long long) book->position.expected,
				   (long long) position->expected, (long long) book->position.skipped,
				   (long long) position->skipped, (long long) book->position.late,
				   (long long) position->late);
	if (position->expected <= book->handled)
		check_fail(check,
				   "D25: shard %d/%d, entity %d expects %lld on %d, and has handled " INT64_FORMAT,
				   type_id, shard, entity, (long long) position->expected, instance, book->handled);
	book->begun = true;
	book->position = *position;
}
