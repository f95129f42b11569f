/*
 * replicas_outputs.pml
 *	  What entities of a replicated shard tell (doc/protocol/replicas.md, Q29): each output is taken in once, in order, and
 *	  is one that every next home knows (VR6 to VR8), wherever its destination lives.
 *
 * Modelled: a source shard with copies at A and B, which are its home in turn; each turn tells one output. Turns are
 * flushed, shipped, and released when both have them, or who is left. A home appends what is released to the log of
 * its node, in order, in a later step; from there it goes to the destination under the epoch of that, and again under a
 * newer one, until a mark is heard; also when the node is not the source's home any more. A home that starts, or is
 * activated, appends again all above odone. A destination at A, B or C keeps a mark for the source shard; it is of a plain
 * type and moves (Q29, M4), or has a copy itself and is taken over by that (DEST_REPLICATED), and tells a mark when it is
 * released. A mark that comes to the source's home is odone of its next record. Crashes of A lose turns that were
 * not flushed; A can be lost for good.
 *
 * A record is a number that no other record has, as is its output. What a node has appended is a set: it is sent in
 * the order of oseq (H4), and a second time is the same row. Appends and what the destination takes are flushed at once,
 * for nobody sees them before. Facts of the source are learned late, and those of the destination at each sender.
 *
 * Found: with an odone that a record told before the mark, as is right while nobody takes over, a take-over loses outputs
 * (mutant done_when_appended).
 */
#ifndef TURNS
#define TURNS		2
#endif
#ifndef RECORDS
#define RECORDS		3			/* that are ever made */
#endif
#ifndef SUSPICIONS
#define SUSPICIONS	1
#endif
#ifndef CRASHES
#define CRASHES		1
#endif
#ifndef LOSSES
#define LOSSES		0			/* of A, while it is home */
#endif
#ifndef MOVES
#define MOVES		1			/* of the destination */
#endif
#ifndef DEST
#define DEST		2			/* where it lives at first */
#endif
#ifndef DEST_REPLICATED
#define DEST_REPLICATED	0
#endif
#define A			0
#define B			1
#define OTHER(x)	(1 - (x))
#define MIN_OF(a, b)	((a) < (b) -> (a) : (b))
#define MAX_OF(a, b)	((a) > (b) -> (a) : (b))

byte suspicions = SUSPICIONS;
byte crashes = CRASHES;
byte losses = LOSSES;
byte moves = MOVES;
byte made;

/* The source: facts, each an epoch of its own; copies. */
byte newest = 1;
byte known[2] = 1;
#define HOME_IN(f)	(((f) + 1) % 2)
#define IS_HOME(x)	(HOME_IN(known[x]) == (x) && !(lost && (x) == A))
bool lost;
#define LOG(x, t)	log[(x) * (TURNS + 1) + (t)]
#define ODONE(x, t)	odone[(x) * (TURNS + 1) + (t)]
byte log[2 * (TURNS + 1)];
byte odone[2 * (TURNS + 1)];	/* of each record */
byte last[2];
byte flushed;					/* of A; B flushes at once */
byte released[2];
byte appended[2];				/* by a home, as it knows */
byte heard[2];					/* a mark that came to the node */

/* Rows in the logs of nodes; how far the destination has read them under its epoch. */
#define ROW(x, t)	row[(x) * (TURNS + 1) + (t)]
byte row[2 * (TURNS + 1)];
byte passed[2];

/* The destination. */
byte dest = DEST;
byte dest_fact = 1;
byte knows[2] = 1;				/* each sender */
byte mark;
byte stored;					/* the mark that its copy has */
byte taken;						/* ghost */
byte got[TURNS + 1];
byte truth;						/* ghost: what was released */
byte truths[TURNS + 1];

hidden byte i, j;

#if DEST_REPLICATED && !defined(MUTANT_mark_before_release)
#define TOLD_MARK	stored
#else
#define TOLD_MARK	mark
#endif

#ifdef MUTANT_local_not_compared
#define IS_NEW(x, t)	((t) > mark || dest == (x))
#else
#define IS_NEW(x, t)	((t) > mark)
#endif

inline take(x, t, record)
{
	if
	:: IS_NEW(x, t) ->
		printf("destination at %c: takes output %d, %d, of %c\n", 65 + dest, t, record, 65 + x);
		assert((t) == taken + 1);					/* once, and in order */
		assert(truth < (t) || truths[t] == record);	/* VR6 */
		mark = t;
		taken = t;
		got[t] = record
	:: else -> printf("destination: drops output %d of %c\n", t, 65 + x)
	fi
}

/* The newest odone that a copy knows. Into j. */
inline find_odone(x)
{
	j = 0;
	for (i : 1 .. last[x]) { j = MAX_OF(j, ODONE(x, i)) }
	skip
}

inline begin(x)
{
	find_odone(x);
#ifdef MUTANT_outputs_once
	j = last[x];
#endif
	appended[x] = j;
	released[x] = 0
}

inline cut(x, end)
{
	do :: last[x] > (end) -> LOG(x, last[x]) = 0; ODONE(x, last[x]) = 0; last[x]-- :: else -> break od;
	flushed = MIN_OF(flushed, last[A])
}

#define SHIPPABLE(x)	((x) == A -> flushed : last[B])
inline compare(x)
{
	j = 0;
	do
	:: j < SHIPPABLE(x) && j < last[OTHER(x)] && LOG(x, j + 1) == LOG(OTHER(x), j + 1) -> j++
	:: else -> break
	od
}

inline learn(x, n)
{
	printf("%c: learns %d\n", 65 + x, n);
	known[x] = n;
	flushed = (x == A -> last[A] : flushed);
	if :: IS_HOME(x) -> begin(x) :: else -> released[x] = 0; appended[x] = 0 fi
}

/* The row that the destination reads next, under its epoch. Into j; 0: none. */
inline next_row(x)
{
	j = 0;
	for (i : passed[x] + 1 .. TURNS) { if :: j == 0 && ROW(x, i) != 0 -> j = i :: else fi }
	skip
}
#define HAS_ROW(x)	((passed[x] < 1 && ROW(x, 1)) || (passed[x] < 2 && ROW(x, 2)) || \
					 (TURNS > 2 && passed[x] < TURNS && ROW(x, TURNS)))

#ifdef MUTANT_done_when_appended
#define SAID_DONE(x)	MAX_OF(heard[x], appended[x])
#else
#define SAID_DONE(x)	heard[x]
#endif

proctype node(byte x)
{
end:
	do
	:: d_step { known[x] < newest && !(lost && x == A) -> learn(x, newest) }
	/* a turn */
	:: d_step { IS_HOME(x) && last[x] < TURNS && made < RECORDS ->
			made++;
			last[x]++;
			LOG(x, last[x]) = made;
			ODONE(x, last[x]) = SAID_DONE(x);
			printf("%c: turn %d, record %d, odone %d\n", 65 + x, last[x], made, SAID_DONE(x)) }
	/* shipped, released */
	:: d_step { IS_HOME(x) && released[x] < SHIPPABLE(x) && (known[A] == known[B] || lost) ->
			compare(x);
			j = (lost -> last[x] : j);
			if
			:: j > released[x] ->
				released[x]++;
				printf("%c: turn %d released\n", 65 + x, released[x]);
				if
				:: released[x] > truth ->
					truth = released[x];
					truths[truth] = LOG(x, truth);
					assert(taken < truth || got[truth] == truths[truth])		/* VR6, VR7 */
				:: else -> assert(truths[released[x]] == LOG(x, released[x]))
				fi
			:: else ->
				cut(OTHER(x), j);
				last[OTHER(x)]++;
				LOG(OTHER(x), last[OTHER(x)]) = LOG(x, last[OTHER(x)]);
				ODONE(OTHER(x), last[OTHER(x)]) = ODONE(x, last[OTHER(x)]);
				flushed = (x == B -> last[A] : flushed);
				printf("%c: has turn %d\n", 65 + OTHER(x), last[OTHER(x)])
			fi }
	/* released outputs leave */
	:: d_step { IS_HOME(x) && appended[x] < released[x] ->
			appended[x]++;
			ROW(x, appended[x]) = LOG(x, appended[x]);
			passed[x] = MIN_OF(passed[x], appended[x] - 1);
			printf("%c: appends output %d, %d\n", 65 + x, appended[x], LOG(x, appended[x])) }
#ifdef MUTANT_local_output_early
	:: d_step { IS_HOME(x) && dest == x && mark < last[x] -> j = mark + 1; take(x, j, LOG(x, j)) }
#endif
	/* to the destination, under its epoch */
	:: d_step { knows[x] < dest_fact -> knows[x] = dest_fact; passed[x] = 0 }
	:: d_step { knows[x] == dest_fact && HAS_ROW(x) -> next_row(x); passed[x] = j; take(x, j, ROW(x, j)) }
	/* a mark comes back to who has sent */
	:: d_step { TOLD_MARK > 0 && ((ROW(x, 1) && TOLD_MARK >= 1) || (ROW(x, 2) && TOLD_MARK >= 2)) ->
			for (i : 1 .. TOLD_MARK) { ROW(x, i) = 0 }
			heard[x] = MAX_OF(heard[x], TOLD_MARK) }
	od
}

proctype world()
{
end:
	do
	:: d_step { flushed < last[A] -> flushed = last[A] }
	:: d_step { crashes > 0 && !lost ->
			crashes--;
			printf("A: crash\n");
			cut(A, flushed);
			heard[A] = 0;
			if :: IS_HOME(A) -> begin(A) :: else fi }
	:: d_step { suspicions > 0 && !lost -> suspicions--; newest++; printf("decided: epoch %d\n", newest) }
#if LOSSES > 0
	:: d_step { losses > 0 && HOME_IN(newest) == A && known[A] == newest ->
			losses--;
			suspicions = 0;
			lost = true;
			newest++;
			cut(A, 0);
			heard[A] = 0; released[A] = 0; appended[A] = 0; passed[A] = 0; known[A] = 1; knows[A] = dest_fact;
			for (i : 1 .. TURNS) { ROW(A, i) = 0 }
			printf("A is lost, decided: epoch %d\n", newest) }
#endif
#if MOVES > 0
#if DEST_REPLICATED
	:: d_step { stored < mark -> stored++ }
	:: d_step { moves > 0 -> moves--; dest_fact++; dest = (dest + 1) % 3; mark = stored;
			for (i : mark + 1 .. taken) { got[i] = 0 }
			taken = mark;
			printf("destination is taken over at %c, mark %d\n", 65 + dest, mark) }
#else
	:: d_step { moves > 0 -> moves--; dest_fact++; dest = (dest + 1) % 3; printf("destination moves to %c\n", 65 + dest);
#ifdef MUTANT_marks_stay
			mark = 0
#endif
		}
#endif
#endif
#ifdef MUTANT_floor_of_source
	:: d_step { mark > 0 -> find_odone(HOME_IN(newest)); mark = (j >= mark -> 0 : mark) }
#endif
	od
}

proctype rest()
{
	timeout;
	printf("at rest\n");
	assert(taken == last[HOME_IN(newest)] && released[HOME_IN(newest)] == taken);
	for (i : 1 .. taken) { assert(got[i] == truths[i]) }
}

init {
	atomic { run node(A); run node(B); run world(); run rest() }
}
