/*
 * stream.pml
 *	  One stream of doc/protocol/streams.md (X1-X5) under its gate (G1): no gap is taken in, no row
 *	  twice, and whoever went back in time is quarantined, never silently believed.
 *
 * Modelled: an origin that appends rows with dense numbers and a receiver that stores rows and
 * position in one transaction; both commit first and flush later, and a crash takes the unflushed
 * rest; calls of up to two rows, two of them under way on a connection; a call that fails while the
 * one behind it goes through; replies lost with their connection; the backend of a closed connection
 * that commits late or never; hello; truncation; a crash of either; an origin put back from any
 * older copy, which may write before it meets anybody; a receiver put back from any older copy.
 *
 * A row carries the incarnation number that wrote it, as in life, and for the assertions the true
 * writer, which no copy has twice. Numbers are granted (I1), so they never come back.
 *
 * Left out: gen (what an operator does after a quarantine), other lanes (each has its own lock and
 * counters), a second live claimant (I3), the fence by a member fact (I5).
 *
 * At the end of every run, and every run ends, the receiver has all rows in the origin's words, or
 * the link is quarantined and one of them was put back.
 */
#ifndef ROWS
#define ROWS		4			/* most rows in the stream; at most 7 */
#endif
#ifndef CLOSES
#define CLOSES		1			/* connections lost for no reason */
#endif
#ifndef FAILURES
#define FAILURES	1			/* calls that end with an error */
#endif
#ifndef ORIGIN_CRASHES
#define ORIGIN_CRASHES		0
#endif
#ifndef RECEIVER_CRASHES
#define RECEIVER_CRASHES	0
#endif
#ifndef ORIGIN_RESTORES
#define ORIGIN_RESTORES		0
#endif
#ifndef RECEIVER_RESTORES
#define RECEIVER_RESTORES	0
#endif

byte closes = CLOSES;
byte failures = FAILURES;
byte origin_crashes = ORIGIN_CRASHES;
byte receiver_crashes = RECEIVER_CRASHES;
byte origin_restores = ORIGIN_RESTORES;
byte receiver_restores = RECEIVER_RESTORES;
bool restored;
bool quarantined;

/* The origin. Row s was written by incarnation o_inc[s]: that is the lineage of X4. */
byte o_inc[ROWS + 1];
byte o_writer[ROWS + 1];		/* ghost */
byte o_last;
byte o_flushed;
byte o_acked;					/* greatest received heard of */
byte o_acked_flushed;
byte o_truncated;
byte o_now = 1;					/* its incarnation */
byte o_writer_now = 1;
byte granted = 1;
byte writers = 1;

/* The connection, seen from the origin. */
#define DOWN		0
#define GREETED		1			/* hello is answered, the answer is under way */
#define UP			2
byte link;
bool broken;					/* an error came back: close it (X5) */
byte next;
byte hello_inc;
byte hello_seq;

/*
 * The receiver: the rows in the order they were taken in, and the position. In the mutants the two
 * may disagree, so a row says its number.
 */
#define TAKEN		(2 * ROWS)
byte r_seq[TAKEN + 1];
byte r_inc[TAKEN + 1];
byte r_writer[TAKEN + 1];		/* ghost */
byte r_count;
byte r_count_flushed;
byte r_position;
byte r_position_flushed;
byte r_from;					/* from.inc_no of the last hello */

/* Calls under way; the rows in them are copies. */
#define NONE		0
#define SENT		1			/* its connection is there; served in the order sent */
#define ZOMBIE		2			/* its connection is closed, the backend does not know */
#define DONE		3			/* committed; the reply waits for the gate */
#define HALF		4			/* mutant: rows are committed, the position is not */
#define CALLS		2
byte call_state[CALLS];
byte call_from[CALLS];
byte call_first[CALLS];
byte call_rows[CALLS];
byte call_inc[CALLS * 2];
byte call_writer[CALLS * 2];
byte call_reply[CALLS];
byte call_count[CALLS];			/* r_count at its commit: what the gate looks at */
bool call_late[CALLS];				/* mutant: a zombie between its two commits */

inline clear(c)
{
	call_state[c] = NONE;
	call_from[c] = 0;
	call_first[c] = 0;
	call_rows[c] = 0;
	call_inc[2 * c] = 0;
	call_inc[2 * c + 1] = 0;
	call_writer[2 * c] = 0;
	call_writer[2 * c + 1] = 0;
	call_reply[c] = 0;
	call_count[c] = 0;
	call_late[c] = false
}

/* X5: the backends of the connection live on; replies are lost. */
inline close_link()
{
	link = DOWN;
	broken = false;
	next = 0;
	hello_inc = 0;
	hello_seq = 0;
	i = 0;
	do
	:: i < CALLS ->
		if
		:: call_state[i] == SENT -> call_state[i] = ZOMBIE
		:: call_state[i] == HALF -> call_late[i] = true
		:: call_state[i] == DONE -> clear(i)
		:: else
		fi;
		i++
	:: else -> i = 0; break
	od
}

inline backends_die()
{
	close_link();
	i = 0;
	do
	:: i < CALLS -> clear(i); i++
	:: else -> i = 0; break
	od
}

/* Forgets what the origin has above its first n rows. */
inline origin_back_to(n)
{
	i = n + 1;
	do
	:: i <= ROWS -> o_inc[i] = 0; o_writer[i] = 0; i++
	:: else -> i = 0; break
	od;
	o_last = n;
	o_flushed = n
}

inline receiver_back_to(kept, seq)
{
	i = kept + 1;
	do
	:: i <= TAKEN -> r_seq[i] = 0; r_inc[i] = 0; r_writer[i] = 0; i++
	:: else -> i = 0; break
	od;
	r_count = kept;
	r_count_flushed = kept;
	r_position = seq;
	r_position_flushed = seq
}

/* What the origin takes for delivered, up to seq, the receiver has in the origin's words. */
inline check_delivered(seq)
{
	i = 1;
	do
	:: i <= seq -> assert(r_seq[i] == i && r_writer[i] == o_writer[i]); i++
	:: else -> i = 0; break
	od
}

/* I1: every start is a new incarnation. */
inline new_incarnation(number)
{
	granted++;
	writers++;
	o_now = number;
	o_writer_now = writers;
	close_link()
}

inline put_back_origin(n)
{
	printf("origin: put back with %d rows\n", n);
	origin_restores--;
	restored = true;
#ifdef MUTANT_incarnation_counted_locally
	new_incarnation((n == 0 -> 1 : o_inc[n]) + 1);
#else
	new_incarnation(granted);
#endif
	origin_back_to(n);
	if
	:: o_acked_flushed > n -> o_acked_flushed = n
	:: else
	fi;
	o_acked = o_acked_flushed;
	if
	:: o_truncated > n -> o_truncated = n
	:: else
	fi
}

#ifdef MUTANT_lineage_by_number
#define IN_LINEAGE(inc, seq)	((seq) <= o_last)
#else
#define IN_LINEAGE(inc, seq)	((seq) == 0 || ((seq) <= o_last && o_inc[seq] == (inc)))
#endif

#ifdef MUTANT_acked_not_compared
#define NOT_REGRESSED(seq)		true
#else
#define NOT_REGRESSED(seq)		((seq) >= o_acked)
#endif

#ifdef MUTANT_send_before_gate
#define SENDABLE				o_last
#else
#define SENDABLE				o_flushed
#endif

proctype origin()
{
	byte i;
	byte n;

end:
	do
	:: d_step {						/* X1: seq = last + 1 */
			!quarantined && o_last < ROWS ->
			o_last++;
			printf("origin: writes row %d as incarnation %d\n", o_last, o_now);
			o_inc[o_last] = o_now;
			o_writer[o_last] = o_writer_now
		}
	:: d_step {						/* G1; X6: what is durably known as received goes */
			!quarantined && (o_flushed < o_last || o_acked_flushed < o_acked) ->
			printf("origin: flush\n");
			o_flushed = o_last;
			o_acked_flushed = o_acked;
			o_truncated = o_acked
		}
	:: d_step {						/* X4: the answer to hello */
			!quarantined && link == GREETED ->
			printf("origin: hello is answered %d/%d\n", hello_inc, hello_seq);
			if
			:: IN_LINEAGE(hello_inc, hello_seq) && NOT_REGRESSED(hello_seq) ->
				link = UP;
				next = hello_seq + 1;
				check_delivered(hello_seq);
				o_acked = (hello_seq > o_acked -> hello_seq : o_acked)
			:: else ->
				printf("quarantined\n");
				quarantined = true;
				/* No false alarm: a crash alone does not do this. */
				assert(restored)
			fi;
			hello_inc = 0;
			hello_seq = 0;
			skip
		}
	:: d_step {
			!quarantined && link != DOWN && broken ->
			printf("origin: closes the connection\n");
			close_link();
			skip
		}
	:: d_step {
			!quarantined && link != DOWN && closes > 0 ->
			printf("origin: the connection is lost\n");
			closes--;
			close_link();
			skip
		}
	:: d_step {
			!quarantined && origin_crashes > 0 ->
			printf("origin: crash\n");
			origin_crashes--;
			new_incarnation(granted);
			n = o_flushed;
			origin_back_to(n);
			n = 0;
			o_acked = o_acked_flushed
		}
#if ORIGIN_RESTORES > 0
	:: atomic {						/* any older copy; what it knew of acks, at most what it had */
			!quarantined && origin_restores > 0 ->
			select(n : 0 .. o_flushed);
			d_step {
				put_back_origin(n);
				n = 0
			}
		}
#endif
#ifdef MUTANT_truncate_before_durable
	:: d_step { !quarantined && o_truncated < o_acked -> o_truncated = o_acked }
#endif
	od
}

/* The pusher and the backend of one call. The other slot is c = 1 - me. */
#define IN_TURN(c)	(call_state[1 - (c)] != SENT || call_first[1 - (c)] > call_first[c])

#ifdef MUTANT_fence_dropped
#define FENCED(c)	false
#else
#define FENCED(c)	(call_from[c] != r_from)		/* X3 (3): below: fenced; above: hello first */
#endif

#ifdef MUTANT_gap_check_dropped
#define GAP(c)		false
#else
#define GAP(c)		(call_first[c] > r_position + 1)		/* X3 (4) */
#endif

#ifdef MUTANT_greater_or_equal
#define SKIPPED(seq)	((seq) < r_position)
#elif defined(MUTANT_position_not_compared)
#define SKIPPED(seq)	false
#else
#define SKIPPED(seq)	((seq) <= r_position)		/* X3 (5) */
#endif

#ifdef MUTANT_ack_before_gate
#define GATE(count)		true
#else
#define GATE(count)		((count) <= r_count_flushed)
#endif

inline fail(c)
{
	if
	:: call_state[c] == SENT -> broken = true
	:: else
	fi;
	clear(c)
}

/* X3 (6) for the rows of a call. */
inline take_rows(c)
{
	i = 0;
	do
	:: i < call_rows[c] ->
		if
		:: SKIPPED(call_first[c] + i) -> skip
		:: else ->
			printf("receiver: takes row %d of incarnation %d\n", call_first[c] + i, call_inc[2 * c + i]);
			/* Dense: no gap, and no row twice. */
			assert(call_first[c] + i == (r_count == 0 -> 0 : r_seq[r_count]) + 1);
			r_count++;
			r_seq[r_count] = call_first[c] + i;
			r_inc[r_count] = call_inc[2 * c + i];
			r_writer[r_count] = call_writer[2 * c + i]
		fi;
		i++
	:: else -> i = 0; break
	od
}

inline set_position(c)
{
	if
	:: SKIPPED(call_first[c] + call_rows[c] - 1) -> skip
	:: else -> r_position = call_first[c] + call_rows[c] - 1
	fi
}

inline finish(c)
{
	if
	:: call_state[c] == ZOMBIE || call_late[c] -> clear(c)
	:: else ->
		call_state[c] = DONE;
		call_reply[c] = r_position;
		call_count[c] = r_count
	fi
}

inline send(c, rows)
{
	printf("origin: sends %d rows from %d\n", rows, next);
	assert(next > o_truncated);			/* they are still there */
	call_state[c] = SENT;
	call_from[c] = o_now;
	call_first[c] = next;
	call_rows[c] = rows;
	i = 0;
	do
	:: i < rows ->
		call_inc[2 * c + i] = o_inc[next + i];
		call_writer[2 * c + i] = o_writer[next + i];
		i++
	:: else -> i = 0; break
	od;
	next = next + rows
}

proctype call(byte c)
{
	byte i;

end:
	do
	:: d_step {						/* T3: nothing above the gate */
			!quarantined && link == UP && !broken && call_state[c] == NONE && next <= SENDABLE ->
			send(c, 1);
			skip
		}
	:: d_step {
			!quarantined && link == UP && !broken && call_state[c] == NONE && next < SENDABLE ->
			send(c, 2);
			skip
		}
	:: d_step {						/* X3: one transaction */
			!quarantined && (call_state[c] == ZOMBIE || (call_state[c] == SENT && IN_TURN(c))) ->
			if
			:: FENCED(c) || GAP(c) ->
				printf("receiver: refuses %d rows from %d\n", call_rows[c], call_first[c]);
				fail(c)
			:: else ->
				take_rows(c);
#ifdef MUTANT_position_after_commit
				call_late[c] = (call_state[c] == ZOMBIE);
				call_state[c] = HALF
#else
				set_position(c);
				finish(c)
#endif
			fi;
			skip
		}
#ifdef MUTANT_position_after_commit
	:: d_step {
			!quarantined && call_state[c] == HALF ->
			set_position(c);
			finish(c);
			skip
		}
#endif
	:: d_step {						/* the call fails; the next one of the connection may not */
			!quarantined && failures > 0 && call_state[c] == SENT && IN_TURN(c) ->
			printf("receiver: the call from %d fails\n", call_first[c]);
			failures--;
			fail(c);
			skip
		}
	:: d_step {						/* a backend hears of its connection before it commits */
			!quarantined && call_state[c] == ZOMBIE ->
			fail(c);
			skip
		}
	:: d_step {						/* X3 (7): the reply, past the gate */
			!quarantined && call_state[c] == DONE && link == UP && GATE(call_count[c]) ->
			printf("origin: received %d\n", call_reply[c]);
			check_delivered(call_reply[c]);
			o_acked = (call_reply[c] > o_acked -> call_reply[c] : o_acked);
#ifndef MUTANT_next_not_raised
			/* A zombie may have taken in more than this connection was sent. */
			next = (call_reply[c] < next -> next : call_reply[c] + 1);
#endif
			clear(c);
			skip
		}
	od
}

proctype receiver()
{
	byte i;
	byte n;

end:
	do
	:: d_step {
			!quarantined && (r_count_flushed < r_count || r_position_flushed < r_position) ->
			printf("receiver: flush\n");
			r_count_flushed = r_count;
			r_position_flushed = r_position
		}
	:: d_step {						/* X4: hello; its answer passes the gate like any */
			!quarantined && link == DOWN && GATE(r_count) ->
			printf("receiver: hello of incarnation %d\n", o_now);
			link = GREETED;
			r_from = o_now;
			hello_seq = r_position;
			hello_inc = r_inc[r_position]
		}
	:: d_step {
			!quarantined && receiver_crashes > 0 ->
			printf("receiver: crash\n");
			receiver_crashes--;
			backends_die();
			n = r_count_flushed;
			receiver_back_to(n, r_position_flushed);
			n = 0
		}
#if RECEIVER_RESTORES > 0
	:: atomic {
			!quarantined && receiver_restores > 0 ->
			select(n : 0 .. r_count_flushed);
			d_step {
				printf("receiver: put back with %d rows\n", n);
				receiver_restores--;
				restored = true;
				backends_die();
				receiver_back_to(n, n);
				r_from = r_inc[n];
				n = 0
			}
		}
#endif
	od
}

/* When nothing can happen any more. */
proctype rest()
{
	byte i;

	timeout;
	d_step {
		printf("at rest: origin has %d, receiver %d\n", o_last, r_position);
		if
		:: quarantined -> assert(restored)
		:: else ->
			assert(o_acked == o_last && r_position == o_last && r_count == o_last);
			check_delivered(o_last)
		fi;
		skip
	}
}

init {
	atomic {
		run origin();
		run receiver();
		run call(0);
		run call(1);
		run rest()
	}
}
