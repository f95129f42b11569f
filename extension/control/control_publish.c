/*
 * control/control_publish.c
 *		What the control worker tells the rest of this node: the view in shared memory.
 */
#include "postgres.h"

#include "control/control_private.h"
#include "core/base/text.h"

#include "base/compat.h"

/*
 * How many members there are, and whether any record of one has changed since the last time.
 */
static int
look_at_members(bool *changed)
{
	static int64 newest_n = -1;
	static int newest_count = -1;
	static ShardUuid cluster;
	ShardArena *arena = shard_arena_create();
	int count;
	int alive = 0;
	int64 n = 0;
	ShardMapEntry *members =
		shard_map_list(shard_node_learned(shard_control.node), SHARD_MAP_MEMBER, arena, &count);

	for (int i = 0; i < count; i++)
	{
		ShardMemberRecord member;

		n = Max(n, members[i].n);
		if (shard_record_get_member(&members[i], &member, arena) &&
			member.status != SHARD_MEMBER_REMOVED && member.status != SHARD_MEMBER_WRITTEN_OFF)
			alive++;
	}
	shard_arena_destroy(arena);
	*changed = n != newest_n || count != newest_count ||
			   !shard_record_uuid_equal(cluster, shard_node_cluster(shard_control.node));
	newest_n = n;
	newest_count = count;
	cluster = shard_node_cluster(shard_control.node);
	return alive;
}

/*
 * The record of this node as learned; all zero if there is none. Its texts are gone.
 */
static ShardMemberRecord
own_record(void)
{
	const ShardNode *node = shard_control.node;
	const ShardMapEntry *entry =
		shard_map_value(shard_node_learned(node),
						(ShardMapKey){SHARD_MAP_MEMBER, shard_node_id(node), 0});
	ShardArena *arena = shard_arena_create();
	ShardMemberRecord member;

	if (entry == NULL || !shard_record_get_member(entry, &member, arena))
		memset(&member, 0, sizeof(member));
	shard_arena_destroy(arena);
	return member;
}

int32
shard_control_own_status(void)
{
	return own_record().status;
}

/*
 * Why nothing is handled, for people.
 */
static const char *
why_not(void)
{
	ControlState *state = &shard_control;

	if (state->journal)
		return "this database is the journal of a cluster";
	if (shard_node_fenced(state->node))
		return "the node is fenced";
	if (shard_node_joining(state->node) && shard_node_join_why(state->node)[0] != '\0')
		return psprintf("joining another cluster, and has to wait: %s",
						shard_node_join_why(state->node));
	if (shard_node_joining(state->node))
		return "joining another cluster";
	if (state->starting)
		return "entity types are not registered yet";
	if (shard_node_superseded_by(state->node) != 0)
		return psprintf("incarnation %d of this node lives, and this database is a former life of "
						"it: rebuild it; or end that one, and call shard_admit()",
						shard_node_superseded_by(state->node));
	if (state->stopped[0] != '\0')
		return state->stopped;
	return "the node was not admitted yet";
}

/* Whether sessions may send here, and why not. */
static ShardBoardDoor
door(int32 status)
{
	const ControlState *state = &shard_control;

	if (state->journal)
		return SHARD_BOARD_JOURNAL;
	if (state->view.fenced && status == SHARD_MEMBER_REMOVED)
		return SHARD_BOARD_LEFT;
	if (state->view.fenced)
		return status == SHARD_MEMBER_WRITTEN_OFF ? SHARD_BOARD_WRITTEN_OFF : SHARD_BOARD_FENCED;
	if (state->view.downed)
		return SHARD_BOARD_DOWNED;
	if (shard_node_superseded_by(state->node) != 0)
		return SHARD_BOARD_SUPERSEDED;
	if (status == SHARD_MEMBER_EXITING)
		return SHARD_BOARD_LEAVING;
	if (shard_node_joining(state->node) || !shard_control_types_settled())
		return SHARD_BOARD_JOINING;
	return SHARD_BOARD_OPEN;
}

/*
 * A process that has not read the types yet, since another session has their table locked, leaves the view at what the
 * process before it has said: whether this node handles, and which sessions may send. True: it was left.
 */
static bool
keep_former(ShardBoardView *view, int32 status)
{
	const ControlState *state = &shard_control;
	ShardBoardView former;
	uint32 types;

	if (state->journal || view->fenced || view->downed || !state->starting ||
		status == SHARD_MEMBER_EXITING || shard_node_joining(state->node) ||
		shard_control_types_told(&types))
		return false;
	shard_board_get(state->db, &former);
	if (!former.known || !former.handle ||
		!shard_record_uuid_equal(former.incarnation, view->incarnation))
		return false;
	view->handle = former.handle;
	view->push = former.push;
	view->why[0] = '\0';
	return true;
}

/*
 * Tells region workers and backends what the node is now.
 */
void
shard_control_publish(void)
{
	ControlState *state = &shard_control;
	ShardBoardView *view = &state->view;
	ShardMemberRecord self = own_record();
	ShardStartKind kind;
	bool changed;
	bool keep;

	view->known = true;
	view->members = look_at_members(&changed);
	view->fenced = shard_node_fenced(state->node);
	view->downed = state->downed_at != 0 && !view->fenced;
	view->superseded = shard_node_superseded_by(state->node) != 0;
	view->unadmitted = !shard_node_admitted(state->node) && !shard_node_joining(state->node) &&
					   !view->fenced && !view->downed && !state->journal;
	view->node = shard_node_id(state->node);
	view->inc_no = shard_node_incarnation(state->node);
	view->cluster = shard_node_cluster(state->node);
	view->join_token = shard_node_join_token(state->node);
	view->era = shard_node_era(state->node);
	view->coordinator = shard_node_coordinator(state->node, shard_clock_now());
	view->gate = self.gate;
	view->leased = self.identity_lease;
	view->learned_n = shard_map_point(shard_node_learned(state->node)).n;
	(void) shard_board_incarnation(state->db, state->extension, &view->incarnation, &kind);
	view->handle = state->starting && shard_control_types_settled() && !view->fenced;
	view->push = view->handle && state->pushing;
	shard_text_copy(view->why, view->handle ? "" : why_not(), sizeof(view->why));
	keep = keep_former(view, self.status);
	shard_control_types_lack(view->lacks, sizeof(view->lacks));
	shard_text_copy(view->unread, shard_control_states_unread(), sizeof(view->unread));
	shard_text_copy(view->refusal, shard_node_refusal(state->node), sizeof(view->refusal));
	view->place = shard_node_place(state->node, shard_clock_now());
	view->registered = shard_control_types_told(&view->types) && shard_node_registered(state->node);
	if (!keep)
		shard_board_close(state->db, door(self.status));
	if (changed)
		shard_board_directory_changed(state->db);
	shard_control_members_follow(changed);
	shard_board_set(state->db, view);
}
