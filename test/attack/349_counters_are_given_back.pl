# D16: types are started, sent to and dropped, until all counters of the server are taken: then nobody in any database could
# send. They are given back with their types.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use Test::More;

my $server = ShardCluster->create('node', conf => 'shard.region_workers = 1', dbs => ['other']);
$server->safe_psql($_, <<'SQL') for 'postgres', 'other';
CREATE FUNCTION h(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN message;
SQL
$server->safe_psql('postgres', 'CREATE ROLE mallory LOGIN; GRANT CREATE ON DATABASE postgres TO mallory');

for my $hundred (0 .. 10)
{
	my $sql = join '', map { my $n = 100 * $hundred + $_;
		"SELECT shard_start('t$n', 'h', 1);\nSELECT shard_tell('t$n', 'a', '{}');\nSELECT shard_drop_type('t$n', true);\n" } 1 .. 100;
	# Some may be refused: she is faster than workers look.
	$server->psql('postgres', $sql, extra_params => [ '-U', 'mallory', '-v', 'ON_ERROR_STOP=0' ]);
}
$server->safe_psql('other', q{SELECT shard_start('mine', 'h', 1)});
my ($status, $error);
$server->wait_until(q{SELECT count(*) = 0 FROM shard_inbox}, 'what is left to be given up');
ShardCluster::wait_for_condition(
	sub {
		($status, undef, $error) = $server->psql('other', q{SELECT shard_tell('mine', 'a', '{}')});
		return $status == 0;
	},
	'a counter for another type');
is($status, 0, 'D16: after 1100 types that were dropped others still send') or diag($error);
is($server->safe_psql('other', q{SELECT shard_ask('mine', 'a', '{"n": 1}')->>'n'}), 1, 'D16: and ask');
$server->log_is_clean;
done_testing();
