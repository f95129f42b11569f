# G5: the server has 1024 counters of types, for all databases. A transaction that starts types, sends to them and is rolled back
# leaves theirs behind, and tells nobody. D16 (349) without a commit.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use Test::More;

my $server = ShardCluster->create('node', conf => 'shard.region_workers = 1', dbs => ['other']);
for my $db ('postgres', 'other')
{
	$server->safe_psql($db, 'CREATE FUNCTION h(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN message');
}
$server->safe_psql('postgres', 'CREATE ROLE mallory LOGIN; GRANT CREATE ON DATABASE postgres TO mallory');
$server->safe_psql('other', 'CREATE ROLE alice LOGIN; GRANT CREATE ON DATABASE other TO alice');

# Sends in another database; the error.
sub send_elsewhere
{
	my (undef, undef, $error) = $server->psql('other', "SELECT shard_tell('mine', 'a', '{}')", extra_params => [ '-U', 'alice' ]);
	return $error;
}

my $types = join '', map { "SELECT shard_start('t$_', 'h', 1);\nSELECT shard_tell('t$_', 'a', '{}');\n" } 1 .. 95;
$server->psql('postgres', "SET client_min_messages = error;\nBEGIN;\n${types}ROLLBACK;\n", extra_params => [ '-U', 'mallory' ]) for 1 .. 12;
is($server->safe_psql('postgres', 'SELECT count(*) FROM shard_types'), 0, 'he has no types');
$server->safe_psql('other', q{SELECT shard_start('mine', 'h', 1)}, extra_params => [ '-U', 'alice' ]);
is(send_elsewhere(), '', 'G5: in another database nobody is refused');
$server->safe_psql('postgres', q{SELECT shard_start('mine', 'h', 1)});
ShardCluster::wait_for_condition(sub { ($server->psql('postgres', q{SELECT shard_tell('mine', 'a', '{}')}))[0] == 0 }, 'a counter where he left all of his');
pass('G5: and in his own they are given back');

# Types that are there: one database does not take all.
$server->safe_psql('other', q{SELECT shard_drop_type('mine', true)}, extra_params => [ '-U', 'alice' ]);
my (undef, undef, $error) = $server->psql('postgres', <<'SQL', extra_params => [ '-v', 'VERBOSITY=verbose' ]);
SET client_min_messages = error;
DO $$ BEGIN
	FOR i IN 1 .. 900 LOOP
		PERFORM shard_start('many' || i, 'h', 1);
	END LOOP;
END $$;
SELECT count(shard_tell('many' || i, 'a', '{}')) FROM generate_series(1, 900) i;
SQL
like($error, qr/ERROR:\s+53400: too many entity types in this database\nDETAIL:\s+At most 896/, 'G5: one database has a bound of its own');
$server->safe_psql('other', q{SELECT shard_start('mine', 'h', 1)}, extra_params => [ '-U', 'alice' ]);
is(send_elsewhere(), '', 'G5: and others have some left');
$server->log_is_clean;
done_testing();
