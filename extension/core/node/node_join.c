/*
 * core/node/node_join.c
 *		How a node that is its own cluster becomes a member of another one (R16).
 *
 * What it wants is durable before any other node hears of it: if the process dies the node goes on
 * asking, under the same token, for which the other cluster gives one node id. With the welcome this
 * node's own map goes, in one transaction.
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "core/node/node_private.h"
#include "core/base/text.h"
#include "core/map/type_number.h"
#include "shard.h"

static void
end_join(ShardNode *node, bool good, const char *why)
{
	shard_node_step_done(node, node->join.command, good, why);
	pfree(node->join.address);
	node->join.address = NULL;
}

/* Does this cluster consist of this node alone, with nothing that a join would lose? */
static bool
may_join(const ShardNode *node, const char **why)
{
	ShardMapEntry *types =
		shard_arena_alloc(node->out->arena, sizeof(ShardMapEntry) * (node->n_types + 1));
	int members;
	int homes;

	for (int i = 0; i < node->n_types; i++)
		types[i] = node->types[i].wish;
	(void) shard_map_list(node->learned, SHARD_MAP_MEMBER, node->out->arena, &members);
	(void) shard_map_list(node->learned, SHARD_MAP_HOME, node->out->arena, &homes);
	if (node->join.address)
		*why = "another join is under way";
	else if (members > 1)
		*why = "the node's own cluster has other members";
	else if (homes > 0)
		*why = "the node hosts shards";
	else
		*why = shard_type_number_bounds(types, node->n_types, node->out->arena);
	return *why == NULL;
}

void
shard_node_join_begin(ShardNode *node, const ShardCommand *command)
{
	const char *why = NULL;

	if (command->has_data)
		why = "the database has entities or messages, or dead letters";
	if (why || !may_join(node, &why))
	{
		shard_node_step_done(node, command->asker.token, false, why);
		return;
	}
	node->join.token = command->uuid;
	node->join.address = pstrdup(command->text);
	node->join.command = command->asker.token;
	node->join.next_try = 0;
	node->join.why[0] = '\0';
	shard_node_write_identity(node);
	shard_proposer_step_down(node->proposer);
	shard_node_member_workers(node, "joining another cluster");
}

void
shard_node_join_describe(const ShardNode *node, ShardMemberRecord *member)
{
	member->dsn = node->config.dsn ? node->config.dsn : "";
	member->ground = SHARD_ADDRESS_SAID;
	member->app_version = node->config.app_version ? node->config.app_version : "";
	member->weight = node->config.weight;
	member->gate = node->config.live.gate;
	member->identity_lease = node->config.identity_lease;
	member->features = node->config.features;
	member->protocol_version = SHARD_PROTOCOL_VERSION;
	member->n_roles = node->config.n_roles;
	for (int i = 0; i < node->config.n_roles; i++)
		member->roles[i] = node->config.roles[i];
}

void
shard_node_join_tick(ShardNode *node, int64 now)
{
	ShardMemberRecord member;
	ShardControl *message;
	ShardAction *action;
	ShardMapEntry *entry;

	if (now < node->join.next_try || node->last_ticket > node->persisted ||
		!shard_node_get_member(node, node->id, &member))
		return;
	node->join.next_try = now + SHARD_RESEND_INTERVAL;
	message = shard_action_send(node->out, 0, SHARD_CONTROL_JOIN);
	action = &node->out->actions[node->out->n_actions - 1];
	action->text =
		shard_arena_copy(node->out->arena, node->join.address, strlen(node->join.address) + 1);
	member.inc_uuid = node->inc_uuid;
	member.join_token = node->join.token;
	shard_node_join_describe(node, &member);
	entry = shard_arena_alloc(node->out->arena, sizeof(ShardMapEntry) * (node->n_types + 1));
	entry[0] = shard_record_put_member(0, &member, 0, node->out->arena);
	for (int i = 0; i < node->n_types; i++)
		entry[i + 1] = node->types[i].wish;
	message->store_mode =
		node->config.journal_node != 0 ? SHARD_STORE_MODE_JOURNAL : SHARD_STORE_MODE_MEMBERS;
	message->uuid = node->join.token;
	message->uuid2 = node->inc_uuid;
	message->entries = entry;
	message->n_entries = node->n_types + 1;
}

/*
 * The cluster's answer. Welcome: one transaction drops this node's own map and stores the cluster's id.
 */
static void
join_answered(ShardNode *node, int64 now, const ShardControl *message)
{
	if (!node->join.address || !shard_record_uuid_equal(message->uuid2, node->join.token))
		return;
	if (!message->flag && message->waits == 1)
	{
		shard_text_copy(node->join.why, message->text ? message->text : "", sizeof(node->join.why));
		return;
	}
	if (!message->flag)
	{
		end_join(node, false,
				 message->text
					 ? shard_arena_copy(node->out->arena, message->text, strlen(message->text) + 1)
					 : "refused");
		shard_node_write_identity(node);
		shard_node_member_workers(node, "");
		return;
	}
	end_join(node, true, NULL);
	node->cluster = message->uuid;
	node->era = message->era;
	shard_node_journal_new_era(node);
	shard_node_learn_drop_past(node);
	node->id = message->node;
	node->found_itself = true;
	node->inc_no = 0;
	node->admitted = false;
	node->leave_sent = false; /* to no member of that cluster */
	node->status = SHARD_MEMBER_JOINING;
	shard_node_write_identity(node);
	shard_node_learn_addresses(node, message->entries, message->n_entries);
	/* A voter of the old cluster of one; nothing it promised there matters here. */
	shard_node_new_voter(node);
	shard_node_answer_lose_office(node);
	shard_proposer_destroy(node->proposer);
	shard_roster_destroy(node->roster);
	shard_homes_destroy(node->homes);
	node->proposer = shard_proposer_create(node->id);
	node->roster = shard_roster_create(node->id, &node->config.roster, &node->config.live);
	node->homes = shard_homes_create(node->id, &node->config.homes, &node->config.live);
	node->in_office = false;
	node->first_office = 0;
	node->coordinator = message->from;
	node->coordinator_ballot = 0;
	node->coordinator_heard = now;
	shard_action_send(node->out, message->from, SHARD_CONTROL_GET_DELTA)->learned_n = 0;
	shard_node_region_forget(node);
}

const char *
shard_node_join_why(const ShardNode *node)
{
	return node->join.address ? node->join.why : "";
}

void
shard_node_join_receive(ShardNode *node, int64 now, const ShardControl *message)
{
	if (message->kind == SHARD_CONTROL_JOIN_REPLY)
		join_answered(node, now, message);
	else if (node->join.address && message->text && message->text[0] &&
			 shard_record_uuid_equal(message->uuid2, node->join.token))
	{
		pfree(node->join.address);
		node->join.address = pstrdup(message->text);
		node->join.next_try = now;
	}
}
