# shard_leave says what it waits for: a coordinator, members that can have the shards, what is on its way. It says how
# many dead letters stay. As long as a shard is here it can be cancelled; whoever waited for it is told so.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(3, conf => 'shard.rebalance_interval = 0');
my ($one, $two, $three) = $cluster->nodes;
$cluster->start_recorder(settings => ', max_attempts => 1');
my $entity = $cluster->entity_at('recorder', 3);
my $shards = q{SELECT count(*) FROM shard_homes WHERE type_name = 'recorder' AND node = 3};
my $state = q{SELECT status FROM shard_members WHERE node = 3};

# --- without a coordinator -------------------------------------------------------------------------

$three->sql(q{ALTER TABLE seen ADD CHECK (what <> 'poison')});
$three->sql(qq{SELECT shard_tell('recorder', '$entity', '{"what": "poison"}')});
$three->wait_value('SELECT count(*) FROM shard_dead_letters', 1, 'a dead letter');
$_->server->stop('immediate') for $one, $two;
$three->wait_until('SELECT count(*) = 0 FROM shard_members WHERE coordinator', 'no coordinator');
my ($status, $out, $said) = $three->try(q{SELECT shard_leave('1 s')});
is("$status $out", '0 f', 'a node that hears no majority does not leave');
like($said, qr/WARNING:  the cluster has not decided yet that this node leaves\nDETAIL:  This node hears of no coordinator.*majority.*HINT:.*asking until .*restarted.*shard_leave\(cancel => true\)/s,
	'it says what it waits for, and how to end that');
like($said, qr/NOTICE:  dead letters that stay on this node: 1\nHINT:  .*shard_redrive\(\)/, 'and that dead letters stay');
my @wait = map { $three->session } 1 .. 2;
$wait[$_]->send(q{SELECT shard_leave('1000 s');}) for 0, 1;
$three->wait_until(q{SELECT count(*) = 2 FROM pg_stat_activity WHERE query ~ '^SELECT shard_leave' AND state = 'active' AND wait_event_type = 'Extension'}, 'two to wait');
is($three->sql('SELECT shard_leave(cancel => true)'), 't', 'it can be cancelled');
ok(!eval { $_->receive; 1 } && $@ =~ /cancelled/, 'whoever waits hears of it') or diag($@) for @wait;
$_->server->start for $one, $two;
$cluster->wait_up;
$cluster->wait_registered;
is($one->sql($state), 'up', 'then nobody is asked when there is a coordinator again');

# --- while nobody can have its shards ----------------------------------------------------------------

$three->sql('ALTER TABLE shard_entity.recorder ADD COLUMN note text');
($status, $out, $said) = $three->try(q{SELECT shard_leave('2 s')});
is("$status $out", '0 f', 'a node whose shards cannot move does not leave');
like($said, qr/WARNING:  this node still has shards: \d+ of entity type "recorder".*HINT:.*shard_leave\(cancel => true\)/s,
	'it says what stays, and how to end that');
$one->wait_value($state, 'leaving', 'the others to see it');
my $waits = $three->session;
$waits->send(q{SELECT shard_leave('1000 s');});
$three->wait_until(q{SELECT count(*) = 1 FROM pg_stat_activity WHERE query ~ '^SELECT shard_leave' AND state = 'active' AND wait_event_type = 'Extension'}, 'somebody to wait');
is($three->sql('SELECT shard_leave(cancel => true)'), 't', 'it can be cancelled');
ok(!eval { $waits->receive; 1 }, 'whoever waits hears of it');
like($@, qr/does not leave the cluster any more.*cancelled/s, 'by an error');
$one->wait_value($state, 'up', 'the others to see that it stays');
is($three->sql('SELECT shard_leave(cancel => true)'), 't', 'again that is no error');
cmp_ok($one->sql($shards), '>', 0, 'it has its shards');
$one->sql(ShardCluster::tell_recorder($entity, 1, 3));
$cluster->wait_recorded($entity, 3, 1 .. 3);
pass('and runs them');
like($one->sql(q{SELECT string_agg(why, ' ') FROM shard_decisions}), qr/up.*\@3/, 'who said so is written down')
  or diag($one->sql(q{SELECT id, what, why FROM shard_decisions ORDER BY id DESC LIMIT 10}));

# --- downed meanwhile ---------------------------------------------------------------------------------

$waits->close;

# A coordinator cannot be downed.
if ($cluster->coordinator->n == 3)
{
	$three->server->restart;
	$one->wait_until('SELECT count(*) = 1 FROM shard_members WHERE coordinator AND node <> 3', 'another coordinator');
	$cluster->wait_up;
	$cluster->wait_registered;
}
$waits = $three->session;
$waits->send(q{SELECT shard_leave('1000 s');});
$one->wait_value($state, 'leaving', 'it to leave again');
$one->sql('SELECT shard_down(3)');
ok(!eval { $waits->receive; 1 }, 'who waits does not wait for a node that was downed');
like($@, qr/does not leave the cluster any more.*was downed meanwhile.*shard_admit/s, 'and hears what to do');
$three->eventually('SELECT shard_admit(3, incarnation + 1) FROM shard_members WHERE self');
$cluster->wait_up;
$cluster->wait_registered;

# --- after all ---------------------------------------------------------------------------------------

$_->sql('ALTER TABLE shard_entity.recorder ADD COLUMN note text') for $one, $two;
($status, $out, $said) = $three->try(q{SELECT shard_leave('120 s')});
is("$status $out", '0 t', 'asked again, it leaves');
like($said, qr/dead letters that stay on this node: 1/, 'its dead letter stays');
is($three->sql('SELECT count(*) FROM shard_dead_letters'), 1, 'and can be read');
like($three->error_of('SELECT shard_leave(cancel => true)'), qr/55000: /, 'it is too late to cancel');
$cluster->has_left(3);
$cluster->logs_are_clean(@ShardNodes::link_troubles, qr/note|poison|seen_what_check/);
done_testing();
