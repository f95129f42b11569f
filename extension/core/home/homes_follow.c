/*
 * core/home/homes_follow.c
 *		What the coordinator knows of homes, from what was decided, change by change.
 *
 * A new coordinator reads the decided map from its beginning and so comes to the same knowledge; a move
 * that it finds under way it drives on from the old home (M2). What it reads then was told to people by
 * the one before.
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "core/home/homes_private.h"
#include "core/map/set.h"
#include "core/member/membership.h"
#include "core/base/text.h"

/* ---- moves under way -------------------------------------------------------------------------- */

static void
list_move(ShardHomes *homes, ShardShardKey key)
{
	if (homes->n_moves == homes->move_space)
	{
		homes->move_space = Max(16, homes->move_space * 2);
		homes->moves = homes->moves
						   ? repalloc(homes->moves, homes->move_space * sizeof(ShardShardKey))
						   : palloc(homes->move_space * sizeof(ShardShardKey));
	}
	homes->moves[homes->n_moves++] = key;
}

static void
unlist_move(ShardHomes *homes, ShardShardKey key)
{
	for (int i = 0; i < homes->n_moves; i++)
	{
		if (!SHARD_SHARD_KEY_EQUAL(NULL, homes->moves[i], key))
			continue;
		homes->n_moves--;
		memmove(&homes->moves[i], &homes->moves[i + 1],
				(homes->n_moves - i) * sizeof(ShardShardKey));
		return;
	}
}

/* The operator that wanted the move, and why it fails, are of no interest any more. */
static void
forget_texts(HomesShard *shard)
{
	if (shard->who)
		pfree(shard->who);
	if (shard->why)
		pfree(shard->why);
	shard->who = shard->why = NULL;
}

void
shard_homes_set_move(ShardHomes *homes, HomesShard *shard, ShardMoveEvent event)
{
	ShardMoveState before = shard->move;

	shard->move = shard_move_step(before, event);
	if (shard->move == before)
		return;
	shard->next_send = 0;
	homes->urgent = true;
	if (before == SHARD_MOVE_NONE)
		list_move(homes, shard->key);
	if (shard->move != SHARD_MOVE_NONE)
		return;
	unlist_move(homes, shard->key);
	forget_texts(shard);
	shard->target = 0;
	shard->prepared = false;
	shard->ready = shard->begun = 0;
}

void
shard_homes_forget_moves(ShardHomes *homes)
{
	for (int i = 0; i < homes->n_moves; i++)
		forget_texts(homes_shard_lookup(homes->shards, homes->moves[i]));
	homes->n_moves = 0;
}

void
shard_homes_decision(ShardHomes *homes, ShardDecision decision, ShardShardRef shard, int32 from,
					 int32 to, const char *text)
{
	ShardAction *action = shard_action_add(homes->out, SHARD_ACTION_DECISION);
	char why[HOMES_WHY + 1] pg_attribute_unused();

	if (text[0] == '\0')
		text = "no reason was given";
#ifndef SHARD_MUTANT_REASONS_OF_ANY_LENGTH
	shard_text_copy(why, text, sizeof(why));
	text = why;
#endif
	action->decision = (int32) decision;
	action->shard = shard;
	action->node = from;
	action->to = to;
	action->text = shard_arena_copy(homes->out->arena, text, strlen(text) + 1);
}

/* ---- counts ----------------------------------------------------------------------------------- */

/* What is counted of a node, NULL if it is not known. */
static HomesNode *
find_node(const ShardHomes *homes, int32 node)
{
	for (int i = 0; i < homes->n_nodes; i++)
	{
		if (homes->nodes[i].node == node)
			return &homes->nodes[i];
	}
	return NULL;
}

HomesNode *
shard_homes_node(ShardHomes *homes, int32 node)
{
	HomesNode *known = find_node(homes, node);
	size_t size = sizeof(HomesNode) * (homes->n_nodes + 1);

	if (known)
		return known;
	homes->nodes = homes->nodes ? repalloc(homes->nodes, size) : palloc(size);
	known = &homes->nodes[homes->n_nodes++];
	memset(known, 0, sizeof(*known));
	known->node = node;
	return known;
}

/* Count homes of a type at a node, or backups. */
static void
count_of_type(homes_count_hash *counts, int32 type_id, int32 node, int by)
{
	bool found;
	HomesCount *count = homes_count_insert(counts, (ShardShardKey){type_id, node}, &found);

	if (!found)
		count->n = 0;
	count->n += by;
	if (count->n == 0)
		homes_count_delete_item(counts, count);
}

/* Count a home where it is, where it comes to, and where its backups are: +1, or -1 before any of that changes. */
static void
count_home(ShardHomes *homes, const HomesShard *shard, int by)
{
	if (shard->node != 0 && shard->leased)
		shard_homes_node(homes, shard->node)->n_leased += by;
	else if (shard->node != 0)
		shard_homes_node(homes, shard->node)->n_durable += by;
	if (shard->node != 0)
		count_of_type(homes->counts, shard->key.type_id, shard->node, by);
	if (shard->to != 0)
		shard_homes_node(homes, shard->to)->n_coming += by;
	for (int i = 0; i < shard->n_backups; i++)
	{
		shard_homes_node(homes, shard->backups[i])->n_backups += by;
		count_of_type(homes->backups, shard->key.type_id, shard->backups[i], by);
	}
}

int
shard_homes_number(const ShardHomes *homes, int32 node, bool leased)
{
	const HomesNode *known = find_node(homes, node);

	if (!known)
		return 0;
	return leased ? known->n_leased : known->n_durable;
}

int
shard_homes_number_of_type(const ShardHomes *homes, int32 type_id, int32 node)
{
	const HomesCount *count = homes_count_lookup(homes->counts, (ShardShardKey){type_id, node});

	return count ? count->n : 0;
}

int
shard_homes_count(const ShardHomes *homes, int32 node)
{
	const HomesNode *known = find_node(homes, node);

	return known ? known->n_durable + known->n_leased + known->n_coming : 0;
}

/* ---- decided changes -------------------------------------------------------------------------- */

/* Is it a type that may be started without its owner's consent? */
static bool
is_leased(const ShardHomes *homes, int32 type_id)
{
	ShardTypeRecord type;

	return shard_homes_type(homes, type_id, &type) && type.leased;
}

/* How long a move of the shard may keep its messages waiting. */
static int64
handoff_timeout(const ShardHomes *homes, const HomesShard *shard)
{
	ShardTypeRecord type;

	if (shard_homes_type(homes, shard->key.type_id, &type) && type.handoff_timeout_ms > 0)
		return type.handoff_timeout_ms * SHARD_MS;
	return homes->settings.handoff_timeout;
}

static ShardShardRef
ref_of(const HomesShard *shard)
{
	return (ShardShardRef){shard->key.type_id, shard->key.shard, shard->epoch, shard->move_id};
}

/* Phase moving was decided: of this coordinator's own move, or of one that it finds. */
static void
moving_decided(ShardHomes *homes, int64 now, HomesShard *shard, const ShardHomeRecord *record)
{
	bool own = shard->move == SHARD_MOVE_PROPOSED;

	shard->move_id = record->move_id;
	shard->target = record->to;
	shard->reason = record->reason;
	shard->deadline = now + handoff_timeout(homes, shard);
	shard_homes_set_move(homes, shard, own ? SHARD_MOVE_M1_DECIDED : SHARD_MOVE_FOUND);
	if (own)
		shard_homes_decision(homes, SHARD_DECISION_MOVE_BEGUN, ref_of(shard), shard->node,
							 shard->to, shard_homes_reason_text(shard, homes->arena));
}

/* The move of this coordinator ended by the epoch that it proposed. */
static void
move_decided(ShardHomes *homes, int64 now, HomesShard *shard, int32 old_node)
{
	bool moved = shard->node == shard->target;

	shard_homes_decision(homes, moved ? SHARD_DECISION_MOVED : SHARD_DECISION_MOVE_ABORTED,
						 ref_of(shard), old_node, shard->target,
						 moved		  ? shard_homes_reason_text(shard, homes->arena)
						 : shard->why ? shard->why
									  : "it was given up");
	shard_homes_move_ended(homes, shard, moved, shard->why ? shard->why : "it was given up");
	if (moved)
		shard->pause = 0;
	else
		shard_homes_failed(shard, now);
	shard_homes_set_move(homes, shard, SHARD_MOVE_DECIDED);
}

/* What a decided change means for the move that this coordinator drives. */
static void
follow_move(ShardHomes *homes, int64 now, HomesShard *shard, const ShardHomeRecord *record,
			int32 old_epoch, int32 old_node)
{
	bool lost = record->lost == record->epoch;

	if (record->phase == SHARD_HOME_MOVING)
	{
		moving_decided(homes, now, shard, record);
		return;
	}
	if (shard->move == SHARD_MOVE_NONE)
		return;
	if (record->epoch == old_epoch + 1 && !lost &&
		(shard->move == SHARD_MOVE_DECIDING || shard->move == SHARD_MOVE_ABORTING))
	{
		move_decided(homes, now, shard, old_node);
		return;
	}
	shard_homes_move_ended(homes, shard, false,
						   lost ? "its state was given up meanwhile" : "another change came first");
	shard_homes_set_move(homes, shard, SHARD_MOVE_OVERTAKEN);
}

/* A home was decided. */
static void
follow_home(ShardHomes *homes, int64 now, const ShardMapEntry *entry, const ShardHomeRecord *record)
{
	ShardShardKey key = {entry->key.a, entry->key.b};
	bool found;
	HomesShard *shard = homes_shard_insert(homes->shards, key, &found);
	int32 old_epoch;
	int32 old_node;

	if (!found)
	{
		char status = shard->status;

		memset(shard, 0, sizeof(HomesShard));
		shard->key = key;
		shard->status = status;
		shard->epoch = -1;
		shard->leased = is_leased(homes, key.type_id) && !shard_set_is_of(record);
	}
	count_home(homes, shard, -1);
	old_epoch = shard->epoch;
	old_node = shard->node;
	shard->n = entry->n;
	shard->epoch = record->epoch;
	shard->node = shard_record_home_node(record);
	shard->to = record->phase == SHARD_HOME_MOVING ? record->to : 0;
	shard->replicated = shard_set_is_of(record);
	shard->n_backups = record->n_nodes - 1;
	memcpy(shard->backups, &record->nodes[1], sizeof(int32) * shard->n_backups);
	count_home(homes, shard, 1);
	if (record->epoch != old_epoch)
	{
		shard->confirmed = false;
		shard->asked = 0;
	}
	if (entry->n > homes->told_n && record->lost == record->epoch && record->epoch > old_epoch &&
		old_node != 0)
		shard_homes_decision(homes, SHARD_DECISION_STATE_LOST, ref_of(shard), old_node, shard->node,
							 old_node == shard->node ? "given up" : "its home is lost");
	follow_move(homes, now, shard, record, old_epoch, old_node);
	(void) homes_request_delete(homes->requests, key);
}

/* What people are told of a member's new record. */
static void
tell_member(ShardHomes *homes, HomesNode *known, int32 node, const ShardMemberRecord *member)
{
	char text[128];
	const char *by = known->who[0] != '\0' ? ", by " : "";

	if (known->status != member->status)
	{
		snprintf(text, sizeof(text), "%s%s%s",
				 shard_membership_status_name((ShardMemberStatus) member->status), by, known->who);
		shard_homes_decision(homes, SHARD_DECISION_MEMBER, (ShardShardRef){0}, node, 0, text);
		known->who[0] = '\0';
	}
	if (known->evacuated != member->evacuated)
	{
		snprintf(text, sizeof(text), "%s%s%s",
				 member->evacuated ? "to be emptied" : "may have shards again", by, known->who);
		shard_homes_decision(homes, SHARD_DECISION_EVACUATION, (ShardShardRef){0}, node, 0, text);
		known->who[0] = '\0';
	}
}

/* A member's record was decided. A new incarnation may not know what the former one had started. */
static void
follow_member(ShardHomes *homes, const ShardMapEntry *entry)
{
	int32 node = entry->key.a;
	homes_shard_iterator iterator;
	HomesShard *shard;
	HomesNode *known;
	ShardMemberRecord member;
	bool same;

	if (!shard_record_get_member(entry, &member, homes->arena))
		return;
	known = shard_homes_node(homes, node);
	if (entry->n > homes->told_n)
		tell_member(homes, known, node, &member);
	same = known->inc_no == member.inc_no;
	known->inc_no = member.inc_no;
	known->status = member.status;
	known->evacuated = member.evacuated;
	if (same)
		return;
	homes_shard_start_iterate(homes->shards, &iterator);
	while ((shard = homes_shard_iterate(homes->shards, &iterator)) != NULL)
	{
		if (shard->node != node)
			continue;
		shard->confirmed = false;
		shard->asked = 0;
	}
}

const char *
shard_homes_pinned_by(const ShardHomes *homes, ShardShardKey key, bool pinned)
{
	for (int i = homes->n_pin_notes - 1; i >= 0; i--)
	{
		const HomesPinNote *note = &homes->pin_notes[i];

		if (SHARD_SHARD_KEY_EQUAL(NULL, note->key, key))
			return note->pinned == pinned ? note->who : "";
	}
	return "";
}

/* A pin, or the end of a pin, was decided. */
static void
follow_pin(ShardHomes *homes, const ShardMapEntry *entry)
{
	ShardShardRef shard = {.type_id = entry->key.a, .shard = entry->key.b};
	const char *who =
		shard_homes_pinned_by(homes, (ShardShardKey){entry->key.a, entry->key.b}, !entry->deleted);
	char text[HOMES_WHO + 32];

	homes->next_pins = 0;
	if (entry->n <= homes->told_n)
		return;
	snprintf(text, sizeof(text), "%s%s%s", entry->deleted ? "no longer pinned" : "pinned",
			 who[0] != '\0' ? ", by " : "", who);
	shard_homes_decision(homes, SHARD_DECISION_PINNED, shard, 0,
						 entry->deleted ? 0 : shard_record_get_pin(entry), text);
}

/* The home of a shard is no more: its type was dropped. */
static void
forget_shard(ShardHomes *homes, ShardShardKey key)
{
	HomesShard *shard = homes_shard_lookup(homes->shards, key);

	if (!shard)
		return;
	count_home(homes, shard, -1);
	if (shard->move != SHARD_MOVE_NONE)
	{
		shard_homes_move_ended(homes, shard, false, "its type was dropped");
		unlist_move(homes, key);
		forget_texts(shard);
	}
	homes_shard_delete_item(homes->shards, shard);
}

/* Requests for homes of a type that was dropped end. */
static void
forget_requests(ShardHomes *homes, int32 type_id)
{
	homes_request_iterator iterator;
	HomesRequest *request;

	homes_request_start_iterate(homes->requests, &iterator);
	while ((request = homes_request_iterate(homes->requests, &iterator)) != NULL)
	{
		if (request->key.type_id == type_id)
			homes_request_delete_item(homes->requests, request);
	}
}

void
shard_homes_follow(ShardHomes *homes, int64 now)
{
	int count;
	ShardMapEntry *entries = shard_map_since(homes->decided, homes->seen_n, homes->arena, &count);

	for (int i = 0; i < count; i++)
	{
		ShardMapKey key = entries[i].key;
		ShardHomeRecord record;

		if (key.kind == SHARD_MAP_MEMBER)
			follow_member(homes, &entries[i]);
		else if (key.kind == SHARD_MAP_PIN)
			follow_pin(homes, &entries[i]);
		else if (key.kind == SHARD_MAP_TYPE && entries[i].deleted)
			forget_requests(homes, key.a);
		else if (key.kind == SHARD_MAP_HOME && entries[i].deleted)
			forget_shard(homes, (ShardShardKey){key.a, key.b});
		else if (key.kind == SHARD_MAP_HOME && shard_record_get_home(&entries[i], &record))
			follow_home(homes, now, &entries[i], &record);
	}
	homes->seen_n = shard_map_point(homes->decided).n;
}
