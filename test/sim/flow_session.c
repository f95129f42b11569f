/*
 * flow_session.c
 *		Clients: what they tell and send again, and their commits, which return once they are past the gate.
 */
#include "flow_private.h"

#define MAX_REDRIVEN 4 /* by one transaction */

/* Commits of clients that are durable now return. */
void
flow_return_commits(Flow *flow)
{
	for (int i = 0; i < FLOW_SESSIONS; i++)
	{
		Session *session = &flow->sessions[i];

		if (!session->waits || !store_released(flow->store, session->lsn))
			continue;
		for (int j = 0; j < session->n_tells && !flow->retired; j++)
			check_reported(flow->check, session->tells[j]);
		for (int j = 0; j < session->n_redriven && !flow->retired; j++)
			check_redriven(flow->check, session->redriven[j], flow->instance);
		session->n_tells = session->n_redriven = 0;
		session->waits = false;
	}
}

/* Is there a commit of a client that could return? */
bool
flow_commits_return(const Flow *flow)
{
	for (int i = 0; i < FLOW_SESSIONS; i++)
	{
		if (flow->sessions[i].waits && store_released(flow->store, flow->sessions[i].lsn))
			return true;
	}
	return false;
}

bool
flow_session_open(const Flow *flow, int session)
{
	return flow->sessions[session].tx != NULL;
}

bool
flow_session_idle(const Flow *flow, int session)
{
	return flow->up && flow->sessions[session].tx == NULL && !flow->sessions[session].waits;
}

int64
flow_tell(Flow *flow, int session, int32 type_id, int32 shard, int32 entity)
{
	Session *s = &flow->sessions[session];
	FlowRow row = {.kind = ROW_TELL, .entity = entity};

	if (!flow->up || s->waits || s->n_tells == MAX_SESSION_TELLS || store_full(flow->store))
		return 0;
	if (s->tx == NULL)
		s->tx = store_begin(flow->store);
	row.item.type_id = type_id;
	row.item.shard = shard;
	row.item.epoch = SHARD_NO_EPOCH;
	row.id = check_tell(flow->check, flow->instance, flow->life * FLOW_SESSIONS + session, type_id,
						shard, entity);
	if (flow_is_ordered(flow, type_id, shard, entity))
		row.number = check_draw_number(flow->check, row.id, flow_now(flow), &row.stops);
	flow_append(flow, s->tx, &row);
	flow_note(flow,
			  "session %d tells message " INT64_FORMAT
			  " to shard %d/%d entity %d, number " INT64_FORMAT,
			  session, row.id, type_id, shard, entity, row.number);
	s->tells[s->n_tells++] = row.id;
	return row.id;
}

/* As a new message of this node, with nothing of the way that it went (D26). */
void
flow_redrive(Flow *flow, int session)
{
	Session *s = &flow->sessions[session];
	StoreKey key = KEY(0);
	const FlowRow *dead;

	if (!flow->up || s->waits || store_full(flow->store))
		return;
	if (s->tx == NULL)
		s->tx = store_begin(flow->store);
	while (s->n_redriven < MAX_REDRIVEN &&
		   (dead = store_at_or_next(flow->store, s->tx, T_DEAD, &key)) != NULL)
	{
		FlowRow row = *dead;

		if (row.given_up && store_remove(s->tx, T_DEAD, key))
		{
			row.given_up = false;
			row.item.sent = false;
#ifndef SHARD_MUTANT_REDRIVE_OLD_STAMP
			memset(&row.item.stamp, 0, sizeof(row.item.stamp));
#ifndef SHARD_MUTANT_REDRIVE_OLD_TAG
			row.item.epoch = SHARD_NO_EPOCH;
#endif
#endif
			flow_append(flow, s->tx, &row);
			flow_note(flow, "session %d redrives message " INT64_FORMAT, session, row.id);
			s->redriven[s->n_redriven++] = row.id;
		}
		key.k[3]++;
	}
}

void
flow_commit(Flow *flow, int session)
{
	Session *s = &flow->sessions[session];

	if (s->tx == NULL)
		return;
	s->lsn = store_commit(s->tx);
	s->tx = NULL;
	s->waits = true;
	for (int i = 0; i < s->n_tells; i++)
		check_committed(flow->check, s->tells[i]);
	flow_poke(flow);
}

void
flow_rollback(Flow *flow, int session)
{
	Session *s = &flow->sessions[session];

	if (s->tx == NULL)
		return;
	store_abort(s->tx);
	s->tx = NULL;
	for (int i = 0; i < s->n_tells; i++)
		check_aborted(flow->check, s->tells[i]);
	s->n_tells = s->n_redriven = 0;
	flow_poke(flow);
}
