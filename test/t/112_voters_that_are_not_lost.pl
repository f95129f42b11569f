# N8: shard_force_voters() is refused while a voter that it leaves out is there: whose control worker stands still, whose
# server is frozen, who is cut off from this node alone. It says who is there, and who says so. Whoever has seen to it says
# force; of voters that are lost nothing is asked.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(4, proxy => 1);
my ($one, $two, $three, $four) = $cluster->nodes;
my $refused = '55000: these nodes cannot be made the voters: the old ones are not lost\n';
my $hint = '\nHINT:  .*SIGCONT.*force => true';
my $no_coordinator = 'SELECT count(*) = 0 FROM shard_members WHERE coordinator';

is($three->sql('SELECT string_agg(node::text, $$ $$ ORDER BY node) FROM shard_members WHERE voter'), '1 2 3', 'three vote');
like($three->error_of(q{SELECT shard_force_voters('{3}', NULL)}) // 'nothing', qr/22004/, 'force is not null');

sub wait_missed
{
	my ($at, @nodes) = @_;
	$at->wait_until('SELECT bool_and(NOT reachable) FROM shard_members WHERE node IN (' . join(', ', map { $_->n } @nodes) . ')', 'them to be missed');
	return;
}

sub is_refused
{
	my ($at, $nodes, $detail, $what) = @_;
	like($at->error_of("SELECT shard_force_voters('{$nodes}')") // 'nothing', qr/$refused\QDETAIL:  $detail\E$hint/s, $what);
	return;
}

# --- heard -----------------------------------------------------------------------------------------

like($three->error_of(q{SELECT shard_force_voters('{3}')}) // 'nothing', qr/55000: .*majority of the voters/s, 'not while there is a coordinator');

# --- standing still ----------------------------------------------------------------------------------

my @workers = map { $_->workers('shard control') } $one, $two;
$_->server->stop_idle($_->workers('shard control')) for $one, $two;
$three->wait_until($no_coordinator, 'no coordinator');
wait_missed($three, $one, $two);
is_refused($three, '3', "Node 1 answers, and its control worker stands still.\nNode 2 answers, and its control worker stands still.",
	'not while the control workers of the others stand still');
kill 'CONT', @workers;
$cluster->wait_up;
$cluster->wait_reachable;

# --- cut off -----------------------------------------------------------------------------------------

$cluster->proxy->partition([3], [ 1, 2 ]);
wait_missed($three, $one, $two);
$three->wait_until($no_coordinator, 'no coordinator that node 3 hears');
my $error = $three->error_of(q{SELECT shard_force_voters('{3}')}) // 'nothing';
like($error, qr/$refused.*^(DETAIL:  )?Node 4 hears node 2\./ms, 'not while another member hears them');
like($error, qr/^DETAIL:  Node 4 hears a coordinator, node \d, which has a majority of the voters\./m, 'nor while another one hears a coordinator');
is_refused($three, '1,2,3', 'Node 4 hears a coordinator, node ' . $cluster->coordinator->n . ', which has a majority of the voters.', 'whoever is named');
$cluster->proxy->heal;
$cluster->wait_up;
$cluster->wait_reachable;

# --- frozen ------------------------------------------------------------------------------------------

my $begun = $three->sql('SELECT count(*) FROM shard_members WHERE coordinator');
is($begun, 1, 'nothing has changed');
$two->server->crash;
$one->server->freeze;
$three->wait_until($no_coordinator, 'no coordinator again');
wait_missed($three, $one, $two);
is_refused($three, '3', 'The server of node 1 takes connections, and answers nothing: it may be frozen.', 'not while the server of a voter is frozen');
$three->sql(q{SELECT shard_force_voters('{3}', force => true)});
$three->wait_until('SELECT bool_or(coordinator) FROM shard_members WHERE node = 3', 'node 3 to coordinate');
pass('but by force');
$one->server->thaw;
$one->wait_until('SELECT bool_or(coordinator) FROM shard_members WHERE node = 3', 'the voter of before to follow');
pass('whoever it was left out follows');
done_testing();
