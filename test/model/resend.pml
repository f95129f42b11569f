/*
 * resend.pml
 *	  Routing by re-send, doc/protocol/routes.md and moves.md (H1-H7, X6, M1-M11) for one shard and one
 *	  entity: at most one active epoch (V1), each message handled once, in order, without gap (V5,
 *	  V6), and at rest all of them handled and truncated at their origin (V7).
 *
 * Modelled: two or three hosts and an origin that hosts nothing; the decided facts of the home, one
 * per epoch; moves with HandOff, seal, stage and decision, and their abort; late HandOffs and stale
 * imports; facts learnt late or skipped; streams as queues of (tag, rseq) with facts ahead of rows
 * and floors behind them; routes, parked and kept items, re-send one by one; marks in memory, their
 * base and their rebuilding after a crash; contended rows (R) that move as stash; announcements of
 * marks that come late or never.
 *
 * Abstracted: a stream is X1-X5 as given (stream.pml), so a row stays in the queue until the cursor
 * of the home passes it. Messages of a node are numbered 1 .. K and the number serves as rseq: the
 * skipped ones went to other shards. The map is map.pml; one decision here is one step. A step is
 * one transaction past its gate, so a crash takes only what is volatile: marks beyond base and log,
 * what origins heard of marks, announcements under way. That a row is refused needs no message: a
 * node may learn any decided fact at any time. "void" (X2) is a refused row that nobody hears of.
 *
 * Left out: write-off (N1, N2), asks, timers, several shards in a lane.
 *
 * All steps go forward, so every run ends; the end is checked in rest(). Faults may end at any time
 * before that (calm), or a later move would hide that somebody waits for ever.
 */
#ifndef HOSTS
#define HOSTS		2			/* nodes 0 .. HOSTS - 1; node HOSTS hosts nothing */
#endif
#ifndef K0
#define K0			0			/* messages that each node tells, at most 3 */
#endif
#ifndef K1
#define K1			0
#endif
#ifndef KS
#define KS			2			/* those of the last node, the one that hosts nothing */
#endif
#ifndef MOVES
#define MOVES		3
#endif
#ifndef ABORTS
#define ABORTS		0
#endif
#ifndef CRASHES
#define CRASHES		0
#endif
#ifndef DEFERS
#define DEFERS		0			/* rows that find the entity contended */
#endif
#ifndef FLOORS
#define FLOORS		0			/* whether floors are sent */
#endif

#define NODES		(HOSTS + 1)
#define EPOCHS		(MOVES + 1)	/* greatest */
#define MESSAGES(x)	((x) == HOSTS -> KS : ((x) == 0 -> K0 : ((x) == 1 -> K1 : 0)))
#define BIT(i)		(1 << ((i) - 1))
#define UPTO(i)		((1 << (i)) - 1)
#define MAX(a, b)	((a) > (b) -> (a) : (b))
#define AT(h, x)	((h) * NODES + (x))

/* The map: decided facts, and the one key's phase. */
byte epoch = 1;
byte home[EPOCHS + 2];
byte moving_to[EPOCHS + 2];		/* target + 1 of the move decided at an epoch; for late commands */
bool moving;
byte moves = MOVES;
byte aborts = ABORTS;
byte crashes = CRASHES;
byte defers = DEFERS;

/* Ownership rows (W4), durable. */
#define NO_ROW		0
#define ACTIVE		1
#define STOPPING	2
#define SEALED		3
#define STAGED		4
byte own[NODES];
byte own_epoch[NODES];

/* Marks per (home, origin): in memory, base rows, and rows of the log with the own tag. */
byte mark[NODES * NODES];
byte base[NODES * NODES];
byte logged[NODES * NODES];

/* R while active, the stash from stopping on: 5 bits each, oldest lowest. */
int waiting[NODES];
byte waiting_n[NODES];

/* What the last seal exported. */
byte copy_epoch;
byte copy_base[NODES];
int copy_waiting;
byte copy_waiting_n;

/* Origins. route = newest fact known, 0 none; all durable but heard. */
byte route[NODES];
byte told[NODES];
byte parked[NODES];				/* bits */
byte stamped[NODES];			/* bits, of the parked */
byte sent[NODES];				/* bits: stored in the outbox under the route's epoch */
byte heard[NODES];				/* the origin's mark of the shard */
byte announced[NODES];			/* announcement under way */

/* Rows: tag * 8 + rseq; tag 0 is a floor. */
#ifndef QUEUE
#define QUEUE		8
#endif
chan stream[NODES * NODES] = [QUEUE] of { byte };

#ifdef MUTANT_delete_without_epoch
bool deleting[NODES];
#endif
#ifdef MUTANT_floor_of_heard
byte floored[NODES];
#endif

/* Ghost. */
byte handled[NODES];

inline handle(who, nr)
{
	printf("handled: m%d of node %d\n", nr, who);
	assert((nr) == handled[who] + 1);		/* V5, V6 */
	handled[who] = (nr)
}

inline wait(at, who, nr)
{
	assert(waiting_n[at] < 6);
	waiting[at] = waiting[at] | ((16 | ((who) * 4) | (nr)) << (5 * waiting_n[at]));
	waiting_n[at]++
}

/* The entity takes a message in, at once or behind those that wait (H6). */
inline take(at, who, nr)
{
	if
	:: waiting_n[at] > 0 -> wait(at, who, nr)
	:: else -> handle(who, nr)
	fi
}

inline append(from, to, nr)
{
	printf("node %d: m%d tag %d to node %d\n", from, nr, route[from], to);
	stream[AT(from, to)] ! (route[from] * 8 + (nr));
	stamped[from] = stamped[from] | BIT(nr);
	sent[from] = sent[from] | BIT(nr)
}

inline park(from, nr)
{
	printf("node %d: parks m%d\n", from, nr);
	parked[from] = parked[from] | BIT(nr)
}

#define HOME_IS_ME(x)	(home[route[x]] == (x))
#define I_AM_ACTIVE(x)	(own[x] == ACTIVE && own_epoch[x] == route[x])
#define CAN_GO(x)		(route[x] > 0 && (!HOME_IS_ME(x) || I_AM_ACTIVE(x)))

#ifdef MUTANT_own_queue_unchecked
#define IN_MARK(x, i)	false
#else
#define IN_MARK(x, i)	((stamped[x] & BIT(i)) && (i) <= mark[AT(x, x)])
#endif

/* H1 for an item that may go; H5 when the home is here. */
inline go(from, nr)
{
	if
	:: !HOME_IS_ME(from) -> append(from, home[route[from]], nr)
	:: HOME_IS_ME(from) && IN_MARK(from, nr) ->
		printf("node %d: m%d of its own is done\n", from, nr);
		stamped[from] = stamped[from] & (255 - BIT(nr))
	:: else ->
		stamped[from] = stamped[from] & (255 - BIT(nr));
		take(from, from, nr)
	fi
}

inline clear_marks(at)
{
	z = 0;
	do
	:: z < NODES ->
		mark[AT(at, z)] = 0;
		base[AT(at, z)] = 0;
		logged[AT(at, z)] = 0;
		z++
	:: else -> z = 0; break
	od
}

/* M7, at once: nobody looks at the rows in between, and an import deletes leftovers. */
inline delete(at)
{
	own[at] = NO_ROW;
	own_epoch[at] = 0;
	waiting[at] = 0;
	waiting_n[at] = 0;
	clear_marks(at)
}

inline activate(at, tag)
{
	printf("node %d: active at epoch %d\n", at, tag);
	z = 0;
	do
	:: z < NODES ->
		assert(z == at || own[z] != ACTIVE);							/* V1 */
		assert(((sent[z] | (parked[z] & stamped[z])) & UPTO(handled[z]) &
				(255 - UPTO(mark[AT(at, z)]))) == 0);					/* V13 */
		z++
	:: else -> z = 0; break
	od;
	do
	:: z < NODES ->
#ifdef MUTANT_base_not_merged
		base[AT(at, z)] = 0;
		mark[AT(at, z)] = (own[at] == STAGED -> 0 : mark[AT(at, z)]);
#else
		base[AT(at, z)] = mark[AT(at, z)];		/* H7 */
#endif
		logged[AT(at, z)] = 0;
		z++
	:: else -> z = 0; break
	od;
	own[at] = ACTIVE;
	own_epoch[at] = tag
}

/* M6, M7, abort: the fact at a host. */
inline fact_at_host(at, tag)
{
	if
	:: home[tag] == at && own[at] == STAGED && own_epoch[at] == tag -> activate(at, tag)
	:: home[tag] == at && own[at] != STAGED && own[at] != NO_ROW && own_epoch[at] < tag -> activate(at, tag)
	:: home[tag] == at && !(own[at] == STAGED && own_epoch[at] == tag) &&
	   !(own[at] != STAGED && own[at] != NO_ROW && own_epoch[at] < tag) ->
		printf("node %d: home at %d without rows\n", at, tag);
		assert(false)							/* M6: stop, loud */
	:: home[tag] != at && own[at] != NO_ROW && own_epoch[at] <= tag ->
		printf("node %d: forgets epoch %d\n", at, own_epoch[at]);
#ifdef MUTANT_delete_without_epoch
		deleting[at] = true;
#endif
		delete(at)
	:: else
	fi
}

#ifdef MUTANT_no_resend
#define RESENDS(x, e)	false
#elif defined(MUTANT_no_resend_same_node)
#define RESENDS(x, e)	(home[e] != home[route[x]])
#else
#define RESENDS(x, e)	true
#endif

/* T2, H4: kept items go to parked, which sorts by stamp, and leave from there. */
inline learn(me, tag)
{
	printf("node %d: hears home is %d at %d\n", me, home[tag], tag);
	if
	:: me < HOSTS -> fact_at_host(me, tag)
	:: else
	fi;
	if
	:: route[me] > 0 && RESENDS(me, tag) ->
		parked[me] = parked[me] | (sent[me] & (255 - UPTO(heard[me])))
	:: else
	fi;
	sent[me] = 0;
	stamped[me] = stamped[me] & parked[me];
	route[me] = tag
}

/* X6: marks below the floor go. */
inline floor(from, at, nr)
{
	printf("node %d: floor m%d of node %d\n", at, nr, from);
	if
	:: mark[AT(at, from)] < nr -> mark[AT(at, from)] = 0
	:: else
	fi;
	if
	:: base[AT(at, from)] < nr -> base[AT(at, from)] = 0
	:: else
	fi;
	if
	:: logged[AT(at, from)] < nr -> logged[AT(at, from)] = 0
	:: else
	fi
}

inline send_floor(origin_node, lowest)
{
	z = 0;
	do
	:: z < HOSTS ->
		if
		:: z == origin_node
		:: else ->
#ifdef MUTANT_floor_at_once
			floor(origin_node, z, lowest)
#else
			stream[AT(origin_node, z)] ! lowest
#endif
		fi;
		z++
	:: else -> z = 0; break
	od
}

#ifdef MUTANT_older_fact_applied
#define NEWER(x, e)		(route[x] != (e))
#else
#define NEWER(x, e)		(route[x] < (e))		/* T2 */
#endif

#define LEARN(e) \
	:: d_step { NEWER(x, e) && (e) <= epoch -> learn(x, e); skip }

proctype origin(byte x)
{
	byte i;
	byte z;

end:
	do
	LEARN(1)
	LEARN(2)
#if EPOCHS >= 3
	LEARN(3)
#endif
#if EPOCHS >= 4
	LEARN(4)
#endif
#if EPOCHS >= 5
	LEARN(5)
#endif
	:: d_step {						/* H1: a new message */
			told[x] < MESSAGES(x) ->
			told[x]++;
			i = told[x];
			if
#ifdef MUTANT_newer_first
			:: CAN_GO(x) -> go(x, i)
#else
			:: CAN_GO(x) && parked[x] == 0 -> go(x, i)
#endif
			:: else -> park(x, i)
			fi;
			i = 0
		}
	:: d_step {						/* H4, H5: the oldest of the parked */
			parked[x] != 0 && CAN_GO(x) ->
			i = ((parked[x] & 1) -> 1 : ((parked[x] & 2) -> 2 : 3));
			parked[x] = parked[x] & (255 - BIT(i));
			go(x, i);
			i = 0
		}
	:: d_step {						/* an announcement arrives, perhaps late */
			announced[x] > heard[x] ->
			heard[x] = announced[x];
			announced[x] = 0
		}
	:: d_step {						/* X6: truncation, and the floor behind it */
			(sent[x] & UPTO(heard[x])) != 0 ->
			sent[x] = sent[x] & (255 - UPTO(heard[x]));
			stamped[x] = stamped[x] & (sent[x] | parked[x]);
			printf("node %d: truncates to m%d\n", x, heard[x]);
#if FLOORS
			i = 1;
			do
			:: i <= told[x] && ((sent[x] | parked[x]) & BIT(i)) == 0 -> i++
			:: else -> break
			od;
			send_floor(x, i);
			i = 0;
#endif
			skip
		}
#ifdef MUTANT_floor_of_heard
	:: d_step {						/* X6: a floor computed from what is volatile */
			heard[x] > floored[x] ->
			floored[x] = heard[x];
			send_floor(x, heard[x] + 1);
			skip
		}
#endif
	od
}

#ifdef MUTANT_take_any_tag
#define OWN_TAG(h, tag)		(own[h] == ACTIVE)
#else
#define OWN_TAG(h, tag)		(own[h] == ACTIVE && own_epoch[h] == (tag))
#endif

#ifdef MUTANT_rebuild_any_tag
#define LOGGED(h, tag)		(own[h] != NO_ROW)
#else
#define LOGGED(h, tag)		(own_epoch[h] == (tag))
#endif

/* The cursor of home h passes the oldest row of node x. */
inline pass(from, at)
{
	stream[AT(from, at)] ? row;
#ifndef MUTANT_row_above_known_refused
	if
	:: row / 8 > route[at] -> learn(at, row / 8)		/* X3, H3: facts come before rows */
	:: else
	fi;
#endif
	if
	:: row / 8 == 0 -> floor(from, at, row)
	:: row / 8 != 0 && OWN_TAG(at, row / 8) ->
		if
		:: row % 8 > mark[AT(at, from)] ->				/* H2 */
			take(at, from, row % 8);
			mark[AT(at, from)] = row % 8
		:: else
		fi;
		logged[AT(at, from)] = MAX(row % 8, logged[AT(at, from)]);
		announced[from] = MAX(mark[AT(at, from)], announced[from])
	:: row / 8 != 0 && !OWN_TAG(at, row / 8) ->
		printf("node %d: refuses m%d tag %d\n", at, row % 8, row / 8);
		if
		:: own[at] != NO_ROW && LOGGED(at, row / 8) ->
			logged[AT(at, from)] = MAX(row % 8, logged[AT(at, from)]);
#ifdef MUTANT_refused_moves_mark
			mark[AT(at, from)] = MAX(row % 8, mark[AT(at, from)])
#endif
		:: else
		fi
	fi;
	row = 0
}

proctype cursor(byte x; byte h)
{
	byte row;
	byte z;

end:
	do
	:: d_step { len(stream[AT(x, h)]) > 0 -> pass(x, h); skip }
#if DEFERS > 0
	:: d_step {						/* the entity is contended: the row waits in R */
			defers > 0 && stream[AT(x, h)] ? [row] && own[h] == ACTIVE && waiting_n[h] == 0 ->
			stream[AT(x, h)] ? <row>;
			if
			:: row / 8 == own_epoch[h] && row % 8 > mark[AT(h, x)] ->
				printf("node %d: m%d of node %d waits\n", h, row % 8, x);
				defers--;
				stream[AT(x, h)] ? row;
				wait(h, x, row % 8);
				mark[AT(h, x)] = row % 8;
				logged[AT(h, x)] = row % 8;
				announced[x] = MAX(row % 8, announced[x])
			:: else
			fi;
			row = 0
		}
#endif
	:: d_step {						/* a home tells its marks; hello asks for them */
			own[h] != NO_ROW && own[h] != STAGED && mark[AT(h, x)] > heard[x] ->
			heard[x] = mark[AT(h, x)]
		}
	od
}

/* Does the export of the last seal fit this host, which may hear of it late? */
#ifdef MUTANT_import_repeated
#define MAY_IMPORT(h)	(own[h] != STAGED || own_epoch[h] != copy_epoch + 1)
#else
#define MAY_IMPORT(h)	(own_epoch[h] < copy_epoch + 1 && route[h] < copy_epoch + 1)
#endif

proctype host(byte h)
{
	byte z;

end:
	do
	:: d_step {						/* M2: also a HandOff that comes late (M11) */
			own[h] == ACTIVE && moving_to[own_epoch[h]] != 0 ->
			printf("node %d: stopping at %d\n", h, own_epoch[h]);
			own[h] = STOPPING;
#ifdef MUTANT_stash_left
			waiting[h] = 0;
			waiting_n[h] = 0;
#endif
#ifndef MUTANT_marks_at_seal
			z = 0;
			do
			:: z < NODES -> base[AT(h, z)] = mark[AT(h, z)]; z++
			:: else -> z = 0; break
			od;
#endif
			skip
		}
	:: d_step {						/* M3, and what an import would read */
			own[h] == STOPPING ->
			printf("node %d: sealed at %d\n", h, own_epoch[h]);
			own[h] = SEALED;
			copy_epoch = own_epoch[h];
			z = 0;
			do
			:: z < NODES ->
#ifdef MUTANT_marks_at_seal
				base[AT(h, z)] = mark[AT(h, z)];
#endif
#ifdef MUTANT_import_without_marks
				copy_base[z] = 0;
#else
				copy_base[z] = base[AT(h, z)];
#endif
				z++
			:: else -> z = 0; break
			od;
			copy_waiting = waiting[h];
			copy_waiting_n = waiting_n[h]
		}
	:: d_step {						/* M4 */
			copy_epoch > 0 && moving_to[copy_epoch] == h + 1 && MAY_IMPORT(h) ->
			printf("node %d: staged for %d\n", h, copy_epoch + 1);
			own[h] = STAGED;
			own_epoch[h] = copy_epoch + 1;
			waiting[h] = copy_waiting;
			waiting_n[h] = copy_waiting_n;
			z = 0;
			do
			:: z < NODES ->
				base[AT(h, z)] = copy_base[z];
				mark[AT(h, z)] = copy_base[z];
				logged[AT(h, z)] = 0;
				z++
			:: else -> z = 0; break
			od;
			skip
		}
	:: d_step {						/* M5: the only point of decision */
			moving && moving_to[epoch] == h + 1 && own[h] == STAGED && own_epoch[h] == epoch + 1 ->
			printf("decided: home is %d at %d\n", h, epoch + 1);
			epoch++;
			home[epoch] = h;
			moving = false
		}
	:: d_step {						/* M1; M10: the last move is complete */
			moves > 0 && !moving && home[epoch] != h &&
			own[home[epoch]] == ACTIVE && own_epoch[home[epoch]] == epoch ->
			printf("decided: moving to %d\n", h);
			moves--;
			moving = true;
			moving_to[epoch] = h + 1
		}
	:: d_step {						/* R: the entity is free again */
			own[h] == ACTIVE && waiting_n[h] > 0 ->
			handle((waiting[h] >> 2) & 3, waiting[h] & 3);
			waiting[h] = waiting[h] >> 5;
			waiting_n[h]--
		}
#ifdef MUTANT_delete_without_epoch
	:: d_step {						/* M7: the last chunk, long after, of whatever is there */
			deleting[h] ->
			deleting[h] = false;
			delete(h);
			skip
		}
#endif
#ifdef MUTANT_equal_epoch_activates
	:: d_step {						/* T2: "moving" is decided under the epoch that is known */
			own[h] == STOPPING || own[h] == SEALED ->
			own[h] = ACTIVE
		}
#endif
#ifdef MUTANT_rotation_without_marks
	:: d_step { logged[AT(h, HOSTS)] > 0 -> logged[AT(h, HOSTS)] = 0 }
#endif
	od
}

/* H7: what is rebuilt at the start; what an origin heard is gone (X6). */
inline crash(node)
{
	printf("node %d: crash\n", node);
	crashes--;
	heard[node] = 0;
	announced[node] = 0;
#ifdef MUTANT_seal_volatile
	own[node] = (own[node] == STOPPING || own[node] == SEALED -> ACTIVE : own[node]);
#endif
	z = 0;
	do
	:: node < HOSTS && z < NODES ->
		if
#if defined(MUTANT_marks_at_seal) || defined(MUTANT_rebuild_while_stopping)
		:: own[node] == ACTIVE || own[node] == STOPPING ->
#else
		:: own[node] == ACTIVE ->
#endif
			mark[AT(node, z)] = MAX(base[AT(node, z)], logged[AT(node, z)])
		:: else -> mark[AT(node, z)] = base[AT(node, z)]
		fi;
		z++
	:: else -> z = 0; break
	od;
#ifdef MUTANT_volatile_route
	route[node] = (node < HOSTS -> route[node] : 0)
#endif
	skip
}

proctype faults()
{
	byte x;
	byte z;

end:
	do
	:: d_step {						/* abort: the epoch rises */
			aborts > 0 && moving ->
			printf("decided: abort, home is %d at %d\n", home[epoch], epoch + 1);
			aborts--;
			moving = false;
#ifdef MUTANT_unseal_same_epoch
			own[home[epoch]] = ACTIVE;
			moving_to[epoch] = 0
#else
			home[epoch + 1] = home[epoch];
			epoch++
#endif
		}
#if CRASHES > 0
	:: atomic {
			crashes > 0 ->
			select(x : 0 .. HOSTS);
			d_step { crash(x); x = 0 }
		}
#endif
	:: d_step {						/* calm: no more faults */
			!moving && moves + aborts + crashes > 0 ->
			moves = 0;
			aborts = 0;
			crashes = 0
		}
	od
}

/* When nothing can happen any more. */
proctype rest()
{
	byte x;

	timeout;
	d_step {
		printf("at rest\n");
		do
		:: x < NODES ->
			assert(handled[x] == MESSAGES(x) && parked[x] == 0 && sent[x] == 0);
			assert(x == home[epoch] || own[x] == NO_ROW);			/* M7 */
			x++
		:: else -> x = 0; break
		od;
		assert(own[home[epoch]] == ACTIVE && own_epoch[home[epoch]] == epoch);
		skip
	}
}

init {
	byte x;
	byte h;

	atomic {
		own[0] = ACTIVE;
		own_epoch[0] = 1;
		x = 0;
		do
		:: x < HOSTS -> route[x] = 1; run host(x); x++
		:: else -> x = 0; break
		od;
		do
		:: x < NODES ->
			run origin(x);
			h = 0;
			do
			:: h < HOSTS ->
				if
				:: MESSAGES(x) > 0 && x != h -> run cursor(x, h)
				:: else
				fi;
				h++
			:: else -> h = 0; break
			od;
			x++
		:: else -> x = 0; break
		od;
		run faults();
		run rest()
	}
}
