/*
 * flow_letter.c
 *		What nodes send to one another, as bytes, and who gets it.
 */
#include "flow_private.h"

static void
put_bytes(char **at, const void *bytes, size_t length)
{
	memcpy(*at, bytes, length);
	*at += length;
}

void
link_send(Flow *flow, int32 to, Letter *letter)
{
	Datagram *head = &letter->head;
	size_t length = sizeof(Datagram) + head->n_sections * sizeof(Section) +
					head->n_rows * sizeof(FlowRow) + head->n_facts * sizeof(FactItem) +
					head->n_marks * sizeof(MarkItem) + head->n_exports * sizeof(ExportItem);
	char *bytes = pg_malloc(length);
	char *at = bytes;

	head->from = flow->node;
	head->from_inc = flow->inc;
	put_bytes(&at, head, sizeof(Datagram));
	put_bytes(&at, letter->sections, head->n_sections * sizeof(Section));
	put_bytes(&at, letter->rows, head->n_rows * sizeof(FlowRow));
	put_bytes(&at, letter->facts, head->n_facts * sizeof(FactItem));
	put_bytes(&at, letter->marks, head->n_marks * sizeof(MarkItem));
	if (head->n_exports > 0)
		put_bytes(&at, letter->exports, head->n_exports * sizeof(ExportItem));
	flow->host.send(flow->host.context, to, bytes, length);
	free(bytes);
}

static void
get_bytes(const char **at, void *to, size_t length)
{
	memcpy(to, *at, length);
	*at += length;
}

void
link_receive(Flow *flow, const Letter *letter)
{
	switch (letter->head.kind)
	{
		case D_HELLO:
		case D_CALL:
			link_take_call(flow, letter);
			break;
		case D_ANSWER:
			if (letter->head.to_inc == flow->inc)
				link_take_answer(flow, letter);
			break;
		case D_NOTE:
			link_take_note(flow, letter);
			break;
		case D_NOTE_ANSWER:
			link_take_note_answer(flow, &letter->head);
			break;
		default:
			move_receive(flow, letter);
			break;
	}
}

void
flow_receive(Flow *flow, int32 from, const void *bytes, size_t length)
{
	Letter *letter = &flow->scratch;
	Datagram *head = &letter->head;
	const char *at = bytes;

	if (!flow->up || !flow->pushes || length < sizeof(Datagram))
		return;
	get_bytes(&at, head, sizeof(Datagram));
	if (head->from != from)
		return;
	get_bytes(&at, letter->sections, head->n_sections * sizeof(Section));
	get_bytes(&at, letter->rows, head->n_rows * sizeof(FlowRow));
	get_bytes(&at, letter->facts, head->n_facts * sizeof(FactItem));
	get_bytes(&at, letter->marks, head->n_marks * sizeof(MarkItem));
	if (head->n_exports > letter->export_space)
	{
		letter->export_space = head->n_exports;
		letter->exports = pg_realloc(letter->exports, head->n_exports * sizeof(ExportItem));
	}
	if (head->n_exports > 0)
		get_bytes(&at, letter->exports, head->n_exports * sizeof(ExportItem));
	link_receive(flow, letter);
}
