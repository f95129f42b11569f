/*
 * map.pml
 *	  The replicated map of doc/protocol/map.md (R1-R9, R12): decided maps form one chain (V4).
 *
 * Modelled: four nodes A B C D, each a voter's durable row (promised, vb, vn, state); ballot 0 in
 * office at the start and BALLOTS candidates after it, in any order and all at once; prepare, sync,
 * accept, decide; batches of the kinds term, value, and the two of one joint change of the voters
 * from {A,B,C} to {A,B,D}; crashes; a node put back from its oldest copy.
 *
 * A map state is the chain of the batches that made it, four bits each (kind, ballot), oldest
 * lowest, without the batch that both start with. So "a later map contains an earlier one" is
 * "its chain begins with the other's", and a batch that comes back from the dead shows at once.
 * Voters compare (vb, vn) alone, as they do in life; that equal (vb, vn) mean equal chains is
 * asserted.
 *
 * Messages are what a coordinator once said: they stay deliverable for ever, in any order, any
 * number of times, also after its crash. Of answers, a promise may be lost; a lost "accepted" is
 * a coordinator that waits. A coordinator that hears a nack (R10) does nothing that one does not
 * do that stands still, so all steps of deposed ones are searched too. An Accept of an older
 * batch that comes late has the effect of Sync with the same state.
 *
 * Left out: pre-vote and heartbeats (liveness), deltas (R3: same result as full), tombstones,
 * learners, forced voters. LENGTH bounds the chain.
 *
 * Mutants: see the list in run.sh; each is one #ifdef here.
 */
#ifndef BALLOTS
#define BALLOTS		3			/* candidates after ballot 0; at most 3 */
#endif
#ifndef LENGTH
#define LENGTH		4			/* most batches in a chain; at most 7 */
#endif
#ifndef CHANGES
#define CHANGES		1			/* whether coordinators change the voters */
#endif
#ifndef VALUES
#define VALUES		1			/* whether they say values */
#endif
#ifndef CRASHES
#define CRASHES		1
#endif
#ifndef RESTORES
#define RESTORES	0
#endif

#ifndef VOTERS
#define VOTERS		4			/* A B C, and D if there are changes */
#endif
#define OLD_VOTERS	7			/* {A,B,C}, one bit each */
#define NEW_VOTERS	11			/* {A,B,D} */

/* Kinds of a batch. An entry of a chain is kind * 4 + ballot; term of ballot 0 is never in one. */
#define TERM		0
#define VALUE		1
#define NEXT		2			/* sets next: from here both majorities count */
#define CUR			3			/* cur = next, next = null */

#define ENTRY(k, b, n)		(((k) * 4 + (b)) << (4 * ((n) - 1)))
#define FIRST(chain, n)		((chain) & ((1 << (4 * (n))) - 1))
#define BALLOT_AT(chain, n)	((n) == 0 -> 0 : ((chain) >> (4 * ((n) - 1))) & 3)

/* State order (vb, vn), in one number. */
#define PLACE(vb, vn)		((vb) * 16 + (vn))
#define PLACE_BALLOT(p)		((p) / 16)

/* What a state says of the voters: 0 old, 1 both, 2 new. */
#define TWO(set)			(((set) & ((set) - 1)) != 0)
#ifdef MUTANT_new_majority_only
#define QUORUM(set, conf)	(((conf) != 0 || TWO((set) & OLD_VOTERS)) && \
							 ((conf) == 0 || TWO((set) & NEW_VOTERS)))
#else
#define QUORUM(set, conf)	(((conf) == 2 || TWO((set) & OLD_VOTERS)) && \
							 ((conf) == 0 || TWO((set) & NEW_VOTERS)))
#endif

/* Durable, per voter. */
byte promised[VOTERS];
byte place[VOTERS];				/* (vb, vn) */
int state[VOTERS];				/* chain */
byte conf[VOTERS];
bool amnesiac[VOTERS];

/* Per ballot: volatile, lost when its node crashes. */
#define IDLE		0
#define CANDIDATE	1
#define OPEN		2			/* one batch outstanding */
#define OFFICE		3			/* none outstanding */
#define GONE		4			/* crashed; what it said is still under way */
byte phase[BALLOTS + 1];
byte got[BALLOTS + 1];			/* promises, then acceptances of the open batch */
byte base[BALLOTS + 1];			/* M.vn */
byte base_place[BALLOTS + 1];	/* (M.vb, M.vn) */
byte last[BALLOTS + 1];			/* n of the newest batch said */
byte decided[BALLOTS + 1];
int chain[BALLOTS + 1];			/* M, then with the batches said */
byte before[BALLOTS + 1];		/* voters before and after the newest batch */
byte after[BALLOTS + 1];

#ifdef MUTANT_fetch_unchecked
byte holder[BALLOTS + 1];
#endif

/* Ghosts: the longest map that anybody acted on. */
int acted;
byte acted_n;

byte crashes = CRASHES;
byte restores = RESTORES;

/* Where a ballot's coordinator is: 0 at A, 1 at B, 2 at the last node, 3 at C. */
#define NODE(b)		((b) == 2 -> VOTERS - 1 : ((b) == 3 -> 2 : (b)))

#ifdef MUTANT_amnesiac_votes
#define VOTES(v)	true
#else
#define VOTES(v)	!amnesiac[v]		/* R12 */
#endif

/* V4: what is acted on begins with all that was, or the other way round. */
inline act(what, n)
{
	assert(n <= acted_n || FIRST(what, acted_n) == acted);
	assert(n > acted_n || FIRST(acted, n) == what);
	if
	:: n > acted_n -> acted = what; acted_n = n
	:: else
	fi
}

/* R2: the greatest (vb, vn) among the answers. */
inline answered(b, v)
{
	if
#ifdef MUTANT_least_adopted
	:: got[b] == 0 || place[v] < base_place[b] ->
#else
	:: got[b] == 0 || place[v] > base_place[b] ->
#endif
		base_place[b] = place[v];
		base[b] = place[v] % 16;
		chain[b] = state[v];
#ifdef MUTANT_fetch_unchecked
		holder[b] = v;
#endif
		after[b] = conf[v]
	:: else
	fi;
	got[b] = got[b] | (1 << v)
}

/* The next batch, of one kind; Accept(b, n, prev, changes) is said by this. */
inline say(b, kind)
{
	last[b] = last[b] + 1;
	chain[b] = chain[b] | ENTRY(kind, b, last[b]);
	before[b] = after[b];
	if
	:: kind == NEXT -> after[b] = 1
	:: kind == CUR -> after[b] = 2
	:: else
	fi;
	got[b] = 0;
	phase[b] = OPEN
}

/* Office begins with M as it was chosen. */
inline take_office(b)
{
#ifdef MUTANT_fetch_unchecked
	/* R2: the holder of M has moved on to another ballot, what it sends is no longer (vb, vn). */
	chain[b] = state[holder[b]];
	after[b] = conf[holder[b]];
#endif
	last[b] = base[b];
	decided[b] = base[b];
#ifdef MUTANT_act_before_term
	act(chain[b], base[b]);
#endif
	skip
}

#ifdef MUTANT_voters_not_reread
#define ENOUGH_PROMISES(b)	QUORUM(got[b], 0)
#else
#define ENOUGH_PROMISES(b)	QUORUM(got[b], after[b])		/* R2: quorum(M.voters) */
#endif

proctype coordinator(byte b)
{
	byte v;

end:
	do
	:: d_step {						/* own promise first: it is persisted before any Prepare */
			b > 0 && phase[b] == IDLE && promised[NODE(b)] < b && VOTES(NODE(b)) ->
			printf("%d: candidate at node %d\n", b, NODE(b));
			phase[b] = CANDIDATE;
			promised[NODE(b)] = b;
			answered(b, NODE(b));
			skip
		}
	:: d_step {						/* R5: the first batch is the term */
			phase[b] == CANDIDATE && ENOUGH_PROMISES(b) && base[b] < LENGTH ->
			printf("%d: enough promises, M = %x\n", b, chain[b]);
			take_office(b);
			say(b, TERM)
		}
#ifdef MUTANT_change_before_term
	:: d_step {
			phase[b] == CANDIDATE && ENOUGH_PROMISES(b) && base[b] < LENGTH && after[b] != 2 ->
			printf("%d: enough promises, M = %x, change at once\n", b, chain[b]);
			take_office(b);
			say(b, NEXT + after[b])
		}
#endif
	:: d_step {
			phase[b] == OFFICE && last[b] < LENGTH && VALUES ->
			printf("%d: a value after %x\n", b, chain[b]);
			say(b, VALUE)
		}
	:: d_step {						/* R9: one step of a change, also of one that it found */
			phase[b] == OFFICE && last[b] < LENGTH && CHANGES && after[b] != 2 ->
			printf("%d: voter change, batch %d\n", b, after[b] + 1);
			say(b, NEXT + after[b])
		}
	:: d_step {
			crashes > 0 && phase[b] != IDLE && phase[b] != GONE ->
			printf("%d: node %d crashes\n", b, NODE(b));
			crashes--;
			phase[b] = GONE;
			got[b] = 0;
#ifdef MUTANT_promise_not_persisted
			/* Any node may be the one. */
			v = 0;
			do
			:: v < VOTERS -> promised[v] = PLACE_BALLOT(place[v]); v++
			:: else -> v = 0; break
			od;
#endif
			skip
		}
	od
}

/* R4: prev of the newest batch. */
#define PREV(b)		(last[b] - 1 == base[b] -> base_place[b] : PLACE(b, last[b] - 1))

#ifdef MUTANT_accept_below_promise
#define MAY_ACCEPT(b, v)	true
#else
#define MAY_ACCEPT(b, v)	(promised[v] <= (b))
#endif

/*
 * R3: a Sync makes the voter's state exactly M. Within its own ballot it never takes a voter back
 * (the voter's acceptance may have been counted), and it is a promise like an Accept.
 */
#ifdef MUTANT_sync_repeated
#define NOT_BEHIND(b, v, n)	true
#else
#define NOT_BEHIND(b, v, n)	(PLACE_BALLOT(place[v]) != (b) || (n) > place[v] % 16)
#endif
#ifdef MUTANT_sync_without_promise
#define SYNC_PROMISES(v, b)	skip
#else
#define SYNC_PROMISES(v, b)	promised[v] = b
#endif

/* What voter v does about ballot b. */
#define VOTER(b) \
	:: d_step {	/* R1 */ \
			phase[b] == CANDIDATE && promised[v] < (b) && VOTES(v) -> \
			printf("%d: %d promises\n", v, b); \
			promised[v] = b; \
			answered(b, v); \
			skip \
		} \
	:: d_step {	/* R3: M */ \
			last[b] > base[b] && promised[v] <= (b) && VOTES(v) && place[v] != base_place[b] && \
			NOT_BEHIND(b, v, base[b]) -> \
			printf("%d: sync %d to M\n", v, b); \
			SYNC_PROMISES(v, b); \
			place[v] = base_place[b]; \
			state[v] = FIRST(chain[b], base[b]); \
			confs(v); \
			skip \
		} \
	:: d_step {	/* R3: what is decided since; same as an Accept that comes late */ \
			decided[b] > base[b] && promised[v] <= (b) && VOTES(v) && \
			place[v] != PLACE(b, decided[b]) && NOT_BEHIND(b, v, decided[b]) -> \
			printf("%d: sync %d to the decided\n", v, b); \
			promised[v] = b; \
			place[v] = PLACE(b, decided[b]); \
			state[v] = FIRST(chain[b], decided[b]); \
			confs(v); \
			skip \
		} \
	:: d_step {	/* R4 */ \
			last[b] > base[b] && MAY_ACCEPT(b, v) && VOTES(v) && place[v] == PREV(b) -> \
			printf("%d: accepts %d/%d\n", v, b, last[b]); \
			assert(state[v] == FIRST(chain[b], last[b] - 1)); \
			accept(b); \
			skip \
		} \
	:: d_step {	/* R4: accepted again, or the first answer was lost */ \
			phase[b] == OPEN && MAY_ACCEPT(b, v) && VOTES(v) && \
			place[v] == PLACE(b, last[b]) && (got[b] & (1 << v)) == 0 -> \
			accept(b); \
			skip \
		}

inline accept(b)
{
	if
	:: promised[v] < b -> promised[v] = b
	:: else
	fi;
	place[v] = PLACE(b, last[b]);
	state[v] = chain[b];
	conf[v] = after[b];
	if
	:: phase[b] == OPEN ->
		got[b] = got[b] | (1 << v);
		if
		:: QUORUM(got[b], before[b]) && QUORUM(got[b], after[b]) ->
			printf("%d: decides %x\n", b, chain[b]);
			decided[b] = last[b];
			phase[b] = OFFICE;
			got[b] = 0;
			act(chain[b], last[b])
		:: else
		fi
	:: else
	fi;
#ifdef MUTANT_undecided_shown
	act(chain[b], last[b])			/* R7 */
#endif
}

/* The voters that a chain names, read from its entries. */
inline confs(v)
{
	conf[v] = 0;
	n = 0;
	do
	:: n < LENGTH ->
		if
		:: (state[v] >> (4 * n) & 15) / 4 >= NEXT -> conf[v] = (state[v] >> (4 * n) & 15) / 4 - 1
		:: else
		fi;
		n++
	:: else -> n = 0; break
	od
}

proctype voter(byte v)
{
	byte n;

end:
	do
	VOTER(0)
#if BALLOTS >= 1
	VOTER(1)
#endif
#if BALLOTS >= 2
	VOTER(2)
#endif
#if BALLOTS >= 3
	VOTER(3)
#endif
#if RESTORES > 0
	:: d_step {						/* R12: the oldest copy is put back */
			restores > 0 && place[v] != 0 ->
			printf("%d: restored\n", v);
			restores--;
			promised[v] = 0;
			place[v] = 0;
			state[v] = 0;
			conf[v] = 0;
			amnesiac[v] = true
		}
#endif
	od
}

init {
	byte i;

	atomic {
		phase[0] = OFFICE;
		i = 0;
		do
		:: i < VOTERS -> run voter(i); i++
		:: else -> break
		od;
		i = 0;
		do
		:: i <= BALLOTS -> run coordinator(i); i++
		:: else -> break
		od
	}
}
