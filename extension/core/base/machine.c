/*
 * core/base/machine.c
 *		Steps of a state machine, looked up in its table.
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "core/base/machine.h"

/* Tables are short, so they are searched from the top. */
int
shard_machine_next(const ShardMachine *machine, int from, int event)
{
	for (int i = 0; i < machine->n_steps; i++)
	{
		const ShardStep *step = &machine->steps[i];

		if (step->from == from && step->event == event)
			return step->to;
	}
	return -1;
}
