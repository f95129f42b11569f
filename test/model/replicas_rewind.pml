/*
 * replicas_rewind.pml
 *	  A former home drops turns that the new home lacks, and fetches the rows anew that they have changed
 *	  (doc/protocol/replicas.md, Q17, Q21): whoever may be chosen has at any time the state that its records tell, and
 *	  every turn that was released.
 *
 * Modelled: three nodes, all in the set, which stay in it unless they are lost. The state has two rows; each turn writes
 * one. A home has the rows of its newest turn; a backup has applied nothing (Q10), and drops records without more ado. A
 * suspected home, or a lost one, is followed by any other node that is there. Who has rows of turns that it has to drop is
 * discarding: it keeps rows and records as they are, while it takes rows and records of the new home beside them, one by
 * one, and acknowledges nothing; then one transaction changes to these.
 *
 * A record is a number that no other record has. Facts are learned at once, and all is flushed at once, since replicas.pml
 * and replicas_copy.pml have what comes between.
 */
#ifndef TURNS
#define TURNS		3
#endif
#ifndef RECORDS
#define RECORDS		4			/* that are ever made */
#endif
#ifndef SUSPICIONS
#define SUSPICIONS	2
#endif
#ifndef LOSSES
#define LOSSES		1
#endif
#define NODES		3

#define BIT(i)		(1 << (i))
#define MIN_OF(a, b)	((a) < (b) -> (a) : (b))
#define MAX_OF(a, b)	((a) > (b) -> (a) : (b))
#define ROW(record)		(((record) + 1) % 2)
#define LOG(x, t)		log[(x) * (TURNS + 1) + (t)]
#define ROWS(x, r)		rows[(x) * 2 + (r)]
#define FETCHED(x, r)	fetched[(x) * 2 + (r)]

byte made;
byte suspicions = SUSPICIONS;
byte losses = LOSSES;
byte home;
byte lost;						/* bits */

byte log[NODES * (TURNS + 1)];
byte last[NODES];
byte rows[NODES * 2];			/* records are applied over them from first on */
byte first[NODES] = 1;
byte dirty[NODES];				/* newest turn that the rows may show */
byte same[NODES];				/* turns acknowledged under this epoch */
byte released;

/* Who is discarding: what it has of the new home. */
bool discarding[NODES];
byte point[NODES];				/* up to where the two logs are one */
byte staged[NODES];
byte touched[NODES];			/* rows to be fetched, bits */
byte fetched[NODES * 2];
byte bound[NODES];				/* the home's end when they were read, the greatest */

byte truth;						/* ghost */
byte truths[TURNS + 1];

hidden byte i, j, is, told;

/* What x has, against what its records say. */
inline check(x)
{
	for (j : 0 .. 1) {
		is = ROWS(x, j);
		told = 0;
		for (i : first[x] .. last[x]) { if :: ROW(LOG(x, i)) == j -> is = LOG(x, i) :: else fi }
		for (i : 1 .. last[x]) { if :: ROW(LOG(x, i)) == j -> told = LOG(x, i) :: else fi }
		if
		:: is != told -> printf("%c has %d in row %d and should have %d\n", 65 + x, is, j, told); assert(false)
		:: else
		fi
	}
	for (i : 1 .. truth) { assert(last[x] >= i && LOG(x, i) == truths[i]) }		/* VR1 */
	skip
}

/* Applies all, as a home does. */
inline apply(x)
{
	for (i : first[x] .. last[x]) { ROWS(x, ROW(LOG(x, i))) = LOG(x, i) }
	first[x] = last[x] + 1;
	dirty[x] = last[x]
}

inline forget_staged(x)
{
	discarding[x] = false; staged[x] = 0; touched[x] = 0; bound[x] = 0; point[x] = 0;
	FETCHED(x, 0) = 0; FETCHED(x, 1) = 0
}

/* Up to where two logs are one. Into j. */
inline compare(x, y)
{
	j = 0;
	do :: j < MIN_OF(last[x], last[y]) && LOG(x, j + 1) == LOG(y, j + 1) -> j++ :: else -> break od
}

inline cut(x, end)
{
	do :: last[x] > (end) -> LOG(x, last[x]) = 0; last[x]-- :: else -> break od;
	first[x] = MIN_OF(first[x], last[x] + 1)
}

inline turn(x, row)
{
	last[x]++;
	LOG(x, last[x]) = 1 + row + 2 * made;
	made++;
	printf("%c: turn %d, record %d\n", 65 + x, last[x], LOG(x, last[x]));
	apply(x)
}

inline take_over(x)
{
	printf("%c is home behind turn %d\n", 65 + x, last[x]);
	home = x;
	released = 0;
	for (i : 0 .. NODES - 1) { same[i] = 0; forget_staged(i) }
	check(x);
	apply(x)
}

#define HAS_ROW(x, r)	((touched[x] & BIT(r)) == 0 || FETCHED(x, r) > 0)

/*
 * Found: rows that are fetched are those of newer turns than the point at which the histories part. Who takes them
 * before it has the records up to there has a state of no turn, and may be the next home.
 */
#ifdef MUTANT_rewound_at_once
#define MAY_REWIND(x)	true
#else
#define MAY_REWIND(x)	(staged[x] >= bound[x])
#endif

/* Whose rows may show turns that it drops; until they are released, that is who was home, or has been rewound. */
#ifdef MUTANT_former_home_forgotten
#define HAS_TO_REWIND(x, end)	(last[x] > (end) && first[x] > last[x] && dirty[x] > (end))
#else
#define HAS_TO_REWIND(x, end)	(last[x] > (end) && dirty[x] > (end))
#endif

#define ACKED(x)		((lost & BIT(x)) || home == (x) -> last[home] : same[x])

proctype node(byte x)
{
end:
	do
	:: d_step { home == x && last[x] < TURNS && made < RECORDS -> turn(x, 0) }
	:: d_step { home == x && last[x] < TURNS && made < RECORDS -> turn(x, 1) }
	:: d_step { home == x && released < MIN_OF(ACKED(0), MIN_OF(ACKED(1), ACKED(2))) ->
			released++;
			printf("turn %d released\n", released);
			if :: released > truth -> truth = released; truths[released] = LOG(x, released)
			:: else -> assert(truths[released] == LOG(x, released))
			fi }
	/* a record, or the question where it stands */
	:: d_step { home != x && (lost & BIT(x)) == 0 && !discarding[x] && (same[x] < last[home] || last[x] > last[home]) ->
			compare(x, home);
			if
			:: HAS_TO_REWIND(x, j) ->
				printf("%c: has to discard what is behind turn %d\n", 65 + x, j);
				discarding[x] = true;
				point[x] = j;
				staged[x] = j;
				for (i : j + 1 .. last[x]) { touched[x] = touched[x] | BIT(ROW(LOG(x, i))) }
#ifdef MUTANT_tail_dropped_first
				cut(x, j);
				check(x)
#endif
			:: else ->
				cut(x, j);
				if :: j < last[home] -> last[x]++; LOG(x, last[x]) = LOG(home, last[x]) :: else fi;
				same[x] = last[x];
				printf("%c: has turn %d\n", 65 + x, last[x]);
				check(x)
			fi }
	:: d_step { discarding[x] && (touched[x] & BIT(0)) && FETCHED(x, 0) == 0 ->
			FETCHED(x, 0) = ROWS(home, 0) + 1; bound[x] = MAX_OF(bound[x], last[home]); printf("%c: row 0 is fetched\n", 65 + x) }
	:: d_step { discarding[x] && (touched[x] & BIT(1)) && FETCHED(x, 1) == 0 ->
			FETCHED(x, 1) = ROWS(home, 1) + 1; bound[x] = MAX_OF(bound[x], last[home]); printf("%c: row 1 is fetched\n", 65 + x) }
	:: d_step { discarding[x] && staged[x] < last[home] -> staged[x]++ }
	:: d_step { discarding[x] && HAS_ROW(x, 0) && HAS_ROW(x, 1) && MAY_REWIND(x) ->
			printf("%c: is rewound to turn %d, has turn %d, rows as of up to %d\n", 65 + x, point[x], staged[x], bound[x]);
			cut(x, point[x]);
			for (i : 0 .. 1) { if :: FETCHED(x, i) > 0 -> ROWS(x, i) = FETCHED(x, i) - 1 :: else fi }
			for (i : point[x] + 1 .. staged[x]) { LOG(x, i) = LOG(home, i) }
			last[x] = staged[x];
			first[x] = MIN_OF(first[x], point[x] + 1);
#ifdef MUTANT_rewound_once
			dirty[x] = point[x];
#else
			dirty[x] = bound[x];
#endif
			same[x] = last[x];
			forget_staged(x);
#ifndef MUTANT_rewound_at_once
			check(x)
#endif
		}
	:: d_step { home != x && (lost & BIT(x)) == 0 && suspicions > 0 -> suspicions--; take_over(x) }
	:: d_step { home != x && (lost & BIT(x)) == 0 && losses > 0 ->
			losses--; lost = lost | BIT(home); printf("%c is lost\n", 65 + home); take_over(x) }
	od
}

proctype rest()
{
	timeout;
	printf("at rest\n");
	assert(released == last[home])
}

init {
	atomic { for (i : 0 .. NODES - 1) { first[i] = 1; run node(i) } run rest() }
}
