# The length of one shard's record comes damaged at its backup each time, so that the whole call is refused, with what it has of
# other shards. Then the home ships them one by one, and finds the one that nothing more is shipped of (Q8). What other errors
# are raised by says nothing of records.

use strict;
use warnings FATAL => 'all';

use PostgreSQL::Test::Utils;
use ShardMutant;
use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(2, conf => "shard.rebalance_interval = 0\nshard.voters = 1\nshard.region_workers = 1", proxy => 1);
my ($one, $two) = $cluster->nodes;
$cluster->sql_everywhere(q{CREATE FUNCTION keep(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql
	RETURN CASE WHEN message ? 'noop' THEN state ELSE message || jsonb_build_object('n', coalesce((state->>'n')::int, 0) + 1) END});
$_->sql(q{SELECT shard_start('kept', 'keep', 16, replicas => 1)}) for $one, $two;
$cluster->wait_registered;

# Entities of shards of their own, whose records have told their columns.
my %shard;
my ($spoilt, @sound) = (grep { !$shard{ $cluster->shard_of('kept', $_) }++ } $cluster->entities_at('kept', 1, 24))[ 0 .. 3 ];
$one->sql("SELECT shard_ask('kept', '$_', '{}', '60 s')") for $spoilt, @sound;
my $of = $cluster->shard_of('kept', $spoilt);

ShardMutant::prove(
	{
		promise => 'the others are stored, and health names the one',
		broken_by => ['REFUSED_TOGETHER'],
		run => sub {
			# A length of 64 to 128 kB, a sum, a version, the type's number, and not far behind them the state.
			$cluster->proxy->spoil(1, 2, sprintf '..\x01\x00.{4}\x01\x%02x.{1,200}spoil-me', 2 * $one->sql(q{SELECT type_id FROM shard.type}));
			$two->server->stop('immediate');
			$one->sql("SELECT shard_tell('kept', '$spoilt', jsonb_build_object('a', 'spoil-me', 'pad', repeat('x', 70000)))");
			$one->sql("SELECT shard_tell('kept', '$_', '{}')") for @sound;
			$one->wait_value(q{SELECT count(*) FROM shard_entity.kept WHERE state->>'n' = '2'}, 4, 'all to be handled');
			$two->server->start;
			if ($ENV{SHARD_MUTANT})
			{
				# Of many calls none is taken.
				my $refused = sub { my $log = PostgreSQL::Test::Utils::slurp_file($two->server->logfile); return scalar(() = $log =~ /is damaged, in the length of a turn record/g) };
				ShardCluster::wait_for_condition(sub { return $refused->() > 5 }, 'calls to be refused');
				my @stuck = grep { ($one->try("SELECT shard_ask('kept', '$_', '{}', '1 s')"))[0] != 0 } @sound;
				return (@sound - @stuck, '3');
			}
			is($one->sql("SELECT shard_ask('kept', '$_', '{}', '60 s')->>'n'"), 3, "entity $_ goes on") for @sound;
			$one->wait_until(qq{SELECT EXISTS (SELECT FROM shard_health() h, unnest(h.problems) p WHERE p ~ 'copies at node 2 cannot follow .*1, one of them that of shard $of of entity type "kept".*come damaged')}, 'health');
			like($one->error_of("SELECT shard_ask('kept', '$spoilt', '{}', '2 s')"), qr/SH100/, 'what that shard does is not shown');
			return ('3', '3');
		},
	},
	{
		promise => 'an error that is not of the records is not taken for one of them',
		broken_by => ['RECORDS_BLAMED_FOR_ALL'],
		run => sub {
			# The number of parameters, of a call with the record: the server refuses it itself, by the same code as bytes that are damaged.
			my $entity = $sound[0];
			my $n = $one->sql("SELECT state->>'n' FROM shard_entity.kept WHERE entity_id = '$entity'");
			$cluster->proxy->spoil(1, 2, '(?<=store\x00\x00\x01)\x00\x01\x00.{1,2000}refuse-me');
			$two->server->stop('immediate');
			$one->sql("SELECT shard_tell('kept', '$entity', '{\"a\": \"refuse-me\"}')");
			$one->wait_value("SELECT state->>'n' FROM shard_entity.kept WHERE entity_id = '$entity'", ++$n, 'it to be handled');
			$two->server->start;
			my $times = sub { my $log = PostgreSQL::Test::Utils::slurp_file($two->server->logfile); return scalar(() = $log =~ /bind message supplies \d+ parameters/g) };
			ShardCluster::wait_for_condition(sub { $times->() >= 3 }, 'calls to be refused');
			if ($ENV{SHARD_MUTANT})
			{
				$one->wait_until(q{SELECT EXISTS (SELECT FROM shard_health() h, unnest(h.problems) p WHERE p ~ 'come damaged')}, 'the shard to be given up');
				$cluster->proxy->heal(1, 2);
				return (($one->try("SELECT shard_ask('kept', '$entity', '{}', '2 s')"))[0], 0);
			}
			$cluster->proxy->heal(1, 2);
			return ($one->sql("SELECT shard_ask('kept', '$entity', '{}', '60 s')->>'n'") - $n - 1, 0);
		},
	});
done_testing();
