# Settings that anybody may set, and that act at once: code of owners ends no session by them, neither that of who sends nor a worker's, and
# moves no random numbers of the sender. An error that ends a worker nevertheless counts as an attempt. Names of settings do not fill memory.

use strict;
use warnings FATAL => 'all';

use PostgreSQL::Test::Utils;
use ShardCluster;
use Test::More;

my $node = ShardCluster->create('first', conf => "shard.handler_lock_timeout = 300ms\n");
$node->create_owners('mallory', 'alice');

sub as { return $node->as(@_) }

# The error of what is to fail.
sub fails
{
	my ($role, $sql) = @_;
	my ($status, undef, $error) = $node->psql('postgres', $sql, extra_params => [ '-U', $role, '-v', 'VERBOSITY=verbose' ]);
	return $status == 0 ? "\"$sql\" was done" : $error;
}

as('mallory', q{
CREATE TABLE mallory.rows (id int PRIMARY KEY, n int); INSERT INTO mallory.rows VALUES (1, 0);
CREATE FUNCTION mallory.set_by_call(name text, value text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN PERFORM set_config(name, value, false); RAISE 'gone'; END $$;
CREATE FUNCTION mallory.ends() RETURNS void LANGUAGE plpgsql SET exit_on_error = on AS $$ BEGIN RAISE 'gone'; END $$;
CREATE FUNCTION mallory.h(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN
	IF message ? 'q' THEN EXECUTE message->>'q'; END IF;
	RETURN to_jsonb(coalesce(state::int, 0) + 1); END $$;
CREATE FUNCTION mallory.id(message jsonb) RETURNS text LANGUAGE plpgsql AS $$ BEGIN IF message ? 'q' THEN EXECUTE message->>'q'; END IF; RETURN 'x'; END $$;
SELECT shard_start('own', 'mallory.h', max_attempts => 1);
SELECT shard_start('told', 'mallory.h', entity_id_extractor => 'mallory.id', handler_timeout => '5 s');
});
as('alice', q{
CREATE FUNCTION alice.h(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN
	IF message ? 'pass' THEN PERFORM shard_tell('told', message->'pass'); END IF;
	RETURN to_jsonb(coalesce(state::int, 0) + 1);
END $$;
SELECT shard_start('alice', 'alice.h', max_attempts => 1);
SELECT shard_tell('alice', 'a', '{}');
});
$node->drain;

my $dead = 0;

# --- what ends a process -----------------------------------------------------------------------------

for my $ends (q{SELECT mallory.set_by_call('exit_on_error', 'on')}, q{SELECT mallory.ends()},
	$node->safe_psql('postgres', 'SHOW server_version_num') >= 170000 ? q{SELECT mallory.set_by_call('transaction_timeout', '1')} : ())
{
	my $message = "jsonb_build_object('q', \$q\$$ends\$q\$)";
	for my $call ("shard_tell('told', $message)", "shard_try('told', 'x', $message)")
	{
		my $error = fails('alice', "SELECT $call");
		like($error, qr/^psql:<stdin>:1: ERROR:  42501: /, "$call is an error");
	}
	as('alice', "SELECT shard_tell('alice', 'a', jsonb_build_object('pass', $message)); SELECT shard_tell('alice', 'a', '{}')");
	as('mallory', "SELECT shard_tell('own', 'a', $message); SELECT shard_tell('own', 'a', '{}')");
	$node->drain;
	$dead += 2;
	is($node->safe_psql('postgres', q{SELECT count(*), string_agg(DISTINCT type_name || ' ' || sqlstate, ', ') FROM shard_dead_letters}), "$dead|alice 42501, own 42501", "$ends: dead letters");
}
is($node->safe_psql('postgres', q{SELECT count(*) FROM shard_stat_workers WHERE pid IS NULL}), 0, 'workers are there');

# --- random numbers -----------------------------------------------------------------------------------

my $known = $node->safe_psql('postgres', 'SELECT setseed(0.5); SELECT random()') =~ s/^\n//r;
my @seeds = (q{SELECT set_config('seed', '0.5', false)});
# From 18 on, and in the last minor versions before, a function cannot have it.
my $has_seed = fails('mallory', q{CREATE FUNCTION mallory.seeds() RETURNS void LANGUAGE plpgsql SET seed = 0.5 AS $$ BEGIN RETURN; END $$});
if ($has_seed =~ /was done/)
{
	push @seeds, q{SELECT mallory.seeds()};
}
else
{
	like($has_seed, qr/parameter "seed" cannot be set locally/, 'a function cannot have a seed');
}
for my $seeds (@seeds)
{
	my $message = "jsonb_build_object('q', \$q\$$seeds\$q\$)";
	for my $call ("shard_tell('told', $message)", "shard_try('told', 'x', $message)")
	{
		like(fails('alice', "SELECT $call"), qr/ERROR:  42501: /, "$call is refused");
		my ($out) = ($node->psql('postgres', "SELECT $call; SELECT random()", extra_params => [ '-U', 'alice' ], on_error_stop => 0))[1];
		isnt($out, $known, 'her numbers are her own');
	}
}

# --- locks ---------------------------------------------------------------------------------------------

for my $waits (q{SELECT set_config('lock_timeout', '0', true)}, q{SET LOCAL lock_timeout = '1h'})
{
	like(fails('alice', "SELECT shard_try('told', 'x', jsonb_build_object('q', \$q\$$waits\$q\$))"), qr/ERROR:  42501: /, "on trial, $waits is refused");
}
is(as('alice', q{SELECT state FROM shard_try('told', 'x', jsonb_build_object('q', $q$SET LOCAL lock_timeout = '200ms'$q$))}), 1, 'less is not');

# --- names ---------------------------------------------------------------------------------------------

like(fails('alice', q{SELECT shard_tell('told', jsonb_build_object('q', 'SELECT set_config(''m.x'', '''', true)'))}), qr/ERROR:  42501: cannot use function set_config\(\) in an extractor/, 'extractors make none');
is(as('alice', q{SELECT state FROM shard_try('told', 'x', jsonb_build_object('q', 'SELECT set_config(''app.x'', ''1'', true)'))}), 1, 'a handler on trial may use settings');
as('mallory', q{SELECT shard_tell('own', 'n', jsonb_build_object('q', format('SELECT set_config(''app.x%s'', ''1'', true)', i))) FROM generate_series(1, 100) i});
$node->drain;
is($node->safe_psql('postgres', q{SELECT state FROM shard_entity.own WHERE entity_id = 'n'}), 100, 'so does one in a worker');
my $pid = sub { return $node->safe_psql('postgres', q{SELECT pid FROM shard_stat_workers WHERE owners ~ 'mallory'}) };
my $before = $pid->();
isnt($before, '', 'his worker is there');
as('mallory', q{SELECT shard_tell('own', 'n', jsonb_build_object('q', 'SELECT set_config(''m.'' || repeat(''x'', 2000000), '''', true)'))});
$node->wait_until(qq{SELECT pid <> $before FROM shard_stat_workers WHERE owners ~ 'mallory'}, 'a worker without the long name');
$node->drain;
is($node->safe_psql('postgres', q{SELECT state FROM shard_entity.own WHERE entity_id = 'n'}), 101, 'the message was handled, once');

# Names of time zones: each that somebody makes up is kept, with 23 kB.
$before = $pid->();
as('mallory', q{SELECT shard_tell('own', 'n', jsonb_build_object('q', 'SELECT count(now() AT TIME ZONE format(''<z%s>1'', i)) FROM generate_series(1, 4000) i'))});
$node->wait_until(qq{SELECT pid <> $before FROM shard_stat_workers WHERE owners ~ 'mallory'}, 'a worker without the time zones');
$node->drain;
like(slurp_file($node->logfile), qr/region worker \d+ starts again: names of time zones take \d{8} bytes/, 'the log says why');
is($node->safe_psql('postgres', q{SELECT state FROM shard_entity.own WHERE entity_id = 'n'}), 102, 'the message was handled, once');

# --- an error that ends the worker nevertheless ----------------------------------------------------

$node->safe_psql('postgres', 'ALTER DATABASE postgres SET exit_on_error = on');
$before = $pid->();
$node->safe_psql('postgres', "SELECT pg_terminate_backend($before)");
$node->wait_until(qq{SELECT pid <> $before FROM shard_stat_workers WHERE owners ~ 'mallory'}, 'a worker with the setting');
as('mallory', q{SELECT shard_tell('own', 'f', '{"q": "SELECT 1 / 0"}'), shard_tell('own', 'f', '{}')});
$node->drain;
is($node->safe_psql('postgres', q{SELECT entity_id, sqlstate FROM shard_dead_letters WHERE entity_id = 'f'}), 'f|38000', 'the message is given up');
is($node->safe_psql('postgres', q{SELECT state FROM shard_entity.own WHERE entity_id = 'f'}), '1', 'the next one is handled');
for my $i (1 .. 2)
{
	as('mallory', q{SELECT shard_tell('own', 'f', '{"q": "SELECT 1 / 0"}')});
}
$node->wait_until(q{SELECT problem LIKE '%ended its region worker by an error%' FROM shard_types WHERE type_name = 'own'}, 'the type to be suspended');
like($node->safe_psql('postgres', 'SELECT problems FROM shard_health()'), qr/is suspended: .*ended its region worker by an error/, 'shard_health says so');

done_testing();
