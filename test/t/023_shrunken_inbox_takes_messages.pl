# An inbox whose file was cut or rewritten behind our back takes new messages and loses none: VACUUM
# truncates the tail that a rolled back sender left, VACUUM FULL writes a new file.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use Test::More;

my $node = ShardCluster->create('first');
$node->start_recorder;

my $rolled_back = q{BEGIN;
	SELECT shard_tell_many('recorder', array_agg(text 'a'), array_agg(jsonb_build_object('what', repeat('x', 500))))
	FROM generate_series(1, 8000);
	ROLLBACK;};
my $size = "SELECT sum(pg_relation_size(s)) FROM ($ShardCluster::segments) AS t(s)";

# The sender's session stays the same: its own idea of the tail is what goes stale.
my $session = $node->session;
my $sent = 0;
for my $options ('TRUNCATE on', 'FULL', 'TRUNCATE on')
{
	$session->query(ShardCluster::tell_recorder('a', $sent + 1, $sent + 5));
	# The worker's position, behind what is rolled back, would keep that from being cut off.
	$node->wait_recorded('a', 1 .. $sent + 5);
	$session->query($rolled_back);
	my $before = $session->query("$size;");

	# A lock that anyone holds just then makes VACUUM leave the tail alone.
	ShardCluster::wait_for_condition(
		sub { $node->vacuum_inbox($options); $session->query("$size;") < $before / 4 },
		"VACUUM ($options) to shrink the inbox");

	$session->query(ShardCluster::tell_recorder('a', $sent + 6, $sent + 8));
	$sent += 8;
	$node->wait_recorded('a', 1 .. $sent);
	pass("messages pass after VACUUM ($options)");
}

# Cut, and grown beyond the former length before the worker looks again.
$session->query($rolled_back);
my $before = $session->query("$size;");
ShardCluster::wait_for_condition(
	sub { $node->vacuum_inbox('TRUNCATE on'); $session->query("$size;") < $before / 4 },
	'VACUUM to shrink the inbox');
$session->query(q{SELECT shard_tell_many('recorder', array_agg(text 'b'), array_agg(jsonb_build_object('what', i, 'pad', repeat('y', 500)) ORDER BY i))
	FROM generate_series(1, 12000) i;});
$node->drain;
is( $node->safe_psql('postgres',
		q{SELECT count(*), array_agg(what::int ORDER BY pos) = array_agg(what::int ORDER BY what::int) FROM seen WHERE entity = 'b'}),
	'12000|t', 'none is lost when the file grows again');

# After a restart the tail has to be found anew.
$session->query($rolled_back);
$node->crash;
$node->recover;
$node->vacuum_inbox('TRUNCATE on');
$node->safe_psql('postgres', ShardCluster::tell_recorder('a', $sent + 1, $sent + 3));
$node->wait_recorded('a', 1 .. $sent + 3);
pass('messages pass after a crash and VACUUM');

$node->log_is_clean;
done_testing();
