# shard_drain waits for what a home had done when it was called, and not for a moment at which nothing waits for its copies.

use strict;
use warnings FATAL => 'all';

use ShardMutant;
use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(3, conf => "shard.rebalance_interval = 0");
my ($home) = $cluster->nodes;
$cluster->sql_everywhere(q{
CREATE FUNCTION counts(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql
	RETURN CASE WHEN message ? 'look' THEN state ELSE jsonb_build_object('n', coalesce((state->>'n')::int, 0) + 1) END});
$_->sql(q{SELECT shard_start('kept', 'counts', 24, replicas => 1)}) for $cluster->nodes;
$cluster->wait_registered;
$home->sql(q{SELECT shard_ask('kept', i::text, '{"look": true}', '60 s') FROM generate_series(1, 400) i});
$home->wait_value(q{SELECT count(DISTINCT shard) FROM shard_replicas}, 24, 'all homes');

# Of shards whose home is node 1, one whose backup is node 2 and one whose is node 3: an entity each; and sessions there.
my %entity = map { $_ => $home->sql(qq{SELECT min(i) FROM generate_series(1, 400) i WHERE shard_shard_id('kept', i::text) IN
	(SELECT h.shard FROM shard_replicas h JOIN shard_replicas b USING (shard) WHERE h.role = 'home' AND h.node = 1 AND b.node = $_)}) } 2, 3;
my %session = map { $_ => $cluster->node($_)->session } 2, 3;
my %told = (2 => 0, 3 => 0);

# The backup stores nothing from here on; and does so again.
sub hold { my ($n) = @_; $session{$n}->query('BEGIN; LOCK TABLE ' . join(', ', @ShardCluster::inbox_tables) . ' IN EXCLUSIVE MODE;'); return; }
sub free { my ($n) = @_; $session{$n}->query('COMMIT;'); return; }

# A turn that the backup does not have.
sub turn
{
	my ($n) = @_;
	hold($n);
	$told{$n}++;
	$home->sql("SELECT shard_tell('kept', '$entity{$n}', '{}')");
	$home->wait_until("SELECT state->>'n' = '$told{$n}' FROM shard_entity.kept WHERE entity_id = '$entity{$n}'", 'a turn');
	return;
}

# Now it has.
sub has
{
	my ($n) = @_;
	free($n);
	is($home->sql("SELECT shard_ask('kept', '$entity{$n}', '{\"look\": true}', '60 s')->>'n'"), $told{$n}, "what node $n has is shown");
	return;
}

# At each moment from the call on a turn of one of the two waits.
sub drain
{
	my $drain = $home->session;
	my $pid = $drain->query('SELECT pg_backend_pid();');
	my $busy = "SELECT state <> 'idle' FROM pg_stat_activity WHERE pid = $pid";
	my $rounds = 0;

	turn(2);
	$drain->send(q{SELECT shard_drain('180 s');});
	$home->wait_until($busy, 'the drain to begin');
	while ($rounds++ < 10 && $home->sql($busy) eq 't')
	{
		turn(3);
		has(2);
		turn(2);
		has(3);
	}
	my $is_over = $home->sql($busy) eq 'f';
	has(2);
	$drain->receive;
	return $is_over;
}

ShardMutant::prove(
	{
		promise => 'it ends under traffic',
		broken_by => ['DRAIN_WAITS_FOR_NEWER'],
		run => sub { return (drain() ? 'over' : 'waits', 'over') },
	});
done_testing();
