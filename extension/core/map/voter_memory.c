/*
 * core/map/voter_memory.c
 *		What a voter remembers of the others, and reminds them of (R12, R23).
 *
 * A voter that was put back to an older state cannot know that it has promised more since; the others can. What they say
 * makes it a voter that may not vote, so a voter believes only its own word: whatever it promises and accepts goes out
 * with its seal, a code over ballot and point that it alone can make, by a key that is as old as its database's identity
 * and so is in every state that it can be put back to. A reminder brings the seal back.
 *
 * - The process dies after a reminder was taken: the state is in the same transaction as all that the step says.
 * - A reminder is lost: the next heartbeat has it again.
 * - A reminder comes twice, or is a true one of long ago that a node says again: what it says was promised is promised
 *   now, too, so a voter that has not forgotten stays as it is; and a voter that has forgotten takes the reminder's ballot
 *   over, so that the reminder says nothing new to a voter that was readmitted, once that was brought to the map under
 *   this ballot or a later one.
 * - A node that speaks for a voter can have others remember a false seal, and so hide from the voter that it has
 *   forgotten. That takes away a check, as if no voter remembered.
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "core/map/voter_private.h"

static const ShardMapKey voters_key = {SHARD_MAP_VOTERS, 0, 0};

void
shard_voter_memory_fields(ShardFields *fields, ShardVoter *voter)
{
	shard_fields_count(fields, &voter->n_memory, VOTER_MEMORY_SIZE);
	for (int i = 0; i < voter->n_memory; i++)
	{
		shard_fields_int32(fields, &voter->memory[i].node);
		shard_fields_int64(fields, &voter->memory[i].promised);
		shard_fields_int64(fields, &voter->memory[i].point.b);
		shard_fields_int64(fields, &voter->memory[i].point.n);
		shard_fields_uuid(fields, &voter->memory[i].seal);
	}
}

/*
 * Forget the nodes that do not vote any more: a node that returns is a new voter, which may know
 * less than it did (R12).
 */
void
shard_voter_forget_removed(ShardVoter *voter)
{
	ShardVotersRecord voters;
	int kept = 0;

	if (!shard_record_get_voters(shard_map_value(voter->map, voters_key), &voters))
		return;
	for (int i = 0; i < voter->n_memory; i++)
	{
		if (shard_record_votes(&voters, voter->memory[i].node))
			voter->memory[kept++] = voter->memory[i];
	}
	voter->n_memory = kept;
}

/*
 * The place for a node's memory; NULL if all are taken.
 */
static VoterMemory *
memory_of(ShardVoter *voter, int32 node)
{
	VoterMemory *memory;

	for (int i = 0; i < voter->n_memory; i++)
	{
		if (voter->memory[i].node == node)
			return &voter->memory[i];
	}
	if (voter->n_memory == VOTER_MEMORY_SIZE)
		return NULL;
	memory = &voter->memory[voter->n_memory++];
	memset(memory, 0, sizeof(*memory));
	memory->node = node;
	return memory;
}

ShardUuid
shard_voter_seal(const ShardVoter *voter, int64 promised, ShardMapPoint point)
{
	return voter->seal ? voter->seal(voter->seal_arg, promised, point) : (ShardUuid){0, 0};
}

void
shard_voter_set_seal(ShardVoter *voter, ShardVoterSeal seal, const void *arg)
{
	voter->seal = seal;
	voter->seal_arg = arg;
}

void
shard_voter_observe(ShardVoter *voter, const ShardControl *message)
{
	const ShardMapEntry *entry = shard_map_value(voter->map, voters_key);
	ShardMapPoint point = {0, 0};
	ShardUuid seal = message->uuid;
	ShardVotersRecord voters;
	VoterMemory *memory;

	if (message->from == voter->self)
		return;
	/* A late message of a removed voter must not bring back what was forgotten on purpose. */
	if (!entry || !shard_record_get_voters(entry, &voters) ||
		!shard_record_votes(&voters, message->from))
		return;
	if (message->kind == SHARD_CONTROL_PROMISE || message->kind == SHARD_CONTROL_SYNCED)
		point = message->accepted;
	else if (message->kind == SHARD_CONTROL_ACCEPTED)
	{
		point.b = message->b;
		point.n = message->batch_n;
	}
	else if (message->kind == SHARD_CONTROL_PREPARE)
		seal = message->uuid2;
	else
		return;
	memory = memory_of(voter, message->from);
	if (memory == NULL || message->b < memory->promised)
		return;
	if (message->b == memory->promised && shard_map_compare(point, memory->point) <= 0)
		return;
	memory->promised = message->b;
	memory->point = point;
	memory->seal = seal;
}

void
shard_voter_remind(const ShardVoter *voter, int32 node, ShardControl *message)
{
	for (int i = 0; i < voter->n_memory; i++)
	{
		if (voter->memory[i].node == node)
		{
			message->ballot = voter->memory[i].promised;
			message->remembered = voter->memory[i].point;
			message->uuid = voter->memory[i].seal;
		}
	}
	if (message->kind == SHARD_CONTROL_PREPARE)
		message->uuid2 = shard_voter_seal(voter, message->b, (ShardMapPoint){0, 0});
}

/*
 * Does this voter know less than a reminder says? Under a newer promise the point may have gone back lawfully (R3), and
 * under the same promise as long as nothing was accepted under it; in all other cases the voter has forgotten.
 */
static bool
knows_less(const ShardVoter *voter, int64 promised, ShardMapPoint point)
{
	if (promised == voter->promised && point.b == promised)
		return shard_map_compare(point, shard_map_point(voter->map)) > 0;
	return promised > voter->promised;
}

void
shard_voter_reminded(ShardVoter *voter, const ShardControl *message, ShardActions *out)
{
	if (!knows_less(voter, message->ballot, message->remembered))
		return;
#ifdef SHARD_MUTANT_REMINDED_OF_NOTHING
	return;
#endif
#ifndef SHARD_MUTANT_REMINDED_BY_ANYBODY
	if (!shard_record_uuid_equal(message->uuid,
								 shard_voter_seal(voter, message->ballot, message->remembered)))
	{
		shard_action_log_peer(
			out, 19 /* WARNING */, message->from, message->kind,
			"node %d, or a caller in its name, says without the seal of this node that this node "
			"has voted and has forgotten its vote; the message is ignored",
			message->from);
		return;
	}
#endif
	if (voter->state == SHARD_VOTER_OK)
		shard_action_log(out, 19 /* WARNING */,
						 "this node has voted, and has forgotten its vote, as after its files "
						 "were put back from a copy: it votes again when the others have "
						 "admitted its voter again");
	voter->promised = Max(voter->promised, message->ballot);
	voter->state = SHARD_VOTER_AMNESIAC;
	shard_voter_save(voter, out);
}
