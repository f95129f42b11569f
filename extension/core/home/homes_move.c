/*
 * core/home/homes_move.c
 *		Driving moves of shards (M1 to M10, M16), from the coordinator's side.
 *
 * Before anything changes the target is asked whether it can have the shard. That is forgotten with
 * the office, and costs nothing: the shard is where it was, and handles its messages. Of those that are
 * ready only a few at a time begin to move to one node, since their messages wait from then on.
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

#include "core/home/homes_private.h"
#include "core/base/text.h"

/* May shards be given to that member? */
static bool
is_target(ShardHomes *homes, int64 now, int32 node, int32 type_id, const ShardRoster *roster,
		  const char **why)
{
	ShardMemberRecord member;
	HomesRegion *region = shard_homes_region(homes, node);

	if (!shard_homes_member(homes, node, &member) || member.status != SHARD_MEMBER_UP)
		*why = "the target is not a member that is up";
	else if (member.evacuated)
		*why = "the target is being emptied";
	else if (!shard_roster_reachable(roster, node, now))
		*why = "the target cannot be reached";
	else if (!region || region->stopped || !shard_homes_hosts(region, type_id))
		*why = region && region->inc_no == member.inc_no
				   ? "the target does not host the type"
				   : "the target has not said yet what it hosts";
	else
		return true;
	return false;
}

/* Can the shard's home change now, by handing over? */
static bool
is_settled(const ShardHomes *homes, const HomesShard *shard, ShardHomeRecord *record, int64 *n,
		   const char **why)
{
	if (!shard_homes_record(homes, shard, record, n) || record->phase != SHARD_HOME_STABLE)
		*why = "the shard is moving";
#ifndef SHARD_MUTANT_REPLICATED_MOVES
	else if (shard->replicated)
		*why = "shards of types with replicas do not move yet";
#endif
	else if (!shard->confirmed)
		*why = "the shard's home has not started it yet";
	else
		return true;
	return false;
}

/*
 * Are its home and the target there for a move, as far as known? The text names the one that is not, and only
 * that one.
 */
static bool
can_go(ShardHomes *homes, int64 now, const HomesShard *shard, int32 to, const ShardRoster *roster,
	   const char **why)
{
	if (!is_target(homes, now, to, shard->key.type_id, roster, why))
		return false;
#ifndef SHARD_MUTANT_TARGET_IS_TO_BLAME
	if (!shard_roster_reachable(roster, shard->node, now))
	{
		*why = "the shard's home cannot be reached";
		return false;
	}
#endif
	return true;
}

bool
shard_homes_begin_move(ShardHomes *homes, int64 now, HomesShard *shard, int32 to,
					   ShardHomeReason reason, const char *who, const ShardRoster *roster,
					   const char **why)
{
	ShardHomeRecord record;
	int64 n;

	if (shard->move != SHARD_MOVE_NONE)
	{
		*why = "the shard is moving";
		return false;
	}
	if (!is_settled(homes, shard, &record, &n, why))
		return false;
	if (shard->node == to)
	{
		*why = "the shard is there already";
		return false;
	}
	if (!can_go(homes, now, shard, to, roster, why))
		return false;
	if (homes->dry.runs && !shard_homes_dry_has_room(homes))
	{
		*why = "more moves would begin than fit an answer";
		return false;
	}
	shard_homes_set_move(homes, shard, SHARD_MOVE_PREPARE);
	shard->target = to;
	shard->reason = reason;
	shard->move_id = record.move_id + 1;
	shard->who = who && who[0] != '\0' ? pstrdup(who) : NULL;
	shard->deadline = now + SHARD_PREPARE_TIMEOUT;
	return true;
}

const char *
shard_homes_reason_text(const HomesShard *shard, ShardArena *arena)
{
	static const char *const texts[] = {
		[SHARD_HOME_REASON_REBALANCE] = "rebalancing",
		[SHARD_HOME_REASON_OPERATOR] = "operator",
		[SHARD_HOME_REASON_PIN] = "pinned",
		[SHARD_HOME_REASON_LEAVING] = "its home leaves",
		[SHARD_HOME_REASON_EVACUATION] = "its home is emptied",
		[SHARD_HOME_REASON_UNHOSTED] = "its home does not host the type any more",
	};
	const char *text = NULL;
	char buffer[HOMES_WHO + 64];

	if (shard->reason >= 0 && shard->reason < (int) lengthof(texts))
		text = texts[shard->reason];
	snprintf(buffer, sizeof(buffer), "%s%s%s", text ? text : "", shard->who ? ", by " : "",
			 shard->who ? shard->who : "");
	return shard_arena_copy(arena, buffer, strlen(buffer) + 1);
}

void
shard_homes_failed(HomesShard *shard, int64 now)
{
	shard->pause =
		shard->pause == 0 ? SHARD_MOVE_PAUSE : Min(2 * shard->pause, SHARD_MOVE_LONGEST_PAUSE);
#ifdef SHARD_MUTANT_PAUSES_WITHOUT_END
	shard->pause = shard->pause == SHARD_MOVE_LONGEST_PAUSE ? 10 * shard->pause : shard->pause;
#endif
#ifdef SHARD_MUTANT_NO_PAUSES
	shard->pause = 0;
#endif
	shard->not_before = now + shard->pause;
}

/*
 * Does the shard move because its home left (N6), was to be emptied (C13), or did not host the type (C17), and is that
 * so no more? The reason is left as it is if not.
 */
static bool
may_stay(ShardHomes *homes, const HomesShard *shard, const char **why)
{
	const HomesRegion *region = shard_homes_region(homes, shard->node);
	ShardMemberRecord member;
	bool stays;

#ifdef SHARD_MUTANT_STAYER_IS_EMPTIED
	if (shard->reason != SHARD_HOME_REASON_UNHOSTED)
		return false;
#endif
	switch (shard->reason)
	{
		case SHARD_HOME_REASON_LEAVING:
		case SHARD_HOME_REASON_EVACUATION:
			stays = !shard_homes_member(homes, shard->node, &member) ||
					!shard_homes_gives_away(&member);
			if (stays)
				*why = shard->reason == SHARD_HOME_REASON_LEAVING
						   ? "its home does not leave any more"
						   : "its home is not to be emptied any more";
			return stays;
		case SHARD_HOME_REASON_UNHOSTED:
			stays = region && shard_homes_hosts(region, shard->key.type_id);
			if (stays)
				*why = "its home hosts the type again";
			return stays;
		default:
			return false;
	}
}

/*
 * The move does not begin. Nothing was changed for it. One that nobody wants any more is no failure, whatever else was
 * wrong with it.
 */
static void
refuse(ShardHomes *homes, int64 now, HomesShard *shard, const char *why)
{
	ShardShardRef ref = {shard->key.type_id, shard->key.shard, shard->epoch, shard->move_id};
	bool withdrawn = may_stay(homes, shard, &why);

	shard_homes_decision(homes,
						 withdrawn ? SHARD_DECISION_MOVE_WITHDRAWN : SHARD_DECISION_MOVE_REFUSED,
						 ref, shard->node, shard->target, why);
	shard_homes_move_ended(homes, shard, false, why);
	if (!withdrawn)
		shard_homes_failed(shard, now);
	shard_homes_set_move(homes, shard, SHARD_MOVE_REFUSED);
}

/* The move is given up; the first reason counts. */
static void
give_up(HomesShard *shard, const char *why)
{
	if (!shard->why)
		shard->why = pnstrdup(why, HOMES_WHY);
}

/*
 * Propose M1 for a shard whose target is ready, if the target has room and nothing has changed. What
 * was asked long ago is checked again here, where it counts (C5).
 */
static void
propose_begin(ShardHomes *homes, int64 now, HomesShard *shard, ShardProposer *proposer,
			  const ShardRoster *roster)
{
	ShardHomeRecord record;
	ShardMapEntry change;
	const char *why;
	int64 n;

	if (!shard_homes_has_place(homes, now, shard))
		return;
	if (!is_settled(homes, shard, &record, &n, &why) ||
		!can_go(homes, now, shard, shard->target, roster, &why) || may_stay(homes, shard, &why))
	{
		refuse(homes, now, shard, why);
		return;
	}
	record.phase = SHARD_HOME_MOVING;
	record.to = shard->target;
	record.move_id = shard->move_id;
	record.reason = shard->reason;
	change = shard_record_put_home(shard->key.type_id, shard->key.shard, &record, n, homes->arena);
	if (!shard_proposer_propose(proposer, &change, 1))
		return;
	shard_homes_node(homes, shard->target)->n_copied++;
	shard_homes_set_move(homes, shard, SHARD_MOVE_PROPOSE);
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

void
shard_homes_ready(ShardHomes *homes, const ShardControl *message)
{
	HomesShard *shard = shard_of(homes, message, 1);

	if (!shard || shard->target != message->from || shard->move != SHARD_MOVE_PREPARING)
		return;
	shard->prepared = true;
	homes->urgent = true;
}

void
shard_homes_stopped(ShardHomes *homes, const ShardControl *message)
{
	HomesShard *shard = shard_of(homes, message, 0);

	if (shard && shard->node == message->from && shard->move == SHARD_MOVE_STOPPING)
		shard_homes_set_move(homes, shard, SHARD_MOVE_STOPPED);
}

void
shard_homes_staged(ShardHomes *homes, const ShardControl *message)
{
	HomesShard *shard = shard_of(homes, message, 1);

	if (shard && shard->to == message->from && shard->move == SHARD_MOVE_IMPORTING)
		shard_homes_set_move(homes, shard, SHARD_MOVE_STAGED);
}

void
shard_homes_import_failed(ShardHomes *homes, int64 now, const ShardControl *message)
{
	HomesShard *shard = shard_of(homes, message, 1);
	const char *why = "the target cannot copy it";
	char said[2 * HOMES_WHY];
	int length;

	if (!shard || shard->target != message->from)
		return;
	if (message->text)
	{
		length = snprintf(said, sizeof(said), "node %d says: ", message->from);
		shard_text_copy(said + length, message->text, sizeof(said) - length);
		why = said;
	}
	if (shard->move == SHARD_MOVE_PREPARING)
		refuse(homes, now, shard, why);
	else if (shard->move == SHARD_MOVE_IMPORTING)
	{
		give_up(shard, why);
		shard_homes_set_move(homes, shard, SHARD_MOVE_IMPORT_FAILED);
	}
}

/* A command about one shard. */
static ShardControl *
command(ShardHomes *homes, const HomesShard *shard, int32 to, ShardControlKind kind, int32 epoch)
{
	ShardActions *out = homes->out;
	ShardControl *message = shard_action_send(out, to, kind);

	message->shards = shard_arena_alloc(out->arena, sizeof(ShardShardRef));
	message->shards[0] =
		(ShardShardRef){shard->key.type_id, shard->key.shard, epoch, shard->move_id};
	message->n_shards = 1;
	return message;
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
	else
		record.reason = SHARD_HOME_REASON_ABORTED;
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

/*
 * Is the target silent, and the home there to go on? If both are silent the copy may be all that is left of the shard
 * (N5), and what is staged is found when the target is heard again.
 */
static bool
target_is_silent(int64 now, const HomesShard *shard, const ShardRoster *roster)
{
#ifdef SHARD_MUTANT_SILENT_TARGET_IS_WAITED_FOR
	return false;
#endif
	return !shard_roster_reachable(roster, shard->to, now) &&
		   shard_roster_reachable(roster, shard->node, now);
}

/* Which side has not done its part in time. A target copies only as fast as the home gives. */
static const char *
why_late(int64 now, const HomesShard *shard, const ShardRoster *roster)
{
	if (shard->move == SHARD_MOVE_STOPPING)
		return "its home has not stopped it within handoff_timeout";
#ifndef SHARD_MUTANT_TARGET_IS_TO_BLAME
	if (!shard_roster_reachable(roster, shard->node, now))
		return "its home cannot be reached, and the target has not copied it within "
			   "handoff_timeout";
#endif
	return "the target has not copied it from its home within handoff_timeout";
}

/* Give up a move that cannot end forward any more, or takes too long. */
static void
check_time(ShardHomes *homes, int64 now, HomesShard *shard, const ShardProposer *proposer,
		   const ShardRoster *roster)
{
	bool waits = shard->move == SHARD_MOVE_STOPPING || shard->move == SHARD_MOVE_IMPORTING;

	if (!waits && (shard->move != SHARD_MOVE_DECIDING || is_pending(shard, proposer)))
		return;
	if (target_is_gone(homes, shard))
		give_up(shard, "the target is gone");
	else if (waits && target_is_silent(now, shard, roster))
		give_up(shard, "the target cannot be reached");
	else if (waits && now >= shard->deadline)
		give_up(shard, why_late(now, shard, roster));
	else
		return;
	shard_homes_set_move(homes, shard, SHARD_MOVE_TIMED_OUT);
}

/* Is the target asked, or may the move begin? */
static void
prepare(ShardHomes *homes, int64 now, HomesShard *shard, ShardProposer *proposer,
		const ShardRoster *roster)
{
	const char *why;

#ifdef SHARD_MUTANT_MOVE_UNPREPARED
	shard->prepared = true;
#endif
	if (shard->prepared)
		propose_begin(homes, now, shard, proposer, roster);
	else if (now < shard->next_send && now < shard->deadline)
		return;
	else if (!can_go(homes, now, shard, shard->target, roster, &why))
		refuse(homes, now, shard, why);
	else if (now >= shard->deadline)
		refuse(homes, now, shard, "the target has not answered whether it can have the shard");
	else
		command(homes, shard, shard->target, SHARD_CONTROL_PREPARE_IMPORT, shard->epoch + 1)->node =
			shard->node;
}

/* The next command or decision of one move. */
static void
drive(ShardHomes *homes, int64 now, HomesShard *shard, ShardProposer *proposer,
	  const ShardRoster *roster)
{
	bool due = now >= shard->next_send;
	ShardMoveState before;

	check_time(homes, now, shard, proposer, roster);
	before = shard->move;
	switch (shard->move)
	{
		case SHARD_MOVE_PREPARING:
			prepare(homes, now, shard, proposer, roster);
			break;
		case SHARD_MOVE_PROPOSED:
			/* The proposal was lost with a change that came first. */
			if (!is_pending(shard, proposer))
			{
				shard_homes_move_ended(homes, shard, false, "another change came first");
				shard_homes_set_move(homes, shard, SHARD_MOVE_OVERTAKEN);
			}
			break;
		case SHARD_MOVE_STOPPING:
			if (due)
				(void) command(homes, shard, shard->node, SHARD_CONTROL_HAND_OFF, shard->epoch);
			break;
		case SHARD_MOVE_IMPORTING:
			if (due)
				command(homes, shard, shard->to, SHARD_CONTROL_IMPORT, shard->epoch + 1)->node =
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
			(void) command(homes, shard, shard->node, SHARD_CONTROL_HOST_SHARDS, shard->epoch);
			break;
		case SHARD_MOVE_NONE:
			break;
	}
	if (due && shard->move == before)
		shard->next_send = now + SHARD_RESEND_INTERVAL;
}

void
shard_homes_drive(ShardHomes *homes, int64 now, ShardProposer *proposer, const ShardRoster *roster)
{
	ShardShardKey *moves;
	int n_moves = homes->n_moves;

	homes->urgent = false;
	homes->several_owners = -1;
	if (n_moves == 0)
		return;
	shard_homes_count_copied(homes, now);
	moves = shard_arena_copy(homes->arena, homes->moves, n_moves * sizeof(ShardShardKey));
	for (int i = 0; i < n_moves; i++)
		drive(homes, now, homes_shard_lookup(homes->shards, moves[i]), proposer, roster);
}
