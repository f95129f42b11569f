# A sender's temporary tables never come before those that an extractor means, whoever set the type's search_path and
# however (O01, O02): what runs in the sender's session as the type's owner is not his.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use Test::More;

my $node = ShardCluster->create('first', conf => 'shard.region_workers = 1');
$node->safe_psql('postgres', q{
CREATE ROLE mallory LOGIN;
CREATE ROLE alice LOGIN;
GRANT CREATE ON DATABASE postgres TO alice;
CREATE SCHEMA alice AUTHORIZATION alice;
GRANT USAGE ON SCHEMA alice TO PUBLIC;
});

sub as { return $node->as(@_) }

as('alice', q{
CREATE TABLE alice.secrets (secret text);
CREATE TABLE alice.routes (k text, v text);
INSERT INTO alice.routes VALUES ('k', 'right');
CREATE FUNCTION alice.h(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE r text;
BEGIN EXECUTE 'SELECT v FROM routes WHERE k = $1' INTO r USING message->>'k'; RETURN to_jsonb(r); END $$;
CREATE FUNCTION alice.id(message jsonb) RETURNS text LANGUAGE plpgsql AS $$
DECLARE r text;
BEGIN EXECUTE 'SELECT v FROM routes WHERE k = $1' INTO r USING message->>'k'; RETURN r; END $$;
SET search_path = alice, public;
SELECT shard_start('cart', 'alice.h', entity_id_extractor => 'alice.id');
});

# The trick: what runs as alice gives mallory her table. Then the type does what she wants?
sub is_safe
{
	my ($why) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	as('mallory', q{
CREATE FUNCTION pg_temp.leak() RETURNS text LANGUAGE plpgsql AS $$ BEGIN
	IF current_user <> 'mallory' THEN EXECUTE 'GRANT SELECT ON alice.secrets TO mallory'; END IF; RETURN 'x'; END $$;
CREATE TEMP VIEW routes AS SELECT 'k'::text AS k, pg_temp.leak() AS v;
GRANT ALL ON routes TO PUBLIC;
SELECT shard_tell('cart', '{"k": "k"}'::jsonb);
SELECT shard_try('cart', 'right', '{"k": "k"}');
});
	$node->drain;
	is(as('mallory', q{SELECT has_table_privilege('alice.secrets', 'SELECT')}), 'f', "$why: nothing leaks");
	is($node->safe_psql('postgres', q{SELECT string_agg(entity_id || ' ' || state, ',') FROM shard_entity.cart}), 'right "right"', "$why: the extractor reads its own table");
	is($node->safe_psql('postgres', q{SELECT settings->>'search_path' ~ '[^,]+, pg_temp$' FROM shard_types WHERE type_name = 'cart'}), 't', "$why: the view says so");
	$node->safe_psql('postgres', 'REVOKE ALL ON alice.secrets FROM mallory; DELETE FROM shard_entity.cart');
	return;
}
sub path { my ($path) = @_; as('alice', "SELECT shard_alter('cart', 'search_path', \$p\$$path\$p\$)"); return }

is_safe('O01 path of shard_start');
for my $path ('alice, public', 'pg_temp, alice', 'alice', 'PG_TEMP, alice', '"pg_temp", alice, "pg_temp"', '"pg_temp_3", pg_temp_4, alice', '"$user"')
{
	path($path);
	is_safe("O02 shard_alter to $path");
}
is(as('alice', q{SELECT settings->>'search_path' FROM shard_types}), '"$user", pg_temp', 'other schemas are as they were named');

# A path of a function's own.
as('alice', q{
ALTER FUNCTION alice.h SET search_path = alice;
ALTER FUNCTION alice.id SET search_path = pg_temp, alice;
SELECT shard_alter('cart', 'search_path', 'alice, public');
});
is_safe('O14 path of a function');
as('alice', q{
CREATE OR REPLACE FUNCTION alice.h(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE r text;
BEGIN SET LOCAL search_path = alice; EXECUTE 'SELECT v FROM routes WHERE k = $1' INTO r USING message->>'k'; RETURN to_jsonb(r); END $$;
});
is_safe('O14 SET in a handler');
for my $statement ('RESET search_path', 'RESET ALL', 'SET search_path TO DEFAULT')
{
	as('alice', qq{
CREATE OR REPLACE FUNCTION alice.h(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS \$\$ BEGIN $statement; RETURN '1'; END \$\$});
	my (undef, undef, $error) = $node->psql('postgres', q{SELECT shard_try('cart', 'right', '{"k": "k"}')}, extra_params => [ '-U', 'mallory' ]);
	like($error, qr/cannot run (?:RE)?SET /, "O14 $statement: refused to a handler on trial");
}
# A value that is NULL is the client's own.
for my $statement (q{PERFORM set_config('search_path', NULL, true)}, q{PERFORM set_config('search_path', NULL, false)}, q{UPDATE pg_settings SET setting = NULL WHERE name = 'search_path'})
{
	as('alice', qq{
CREATE OR REPLACE FUNCTION alice.h(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS \$\$ BEGIN
	BEGIN $statement; EXCEPTION WHEN insufficient_privilege THEN
		IF current_setting('search_path') !~ 'pg_temp\$' THEN RAISE EXCEPTION 'the path is another one'; END IF;
	END;
	$statement; RETURN to_jsonb(current_setting('search_path')); END \$\$});
	my (undef, $out, $error) = $node->psql('postgres', q{SET search_path = public; SELECT shard_try('cart', 'right', '{"k": "k"}'); SHOW search_path},
		extra_params => [ '-U', 'mallory', '-v', 'VERBOSITY=verbose' ], on_error_stop => 0);
	like($error, qr/ERROR:\s+42501: permission denied to set parameter "search_path"/, "O14 $statement: refused to a handler on trial, and the path is as before");
	is($out, 'public', "O14: the client's path is his");
}
as('alice', q{
CREATE OR REPLACE FUNCTION alice.h(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE r text;
BEGIN EXECUTE 'SELECT v FROM routes WHERE k = $1' INTO r USING message->>'k'; RETURN to_jsonb(r); END $$;
ALTER FUNCTION alice.h RESET ALL; ALTER FUNCTION alice.id RESET ALL;
});

# What an older version has stored.
$node->safe_psql('postgres', q{UPDATE shard.type SET search_path = 'alice, public'});
$node->restart;
$node->wait_until('SELECT ok FROM shard_health()', 'the workers');
as('mallory', q{
CREATE FUNCTION pg_temp.leak() RETURNS text LANGUAGE plpgsql AS $$ BEGIN
	IF current_user <> 'mallory' THEN EXECUTE 'GRANT SELECT ON alice.secrets TO mallory'; END IF; RETURN 'x'; END $$;
CREATE TEMP VIEW routes AS SELECT 'k'::text AS k, pg_temp.leak() AS v;
GRANT ALL ON routes TO PUBLIC;
SELECT shard_tell('cart', '{"k": "k"}'::jsonb)});
is(as('mallory', q{SELECT has_table_privilege('alice.secrets', 'SELECT')}), 'f', 'O02 what was stored without it: nothing leaks');

# What database and role have as theirs.
as('alice', q{SELECT shard_drop_type('cart', force => true)});
$node->safe_psql('postgres', 'ALTER DATABASE postgres SET search_path = pg_temp, alice, public; ALTER ROLE alice SET search_path = "pg_temp_5", pg_temp, alice, public');
as('alice', q{SELECT shard_start('cart', 'alice.h', entity_id_extractor => 'alice.id')});
$node->safe_psql('postgres', 'ALTER DATABASE postgres RESET search_path');
is_safe('O02 ALTER DATABASE, ALTER ROLE');
$node->log_is_clean;

done_testing();
