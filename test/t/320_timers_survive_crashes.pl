# Timers fire once each, whatever dies meanwhile (E32, E33): the firing, the handler's effects and the end of the timer are
# one commit. Those that were cancelled never fire. A worker that ends alone forgets nothing either.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use Test::More;

my $timers = 20_000;
my $node = ShardCluster->create('crashing', conf => "shard.region_workers = 2\nfsync = off");
$node->safe_psql('postgres', q{
CREATE TABLE seen (entity text, timer text, due timestamptz);
CREATE FUNCTION note(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO seen SELECT s.entity_id, t.name, t.due FROM shard_self() s, shard_timer() t;
    RETURN to_jsonb(coalesce(state::text::int, 0) + 1);
END $$;
SELECT shard_start('note', 'note');
});

# Every fourth one is cancelled, in another transaction.
$node->safe_psql('postgres', qq{
SELECT count(shard_schedule('note', (i % 500)::text, '1', after => '3 s' + i * interval '0.1 ms', name => 'n' || i)) FROM generate_series(1, $timers) i;
SELECT count(*) FROM (SELECT shard_cancel('note', (i % 500)::text, 'n' || i) FROM generate_series(4, $timers, 4) i) c;
});

my $count = 'SELECT count(*) FROM seen';
for my $part (1 .. 4)
{
	$node->wait_until("SELECT (SELECT count(*) FROM seen) >= $part * $timers / 8", 'timers to fire');
	if ($part % 2)
	{
		$node->crash;
		$node->recover;
	}
	else
	{
		$node->safe_psql('postgres', q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'shard region'});
	}
}
$node->wait_until('SELECT NOT EXISTS (SELECT FROM shard_timers)', 'all timers to fire');
$node->drain;
is($node->safe_psql('postgres', 'SELECT count(*), count(DISTINCT timer) FROM seen'), $timers * 3 / 4 . '|' . $timers * 3 / 4,
	'each timer that was not cancelled has fired once');
is($node->safe_psql('postgres', q{SELECT count(*) FROM seen WHERE substr(timer, 2)::int % 4 = 0}), 0, 'one that was cancelled has not');
is($node->safe_psql('postgres', 'SELECT sum(state::text::int) FROM shard_entity.note'), $timers * 3 / 4, 'states count the same');
is($node->safe_psql('postgres', 'SELECT count(*) FROM shard_dead_letters'), 0, 'nothing was given up');

# Nothing is left to do: neither WAL nor transaction ids are used.
$node->safe_psql('postgres', q{SELECT shard_schedule('note', 'later', '1', after => '1 h')});
$node->drain;
my $idle = q{SELECT pg_current_wal_insert_lsn() || ' ' || pg_snapshot_xmax(pg_current_snapshot())};
my $before = '';
ShardCluster::wait_for_condition(
	sub {
		my $turns = $node->safe_psql('postgres', 'SELECT sum(turns) FROM shard_stat_workers');
		my $now = $node->safe_psql('postgres', $idle) . " $turns";
		my $same = $now eq $before;
		$before = $now;
		return $same;
	},
	'the node to be idle');
pass('a timer that is not due costs nothing');
done_testing();
