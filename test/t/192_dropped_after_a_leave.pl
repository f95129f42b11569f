
# Packets for a node that has left stay stored for a while. Of a type that is gone nothing of them is kept (X6), after a
# restart either: messages that were handled long ago neither come back nor keep a node from leaving.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use ShardOwners;
use Test::More;

my $cluster = ShardNodes->create(3, databases => 1, conf => "shard.region_workers = 1\nshard.owner_workers_keep = 0");
my ($one, $two, $three) = $cluster->nodes;
my $server = $one->server;
my $drop = q{SET client_min_messages = warning; SELECT shard_drop_type('recorder', force => true)};

# What a node has stored for others.
my $stored = q{SELECT coalesce(string_agg(format('node %s: %s messages, %s bytes%s', node, outbox_messages, outbox_bytes,
	', since ' || oldest), '; ' ORDER BY node) FILTER (WHERE outbox_messages > 0 OR oldest IS NOT NULL), 'nothing')
	FROM shard_peers};

sub is_quiet
{
	my ($node, $what) = @_;
	is($node->sql(q{SELECT shard_drain('60 s')}), 't', "$what: nothing waits");
	$node->wait_value($stored, 'nothing', "$what to have nothing stored");
	pass("$what: nothing is stored for anybody");
	return;
}

# The region worker of a node stands still between two turns; which one it is.
sub freeze
{
	my ($node) = @_;
	my ($worker) = $node->workers('shard region');
	ShardCluster::wait_for_condition(sub {
			kill 'STOP', $worker;
			return 1 if $node->sql("SELECT xact_start IS NULL FROM pg_stat_activity WHERE pid = $worker") eq 't';
			kill 'CONT', $worker;
			return 0;
		}, 'a worker between two turns');
	return $worker;
}

$cluster->start_recorder;
my @there = $cluster->entities_at('recorder', 2, 10);
for my $node ($one, $three)
{
	$node->sql(join ';', map { ShardCluster::tell_recorder($_, $node->n . 1, $node->n . 3) } @there);
}
$cluster->drain;
is($two->sql(q{SELECT shard_leave('60 s')}), 't', 'a node leaves');
$cluster->has_left(2);
$cluster->drain;
$_->sql($drop) for $one, $three;
$_->wait_value('SELECT count(*) FROM shard.type', 0, 'the type to be gone') for $one, $three;
$server->restart;
$cluster->wait_up;
if ($ENV{SHARD_MUTANT})
{
	is($three->sql(q{SELECT shard_drain('5 s')}), 'f', 'with the mutant, handled messages keep a node from being drained');
	done_testing();
	exit;
}
is_quiet($one, 'node 1');
is_quiet($three, 'node 3');

# Nor does its origin keep what a home has not handled yet. The type's lanes are among the last: the groups before them
# were others'.
my @others = map { "other$_" } 1 .. 4;
ShardOwners::create_roles($one, @others);
ShardOwners::as($one, $_, qq{SELECT shard_start('of_$_', '$_.keep')}) for @others;
ShardOwners::as($one, $_, qq{SET client_min_messages = warning; SELECT shard_drop_type('of_$_', force => true)}) for @others;
$_->wait_value('SELECT count(*) FROM shard.type', 0, 'those types to be gone') for $one, $three;
$cluster->start_counter;
cmp_ok($one->sql(q{SELECT type_id % 8 FROM shard.type WHERE type_name = 'counter'}), '>=', 4, 'the type has lanes from 32 on');
$_->wait_until(q{SELECT count(*) = 1 AND count(pid) = 1 FROM shard_stat_workers}, 'one region worker') for $one, $three;
my ($late) = $cluster->entities_at('counter', 3, 1, '');
$cluster->drain;
my $home = freeze($three);
$one->sql(join ';', map { "SELECT shard_tell('counter', '$late', '{\"add\": $_}')" } 1 .. 3);
$one->wait_until('SELECT oldest IS NOT NULL FROM shard_peers WHERE node = 3', 'messages that are not handled');
$_->sql($drop =~ s/recorder/counter/r) for $three, $one;
$one->wait_value($stored, 'nothing', 'nothing of the type to be stored');
pass('nothing of a type that is gone is stored for a home that stands still');
kill 'CONT', $home;
$_->wait_value('SELECT count(*) FROM shard.type', 0, 'the type to be gone') for $one, $three;
$three->wait_value(q{SELECT string_agg(message->>'add' || ' ' || sqlstate, ', ' ORDER BY id) FROM shard_dead_letters},
	'1 42704, 2 42704, 3 42704', 'its messages to be dead letters');

# What a member has not received yet when its type goes is given up there, also if the shard is forgotten there already.
my $seen = $three->sql(q{SELECT max(id) FROM shard_dead_letters});
$_->sql(q{SELECT shard_start('counter', 'counter(jsonb,jsonb)', number_of_shards => 12, shard_id_extractor => 'modulo_twelve')}) for $one, $three;
$cluster->wait_registered;
my ($id) = $cluster->entities_at('counter', 3, 1, '');
$cluster->drain;
$server->safe_psql('postgres', 'ALTER DATABASE node3 CONNECTION LIMIT 0');
$three->sql("SELECT pg_terminate_backend($_)") for $three->peer_backends;
$one->sql(join ';', map { "SELECT shard_tell('counter', '$id', '{\"add\": $_}')" } 1 .. 3);
$one->wait_until('SELECT outbox_messages >= 3 FROM shard_peers WHERE node = 3', 'messages to wait for node 3');
my $worker = freeze($one);
$_->sql($drop =~ s/recorder/counter/r) for $three, $one;
$server->safe_psql('postgres', 'ALTER DATABASE node3 CONNECTION LIMIT -1');
$_->wait_value('SELECT count(*) FROM shard.type', 0, 'the type to be gone') for $one, $three;
my ($there) = $three->workers('shard region');
$three->sql("SELECT pg_terminate_backend($there)");
$three->wait_until("SELECT count(*) = 1 FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'shard region' AND pid <> $there",
	'another worker');
is($three->sql(q{SELECT shard_drain('60 s')}), 't', 'it has read what is stored');
kill 'CONT', $worker;
$three->wait_value(q{SELECT string_agg(message->>'add' || ' ' || sqlstate, ', ' ORDER BY id)
	FROM shard_dead_letters} . " WHERE id > $seen",
	'1 42704, 2 42704, 3 42704', 'messages of the type to be dead letters');
pass('messages of a type that is gone are given up where they arrive, in order');
is_quiet($one, 'who sent them');
is_quiet($three, 'who received them');
is($three->sql(q{SELECT shard_leave('60 s')}), 't', 'another one can leave');
$cluster->has_left(3);
done_testing();
