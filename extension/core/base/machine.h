/*
 * core/base/machine.h
 *		How a state machine of the core is written down: as a table.
 *
 * A machine is two enums, states and events, and a table of its legal steps. Its one transition
 * function looks the step up; a pair that has no row is illegal; the comment at
 * each machine says what the caller does then. The same table is what shard_state_machine() prints.
 */
#pragma once

/* One legal step; numbers are the machine's own enums. */
typedef struct ShardStep
{
	int from;
	int event;
	int to;
	const char *note; /* what is done with the step, or why there is nothing to do; for readers */
} ShardStep;

typedef struct ShardMachine
{
	const char *name;				/* as shard_state_machine() knows it */
	const char *const *state_names; /* by number */
	const char *const *event_names; /* by number */
	const ShardStep *steps;
	int n_steps;
} ShardMachine;

/* The state that an event leads to, -1 if the step is illegal. */
extern int shard_machine_next(const ShardMachine *machine, int from, int event);
