# C26: a full buffer refuses only what would go into it: messages for entities that have some waiting. What can be
# handled, here or at another node, is taken. Half full, it is heard of: in the log, once, and by shard_health().

use strict;
use warnings FATAL => 'all';

use PostgreSQL::Test::Utils;
use ShardCluster;
use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(2, databases => 1, conf => 'shard.rebalance_interval = 0');
my ($one, $two) = $cluster->nodes;
my $server = $one->server;
$_->sql(q{CREATE FUNCTION picky(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		IF message ? 'fail' THEN RAISE 'not now' USING ERRCODE = '40001'; END IF;
		RETURN jsonb_build_object('n', coalesce((state->>'n')::int, 0) + 1);
	END $$;
	SELECT shard_start('picky', 'picky', 8, buffer_size => 10, max_attempts => 1000, retry_backoff => '1 hour', max_retry_backoff => '1 hour')})
  for $one, $two;
$cluster->wait_registered;
my ($here, $other) = $cluster->entities_at('picky', 1, 2);
my $there = $cluster->entity_at('picky', 2);
$cluster->drain;
my $count = q{SELECT state->>'n' FROM shard_entity.picky WHERE entity_id = '%s'};
my $tell  = q{SELECT shard_tell('picky', '%s', '%s')};
my %before = map { $_->[1] => $_->[0]->sql(sprintf $count, $_->[1]) || 0 } [ $one, $other ], [ $two, $there ];

# --- half ------------------------------------------------------------------------------------------

my $full = qr/the buffer of entity type "picky" is half full/;
$one->sql(sprintf $tell, $here, '{"fail": 1}');
$one->sql(sprintf $tell, $here, '{}') for 1 .. 3;
$one->wait_until(q{SELECT count(*) = 4 FROM shard_inbox WHERE place = 'stash'}, 'four to wait');
unlike($one->sql('SELECT problems FROM shard_health()'), $full, 'a buffer that is not half full is no problem');
$one->sql(sprintf $tell, $here, '{}');
$one->wait_until(q{SELECT count(*) = 5 FROM shard_inbox WHERE place = 'stash'}, 'five to wait');
$one->wait_until(q{SELECT problems::text ~ 'picky.*half full: 5 messages cannot be handled now, buffer_size is 10' FROM shard_health()}, 'health to say so');
pass('half full it is');
ShardCluster::wait_for_condition(sub { slurp_file($server->logfile) =~ /WARNING:  $full/ }, 'the log to say so');

# --- full ------------------------------------------------------------------------------------------

$one->sql(sprintf $tell, $here, '{}') for 6 .. 10;
$one->wait_until(q{SELECT count(*) = 10 FROM shard_inbox WHERE place = 'stash'}, 'ten to wait');
like($one->error_of(sprintf $tell, $here, '{}'), qr/53400: buffer of entity type "picky" is full.*10 messages cannot be handled now/s,
	'C26: what would have to wait, too, is refused');
like($one->sql('SELECT problems FROM shard_health()'), qr/buffer of entity type \\?"picky\\?" is full: 10 messages cannot be handled now, buffer_size is 10, and senders of such messages get error 53400/, 'full, it is not called half full');
is($one->error_of(sprintf $tell, $other, '{}'), undef, 'C26: what can be handled here is not');
is($one->error_of(sprintf $tell, $there, '{}'), undef, 'C26: nor what goes to another node');
$one->wait_value(sprintf($count, $other), $before{$other} + 1, 'the one here to be handled');
$two->wait_value(sprintf($count, $there), $before{$there} + 1, 'the one there to be handled');
$one->sql(q{SELECT shard_stop_type('picky')});
like($one->error_of(sprintf $tell, $other, '{}'), qr/53400: buffer of entity type "picky" is full.*HINT: .*The type is stopped at this node.*shard_start/s, 'C26: of a stopped type nothing is taken');
my $problems = $one->sql('SELECT problems FROM shard_health()');
like($problems, qr/buffer of entity type \\?"picky\\?" is full: [^;]*; the type is stopped at node 1, this one, and goes on when shard_start\(\) is called for it here; see shard_inbox"/, 'it is the type that is named then');
unlike($problems, qr/shard_peers/, 'and no link');
is($one->error_of(sprintf $tell, $there, '{}'), undef, 'C26: but for entities that run elsewhere');
my $said = () = slurp_file($server->logfile) =~ /WARNING:  $full/g;
is($said, 1, 'it was said once');
done_testing();
