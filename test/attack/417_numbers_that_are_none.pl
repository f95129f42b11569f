# P01: a peer's question names an entity of a type with a number below 0, which a worker took for a place in its memory: the server
# crashed. Whatever numbers the questions of shard_peer.stats() have, they are answered or refused, and no process ends. And plans: a
# user's, so large that nothing would end it, is refused; those of several sessions at the coordinator's node are all answered.

use strict;
use warnings FATAL => 'all';

use IPC::Run;
use PostgreSQL::Test::Utils;
use ShardNodes;
use ShardWire;
use Test::More;

my $cluster = ShardNodes->create(2);
my ($first, $second) = $cluster->nodes;
$cluster->start_recorder;
my $entity = $cluster->entity_at('recorder', 1);
$first->sql(ShardCluster::tell_recorder($entity, 1));
$cluster->wait_recorded($entity, 1, 1);
my $type = $first->sql(q{SELECT type_id FROM shard.type WHERE type_name = 'recorder'});
my $shard = $cluster->shard_of('recorder', $entity);

use constant RUNNING => 3;
my $peer = ShardWire::Member->new($second, $first);
my $head = $peer->head;
my $region = $first->sql(q{SELECT string_agg(pid::text, ' ' ORDER BY pid) FROM shard_stat_workers});
my $started = $first->sql('SELECT pg_postmaster_start_time()');
my $running = sub { my ($of, $at, $id) = @_; return call_sql('stats', $head . wire_int(RUNNING) . wire_int($of) . wire_int($at) . wire_bytes($id)) };

my ($answer, $errors) = $peer->call($running->($type, $shard, $entity));
is($errors, '', 'a peer asks whether an entity is in memory');
like($answer, qr/\\x01/, 'it is');
my @odd = (-2147483648, -65536, -2, -1, 0, 2147483647);
for my $number (@odd)
{
	(undef, $errors) = $peer->call($running->($number, 0, 'x'));
	like($errors, qr/^(?:08P01)?$/, "P01 type $number is refused or not there");
	(undef, $errors) = $peer->call($running->($type, $number, 'x'));
	like($errors, qr/^(?:08P01)?$/, "P01 shard $number is refused or not there");
}

# Questions of all kinds, with numbers of all sizes.
my $seed = $ENV{SHARD_SEED} // int(rand(2**31));
srand($seed);
my @numbers = (@odd, 1, $type, $shard, 63, 64, 1000, 32767, 65535, 999_999, 1_000_000);
my @calls;
for (1 .. 400)
{
	my $bytes = wire_int(int(rand(10)));
	$bytes .= rand() < 0.8 ? wire_int($numbers[ rand @numbers ]) : wire_bytes('x' x int(rand(300))) for 0 .. rand(5);
	push @calls, call_sql('stats', $head . $bytes);
}
(undef, $errors) = $peer->call(@calls);
is(join(' ', grep { !/^(?:08P01|22\w{3}|54000)$/ } split / /, $errors), '', "questions that are none are refused as such (SHARD_SEED=$seed)");
is($first->sql('SELECT pg_postmaster_start_time()'), $started, 'the server has not crashed');
is($first->sql(q{SELECT string_agg(pid::text, ' ' ORDER BY pid) FROM shard_stat_workers}), $region, 'no region worker has ended');

# --- plans ----------------------------------------------------------------------------------------

my $large = q{SELECT count(*) FROM shard_plan_rebalance((SELECT jsonb_object_agg(n::text, CASE WHEN n = 1 THEN
	(SELECT jsonb_agg(s) FROM generate_series(1, %d) s) ELSE '[]' END) FROM generate_series(1, 1000) n), 'least_shard',
	'{"rebalance_absolute_limit": 2147483647, "rebalance_relative_limit": 1}')};
my (undef, undef, $error) = $first->server->psql($first->db, sprintf($large, 20_001));
like($error, qr/too many shards in allocations\n?.*DETAIL:  There are 20001 shards at 1000 nodes/s, 'a plan that nothing would end is refused');
is($first->sql(sprintf $large, 20_000), 19_980, 'one that is as large as possible is made');
(undef, undef, $error) = $first->server->psql($first->db, q{SELECT * FROM shard_plan_rebalance('{"1": [1000000]}', 'least_shard')});
like($error, qr/invalid value in allocations\.1\[0\]/, 'a shard that no type can have is refused');

my $coordinator = $cluster->coordinator;
my @sessions = map { { out => '', err => '' } } 1 .. 4;
for my $session (@sessions)
{
	my $sql = 'SELECT count(*) FROM shard_rebalance_plan(); ' x 10;
	$session->{run} = IPC::Run::start([ $coordinator->server->installed_command('psql'), '-XAt', '-d', $coordinator->server->connstr($coordinator->db), '-c', $sql ],
		'<', \undef, '>', \$session->{out}, '2>', \$session->{err});
}
$_->{run}->finish for @sessions;
is(join('', map { $_->{err} } @sessions), '', 'plans of several sessions at the coordinator are answered');
done_testing;
