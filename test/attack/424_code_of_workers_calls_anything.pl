# What an owner's code may call in a session it may call elsewhere, too: in a region worker, as handler, start message, decider
# and ordered_by, and in a parallel worker, where there is no portal and no client. Each function and procedure of the extension
# that any role may call is called there, with NULLs, with the names of nothing, and with those of a type. Each call has its
# error or its result, and the server goes on.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use Test::More;

my $node = ShardCluster->create('first', conf => 'shard.region_workers = 1');
$node->create_owners('mallory');
$node->as('mallory', q{
CREATE FUNCTION mallory.run(q text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	EXECUTE q;
	RETURN '00000';
EXCEPTION WHEN OTHERS THEN
	RETURN SQLSTATE;
END $$;
CREATE TABLE mallory.heard (place text, q text, what text);
CREATE TABLE mallory.orders (q text);
-- once in each place: what is called brings messages
CREATE FUNCTION mallory.obey(p text) RETURNS void LANGUAGE sql AS
	'INSERT INTO mallory.heard SELECT p, q, mallory.run(q) FROM mallory.orders WHERE NOT EXISTS (SELECT FROM mallory.heard WHERE place = p)';
CREATE FUNCTION mallory.try_all() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
	IF EXISTS (SELECT FROM mallory.orders WHERE mallory.run(q) LIKE 'XX%') THEN RAISE 'an internal error'; END IF;
END $$;
CREATE FUNCTION mallory.handle(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	PERFORM mallory.obey(type_name || CASE WHEN message = '"start"' THEN ' starts' ELSE '' END) FROM shard_self();
	RETURN coalesce(state, '{}');
END $$;
CREATE FUNCTION mallory.fail(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RAISE 'failed'; END $$;
CREATE FUNCTION mallory.rest(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT state';
CREATE FUNCTION mallory.decide(sqlstate text, message text, attempts int) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
	PERFORM mallory.try_all();
	RETURN 'stop';
END $$;
CREATE FUNCTION mallory.number(message jsonb) RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
	PERFORM mallory.try_all();
	RETURN (message->>'n')::bigint;
END $$;
SELECT shard_start('plain', 'mallory.handle', number_of_shards => 1, handler_timeout => '30 s', start_message => '"start"'),
	shard_start('decided', 'mallory.fail', number_of_shards => 1, handler_timeout => '30 s', decider => 'mallory.decide', max_attempts => 1),
	shard_start('numbered', 'mallory.handle', number_of_shards => 1, handler_timeout => '30 s', ordered_by => 'mallory.number', ordered_from => 1),
	shard_start('victim', 'mallory.rest', number_of_shards => 1)});

# Calls of all that any role may call: names of parameters do not matter, so each is given by its place.
my @routines = split /\n/, $node->safe_psql('postgres', q{
	SELECT format('%s|%I.%I|%s', p.prokind, n.nspname, p.proname,
		(SELECT string_agg(format_type(t, NULL), ';' ORDER BY i) FROM unnest(p.proargtypes) WITH ORDINALITY a (t, i)))
	FROM pg_depend d JOIN pg_extension e ON e.oid = d.refobjid AND e.extname = 'shard'
	JOIN pg_proc p ON p.oid = d.objid AND d.classid = 'pg_proc'::regclass JOIN pg_namespace n ON n.oid = p.pronamespace
	WHERE d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e' AND p.prokind IN ('f', 'p')
	AND p.prorettype NOT IN ('trigger'::regtype, 'event_trigger'::regtype)
	AND has_function_privilege('mallory', p.oid, 'EXECUTE') AND has_schema_privilege('mallory', n.oid, 'USAGE')
	ORDER BY n.nspname, p.proname, p.oid});
cmp_ok(scalar @routines, '>=', 35, 'there is much that may be called: ' . @routines);

my %value = (
	none => { text => "'nobody'", jsonb => "'{}'", interval => "'1 s'", integer => '1', bigint => '1', boolean => 'true', bytea => q{'\x00'}, 'text[]' => "'{a}'", 'jsonb[]' => "'{1}'",
		'integer[]' => "'{1}'", 'timestamp with time zone' => 'now()' },
	own => { text => "'victim'", jsonb => "'{\"n\": 1}'", interval => "'1 s'", integer => '10', bigint => '2', boolean => 'false', bytea => q{'\x01'}, 'text[]' => "'{a,b}'",
		'jsonb[]' => "'{1,2}'", 'integer[]' => "'{1}'", 'timestamp with time zone' => "now() + interval '1 h'" });
my @calls;
for my $routine (@routines)
{
	my ($kind, $name, $types) = split /\|/, $routine;
	my @types = split /;/, $types // '';
	for my $values (undef, @value{qw(none own)})
	{
		my @arguments = map { ($values ? $values->{$_} // 'NULL' : 'NULL') . "::$_" } @types;
		push @calls, ($kind eq 'p' ? 'CALL' : 'SELECT') . " $name(" . join(', ', @arguments) . ')' if $values || @types || $kind eq 'f';
	}
}
my %seen;
@calls = grep { !$seen{$_}++ } @calls;
$node->as('mallory', 'INSERT INTO mallory.orders VALUES ' . join ', ', map { "(\$q\$$_\$q\$)" } @calls);

my $pids = 'SELECT pid FROM shard_stat_workers ORDER BY pid';
my $before = $node->safe_psql('postgres', $pids);
my $count = @calls;

# In a handler, and in the start message before it.
$node->as('mallory', q{SELECT shard_tell('plain', 'a', '{}')});
$node->wait_until("SELECT count(*) = 2 * $count FROM mallory.heard", 'all calls of a handler and of a start message');
pass("a handler called all $count");

# In a decider, which leaves no traces; and in ordered_by.
$node->as('mallory', q{SELECT shard_tell('decided', 'a', '{}')});
$node->wait_until(q{SELECT count(*) = 1 FROM shard_dead_letters WHERE type_name = 'decided'}, 'a decision');
is($node->safe_psql('postgres', q{SELECT decision FROM shard_history('decided', 'a')}), 'stop', 'a decider called all, and decided');
$node->as('mallory', q{SELECT shard_tell('numbered', 'a', '{"n": 1}')});
$node->wait_until("SELECT count(*) = 3 * $count FROM mallory.heard", 'a message with a number');
pass('ordered_by called all');

# In a parallel worker, by a role that has nothing but its connection.
$node->safe_psql('postgres', 'CREATE ROLE nobody LOGIN');
my $modes = $node->safe_psql('postgres', q{SELECT string_agg(name, ' ') FROM pg_settings WHERE name IN ('force_parallel_mode', 'debug_parallel_query')});
my (undef, $said, $errors) = $node->psql('postgres', "SET $modes = on;\n" . q{
CREATE FUNCTION pg_temp.run(q text) RETURNS text LANGUAGE plpgsql PARALLEL SAFE AS $$ BEGIN EXECUTE q; RETURN 'called'; END $$;
} . join('', map { "SELECT pg_temp.run(\$q\$$_\$q\$);\n" } @calls), on_error_stop => 0, extra_params => [ '-U', 'nobody' ], timeout => $ShardCluster::patience);
is((() = "$said\n$errors" =~ /^called$|ERROR:  /mg), $count, 'each call of a parallel worker has its answer');
like($errors, qr/parallel worker/, 'they were in parallel workers');

is($node->safe_psql('postgres', $pids), $before, 'no worker has ended');
is($node->safe_psql('postgres', 'SELECT count(*) FROM mallory.heard WHERE what LIKE \'XX%\''), 0, 'no call has an internal error')
	or diag $node->safe_psql('postgres', q{SELECT DISTINCT q, what FROM mallory.heard WHERE what LIKE 'XX%'});
is($node->safe_psql('postgres', q{SELECT count(DISTINCT q) FROM mallory.heard WHERE q LIKE 'CALL%shard_reshard%' AND what = '25001'}), 3, 'to reshard is refused, whatever is said');

$node->log_is_clean(qr/dead letter|failed/);
done_testing();
