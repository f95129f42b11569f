/*
 * flow_mark.c
 *		Marks and facts that homes tell origins, with their answers and in notes of their own.
 */
#include "flow_private.h"

void
link_take_marks(Flow *flow, const Letter *letter)
{
	for (int i = 0; i < letter->head.n_marks; i++)
	{
		const MarkItem *mark = &letter->marks[i];
		int owner = flow->owner[flow_lane(flow, mark->type_id, mark->shard)];

		/* a shard of which nothing was sent has no entry, and gets none (T9) */
		if (owner >= 0 &&
			shard_route_known(flow->workers[owner].routes, mark->type_id, mark->shard) != NULL)
			(void) shard_route_done(flow->workers[owner].routes, mark->type_id, mark->shard,
									letter->head.from, mark->rseq);
	}
}

static void
take_facts(Flow *flow, const Letter *letter)
{
	for (int i = 0; i < letter->head.n_facts; i++)
	{
		FactItem fact = letter->facts[i];

		if (flow_fact_is_learned(flow, &fact))
			flow_fact(flow, fact.type_id, fact.shard, &fact.home, fact.n);
	}
}

void
link_add_note(Flow *flow, int32 node, int32 type_id, int32 shard, int64 rseq, bool refused)
{
	Peer *peer;
	PendingNote *note;

	if (node == flow->node || (peer = flow_peer(flow, node)) == NULL)
		return;
	for (int i = peer->notes_sent; i < peer->n_notes; i++)
	{
		note = &peer->notes[i];
		if (note->type_id == type_id && note->shard == shard)
		{
			note->rseq = Max(note->rseq, rseq);
			note->refused |= refused;
			return;
		}
	}
	if (peer->n_notes == peer->note_space)
	{
		peer->note_space = Max(16, peer->note_space * 2);
		peer->notes = pg_realloc(peer->notes, peer->note_space * sizeof(PendingNote));
	}
	note = &peer->notes[peer->n_notes++];
	note->type_id = type_id;
	note->shard = shard;
	note->rseq = rseq;
	note->refused = refused;
}

/* Marks and refusals to one origin; repeated until it answers. */
static void
send_notes(Flow *flow, Peer *peer)
{
	Letter *letter = &flow->scratch;
	Link nothing_told = {0};
	int n = Min(peer->n_notes, MAX_CALL_ROWS / 2);

	memset(&letter->head, 0, sizeof(Datagram));
	letter->head.kind = D_NOTE;
	for (int i = 0; i < n; i++)
	{
		const PendingNote *note = &peer->notes[i];

		if (note->rseq > 0)
		{
			MarkItem *mark = &letter->marks[letter->head.n_marks++];

			mark->type_id = note->type_id;
			mark->shard = note->shard;
			mark->rseq = note->rseq;
		}
		if (note->refused)
		{
			memset(nothing_told.told, 0, sizeof(nothing_told.told));
			link_add_fact(flow, letter, &nothing_told, note->type_id, note->shard);
		}
	}
	peer->notes_sent = n;
	peer->note_req = letter->head.req = ++flow->next_conn;
	peer->note_deadline = flow_now(flow) + flow->settings.call_timeout;
	peer->note_tries++;
	link_send(flow, peer->node, letter);
}

/* An origin that does not answer says hello when it is back, and hears all marks then. */
bool
link_notes(Flow *flow)
{
	int64 now = flow_now(flow);

	for (int i = 0; i < flow->n_peers; i++)
	{
		Peer *peer = &flow->peers[i];

		if (!flow->pushes || peer->n_notes == 0 ||
			(peer->note_req != 0 && now < peer->note_deadline))
			continue;
		if (peer->note_tries > 20)
			peer->n_notes = peer->notes_sent = peer->note_tries = 0;
		else
			send_notes(flow, peer);
		return true;
	}
	return false;
}

void
link_take_note(Flow *flow, const Letter *letter)
{
	Datagram head = letter->head;

	link_take_marks(flow, letter);
	take_facts(flow, letter);
	flow_poke(flow);
	memset(&flow->scratch.head, 0, sizeof(Datagram));
	flow->scratch.head.kind = D_NOTE_ANSWER;
	flow->scratch.head.req = head.req;
	flow->scratch.head.to_inc = head.from_inc;
	link_send(flow, head.from, &flow->scratch);
}

void
link_take_note_answer(Flow *flow, const Datagram *head)
{
	Peer *peer = flow_peer(flow, head->from);

	if (peer == NULL || peer->note_req != head->req || head->to_inc != flow->inc)
		return;
	peer->n_notes -= peer->notes_sent;
	if (peer->n_notes > 0)
		memmove(peer->notes, peer->notes + peer->notes_sent, peer->n_notes * sizeof(PendingNote));
	peer->notes_sent = 0;
	peer->note_tries = 0;
	peer->note_req = 0;
}
