/*
 * replicas_state.pml
 *	  What replicas.pml is about: the scope of a search, the home key, nodes and their logs.
 */
#ifndef START
#define START		3			/* the set at the start, one bit a node; A is the home */
#endif
#ifndef FIRST
#define FIRST		1			/* messages of the first origin */
#endif
#ifndef SECOND
#define SECOND		0			/* of the second one; three in all */
#endif
#ifndef SUSPICIONS
#define SUSPICIONS	0
#endif
#ifndef CRASHES
#define CRASHES		0
#endif
#ifndef LOSSES
#define LOSSES		0
#endif
#ifndef SHRINKS
#define SHRINKS		0			/* slow copies put out */
#endif
#ifndef GROWTHS
#define GROWTHS		0			/* proposals of growth */
#endif
#ifndef MOVES
#define MOVES		0
#endif
#ifndef MIN
#define MIN			1			/* min_insync, with on_too_few = run */
#endif
#ifndef SUSPECT_OUT
#define SUSPECT_OUT	0			/* whether a take-over takes a home out that may live */
#endif

#define NODES		3
#define MESSAGES	(FIRST + SECOND)
#define EPOCHS		(1 + SUSPICIONS + LOSSES + MOVES)
#define FACTS		(1 + SUSPICIONS + LOSSES + SHRINKS + GROWTHS + 2 * MOVES)
#ifdef MUTANT_unsealed_at_equal_epoch
#define TURNS		(MESSAGES + EPOCHS - 1 + 2 * MOVES)
#else
#define TURNS		(MESSAGES + EPOCHS - 1 + MOVES)
#endif

#define BIT(i)		(1 << (i))
#define BELOW(i)	(BIT(i) - 1)
#define MIN_OF(a, b)	((a) < (b) -> (a) : (b))
#define WITHOUT(set, bits)	((set) & (255 - (bits)))
#define COUNT(set)	(((set) & 1) + (((set) >> 1) & 1) + (((set) >> 2) & 1))

byte suspicions = SUSPICIONS;
byte crashes = CRASHES;
byte losses = LOSSES;
byte shrinks = SHRINKS;
byte growths = GROWTHS;
byte moves = MOVES;

/*
 * The home key, fact by fact: epoch, and home + 4 * set + 32 * (target of a move + 1). Facts that no
 * node will look at any more are forgotten.
 */
byte newest = 1;
byte fact_epoch[FACTS + 1];
byte fact[FACTS + 1];
#define HOME(n)		(fact[n] & 3)
#define SET(n)		((fact[n] >> 2) & 7)
#define TARGET(n)	(fact[n] >> 5)
#define FACT(home, set, target)		((home) | ((set) << 2) | ((target) << 5))
byte proposed;					/* node + 1: growth under way to who decides, on the newest fact */

/* Nodes. A lost one has nothing and takes part in nothing. */
#define NONE		0
#define COPY		1			/* in the set or not, and a former home: the fact tells */
#define ACTIVE		2
#define SEALED		3
#define STAGED		4
byte lost;						/* bits */
byte role[NODES];
byte known[NODES];				/* newest fact learnt: the promise (Q9) */
byte log[NODES * TURNS];
byte last[NODES];
byte flushed[NODES];			/* last, but at a home */
byte copied[NODES];				/* turns that came as a copy: there is no log to cut them by */
byte mark[NODES * 2];			/* what the log says of each origin */
byte tale[NODES];				/* and the history that it tells, two bits a message */

/* A home. */
byte released[NODES];
byte released_mark[NODES * 2];
byte bound[NODES];				/* end of the log at its last start or activation */
byte pledged[NODES];			/* node + 1 whose growth it has proposed */
#define ACKS		(EPOCHS + 1)
byte acked[NODES * ACKS];		/* by node and epoch: turns acknowledged */

#define IS_UP(x)	((lost & BIT(x)) == 0)
#define EPOCH(x)	fact_epoch[known[x]]
#define IS_HOME(x)	(role[x] == ACTIVE || role[x] == SEALED)
#define ACKED(b, x)	acked[(b) * ACKS + EPOCH(x)]

/* Records: epoch * 8 + kind. */
#define MESSAGE(rec)	((rec) % 8 < 4)		/* 1 .. 3: of the first origin, then of the second */
#define BEGIN		4
#define SEAL		5
#define LOG(x, t)	log[(x) * TURNS + (t) - 1]
#define ORIGIN(m)	((m) <= FIRST -> 0 : 1)
#define NUMBER(m)	((m) <= FIRST -> (m) : (m) - FIRST)
#define TOLD(o)		((o) == 0 -> FIRST : SECOND)

/* Origins: epochs under which they have sent what is not done, one bit each; marks heard of. */
byte sent[2] = BIT(1);
byte heard[2];

/* The receiver: outputs taken, and the history that the last one told, two bits a message. */
byte received;
byte history;

/* Ghost: what was ever released. */
byte truth[TURNS];
byte truths;

#if defined(MUTANT_old_tags_taken) || defined(MUTANT_old_home_forwards)
byte passed[NODES * 2];			/* how far a home was in the stream of its epoch */
#endif
#ifdef MUTANT_shrink_before_decided
byte unasked[NODES];
#endif
#ifdef MUTANT_records_of_older_epochs_refused
bool refused;
#endif

hidden byte i;
hidden byte j;
hidden byte k;
hidden byte n;
hidden byte dropping;

/*
 * Q4: who has to acknowledge at home x. Found: that a learner is required from the proposal on is
 * enough; a release need not wait for its copy.
 */
#if defined(MUTANT_gate_without_acks)
#define REQUIRED(x)	0
#elif defined(MUTANT_learner_required_late)
#define REQUIRED(x)	WITHOUT(SET(known[x]), BIT(x))
#elif defined(MUTANT_shrink_before_decided)
#define REQUIRED(x)	WITHOUT(SET(known[x]), BIT(x) | unasked[x])
#else
#define REQUIRED(x)	WITHOUT(SET(known[x]) | (BIT(pledged[x]) >> 1), BIT(x))
#endif

#ifdef MUTANT_hello_counts
#define COUNTED(b, x)	(EPOCH(b) == EPOCH(x) -> last[b] : ACKED(b, x))
#else
#define COUNTED(b, x)	ACKED(b, x)
#endif

/* Q11 */
#define HAS(b, x, t)	((REQUIRED(x) & BIT(b)) == 0 || COUNTED(b, x) >= (t))
#define RELEASABLE(x, t)	(flushed[x] >= (t) && HAS(0, x, t) && HAS(1, x, t) && HAS(2, x, t))

#ifdef MUTANT_marks_not_in_record
#define OF_MARK(x, t)	(MESSAGE(LOG(x, t)) && LOG(x, t) / 8 == EPOCH(x))
#else
#define OF_MARK(x, t)	MESSAGE(LOG(x, t))
#endif

/* What the log says. */
inline derive(x)
{
	mark[2 * (x)] = 0;
	mark[2 * (x) + 1] = 0;
	tale[x] = 0;
	k = 0;
	for (i : 1 .. last[x]) {
		if :: MESSAGE(LOG(x, i)) -> tale[x] = tale[x] | ((LOG(x, i) % 8) << (2 * k)); k++ :: else fi;
		if :: OF_MARK(x, i) -> mark[2 * (x) + ORIGIN(LOG(x, i) % 8)]++ :: else fi
	}
	skip
}

inline append(x, what)
{
	assert(last[x] < TURNS);
	last[x]++;
	LOG(x, last[x]) = EPOCH(x) * 8 + (what)
}

/* A turn with message nr: each once, in order (VR5). */
inline handle(x, nr)
{
	printf("%c: handles m%d at %d\n", 65 + x, nr, EPOCH(x));
	k = 1;
	for (i : 1 .. last[x]) { k = k + (MESSAGE(LOG(x, i)) && ORIGIN(LOG(x, i) % 8) == ORIGIN(nr) -> 1 : 0) }
	assert(k == NUMBER(nr));
	append(x, nr);
	derive(x)
}

/* Forgets the turns above one. What was released nobody cuts, and nobody can cut a copy (VR3). */
inline cut(x, end)
{
	do
	:: last[x] > (end) ->
		assert(last[x] > copied[x]);
		assert(last[x] > truths || LOG(x, last[x]) != truth[last[x] - 1]);
		LOG(x, last[x]) = 0;
		last[x]--
	:: else -> break
	od
}

inline forget_facts()
{
	j = newest;
	for (i : 0 .. NODES - 1) { j = (IS_UP(i) && known[i] < j -> known[i] : j) }
	for (i : 1 .. j - 1) {
		fact[i] = 0;
		fact_epoch[i] = 0
	}
	skip
}

/* Q2, VR9: one decision after the other; a set below min_insync only by losses. */
inline decide(e, home, set, target)
{
	fact[newest + 1] = FACT(home, set, target);
	fact_epoch[newest + 1] = e;
	newest++;
	printf("decided %d: epoch %d, home %c, set %d, target %d\n",
		   newest, fact_epoch[newest], 65 + HOME(newest), SET(newest), TARGET(newest));
	proposed = 0;
	assert(SET(newest) & BIT(HOME(newest)));
	assert(COUNT(SET(newest)) + COUNT(lost) >= MIN)
}
