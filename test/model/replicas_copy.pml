/*
 * replicas_copy.pml
 *	  A learner copies a shard in pieces, which records put right (doc/protocol/replicas.md, Q16): whoever is in the set
 *	  has the state that its records tell, whatever happened to the home, and to the turns that the pieces have shown.
 *
 * Modelled: a home A with a backup C, or alone (ALONE), and a learner L. The state has two rows; each turn writes one of
 * them. A turn begins, commits, and is in the memory of others only after that; it may end with nothing of the shard. Calls
 * of export read one row each, in any order, at any time, each with its own snapshot, and answer later. Flushes, crashes of
 * the home, which lose what was not flushed; records that are shipped one by one, acknowledged and released (Q6, Q11); the
 * decision that takes L in; the loss of A, and C as the home of the next epoch, which lacks what it had not stored (Q18,
 * Q19). L stores what the new home ships, and drops what is behind it (Q8), or its copy if that was not complete.
 *
 * Marks, and outputs that are not done, are no rows of the home: they are in its memory, in records, and of older records in
 * a table that rotation writes (Q5, Q30). With MARKS row 1 is of that kind: a piece has it as the table has it, and the
 * home has kept the records behind that. Found: so a learner begins with the oldest record that the home has.
 *
 * A record is one number, its content, that no other record has: so its name is its content, with Q6.
 *
 * Left out, since replicas.pml has them: facts that come late, questions that outlive who asked, promises. What L has in
 * memory is never lost; a copy that is cut short by a crash of L begins anew.
 */
#ifndef ALONE
#define ALONE		0			/* the set is A alone; nobody can take over */
#endif
#ifndef MARKS
#define MARKS		0
#endif
#ifndef TURNS
#define TURNS		3
#endif
#ifndef CRASHES
#define CRASHES		1
#endif
#ifndef LOSSES
#define LOSSES		(1 - ALONE)
#endif

#define RECORDS		(TURNS + CRASHES + LOSSES)	/* that are ever made */
#define MIN_OF(a, b)	((a) < (b) -> (a) : (b))
#define MAX_OF(a, b)	((a) > (b) -> (a) : (b))

/* Records: 1 + 2 * a number + the row that it writes. */
#define ROW(record)		(((record) + 1) % 2)
byte made;						/* records ever made */

byte crashes = CRASHES;
byte losses = LOSSES;

/* The home: its log, and what others know of it. */
byte log[TURNS + 1];
byte last;						/* committed: snapshots show it */
byte in_memory;					/* the end that others find */
bool busy;						/* a transaction of the worker is under way */
byte flushed;
byte released;					/* as the home knows */
byte start_end;					/* its end at the last start or activation */
byte base;						/* MARKS: row 1 as the table has it */
byte kept = 1;					/* first turn whose record it needs */
byte truth;						/* ghost: turns that were ever released */
byte truths[TURNS + 1];

byte backup;					/* C: turns stored, those of the log */

/* L */
#define NONE		0
#define COPYING		1
#define MEMBER		2
byte role;
byte from;						/* first turn whose record it has */
byte upto;						/* its end */
byte copy[TURNS + 1];			/* its records; ghost: also those before the first one */
byte piece[2];
byte got;						/* bits: rows that have come */
byte bound;						/* greatest end that the answers have said */

/* A call of export: what it has read, and of which row + 1; and whether the transaction that was under way still is. */
byte read_row;
byte read_record;
bool behind;
byte said;						/* the end that it will say */

hidden byte i, j;
hidden byte is, told;

/* The content of a row by the records up to an end: of the home, and of L. */
inline home_row(row, found)
{
	for (i : 1 .. last) { if :: ROW(log[i]) == (row) -> found = log[i] :: else fi }
	skip
}

inline copy_row(first, row, found)
{
	for (i : first .. upto) { if :: ROW(copy[i]) == (row) -> found = copy[i] :: else fi }
	skip
}

inline forget_copy()
{
	for (i : 1 .. upto) { copy[i] = 0 }
	role = NONE; from = 0; upto = 0; got = 0; bound = 0; piece[0] = 0; piece[1] = 0
}

inline forget_call()
{
	read_row = 0; read_record = 0; behind = false; said = 0
}

/* What is there of L's copy, against what its records say. */
inline check()
{
	for (j : 0 .. 1) {
		is = piece[j];
		told = 0;
		copy_row(from, j, is);
		copy_row(1, j, told);
		if :: is != told -> printf("L has %d in row %d and should have %d\n", is, j, told); assert(false) :: else fi
	}
	for (i : 1 .. truth) { assert(upto >= i && copy[i] == truths[i]) }		/* VR1 */
	is = 0;
	told = 0
}

#if ALONE
#define STORED_BY_C		flushed
#else
#define STORED_BY_C		(lost -> flushed : backup)
#endif
#define STORED_BY_L		(role == NONE -> flushed : same)

bool lost;						/* A */
byte same;						/* L has so many turns of the home's log, and acknowledged them in this epoch */

/* Found: that L has stored what the pieces showed is not enough, for a next home may lack it. */
#ifdef MUTANT_bound_left_out
#define REACHED		(same >= MAX_OF(released, start_end))
#elif defined(MUTANT_members_by_end)
#define REACHED		(same >= MAX_OF(bound, MAX_OF(released, start_end)))
#else
#define REACHED		(released >= bound && same >= start_end)
#endif

#if MARKS && !defined(MUTANT_records_from_now_on)
#define FIRST_RECORD	kept
#else
#define FIRST_RECORD	(flushed + 1)
#endif

active proctype world()
{
end:
	do
	/* ---- the home's turns */
	:: d_step { !busy && last < TURNS && made < RECORDS -> busy = true; printf("turn begins\n") }
	:: d_step { busy && last == in_memory && last < TURNS && made < RECORDS ->
			last++; log[last] = 1 + 2 * made; made++; printf("turn %d, record %d: row 0\n", last, log[last]) }
	:: d_step { busy && last == in_memory && last < TURNS && made < RECORDS ->
			last++; log[last] = 2 + 2 * made; made++; printf("turn %d, record %d: row 1\n", last, log[last]) }
	:: d_step { busy ->			/* ends, with or without a record */
			busy = false; in_memory = last; behind = false; printf("transaction ends\n") }
	:: d_step { flushed < last -> flushed = last; printf("flush\n") }
	:: d_step { released < MIN_OF(flushed, MIN_OF(STORED_BY_C, STORED_BY_L)) ->
			released++;
			printf("turn %d released\n", released);
			if :: released > truth -> truth = released; truths[released] = log[released]
			:: else -> assert(truths[released] == log[released])
			fi }
	:: d_step { crashes > 0 ->
			crashes--;
			printf("crash\n");
			for (i : flushed + 1 .. last) { log[i] = 0 }
			last = flushed; in_memory = flushed; busy = false; start_end = flushed; released = 0;
			forget_call() }
#if MARKS
	:: d_step { kept <= last && flushed == last && !busy ->
			home_row(1, base);
			kept = last + 1;
			printf("rotation: the table says %d in row 1\n", base) }
#endif
#if !ALONE
	:: d_step { !lost && backup < flushed -> backup++; printf("C has turn %d\n", backup) }
#endif
	/* ---- L */
	:: d_step { role == NONE && read_row == 0 ->		/* (1) */
			role = COPYING;
			from = FIRST_RECORD;
			upto = flushed;
			same = upto;
			for (i : 1 .. upto) { copy[i] = log[i] }
			printf("L begins behind turn %d\n", upto) }
	:: d_step { role != NONE && same < flushed ->
			if :: upto > same -> for (i : same + 1 .. upto) { copy[i] = 0 } :: else fi;	/* Q8: what is behind it goes */
			same++;
			upto = same;
			copy[upto] = log[upto];
#ifdef MUTANT_records_behind_the_pieces
			from = (got == 3 -> from : upto + 1);
#endif
			printf("L has turn %d\n", upto);
			if :: role == MEMBER -> check() :: else fi }
	/* (2): a piece is read */
	:: d_step { role == COPYING && read_row == 0 && (got & 1) == 0 ->
			read_row = 1; home_row(0, read_record); behind = busy;
#ifdef MUTANT_turn_begun
			said = in_memory + busy;
#else
			said = in_memory;
#endif
			printf("row 0 is read: %d\n", read_record) }
	:: d_step { role == COPYING && read_row == 0 && (got & 2) == 0 ->
			read_row = 2; behind = busy;
#if MARKS
			read_record = base;
#else
			home_row(1, read_record);
#endif

#ifdef MUTANT_turn_begun
			said = in_memory + busy;
#else
			said = in_memory;
#endif
			printf("row 1 is read: %d\n", read_record) }
	/* the answer */
#if defined(MUTANT_end_in_memory)
	:: d_step { read_row > 0 && said <= flushed ->
#elif defined(MUTANT_turn_begun)
	:: d_step { read_row > 0 && MIN_OF(said, last) <= flushed ->
#elif defined(MUTANT_answer_before_gate)
	:: d_step { read_row > 0 && !behind -> said = in_memory;
#else
	/* Found: once the transaction that was under way has ended, the end is not below what the snapshot showed, and is
	   there; once it is flushed, no crash makes other turns of these numbers. */
	:: d_step { read_row > 0 && !behind && in_memory <= flushed -> said = in_memory;
#endif
			piece[read_row - 1] = read_record;
			got = got | read_row;
			bound = MAX_OF(bound, said);
			printf("row %d comes, bound %d\n", read_row - 1, bound);
			forget_call() }
	/* (3), (4): decided */
	:: d_step { role == COPYING && got == 3 && REACHED -> role = MEMBER; printf("L is in the set\n"); check() }
#if LOSSES > 0
	/* ---- A is lost, C goes on */
	:: d_step { losses > 0 ->
			losses--;
			printf("A is lost, C begins behind turn %d\n", backup);
			for (i : backup + 1 .. last) { log[i] = 0 }
			last = backup; in_memory = backup; flushed = backup; busy = false; start_end = backup; released = 0; lost = true;
			base = 0; kept = 1;
			forget_call();
#ifndef MUTANT_half_a_copy_stays
			if :: role == COPYING -> forget_copy() :: else fi;
#endif
			/* Q8: from where the two are the same */
			same = 0;
			if :: role != NONE ->
				for (i : 1 .. MIN_OF(upto, last)) { if :: copy[i] == log[i] && same == i - 1 -> same = i :: else fi }
				if :: same == last && upto > last ->		/* it drops the rest with the first record, or with the question */
					for (i : same + 1 .. upto) { copy[i] = 0 }
					upto = same;
					if :: role == MEMBER -> check() :: else fi
				:: else
				fi
			:: else
			fi }
#endif
	od
}

/* When nothing can happen any more, L is there. */
active proctype rest()
{
	timeout;
	printf("at rest\n");
	assert(role == MEMBER && upto == last && released == last)
}
