/*
 * entity/state_trigger.c
 *		Triggers of a state table that are the extension's own: those that tell what SQL changes of a type with replicas (Q33).
 *
 * They are known by their function, which nobody else may attach, and not by their names, which the table's owner may change.
 */
#include "postgres.h"

#include "catalog/pg_trigger.h"
#include "commands/trigger.h"
#include "utils/rel.h"

#include "entity/state.h"
#include "registry/catalog.h"

#include "base/compat.h"

bool
shard_state_is_our_trigger(const Trigger *trigger)
{
	return trigger->tgfoid == shard_catalog_get()->touched;
}

bool
shard_state_has_triggers(Relation rel)
{
	const TriggerDesc *triggers = rel->trigdesc;

	for (int i = 0; triggers != NULL && i < triggers->numtriggers; i++)
		if (!shard_state_is_our_trigger(&triggers->triggers[i]))
			return true;
	return false;
}

/* Whether there is one of ours, of this kind, which fires always and for all rows. */
static bool
has_ours(const TriggerDesc *triggers, int16 kind)
{
	for (int i = 0; triggers != NULL && i < triggers->numtriggers; i++)
	{
		const Trigger *trigger = &triggers->triggers[i];

		if (trigger->tgtype == kind && trigger->tgenabled == TRIGGER_FIRES_ALWAYS &&
			trigger->tgqual == NULL && trigger->tgnattr == 0 && !trigger->tginitdeferred &&
			shard_state_is_our_trigger(trigger))
			return true;
	}
	return false;
}

const char *
shard_state_lacks_trigger(Relation rel)
{
	if (!has_ours(rel->trigdesc, TRIGGER_TYPE_ROW | TRIGGER_TYPE_AFTER | TRIGGER_TYPE_INSERT |
									 TRIGGER_TYPE_UPDATE | TRIGGER_TYPE_DELETE))
		return SHARD_TOUCHED_TRIGGER;
	if (!has_ours(rel->trigdesc, TRIGGER_TYPE_BEFORE | TRIGGER_TYPE_TRUNCATE))
		return SHARD_TRUNCATED_TRIGGER;
	return NULL;
}
