/*
 * core/homes.c
 *		The shard coordinator: registrations, requests for homes, confirmations of starts.
 *
 * What the coordinator knows of homes is read from the decided map, change by change, so a new
 * coordinator comes to the same knowledge by reading it from the beginning. Nothing volatile is needed
 * for safety: a lost registration is repeated, an unconfirmed start is asked for again, a lost request
 * comes again, and every command names the epoch and the move that it is about.
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "core/homes_private.h"
#include "core/membership.h"

/* Shards in one message. */
#define LIST_LIMIT 1000

/* ---- the object ------------------------------------------------------------------------------- */

/* See homes.h. */
ShardHomes *
shard_homes_create(int32 self, const ShardHomesSettings *settings)
{
	ShardHomes *homes = palloc0(sizeof(ShardHomes));

	homes->self = self;
	homes->settings = *settings;
	homes->shards = homes_shard_create(64, NULL);
	homes->requests = homes_request_create(16, NULL);
	homes->arena = shard_arena_create();
	return homes;
}

/* All regions have to register anew. */
static void
forget_regions(ShardHomes *homes)
{
	for (int i = 0; i < homes->n_regions; i++)
	{
		if (homes->regions[i].hosted)
			pfree(homes->regions[i].hosted);
	}
	homes->n_regions = 0;
}

/* See homes.h. */
void
shard_homes_destroy(ShardHomes *homes)
{
	homes_shard_destroy(homes->shards);
	homes_request_destroy(homes->requests);
	forget_regions(homes);
	if (homes->regions)
		pfree(homes->regions);
	if (homes->nodes)
		pfree(homes->nodes);
	shard_arena_destroy(homes->arena);
	pfree(homes);
}

/* See homes.h. */
void
shard_homes_take_office(ShardHomes *homes, int64 now, const ShardMap *decided)
{
	homes->decided = decided;
	homes->seen_n = 0;
	homes_shard_reset(homes->shards);
	homes_request_reset(homes->requests);
	forget_regions(homes);
	homes->n_nodes = 0;
	homes->n_moves = 0;
	homes->n_closed = 0;
	/* Quick ends of regions are heard of before anything is placed. */
	homes->next_host = now + SHARD_RESEND_INTERVAL;
	homes->next_rebalance = shard_homes_next_rebalance(homes, now);
}

/* When the next round of rebalancing is due. */
int64
shard_homes_next_rebalance(const ShardHomes *homes, int64 now)
{
	return homes->settings.rebalance_interval > 0 ? now + homes->settings.rebalance_interval
												  : PG_INT64_MAX;
}

/* The region of a node, NULL if it has not registered here. */
HomesRegion *
shard_homes_region(ShardHomes *homes, int32 node)
{
	for (int i = 0; i < homes->n_regions; i++)
	{
		if (homes->regions[i].node == node)
			return &homes->regions[i];
	}
	return NULL;
}

bool
shard_homes_hosts(const HomesRegion *region, int32 type_id)
{
	for (int i = 0; i < region->n_hosted; i++)
	{
		if (region->hosted[i] == type_id)
			return true;
	}
	return false;
}

HomesShard *
shard_homes_shard(ShardHomes *homes, int32 type_id, int32 shard)
{
	return homes_shard_lookup(homes->shards, (ShardShardKey){type_id, shard});
}

/* The decided record of a home, and the n of its key. False: there is none. */
bool
shard_homes_record(const ShardHomes *homes, const HomesShard *shard, ShardHomeRecord *record,
				   int64 *n)
{
	const ShardMapEntry *entry =
		shard_map_value(homes->decided,
						(ShardMapKey){SHARD_MAP_HOME, shard->key.type_id, shard->key.shard});

	if (!entry || !shard_record_get_home(entry, record))
		return false;
	*n = entry->n;
	return true;
}

/* A member's decided record; its texts live in the arena of this call. */
bool
shard_homes_member(const ShardHomes *homes, int32 node, ShardMemberRecord *member)
{
	const ShardMapEntry *entry =
		shard_map_value(homes->decided, (ShardMapKey){SHARD_MAP_MEMBER, node, 0});

	return entry && shard_record_get_member(entry, member, homes->arena);
}

/* Take an event into a shard's move. */
void
shard_homes_set_move(ShardHomes *homes, HomesShard *shard, ShardMoveEvent event)
{
	ShardMoveState before = shard->move;

	shard->move = shard_move_step(before, event);
	if (shard->move == before)
		return;
	shard->next_send = 0;
	if (before == SHARD_MOVE_NONE)
		homes->n_moves++;
	if (shard->move == SHARD_MOVE_NONE)
		homes->n_moves--;
}

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

/* The same, made if it is not there; valid until another one is made. */
static HomesNode *
make_node(ShardHomes *homes, int32 node)
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

/* Count a home where it is and where it comes to: +1, or -1 before either changes. */
static void
count_home(ShardHomes *homes, const HomesShard *shard, int by)
{
	if (shard->node != 0 && shard->leased)
		make_node(homes, shard->node)->n_leased += by;
	else if (shard->node != 0)
		make_node(homes, shard->node)->n_durable += by;
	if (shard->to != 0)
		make_node(homes, shard->to)->n_coming += by;
}

/* Homes of leased types at a node, or of all others. */
int
shard_homes_number(const ShardHomes *homes, int32 node, bool leased)
{
	const HomesNode *known = find_node(homes, node);

	if (!known)
		return 0;
	return leased ? known->n_leased : known->n_durable;
}

/* See homes.h. */
int
shard_homes_count(const ShardHomes *homes, int32 node)
{
	const HomesNode *known = find_node(homes, node);

	return known ? known->n_durable + known->n_leased + known->n_coming : 0;
}

/* The home is asked to start the shard. */
void
shard_homes_asked(HomesShard *shard, int64 now)
{
	if (shard->asked == 0)
		shard->asked = now;
}

/* ---- decided changes -------------------------------------------------------------------------- */

/* Is it a type that may be started without its owner's consent? */
static bool
is_leased(const ShardHomes *homes, int32 type_id)
{
	const ShardMapEntry *entry =
		shard_map_value(homes->decided, (ShardMapKey){SHARD_MAP_TYPE, type_id, 0});
	ShardTypeRecord type;

	return entry && shard_record_get_type(entry, &type, homes->arena) && type.leased;
}

/* What a decided change means for the move that this coordinator drives. */
static void
follow_move(ShardHomes *homes, int64 now, HomesShard *shard, const ShardHomeRecord *record,
			int32 old_epoch)
{
	if (record->phase == SHARD_HOME_MOVING)
	{
		shard_homes_set_move(homes, shard,
							 shard->move == SHARD_MOVE_NONE ? SHARD_MOVE_FOUND
															: SHARD_MOVE_M1_DECIDED);
		shard->move_id = record->move_id;
		shard->deadline = now + homes->settings.handoff_timeout;
		return;
	}
	if (shard->move == SHARD_MOVE_NONE)
		return;
	if (record->epoch == old_epoch + 1 &&
		(shard->move == SHARD_MOVE_DECIDING || shard->move == SHARD_MOVE_ABORTING) &&
		record->lost != record->epoch)
		shard_homes_set_move(homes, shard, SHARD_MOVE_DECIDED);
	else
		shard_homes_set_move(homes, shard, SHARD_MOVE_OVERTAKEN);
}

/* Another incarnation may have forgotten what the one before had started. */
static void
follow_member(ShardHomes *homes, const ShardMapEntry *entry)
{
	int32 node = entry->key.a;
	homes_shard_iterator iterator;
	HomesShard *shard;
	ShardMemberRecord member;

	if (!shard_record_get_member(entry, &member, homes->arena) ||
		make_node(homes, node)->inc_no == member.inc_no)
		return;
	make_node(homes, node)->inc_no = member.inc_no;
	homes_shard_start_iterate(homes->shards, &iterator);
	while ((shard = homes_shard_iterate(homes->shards, &iterator)) != NULL)
	{
		if (shard->node != node)
			continue;
		shard->confirmed = false;
		shard->asked = 0;
	}
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
		homes->n_moves--;
	homes_shard_delete_item(homes->shards, shard);
}

/* Nobody waits any more for homes of a type that was dropped. */
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

/* Read what was decided since the last time. */
void
shard_homes_follow(ShardHomes *homes, int64 now)
{
	int count;
	ShardMapEntry *entries = shard_map_since(homes->decided, homes->seen_n, homes->arena, &count);

	for (int i = 0; i < count; i++)
	{
		ShardMapKey key = entries[i].key;
		ShardShardKey shard_key = {key.a, key.b};
		ShardHomeRecord record;
		HomesShard *shard;
		bool found;
		int32 old_epoch;

		if (key.kind == SHARD_MAP_MEMBER)
			follow_member(homes, &entries[i]);
		if (key.kind == SHARD_MAP_TYPE && entries[i].deleted)
			forget_requests(homes, key.a);
		if (key.kind == SHARD_MAP_HOME && entries[i].deleted)
			forget_shard(homes, shard_key);
		if (key.kind != SHARD_MAP_HOME || !shard_record_get_home(&entries[i], &record))
			continue;
		shard = homes_shard_insert(homes->shards, shard_key, &found);
		if (!found)
		{
			char status = shard->status;

			memset(shard, 0, sizeof(HomesShard));
			shard->key = shard_key;
			shard->status = status;
			shard->epoch = -1;
			shard->leased = is_leased(homes, key.a);
		}
		count_home(homes, shard, -1);
		old_epoch = shard->epoch;
		shard->n = entries[i].n;
		shard->epoch = record.epoch;
		shard->node = shard_record_home_node(&record);
		shard->to = record.phase == SHARD_HOME_MOVING ? record.to : 0;
		count_home(homes, shard, 1);
		if (record.epoch != old_epoch)
		{
			shard->confirmed = false;
			shard->asked = 0;
		}
		follow_move(homes, now, shard, &record, old_epoch);
		(void) homes_request_delete(homes->requests, shard_key);
	}
	homes->seen_n = shard_map_point(homes->decided).n;
}

/* ---- messages --------------------------------------------------------------------------------- */

/* Register: what a region hosts. Answered with the version that the homes are at (C3). */
static void
register_region(ShardHomes *homes, int64 now, const ShardControl *message, ShardActions *out)
{
	HomesRegion *region = shard_homes_region(homes, message->from);
	ShardControl *reply;

	/* What it has is asked for soon: it may run already, from before it spoke up here. */
	if (!region || region->stopped)
		homes->next_host = Min(homes->next_host, now + SHARD_RESEND_INTERVAL);
	if (!region)
	{
		homes->regions =
			homes->regions ? repalloc(homes->regions, (homes->n_regions + 1) * sizeof(HomesRegion))
						   : palloc(sizeof(HomesRegion));
		region = &homes->regions[homes->n_regions++];
		memset(region, 0, sizeof(HomesRegion));
		region->node = message->from;
	}
	region->stopped = false;
	if (region->hosted)
		pfree(region->hosted);
	region->hosted = NULL;
	region->n_hosted = message->n_nodes;
	if (region->n_hosted > 0)
	{
		region->hosted = palloc(region->n_hosted * sizeof(int32));
		memcpy(region->hosted, message->nodes, region->n_hosted * sizeof(int32));
	}
	reply = shard_action_send(out, message->from, SHARD_CONTROL_REGISTER_ACK);
	reply->commit_n = shard_map_point(homes->decided).n;
	reply->token = message->token;
}

/*
 * GetShardHomes: what is decided is answered at once, unless it is about to change (C2); the rest is
 * allocated by the next tick.
 */
static void
get_homes(ShardHomes *homes, const ShardControl *message, const ShardProposer *proposer,
		  ShardActions *out)
{
	ShardMapEntry *entries =
		shard_arena_alloc(out->arena, sizeof(ShardMapEntry) * Max(message->n_shards, 1));
	int n_entries = 0;
	int32 type_id = 0;
	int32 number = 0;

	for (int i = 0; i < message->n_shards; i++)
	{
		ShardMapKey key = {SHARD_MAP_HOME, message->shards[i].type_id, message->shards[i].shard};
		const ShardMapEntry *home = shard_map_value(homes->decided, key);
		bool found;
		HomesRequest *request;

		if (home)
		{
			if (!shard_proposer_pending(proposer, key))
			{
				entries[n_entries] = *home;
				entries[n_entries++].value =
					shard_arena_copy(out->arena, home->value, home->length);
			}
			continue;
		}
		/* Nobody can have such a shard; it would be waited for for ever. */
		if (key.b < 0 || key.b >= shard_homes_number_of_shards(homes, key.a, &type_id, &number))
			continue;
		request = homes_request_insert(homes->requests, (ShardShardKey){key.a, key.b}, &found);
		if (!found)
			request->requester = message->from;
	}
	if (n_entries > 0)
	{
		ShardControl *reply = shard_action_send(out, message->from, SHARD_CONTROL_SHARD_HOMES);

		reply->entries = entries;
		reply->n_entries = n_entries;
	}
}

/* ShardStarted: the epoch is active at its home. */
static void
started(ShardHomes *homes, const ShardControl *message)
{
	for (int i = 0; i < message->n_shards; i++)
	{
		HomesShard *shard =
			shard_homes_shard(homes, message->shards[i].type_id, message->shards[i].shard);

		if (!shard || shard->epoch != message->shards[i].epoch || shard->node != message->from)
			continue;
		shard->confirmed = true;
		shard->asked = 0;
		if (shard->move == SHARD_MOVE_STARTING)
			shard_homes_set_move(homes, shard, SHARD_MOVE_STARTED);
	}
}

/* Is the sender the decided incarnation of a member? Others say again what they want once they are. */
static bool
is_from_member(const ShardHomes *homes, const ShardControl *message)
{
	ShardMemberRecord member;

	return shard_homes_member(homes, message->from, &member) && message->from_inc != 0 &&
		   message->from_inc == member.inc_no && shard_membership_is_member(member.status);
}

/* See homes.h. */
void
shard_homes_receive(ShardHomes *homes, int64 now, const ShardControl *message,
					ShardProposer *proposer, ShardActions *out)
{
	HomesRegion *region;

	shard_arena_reset(homes->arena);
	shard_homes_follow(homes, now);
	if (!is_from_member(homes, message))
		return;
	switch (message->kind)
	{
		case SHARD_CONTROL_REGISTER:
			register_region(homes, now, message, out);
			break;
		case SHARD_CONTROL_START_TYPE:
			shard_homes_start_type(homes, message, proposer, out);
			break;
		case SHARD_CONTROL_GET_SHARD_HOMES:
			get_homes(homes, message, proposer, out);
			break;
		case SHARD_CONTROL_SHARDS_STARTED:
			started(homes, message);
			break;
		case SHARD_CONTROL_SHARD_STOPPED:
			shard_homes_stopped(homes, message);
			break;
		case SHARD_CONTROL_STAGED:
			shard_homes_staged(homes, message);
			break;
		case SHARD_CONTROL_IMPORT_FAILED:
			shard_homes_import_failed(homes, message);
			break;
		case SHARD_CONTROL_REGION_STOPPED:
			region = shard_homes_region(homes, message->from);
			if (region)
				region->stopped = true;
			break;
		default:
			break;
	}
}

/* ---- due work --------------------------------------------------------------------------------- */

static void
send_host(ShardActions *out, int32 node, const ShardShardRef *shards, int n_shards)
{
	ShardControl *message;

	if (n_shards == 0)
		return;
	message = shard_action_send(out, node, SHARD_CONTROL_HOST_SHARDS);
	message->n_shards = n_shards;
	message->shards = shard_arena_copy(out->arena, shards, n_shards * sizeof(ShardShardRef));
}

/* HostShard for every home whose start nobody confirmed, a message a node. */
static void
host_unconfirmed(ShardHomes *homes, int64 now, ShardActions *out)
{
	ShardShardRef *list;

	if (now < homes->next_host)
		return;
	homes->next_host = now + homes->settings.start_timeout;
	list = shard_arena_alloc(homes->arena, sizeof(ShardShardRef) * LIST_LIMIT);
	for (int r = 0; r < homes->n_regions; r++)
	{
		homes_shard_iterator iterator;
		HomesShard *shard;
		int count = 0;

		homes_shard_start_iterate(homes->shards, &iterator);
		while ((shard = homes_shard_iterate(homes->shards, &iterator)) != NULL)
		{
			if (shard->confirmed || shard->node != homes->regions[r].node)
				continue;
			shard_homes_asked(shard, now);
			list[count++] = (ShardShardRef){shard->key.type_id, shard->key.shard, shard->epoch, 0};
			if (count == LIST_LIMIT)
			{
				send_host(out, shard->node, list, count);
				count = 0;
			}
		}
		send_host(out, homes->regions[r].node, list, count);
	}
}

/* See homes.h. */
void
shard_homes_tick(ShardHomes *homes, int64 now, ShardProposer *proposer, ShardRoster *roster,
				 ShardActions *out)
{
	shard_arena_reset(homes->arena);
	shard_homes_follow(homes, now);
	host_unconfirmed(homes, now, out);
	shard_homes_replace_lost(homes, now, proposer, roster);
	shard_homes_evacuate(homes, now, proposer, roster);
	shard_homes_allocate(homes, now, proposer, roster);
	shard_homes_plan(homes, now, proposer, roster);
	shard_homes_drive(homes, now, proposer, out);
}

/* See homes.h. */
bool
shard_homes_rebalance(ShardHomes *homes, int64 now)
{
	homes->next_rebalance = now;
	return true;
}

/* See homes.h. */
bool
shard_homes_give_up(ShardHomes *homes, int64 now, int32 type_id, int32 shard_number,
					ShardProposer *proposer, const ShardRoster *roster, const char **why)
{
	HomesShard *shard;

	shard_arena_reset(homes->arena);
	shard_homes_follow(homes, now);
	shard = shard_homes_shard(homes, type_id, shard_number);
	if (!shard || (shard->move != SHARD_MOVE_NONE && shard->move != SHARD_MOVE_STARTING))
		*why = "the shard has no home, or is moving";
	else if (shard->confirmed)
		*why = "the shard runs at its home";
	else if (!shard_roster_reachable(roster, shard->node, now))
		*why = "the shard's home cannot be reached: nobody knows whether it runs there";
	else if (shard->asked == 0 || now - shard->asked < SHARD_RETRY_INTERVAL)
		*why = "the shard's home was asked just now whether it runs; try again";
	else
	{
		shard_homes_replace(homes, shard, shard->node, SHARD_EPOCH_LEAP, proposer);
		return true;
	}
	return false;
}

/* See homes.h. */
bool
shard_homes_move(ShardHomes *homes, int64 now, int32 type_id, int32 shard_number, int32 to,
				 ShardProposer *proposer, const ShardRoster *roster, const char **why)
{
	HomesShard *shard;

	shard_arena_reset(homes->arena);
	shard_homes_follow(homes, now);
	shard = shard_homes_shard(homes, type_id, shard_number);
	if (!shard)
	{
		*why = "the shard has no home yet";
		return false;
	}
	return shard_homes_begin_move(homes, now, shard, to, proposer, roster, why);
}
