# DROP EXTENSION and DROP DATABASE work at any member, at any time, and say what that means to the others and what to
# do instead, or afterwards. The others then say who is missing; given up, its shards begin anew. Who has left, or was
# never in a cluster with others, hears nothing.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(5, databases => 1, join => 0, conf => 'shard.rebalance_interval = 0');
my ($one, $two, $three, $four, $five) = $cluster->all_nodes;
my $server = $one->server;

my ($status, $out, $said) = $five->try('DROP EXTENSION shard CASCADE');
is("$status $said", '0 ', 'a cluster of one is dropped without a word');
$cluster->has_left(5);
$cluster->join_all;

is($four->sql(q{SELECT shard_leave('60 s')}), 't', 'a node leaves');
$cluster->has_left(4);
($status, $out, $said) = $four->try('DROP EXTENSION shard CASCADE');
is("$status $said", '0 ', 'it is dropped without a word');

$cluster->start_recorder;
my $entity = $cluster->entity_at('recorder', 2);
$one->sql(ShardCluster::tell_recorder($entity, 1, 3));
$cluster->wait_recorded($entity, 2, 1 .. 3);

# --- the extension -------------------------------------------------------------------------------

($status, $out, $said) = $two->try('DROP EXTENSION shard CASCADE');
is($status, 0, 'the extension can be dropped at a member');
like($said, qr/WARNING:  this database is node 2 of a cluster with 2 other members, and has not left it/, 'with a warning');
like($said, qr/DETAIL:  .*take the node for lost.*HINT:  Call shard_leave\(\) first\. If it is too late, call shard_write_off\(2\) at another member/s,
	'of what it means, and what to do');
is($two->sql(q{SELECT count(*) FROM pg_extension WHERE extname = 'shard'}), 0, 'it is gone');
$cluster->has_left(2);
$one->sql(ShardCluster::tell_recorder($entity, 4));
$one->wait_until(q{SELECT problems::text ~ 'node 2 has not been heard' AND problems::text ~ 'for node 2 .unreachable.*shard_write_off.2.'
	FROM shard_health()}, 'the others to say who is missing, and what can be done');
# A server that is slow does not answer the short call of shard_health(): what the link has heard from it says more.
$server->append_conf('postgresql.conf', 'post_auth_delay = 2');
$server->reload;
$one->wait_until(q{SELECT setting = '2' FROM pg_settings WHERE name = 'post_auth_delay'}, 'new sessions to be slow');
$one->wait_until(q{SELECT count(*) = 1 AND bool_and(last_error ~ 'does not have extension "shard"') FROM shard_members WHERE node = 2}, 'the link to hear what is missing there');
my $problems = $one->sql(q{SELECT array_to_string(problems, chr(10)) FROM shard_health()});
like($problems, qr/^node 2 has not been heard .*: the database at the address does not have extension "shard"/m, 'the answer of the server is told');
unlike($problems, qr/frozen/, 'no server that answers is taken for a frozen one');
$server->append_conf('postgresql.conf', 'post_auth_delay = 0');
$server->reload;
$two->sql("CREATE EXTENSION shard; SELECT shard_allow_peer('$ShardNodes::peer_role')");
$one->wait_until(q{SELECT problems::text ~ 'another database answers at the address of node 2, node 1 of another cluster: .*shard_write_off.2., then shard_join'
	AND NOT problems::text ~ 'answers calls' FROM shard_health()}, 'them to say that who answers is another one, made anew');
pass('that somebody answers is not taken for a link of one direction');
$one->eventually('SELECT shard_write_off(2)');
$one->sql(ShardCluster::tell_recorder($entity, 5));
ShardCluster::wait_for_condition(sub { $cluster->recorded($entity) =~ /5 = \d at [13]$/ }, 'its shards to begin anew');
pass('given up, its shards begin anew');

# --- the database --------------------------------------------------------------------------------

($status, $out, $said) = $server->psql('postgres', 'DROP DATABASE node3');
is($status, 0, 'the database of a member can be dropped');
like($said, qr/WARNING:  database "node3" is node 3 of a cluster with 1 other member, and has not left it.*HINT:.*shard_write_off\(3\)/s,
	'with a warning');
$cluster->has_left(3);

# Each attempt to log in there is a line in that server's log: pauses between them grow to ten seconds.
my $refusals = sub { return scalar(() = PostgreSQL::Test::Utils::slurp_file($server->logfile) =~ /FATAL:  database "node3" does not exist/g) };
my @looks;
ok(eval { ShardCluster::wait_for_condition(sub {
	push @looks, [ time, $refusals->() ];
	shift @looks while @looks > 1 && $looks[1][0] <= time - 13;
	return $looks[0][0] <= time - 13 && $looks[0][1] > 0 && $looks[-1][1] - $looks[0][1] <= 8;
}, 'eight attempts of all links in 13 s, or fewer'); 1 }, 'the others try to reach it, ever more rarely');

$one->eventually('SELECT shard_write_off(3)');
$one->wait_until('SELECT ok FROM shard_health()', 'all to be well');
pass('the rest goes on');
done_testing();
