# An owner makes and drops types all the time (D04 to D09 by other means), so that lanes are divided anew again and again: other
# owners' messages are handled once, in order, and their asks are answered.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use Test::More;
use Time::HiRes qw(time);

my $node = ShardCluster->create('first', conf => "shard.region_workers = 2\nshard.owner_workers_keep = 0");
$node->start_recorder;
$node->safe_psql('postgres', q{
CREATE ROLE mallory LOGIN;
GRANT CREATE ON DATABASE postgres TO mallory;
CREATE FUNCTION echo(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN message;
SELECT shard_start('asked', 'echo');
});
$node->wait_until('SELECT ok FROM shard_health()', 'the workers');

my @entities = map { "e$_" } 1 .. 8;
my $told = 0;
my $divided = 0;
my $slowest = 0;
my $pids = '';
my $end = time + 25;
while (time < $end)
{
	my $role = $told % 40 < 20 ? 'shard_start' : 'shard_drop_type';
	my $sql = $role eq 'shard_start' ? q{SELECT shard_start('other', 'echo')} : q{SELECT shard_drop_type('other', force => true)};
	$node->safe_psql('postgres', $sql, extra_params => [ '-U', 'mallory' ]) if $told % 20 == 0;
	# With another number of workers, too.
	$node->append_conf('postgresql.conf', 'shard.region_workers = ' . (1, 3, 2)[ ($told / 30) % 3 ]) if $told % 30 == 0;
	$node->reload if $told % 30 == 0;
	$node->safe_psql('postgres', join '', map { ShardCluster::tell_recorder($_, $told + 1, $told + 5) } @entities);
	$told += 5;
	my $begin = time;
	is($node->safe_psql('postgres', qq{SELECT shard_ask('asked', 'a', '$told', '30 s')}), $told, "ask $told");
	$slowest = time - $begin if time - $begin > $slowest;
	my $now = $node->safe_psql('postgres', q{SELECT string_agg(pid::text, ' ' ORDER BY worker) FROM shard_stat_workers});
	$divided++ if $now ne $pids;
	$pids = $now;
}
cmp_ok($divided, '>', 3, "lanes were divided anew, $divided times; the slowest ask took $slowest s");
$node->wait_recorded($_, 1 .. $told) for @entities;
pass('every message was handled once, in order');

$node->log_is_clean(qr/lane \d+ is still owned by another region worker/);
done_testing();
