# A worker whose turns fail keeps nothing of the errors: a handler that always raises can be asked and told
# for years.

use strict;
use warnings FATAL => 'all';

use PostgreSQL::Test::Utils;
use ShardCluster;
use Test::More;

my $node = ShardCluster->create('first');
$node->safe_psql('postgres', q{
CREATE FUNCTION picky(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	RAISE EXCEPTION 'no' USING DETAIL = 'a detail', HINT = 'a hint';
END $$;
SELECT shard_start('picky', 'picky');
});

# So many turns that fail: one message at a time.
sub fail_often
{
	my ($times) = @_;
	$node->safe_psql('postgres', join '', map { qq{SELECT shard_tell('picky', 'a', '{}');\nSELECT shard_drain('60 s');\n} } 1 .. $times);
	return;
}

# Bytes that the worker's process has in use in the context that lives as long as it does.
sub in_use
{
	my $from = -s $node->logfile;
	$node->safe_psql('postgres', 'SELECT pg_log_backend_memory_contexts(pid) FROM shard_stat_workers WHERE worker = 0');
	my $used;
	ShardCluster::wait_for_condition(sub { ($used) = slurp_file($node->logfile, $from) =~ /TopMemoryContext: .*; (\d+) used/; $used },
		'the worker to say what it keeps');
	return $used;
}

fail_often(20);
my $before = in_use();
fail_often(200);
my $errors = $node->safe_psql('postgres', 'SELECT errors FROM shard_stat_workers WHERE worker = 0');
cmp_ok($errors, '>=', 220, 'turns failed');
cmp_ok(in_use() - $before, '<', 200 * 16, 'and left nothing');
is($node->safe_psql('postgres', q{SELECT DISTINCT error || ', ' || detail || ', ' || hint FROM shard_dead_letters}), 'no, a detail, a hint', 'what they said is kept with the messages');

$node->log_is_clean(qr/became a dead letter/);
done_testing();
