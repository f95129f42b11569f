/*
 * core/home/homes.c
 *		The shard control: registrations, requests for homes, confirmations of starts.
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

#include "core/home/homes_private.h"
#include "core/member/membership.h"
#include "core/map/type_number.h"

/* Shards in one message. */
#define LIST_LIMIT 1000

/* ---- the object ------------------------------------------------------------------------------- */

ShardHomes *
shard_homes_create(int32 self, const ShardHomesSettings *settings, const ShardLiveSettings *live)
{
	ShardHomes *homes = palloc0(sizeof(ShardHomes));

	homes->self = self;
	homes->settings = *settings;
	homes->live = live;
	homes->shards = homes_shard_create(64, NULL);
	homes->counts = homes_count_create(16, NULL);
	homes->backups = homes_count_create(16, NULL);
	homes->requests = homes_request_create(16, NULL);
	homes->arena = shard_arena_create();
	return homes;
}

/* All regions have to register again. */
static void
forget_regions(ShardHomes *homes)
{
	for (int i = 0; i < homes->n_regions; i++)
	{
		if (homes->regions[i].hosted)
			pfree(homes->regions[i].hosted);
		if (homes->regions[i].known)
			pfree(homes->regions[i].known);
	}
	homes->n_regions = 0;
}

void
shard_homes_destroy(ShardHomes *homes)
{
	shard_homes_forget_moves(homes);
	shard_homes_forget_strategies(homes);
	homes_shard_destroy(homes->shards);
	homes_count_destroy(homes->counts);
	homes_count_destroy(homes->backups);
	homes_request_destroy(homes->requests);
	forget_regions(homes);
	if (homes->regions)
		pfree(homes->regions);
	if (homes->nodes)
		pfree(homes->nodes);
	if (homes->moves)
		pfree(homes->moves);
	if (homes->waiters)
		pfree(homes->waiters);
	if (homes->answers)
		pfree(homes->answers);
	if (homes->strategies)
		pfree(homes->strategies);
	shard_arena_destroy(homes->arena);
	pfree(homes);
}

void
shard_homes_take_office(ShardHomes *homes, int64 now, const ShardProposer *proposer)
{
	homes->proposer = proposer;
	homes->decided = shard_proposer_decided(proposer);
	homes->seen_n = 0;
	homes->office_since = now;
	homes->told_n = shard_map_point(homes->decided).n;
	shard_homes_forget_moves(homes);
	shard_homes_forget_strategies(homes);
	homes_shard_reset(homes->shards);
	homes_count_reset(homes->counts);
	homes_count_reset(homes->backups);
	homes_request_reset(homes->requests);
	forget_regions(homes);
	homes->n_nodes = 0;
	homes->n_closed = 0;
	homes->n_pin_notes = 0;
	homes->next_pins = 0;
	homes->next_strays = 0;
	/* Quick ends of regions are heard of before anything is placed. */
	homes->next_host = now + SHARD_RESEND_INTERVAL;
	homes->next_rebalance = shard_homes_next_rebalance(homes, now);
	homes->rebalanced = 0;
}

void
shard_homes_begin(ShardHomes *homes, int64 now, ShardActions *out)
{
	shard_arena_reset(homes->arena);
	homes->out = out;
	shard_homes_follow(homes, now);
}

int64
shard_homes_next_rebalance(const ShardHomes *homes, int64 now)
{
	return homes->live->rebalance_interval > 0 ? now + homes->live->rebalance_interval
											   : PG_INT64_MAX;
}

void
shard_homes_new_interval(ShardHomes *homes, int64 now)
{
	homes->next_rebalance = shard_homes_next_rebalance(homes, now);
}

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

static int
compare_ids(const void *a, const void *b)
{
	int32 x = *(const int32 *) a;
	int32 y = *(const int32 *) b;

	return x < y ? -1 : x > y;
}

/* In rising order. */
static bool
is_in(const int32 *ids, int count, int32 id)
{
	return count > 0 && bsearch(&id, ids, count, sizeof(int32), compare_ids);
}

bool
shard_homes_hosts(const HomesRegion *region, int32 type_id)
{
	return is_in(region->hosted, region->n_hosted, type_id);
}

/* Is the type there in any way? */
bool
shard_homes_has(const HomesRegion *region, int32 type_id)
{
	return shard_homes_hosts(region, type_id) || is_in(region->known, region->n_known, type_id);
}

HomesShard *
shard_homes_shard(ShardHomes *homes, int32 type_id, int32 shard)
{
	return homes_shard_lookup(homes->shards, (ShardShardKey){type_id, shard});
}

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

bool
shard_homes_member(const ShardHomes *homes, int32 node, ShardMemberRecord *member)
{
	const ShardMapEntry *entry =
		shard_map_value(homes->decided, (ShardMapKey){SHARD_MAP_MEMBER, node, 0});

	return entry && shard_record_get_member(entry, member, homes->arena);
}

bool
shard_homes_type(const ShardHomes *homes, int32 type_id, ShardTypeRecord *type)
{
	const ShardMapEntry *entry =
		shard_map_value(homes->decided, (ShardMapKey){SHARD_MAP_TYPE, type_id, 0});

	return entry && shard_record_get_type(entry, type, NULL);
}

void
shard_homes_asked(HomesShard *shard, int64 now)
{
	if (shard->asked == 0)
		shard->asked = now;
}

/* ---- messages --------------------------------------------------------------------------------- */

/* Keep a list in the place of the former list. */
static void
keep_list(int32 **kept, int *n_kept, const int32 *ids, int count)
{
	if (*kept)
		pfree(*kept);
	*kept = NULL;
	*n_kept = count;
	if (count > 0)
	{
		*kept = palloc(count * sizeof(int32));
		memcpy(*kept, ids, count * sizeof(int32));
		qsort(*kept, count, sizeof(int32), compare_ids);
	}
}

/* What a region hosts, by its newest registration. */
static void
set_hosted(HomesRegion *region, int64 now, const int32 *types, int n_types)
{
	int32 *before = region->hosted;
	int n_before = region->n_hosted;

	region->hosted = NULL;
	keep_list(&region->hosted, &region->n_hosted, types, n_types);
	if (region->since == 0 || n_before != n_types ||
		(n_types > 0 && memcmp(before, region->hosted, n_types * sizeof(int32)) != 0))
		region->since = now;
	if (before)
		pfree(before);
}

/* A list that no node sends is not even looked at, so that others are heard meanwhile. */
static void
log_long_list(const ShardControl *message, const char *what, ShardActions *out)
{
	shard_action_log_peer(out, 19 /* WARNING */, message->from, message->kind,
						  "node %d, or a caller in its name, %s; the message is ignored",
						  message->from, what);
}

/* Register: what a region hosts. Answered with the version that the homes are at (C3). */
static void
register_region(ShardHomes *homes, int64 now, const ShardControl *message, ShardActions *out)
{
	HomesRegion *region = shard_homes_region(homes, message->from);
	int64 held = region && region->inc_no == message->from_inc ? region->token : 0;
	ShardControl *reply;
	int n_types;

	/*
	 * Room for the ids of all types, and of some that are gone: a longer list names ids that are none, and would cost
	 * time to sort.
	 */
	(void) shard_map_list(homes->decided, SHARD_MAP_TYPE, homes->arena, &n_types);
	if (message->n_nodes > SHARD_ROOM_TYPES + n_types ||
		message->n_nodes2 > SHARD_ROOM_TYPES + n_types)
	{
		log_long_list(message, "registers more entity types than a cluster can have", out);
		return;
	}

#ifndef SHARD_MUTANT_ANY_REGISTRATION
	/*
	 * A member can have learned only what was decided, and each number leaves room for a next one.
	 */
	if (message->commit_n > shard_map_point(homes->decided).n ||
		(message->token > SHARD_REGISTRATION_FAR &&
		 message->token - Max(held, SHARD_REGISTRATION_FAR) > SHARD_REGISTRATION_STEP))
		return;
#endif

	/*
	 * An older registration that comes late would be the last, since the node says the newer one only once. Should the
	 * newer one not be the node's own, the node hears its number, and goes above it.
	 */
	if (region && message->token < held
#ifdef SHARD_MUTANT_OVERTAKEN_REGISTRATION
		&& region->as_of > 0
#endif
	)
	{
		reply = shard_action_send(out, message->from, SHARD_CONTROL_REGISTER_ACK);
		reply->commit_n = shard_map_point(homes->decided).n;
		reply->token = held;
		return;
	}

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
	region->stopped = message->flag;
	set_hosted(region, now, message->nodes, message->n_nodes);
	keep_list(&region->known, &region->n_known, message->nodes2, message->n_nodes2);
	region->as_of = message->commit_n;
	region->inc_no = message->from_inc;
	region->token = message->token;
	reply = shard_action_send(out, message->from, SHARD_CONTROL_REGISTER_ACK);
	reply->commit_n = shard_map_point(homes->decided).n;
	reply->token = message->token;
}

/*
 * GetShardHomes: a home that is decided is answered at once, unless it is about to change (C2); the
 * next tick allocates the others.
 */
static void
get_homes(ShardHomes *homes, const ShardControl *message, const ShardProposer *proposer,
		  ShardActions *out)
{
	ShardMapEntry *entries;
	int n_entries = 0;
	int32 type_id = 0;
	int32 number = 0;

	/* A node asks for fewer at a time. */
	if (message->n_shards > LIST_LIMIT)
	{
		log_long_list(message, "asks for the homes of more shards than one does at a time", out);
		return;
	}
	entries = shard_arena_alloc(out->arena, sizeof(ShardMapEntry) * Max(message->n_shards, 1));
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
		/* No node has such a shard; the request would wait without end. */
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

/* A message of a member. */
static void
take(ShardHomes *homes, int64 now, const ShardControl *message, ShardProposer *proposer,
	 const ShardRoster *roster, ShardActions *out)
{
	switch (message->kind)
	{
		case SHARD_CONTROL_REGISTER:
			register_region(homes, now, message, out);
			break;
		case SHARD_CONTROL_START_TYPE:
			shard_homes_start_type(homes, now, message, proposer, roster, out);
			break;
		case SHARD_CONTROL_GET_SHARD_HOMES:
			get_homes(homes, message, proposer, out);
			break;
		case SHARD_CONTROL_SHARDS_STARTED:
			started(homes, message);
			break;
		case SHARD_CONTROL_IMPORT_READY:
			shard_homes_ready(homes, message);
			break;
		case SHARD_CONTROL_SHARD_STOPPED:
			shard_homes_stopped(homes, message);
			break;
		case SHARD_CONTROL_STAGED:
			shard_homes_staged(homes, message);
			break;
		case SHARD_CONTROL_IMPORT_FAILED:
			shard_homes_import_failed(homes, now, message);
			break;
		default:
			break;
	}
}

void
shard_homes_receive(ShardHomes *homes, int64 now, const ShardControl *message,
					ShardProposer *proposer, const ShardRoster *roster, ShardActions *out)
{
	shard_homes_begin(homes, now, out);
	if (is_from_member(homes, message))
		take(homes, now, message, proposer, roster, out);
}

/* Messages wait for a shard that moves: its next step is not left to the tick. */
void
shard_homes_settle(ShardHomes *homes, int64 now, ShardProposer *proposer, const ShardRoster *roster,
				   ShardActions *out)
{
	if (!homes->urgent && shard_map_point(homes->decided).n == homes->seen_n)
		return;
	shard_homes_begin(homes, now, out);
	if (homes->urgent)
		shard_homes_drive(homes, now, proposer, roster);
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

/* HostShard for every home whose start was not confirmed, a message a node. */
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

void
shard_homes_tick(ShardHomes *homes, int64 now, ShardProposer *proposer, ShardRoster *roster,
				 ShardActions *out)
{
	shard_homes_begin(homes, now, out);
	host_unconfirmed(homes, now, out);
	shard_homes_retire_types(homes, now, proposer, roster);
	shard_homes_replace_lost(homes, now, proposer, roster);
	shard_homes_strategy_late(homes, now, proposer, roster);
	shard_homes_serve(homes, now, roster);
	shard_homes_evacuate(homes, now, proposer, roster);
	shard_homes_allocate(homes, now, proposer, roster);
	shard_homes_plan(homes, now, proposer, roster);
	shard_homes_drive(homes, now, proposer, roster);
}
