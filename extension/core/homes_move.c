/*
 * core/homes_move.c
 *		Driving moves of shards (M1 to M10), from the coordinator's side.
 *
 * The coordinator only asks and decides. It repeats its question to the old or the new home until the
 * answer of this very move comes; when a decision of its own is needed it proposes it, and if that
 * could not be (another change of the key came first), it looks again. Dying anywhere is harmless: the
 * key says "moving", and the successor asks the old home again, which answers what it did.
 *
 * A move ends forward by one decided record, once the new home has staged the shard, or back by
 * another one. Both raise the epoch, and both are a compare-and-set on the key, so never both.
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "core/homes_private.h"

/* May shards be given to that member? */
static bool
is_target(ShardHomes *homes, int64 now, int32 node, int32 type_id, const ShardRoster *roster,
		  const char **why)
{
	ShardMemberRecord member;
	HomesRegion *region = shard_homes_region(homes, node);

	if (!shard_homes_member(homes, node, &member) || member.status != SHARD_MEMBER_UP)
		*why = "the target is not a member that is up";
	else if (!region || region->stopped || !shard_homes_hosts(region, type_id))
		*why = "the target does not host the type";
	else if (!shard_roster_reachable(roster, node, now))
		*why = "the target cannot be reached";
	else
		return true;
	return false;
}

/* Propose M1. False and a reason if the shard cannot move there now. */
bool
shard_homes_begin_move(ShardHomes *homes, int64 now, HomesShard *shard, int32 to,
					   ShardProposer *proposer, const ShardRoster *roster, const char **why)
{
	ShardHomeRecord record;
	ShardMapEntry change;
	int64 n;

	if (shard->move != SHARD_MOVE_NONE || !shard_homes_record(homes, shard, &record, &n) ||
		record.phase != SHARD_HOME_STABLE)
	{
		*why = "the shard is moving";
		return false;
	}
	if (!shard->confirmed)
	{
		*why = "the shard's home has not started it yet";
		return false;
	}
	if (shard_record_home_node(&record) == to)
	{
		*why = "the shard is there already";
		return false;
	}
	if (!is_target(homes, now, to, shard->key.type_id, roster, why))
		return false;
	record.phase = SHARD_HOME_MOVING;
	record.to = to;
	record.move_id++;
	change = shard_record_put_home(shard->key.type_id, shard->key.shard, &record, n, homes->arena);
	if (!shard_proposer_propose(proposer, &change, 1))
	{
		*why = "another change of the shard's home is being decided";
		return false;
	}
	shard_homes_set_move(homes, shard, SHARD_MOVE_PROPOSE);
	shard->deadline = now + homes->settings.handoff_timeout;
	return true;
}

/* The shard of a message about its move, if the message is about the move that is under way. */
static HomesShard *
shard_of(ShardHomes *homes, const ShardControl *message, int epoch_step)
{
	HomesShard *shard;

	if (message->n_shards != 1)
		return NULL;
	shard = shard_homes_shard(homes, message->shards[0].type_id, message->shards[0].shard);
	if (!shard || shard->move_id != message->shards[0].move_id ||
		shard->epoch + epoch_step != message->shards[0].epoch)
		return NULL;
	return shard;
}

/* ShardStopped: the old home has sealed it durably (M3). */
void
shard_homes_stopped(ShardHomes *homes, const ShardControl *message)
{
	HomesShard *shard = shard_of(homes, message, 0);

	if (shard && shard->node == message->from && shard->move == SHARD_MOVE_STOPPING)
		shard_homes_set_move(homes, shard, SHARD_MOVE_STOPPED);
}

/* Staged: the new home has all of it durably (M4). */
void
shard_homes_staged(ShardHomes *homes, const ShardControl *message)
{
	HomesShard *shard = shard_of(homes, message, 1);

	if (shard && shard->to == message->from && shard->move == SHARD_MOVE_IMPORTING)
		shard_homes_set_move(homes, shard, SHARD_MOVE_STAGED);
}

void
shard_homes_import_failed(ShardHomes *homes, const ShardControl *message)
{
	HomesShard *shard = shard_of(homes, message, 1);

	if (shard && shard->to == message->from)
		shard_homes_set_move(homes, shard, SHARD_MOVE_IMPORT_FAILED);
}

/* A command about one shard. */
static ShardControl *
command(ShardActions *out, const HomesShard *shard, int32 to, ShardControlKind kind, int32 epoch)
{
	ShardControl *message = shard_action_send(out, to, kind);

	message->shards = shard_arena_alloc(out->arena, sizeof(ShardShardRef));
	message->shards[0] =
		(ShardShardRef){shard->key.type_id, shard->key.shard, epoch, shard->move_id};
	message->n_shards = 1;
	return message;
}

/* BeginHandOff: regions and proxies may park early; nobody waits for them. */
static void
hint_all(ShardHomes *homes, const HomesShard *shard, ShardActions *out)
{
	for (int i = 0; i < homes->n_regions; i++)
		(void) command(out, shard, homes->regions[i].node, SHARD_CONTROL_BEGIN_HAND_OFF,
					   shard->epoch);
}

/* Propose the end of a move: epoch + 1, forward or back. It is proposed again until it is decided. */
static void
propose_end(ShardHomes *homes, const HomesShard *shard, bool forward, ShardProposer *proposer)
{
	ShardHomeRecord record;
	ShardMapEntry change;
	int64 n;

	if (!shard_homes_record(homes, shard, &record, &n) || record.phase != SHARD_HOME_MOVING)
		return;
	record.epoch++;
	record.phase = SHARD_HOME_STABLE;
	record.n_nodes = 1;
	if (forward)
		record.nodes[0] = record.to;
	record.to = 0;
	change = shard_record_put_home(shard->key.type_id, shard->key.shard, &record, n, homes->arena);
	(void) shard_proposer_propose(proposer, &change, 1);
}

/* Is the key's change already on its way? Then this move is decided one way or the other. */
static bool
is_pending(const HomesShard *shard, const ShardProposer *proposer)
{
	return shard_proposer_pending(proposer, (ShardMapKey){SHARD_MAP_HOME, shard->key.type_id,
														  shard->key.shard});
}

/* Is the target gone for good, so that waiting for it is in vain? */
static bool
target_is_gone(ShardHomes *homes, const HomesShard *shard)
{
	ShardMemberRecord member;

	return !shard_homes_member(homes, shard->to, &member) ||
		   (member.status != SHARD_MEMBER_UP && member.status != SHARD_MEMBER_LEAVING);
}

/* The next command or decision of one move. */
static void
drive(ShardHomes *homes, int64 now, HomesShard *shard, ShardProposer *proposer, ShardActions *out)
{
	bool due = now >= shard->next_send;

	if (shard->move == SHARD_MOVE_STOPPING || shard->move == SHARD_MOVE_IMPORTING ||
		(shard->move == SHARD_MOVE_DECIDING && !is_pending(shard, proposer)))
	{
		bool late = now >= shard->deadline && shard->move != SHARD_MOVE_DECIDING;

		if (late || target_is_gone(homes, shard))
			shard_homes_set_move(homes, shard, SHARD_MOVE_TIMED_OUT);
	}
	switch (shard->move)
	{
		case SHARD_MOVE_PROPOSED:
			/* The proposal was lost with a change that came first. */
			if (!is_pending(shard, proposer))
				shard_homes_set_move(homes, shard, SHARD_MOVE_OVERTAKEN);
			break;
		case SHARD_MOVE_STOPPING:
			if (!due)
				break;
			if (shard->next_send == 0)
				hint_all(homes, shard, out);
			(void) command(out, shard, shard->node, SHARD_CONTROL_HAND_OFF, shard->epoch);
			break;
		case SHARD_MOVE_IMPORTING:
			if (due)
				command(out, shard, shard->to, SHARD_CONTROL_IMPORT, shard->epoch + 1)->node =
					shard->node;
			break;
		case SHARD_MOVE_DECIDING:
			propose_end(homes, shard, true, proposer);
			break;
		case SHARD_MOVE_ABORTING:
			propose_end(homes, shard, false, proposer);
			break;
		case SHARD_MOVE_STARTING:
			if (!due)
				break;
			shard_homes_asked(shard, now);
			(void) command(out, shard, shard->node, SHARD_CONTROL_HOST_SHARDS, shard->epoch);
			break;
		case SHARD_MOVE_NONE:
			break;
	}
	if (due)
		shard->next_send = now + SHARD_RESEND_INTERVAL;
}

/* See homes_private.h. */
void
shard_homes_drive(ShardHomes *homes, int64 now, ShardProposer *proposer, ShardActions *out)
{
	homes_shard_iterator iterator;
	HomesShard *shard;

	if (homes->n_moves == 0)
		return;
	homes_shard_start_iterate(homes->shards, &iterator);
	while ((shard = homes_shard_iterate(homes->shards, &iterator)) != NULL)
	{
		if (shard->move != SHARD_MOVE_NONE)
			drive(homes, now, shard, proposer, out);
	}
}
