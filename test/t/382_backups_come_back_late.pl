# A backup comes back when its home has more for it than a worker is to have in memory: records of 80 MB, some of which have left the
# log, and what they told, more than waits in memory, of which the home has lost the rest. All of it is stored in calls that are bounded,
# and told once, in order (Q7, Q29).

use strict;
use warnings FATAL => 'all';

use ShardMutant;
use ShardNodes;
use ShardNoise;
use Test::More;

my $cluster = ShardNodes->create(3, conf => "shard.rebalance_interval = 0\nshard.voters = 3\nshard.region_workers = 1\nshard.inbox_max_size = '64MB'\nshared_buffers = '16MB'");
my ($one, $two, $three) = $cluster->nodes;
$cluster->sql_everywhere(q{
CREATE TABLE told (pos bigserial, source text, n int);
CREATE FUNCTION does(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	IF message ? 'source' THEN INSERT INTO told (source, n) VALUES (message->>'source', (message->>'n')::int); END IF;
	IF message ? 'tell' THEN
		PERFORM shard_tell('plain', 'p', jsonb_build_object('source', message->>'tell', 'n', i, 'pad', repeat('x', 900000))) FROM generate_series(1, 12) i;
	END IF;
	IF message ? 'noop' THEN RETURN state; END IF;
	RETURN jsonb_build_object('n', coalesce((state->>'n')::int, 0) + 1, 'long', repeat('x', (message->>'long')::int));
END $$;
});
$_->sql(q{SELECT shard_start('kept', 'does', 32, replicas => 1)}) for $one, $two;
# What is told there keeps nothing in the home's log while the backup is away.
$three->sql(q{SELECT shard_start_proxy('kept')});
$one->sql(q{SELECT shard_start('plain', 'does', 4)});
$cluster->start_recorder;
$cluster->wait_registered;
$cluster->allocate('plain', 'p');
my $near = $cluster->entity_at('recorder', 1);
my %shard;
my @entities = (grep { !$shard{ $cluster->shard_of('kept', $_) }++ } $cluster->entities_at('kept', 1, 40))[ 0 .. 7 ];
die 'too few shards' if !defined $entities[7];
my $list = join ', ', map { "'$_'" } @entities;

# Each of the entities has so many messages, one after the other.
sub works
{
	my ($upto) = @_;
	for (1 .. $upto)
	{
		my $n = $one->sql("SELECT coalesce(max((state->>'n')::int), 0) + 1 FROM shard_entity.kept");
		$three->sql("SELECT shard_tell('kept', e, '{\"long\": 1000000}') FROM unnest(ARRAY[$list]) e");
		$one->wait_value("SELECT count(*) FROM shard_entity.kept WHERE state->>'n' = '$n'", 8, "messages $n to be handled");
	}
	return;
}

# What the worker has had of memory at most since the last look, in kB.
sub peak
{
	my ($pid) = @_;
	my ($peak) = PostgreSQL::Test::Utils::slurp_file("/proc/$pid/status") =~ /^VmHWM:\s+(\d+)/m;
	open my $file, '>', "/proc/$pid/clear_refs" or die "clear_refs: $!";
	print $file "5\n";
	close $file or die "clear_refs: $!";
	return $peak;
}

sub is_stored { return $one->sql("SELECT count(shard_ask('kept', e, '{\"noop\": true}', '180 s')) FROM unnest(ARRAY[$list]) e"); }

my $sound = ShardMutant::prove(
	{
		promise => 'records of 80 MB are shipped in little memory',
		broken_by => ['CALLS_WITHOUT_BOUND'],
		run => sub {
			$two->server->stop('immediate');
			works(5);
			ShardNoise::send_until($one, 'recorder', $near, sub { return $one->sql('SELECT count(*) FROM shard.turn_kept') >= 40 }, 'records to leave the log');
			works(5);
			my $pid = $one->sql(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'shard region' AND datname = current_database()});
			peak($pid);
			my $before = peak($pid);
			$two->server->start;
			is_stored();
			my $after = peak($pid);
			note("the worker had $before kB, then $after kB at most");
			return ($after - $before < 64 * 1024 ? 'little' : 'much', 'little');
		},
	});
if ($sound)
{
	# A record that was not there would be a gap, behind which nothing is stored; those that were applied may have left.
	$two->wait_value(q{SELECT count(*) FROM shard_replica.kept WHERE state->>'n' = '10'}, 8, 'all of it to be applied');

	# 86 MB of outputs wait, and are lost.
	$two->server->stop('immediate');
	for my $entity (@entities)
	{
		$three->sql("SELECT shard_tell('kept', '$entity', '{\"tell\": \"$entity\"}')");
		$one->wait_value("SELECT state->>'n' FROM shard_entity.kept WHERE entity_id = '$entity'", 11, "entity $entity to tell");
	}
	$one->server->crash_postmaster;
	$one->server->start;
	$two->server->start;
	$cluster->wait_up;
	is(is_stored(), 8, 'when both are back all is stored');
	$one->wait_value('SELECT count(*) FROM told', 96, 'all to be told');
	is($one->sql(q{SELECT string_agg(DISTINCT ns, '; ') FROM (SELECT string_agg(n::text, ' ' ORDER BY pos) AS ns FROM told GROUP BY source) s}), join(' ', 1 .. 12), 'once, in order');
}
done_testing();
