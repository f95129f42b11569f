# The coordinator gives first homes to nodes of which it knows that they host the type. Until it knows of one,
# shard_health says so there; when nobody has anything to say, shards get homes at all of them.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(2, databases => 1);
my ($first, $second) = $cluster->nodes;
my $unknown = q{SELECT problems::text ~ 'the coordinator does not know all entity types of this node yet' FROM shard_health()};

$_->sql(q{CREATE FUNCTION keep(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql
	RETURN to_jsonb(coalesce(state::int, 0) + 1)}) for $first, $second;
my $start = q{SELECT shard_start('keep', 'keep(jsonb,jsonb)', 12);};
$first->sql($start);
$second->wait_value('SELECT ok, problems FROM shard_health()', 't|{}', 'a node to be well that lacks a type');

# The coordinator's worker is stopped for a moment, so that it hears of nothing. Where that moment was longer
# than the others wait for it, there is no coordinator: then once more.
my ($worker) = $first->workers('shard control');
my $told = '';
my $deadline = time + $ShardCluster::patience;
until ($told eq 't' || time > $deadline)
{
	kill 'STOP', $worker;
	$told = $second->sql("$start$unknown") =~ /(\w)\z/ ? $1 : '';
	kill 'CONT', $worker;
	$cluster->wait_registered;
	$second->sql(q{SELECT shard_drop_type('keep')}) if $told ne 't';
}
is($told, 't', 'a node says that the coordinator does not know its types');
$second->wait_value('SELECT ok, problems FROM shard_health()', 't|{}', 'the coordinator to hear of them');
pass('until it does');

$first->sql(q{SELECT shard_tell('keep', 'e' || i, '{}') FROM generate_series(1, 60) i});
my $homes = q{SELECT count(*), count(DISTINCT node) FROM shard_homes WHERE node IS NOT NULL};
$first->wait_value($homes, '12|2', 'homes');
pass('then first homes are at all nodes that host the type');

# Each change is one, and a new start of the server, too.
$second->sql(q{SELECT shard_stop_type('keep')});
$cluster->wait_registered;
$second->sql($start);
$first->server->restart;
$cluster->wait_registered;
$cluster->wait_up;
is($first->sql($homes), '12|2', 'nothing of that changes where shards live');
$_->wait_value('SELECT ok, problems FROM shard_health()', 't|{}', 'node ' . $_->n . ' to be well') for $first, $second;
done_testing();
