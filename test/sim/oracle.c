/*
 * oracle.c
 *		Chance, time and names of the world of mode flow.
 */
#include "oracle.h"

/* splitmix64: the same history from the same seed. */
uint32
oracle_random(OracleWorld *world, uint32 below)
{
	uint64 z = (world->state += UINT64CONST(0x9e3779b97f4a7c15));

	z = (z ^ (z >> 30)) * UINT64CONST(0xbf58476d1ce4e5b9);
	z = (z ^ (z >> 27)) * UINT64CONST(0x94d049bb133111eb);
	z ^= z >> 31;
	return below > 0 ? (uint32) (z >> 32) % below : 0;
}

bool
oracle_percent(OracleWorld *world, int chance)
{
	return (int) oracle_random(world, 100) < chance;
}

void
oracle_trace(OracleWorld *world, const char *format, ...)
{
	va_list args;

	if (!world->trace)
		return;
	printf("%8.3f ", (double) world->now / 1000000);
	va_start(args, format);
	vprintf(format, args);
	va_end(args);
	printf("\n");
}

Event *
oracle_event(OracleWorld *world, EventKind kind, int node, int64 delay)
{
	Event *event;

	if (world->n_events == MAX_EVENTS)
	{
		check_fail(world->check, "too many events");
		world->n_events--;
	}
	event = &world->events[world->n_events++];
	memset(event, 0, sizeof(*event));
	event->kind = kind;
	event->at = world->now + delay;
	event->order = ++world->order;
	event->node = node;
	return event;
}

OracleNode *
oracle_node(OracleWorld *world, int32 id)
{
	for (int i = 0; i < world->n_nodes; i++)
	{
		if (world->nodes[i].id == id)
			return &world->nodes[i];
	}
	return NULL;
}

int32
oracle_draw_node(OracleWorld *world, int32 other_than)
{
	for (int tries = 0; tries < 50; tries++)
	{
		OracleNode *node = &world->nodes[oracle_random(world, world->n_nodes)];

		if (!node->gone && node->id != other_than)
			return node->id;
	}
	return 0;
}
