/*
 * core/member/membership_admit.c
 *		Which incarnation of a node is the real one (I3).
 *
 * An incarnation that claims a node's place was maybe restored from an old copy, cloned with its
 * machine, or promoted behind the back of a primary that is only frozen. Rules:
 *
 * - It must follow the decided incarnation, by the number that it kept durably. A copy that was put
 *   back lacks the last one, unless the node never started since; then only I2 can tell.
 * - It must sit at the registered address: a clone elsewhere does not.
 * - The decided incarnation must have fallen silent: not heard for at least a heartbeat's time.
 * - A promoted standby is good if nothing was ever shown to others that it did not have (gate standby),
 *   or if the old primary was bound by a lease, which has ended (L7). Alone in its cluster there is no
 *   other node to which anything could have been shown.
 * - A copy is never good by itself.
 * - Where the old incarnation may still run in another database, its leases must have ended: two
 *   databases of one node are two places, too. A restart is in the same database, and begins when
 *   nothing of the old one runs there.
 *
 * An operator may overrule all but the last one, and what is gone for good.
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "core/member/membership.h"
#include "core/base/text.h"

/*
 * Does the kind of the start allow the claim? GRANT if so; the callback is another matter.
 */
static ShardAdmission
judge_kind(const ShardMemberRecord *record, const ShardClaim *claim)
{
	if (claim->kind == SHARD_START_RESTART)
		return SHARD_ADMISSION_GRANT;
	if (claim->kind != SHARD_START_PROMOTED)
		return SHARD_ADMISSION_COPY;
	if (record->gate != SHARD_GATE_STANDBY && !record->identity_lease && !claim->alone)
		return SHARD_ADMISSION_PROMOTED;
	return claim->leases_ended ? SHARD_ADMISSION_GRANT : SHARD_ADMISSION_WAIT;
}

/*
 * What the rules say that an operator may overrule.
 */
static ShardAdmission
judge_claim(const ShardMemberRecord *record, const ShardClaim *claim)
{
	ShardAdmission admission = SHARD_ADMISSION_GRANT;

	if (claim->previous != record->inc_no)
		return SHARD_ADMISSION_STALE;
	if (claim->old_heard)
		return SHARD_ADMISSION_OLD_LIVES;
	/* A node that was never admitted has nothing to lose and nothing to show. */
	if (record->inc_no != 0)
		admission = judge_kind(record, claim);
	if (admission != SHARD_ADMISSION_GRANT)
		return admission;
#ifdef SHARD_MUTANT_CLONE_ADMITTED_WITHOUT_CALLBACK
	return SHARD_ADMISSION_GRANT;
#endif
	switch (claim->callback)
	{
		case SHARD_CALLBACK_NONE:
			return SHARD_ADMISSION_ASK;
		case SHARD_CALLBACK_OTHER:
			return SHARD_ADMISSION_ELSEWHERE;
		case SHARD_CALLBACK_SAME:
		case SHARD_CALLBACK_NEEDLESS:
			break;
	}
	return claim->listening ? SHARD_ADMISSION_LISTEN : SHARD_ADMISSION_GRANT;
}

ShardAdmission
shard_membership_judge(const ShardMemberRecord *record, const ShardClaim *claim)
{
	if (!record || record->status == SHARD_MEMBER_NONE)
		return SHARD_ADMISSION_UNKNOWN;
	if (record->status == SHARD_MEMBER_REMOVED || record->status == SHARD_MEMBER_WRITTEN_OFF)
		return SHARD_ADMISSION_GONE;
#ifdef SHARD_MUTANT_DOWN_UNDONE
	if (record->status == SHARD_MEMBER_DOWN)
		return SHARD_ADMISSION_GRANT;
#endif
	if (record->inc_no != 0 && shard_record_uuid_equal(record->inc_uuid, claim->uuid))
		return record->status == SHARD_MEMBER_DOWN ? SHARD_ADMISSION_DOWNED
												   : SHARD_ADMISSION_GRANTED;
	if (claim->forced)
		return claim->leases_ended ? SHARD_ADMISSION_GRANT : SHARD_ADMISSION_WAIT;
	return judge_claim(record, claim);
}

bool
shard_membership_may_force(ShardAdmission admission)
{
	return admission == SHARD_ADMISSION_ASK || admission == SHARD_ADMISSION_LISTEN ||
		   admission >= SHARD_ADMISSION_OLD_LIVES;
}

/*
 * The first half of the sentence. Texts of records are bounded by the buffer.
 */
static void
describe(char *text, size_t size, ShardAdmission admission, const ShardMemberRecord *record,
		 const ShardClaim *claim)
{
	const char *dsn = record && record->dsn ? record->dsn : "";

	switch (admission)
	{
		case SHARD_ADMISSION_UNKNOWN:
			snprintf(text, size, "the cluster has no node %d; join the cluster again", claim->node);
			break;
		case SHARD_ADMISSION_GONE:
			snprintf(text, size, "node %d is %s for good; join the cluster as an empty node",
					 claim->node, shard_membership_status_name(record->status));
			break;
		case SHARD_ADMISSION_DOWNED:
			snprintf(text, size,
					 "this incarnation of node %d was downed; restart its server to come back as a "
					 "new one",
					 claim->node);
			break;
		case SHARD_ADMISSION_ASK:
			snprintf(text, size, "the address of node %d, \"%.*s\", has not answered yet",
					 claim->node, shard_text_fit(dsn, 200), dsn);
			break;
		case SHARD_ADMISSION_LISTEN:
			snprintf(text, size, "incarnation %d of node %d may still be alive", record->inc_no,
					 claim->node);
			break;
		case SHARD_ADMISSION_WAIT:
			snprintf(text, size, "the lease of incarnation %d of node %d has not ended yet",
					 record->inc_no, claim->node);
			break;
		case SHARD_ADMISSION_OLD_LIVES:
			snprintf(text, size, "incarnation %d of node %d is alive", record->inc_no, claim->node);
			break;
		case SHARD_ADMISSION_STALE:
			snprintf(text, size,
					 "the claimant follows incarnation %d of node %d, but incarnation %d is the "
					 "cluster's: it looks like an old copy",
					 claim->previous, claim->node, record->inc_no);
			break;
		case SHARD_ADMISSION_COPY:
			snprintf(text, size, "the claimant is a restored copy of node %d", claim->node);
			break;
		case SHARD_ADMISSION_PROMOTED:
			snprintf(
				text, size,
				"the claimant is a promoted standby of node %d, whose gate is \"local\": it may "
				"lack what others have seen",
				claim->node);
			break;
		case SHARD_ADMISSION_ELSEWHERE:
			snprintf(text, size, "another database answers at the address of node %d, \"%.*s\"",
					 claim->node, shard_text_fit(dsn, 200), dsn);
			break;
		case SHARD_ADMISSION_GRANT:
		case SHARD_ADMISSION_GRANTED:
			text[0] = '\0';
			break;
	}
}

const char *
shard_membership_reason(ShardAdmission admission, const ShardMemberRecord *record,
						const ShardClaim *claim, ShardArena *arena)
{
	char text[600];

	describe(text, sizeof(text), admission, record, claim);
	if (admission >= SHARD_ADMISSION_OLD_LIVES)
	{
		size_t length = strlen(text);

		snprintf(text + length, sizeof(text) - length,
				 "; if this one is to take the node's place, stop the other one and call "
				 "shard_admit(%d, %d) at a member other than node %d",
				 claim->node, record->inc_no + 1, claim->node);
	}
	return shard_arena_copy(arena, text, strlen(text) + 1);
}
