/*
 * route_test.c
 *		Routing, refusal, re-send and marks over a host that keeps everything in arrays.
 */
#include "postgres_fe.h"

#include "route_host.h"

/* For shard_route_each_touched: counts. */
static void
count_one(void *context, ShardRoute *route pg_attribute_unused())
{
	(*(int *) context)++;
}

/* Unknown, then elsewhere, then elsewhere again: parked, sent, re-sent in order before newer ones. */
static void
test_origin(void)
{
	Host host = {0};
	ShardRoutes *routes = shard_route_create(ME, &host_table, &host, 2);
	ShardRoute *route;
	int touched = 0;

	tell_local(routes, "a");
	tell_local(routes, "b");
	is_int(host.n_wanted, 1, "the home is asked for once");
	tell_home(routes, 2, 0, 0, 10);
	shard_route_each_touched(routes, count_one, &touched);
	is_int(touched, 1, "the shard is one that the transaction has changed");
	shard_route_commit(routes);
	shard_route_each_touched(routes, count_one, &touched);
	is_int(touched, 1, "and with its commit none is");
	is_int(host.n_outbox, 2, "parked messages leave");
	tell_local(routes, "c");
	is_int(host.outbox[2].stamp.seq, 3, "in order");
	is_int(host.outbox[2].epoch, 0, "under the epoch of the home");
	tell_local(routes, "d");

	(void) shard_route_done(routes, 1, 1, 2, 1);
	tell_home(routes, 2, 0, 0, 11);
	is_int(host.n_outbox, 4, "the same epoch changes nothing");
	tell_home(routes, 3, 2, 0, 10);
	is_int(host.epoch, 0, "an old fact is ignored");
	tell_home(routes, 2, 1, 0, 12);
	tell_local(routes, "e");
	is_int(host.n_outbox, 6, "what is not done is sent again to the same node, too");
	tell_home(routes, 2, 1, 0, 12);
	is_int(host.n_outbox, 6,
		   "not when the fact is appended once more, by another process that could not look");
	is_int(host.outbox[4].stamp.seq, 2, "in the order of the stamps");
	is_int(host.outbox[4].epoch, 1, "under the new epoch");
	route = shard_route_get(routes, 1, 1);
	ok(shard_route_superseded(route, &host.outbox[2]), "the old row is void");
	is_int(host.n_parked, 2, "newer ones wait until all of it has left");
	shard_route_commit(routes);
	ok(!shard_route_drain(routes), "nothing is left");
	is_int(host.n_outbox, 8, "then they follow");

	/* The state is lost: what was sent is in doubt. */
	tell_home(routes, 3, 5, 5, 13);
	while (shard_route_drain(routes))
		;
	ok(strcmp(host.doubt_of, "bcde") == 0, "in doubt: %s", host.doubt_of);
	shard_route_commit(routes);
	shard_route_destroy(routes);
}

/* Parked messages leave one by one when there is no time for more, and in order. */
static void
test_over(void)
{
	Host host = {.over = true};
	ShardRoutes *routes = shard_route_create(ME, &host_table, &host, 10);

	tell_local(routes, "a");
	tell_local(routes, "b");
	tell_local(routes, "c");
	tell_home(routes, 2, 0, 0, 10);
	is_int(host.n_outbox, 1, "one leaves with the fact");
	tell_local(routes, "d");
	is_int(host.n_outbox, 1, "what is newer waits behind the others");
	shard_route_commit(routes);
	ok(shard_route_drain(routes), "some are left");
	is_int(host.n_outbox, 2, "one more leaves");
	host.over = false;
	ok(!shard_route_drain(routes), "nothing is left");
	is_int(host.n_outbox, 4, "all have left");
	for (int i = 0; i < 4; i++)
		ok(*(const char *) host.outbox[i].body == "abcd"[i], "number %d in order", i);
	shard_route_commit(routes);
	shard_route_destroy(routes);
}

/* Not admitted yet: no numbers are drawn, own shards go on (I4). */
static void
test_held(void)
{
	Host host = {0};
	ShardRoutes *routes = shard_route_create(ME, &host_table, &host, 10);

	shard_route_hold(routes, true);
	tell_home(routes, 2, 0, 0, 10);
	tell_local(routes, "a");
	tell_local(routes, "b");
	ok(!shard_route_drain(routes), "nothing goes on");
	shard_route_commit(routes);
	is_int(host.n_outbox, 0, "nothing is given to a stream");
	is_int(host.n_parked, 2, "messages wait");
	shard_route_hold(routes, false);
	shard_route_drain(routes);
	shard_route_commit(routes);
	is_int(host.n_outbox, 2, "admitted: they leave");
	is_int(host.outbox[0].stamp.seq, 1, "with numbers that are drawn now");
	shard_route_destroy(routes);
}

/* Parked messages that went on in a turn that was aborted go on in the next one, though nothing comes. */
static void
test_aborted_drain(void)
{
	Host host = {0};
	Host before;
	ShardRoutes *routes = shard_route_create(ME, &host_table, &host, 1);

	tell_local(routes, "a");
	tell_local(routes, "b");
	tell_home(routes, 2, 0, 0, 10);
	shard_route_commit(routes);
	is_int(host.n_parked, 1, "one is left");
	before = host;
	shard_route_drain(routes);
	is_int(host.n_parked, 0, "none is left, for now");
	host = before;
	shard_route_abort(routes);
	shard_route_drain(routes);
	shard_route_commit(routes);
	is_int(host.n_outbox, 2, "the last one left");
	ok(!shard_route_drain(routes), "nothing is left");
	shard_route_destroy(routes);
}

/* A home: own tag only, no repeats, refusal; a move away; an abort. */
static void
test_home(void)
{
	Host host = {0};
	ShardRoutes *routes = shard_route_create(ME, &host_table, &host, 10);
	ShardShardRef move = {1, 1, 0, 7};

	tell_home(routes, ME, 0, 0, 10);
	shard_route_commit(routes);
	is_int(host.n_started, 1, "first allocation");
	tell_arrived(routes, "a", 0, 2, 1);
	tell_arrived(routes, "a", 0, 2, 1);
	tell_local(routes, "b");
	tell_arrived(routes, "c", 0, 2, 2);
	tell_arrived(routes, "x", 1, 2, 3);
	ok(strcmp(host.taken, "abc") == 0, "taken: %s", host.taken);
	is_int(host.n_refused, 1, "another tag is refused");
	shard_route_commit(routes);
	is_int(host.announced, 2, "the mark is announced");

	/* An aborted turn leaves no trace. */
	tell_arrived(routes, "d", 0, 2, 3);
	shard_route_abort(routes);
	tell_arrived(routes, "d", 0, 2, 3);
	ok(strcmp(host.taken, "abcdd") == 0, "taken: %s", host.taken);
	shard_route_commit(routes);

	is_int(shard_route_stop(routes, &move), SHARD_HANDOFF_DO, "stops");
	shard_route_commit(routes);
	is_int(host.n_base, 1, "marks are written");
	tell_arrived(routes, "e", 0, 2, 4);
	tell_local(routes, "f");
	shard_route_commit(routes);
	is_int(host.n_refused, 2, "stopping refuses");
	is_int(host.n_parked, 1, "and parks");

	host.own.state = SHARD_HOME_SEALED;
	shard_route_reload(routes, 1, 1);
	tell_home(routes, ME, 1, 0, 11);
	shard_route_commit(routes);
	is_int(host.own.state, SHARD_HOME_ACTIVE, "an abort brings it back");
	is_int(host.n_parked, 0, "and the parked message");
	tell_arrived(routes, "d", 1, 2, 3);
	tell_arrived(routes, "e", 1, 2, 4);
	ok(strcmp(host.taken, "abcddfe") == 0, "taken: %s", host.taken);
	shard_route_commit(routes);
	shard_route_destroy(routes);

	/* The worker starts anew: base and the rows of the own tag. */
	routes = shard_route_create(ME, &host_table, &host, 10);
	{
		ShardItem old = arrived("e", 0, 2, 9);
		ShardItem own = arrived("e", 1, 2, 4);

		shard_route_rebuild(routes, &old);
		shard_route_rebuild(routes, &own);
	}
	tell_arrived(routes, "e", 1, 2, 4);
	tell_arrived(routes, "g", 1, 2, 5);
	ok(strcmp(host.taken, "abcddfeg") == 0, "taken: %s", host.taken);
	shard_route_commit(routes);

	/* The marks of the origin fall below its floor; an abort keeps them. */
	shard_route_floor(routes, (ShardStamp){SHARD_PREFIX_NODE, 2, 2, 6});
	is_int(shard_route_get(routes, 1, 1)->marks.marks[0].stamp.seq, 0, "dropped");
	shard_route_abort(routes);
	is_int(shard_route_get(routes, 1, 1)->marks.marks[0].stamp.seq, 5, "not dropped");
	shard_route_destroy(routes);
}

/* Read again in the transaction in which it became active, a shard has not forgotten what it has taken in there. */
static void
test_read_again(void)
{
	Host host = {0};
	ShardRoutes *routes = shard_route_create(ME, &host_table, &host, 10);

	tell_home(routes, 2, 0, 0, 10);
	shard_route_commit(routes);
	decided_move = 3;
	host.own = (ShardOwn){.state = SHARD_HOME_STAGED, .epoch = 1, .move_id = decided_move};
	shard_route_own_changed(routes, 1, 1);
	tell_home(routes, ME, 1, 0, 11);
	tell_arrived(routes, "a", 1, 3, 1);
	shard_route_own_changed(routes, 1, 1);
	tell_arrived(routes, "a", 1, 3, 1);
	shard_route_commit(routes);
	ok(strcmp(host.taken, "a") == 0, "taken: %s", host.taken);
	is_int(host.announced, 1, "its mark is told");
	tell_arrived(routes, "a", 1, 3, 1);
	ok(strcmp(host.taken, "a") == 0, "nor later: %s", host.taken);
	shard_route_destroy(routes);
}

/* There and back: own messages wait, are checked against the imported mark, and go before new ones. */
static void
test_return(void)
{
	Host host = {0};
	ShardRoutes *routes = shard_route_create(ME, &host_table, &host, 10);

	tell_home(routes, 2, 0, 0, 10);
	tell_local(routes, "a");
	tell_local(routes, "b");
	shard_route_commit(routes);
	decided_move = 3;
	host.own = (ShardOwn){.state = SHARD_HOME_STAGED, .epoch = 1, .move_id = decided_move};
	host.base[host.n_base++] = host.outbox[0].stamp;
	shard_route_reload(routes, 1, 1);
	tell_local(routes, "c");
	tell_home(routes, ME, 1, 0, 12);
	tell_local(routes, "d");
	shard_route_commit(routes);
	ok(strcmp(host.taken, "bcd") == 0, "taken: %s", host.taken);
	is_int(host.own.state, SHARD_HOME_ACTIVE, "active");
	tell_home(routes, ME, 9, 0, 11);
	is_int(host.own.epoch, 1, "older facts are ignored");
	tell_home(routes, ME, 1, 0, 12);
	shard_route_commit(routes);
	ok(host.own.state == SHARD_HOME_ACTIVE && strcmp(host.taken, "bcd") == 0,
	   "and the same one, appended once more, takes nothing in again");
	shard_route_destroy(routes);

	/* A copy whose epoch was decided elsewhere stays, for the host to delete; one that comes replaces it. */
	memset(&host, 0, sizeof(host));
	routes = shard_route_create(ME, &host_table, &host, 10);
	tell_home(routes, 2, 1, 0, 10);
	shard_route_commit(routes);
	decided_move = 3;
	host.own = (ShardOwn){.state = SHARD_HOME_STAGED, .epoch = 1, .move_id = decided_move};
	shard_route_own_changed(routes, 1, 1);
	shard_route_commit(routes);
	is_int(host.own.state, SHARD_HOME_STAGED, "a turn does not touch what another process staged");
	ok(shard_handoff_delete(&shard_route_get(routes, 1, 1)->own, 1, ME, 2, 1),
	   "it is to be deleted, since its epoch is decided");
	tell_home(routes, 2, 2, 0, 11);
	shard_route_commit(routes);
	is_int(host.own.state, SHARD_HOME_STAGED, "nor does a fact");
	ok(shard_route_step(routes, shard_route_get(routes, 1, 1), SHARD_HOME_DELETED), "deleted");
	shard_route_commit(routes);
	is_int(host.own.state, SHARD_HOME_NONE, "it is gone");
	decided_move = 4;
	host.own = (ShardOwn){.state = SHARD_HOME_STAGED, .epoch = 3, .move_id = decided_move};
	shard_route_own_changed(routes, 1, 1);
	shard_route_commit(routes);
	ok(!shard_handoff_delete(&shard_route_get(routes, 1, 1)->own, 3, ME, 2, 2),
	   "a copy for an epoch to come stays");
	shard_route_destroy(routes);

	/* A home that has nothing of the shard stops, loud, and keeps what comes. */
	memset(&host, 0, sizeof(host));
	routes = shard_route_create(ME, &host_table, &host, 10);
	tell_home(routes, ME, 4, 0, 10);
	tell_local(routes, "a");
	is_int(host.n_wrong, 1, "a fact that cannot be true");
	is_int(host.n_parked, 1, "messages wait");
	is_int(host.n_started, 0, "not started");
	shard_route_destroy(routes);
}

/*
 * A state that was given up begins anew where rows of it are left: what comes meanwhile is taken in, and not
 * handled before they are gone; what is sent from here waits.
 */
static void
test_clearing(void)
{
	Host host = {0};
	ShardRoutes *routes = shard_route_create(ME, &host_table, &host, 10);

	tell_home(routes, ME, 0, 0, 10);
	tell_arrived(routes, "a", 0, 2, 1);
	shard_route_commit(routes);
	is_int(host.n_started, 1, "active");
	tell_home(routes, ME, 1, 1, 11);
	is_int(host.own.state, SHARD_HOME_CLEARING, "its rows are to be deleted");
	is_int(host.own.epoch, 1, "in the new epoch");
	is_int(host.n_started, 1, "not started yet");
	tell_local(routes, "l");
	tell_arrived(routes, "o", 0, 2, 2);
	is_int(host.n_refused, 1, "old tags are refused");
	tell_arrived(routes, "b", 1, 2, 3);
	tell_arrived(routes, "b", 1, 2, 3);
	shard_route_commit(routes);
	ok(strcmp(host.taken, "ab") == 0, "taken: %s", host.taken);
	is_int(host.n_parked, 1, "messages from here wait");
	is_int(host.announced, 3, "the origin hears that its message was taken in");
	ok(!shard_route_drain(routes), "nothing goes on");
	shard_route_destroy(routes);

	/* The worker starts anew: what was taken in while it was clearing is known. */
	routes = shard_route_create(ME, &host_table, &host, 10);
	{
		ShardItem own = arrived("b", 1, 2, 3);

		shard_route_rebuild(routes, &own);
	}
	tell_arrived(routes, "b", 1, 2, 3);
	ok(strcmp(host.taken, "ab") == 0, "nothing is taken twice: %s", host.taken);
	ok(shard_route_step(routes, shard_route_get(routes, 1, 1), SHARD_HOME_DELETED), "cleared");
	is_int(host.n_started, 2, "now it has begun");
	(void) shard_route_drain(routes);
	shard_route_commit(routes);
	is_int(host.own.state, SHARD_HOME_ACTIVE, "active");
	tell_arrived(routes, "b", 1, 2, 3);
	ok(strcmp(host.taken, "abl") == 0, "taken: %s", host.taken);
	shard_route_destroy(routes);
}

/* Who is not home says that it has taken in what was sent, and what will be. (T6) */
static void
test_false_marks(void)
{
	Host host = {0};
	ShardRoutes *routes = shard_route_create(ME, &host_table, &host, 10);

	tell_local(routes, "a");
	ok(!shard_route_done(routes, 1, 1, 3, INT64_C(1) << 60),
	   "no home is known: nobody has taken in");
	tell_home(routes, 2, 1, 0, 10);
	(void) shard_route_drain(routes);
	shard_route_commit(routes);
	is_int(host.n_outbox, 1, "what waited for a home is sent to it");
	tell_local(routes, "b");
	ok(!shard_route_done(routes, 1, 1, 3, INT64_C(1) << 60), "another node has not taken in");
	ok(shard_route_kept(shard_route_get(routes, 1, 1), &host.outbox[0]) &&
		   shard_route_kept(shard_route_get(routes, 1, 1), &host.outbox[1]),
	   "all of it is kept until the home has it");
	ok(shard_route_done(routes, 1, 1, 2, INT64_C(1) << 60), "the home is believed");
	tell_local(routes, "c");
	ok(!shard_route_kept(shard_route_get(routes, 1, 1), &host.outbox[1]), "of what was sent");
	ok(shard_route_kept(shard_route_get(routes, 1, 1), &host.outbox[2]),
	   "and of nothing that was not yet");
	tell_home(routes, 3, 2, 0, 20);
	(void) shard_route_drain(routes);
	shard_route_commit(routes);
	is_int(host.n_outbox, 4, "so that its next home gets it");
	is_int(host.outbox[3].stamp.seq, 3, "and nothing else");
	shard_route_destroy(routes);
}

/* A home decided by voters that were lost gives way to that of a later era (R29): at its origins, and where it was. */
static void
test_undone(void)
{
	Host host = {0};
	ShardRoutes *routes = shard_route_create(ME, &host_table, &host, 10);

	decided_move = 0;
	tell_home(routes, 2, 1, 1, 10);
	tell_local(routes, "a");
	tell_local(routes, "b");
	(void) shard_route_done(routes, 1, 1, 2, 1);
	shard_route_commit(routes);
	tell_home(routes, 3, 1 << 16, 0, 20);
	tell_local(routes, "c");
	(void) shard_route_drain(routes);
	shard_route_commit(routes);
	ok(strcmp(host.doubt_of, "b") == 0, "what was sent and not confirmed is in doubt: %s",
	   host.doubt_of);
	is_int(host.n_outbox, 3, "what is new goes to the home that counts");
	is_int(host.outbox_node[2], 3, "of the later era");
	is_int(shard_route_get(routes, 1, 1)->lost, 0, "others are told of no loss that was undone");
	shard_route_destroy(routes);

	/* The same home in another era: nothing is in doubt. */
	memset(&host, 0, sizeof(host));
	routes = shard_route_create(ME, &host_table, &host, 10);
	tell_home(routes, 2, 1, 0, 10);
	tell_local(routes, "a");
	tell_home(routes, 2, (1 << 16) + 1, 0, 20);
	(void) shard_route_drain(routes);
	shard_route_commit(routes);
	ok(strcmp(host.doubt_of, "") == 0, "in doubt: %s", host.doubt_of);
	is_int(host.n_outbox, 2, "it is sent again");
	shard_route_destroy(routes);

	/* Here: it ends, loud. */
	memset(&host, 0, sizeof(host));
	routes = shard_route_create(ME, &host_table, &host, 10);
	tell_home(routes, ME, 1, 1, 10);
	tell_home(routes, 3, 1 << 16, 0, 20);
	shard_route_commit(routes);
	is_int(host.own.state, SHARD_HOME_SEALED, "sealed");
	is_int(host.n_undone, 1, "and it is said");
	ok(host.doubt > host.own.epoch, "its rows are kept");
	shard_route_destroy(routes);
}

/* The set of a shard comes with its fact, and stays or goes with the turn. */
static void
test_set(void)
{
	Host host = {0};
	ShardRoutes *routes = shard_route_create(ME, &host_table, &host, 10);
	ShardHomeRecord home = {.n_nodes = 2, .nodes = {2, ME}, .want = 2};
	const ShardRoute *route;

	tell_home(routes, 2, 0, 0, 1);
	ok(shard_route_get(routes, 1, 1)->set == NULL, "a plain type's shard has none");
	home.epoch = 1;
	shard_route_fact(routes, 1, 1, &home, 2);
	route = shard_route_get(routes, 1, 1);
	is_int(shard_route_role(route, ME), SHARD_SET_BACKUP, "a backup learns its set");
	is_int(host.set.n, 2, "and writes it");
	host.set = (ShardSet){0};
	shard_route_abort(routes);
	is_int(shard_route_role(shard_route_get(routes, 1, 1), ME), SHARD_SET_NONE,
		   "a turn that is undone takes it along");
	shard_route_fact(routes, 1, 1, &home, 3);
	shard_route_commit(routes);
	is_int(shard_route_role(shard_route_get(routes, 1, 1), ME), SHARD_SET_BACKUP, "it comes again");
	home.nodes[1] = 3;
	home.epoch = 2;
	shard_route_fact(routes, 1, 1, &home, 4);
	is_int(shard_route_role(route, ME), SHARD_SET_NONE, "whom a newer set leaves out has none,");
	is_int(host.set.n_nodes, 0, "durably");
	shard_route_commit(routes);
	shard_route_destroy(routes);
}

/* A home of a shard with replicas, or one that is taken away: node 2 is the other one. */
static void
tell_set(ShardRoutes *routes, int32 node, int32 epoch, int64 n)
{
	ShardHomeRecord home = {.epoch = epoch,
							.n_nodes = 2,
							.nodes = {node, node == ME ? 2 : ME},
							.want = 2};

	shard_route_fact(routes, 1, 1, &home, n);
}

/* What such a home takes in of its own node has a stamp, and is kept until somebody says that the turn is released (Q30). */
static void
test_inputs(void)
{
	Host host = {.rseq = 6};
	ShardRoutes *routes = shard_route_create(ME, &host_table, &host, 10);
	ShardStamp stamp;

	tell_local(routes, "a");
	tell_set(routes, ME, 0, 1);
	ok(strcmp(host.taken, "a") == 0, "what was parked is taken in");
	is_int(host.n_kept, 1, "and kept,");
	is_int(host.kept[0].stamp.seq, 7, "with a stamp");
	ok(!host.kept_again[0], "of this turn");
	tell_local(routes, "b");
	is_int(host.n_inputs, 1, "a row of the log is told to the host");
	is_int(host.inputs[0].stamp.seq, 8, "with the next number");
	is_int(host.inputs[0].stamp.a, ME, "of this node");
	shard_route_commit(routes);
	stamp = host.inputs[0].stamp;
	ok(shard_mark_committed(&shard_route_get(routes, 1, 1)->marks, stamp),
	   "its mark is the shard's");
	is_int(host.announced, 8, "and said");
	tell_local(routes, "c");
	shard_route_abort(routes);
	stamp.seq = 9;
	ok(!shard_mark_passed(&shard_route_get(routes, 1, 1)->marks, stamp),
	   "a turn that is undone has taken nothing in");

	/* Parked again by a former home, which is home once more: those that it has are kept, not taken in again. */
	shard_route_hold(routes, true);
	host.parked[0] = local("b");
	host.parked[0].stamp = (ShardStamp){SHARD_PREFIX_NODE, ME, 2, 8};
	host.parked[1] = local("d");
	host.n_parked = 2;
	shard_route_reload(routes, 1, 1);
	ok(!shard_route_drain(routes), "before the admission nothing gets a number");
	tell_local(routes, "e");
	is_int(host.n_parked, 3, "so it waits");
	shard_route_commit(routes);
	shard_route_hold(routes, false);
	tell_local(routes, "f");
	is_int(host.n_parked, 4, "what comes behind waits behind it");
	(void) shard_route_drain(routes);
	ok(strcmp(host.taken, "abcdef") == 0, "in order, each once: %s", host.taken);
	is_int(host.n_kept, 5, "parked ones are kept");
	ok(host.kept_again[1] && !host.kept_again[2], "of the turns that have taken them in");
	shard_route_commit(routes);
	shard_route_destroy(routes);

	/* A plain type's home gives no numbers. */
	memset(&host, 0, sizeof(host));
	routes = shard_route_create(ME, &host_table, &host, 10);
	tell_local(routes, "a");
	tell_home(routes, ME, 0, 0, 1);
	tell_local(routes, "b");
	is_int(host.rseq + host.n_inputs + host.n_kept, 0, "without replicas nothing is kept");
	shard_route_commit(routes);
	shard_route_destroy(routes);
}

int
main(void)
{
	test_set();
	test_inputs();
	test_origin();
	test_false_marks();
	test_undone();
	test_over();
	test_held();
	test_aborted_drain();
	test_home();
	test_read_again();
	test_return();
	test_clearing();
	return unit_done();
}
