/*
 * replicas.pml
 *	  The copies of one shard of a type with `replicas => k`, doc/protocol/replicas.md (Q1-Q4, Q6-Q12,
 *	  Q14-Q21, Q24-Q27), a plan that is searched before it is built: no turn that was shown is lost
 *	  while a node of the decided set survives (VR1-VR6, VR9), none that was discarded is seen (VR7),
 *	  and at rest each message was handled once, in order, and its output was received.
 *
 * Modelled: nodes A B C, each with a log of the shard's turns; the decided facts of its home key,
 * learnt late or skipped (Q1-Q3, Q9); turns that are handled, flushed, shipped, acknowledged and
 * released, each on its own (Q4-Q8, Q11); suspicion of a home that lives, and take-over (Q18, Q19);
 * a crash of the home, which loses what it had not flushed, what it heard of acknowledgements, and
 * its proposals; nodes lost for good (Q15); a slow copy put out of the set (Q14); copy, growth and
 * its cancellation (Q16); copies that go when a fact puts them out; the former home, which cuts what
 * was discarded (Q17, Q21); a move with seal, copy, decision and abort (Q27). One or two
 * origins keep messages until they hear a mark and send again under a newer tag (Q24-Q26). Each
 * message has one output; the receiver keeps a mark, and stands for a shard of the same node, too.
 *
 * A record is its epoch and what it did: a message, the start of an epoch, a seal. Marks and outputs
 * follow from the log (Q2), and an output tells the whole history so far, so that a loss, a phantom
 * or a swap shows at once. There are no clocks and no leases: nothing here rests on time.
 *
 * Abstracted: a stream is stream.pml, the map is map.pml. Under one tag an origin sends all that is
 * not done, in order, and a home takes one tag, so the next row is the next message: only the tags
 * are kept. A call ships one record, from where the logs part ("need" of Q8 at once). A copy appends
 * and flushes in one step: what it had not flushed it had not acknowledged. An acknowledgement can
 * be counted at any time after it was given, also when who gave it has promised a newer epoch; that
 * the home heard of it shows in what it released. Records are applied as soon as they are released.
 *
 * A record is compared by its epoch and number: with Q6 that is enough, without sums (Q5). A copy is
 * one piece, of a released turn; Q16 has it in pieces that records put right.
 *
 * Left out, and in models of their own: outputs as they leave (Q29), replicas_outputs.pml; inputs of the home's own node
 * (Q30), replicas_inputs.pml; lapses (Q39), replicas_lapse.pml; copies in pieces (Q16), replicas_copy.pml; rewinds in pieces
 * (Q17), replicas_rewind.pml. Left out altogether: lost origins, min_insync that stops the shard, adoption of rows (Q10,
 * Q20), a home put back from an older copy (Q23), lanes, placement.
 *
 * What the search found is at the rules, as "Found:". State and helpers: replicas_state.pml.
 */
#include "replicas_state.pml"

/* ---- a node -------------------------------------------------------------------------------- */

/* A home that is none any more. Nobody counts acknowledgements for its epoch, or takes its tag. */
inline end_home(x)
{
#if defined(MUTANT_old_tags_taken) || defined(MUTANT_old_home_forwards)
	passed[2 * x] = ((sent[0] & BIT(EPOCH(x))) -> mark[2 * x] : 0);
#endif
	sent[0] = WITHOUT(sent[0], BIT(EPOCH(x)));
	sent[1] = WITHOUT(sent[1], BIT(EPOCH(x)));
	ACKED(0, x) = 0;
	ACKED(1, x) = 0;
	ACKED(2, x) = 0;
	released[x] = 0;
	released_mark[2 * (x)] = 0;
	released_mark[2 * (x) + 1] = 0;
	bound[x] = 0;
	pledged[x] = 0;
	flushed[x] = last[x]			/* the promise is durable, and all before it */
}

inline drop_copy(x)
{
	printf("%c: drops its copy\n", 65 + x);
	role[x] = NONE;
	copied[x] = 0;
	for (i : 1 .. last[x]) { LOG(x, i) = 0 }
	last[x] = 0;
	flushed[x] = 0;
	derive(x)
}

/* Fact n. Q3, Q9, Q19, Q21. */
inline learn(x)
{
	printf("%c: learns %d\n", 65 + x, n);
	if
	:: fact_epoch[n] > EPOCH(x) ->
		if :: IS_HOME(x) -> end_home(x) :: else fi;
		known[x] = n;
		role[x] = (role[x] == NONE -> NONE : COPY);
		if
		:: HOME(n) == x ->
			assert(role[x] == COPY);
			printf("%c: active at %d\n", 65 + x, EPOCH(x));
			role[x] = ACTIVE;
			append(x, BEGIN);
			flushed[x] = last[x];
			bound[x] = last[x];
			copied[x] = 0
		:: else
		fi
	:: fact_epoch[n] == EPOCH(x) && n > known[x] ->
		known[x] = n;
#ifdef MUTANT_unsealed_at_equal_epoch
		role[x] = (role[x] == SEALED -> ACTIVE : role[x]);
#endif
		pledged[x] = 0			/* who decides compares: the proposal was taken, or never will be */
	:: else
	fi;
	if
	:: dropping -> drop_copy(x)
	:: else -> derive(x)
	fi;
	dropping = false;
	forget_facts()
}

/*
 * The home restarts. It learns the newest fact before its first turn (I4). Found: what it proposed
 * before must not be decided after that, for it has forgotten from whom it needs acknowledgements.
 */
inline crash(x)
{
	printf("%c: crash\n", 65 + x);
	crashes--;
	do :: last[x] > flushed[x] -> LOG(x, last[x]) = 0; last[x]-- :: else -> break od;
	role[x] = (role[x] == SEALED && LOG(x, last[x]) % 8 != SEAL -> ACTIVE : role[x]);
	released[x] = 0;
	released_mark[2 * x] = 0;
	released_mark[2 * x + 1] = 0;
	bound[x] = last[x];
	pledged[x] = 0;
#ifndef MUTANT_proposal_outlives
	proposed = (HOME(newest) == x -> 0 : proposed);
#endif
#ifdef MUTANT_start_without_fact
	n = known[x]
#else
	n = newest
#endif
}

#define CAN_LEARN(x, f)		(IS_UP(x) && known[x] < (f) && (f) <= newest)
/* Who is put out may drop its copy, but not one that a move has just brought. */
#define PUT_OUT(x, f)	((SET(f) & BIT(x)) == 0 && \
						 (role[x] == COPY || (role[x] > COPY && fact_epoch[f] > EPOCH(x))))

#if defined(MUTANT_marks_before_release)
#define HEARABLE(x, o)	mark[2 * (x) + (o)]
#else
#define HEARABLE(x, o)	released_mark[2 * (x) + (o)]
#endif

#if defined(MUTANT_local_output_not_gated)
#define OUTPUTS(x)	(mark[2 * (x)] + mark[2 * (x) + 1])
#else
#define OUTPUTS(x)	(released_mark[2 * (x)] + released_mark[2 * (x) + 1])
#endif

#ifdef MUTANT_no_resend
#define TAKES(x, o)	((sent[o] & BIT(EPOCH(x))) && EPOCH(x) == 1)
#else
#define TAKES(x, o)	(sent[o] & BIT(EPOCH(x)))		/* Q25 */
#endif

proctype node(byte x)
{
end:
	do
	:: atomic {						/* facts come late, one by one, or are skipped */
			if							/* one choice: who goes back to it sets n again */
			:: CAN_LEARN(x, newest) -> n = newest
			:: CAN_LEARN(x, known[x] + 1) && known[x] + 1 < newest -> n = known[x] + 1
#if CRASHES > 0
			:: d_step { crashes > 0 && IS_HOME(x) -> crash(x) }
#endif
#if SHRINKS + GROWTHS + MOVES + SUSPECT_OUT > 0
			:: CAN_LEARN(x, newest) && PUT_OUT(x, newest) -> d_step { n = newest; dropping = true }
			:: CAN_LEARN(x, known[x] + 1) && known[x] + 1 < newest && PUT_OUT(x, known[x] + 1) ->
				d_step { n = known[x] + 1; dropping = true }
#endif
			fi;
			d_step { learn(x); skip }
		}
	:: d_step {						/* Q25: the next row under its own tag */
			role[x] == ACTIVE && mark[2 * x] < FIRST && TAKES(x, 0) -> handle(x, mark[2 * x] + 1)
		}
#if SECOND > 0
	:: d_step {
			role[x] == ACTIVE && mark[2 * x + 1] < SECOND && TAKES(x, 1) ->
			handle(x, FIRST + mark[2 * x + 1] + 1)
		}
#endif
#ifdef MUTANT_old_tags_taken
	:: d_step {
			role[x] == ACTIVE && passed[2 * x] > 0 && passed[2 * x] < FIRST ->
			handle(x, passed[2 * x] + 1)
		}
#endif
#ifdef MUTANT_old_home_forwards
	:: d_step { role[x] == ACTIVE && passed[0] > 0 && passed[0] < FIRST -> handle(x, passed[0] + 1) }
#endif
	:: d_step { IS_HOME(x) && flushed[x] < last[x] -> flushed[x] = last[x] }
	:: d_step {						/* Q11 */
			IS_HOME(x) && RELEASABLE(x, released[x] + 1) ->
			do
			:: RELEASABLE(x, released[x] + 1) ->
				released[x]++;
				printf("%c: releases turn %d\n", 65 + x, released[x]);
				if
				:: MESSAGE(LOG(x, released[x])) ->
					released_mark[2 * x + ORIGIN(LOG(x, released[x]) % 8)]++
				:: else
				fi;
				if
				:: released[x] > truths -> truth[truths] = LOG(x, released[x]); truths++
				:: else -> assert(LOG(x, released[x]) == truth[released[x] - 1])		/* VR4 */
				fi
			:: else -> break
			od;
			skip
		}
	:: d_step { IS_HOME(x) && heard[0] < HEARABLE(x, 0) -> heard[0] = HEARABLE(x, 0) }		/* Q24 */
	:: d_step { IS_HOME(x) && heard[1] < HEARABLE(x, 1) -> heard[1] = HEARABLE(x, 1) }
	:: d_step {						/* Q12, Q20: in order; what was received is passed over */
			IS_HOME(x) && received < OUTPUTS(x) ->
			received++;
			printf("received: output %d of %c\n", received, 65 + x);
			assert((tale[x] & BELOW(2 * (received - 1))) == history);		/* VR6 */
			history = tale[x] & BELOW(2 * received)
		}
#if MOVES > 0
	:: d_step {						/* M2, M3 */
			role[x] == ACTIVE && TARGET(known[x]) != 0 ->
			printf("%c: seals\n", 65 + x);
			role[x] = SEALED;
			append(x, SEAL)
		}
#endif
	od
}

/* ---- a home and a copy ---------------------------------------------------------------------- */

/* Q6: what may be shipped. */
#ifdef MUTANT_ship_before_flush
#define SHIPPABLE(x)	last[x]
#else
#define SHIPPABLE(x)	flushed[x]
#endif

/*
 * Q8, Q9. Found: the promise is compared with the epoch of who ships, not with that of the record, for
 * a new home ships records of older epochs, too.
 */
#ifdef MUTANT_below_promise_taken
#define PROMISED(b, x)	(EPOCH(b) >= EPOCH(x))
#elif defined(MUTANT_records_of_older_epochs_refused)
#define PROMISED(b, x)	(EPOCH(b) == EPOCH(x) && !refused)
#else
#define PROMISED(b, x)	(EPOCH(b) == EPOCH(x))
#endif

/* Q8: up to where the logs are one: the greatest turn of one epoch. Into j. */
inline compare(x, b)
{
	j = MIN_OF(last[b], SHIPPABLE(x));
#ifndef MUTANT_append_by_position
	do :: j > 0 && LOG(x, j) / 8 != LOG(b, j) / 8 -> j-- :: else -> break od;
	for (k : 1 .. j) { assert(LOG(x, k) == LOG(b, k)) }			/* VR4 */
#endif
}

/* One record, or the news that it is there. */
inline ship(x, b)
{
	compare(x, b);
	if
	:: j == SHIPPABLE(x) -> ACKED(b, x) = j
#ifdef MUTANT_records_of_older_epochs_refused
	:: j < SHIPPABLE(x) && LOG(x, j + 1) / 8 < EPOCH(b) -> refused = true
#endif
#ifdef MUTANT_tail_kept
	:: j < SHIPPABLE(x) && last[b] > j -> ACKED(b, x) = j + 1
#endif
	:: else ->
		cut(b, j);
		last[b]++;
		LOG(b, last[b]) = LOG(x, last[b]);
		flushed[b] = last[b];
		printf("%c: has turn %d of %c\n", 65 + b, last[b], 65 + x);
#ifdef MUTANT_applied_before_release
		copied[b] = last[b];
#endif
		ACKED(b, x) = last[b];
		derive(b)
	fi
}

/* Q16 (2): the first turns as a copy. */
inline copy(x, b, turns)
{
	printf("%c: copies %d turns of %c\n", 65 + b, turns, 65 + x);
	for (i : 1 .. TURNS) { LOG(b, i) = (i <= (turns) -> LOG(x, i) : 0) }
	last[b] = turns;
	flushed[b] = turns;
	copied[b] = turns;
	derive(b);
	role[b] = COPY
}

#ifdef MUTANT_copy_of_unreleased
#define COPIED(x)	last[x]
#else
#define COPIED(x)	released[x]
#endif

#ifdef MUTANT_growth_without_bound
#define BOUND(x)	released[x]
#else
#define BOUND(x)	(released[x] > bound[x] -> released[x] : bound[x])
#endif

/*
 * Found: the copy must have learnt the fact that the proposal builds on. Else it may still learn the
 * older fact that put it out, and drop what was counted.
 */
#ifdef MUTANT_learner_behind
#define KNOWS(b, x)	(EPOCH(b) == EPOCH(x))
#else
#define KNOWS(b, x)	(known[b] == known[x])
#endif

#ifdef MUTANT_seal_not_gated
#define SEAL_OUT(x)		(flushed[x] == last[x])
#else
#define SEAL_OUT(x)		(released[x] == last[x])
#endif

#define IN_SET(b, x)	((SET(known[x]) & BIT(b)) != 0)
#define SAME_LOG(b, x)	(role[b] == COPY && last[b] == last[x] && LOG(b, last[x]) == LOG(x, last[x]))

proctype pair(byte x; byte b)
{
end:
	do
	:: d_step {
			IS_HOME(x) && role[b] == COPY && PROMISED(b, x) && ACKED(b, x) < SHIPPABLE(x) &&
			((REQUIRED(x) & BIT(b)) || IN_SET(b, x) || growths > 0) ->
			ship(x, b)
		}
#if GROWTHS > 0
	:: d_step {
			IS_HOME(x) && growths > 0 && role[b] == NONE && IS_UP(b) && EPOCH(b) == EPOCH(x) &&
			!IN_SET(b, x) ->
			copy(x, b, COPIED(x));
#ifndef MUTANT_acks_outlive_copy
			/* Found: an acknowledgement counts for the copy that it was given for, not for the node. */
			ACKED(b, x) = last[b]
#endif
		}
	:: d_step {						/* Q16 (3), (4) */
			IS_HOME(x) && growths > 0 && proposed == 0 && pledged[x] == 0 &&
			HOME(newest) == x && known[x] == newest && !IN_SET(b, x) && role[b] == COPY &&
			KNOWS(b, x) && ACKED(b, x) >= BOUND(x) ->
			printf("%c: proposes %c\n", 65 + x, 65 + b);
			growths--;
			proposed = b + 1;
			pledged[x] = b + 1
		}
#ifdef MUTANT_learner_given_up
	:: d_step { pledged[x] == b + 1 -> pledged[x] = 0 }
#endif
#endif
#ifdef MUTANT_shrink_before_decided
	:: d_step {
			IS_HOME(x) && shrinks > 0 && IN_SET(b, x) ->
			shrinks--;
			unasked[x] = BIT(b)
		}
#endif
#if MOVES > 0
	:: d_step {						/* M4: a copy outside the set; in the set, the seal is the end */
			role[x] == SEALED && TARGET(known[x]) == b + 1 && SEAL_OUT(x) &&
			(role[b] == NONE || role[b] == COPY) && known[b] >= known[x] && EPOCH(b) == EPOCH(x) &&
			(!IN_SET(b, x) || role[b] == NONE || SAME_LOG(b, x)) ->
			if
			:: SAME_LOG(b, x) -> skip
			:: else -> copy(x, b, last[x])
			fi;
			printf("%c: staged for %d\n", 65 + b, EPOCH(x) + 1);
			role[b] = STAGED
		}
#endif
	od
}

proctype origin(byte o)
{
end:
	do
	:: d_step {						/* Q26: all that is not done, under the new tag */
			heard[o] < TOLD(o) && (sent[o] & BIT(fact_epoch[newest])) == 0 ->
			sent[o] = sent[o] | BIT(fact_epoch[newest])
		}
	od
}

/* ---- decisions and faults ------------------------------------------------------------------- */

inline lose(x)
{
	printf("%c: lost for good\n", 65 + x);
	losses--;
	if :: IS_HOME(x) -> end_home(x) :: else fi;
	drop_copy(x);
	lost = lost | BIT(x);
	known[x] = 0;
	proposed = (HOME(newest) == x -> 0 : proposed);
	forget_facts();
	assert(WITHOUT(SET(newest), lost) != 0)			/* P1 */
}

#ifdef MUTANT_take_over_by_learner
#define MAY_TAKE_OVER(x)	(role[x] == COPY)
#else
#define MAY_TAKE_OVER(x)	((SET(newest) & BIT(x)) != 0)
#endif

/* Q18: who is thought to be lost stays in the set, or is taken out, too. */
#if SUSPECT_OUT || defined(MUTANT_suspect_put_out)
#define PUT_OUT_AT_TAKE_OVER	(lost | BIT(HOME(newest)))
#else
#define PUT_OUT_AT_TAKE_OVER	lost
#endif

#ifdef MUTANT_shrink_below_min
#define TOO_FEW		(COUNT(SET(newest)) < 2)
#else
#define TOO_FEW		(COUNT(SET(newest)) <= MIN)
#endif

proctype fate(byte x)
{
end:
	do
	:: d_step {						/* Q18: the home is lost, or is thought to be */
			MAY_TAKE_OVER(x) && IS_UP(x) && HOME(newest) != x && (suspicions > 0 || !IS_UP(HOME(newest))) ->
			suspicions = (IS_UP(HOME(newest)) -> suspicions - 1 : suspicions);
			decide(fact_epoch[newest] + 1, x, WITHOUT(SET(newest), PUT_OUT_AT_TAKE_OVER) | BIT(x), 0)
		}
#if SHRINKS > 0 && !defined(MUTANT_shrink_before_decided)
	:: d_step {						/* Q14 */
			shrinks > 0 && (SET(newest) & BIT(x)) && HOME(newest) != x && !TOO_FEW &&
			IS_HOME(HOME(newest)) && known[HOME(newest)] == newest ->
			shrinks--;
			decide(fact_epoch[newest], HOME(newest), WITHOUT(SET(newest), BIT(x)), TARGET(newest))
		}
#endif
#if MOVES > 0
	:: d_step {						/* M1, M10 */
			moves > 0 && TARGET(newest) == 0 && HOME(newest) != x && IS_UP(x) &&
			role[HOME(newest)] == ACTIVE && EPOCH(HOME(newest)) == fact_epoch[newest] ->
			moves--;
			decide(fact_epoch[newest], HOME(newest), SET(newest), x + 1)
		}
	:: d_step {						/* M5 */
			TARGET(newest) == x + 1 && role[x] == STAGED && EPOCH(x) == fact_epoch[newest] ->
			decide(fact_epoch[newest] + 1, x, WITHOUT(SET(newest), lost) | BIT(x), 0)
		}
#endif
#if LOSSES > 0
	:: d_step { losses > 0 && IS_UP(x) -> lose(x) }
#endif
	od
}

proctype office()
{
end:
	do
#if LOSSES > 0
	:: d_step {						/* Q15 */
			(SET(newest) & lost) != 0 && IS_UP(HOME(newest)) ->
			decide(fact_epoch[newest], HOME(newest), WITHOUT(SET(newest), lost), TARGET(newest))
		}
#endif
#if GROWTHS > 0
	:: d_step {						/* Q16 (4), or a cancellation */
			proposed != 0 ->
			i = SET(newest) | (BIT(proposed) >> 1);
			decide(fact_epoch[newest], HOME(newest), i, TARGET(newest))
		}
	:: d_step { proposed != 0 -> decide(fact_epoch[newest], HOME(newest), SET(newest), TARGET(newest)) }
#endif
#if MOVES > 0
	:: d_step {						/* abort: the epoch rises */
			TARGET(newest) != 0 && IS_UP(HOME(newest)) ->
			decide(fact_epoch[newest] + 1, HOME(newest), WITHOUT(SET(newest), lost), 0)
		}
#endif
	:: d_step {						/* calm: no more faults */
			suspicions + crashes + losses + shrinks + growths + moves > 0 ->
			suspicions = 0; crashes = 0; losses = 0; shrinks = 0; growths = 0; moves = 0
		}
	od
}

#if TURNS > 9 || FACTS > 8
#error "watch does not look at all of that"
#endif

/* VR1: what was released, heard or received is in each log of the newest set that is there. */
#define IN_SETS(x)	((SET(newest) & BIT(x)) && IS_UP(x))
#define SAME(x, t)	(truths < (t) || LOG(x, t) == truth[(t) - 1])
#define WHOLE(x)	(last[x] >= truths && SAME(x, 1) && SAME(x, 2) && SAME(x, 3) && SAME(x, 4) && \
					 SAME(x, 5) && SAME(x, 6) && SAME(x, 7) && SAME(x, 8) && SAME(x, 9))
#define HEARD(x)	(heard[0] <= mark[2 * (x)] && heard[1] <= mark[2 * (x) + 1])
#define SEEN(x)		((tale[x] & BELOW(2 * received)) == history)

/* VR2: who may be chosen by a fact of the home's epoch has to acknowledge. */
#define GUARDED(x, n)	((n) > newest || (n) <= known[x] || fact_epoch[n] != EPOCH(x) || \
						 WITHOUT(SET(n), REQUIRED(x) | BIT(x)) == 0)

proctype watch(byte x)
{
end:
	do
	:: d_step { IN_SETS(x) && !WHOLE(x) -> printf("%c lacks a released turn\n", 65 + x); assert(false) }
#ifndef MUTANT_marks_not_in_record
	:: d_step { IN_SETS(x) && !HEARD(x) -> printf("%c lacks a mark\n", 65 + x); assert(false) }
#endif
	:: d_step { IN_SETS(x) && !SEEN(x) -> printf("%c lacks an output\n", 65 + x); assert(false) }
	:: d_step {
			IS_HOME(x) && !(GUARDED(x, 2) && GUARDED(x, 3) && GUARDED(x, 4) && GUARDED(x, 5) &&
							GUARDED(x, 6) && GUARDED(x, 7) && GUARDED(x, 8)) ->
			printf("%c does not ask all of the set\n", 65 + x);
			assert(false)
		}
	od
}

/* When nothing can happen any more. */
proctype rest()
{
	timeout;
	d_step {
		printf("at rest\n");
		assert(role[HOME(newest)] == ACTIVE && EPOCH(HOME(newest)) == fact_epoch[newest]);
		assert(mark[2 * HOME(newest)] == FIRST && mark[2 * HOME(newest) + 1] == SECOND);
		assert(heard[0] == FIRST && heard[1] == SECOND && received == MESSAGES);
		/* Redundancy is back: all of the set have all. */
		assert((SET(newest) & lost) == 0 && truths == last[HOME(newest)])
	}
}

init {
	atomic {
		fact[1] = FACT(0, START, 0);
		fact_epoch[1] = 1;
		for (i : 0 .. NODES - 1) {
			known[i] = 1;
			role[i] = ((START & BIT(i)) == 0 -> NONE : (i == 0 -> ACTIVE : COPY));
			run node(i);
			run fate(i);
			run watch(i);
			for (j : 0 .. NODES - 1) {
				if :: i != j -> run pair(i, j) :: else fi
			}
		}
		run origin(0);
		run origin(1);
		run office();
		run rest()
	}
}
