/*
 * drop_test.c
 *		Unit tests of types that go in a cluster of several nodes (C9), by whole nodes: what a host has, and
 *		what it may be about to have, against what the cluster keeps.
 */
#include "postgres_fe.h"

#include "common/pg_prng.h"
#include "node_world.h"

#define HOSTS 3
#define NAMES 2

static const char *const names[NAMES] = {"thing", "other"};

/* What a host knows of a type of that name. */
typedef struct HostType
{
	enum
	{
		ABSENT,
		WANTED, /* shard_start() waits for its number */
		BEGUN,	/* it has it; the transaction is open */
		THERE	/* committed */
	} stage;
	int32 id;
	uint64 settings;
} HostType;

static HostType hosts[HOSTS][NAMES];

/* ---- hosts ------------------------------------------------------------------------------------ */

static void
tell(int at, int name, int32 number, bool proxy)
{
	ShardTypeRecord type = {.name = names[name], .number_of_shards = 100, .role = ""};
	ShardNodeEvent event = {.kind = SHARD_EVENT_TYPE, .type = &type, .flag = proxy};

	type.settings_hash = hosts[at][name].settings;
	event.number = number;
	happen(at, &event);
	deliver();
}

static void
tell_gone(int at, int name)
{
	ShardNodeEvent event = {.kind = SHARD_EVENT_DROP_TYPE, .text = names[name]};

	happen(at, &event);
	deliver();
}

/* A change of a type takes a lock that only one transaction of a host can have. */
static bool
is_busy(int at)
{
	for (int i = 0; i < NAMES; i++)
	{
		if (hosts[at][i].stage == WANTED || hosts[at][i].stage == BEGUN)
			return true;
	}
	return false;
}

static void
begin_type(int at, int name, uint64 settings)
{
	hosts[at][name] = (HostType){.stage = WANTED, .settings = settings};
	if (machines[at].node)
		tell(at, name, 0, true);
}

/* It is rolled back, or dropped. */
static void
end_type(int at, int name)
{
	hosts[at][name].stage = ABSENT;
	machines[at].starting = false;
	if (machines[at].node)
		tell_gone(at, name);
}

static void
commit_type(int at, int name)
{
	hosts[at][name].stage = THERE;
	machines[at].starting = false;
	if (machines[at].node)
		tell(at, name, hosts[at][name].id, false);
}

/* The record of a name that a machine has learned; false: none. */
static bool
find_record(int at, const char *name, int32 *id, ShardTypeRecord *type)
{
	int count;
	ShardMapEntry *types =
		shard_map_list(shard_node_learned(machines[at].node), SHARD_MAP_TYPE, out->arena, &count);

	for (int i = 0; i < count; i++)
	{
		*id = types[i].key.a;
		if (shard_record_get_type(&types[i], type, out->arena) && strcmp(type->name, name) == 0)
			return true;
	}
	*id = 0;
	return false;
}

static int32
id_of(int at, int name)
{
	ShardTypeRecord type;
	int32 id;

	(void) find_record(at, names[name], &id, &type);
	return id;
}

static bool
is_dropping(int at, int name)
{
	ShardTypeRecord type;
	int32 id;

	return find_record(at, names[name], &id, &type) && type.dropping;
}

/* What became of a start that waits. */
static void
look(int at, int name)
{
	HostType *type = &hosts[at][name];
	ShardTypeRecord record;
	int32 id;

	if (type->stage != WANTED || !machines[at].node ||
		!find_record(at, names[name], &id, &record) || record.dropping ||
		shard_node_asks_for_type(machines[at].node, names[name]))
		return;
	if (record.settings_hash != type->settings)
	{
		end_type(at, name);
		return;
	}
	type->stage = BEGUN;
	type->id = id;
	machines[at].starting = true;
}

/* The host tells its new process what is there. */
static void
restart(int at)
{
	start(at);
	for (int i = 0; i < NAMES; i++)
	{
		if (hosts[at][i].stage == THERE)
			tell(at, i, hosts[at][i].id, false);
	}
}

/* The server dies, with the transactions that are open. */
static void
crash(int at)
{
	stop(at);
	machines[at].starting = false;
	for (int i = 0; i < NAMES; i++)
	{
		if (hosts[at][i].stage == WANTED || hosts[at][i].stage == BEGUN)
			hosts[at][i].stage = ABSENT;
	}
}

static void
start_type(int at, int name, uint64 settings)
{
	begin_type(at, name, settings);
	for (int i = 0; i < 80 && hosts[at][name].stage == WANTED; i++)
	{
		run(STEP);
		look(at, name);
	}
	if (hosts[at][name].stage == BEGUN)
		commit_type(at, name);
}

static void
want_homes(int at, int name, int count)
{
	for (int i = 0; i < count; i++)
	{
		ShardShardRef ref = {.type_id = hosts[at][name].id, .shard = i};
		ShardNodeEvent event = {.kind = SHARD_EVENT_HOMES_WANTED, .n_shards = 1, .shards = &ref};

		happen(at, &event);
		deliver();
	}
	run(2 * SHARD_SECOND);
}

/* Three members. */
static void
begin_three(void)
{
	end_world();
	begin_world();
	memset(machines, 0, sizeof(machines));
	memset(hosts, 0, sizeof(hosts));
	hosts_tell = true;
	leave_confirmed = false;
	for (int i = 0; i < HOSTS; i++)
		start(i);
	run(2 * SHARD_SECOND);
	join(1, 0);
	join(2, 0);
	run(10 * SHARD_SECOND);
	is_int(count_members(2), HOSTS, "three members");
}

/* The same, which have a type with homes at all of them. */
static void
begin_thing(void)
{
	begin_three();
	for (int i = 0; i < HOSTS; i++)
		start_type(i, 0, 1);
	run(SHARD_SECOND);
	want_homes(0, 0, 30);
	is_int(count_homes(2, 0), 30, "a type with homes");
	ok(count_homes(0, 1) > 0 && count_homes(0, 2) > 0 && count_homes(0, 3) > 0, "at all of them");
}

/* ---- one thing after the other ---------------------------------------------------------------- */

static void
test_drop(void)
{
	begin_thing();
	end_type(0, 0);
	end_type(2, 0);
	run(3 * SHARD_SECOND);
	is_int(id_of(1, 0), 1, "a type that one member has stays");
	ok(!is_dropping(1, 0), "without a mark");
	is_int(count_homes(0, 0), 30, "with its homes");
	end_type(1, 0);
	run(SHARD_SECOND);
	for (int i = 0; i < HOSTS; i++)
		is_int(id_of(i, 0) + count_homes(i, 0), 0, "one that nobody has is gone");
	start_type(1, 0, 2);
	ok(hosts[1][0].stage == THERE && hosts[1][0].id == 2, "its name is free with other settings");
	start_type(2, 0, 2);
	want_homes(1, 0, 10);
	is_int(count_homes(0, 0), 10, "it begins anew");
	start_type(0, 0, 1);
	is_int(hosts[0][0].stage, ABSENT, "and others are held to it");
}

/* The very moment after the last one has dropped it: a start is not taken for the type that goes. */
static void
test_at_once(void)
{
	begin_thing();
	for (int i = 0; i < HOSTS; i++)
		end_type(i, 0);
	run(STEP);
	start_type(0, 0, 2);
	ok(hosts[0][0].stage == THERE && hosts[0][0].id == 2, "with other settings");
	end_type(0, 0);
	run(STEP);
	start_type(2, 0, 2);
	ok(hosts[2][0].stage == THERE && hosts[2][0].id == 3,
	   "with the same ones it is a new one, too");
	is_int(count_homes(0, 0), 0, "without homes");
}

/* A member that is down may have it. */
static void
test_away(void)
{
	begin_thing();
	crash(2);
	end_type(0, 0);
	end_type(1, 0);
	run(15 * SHARD_SECOND);
	is_int(id_of(0, 0), 1, "it waits for a member that is away");
	start_type(0, 0, 2);
	is_int(hosts[0][0].stage, ABSENT, "meanwhile its name is not free for another one");
	restart(2);
	run(15 * SHARD_SECOND);
	ok(id_of(0, 0) == 1 && !is_dropping(0, 0), "which turns out to have it");
	crash(2);
	hosts[2][0].stage = ABSENT;
	run(15 * SHARD_SECOND);
	restart(2);
	run(15 * SHARD_SECOND);
	is_int(id_of(0, 0) + count_homes(0, 0), 0, "or has it no more");
}

/* A coordinator that has never heard of what a member has that is away. */
static void
test_away_from_the_new_coordinator(void)
{
	begin_thing();
	end_type(0, 0);
	end_type(1, 0);
	crash(2);
	run(15 * SHARD_SECOND);
	stop(0);
	restart(0);
	run(15 * SHARD_SECOND);
	ok(is_dropping(0, 0) && id_of(1, 0) == 1, "it is marked, and waits");
	is_int(count_homes(0, 0), 30, "with its homes");
	start_type(1, 0, 1);
	ok(hosts[1][0].stage == THERE && hosts[1][0].id == 1 && !is_dropping(0, 0),
	   "started again as it was, it is what it was");
	restart(2);
	run(15 * SHARD_SECOND);
	is_int(id_of(2, 0), 1, "for who returns, too");
	for (int i = 0; i < HOSTS; i++)
		end_type(i, 0);
	run(SHARD_SECOND);
	is_int(id_of(0, 0) + count_homes(0, 0), 0, "until nobody has it");
}

/* A member that was put back from a copy has what it had then, and has not said so yet. */
static void
test_put_back(void)
{
	begin_thing();
	crash(1);
	stop(0);
	restart(0);
	run(15 * SHARD_SECOND);
	end_type(0, 0);
	end_type(2, 0);
	run(SHARD_SECOND);
	ok(is_coordinator(0) && is_dropping(0, 0), "a type waits for one that is away");
	stop(2);
	hosts[2][0] = (HostType){.stage = THERE, .id = 1, .settings = 1};
	machines[2].unheard = true;
	restart(2);
	run(15 * SHARD_SECOND);
	hosts[1][0].stage = ABSENT;
	restart(1);
	run(15 * SHARD_SECOND);
	ok(is_coordinator(0) && id_of(0, 0) == 1, "it waits for who was started anew, too");
	machines[2].unheard = false;
	run(15 * SHARD_SECOND);
	ok(id_of(0, 0) == 1 && !is_dropping(0, 0), "who has it");
}

static void
test_written_off(void)
{
	ShardCommand event = {.kind = SHARD_COMMAND_DOWN, .node = 3, .asker.token = 5};

	begin_thing();
	crash(2);
	end_type(0, 0);
	end_type(1, 0);
	run(15 * SHARD_SECOND);
	order(0, &event);
	run(SHARD_SECOND);
	is_int(id_of(0, 0), 1, "a member that is down counts");
	event = (ShardCommand){.kind = SHARD_COMMAND_WRITE_OFF, .node = 3, .asker.token = 6};
	order(0, &event);
	run(SHARD_SECOND);
	is_int(id_of(0, 0) + count_homes(0, 0), 0, "one that was written off does not");
}

/* A transaction that knows the number may commit, whenever it likes; or be rolled back. */
static void
test_open_start(void)
{
	begin_three();
	start_type(0, 0, 1);
	begin_type(1, 0, 1);
	for (int i = 0; i < 40 && hosts[1][0].stage == WANTED; i++)
	{
		run(STEP);
		look(1, 0);
	}
	is_int(hosts[1][0].stage, BEGUN, "a start that is not committed");
	end_type(0, 0);
	run(5 * SHARD_SECOND);
	is_int(id_of(0, 0), 1, "keeps the type");
	stop(1);
	restart(1);
	run(15 * SHARD_SECOND);
	is_int(id_of(0, 0), 1, "also when its node's process has forgotten it");
	commit_type(1, 0);
	run(5 * SHARD_SECOND);
	ok(id_of(0, 0) == 1 && !is_dropping(0, 0), "which it has then");
	end_type(1, 0);
	run(SHARD_SECOND);
	is_int(id_of(0, 0), 0, "until it is dropped");

	begin_type(2, 0, 3);
	for (int i = 0; i < 40 && hosts[2][0].stage == WANTED; i++)
	{
		run(STEP);
		look(2, 0);
	}
	run(5 * SHARD_SECOND);
	is_int(id_of(0, 0), 2, "a new type whose start is open stays");
	end_type(2, 0);
	run(SHARD_SECOND);
	is_int(id_of(0, 0), 0, "rolled back, it goes");
}

/* What a member said before it learned of the mark says nothing. */
static void
test_old_news(void)
{
	begin_three();
	start_type(0, 0, 1);
	begin_type(1, 0, 1);
	for (int i = 0; i < 80 && hosts[1][0].stage == WANTED; i++)
	{
		shard_node_tick(machines[1].node, now, out);
		act(1, NO_LINK);
		deliver();
		/* Its next step tells the coordinator that it may have the type. */
		machines[1].cut = true;
		shard_node_tick(machines[1].node, now, out);
		act(1, NO_LINK);
		look(1, 0);
		machines[1].cut = hosts[1][0].stage == BEGUN;
		now += STEP;
	}
	is_int(hosts[1][0].stage, BEGUN, "a start that its coordinator has not heard of");
	end_type(0, 0);
	run(15 * SHARD_SECOND);
	is_int(id_of(0, 0), 1, "its type stays");
	commit_type(1, 0);
	machines[1].cut = false;
	run(15 * SHARD_SECOND);
	ok(id_of(0, 0) == 1 && id_of(1, 0) == 1 && !is_dropping(0, 0), "as it was started");
}

/* ---- leaving ---------------------------------------------------------------------------------- */

/* Four members, of which the last one has never had the type. */
static void
begin_leave(void)
{
	begin_thing();
	start(3);
	run(SHARD_SECOND);
	join(3, 0);
	run(10 * SHARD_SECOND);
}

/* The messages that wait at who leaves are for a host that is only away: also if nobody has heard of it. */
static void
test_leave_host_away(void)
{
	begin_leave();
	end_type(0, 0);
	end_type(1, 0);
	crash(2);
	run(SHARD_SECOND);
	stop(0);
	restart(0);
	run(15 * SHARD_SECOND);
	ok(!is_coordinator(0) && count_homes(0, 1) > 0,
	   "a member has homes of a type that nobody is known to have");
	order(0, &(ShardCommand){.kind = SHARD_COMMAND_LEAVE, .asker.token = 3});
	run(30 * SHARD_SECOND);
	ok(machines[0].command != 3 && count_homes(1, 1) > 0,
	   "it does not leave while somebody is away that may host it");
	restart(2);
	run(30 * SHARD_SECOND);
	ok(machines[0].command == 3 && machines[0].command_good, "it leaves when that one is back: %s",
	   machines[0].command_text);
	is_int(count_homes(1, 1), 0, "after its homes have moved");
	is_int(count_homes(1, 0), 30, "none is lost");
}

/* Nobody can host it: the other ones have said so. */
static void
test_leave_unhosted(void)
{
	begin_leave();
	end_type(0, 0);
	end_type(1, 0);
	tell(2, 0, hosts[2][0].id, true);
	run(15 * SHARD_SECOND);
	ok(id_of(1, 0) == 1 && count_homes(1, 1) > 0,
	   "a member has homes of a type of which there is a proxy alone");
	order(0, &(ShardCommand){.kind = SHARD_COMMAND_LEAVE, .asker.token = 3});
	run(30 * SHARD_SECOND);
	ok(machines[0].command == 3 && machines[0].command_good, "it leaves all the same: %s",
	   machines[0].command_text);
	ok(count_homes(1, 1) > 0, "the homes stay");
	tell(2, 0, hosts[2][0].id, false);
	run(15 * SHARD_SECOND);
	is_int(count_homes(1, 1), 0, "somebody hosts it: they begin anew there");
	is_int(count_homes(1, 0), 30, "all of them");
}

/* ---- any of these in any order ---------------------------------------------------------------- */

/* What the cluster has decided as far as any machine knows: the newest map. */
static int
newest(void)
{
	int best = NO_LINK;

	for (int i = 0; i < HOSTS; i++)
	{
		if (machines[i].node &&
			(best == NO_LINK || shard_map_point(shard_node_learned(machines[i].node)).n >
									shard_map_point(shard_node_learned(machines[best].node)).n))
			best = i;
	}
	return best;
}

static int64 newest_n;

/* Whatever a host has, or may commit, is in the map. */
static bool
is_kept(void)
{
	int at = newest();
	int64 n = at == NO_LINK ? 0 : shard_map_point(shard_node_learned(machines[at].node)).n;

	/* Who knows what was decided may not be there. */
	if (n < newest_n)
		return true;
	newest_n = n;
	for (int i = 0; at != NO_LINK && i < HOSTS; i++)
	{
		for (int k = 0; k < NAMES; k++)
		{
			if ((hosts[i][k].stage == BEGUN || hosts[i][k].stage == THERE) &&
				id_of(at, k) != hosts[i][k].id)
				return false;
		}
	}
	return true;
}

static int n_begun;

static void
random_type(int at, int name, pg_prng_state *random)
{
	HostType *type = &hosts[at][name];

	switch (type->stage)
	{
		case ABSENT:
			if (!is_busy(at) && machines[at].node)
				begin_type(at, name, pg_prng_uint64_range(random, 1, 2));
			break;
		case WANTED:
			look(at, name);
			n_begun += type->stage == BEGUN;
			if (type->stage == WANTED && pg_prng_uint64_range(random, 0, 9) == 0)
				end_type(at, name);
			break;
		case BEGUN:
			if (pg_prng_uint64_range(random, 0, 3) > 0)
				commit_type(at, name);
			else
				end_type(at, name);
			break;
		case THERE:
			if (!is_busy(at) && pg_prng_bool(random))
				end_type(at, name);
			break;
	}
}

static void
random_step(pg_prng_state *random)
{
	int at = (int) pg_prng_uint64_range(random, 0, HOSTS - 1);
	int name = (int) pg_prng_uint64_range(random, 0, NAMES - 1);

	switch (pg_prng_uint64_range(random, 0, 11))
	{
		case 0:
			machines[at].cut = !machines[at].cut && pg_prng_uint64_range(random, 0, 2) == 0;
			break;
		case 1:
			if (!machines[at].node)
				restart(at);
			else if (pg_prng_bool(random))
			{
				/* The process alone. */
				stop(at);
				restart(at);
			}
			else if (pg_prng_bool(random))
				crash(at);
			break;
		case 2:
			run((int64) pg_prng_uint64_range(random, 1, 8) * SHARD_SECOND);
			break;
		case 3:
			if (machines[at].node && hosts[at][name].stage == THERE)
				want_homes(at, name, 5);
			break;
		case 4:
		case 5:
			run((int64) pg_prng_uint64_range(random, 1, 10) * STEP);
			break;
		default:
			random_type(at, name, random);
			break;
	}
}

static void
test_random(void)
{
	int64 gone = 0;

	for (uint64 seed = 1; seed <= 60; seed++)
	{
		pg_prng_state random;

		pg_prng_seed(&random, seed);
		begin_three();
		newest_n = 0;
		for (int i = 0; i < 200; i++)
		{
			random_step(&random);
			if (!is_kept())
			{
				ok(false, "seed %d: what a host has is in the map, step %d", (int) seed, i);
				break;
			}
		}
		for (int i = 0; i < HOSTS; i++)
		{
			machines[i].cut = false;
			if (!machines[i].node)
				restart(i);
			for (int k = 0; k < NAMES; k++)
			{
				if (hosts[i][k].stage != ABSENT)
					end_type(i, k);
			}
		}
		run(20 * SHARD_SECOND);
		for (int i = 0; i < HOSTS; i++)
		{
			if (id_of(i, 0) + id_of(i, 1) + count_homes(i, 0) != 0)
				ok(false, "seed %d: machine %d knows of a type that nobody has", (int) seed, i);
		}
		start_type(0, 0, 9);
		gone += hosts[0][0].id - 1;
	}
	ok(n_begun > 300 && gone > 150,
	   "any steps: what hosts have stays, the rest goes; %d starts, %d types", n_begun, (int) gone);
}

int
main(void)
{
	begin_world();
	test_drop();
	test_at_once();
	test_away();
	test_away_from_the_new_coordinator();
	test_put_back();
	test_written_off();
	test_open_start();
	test_old_news();
	test_leave_host_away();
	test_leave_unhosted();
	test_random();
	end_world();
	return unit_done();
}
