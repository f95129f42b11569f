# Nothing is lost, doubled or overtaken where rows of the log are met a second time, late, or from the stash:
# each place is gone to on purpose. Builds with the mistake that belongs to it are noticed here (test/mutants.sh).

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use ShardMutant;
use Test::More;

my $node = ShardCluster->create('narrow');

$node->safe_psql('postgres', $ShardMutant::recorder . q{
SELECT shard_start('recorder', 'recorder(jsonb,jsonb)', max_attempts => 1000,
    retry_backoff => '100 ms', max_retry_backoff => '1 s');
});

sub sql { my ($sql) = @_; return $node->safe_psql('postgres', $sql) }
sub wait_seen
{
	my ($entity, $what) = @_;
	return $node->wait_until("SELECT EXISTS (SELECT FROM seen WHERE (entity, what) = ('$entity', '$what'))",
		"entity $entity to handle $what");
}

# SQL that sends messages $from to $to in one transaction.
sub tell_many
{
	my ($entity, $from, $to) = @_;
	return qq{SELECT shard_tell_many('recorder', array_agg(text '$entity'), array_agg(jsonb_build_object('what', i) ORDER BY i))
		FROM generate_series($from, $to) i;};
}

# SQL that sends so many messages of which no trace is left.
sub tell_nothing
{
	my ($entity, $count) = @_;
	return qq{SELECT count(shard_tell('recorder', '$entity', '{"noop": true}')) FROM generate_series(1, $count);\n};
}

# What an entity has handled, in its order.
sub summary
{
	my ($entity) = @_;
	return ShardMutant::in_short(split / /, sql("SELECT string_agg(what, ' ' ORDER BY pos) FROM seen WHERE entity = '$entity'"));
}

# The shard of an entity gets its home by its first message.
sub begin
{
	my ($entity) = @_;
	sql(ShardCluster::tell_recorder($entity, 1));
	wait_seen($entity, 1);
	return;
}

my $all_met = q{SELECT NOT EXISTS (SELECT FROM shard_inbox WHERE place = 'inbox')};

my @scenarios = (
	{
		# As many as no session keeps to itself until it commits.
		promise => 'what a sender that stays open has sent is handled when it ends, though others passed it',
		broken_by => ['CURSOR_BY_ID'],
		run => sub {
			begin('open');
			my $late = $node->session;
			$late->query('BEGIN; ' . tell_many('open', 3, 300));
			sql(ShardCluster::tell_recorder('open', 2));
			wait_seen('open', 2);
			$late->query('COMMIT;');
			sql(ShardCluster::tell_recorder('open', 301));
			wait_seen('open', 301);
			return (summary('open'), '1 to 301');
		},
	},
	{
		# More than a turn takes, however fast it is (region_private.h); the last of them are those that the
		# session keeps to itself until it commits.
		promise => 'messages of a sender that ended late are handled to the last, by several turns',
		broken_by => ['CURSOR_BEFORE_LATE'],
		run => sub {
			begin('late');
			my $late = $node->session;
			$late->query('BEGIN; ' . ShardCluster::tell_recorder('late', 3) . tell_nothing('late', 60_000)
				. ShardCluster::tell_recorder('late', 4) . tell_nothing('late', 200));
			sql(ShardCluster::tell_recorder('late', 2));
			wait_seen('late', 2);
			$late->query('COMMIT;');
			sql(ShardCluster::tell_recorder('late', 5));
			wait_seen('late', 5);
			return (summary('late'), '1 to 5');
		},
	},
	{
		promise => 'the successor of a worker handles nothing again',
		broken_by => ['NO_DEDUP'],
		run => sub {
			begin('again');
			sql(tell_many('again', 2, 100));
			wait_seen('again', 100);
			$node->drain;
			my ($before) = $node->worker_pids('%region%');
			sql("SELECT pg_terminate_backend($before)");
			$node->wait_until("SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $before", 'the old worker to leave');
			sql(ShardCluster::tell_recorder('again', 101));
			wait_seen('again', 101);
			return (summary('again'), '1 to 101');
		},
	},
	{
		# Of many pages: so most of them hold nothing but these.
		promise => 'what waits for a turn is handled in the order of sending',
		broken_by => ['NO_ORDER'],
		run => sub {
			begin('batch');
			my ($worker) = $node->worker_pids('%region%');
			kill 'STOP', $worker;
			sql(tell_many('batch', 2, 1000));
			kill 'CONT', $worker;
			$node->wait_until(q{SELECT count(*) >= 1000 FROM seen WHERE entity = 'batch'}, 'all to be handled');
			return (summary('batch'), '1 to 1000');
		},
	},
	{
		promise => 'what waits for another attempt is overtaken by nothing of its entity',
		broken_by => ['STASH_OVERTAKEN'],
		run => sub {
			begin('stash');
			sql('INSERT INTO closed VALUES (1)');
			sql(q{SELECT shard_tell('recorder', 'stash', '{"what": "2", "fussy": true}')});
			$node->wait_until(q{SELECT count(*) = 1 FROM shard_inbox WHERE place = 'stash'}, 'a message to wait');
			sql(ShardCluster::tell_recorder('stash', 3));
			$node->wait_until($all_met, 'the next one to be met');
			sql('DELETE FROM closed');
			wait_seen('stash', $_) for 2, 3;
			return (summary('stash'), '1 to 3');
		},
	},
	{
		promise => 'what was handled at another attempt is not handled again',
		broken_by => ['STASH_KEPT'],
		run => sub {
			begin('retry');
			sql('INSERT INTO closed VALUES (1)');
			sql(q{SELECT shard_tell('recorder', 'retry', '{"what": "2", "fussy": true}')});
			$node->wait_until(q{SELECT count(*) = 1 FROM shard_inbox WHERE place = 'stash'}, 'a message to wait');
			sql('DELETE FROM closed');
			wait_seen('retry', 2);
			sql(ShardCluster::tell_recorder('retry', 3));
			wait_seen('retry', 3);
			return (summary('retry'), '1 to 3');
		},
	});

if (ShardMutant::prove(@scenarios))
{
	$node->drain;
	$node->log_is_clean(qr/closed/);
}
done_testing();
