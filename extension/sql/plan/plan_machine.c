/*
 * sql/plan/plan_machine.c
 *		The tables of the core's state machines, as rows.
 */
#include "postgres.h"

#include "funcapi.h"
#include "lib/stringinfo.h"
#include "utils/builtins.h"

#include "core/entity/entity.h"
#include "core/flow/handoff.h"
#include "core/flow/replica.h"
#include "core/member/membership.h"
#include "core/home/move.h"
#include "core/map/proposer.h"
#include "base/argument.h"

#include "base/compat.h"

PG_FUNCTION_INFO_V1(shard_state_machine);

/* In the order in which the hint lists them. */
static const ShardMachine *const machines[] = {
	&shard_entity_machine, &shard_member_machine,	&shard_home_machine,
	&shard_move_machine,   &shard_proposer_machine, &shard_replica_machine,
};

/* The machine of a name; an unknown name is an error that lists those known. */
static const ShardMachine *
find_machine(const char *name)
{
	StringInfoData known;

	for (int i = 0; i < lengthof(machines); i++)
		if (strcmp(machines[i]->name, name) == 0)
			return machines[i];

	initStringInfo(&known);
	for (int i = 0; i < lengthof(machines); i++)
		appendStringInfo(&known, "%s\"%s\"", i > 0 ? ", " : "", machines[i]->name);
	ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					errmsg("state machine \"%s\" does not exist", name),
					errhint("State machines are: %s.", known.data)));
}

/* shard_state_machine(name text) returns table (state text, event text, next_state text, note text) */
Datum
shard_state_machine(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	const ShardMachine *machine;

	shard_argument_check(fcinfo, 0, "name must not be null");
	machine = find_machine(text_to_cstring(PG_GETARG_TEXT_PP(0)));

	InitMaterializedSRF(fcinfo, 0);
	for (int i = 0; i < machine->n_steps; i++)
	{
		const ShardStep *step = &machine->steps[i];
		bool no_note = step->note == NULL || step->note[0] == '\0';
		bool nulls[4] = {false, false, false, no_note};
		Datum values[4];

		values[0] = CStringGetTextDatum(machine->state_names[step->from]);
		values[1] = CStringGetTextDatum(machine->event_names[step->event]);
		values[2] = CStringGetTextDatum(machine->state_names[step->to]);
		values[3] = no_note ? (Datum) 0 : CStringGetTextDatum(step->note);
		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
	return (Datum) 0;
}
