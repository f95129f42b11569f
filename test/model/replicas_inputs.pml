/*
 * replicas_inputs.pml
 *	  What is told at the node of a home (doc/protocol/replicas.md, Q30, Q21): each message is handled once, in order, by
 *	  the chain of homes, while its node is there.
 *
 * Modelled: node A, where items are told, and node B; both have a copy of the shard and are home in turn. A home at A
 * takes rows of its log in, with a stamp, and keeps them until their turn is released; turns are flushed, shipped one by
 * one, and released when both have them under one epoch. A crash of A loses turns that were not flushed, and what it knew
 * of releases. Facts are learned late, or skipped. With a fact that says B, A parks what it has taken in by turns that it
 * does not know to be released; with the stamps that it has, and before anything of the new epoch is stored here. What it
 * reads in its log while B is home gets its stamp then. What is parked goes to B in the order of stamps, under the epoch
 * that A knows, and stays until a mark is heard; a home at A takes it first.
 *
 * Left out: messages told elsewhere, which replicas.pml has; lost nodes, for inputs are gone with their disk (P1).
 */
#ifndef ITEMS
#define ITEMS		2
#endif
#ifndef SUSPICIONS
#define SUSPICIONS	3
#endif
#ifndef CRASHES
#define CRASHES		1
#endif
#define A			0
#define B			1
#define OTHER(x)	(1 - (x))
#define MIN_OF(a, b)	((a) < (b) -> (a) : (b))

byte suspicions = SUSPICIONS;
byte crashes = CRASHES;

/* Facts: each is an epoch of its own. */
byte newest = 1;
byte known[2] = 1;
#define HOME_IN(f)	(((f) + 1) % 2)
#define IS_HOME(x)	(HOME_IN(known[x]) == (x))

/* Records: 16 * epoch + 4 * stamp + item. */
#define TURNS		ITEMS
#define LOG(x, t)	log[(x) * (TURNS + 1) + (t)]
#define ITEM(r)		((r) % 4)
#define STAMP(r)	(((r) / 4) % 4)
#if ITEMS > 3 || SUSPICIONS > 14
#error "records are too small for that"
#endif
byte log[2 * (TURNS + 1)];
byte last[2];
byte mark[2];					/* greatest stamp that the records say */
byte flushed;					/* of A; B flushes at once */
byte released[2];				/* as a home knows */

/* A's sessions and its log. */
byte told;
byte position;					/* items that its worker has read */
byte d_position;
byte rseq;
byte d_rseq;
byte stamp[ITEMS + 1];
bool row[ITEMS + 1];			/* of the log, taken in by a turn */
bool parked[ITEMS + 1];
bool d_parked[ITEMS + 1];
bool due;						/* what is to be parked was not looked at yet */

hidden byte i, j;

inline find_mark(x)
{
	mark[x] = 0;
	for (i : 1 .. last[x]) { mark[x] = (STAMP(LOG(x, i)) > mark[x] -> STAMP(LOG(x, i)) : mark[x]) }
	skip
}

inline cut(x, end)
{
	do :: last[x] > (end) -> LOG(x, last[x]) = 0; last[x]-- :: else -> break od;
	flushed = MIN_OF(flushed, last[A]);
	find_mark(x)
}

inline handle(x, item, number)
{
	printf("%c: handles item %d, stamp %d, at %d\n", 65 + x, item, number, known[x]);
	assert(item == last[x] + 1);				/* each once, in order */
	last[x]++;
	LOG(x, last[x]) = 16 * known[x] + 4 * (number) + (item);
	find_mark(x)
}

/* The next that is parked, by stamps, and not taken in by a copy. Into j; 0: none. */
inline next_parked(x)
{
	j = 0;
	for (i : 1 .. ITEMS) {
		if
		:: parked[i] && stamp[i] > mark[x] && (j == 0 || stamp[i] < stamp[j]) -> j = i
		:: else
		fi
	}
	skip
}

inline give_stamp(item)
{
	rseq++;
	stamp[item] = rseq
}

/* Q30: what was taken in by turns that are not known to be released. */
inline park()
{
	for (j : released[A] + 1 .. last[A]) {
		if
		:: row[ITEM(LOG(A, j))] ->
			row[ITEM(LOG(A, j))] = false;
			parked[ITEM(LOG(A, j))] = true;
#ifdef MUTANT_inputs_unstamped
			give_stamp(ITEM(LOG(A, j)));
#endif
			printf("A: parks item %d, stamp %d\n", ITEM(LOG(A, j)), stamp[ITEM(LOG(A, j))])
		:: else
		fi
	}
	skip
}

inline flush()
{
	flushed = last[A];
	d_position = position;
	d_rseq = rseq;
	for (i : 1 .. ITEMS) { d_parked[i] = parked[i] }
	skip
}

inline learn(x, n)
{
	printf("%c: learns %d\n", 65 + x, n);
	if
	:: x == A && IS_HOME(A) && HOME_IN(n) != A ->
#ifdef MUTANT_inputs_not_sent_again
		skip
#elif defined(MUTANT_parked_after_the_promise)
		due = true
#else
		park()
#endif
	:: else
	fi;
	known[x] = n;
	released[x] = 0;
	if :: x == A -> flush() :: else fi
}

/* Up to where the copies are one, of what may be shipped. Into j. */
#define SHIPPABLE(x)	((x) == A -> flushed : last[B])
inline compare(x)
{
	j = 0;
	do
	:: j < SHIPPABLE(x) && j < last[OTHER(x)] && LOG(x, j + 1) == LOG(OTHER(x), j + 1) -> j++
	:: else -> break
	od
}

proctype node(byte x)
{
end:
	do
	:: d_step { known[x] < newest -> learn(x, known[x] + 1) }
	:: d_step { known[x] + 1 < newest -> learn(x, newest) }
	/* a home ships a record, and releases what both have */
	:: d_step { IS_HOME(x) && known[A] == known[B] && released[x] < SHIPPABLE(x) ->
			compare(x);
			if
			:: j > released[x] ->
				released[x] = j;
				printf("%c: turn %d released\n", 65 + x, j);
				for (i : 1 .. ITEMS) {
					if :: stamp[i] > 0 && ITEM(LOG(x, i)) == i && i <= j -> row[i] = false; parked[i] = false; d_parked[i] = false :: else fi
				}
			:: else ->
				cut(OTHER(x), j);
				last[OTHER(x)]++;
				LOG(OTHER(x), last[OTHER(x)]) = LOG(x, last[OTHER(x)]);
				flushed = (x == B -> last[A] : flushed);
				find_mark(OTHER(x));
				printf("%c: has turn %d\n", 65 + OTHER(x), last[OTHER(x)])
			fi }
	:: d_step { suspicions > 0 && HOME_IN(newest) == x -> suspicions--; newest++; printf("decided: epoch %d\n", newest) }
	od
}

#define NOBODY_PARKED(x)	((!parked[1] || stamp[1] <= mark[x]) && (!parked[2] || stamp[2] <= mark[x]) && \
							 (ITEMS < 3 || !parked[ITEMS] || stamp[ITEMS] <= mark[x]))

proctype worker()
{
end:
	do
	:: d_step { told < ITEMS -> told++ }
	/* a row of the log, by a home here, or on its way to B */
	:: d_step { IS_HOME(A) && position < told && NOBODY_PARKED(A) ->
			position++;
#ifdef MUTANT_inputs_unstamped
			handle(A, position, 0);
#else
			give_stamp(position);
			handle(A, position, stamp[position]);
#endif
#ifndef MUTANT_rows_go_early
			row[position] = true
#endif
		}
	:: d_step { !IS_HOME(A) && !due && position < told ->
			position++;
			give_stamp(position);
			parked[position] = true;
			printf("A: item %d leaves with stamp %d\n", position, stamp[position]);
			flush() }
	:: d_step { IS_HOME(A) && !NOBODY_PARKED(A) ->
			next_parked(A);
#ifdef MUTANT_parked_rows_go_early
			parked[j] = false;
#endif
			handle(A, j, stamp[j]) }
#ifdef MUTANT_parked_after_the_promise
	:: d_step { due -> due = false; park(); flush() }
#endif
	:: d_step { flushed < last[A] -> flush() }
	:: d_step { crashes > 0 ->
			crashes--;
			printf("A: crash\n");
			for (i : d_position + 1 .. position) { stamp[i] = 0; row[i] = false }
			for (i : 1 .. ITEMS) { parked[i] = d_parked[i] }
			position = d_position;
#ifdef MUTANT_numbers_of_rows_alone
			rseq = 0;
			for (i : 1 .. ITEMS) { rseq = (parked[i] && stamp[i] > rseq -> stamp[i] : rseq) }
			d_rseq = rseq;
#else
			rseq = d_rseq;
#endif
			cut(A, flushed);
			released[A] = 0 }
	/* B takes what comes under its epoch */
	:: d_step { IS_HOME(B) && known[A] == known[B] && !due && !NOBODY_PARKED(B) -> next_parked(B); handle(B, j, stamp[j]) }
	od
}

proctype rest()
{
	timeout;
	printf("at rest\n");
	assert(last[HOME_IN(newest)] == ITEMS && released[HOME_IN(newest)] == ITEMS)
}

init {
	atomic { run node(A); run node(B); run worker(); run rest() }
}
