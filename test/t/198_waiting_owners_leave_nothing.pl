# A node leaves its cluster whose workers are too few for all owners: messages of one who waits for a worker go to their
# homes before it is gone. Some were sent to entities that live elsewhere, some wait here with their shards. Likewise
# for a server that goes down.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use ShardOwners;
use Test::More;

my $cluster = ShardNodes->create(2, conf => "shard.region_workers = 1\nshard.shutdown_timeout = '60 s'",
	confs => { 2 => 'shard.max_region_workers = 1' });
my ($one, $two) = $cluster->nodes;
ShardOwners::create_roles($_, 'alice', 'bob') for $one, $two;
for my $node ($one, $two)
{
	ShardOwners::as($node, 'bob', q{
CREATE FUNCTION bob.all(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN coalesce(state, '[]') || message});
}
ShardOwners::as($one, 'alice', q{SELECT shard_start('ta', 'alice.keep')});
ShardOwners::as_eventually($two, 'alice', q{SELECT shard_start('ta', 'alice.keep')});
ShardOwners::as($one, 'bob', q{SELECT shard_start('tb', 'bob.all', 8)});
ShardOwners::as_eventually($two, 'bob', q{SELECT shard_start('tb', 'bob.all', 8)});
$two->wait_until(q{SELECT problems::text ~ 'types of bob have no region worker' FROM shard_health()}, 'bob to wait');

my $tell = sub {
	my ($node, $from, $to) = @_;
	ShardOwners::as($node, 'bob', qq{SELECT count(shard_tell('tb', 'e' || e, to_jsonb(i))) FROM generate_series(1, 32) e, generate_series($from, $to) i});
	return;
};
$tell->($two, 1, 3);
$one->wait_until(qq{SELECT count(DISTINCT node) = 2 FROM shard_homes WHERE type_name = 'tb'}, 'homes at both nodes');
$one->wait_until(q{SELECT count(*) > 0 FROM shard_entity.tb}, 'what was sent at the other node');
my $held = $two->sql(q{SELECT count(*) FROM shard_inbox WHERE type_name = 'tb'});
cmp_ok($held, '>', 0, 'some messages wait');
is($two->sql(q{SELECT shard_drain('3 s')}), 'f', 'which shard_drain() does not call handled');

# Down and up again: what was sent away has arrived before.
$tell->($two, 4, 6);
$two->server->stop('fast');
like(PostgreSQL::Test::Utils::slurp_file($two->server->logfile), qr/Messages for other nodes were stored there/, 'a server that goes down has pushed');
$one->wait_until(q{SELECT count(*) > 0 AND bool_and(jsonb_array_length(state) = 6) FROM shard_entity.tb}, 'all that was for node 1');
$two->server->start;
$cluster->wait_up;
$two->wait_until(q{SELECT problems::text ~ 'types of bob have no region worker' FROM shard_health()}, 'bob to wait again');

$tell->($two, 7, 9);
is($two->sql(q{SELECT shard_leave('120 s')}), 't', 'the node leaves');
$cluster->has_left(2);
is($one->sql(q{SELECT shard_drain('60 s')}), 't', 'what came with its shards is handled');
is($one->sql(q{SELECT count(*) || ' ' || bool_and(state = to_jsonb(ARRAY[1,2,3,4,5,6,7,8,9])) FROM shard_entity.tb}), '32 true',
	'every message was handled once, in order');
is($two->sql(q{SELECT count(*) FROM shard_inbox}), 0, 'nothing is left behind');
done_testing();
