# shard.downing_strategy = static_quorum without shard.static_quorum_size keeps a server from starting. Files that say
# so are noticed when the server reads them, while it runs: by a warning in its log, and by shard_health().

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use Test::More;

my $node = ShardCluster->create('first');
my $told = qr/WARNING: .*shard: the server will not start again.*\n.*DETAIL:  shard\.downing_strategy is static_quorum there, and shard\.static_quorum_size is not set/;
my $problem = q{SELECT coalesce((SELECT p FROM shard_health(), unnest(problems) p WHERE p ~ 'will not start again'), 'none')};
my $named = qr/shard\.downing_strategy is static_quorum, and shard\.static_quorum_size is not set/;

sub becomes
{
	my ($bad, $what) = @_;
	$node->reload;
	$node->wait_until('SELECT ' . ($bad ? '' : 'NOT ') . q{problems::text ~ 'will not start again' FROM shard_health()}, $what);
	return;
}

is($node->safe_psql('postgres', $problem), 'none', 'all is well at first');

# --- chosen ----------------------------------------------------------------------------------------

my $from = -s $node->logfile;
$node->safe_psql('postgres', q{ALTER SYSTEM SET shard.downing_strategy = static_quorum});
becomes(1, 'the strategy without its size to be a problem');
$node->wait_for_log($told, $from);
pass('the log warns of it');
like($node->safe_psql('postgres', $problem), $named, 'shard_health() names both settings');
$node->safe_psql('postgres', q{ALTER SYSTEM SET shard.static_quorum_size = 2});
becomes(0, 'the size to mend it');
$node->restart;
is($node->safe_psql('postgres', $problem), 'none', 'so the server starts');

# --- the size goes ---------------------------------------------------------------------------------

$from = -s $node->logfile;
$node->safe_psql('postgres', q{ALTER SYSTEM RESET shard.static_quorum_size});
becomes(1, 'a size that is not in the files any more to be a problem');
$node->wait_for_log($told, $from);
$node->append_conf('postgresql.conf', 'shard.static_quorum_size = 0');
becomes(1, 'and one that is 0');
$node->append_conf('postgresql.conf', 'shard.static_quorum_size = 3');
becomes(0, 'the last word to count');
$node->safe_psql('postgres', q{ALTER SYSTEM SET shard.static_quorum_size = 0});
becomes(1, 'what ALTER SYSTEM has written to come last');
$node->safe_psql('postgres', q{ALTER SYSTEM SET shard.downing_strategy = manual});
becomes(0, 'another strategy to mend it');
$node->restart;
pass('the server starts');
done_testing();
