/*
 * log.pml
 *	  A worker reads the segments of the log (doc/protocol/log.md, D4) while others append to it, and rotation leaves
 *	  segments, empties them and has them used again (D9): each row is handled once, and in the order of seq.
 *
 * Modelled: senders, as one; rotation by another worker, its TRUNCATE and what it publishes of it apart; turns of the
 * worker: the list of segments, a look at the file and size of each, and the rows, segment by segment, under a lock that
 * ends with the segment. A turn may end, with all it has done, behind each row, and fails where a file is not the one that
 * it has noted. The next one goes on in the segment, and at the row, that the last one has passed, unless what it has noted of
 * the files has changed. The worker may start anew, with its position alone.
 *
 * Left out: senders that commit late (P, D7), so that a reader that begins at the first segment has nothing else to look
 * for; pages, rewritten tables, rows of the log's own. So rows of a segment follow one another, and the position is a
 * number. Nor are there other workers, whose positions keep a segment as this one's does; and restarts of the server, at
 * which the order of the segments is read from their rows.
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

#ifndef STARTS
#define STARTS	1
#endif
byte starts = STARTS;			/* of the worker */

/* What the turn has noted: the list, and by number of the segment its rows. */
byte l_n;
byte l_no[SEGMENTS];
byte l_switches;
byte l_rows[SEGMENTS];
byte upto;
bool fails;

/* What the worker has in memory between turns: files (0: none) and rows as noted, and the row that was passed last. */
byte noted[SEGMENTS];
byte noted_rows[SEGMENTS];
byte resume = SEGMENTS;			/* its segment; SEGMENTS: none */
byte resume_row;
bool void_places = true;

inline forget_places()
{
	resume = SEGMENTS;
	resume_row = 0
}

inline forget()
{
	l_n = 0;
	l_switches = 0;
	k = 0;
	do
	:: k < SEGMENTS -> l_no[k] = 0; l_rows[k] = 0; k++
	:: else -> k = 0; break
	od
}

proctype worker()
{
	byte k, s, row, seq, new_resume, new_row;

begin:
	/* a poll that finds nothing is left out */
	if
	:: q == ROWS -> goto done
	:: atomic { starts > 0 && q + 1 < next_seq ->
		starts--;
		void_places = true;
		forget_places();
		do
		:: k < SEGMENTS -> noted[k] = 0; noted_rows[k] = 0; k++
		:: else -> k = 0; break
		od }
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
		if
		:: first[s] != 0 -> l_rows[k] = last[s] - first[s] + 1
		:: else -> l_rows[k] = 0
		fi;
#ifndef MUTANT_places_of_another_file
		if
		:: (noted[s] != 0 && noted[s] != file[s] + 1) || l_rows[k] < noted_rows[s] ->
			void_places = true;
			if :: resume == s -> forget_places() :: else fi
		:: else
		fi;
#endif
		noted[s] = file[s] + 1;
		noted_rows[s] = l_rows[k];
		s = 0;
		k++ }
	:: atomic { k == l_n ->
		/* Those that are not in the list: one may be in use again before a turn reads on. */
		k = 0;
		do
		:: k < SEGMENTS ->
			s = 0;
			do
			:: s < l_n && l_no[s] != k -> s++
			:: else -> break
			od;
			if
			:: s == l_n ->
				noted[k] = 0;
				noted_rows[k] = 0;
#ifndef MUTANT_places_of_no_segment
				if :: resume == k -> forget_places() :: else fi
#endif
			:: else
			fi;
			k++
		:: else -> k = 0; s = 0; break
		od };
		break
	od;
#ifndef MUTANT_list_believed
	if
	:: l_switches != switches -> goto list
	:: else
	fi;
#endif
	/* where it goes on */
	atomic {
		new_resume = resume;
		new_row = resume_row;
		if
		:: !void_places && resume < SEGMENTS ->
			do
			:: k < l_n && l_no[k] != resume -> k++
			:: else -> break
			od;
			k = (k == l_n -> 0 : k)
		:: else
		fi
	};
	do
	:: k == l_n -> break
	:: k < l_n && l_rows[k] == 0 -> k++
	:: k < l_n && l_rows[k] > 0 ->
		atomic {
			s = l_no[k];
			locked[s] = true;
			row = (!void_places && resume == s -> resume_row : 0);
#ifndef MUTANT_file_unseen
			if
			:: file[s] + 1 != noted[s] -> upto = q; k = l_n; new_resume = resume; new_row = resume_row; fails = true
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
				new_resume = s;
				new_row = row - 1;
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
		if
		:: fails -> fails = false
		:: else -> resume = new_resume; resume_row = new_row; void_places = false
		fi;
		new_resume = 0;
		new_row = 0;
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
