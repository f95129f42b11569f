# A link that works in one direction alone: a server lets nobody in, and calls the others itself. Health at each end names
# it, with the error and what to mend; nobody is taken for lost, and nobody is advised to give up the data of nodes that run.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(3);
my ($one, $two, $three) = $cluster->nodes;
my $role = $ShardNodes::peer_role;
$cluster->start_recorder;
my ($here, $there) = ($cluster->entity_at('recorder', 3), $cluster->entity_at('recorder', 1));
$cluster->entity_at('recorder', 2);
my $health = q{SELECT array_to_string(problems, '; ') FROM shard_health()};

$three->sql("ALTER ROLE $role NOLOGIN");
$three->sql("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename = '$role'");
$_->wait_until("SELECT ($health) ~ '" . 'node 3 calls node ' . $_->n . ", but calls to it have failed for \\d+ s: .*not permitted to log in; .*server of node 3 .*LOGIN'",
	'node ' . $_->n . ' to say that it cannot call node 3, why, and what to mend') for $one, $two;
pass('who cannot call says so, with the error and what to mend');
$three->wait_until("SELECT ($health) ~ 'node 1 answers calls, but has not called node 3 .*server of node 3' AND ($health) ~ 'node 2 answers calls, but has not called node 3'",
	'node 3 to say that nobody calls it');
$three->wait_until("SELECT ($health) ~ 'has not called node 3 for [1-9]\\d s'", 'that to last');
unlike($three->sql($health), qr/write_off|start its server|third member/, 'who is not called takes nobody for lost');
unlike($_->sql($health), qr/write_off|start its server/, 'nor does node ' . $_->n) for $one, $two;
like($three->sql($health), qr/^node 1 answers calls.*; this node hears of no coordinator: .* voters that this node does not hear, nodes 1, 2, answer it/s, 'the cause comes first, and nobody is said not to be there');
is($three->sql("SELECT count(*) > 0 FROM shard_homes WHERE node IN (1, 2)"), 't', 'though shards live there');
like($one->error_of("SELECT shard_ask('recorder', '$here', '{\"what\": \"asked\"}', '1 s')") // '', qr/55P03.*not executed\nDETAIL: .*node 3, cannot be reached for asks since .*not permitted to log in/s,
	'an ask of it is not executed, and says why');
$three->sql(ShardCluster::tell_recorder($there, 1, 3));
$cluster->wait_recorded($there, 1, 1 .. 3);
pass('what it sends is handled');

$three->sql("ALTER ROLE $role LOGIN");
$_->wait_value('SELECT ok, problems FROM shard_health()', 't|{}', 'node ' . $_->n . ' to be well') for $cluster->nodes;
$cluster->drain;
pass('all is well when it lets them in');

# --- what the other end says of itself -----------------------------------------------------------

$three->server->append_conf('postgresql.conf', 'shard.enabled = off');
$three->server->reload;
$one->wait_until(q{SELECT last_error ~ '^the control worker of node 3 does not run' FROM shard_members WHERE node = 3},
	'an error of node 3, shown at node 1, to name it');
$one->wait_until("SELECT ($health) ~ 'node 3 has not been heard for \\d+ s: the control worker of node 3 does not run'", 'so in its health');
pass('what a node says of itself names it');
done_testing();
