/*
 * replicas_lapse.pml
 *	  A home that cannot go on ends its epoch (doc/protocol/replicas.md, Q39): what it refused is sent again under a newer
 *	  epoch alone (H4), so it is never active again in one in which it refused. Each message is handled once, in order.
 *
 * Modelled: two nodes with copies of a shard, and an origin that sends what is not done, in order, under the newest
 * epoch that it knows, to its home, and again under a newer one. Rows of an epoch come at its home in the order of the
 * log, one each, and are handled, refused, or wait until their fact has been met (H2). The lease ends, and may be there again; turns
 * are flushed, and a crash loses those that were not: position, state and ownership at once. A home that has lapsed asks
 * for a newer epoch, and is given one, here or at the other node (Q18), or a fact of the same epoch comes (Q3). Facts are
 * learned late, and may be skipped.
 *
 * What the other copy has is a number of messages that it takes over from its home, at any time, under the epoch that both
 * know (Q8, Q9); a mark is told when both have it (Q11). replicas.pml has the rest.
 */
#ifndef MESSAGES
#define MESSAGES	2
#endif
#ifndef LEASES
#define LEASES		1			/* ends of a lease */
#endif
#ifndef CRASHES
#define CRASHES		1
#endif
#ifndef SUSPICIONS
#define SUSPICIONS	1			/* take-overs from a home that has not lapsed */
#endif
#ifndef EQUALS
#define EQUALS		1			/* facts of the same epoch */
#endif
#define EPOCHS		(1 + LEASES + SUSPICIONS)
#define FACTS		(EPOCHS + EQUALS)
#define NODES		2
#define OTHER(x)	(1 - (x))

byte leases = LEASES;
byte crashes = CRASHES;
byte suspicions = SUSPICIONS;
byte equals = EQUALS;

/* The home key, fact by fact. */
byte newest = 1;
byte fact_epoch[FACTS + 1];
byte fact_home[FACTS + 1];

/* Nodes: as in memory, and as is durable. */
#define BACKUP	0
#define ACTIVE	1
#define LAPSED	2
byte role[NODES];
byte known[NODES];				/* newest fact learnt */
byte mark[NODES];				/* messages that its copy has handled */
byte position[NODES];			/* rows of its epoch that have been read */
byte d_role[NODES];
byte d_known[NODES];
byte d_mark[NODES];
byte d_position[NODES];
bool lease[NODES] = true;
bool asked[NODES];				/* for the epoch that it knows */

/* The origin: the epoch under which it sends, from which message on. */
byte sent_fact = 1;
byte sent_from = 1;
byte heard;

#define EPOCH(x)	fact_epoch[known[x]]
#define IS_HOME(x)	(role[x] != BACKUP)
/* The next row of its epoch: there is one if the origin sends under that. */
#define HAS_ROW(x)	(IS_HOME(x) && fact_epoch[sent_fact] == EPOCH(x) && sent_from + position[x] <= MESSAGES)
#define ROW(x)		(sent_from + position[x])

inline flush(x)
{
	d_role[x] = role[x]; d_known[x] = known[x]; d_mark[x] = mark[x]; d_position[x] = position[x]
}

inline decide(epoch, home)
{
	fact_epoch[newest + 1] = epoch;
	fact_home[newest + 1] = home;
	newest++;
	printf("decided %d: epoch %d, home %c\n", newest, fact_epoch[newest], 65 + fact_home[newest])
}

proctype node(byte x)
{
end:
	do
	/* a fact; the newest one, or the next one */
	:: d_step { known[x] < newest ->
			known[x]++;
			printf("%c: learns %d\n", 65 + x, known[x]);
			if
			:: fact_epoch[known[x]] > fact_epoch[known[x] - 1] ->
				asked[x] = false;
				position[x] = 0;
				role[x] = (fact_home[known[x]] == x -> ACTIVE : BACKUP)
			:: else ->
#ifdef MUTANT_equal_epoch_ends_a_lapse
				role[x] = (role[x] == LAPSED -> ACTIVE : role[x]);
#endif
				skip
			fi;
			flush(x) }				/* the promise is durable, and all before it (Q9) */
	/* rows */
	:: d_step { role[x] == ACTIVE && HAS_ROW(x) && lease[x] ->
			if
			:: ROW(x) > mark[x] ->
				printf("%c: handles m%d at %d\n", 65 + x, ROW(x), EPOCH(x));
				assert(ROW(x) == mark[x] + 1);			/* P3: nothing is left out */
				mark[x]++
			:: else -> printf("%c: drops m%d\n", 65 + x, ROW(x))
			fi;
			position[x]++ }
#ifdef MUTANT_refused_before_lapsed
	:: d_step { role[x] == ACTIVE && HAS_ROW(x) && !lease[x] -> printf("%c: refuses m%d\n", 65 + x, ROW(x)); position[x]++ }
#endif
	:: d_step { role[x] == ACTIVE && !lease[x] -> printf("%c: lapsed at %d\n", 65 + x, EPOCH(x)); role[x] = LAPSED
#ifdef MUTANT_lapse_forgotten
			; d_role[x] = ACTIVE
#endif
		}
	:: d_step { role[x] == LAPSED && HAS_ROW(x) -> printf("%c: refuses m%d\n", 65 + x, ROW(x)); position[x]++ }
#ifdef MUTANT_active_again
	:: d_step { role[x] == LAPSED && lease[x] -> printf("%c: active again\n", 65 + x); role[x] = ACTIVE }
#endif
	:: d_step { d_position[x] != position[x] || d_role[x] != role[x] || d_mark[x] != mark[x] ->
			flush(x);
#ifdef MUTANT_lapse_forgotten
			d_role[x] = (role[x] == LAPSED -> ACTIVE : role[x])
#endif
		}
	:: d_step { crashes > 0 && IS_HOME(x) ->
			crashes--;
			printf("%c: crash\n", 65 + x);
			role[x] = d_role[x]; known[x] = d_known[x]; mark[x] = d_mark[x]; position[x] = d_position[x]; asked[x] = false }
	:: d_step { leases > 0 && lease[x] && role[x] == ACTIVE -> leases--; lease[x] = false; printf("%c: its lease is over\n", 65 + x) }
	:: d_step { !lease[x] -> lease[x] = true; printf("%c: has a lease\n", 65 + x) }
	/* the copy, and what is told when both have it; a row of which this says nothing is flushed */
	:: d_step { IS_HOME(x) && EPOCH(OTHER(x)) == EPOCH(x) && d_known[x] == known[x] && mark[OTHER(x)] != d_mark[x] ->
			mark[OTHER(x)] = d_mark[x]; d_mark[OTHER(x)] = d_mark[x]; printf("%c: has %d messages\n", 65 + OTHER(x), d_mark[x]) }
	:: d_step { IS_HOME(x) && EPOCH(OTHER(x)) == EPOCH(x) && mark[OTHER(x)] == d_mark[x] && heard < d_mark[x] -> heard = d_mark[x] }
	/* Q39: it asks, in words that say of which epoch it speaks */
	:: d_step { role[x] == LAPSED && d_role[x] == LAPSED && !asked[x] -> asked[x] = true }
	:: d_step { asked[x] && fact_epoch[newest] == EPOCH(x) && newest < FACTS -> asked[x] = false; decide(fact_epoch[newest] + 1, x) }
	:: d_step { asked[x] && fact_epoch[newest] == EPOCH(x) && newest < FACTS -> asked[x] = false; decide(fact_epoch[newest] + 1, OTHER(x)) }
	:: d_step { suspicions > 0 && fact_home[newest] == x && newest < FACTS -> suspicions--; decide(fact_epoch[newest] + 1, OTHER(x)) }
	:: d_step { equals > 0 && fact_home[newest] == x && newest < FACTS -> equals--; decide(fact_epoch[newest], x) }
	od
}

proctype origin()
{
end:
	do
	:: d_step { sent_fact < newest -> sent_fact++;
			if :: fact_epoch[sent_fact] > fact_epoch[sent_fact - 1] -> sent_from = heard + 1 :: else fi }
	od
}

proctype rest()
{
	timeout;
	printf("at rest\n");
	assert(heard == MESSAGES || newest == FACTS)
}

init {
	atomic {
		fact_epoch[1] = 1;
		known[0] = 1; known[1] = 1; d_known[0] = 1; d_known[1] = 1;
		role[0] = ACTIVE; d_role[0] = ACTIVE;
		run node(0); run node(1); run origin(); run rest()
	}
}
