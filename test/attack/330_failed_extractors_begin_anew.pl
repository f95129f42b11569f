# A shard_id_extractor in SQL that fails is in the midst of a query. When a subtransaction has caught the error, nothing of that query is
# open any more, so the next call in the transaction begins a new one: in the session of a client, and in a handler.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use Test::More;

my $node = ShardCluster->create('first', conf => "restart_after_crash = on\n");
$node->create_owners('mallory', 'alice');

sub as { return $node->as(@_) }

# What a session of alice prints, and what it is told beside that; errors do not end it.
sub both
{
	my ($sql) = @_;
	my (undef, $out, $notes) = $node->psql('postgres', $sql, extra_params => [ '-U', 'alice' ], on_error_stop => 0);
	return ($out, $notes);
}

my $started = $node->safe_psql('postgres', 'SELECT pg_postmaster_start_time(), pid FROM pg_stat_activity WHERE backend_type = $$checkpointer$$');

as('alice', q{
CREATE FUNCTION alice.h(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN message;
CREATE FUNCTION alice.shard(id text) RETURNS int IMMUTABLE LANGUAGE sql AS $$ SELECT $1::int % 4 $$;
SELECT shard_start('alice', 'alice.h', shard_id_extractor => 'alice.shard', number_of_shards => 4);
});
as('mallory', q{
CREATE FUNCTION mallory.make() RETURNS void LANGUAGE plpgsql SECURITY DEFINER AS $$ BEGIN
	DROP TABLE IF EXISTS mallory.t;
	CREATE TABLE mallory.t (n int, pad text);
	INSERT INTO mallory.t SELECT n, repeat('x', 500) FROM generate_series(1, 2000) n;
	CREATE INDEX ON mallory.t (n);
END $$;
SELECT mallory.make();
CREATE FUNCTION mallory.seq(id text) RETURNS int IMMUTABLE LANGUAGE sql AS $$
	SELECT (n % 2)::int FROM mallory.t WHERE CASE WHEN $1 = 'bad' THEN 1 / (n - 1000) > 5 ELSE true END LIMIT 1 $$;
CREATE FUNCTION mallory.index(id text) RETURNS int IMMUTABLE LANGUAGE sql SET enable_seqscan = off SET enable_bitmapscan = off AS $$
	SELECT (n % 2)::int FROM mallory.t WHERE n > 0 AND CASE WHEN $1 = 'bad' THEN 1 / (n - 1000) > 5 ELSE true END ORDER BY n LIMIT 1 $$;
CREATE FUNCTION mallory.plain(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN message;
SELECT shard_start('seq', 'mallory.plain', shard_id_extractor => 'mallory.seq', number_of_shards => 4);
SELECT shard_start('index', 'mallory.plain', shard_id_extractor => 'mallory.index', number_of_shards => 4);
CREATE FUNCTION mallory.h(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN
	PERFORM shard_shard_id('seq', 'good');
	BEGIN PERFORM shard_shard_id('seq', 'bad'); EXCEPTION WHEN division_by_zero THEN NULL; END;
	DROP TABLE mallory.t;
	PERFORM mallory.make();
	RETURN to_jsonb(shard_shard_id('seq', 'good'));
END $$;
SELECT shard_start('crash', 'mallory.h', max_attempts => 1);
});

# --- in a session -------------------------------------------------------------------------------

my ($out, $notes) = both(q{BEGIN; SELECT shard_tell('alice', '1', '{}'); SAVEPOINT s; SELECT shard_tell('alice', 'no number', '{}'); ROLLBACK TO s;
	SELECT shard_tell('alice', '2', '{}'); COMMIT});
like($notes, qr/invalid input syntax for type integer/, 'a tell fails');
unlike($notes, qr/gave no valid shard/, 'the next one is another call');
$node->drain;
is(as('alice', q{SELECT string_agg(entity_id, ' ' ORDER BY entity_id) FROM shard_entity.alice}), '1 2', 'what was told beside it is there');

for my $type ('seq', 'index')
{
	for my $between ('SELECT 1', 'SELECT mallory.make()')
	{
		($out) = both(qq{BEGIN; SELECT shard_shard_id('$type', 'good'); SAVEPOINT s; SELECT shard_shard_id('$type', 'bad'); ROLLBACK TO s;
			$between; SAVEPOINT s; SELECT shard_shard_id('$type', 'good'); ROLLBACK TO s; SELECT shard_shard_id('$type', 'good'); ROLLBACK});
		is($out =~ s/\n+/ /gr =~ s/^ | $//gr, $between eq 'SELECT 1' ? '1 1 1 1' : '1 1 1', "$type, $between: each call is its own");
	}
}

# What failed is given back with the next call, not at the end of the transaction.
my $session = $node->session;
$session->query('BEGIN;');
my $memory = q{SELECT sum(total_bytes) FROM pg_backend_memory_contexts;};
my $fail = q{DO $$ BEGIN FOR i IN 1 .. 300 LOOP BEGIN PERFORM shard_shard_id('alice', 'no number'); EXCEPTION WHEN invalid_text_representation THEN NULL; END; END LOOP; END $$;};
$session->query($fail);
my $before = $session->query($memory);
$session->query($fail);
my $after = $session->query($memory);
cmp_ok($after - $before, '<', 500_000, 'calls that failed leave no memory behind');
$session->query('ROLLBACK;');
$session->close;

# --- in a handler --------------------------------------------------------------------------------

as('mallory', q{SELECT shard_tell('crash', 'a', '{}')});
$node->drain;
is($node->safe_psql('postgres', q{SELECT state FROM shard_entity.crash}), '1', 'a handler goes on with what it is told');
is($node->safe_psql('postgres', 'SELECT pg_postmaster_start_time(), pid FROM pg_stat_activity WHERE backend_type = $$checkpointer$$'), $started, 'the server has not crashed');
$node->log_is_clean;

done_testing();
