# What code of a type does with what the sender cannot see is not shown to him by settings of his session: plans with the
# values in them, messages that are meant for who writes the code, parameters of queries that fail.

use strict;
use warnings FATAL => 'all';

use PostgreSQL::Test::Utils;
use ShardCluster;
use Test::More;

my $node = ShardCluster->create('first', conf => 'shard.region_workers = 1');
$node->safe_psql('postgres', q{
CREATE ROLE mallory LOGIN;
CREATE ROLE alice LOGIN;
CREATE ROLE deputy LOGIN;
GRANT alice TO deputy;
GRANT CREATE ON DATABASE postgres TO alice;
CREATE SCHEMA alice AUTHORIZATION alice;
GRANT USAGE ON SCHEMA alice TO PUBLIC;
});
$node->as('alice', q{
CREATE TABLE alice.hidden (password text);
INSERT INTO alice.hidden VALUES ('sesame');
CREATE FUNCTION alice.strict(p text) RETURNS int LANGUAGE plpgsql AS $$
DECLARE i int;
BEGIN SELECT 1 INTO STRICT i FROM alice.hidden WHERE password = p || '?'; RETURN i; END $$;
REVOKE ALL ON FUNCTION alice.strict FROM PUBLIC;
CREATE FUNCTION alice.reads(message jsonb) RETURNS text LANGUAGE plpgsql AS $$
DECLARE p text;
BEGIN
	EXECUTE 'SELECT password FROM alice.hidden' INTO p;
	RAISE DEBUG 'it is %', p;
	RAISE LOG 'it is %', p;
	RAISE NOTICE 'it is %', p;
	IF message ? 'strict' THEN RETURN alice.strict(p); END IF;
	RETURN 'e';
END $$;
CREATE FUNCTION alice.h(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN RETURN to_jsonb(alice.reads(message)); END $$;
CREATE FUNCTION alice.for_others() RETURNS text LANGUAGE sql SECURITY DEFINER SET search_path = public, pg_temp
	AS $$ SELECT state FROM shard_try('cart', 'e', '{}') $$;
SET search_path = alice, public;
SELECT shard_start('cart', 'alice.h', entity_id_extractor => 'alice.reads');
});

my $curious = join ' ', map { "SET $_;" } 'client_min_messages = debug1', 'debug_print_parse = on', 'debug_print_rewritten = on', 'debug_print_plan = on',
	'debug_pretty_print = on', 'plpgsql.print_strict_params = on';
my %calls = (
	'shard_try' => q{SELECT * FROM shard_try('cart', 'e', '{"strict": 1}'); SELECT * FROM shard_try('cart', 'e', '{}')},
	'an extractor' => q{SELECT shard_tell('cart', '{"strict": 1}'::jsonb); SELECT shard_tell('cart', '{}'::jsonb)},
	'a function of the owner' => 'SELECT alice.for_others()');

# What such a session is told, with the errors.
sub told
{
	my ($role, $sql) = @_;
	return ($node->psql('postgres', "$curious $sql", extra_params => [ '-U', $role ], on_error_stop => 0))[2];
}
# Words of plans, and values that are not the caller's own.
my $shown = qr/it is sesame|\("password"\)|parameters:/;

for my $how (sort keys %calls)
{
	my $offset = -s $node->logfile;
	my $text = told('mallory', $calls{$how});
	unlike($text, $shown, "$how: a sender is shown nothing");
	like($text, qr/query returned no rows/, "$how: but the error") if $how ne 'a function of the owner';
	unlike(slurp_file($node->logfile, $offset), qr/\("password"\)/, "$how: nor is the server's log");
}
for my $role ('alice', 'deputy')
{
	for my $how (sort keys %calls)
	{
		like(told($role, $calls{$how}), $shown, "$how: $role has what the session is set to");
	}
}

# The session's own are back, also after an error.
is( $node->as('mallory', qq{
$curious
SET client_min_messages = notice;
DO \$\$ BEGIN PERFORM shard_try('cart', 'e', '{"strict": 1}'); EXCEPTION WHEN no_data_found THEN NULL; END \$\$;
SELECT count(*) FROM shard_try('cart', 'e', '{}');
SELECT concat_ws(' ', current_setting('client_min_messages'), current_setting('debug_print_plan'), current_setting('plpgsql.print_strict_params'));
}), "1\nnotice on on", 'what the session is set to is back');
$node->stop;
done_testing();
