/*
 * log.pml
 *	  A worker reads the segments of the log (doc/protocol/log.md, D4) while others append to it, and rotation leaves
 *	  segments, empties them and has them used again (D9): each row is handled once, and in the order of seq.
 *
 * Modelled: senders, as one; rotation by another worker, its TRUNCATE and what it publishes of it apart; turns of the
 * worker: the list of segments, a look at the file and size of each, and the rows, segment by segment, under a lock that
 * ends with the segment. A turn may end, with all it has done, behind each row, and fails where a file is not the one that
 * it has noted.
 *
 * Left out: senders that commit late (P, D7), pages, rewritten tables, rows of the log's own. So rows of a segment follow
 * one another, and the position is a number. Nor are there other workers, whose positions keep a segment as this one's does;
 * the page at which a worker goes on, so each turn reads from the first segment; restarts, at which the order of the segments is read from
 * their rows.
 *
 * A run ends when all rows are handled.
 */
#ifndef ROWS
#define ROWS		5
#endif
#ifndef SEGMENTS
#define SEGMENTS	3
#endif

/* The segments: their files, and the rows in them. */
byte file[SEGMENTS];
byte first[SEGMENTS];			/* 0: none */
byte last[SEGMENTS];
bool locked[SEGMENTS];			/* by the worker */

/* Shared memory, under the append lock. */
byte live[SEGMENTS];			/* oldest first, the current one last */
byte n_live = 1;
byte switches;
byte next_seq = 1;

byte q;							/* the worker's committed position */

#define CURRENT		live[n_live - 1]
#ifdef MUTANT_unpassed_emptied
#define PASSED(s)	true
#else
#define PASSED(s)	(last[s] <= q)
#endif

proctype senders()
{
	do
	:: next_seq <= ROWS ->
		atomic {
			if
			:: first[CURRENT] == 0 -> first[CURRENT] = next_seq
			:: else
			fi;
			last[CURRENT] = next_seq;
			next_seq++
		}
	:: next_seq > ROWS -> break
	od
}

/* The first segment that is not in use and empty; SEGMENTS: none. */
inline find_unused()
{
	unused = 0;
	do
	:: unused == SEGMENTS -> break
	:: else ->
		is_live = false;
		i = 0;
		do
		:: i < n_live -> is_live = is_live || live[i] == unused; i++
		:: else -> break
		od;
		if
		:: !is_live && first[unused] == 0 -> break
		:: else -> unused++
		fi
	od;
	i = 0;
	is_live = false
}

proctype rotation()
{
	byte unused, i, oldest;
	bool is_live;

	do
	/* another segment becomes the current one */
	:: atomic {
		first[CURRENT] != 0 && n_live < SEGMENTS ->
		find_unused();
		if
		:: unused < SEGMENTS ->
			live[n_live] = unused;
			n_live++;
			switches++
		:: else
		fi;
		unused = 0
	}
	/* the oldest one is emptied */
	:: atomic {
		n_live > 1 && first[live[0]] != 0 && !locked[live[0]] && PASSED(live[0]) ->
		oldest = live[0];
		file[oldest]++;
		first[oldest] = 0;
		last[oldest] = 0
	};
	atomic {
		i = 0;
		do
		:: i + 1 < n_live -> live[i] = live[i + 1]; i++
		:: else -> break
		od;
		n_live--;
		live[n_live] = 0;
		i = 0;
		oldest = 0
	}
	:: q == ROWS -> break
	od
}

/* What the turn has noted. */
byte l_n;
byte l_no[SEGMENTS];
byte l_switches;
byte l_file[SEGMENTS];
byte l_rows[SEGMENTS];
byte upto;

inline forget()
{
	l_n = 0;
	l_switches = 0;
	k = 0;
	do
	:: k < SEGMENTS -> l_no[k] = 0; l_file[k] = 0; l_rows[k] = 0; k++
	:: else -> k = 0; break
	od
}

proctype worker()
{
	byte k, s, row, seq;

begin:
	/* a poll that finds nothing is left out */
	if
	:: q == ROWS -> goto done
	:: q + 1 < next_seq
	fi;
	upto = q;
list:
	atomic {
		forget();
		l_n = n_live;
		l_switches = switches;
		do
		:: k < n_live -> l_no[k] = live[k]; k++
		:: else -> k = 0; break
		od
	};
	do
	:: atomic { k < l_n ->
		s = l_no[k];
		l_file[k] = file[s];
		if
		:: first[s] != 0 -> l_rows[k] = last[s] - first[s] + 1
		:: else -> l_rows[k] = 0
		fi;
		s = 0;
		k++ }
	:: k == l_n -> k = 0; break
	od;
#ifndef MUTANT_list_believed
	if
	:: l_switches != switches -> goto list
	:: else
	fi;
#endif
	do
	:: k == l_n -> break
	:: k < l_n && l_rows[k] == 0 -> k++
	:: k < l_n && l_rows[k] > 0 ->
		atomic {
			s = l_no[k];
			locked[s] = true;
			row = 0;
#ifndef MUTANT_file_unseen
			if
			:: file[s] != l_file[k] -> upto = q; k = l_n
			:: else
			fi
#endif
		};
		do
		:: k == l_n || row == l_rows[k] || first[s] == 0 || first[s] + row > last[s] -> break
		:: else ->
			atomic {
				seq = first[s] + row;
				row++;
				if
				:: seq > q -> assert(seq == upto + 1); upto = seq
				:: else
				fi;
				seq = 0
			};
			/* the turn is long enough */
			if
			:: k = l_n
			:: true
			fi
		od;
		atomic {
			locked[s] = false;
			row = 0;
			s = 0;
			if
			:: k < l_n -> k++
			:: else
			fi
		}
	od;
	atomic {
		k = 0;
		q = upto;
		forget()
	};
	goto begin;
done:
	skip
}

init
{
	atomic {
		run senders();
		run rotation();
		run worker()
	}
}
