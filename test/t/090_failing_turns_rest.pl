# A turn that fails for no message's fault is tried again after a pause that doubles, as long as nobody wakes the worker; who
# does is news, after which it is tried once a second. Nothing that the worker itself started wakes it.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use Test::More;

my $node = ShardCluster->create('resting', conf => 'shard.region_workers = 1');
$node->start_recorder;

# A sequence counts attempts that are undone, too. What becomes of the message can be written down nowhere.
$node->safe_psql('postgres', q{
	CREATE SEQUENCE tries;
	CREATE FUNCTION fails(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM nextval('tries');
		RAISE 'as it must';
	END $$;
	SELECT shard_start('fails', 'fails(jsonb,jsonb)', 1, max_attempts => 1);
	UPDATE pg_attribute SET attnotnull = true WHERE attrelid = 'shard.dead_letter'::regclass AND attname = 'hint';
	SELECT shard_tell('fails', 'poor', '{}')});
# Attempts, and when that was, in seconds.
sub tries { return split /\|/, $node->safe_psql('postgres', 'SELECT last_value, extract(epoch FROM clock_timestamp()) FROM tries') }

# How many attempts there are in so many seconds, or some more on a slow machine, while something else goes on; and how many
# seconds it were.
sub tries_within
{
	my ($seconds, $meanwhile) = @_;
	my ($before, $begin) = tries();
	my ($after, $end);
	ShardCluster::wait_for_condition(
		sub { $meanwhile->(); ($after, $end) = tries(); return $end >= $begin + $seconds },
		"$seconds s to pass");
	return ($after - $before, $end - $begin);
}

$node->wait_until('SELECT last_value >= 4 FROM tries', 'turns that fail');
# By then the pause is 2 s at least.
my ($alone, $seconds) = tries_within(6, sub { });
cmp_ok($alone, '<=', 4, "while nothing happens it is tried seldom: $alone times in $seconds s");

my $told = 0;
(my $woken, $seconds) = tries_within(6, sub { $node->safe_psql('postgres', ShardCluster::tell_recorder('other', ++$told)) });
cmp_ok($woken, '<=', $seconds + 2, "while messages come in it is tried once a second: $woken times in $seconds s, $told messages");
cmp_ok($woken, '>=', 2, 'sooner than without');

$node->safe_psql('postgres', q{UPDATE pg_attribute SET attnotnull = false WHERE attrelid = 'shard.dead_letter'::regclass AND attname = 'hint'});
$node->drain;
is($node->safe_psql('postgres', 'SELECT count(*) FROM shard_dead_letters'), 1, 'when the trouble is over, the message is given up');
is($node->safe_psql('postgres', ShardCluster::recorded('other')), join(' ', 1 .. $told) . " = $told", 'and the others are handled');
$node->stop;
done_testing();
