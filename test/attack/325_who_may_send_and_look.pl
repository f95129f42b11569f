# Rights are what owner and administrator have said, no more: default privileges open nothing (O09), sending needs the right
# to name the handler (O03), entity ids are for whom the type is (O07), also through leaky functions (O08); operators' calls
# are closed (O04), strangers do not make a handler anew (O05) or send messages again (O06), and what is revoked is revoked at
# once (O13). Names are never SQL (S10).

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use Test::More;

my $node = ShardCluster->create('first', extension => 0, conf => 'shard.region_workers = 1');
my $system = $node->safe_psql('postgres', 'SELECT rolname FROM pg_roles WHERE oid = 10');
$node->safe_psql('postgres', qq{
CREATE ROLE alice LOGIN;
CREATE ROLE eve LOGIN;
CREATE ROLE sender LOGIN;
CREATE ROLE nobody LOGIN;
CREATE ROLE mallory LOGIN;
GRANT CREATE ON DATABASE postgres TO alice, mallory;
-- somebody has made himself comfortable
ALTER DEFAULT PRIVILEGES GRANT ALL ON TABLES TO eve;
ALTER DEFAULT PRIVILEGES GRANT ALL ON SEQUENCES TO eve;
ALTER DEFAULT PRIVILEGES GRANT ALL ON FUNCTIONS TO eve;
ALTER DEFAULT PRIVILEGES GRANT ALL ON SCHEMAS TO eve;
ALTER DEFAULT PRIVILEGES GRANT SELECT ON TABLES TO PUBLIC;
ALTER DEFAULT PRIVILEGES REVOKE DELETE ON TABLES FROM "$system";
ALTER DEFAULT PRIVILEGES FOR ROLE alice GRANT SELECT ON TABLES TO eve;
CREATE EXTENSION shard;
ALTER DEFAULT PRIVILEGES IN SCHEMA shard_entity GRANT SELECT ON TABLES TO PUBLIC;
});
$node->wait_until('SELECT ok FROM shard_health()', 'the workers');

sub as { return $node->as(@_) }

sub fails
{
	my ($role, $sql, $pattern, $why) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($status, $out, $error) = $node->psql('postgres', $sql, extra_params => [ '-U', $role, '-v', 'VERBOSITY=verbose' ]);
	return like($status == 0 ? "done: $out" : $error, $pattern, $why);
}

# --- O09: default privileges ----------------------------------------------------------------------

as('alice', q{
CREATE SCHEMA closed;
CREATE FUNCTION closed.vault(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN
	IF message ? 'fail' THEN RAISE 'not %', message; END IF; RETURN message; END $$;
SELECT shard_start('vault', 'closed.vault', max_attempts => 1, number_of_shards => 8);
SELECT shard_tell('vault', 'pin', '{"pin": 4711}');
});
$node->drain;
fails($_, 'SELECT * FROM shard_entity.vault', qr/42501/, "O09 a state table is closed to $_") for qw(eve nobody mallory);
is(as('alice', 'SELECT count(*) FROM shard_entity.vault; DELETE FROM shard_entity.vault WHERE false; '), '1', 'and its owner\'s');
is($node->safe_psql('postgres', q{SELECT string_agg(DISTINCT coalesce(nullif(grantee, 0)::regrole::text, 'PUBLIC') || ' ' || privilege_type, ', ') FROM pg_class, aclexplode(relacl) WHERE oid = 'shard_entity.vault'::regclass AND grantee <> relowner}),
	'', 'O09 nobody else has any right');
is($node->safe_psql('postgres', q{SELECT string_agg(o, ' ' ORDER BY o) FROM (
	SELECT n.nspname || '.' || relname FROM pg_class c JOIN pg_namespace n ON n.oid = relnamespace, aclexplode(relacl) a WHERE nspname IN ('shard', 'shard_peer') AND relkind IN ('r', 'S', 'v') AND grantee <> relowner
	UNION ALL SELECT nspname::text FROM pg_namespace, aclexplode(nspacl) a WHERE nspname ~ '^shard' AND grantee NOT IN (0, nspowner)
	UNION ALL SELECT p.oid::regprocedure || ' to ' || grantee::regrole FROM pg_proc p JOIN pg_depend d ON d.objid = p.oid AND d.deptype = 'e' JOIN pg_extension e ON d.refobjid = e.oid AND extname = 'shard', aclexplode(proacl) a WHERE grantee NOT IN (0, proowner)
	UNION ALL SELECT c.oid::regclass || ' to ' || grantee::regrole FROM pg_class c JOIN pg_depend d ON d.objid = c.oid AND d.deptype = 'e' JOIN pg_extension e ON d.refobjid = e.oid AND extname = 'shard', aclexplode(relacl) a WHERE grantee NOT IN (0, relowner)) x (o)}),
	join(' ', map { "$_ to pg_read_all_stats" } 'shard.current_regions()', 'shard.decisions()', 'shard_cluster_stats(interval)', 'shard_current_regions', 'shard_decisions', 'shard_rebalance_plan(text)'),
	'O09 on what the extension has made those have some whom it names');
fails('eve', 'SELECT FROM shard.type', qr/42501/, 'O09 she sees nothing of it');
as('alice', 'GRANT SELECT ON shard_entity.vault TO eve');
is(as('eve', 'SELECT count(*) FROM shard_entity.vault'), 1, 'what the owner grants is granted');
as('alice', 'REVOKE SELECT ON shard_entity.vault FROM eve');

# --- O03: the schema of the handler ---------------------------------------------------------------

my $break_in = q{SELECT shard_ask('vault', 'pin', '{"pin": 0}')};
fails('nobody', q{SELECT closed.vault(NULL, '{}')}, qr/42501: permission denied for schema closed/, 'the function is closed');
fails('nobody', $break_in, qr/42501: permission denied to send.*USAGE on the schema/s, 'O03 so is its type: asks');
fails('nobody', $_, qr/42501: permission denied to send/, "O03 $_")
	for q{SELECT shard_tell('vault', 'pin', '{"pin": 0}')}, q{SELECT shard_tell_many('vault', '{pin}', ARRAY['{"pin": 0}']::jsonb[])},
	q{INSERT INTO shard_inbox (type_name, entity_id, message) VALUES ('vault', 'pin', '{"pin": 0}')}, q{SELECT shard_try('vault', 'pin', '{}')},
	q{SELECT shard_start_entity('vault', 'pin')}, q{SELECT shard_passivate('vault', 'pin')}, q{SELECT shard_shard_id('vault', 'pin')}, q{SELECT * FROM shard_location('vault', 'pin')};
is(as('alice', q{SELECT state FROM shard_entity.vault}), '{"pin": 4711}', 'O03 nothing was written');
as('alice', 'GRANT USAGE ON SCHEMA closed TO sender; REVOKE EXECUTE ON FUNCTION closed.vault FROM PUBLIC');
fails('sender', $break_in, qr/42501: permission denied to send.*EXECUTE/s, 'one right without the other is none');
as('alice', 'GRANT EXECUTE ON FUNCTION closed.vault TO sender');
is(as('sender', q{SELECT shard_ask('vault', 'own', '{"pin": 1}')}), '{"pin": 1}', 'who has both may send');

# --- O13: at once ---------------------------------------------------------------------------------

my $session = $node->session;
$session->query('SET SESSION AUTHORIZATION sender;');
my $send = q{DO $$ BEGIN PERFORM shard_tell('vault', 'own', '{}'); RAISE 'sent'; EXCEPTION WHEN insufficient_privilege THEN PERFORM set_config('my.result', 'refused', false);
	WHEN raise_exception THEN PERFORM set_config('my.result', 'sent', false); END $$; SELECT current_setting('my.result');};
is($session->query($send), 'sent', 'he sends');
for my $right ('USAGE ON SCHEMA closed', 'EXECUTE ON FUNCTION closed.vault')
{
	as('alice', "REVOKE $right FROM sender");
	is($session->query($send), 'refused', "O13 not without $right any more");
	as('alice', "GRANT $right TO sender");
	is($session->query($send), 'sent', 'and again');
}
$session->close;

# --- O07, O08: whose ids they are -----------------------------------------------------------------

as('alice', q{SELECT shard_tell('vault', 'iban-1', '{"fail": 1}')});
$node->drain;
as('alice', q{SELECT shard_tell('vault', 'iban-2', '{"pin": 2}')});
$node->drain;
as('alice', q{SELECT shard_stop_type('vault')});
as('alice', q{SELECT shard_tell('vault', 'iban-3', '{}')});
$node->wait_until(q{SELECT count(*) = 1 FROM shard_inbox WHERE entity_id = 'iban-3'}, 'a message that waits');
my %views = (shard_region_state => 'iban-2', shard_inbox => 'iban-3', shard_dead_letters => 'iban-1');
as('mallory', q{CREATE SCHEMA mallory; GRANT ALL ON SCHEMA mallory TO PUBLIC; CREATE FUNCTION mallory.leak(t text) RETURNS bool COST 0.0000001 LANGUAGE plpgsql AS $$ BEGIN RAISE NOTICE 'leaked %', t; RETURN true; END $$});
for my $view (sort keys %views)
{
	is(as('alice', "SELECT entity_id FROM $view WHERE entity_id = '$views{$view}'"), $views{$view}, "she sees hers in $view");
	for my $role (qw(nobody sender mallory))
	{
		my $some = $view eq 'shard_region_state' ? '0' : 'some';
		is(as($role, "SELECT count(*), count(entity_id) FROM $view WHERE type_name = 'vault'") =~ s/^[1-9]\d*\|/some|/r, "$some|0", "O07 $role sees that there is something in $view, not which, and nothing that a worker has to list");
		is(as($role, "SELECT count(*) FROM $view WHERE entity_id LIKE 'iban%'"), 0, 'O07 nor by a condition');
		unlike(($node->psql('postgres', "SELECT * FROM $view WHERE mallory.leak(entity_id)", extra_params => [ '-U', $role ]))[2], qr/iban/, 'O08 nor by a function that leaks');
		unlike(as($role, "SELECT v::text FROM $view v"), qr/iban|pin/, 'O07 nor in a row');
	}
}
as('alice', q{SELECT shard_start('vault', 'closed.vault', max_attempts => 1, number_of_shards => 8)});
$node->drain;

# --- O04, O06: calls without right ----------------------------------------------------------------

my @calls = (q{shard_redrive(NULL, 'vault')}, q{shard_discard(NULL, 'vault')}, q{shard_allow_peer('nobody')}, 'shard_link_accept(1)', q{shard_alter('vault', 'max_attempts', '9')}, q{shard_stop_type('vault')}, q{shard_drop_type('vault', force => true)},
	q{shard_alter('vault', 'owner', 'nobody')}, q{shard_start('vault', 'closed.vault')}, q{shard_start('more', 'closed.vault')}, 'shard_health()',
	split /\n/, $node->safe_psql('postgres', q{SELECT format('%s(%s)', p.oid::regproc, (SELECT string_agg('NULL::' || t::regtype, ', ') FROM unnest(p.proargtypes) t))
		FROM pg_proc p JOIN pg_depend d ON d.objid = p.oid AND d.deptype = 'e' JOIN pg_extension e ON d.refobjid = e.oid AND extname = 'shard'
		WHERE pronamespace = 'public'::regnamespace AND prokind = 'f' AND NOT proisstrict AND NOT has_function_privilege('public', p.oid, 'EXECUTE') ORDER BY 1}));
cmp_ok(scalar @calls, '>=', 20, 'there is something to try');
fails('nobody', "SELECT $_", qr/(?:42501|42704):/, "O04 $_") for @calls;
is(as('alice', 'SELECT count(*) FROM shard_dead_letters'), 1, 'O06 her dead letter is where it was');

# --- O05: a handler that a stranger makes anew ----------------------------------------------------

as('alice', 'ALTER SCHEMA closed RENAME TO moved');
as('mallory', q{CREATE SCHEMA closed; CREATE FUNCTION closed.vault(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN
	RETURN to_jsonb(current_user); END $$; GRANT ALL ON SCHEMA closed TO PUBLIC});
as('alice', q{SELECT shard_tell('vault', 'made anew', '{}')});
$node->wait_until(q{SELECT problem ~ 'vault' FROM shard_types WHERE type_name = 'vault'}, 'the type to wait');
$node->wait_until(q{SELECT count(*) = 1 FROM shard_inbox WHERE place = 'stash'}, 'its message to wait');
is(as('alice', q{SELECT count(*) FROM shard_entity.vault WHERE entity_id = 'made anew'}), 0, 'O05 it is not run as her');
as('mallory', 'DROP SCHEMA closed CASCADE');
as('alice', 'ALTER SCHEMA moved RENAME TO closed');
$node->drain;
is(as('alice', q{SELECT state FROM shard_entity.vault WHERE entity_id = 'made anew'}), '{}', 'hers is, when it is back');

# --- S10: names -----------------------------------------------------------------------------------

my $name = q{a'); ALTER ROLE mallory SUPERUSER; --};
for my $strings (qw(on off))
{
	as('mallory', qq{SET standard_conforming_strings = $strings; SET escape_string_warning = off; SET search_path = mallory, public;
CREATE TYPE mallory."st\\'"" $strings" AS ("x'; ALTER ROLE mallory SUPERUSER; --" int, "y"";" text);
CREATE FUNCTION mallory."h'"" $strings"(state mallory."st\\'"" $strings", message jsonb) RETURNS mallory."st\\'"" $strings" LANGUAGE sql AS \$\$ SELECT ROW(1, current_user)::mallory."st\\'"" $strings" \$\$;
SELECT shard_start(\$q\$$name$strings\$q\$, \$q\$mallory."h'"" $strings"\$q\$);
SELECT shard_tell(\$q\$$name$strings\$q\$, \$q\$$name\$q\$, '{}');});
	$node->drain;
	is(as('mallory', qq{SELECT "y"";" FROM shard_entity."$name$strings"}), 'mallory', "S10 names are names, standard_conforming_strings $strings");
	as('mallory', qq{SET standard_conforming_strings = $strings; SELECT shard_drop_type(\$q\$$name$strings\$q\$, force => true)});
}
is(as('mallory', 'SELECT rolsuper FROM pg_roles WHERE rolname = current_user'), 'f', 'S10 nobody became superuser');
$node->log_is_clean;

done_testing();
