/*
 * flow_cursor.c
 *		What a turn reads of the log: from its lanes' cursors forward, and what senders left behind that
 *		have ended since (D4-D7).
 */
#include "flow_turn.h"

int64
turn_lowest_q(const Worker *worker)
{
	int64 lowest = PG_INT64_MAX;

	for (int lane = 0; lane < FLOW_LANES; lane++)
	{
		if (worker->lanes & (1u << lane))
			lowest = Min(lowest, worker->cursors[lane].q);
	}
	return lowest;
}

static bool
was_open(const Worker *worker, int64 xid)
{
	for (int i = 0; i < worker->n_open; i++)
	{
		if (worker->open[i] == xid)
			return true;
	}
	return false;
}

Sender *
turn_find_sender(CursorRow *cursor, int64 xid)
{
	for (int i = 0; i < cursor->n_senders; i++)
	{
		if (cursor->senders[i].xid == xid)
			return &cursor->senders[i];
	}
	return NULL;
}

/* Of which lane is a row of the log? Rows of the log itself are of none. */
static int
row_lane(const Flow *flow, const FlowRow *row)
{
	if (row->kind == ROW_MARK)
		return -1;
	if (row->kind == ROW_FLOOR)
		return row->item.stamp.b;
	return flow_lane(flow, row->item.type_id, row->item.shard);
}

bool
turn_has_lane(const Worker *worker, int lane)
{
	return lane >= 0 && (worker->lanes & (1u << lane)) != 0;
}

void
turn_read_cursors(Worker *worker)
{
	for (int lane = 0; lane < FLOW_LANES; lane++)
	{
		const CursorRow *row;

		if (!turn_has_lane(worker, lane))
			continue;
		row = store_get(worker->flow->store, NULL, T_CURSOR, KEY(lane));
		if (row != NULL)
			worker->cursors[lane] = *row;
		else
			memset(&worker->cursors[lane], 0, sizeof(CursorRow));
	}
}

static void
remove_ended(Worker *worker)
{
	for (int lane = 0; lane < FLOW_LANES; lane++)
	{
		CursorRow *cursor = &worker->cursors[lane];
		int kept = 0;

		if (!turn_has_lane(worker, lane))
			continue;
		for (int i = 0; i < cursor->n_senders; i++)
		{
			if (was_open(worker, cursor->senders[i].xid))
				cursor->senders[kept++] = cursor->senders[i];
		}
		if (kept != cursor->n_senders)
			worker->changed |= worker->lanes;
		cursor->n_senders = kept;
	}
}

/* The first row that a sender which has ended left behind. */
static int64
first_of_ended(Worker *worker)
{
	int64 first = PG_INT64_MAX;

	for (int lane = 0; lane < FLOW_LANES; lane++)
	{
		for (int i = 0; turn_has_lane(worker, lane) && i < worker->cursors[lane].n_senders; i++)
		{
			const Sender *sender = &worker->cursors[lane].senders[i];

			if (!was_open(worker, sender->xid))
				first = Min(first, sender->first);
		}
	}
	return first;
}

/* Rows of ended senders, merged by seq. All of them go before q moves (D7). */
void
turn_drain_senders(Worker *worker)
{
	Flow *flow = worker->flow;
	int budget = flow->settings.step_messages;
	StoreKey key = KEY(Max(worker->at, first_of_ended(worker)));
	const FlowRow *row;
	bool open;

	while (key.k[0] <= worker->tail &&
		   (row = store_scan(flow->store, T_INBOX, &key, &open)) != NULL &&
		   key.k[0] <= worker->tail)
	{
		int lane = row_lane(flow, row);
		CursorRow *cursor = turn_has_lane(worker, lane) ? &worker->cursors[lane] : NULL;
		Sender *sender = cursor != NULL ? turn_find_sender(cursor, row->xid) : NULL;

		if (sender != NULL && !open && !was_open(worker, row->xid) && key.k[0] >= sender->first &&
			key.k[0] <= cursor->q)
		{
			sender->first = key.k[0] + 1;
			worker->changed |= worker->lanes;
			turn_process(worker, row);
			worker->at = key.k[0] + 1;
			if (worker->handled >= flow->settings.turn_messages)
			{
				worker->more = true;
				worker->phase = TURN_COMMIT;
				return;
			}
			if (--budget == 0)
				return;
		}
		key = KEY(key.k[0] + 1);
	}
	remove_ended(worker);
	worker->phase = TURN_STASH;
}

/* A sender that is still open is remembered and passed. False: no room for it. */
static bool
pass_sender(Worker *worker, CursorRow *cursor, int64 xid, int64 seq)
{
#ifdef SHARD_MUTANT_P_PASSED
	return true;
#endif
	if (turn_find_sender(cursor, xid) != NULL)
		return true;
	if (cursor->n_senders == MAX_SENDERS)
		return false;
	cursor->senders[cursor->n_senders].xid = xid;
	cursor->senders[cursor->n_senders].first = seq;
	cursor->n_senders++;
	worker->changed |= worker->lanes;
	return true;
}

/* q of all lanes is the last row that was looked at. */
static void
move_q(Worker *worker, int64 q)
{
	for (int lane = 0; lane < FLOW_LANES; lane++)
	{
		if (turn_has_lane(worker, lane))
			worker->cursors[lane].q = Max(worker->cursors[lane].q, q);
	}
}

void
turn_scan_forward(Worker *worker)
{
	Flow *flow = worker->flow;
	int budget = flow->settings.step_messages;
	StoreKey key = KEY(turn_lowest_q(worker) + 1);
	const FlowRow *row;
	bool open;

	while (key.k[0] <= worker->tail &&
		   (row = store_scan(flow->store, T_INBOX, &key, &open)) != NULL &&
		   key.k[0] <= worker->tail)
	{
		int lane = row_lane(flow, row);

		if (turn_has_lane(worker, lane) && key.k[0] > worker->cursors[lane].q)
		{
			CursorRow *cursor = &worker->cursors[lane];

			if (budget == 0)
				return;
			budget--;
			if (open || was_open(worker, row->xid) || turn_find_sender(cursor, row->xid) != NULL)
			{
				if (!pass_sender(worker, cursor, row->xid, key.k[0]))
				{
					worker->phase = TURN_COMMIT;
					return;
				}
			}
			else
				turn_process(worker, row);
			worker->changed |= worker->lanes;
		}
		move_q(worker, key.k[0]);
		if (worker->handled >= flow->settings.turn_messages)
		{
			worker->more = true;
			worker->phase = TURN_COMMIT;
			return;
		}
		key = KEY(key.k[0] + 1);
	}
	worker->seen = worker->tail;
	worker->phase = TURN_COMMIT;
}
