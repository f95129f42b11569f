# What repeating timers do about times that were missed while the server was down (E34), that days and months are those of
# the timer's zone, also where summer time begins and ends, and that a single one fires however late it is.
#
# The downtime is made: while no worker runs, all times are set back.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use Test::More;

my $node = ShardCluster->create('down');
$node->safe_psql('postgres', q{
CREATE TABLE seen (pos bigserial, timer text, due timestamptz, fired int8);
CREATE FUNCTION note(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO seen (timer, due, fired) SELECT * FROM shard_timer();
    RETURN message;
END $$;
SELECT shard_start('note', 'note');
SELECT shard_schedule('note', 'e', '1', after => '1 h', every => '10 min', name => m, missed => m) FROM unnest('{once,all,skip}'::text[]) m;
SELECT shard_schedule('note', 'e', '1', after => '1 h', every => '1 h', name => 'little', missed => 'skip');
SELECT shard_schedule('note', 'e', '1', after => '1 h', name => 'single', missed => 'skip');
SET timezone = 'Europe/Berlin';
SELECT shard_schedule('note', 'e', '1', after => '1 h', every => '1 day', name => 'day', missed => 'all');
SELECT shard_schedule('note', 'e', '1', after => '1 h', every => '1 month', name => 'month', missed => 'all');
SELECT shard_schedule('note', 'e', '1', after => '1 h', every => '24 h', name => 'hours', missed => 'all');
});
$node->drain;
is($node->safe_psql('postgres', q{SELECT string_agg(name || coalesce(' ' || zone, ''), ', ' ORDER BY name) FROM shard_timers}),
	'all, day Europe/Berlin, hours, little, month Europe/Berlin, once, single, skip', 'the zone is that of who schedules');

# 35 minutes late by the clock.
sub set
{
	my ($times, $which) = @_;
	$node->safe_psql('postgres', qq{WITH s AS (SELECT $times AS t) UPDATE shard.timer SET due = s.t, first = s.t FROM s WHERE name IN ($which)});
	return;
}
$node->append_conf('postgresql.conf', 'shard.enabled = off');
$node->restart;
my $now = $node->safe_psql('postgres', q{SELECT now()});
set("timestamptz '$now' - interval '35 min'", q{'once', 'all', 'skip', 'little', 'single'});
set(q{timestamptz '2025-03-28 08:30:00 Europe/Berlin'}, q{'day', 'hours'});
set(q{timestamptz '2025-01-31 08:30:00 Europe/Berlin'}, q{'month'});
$node->append_conf('postgresql.conf', 'shard.enabled = on');
$node->restart;
$node->wait_until(q{SELECT NOT EXISTS (SELECT FROM shard_timers WHERE due < now())}, 'timers to fire');
$node->drain;

my $seen = sub {
	my ($timer) = @_;
	return $node->safe_psql('postgres',
		qq{SELECT coalesce(string_agg(round(extract(epoch FROM due - '$now') / 60)::text, ' ' ORDER BY pos), '') FROM seen WHERE timer = '$timer'});
};
my $next = sub {
	my ($timer) = @_;
	return $node->safe_psql('postgres', qq{SELECT round(extract(epoch FROM due - '$now') / 60) || ' ' || fired FROM shard_timers WHERE name = '$timer'});
};
is($seen->('once'), '-35', 'one message for all times that were missed');
is($next->('once'), '5 1', 'and the next in the future');
is($seen->('all'), '-35 -25 -15 -5', 'one message for each');
is($next->('all'), '5 4', 'and the next in the future');
is($seen->('skip'), '', 'none at all');
is($next->('skip'), '5 0', 'and the next in the future');
is($seen->('little'), '-35', 'one that is late by less than a period was not missed');
is($next->('little'), '25 1', 'and goes on');
is($seen->('single'), '-35', 'a single one fires however late it is');
is($next->('single'), '', 'and is gone');

sub local_times
{
	my ($timer, $what) = @_;
	return $node->safe_psql('postgres', "SET timezone = 'Europe/Berlin'; SELECT $what FROM (SELECT * FROM seen WHERE timer = '$timer' ORDER BY pos) s");
}
is(local_times('day', q{count(*) > 300 AND count(*) = max(due)::date - min(due)::date + 1 AND bool_and(due::time = '08:30')}), 't',
	'a timer of each day keeps its time of day, on each day');
is(local_times('hours', q{string_agg(DISTINCT due::time::text, ' ' ORDER BY due::time::text)}), '08:30:00 09:30:00', 'one of 24 hours does not');
is($node->safe_psql('postgres', q{SELECT string_agg(to_char(due AT TIME ZONE 'Europe/Berlin', 'MM-DD HH24:MI'), ', ' ORDER BY pos)
	FROM (SELECT * FROM seen WHERE timer = 'month' ORDER BY pos LIMIT 5) s}),
	'01-31 08:30, 02-28 08:30, 03-31 08:30, 04-30 08:30, 05-31 08:30', 'one of the 31st is one of the last day of shorter months');
is($node->safe_psql('postgres', q{SELECT bool_and(n = fired) FROM (SELECT fired, row_number() OVER (PARTITION BY timer ORDER BY pos) AS n FROM seen) s}), 't',
	'each firing is counted, and comes in order');
$node->log_is_clean;
done_testing();
