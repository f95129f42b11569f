# States without homes, which a dump, SQL or a reset of the cluster's data brought: before the node that is alone lets another one
# in, it takes the homes of their shards, of stopped types, too. A table that cannot be read puts the join off, which says why.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(4, join => 0, conf => 'shard.rebalance_interval = 0');
my ($one, $two, $three, $four) = $cluster->nodes;

# States of a type at node 1, as INSERT from a restored table makes them.
sub restore
{
	my ($type) = @_;
	$one->sql(qq{INSERT INTO shard_entity.$type (shard, entity_id, state)
		SELECT shard_shard_id('$type', i::text), i::text, '{"count": 1}' FROM generate_series(1, 100) i});
	return;
}

# Each entity gets a message from a node that has joined, and has the state that it had.
sub states_are_found
{
	my ($at, $from, $type, $count) = @_;
	$from->sql(qq{SELECT count(shard_tell('$type', i::text, '{"add": 1}')) FROM generate_series(1, 100) i});
	$at->wait_value(qq{SELECT count(*) FROM shard_entity.$type WHERE state->>'count' = '$count'}, 100, "states of $type to have the message");
	is($from->sql("SELECT count(*) FROM shard_entity.$type"), 0, "no state of $type begins anew");
	return;
}

$cluster->start_counter_at($one);
sub start_stopped
{
	my ($node) = @_;
	$node->sql(q{SELECT shard_start('stopped', 'counter(jsonb,jsonb)', number_of_shards => 12, shard_id_extractor => 'modulo_twelve')});
	$cluster->wait_registered($node);
	return;
}
start_stopped($one);
restore($_) for qw(counter stopped);
$one->sql(q{SELECT shard_stop_type('stopped')});
is($one->sql('SELECT count(*) FROM shard_homes'), 0, 'states without homes');

# --- a table that somebody has locked ---------------------------------------------------------------

# Before that, one that cannot be read: its file is away.
my $file = $one->server->data_dir . '/' . $one->sql(q{SELECT pg_relation_filepath('shard_entity.stopped')});
$one->server->stop('fast');
rename $file, "$file.away" or die "rename: $!";
$one->server->start;
my $log = -s $one->server->logfile;
my $joiner = $two->session;
$joiner->send(sprintf("SELECT shard_join('%s', '%s');", $one->dsn, $two->dsn));
$one->wait_until(q{SELECT array_to_string(problems, '; ') LIKE '%no node can join: the state table of entity type "stopped" cannot be read there;%' FROM shard_health()},
	'health to name the table that cannot be read');
my $seen = $one->sql('SELECT clock_timestamp()');
$one->wait_until("SELECT clock_timestamp() > '$seen'::timestamptz + interval '3 s'", 'some more looks at it');
my @told = PostgreSQL::Test::Utils::slurp_file($one->server->logfile, $log) =~ /WARNING:.*no node can join/g;
is(scalar @told, 1, 'the log says once that it cannot be read');
my $locker = $one->session;
$locker->query('BEGIN; LOCK TABLE shard_entity.stopped;');
rename "$file.away", $file or die "rename: $!";
$two->wait_until(q{SELECT array_to_string(problems, '; ') LIKE '%has to wait: the state table of entity type "stopped" is locked there%' FROM shard_health()},
	'the node that joins to say why it waits');
is($one->sql('SELECT count(*) FROM shard_members'), 1, 'nobody is let in meanwhile');
is($one->sql(q{SELECT count(*) FROM pg_locks WHERE NOT granted}), 0, 'and nobody waits for the table');
$locker->query('COMMIT;');
is($joiner->receive, 2, 'it joins when the table is free');
is($one->sql('SELECT type_name, count(*), max(node), min(reason) FROM shard_homes GROUP BY 1 ORDER BY 1'), "counter|12|1|states\nstopped|12|1|states",
	'each shard that has states has its home where they are');

$cluster->start_counter_at($two);
start_stopped($two);
states_are_found($one, $two, 'counter', 2);
$one->sql(q{SELECT shard_start('stopped', 'counter(jsonb,jsonb)', number_of_shards => 12, shard_id_extractor => 'modulo_twelve')});
states_are_found($one, $two, 'stopped', 2);

# --- the data of a cluster that is lost -------------------------------------------------------------

$cluster->start_counter_at($three);
$three->sql(q{SELECT count(shard_tell('counter', i::text, '{"add": 1}')) FROM generate_series(1, 100) i});
is($three->sql(q{SELECT shard_drain('60 s')}), 't', 'states of a node of its own');
$three->sql('ALTER SYSTEM SET shard.enabled = off');
$three->server->reload;
$three->wait_until(q{SELECT count(*) = 0 FROM pg_stat_activity WHERE backend_type LIKE 'shard%' AND datname IS NOT NULL}, 'workers to be off');
$three->sql('SELECT shard_reset_cluster_data()');
$three->sql('ALTER SYSTEM SET shard.enabled = on');
$three->server->reload;
$three->wait_until('SELECT ok FROM shard_health()', 'the node to be well');
is($three->sql('SELECT count(*) FROM shard_homes'), 0, 'states without homes again');

# It dies when their homes are on the way.
$three->server->set_fault('states_have_homes', 'crash');
$joiner = $four->session;
$joiner->send(sprintf("SELECT shard_join('%s', '%s');", $three->dsn, $four->dsn));
ShardCluster::wait_for_condition(sub { $three->server->fault_happened }, 'the server to crash');
is($joiner->receive, 2, 'a node joins although the one that is alone has died meanwhile');
is($three->sql('SELECT count(*), max(node) FROM shard_homes'), '12|1', 'their homes are where they are');
$cluster->start_counter_at($four);
states_are_found($three, $four, 'counter', 2);

done_testing();
