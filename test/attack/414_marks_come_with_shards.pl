# P72: a shard moves with base marks by the hundred thousand, of nodes that never were. The region worker of its new home compared each
# with all others, for hours, and nobody could end it. A copy with marks that the shard cannot have is refused, the move is given up, and
# shard_rebalances says why; what is stored of such marks is deleted when the shard is met, and nothing else.

use strict;
use warnings FATAL => 'all';

use PostgreSQL::Test::Utils;
use ShardNodes;
use Test::More;

my $many = 100_000;
my $cluster = ShardNodes->create(2, conf => 'shard.rebalance_interval = 0');
my ($good, $evil) = $cluster->nodes;
$cluster->start_recorder;
my $entity = $cluster->entity_at('recorder', 2);
my $shard = $cluster->shard_of('recorder', $entity);
my $type = $good->sql('SELECT type_id FROM shard.type');
my $marks = "FROM shard.shard_input WHERE type_id = $type AND shard = $shard";
sub strange { my ($node, $from, $count) = @_; return $node->sql("INSERT INTO shard.shard_input SELECT $type, $shard, 1, $from + i / 64, i % 64, 1 FROM generate_series(1, $count) i"); }
my @sent;

sub tell_it
{
	my ($n) = @_;
	push @sent, @sent + 1;
	$good->sql(ShardCluster::tell_recorder($entity, $sent[-1], $sent[-1]));
	$cluster->node($n)->wait_until("SELECT count(*) = 1 FROM seen WHERE what = '$sent[-1]'", "message $sent[-1] to be handled at node $n");
	return;
}

tell_it(2);

# So many that it is seen before anything moves.
strange($evil, 1000, $many);
like($good->error_of("SELECT shard_move('recorder', $shard, 1)") // 'none', qr/node 2 has $many marks of shard $shard of entity type "recorder", which can have 2/,
	'P72 a shard with marks that nobody can have left does not move')
  or die 'the worker of node 1 is busy with them';
$evil->sql("DELETE $marks");

# One, which its copy shows: the old home keeps the shard.
strange($evil, 1000, 1);
$good->try("SELECT shard_move('recorder', $shard, 1)");
my $refused = qr/node 2 has a mark of shard $shard of entity type "recorder" that no shard can have: of node 1000, lane 1/;
my $why = "SELECT string_agg(error, ' ') FROM shard_rebalances WHERE shard = $shard";
$good->wait_until("SELECT coalesce(string_agg(error, ' '), '') ~ 'that no shard can have' FROM shard_rebalances WHERE shard = $shard", 'the reason to be seen');
like($good->sql($why), $refused, 'P72 a copy with a mark of a node that never was is refused');
$cluster->wait_home('recorder', $shard, 2);
tell_it(2);
pass('P72 the old home goes on with the shard');

# Without it the shard moves, with what it had taken in.
$evil->sql("DELETE $marks AND a = 1000");
$cluster->move('recorder', $shard, 1);
$cluster->wait_home('recorder', $shard, 1);
tell_it(1);
is($good->sql("SELECT string_agg(a::text, ' ') $marks"), 1, 'the shard has brought its mark');

# A node that has them stored, by an older version or as somebody has put them there.
strange($good, 100_000, $many);
$good->server->stop('immediate');
$good->server->start;
tell_it(1);
is($good->sql("SELECT string_agg(a::text, ' ') $marks"), 1, 'P72 what cannot be is deleted when the shard is met, and the mark stays');
like(slurp_file($good->server->logfile), qr/shard $shard of entity type $type had $many marks that no shard can have: they were deleted/, 'P72 the log says so');
$cluster->move('recorder', $shard, 2);
$cluster->wait_home('recorder', $shard, 2);
tell_it(2);
is($evil->sql("SELECT string_agg(what, ' ' ORDER BY what) FROM seen") . ' ' . $good->sql("SELECT string_agg(what, ' ' ORDER BY what) FROM seen"), '1 2 5 3 4',
	'and all was handled once');
$cluster->logs_are_clean(@ShardNodes::link_troubles, qr/marks? .*that no shard can have|which can have 2/);
done_testing;
