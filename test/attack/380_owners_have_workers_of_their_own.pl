# Types of different owners run in different workers (O10, O11, O12): what one leaves in its session or its transaction
# - cursors, large objects, connections, settings, the seed - the other one does not find. Workers come with an
# owner's first type, and go some time after the last one.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use Test::More;

my $node = ShardCluster->create('first', conf => "shard.region_workers = 1\nshard.owner_workers_keep = '1 s'");
$node->create_owners('alice', 'bob');

# A contributed library that keeps connections for its whole process.
my $dblink = $node->safe_psql('postgres', q{SELECT count(*) FROM pg_available_extensions WHERE name = 'dblink'});
$node->safe_psql('postgres', q{CREATE EXTENSION dblink; GRANT EXECUTE ON FUNCTION dblink_connect_u(text, text) TO alice}) if $dblink;
my $address = sprintf 'host=%s port=%s dbname=postgres user=alice', $node->host, $node->port;

sub as { return $node->as(@_) }

# Workers of owners; where there are several of them, one more runs nobody's types.
sub workers
{
	my ($how_many) = @_;
	my $keeper = $how_many > 1 ? 1 : 0;
	my $all = $how_many + $keeper;
	$node->wait_for_value(q{SELECT count(*) || ' ' || count(pid) || ' ' || count(*) FILTER (WHERE worker = 63 AND owners = '') FROM shard_stat_workers},
		"$all $all $keeper", "$how_many workers");
	$node->wait_until('SELECT ok FROM shard_health()', 'all of them to work');
	return;
}

workers(1);
as('alice', qq{
CREATE FUNCTION alice.leave(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS \$\$
DECLARE
	c refcursor := 'of_alice';
	object oid;
BEGIN
	OPEN c FOR SELECT 'secret of alice';
	object := lo_from_bytea(0, 'secret of alice');
	PERFORM lo_open(object, 393216);
	IF message ? 'dblink' THEN
		PERFORM dblink_connect_u('out', '$address');
	END IF;
	PERFORM set_config('alice.secret', 'secret of alice', false), setseed(0.5);
	RETURN to_jsonb(pg_backend_pid());
END \$\$;
SELECT shard_start('leave', 'alice.leave'), shard_start('leave2', 'alice.leave'), shard_start('leave3', 'alice.leave')});
workers(1);
pass('an owner has one worker, however many types he has');

as('bob', q{
CREATE FUNCTION bob.look(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	seen text := '';
	i int;
BEGIN
	SELECT coalesce(string_agg(name, ' '), '') INTO seen FROM pg_cursors WHERE name = 'of_alice';
	seen := seen || coalesce(current_setting('alice.secret', true), '');
	FOR i IN 0 .. 3 LOOP
		BEGIN
			seen := seen || convert_from(loread(i, 100), 'utf8');
		EXCEPTION WHEN OTHERS THEN
			NULL;
		END;
	END LOOP;
	RETURN jsonb_build_object('pid', pg_backend_pid(), 'seen', seen, 'random', random());
END $$;
SELECT shard_start('look', 'bob.look')});
workers(2);
is($node->safe_psql('postgres', q{SELECT string_agg(owners, '; ' ORDER BY worker) FROM shard_stat_workers WHERE owners <> ''}), 'alice; bob',
	'each owner has his own');
is($node->safe_psql('postgres', q{SELECT count(DISTINCT type_id % 8) || ' ' || count(*) FROM shard.type}), '2 4', 'and a group of lanes');

# Messages of both are sent at once, so that one turn of a worker of both would take them.
my %pid;
my $random = $node->safe_psql('postgres', 'SELECT setseed(0.5); SELECT random()');
for my $round (1 .. 10)
{
	$node->safe_psql('postgres', qq{SELECT shard_tell('leave', 'a', '{}'), shard_tell('leave2', 'b$round', '{}'), shard_tell('look', 'c', '{}')});
	my ($pid, $seen, $same) = split /\|/, $node->safe_psql('postgres',
		qq{SELECT a->>'pid', a->>'seen', (a->>'random')::float8 = $random FROM shard_ask('look', 'c', '{}') a});
	$pid{$pid}++;
	is("$seen $same", ' f', "bob finds nothing of alice's ($round)");
}
my $alice = $node->safe_psql('postgres', q{SELECT shard_ask('leave', 'a', '{}')});
ok(!$pid{$alice}, 'they have different processes');
is($node->safe_psql('postgres', qq{SELECT shard_ask('leave3', 'a', '{}')}), $alice, 'and alice one for her types');

# What a library keeps for the process, too.
SKIP:
{
	skip 'dblink is not installed', 3 unless $dblink;
	as($_, qq{
CREATE FUNCTION $_.links(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN to_jsonb(dblink_get_connections());
SELECT shard_start('links_of_$_', '$_.links')}) for 'alice', 'bob';
	is($node->safe_psql('postgres', q{SELECT shard_ask('leave', 'a', '{"dblink": 1}')}), $alice, 'alice connects to somewhere');
	is($node->safe_psql('postgres', q{SELECT shard_ask('links_of_alice', 'a', '{}')}), '["out"]', 'her other types find the connection');
	is($node->safe_psql('postgres', q{SELECT coalesce(shard_ask('links_of_bob', 'a', '{}')::text, 'none')}), 'none', 'bob does not');
}

# A node that starts knows at once whom it has.
$node->restart;
workers(2);
as('bob', qq{SELECT shard_drop_type('$_', force => true)}) for 'look', $dblink ? 'links_of_bob' : ();
workers(1);
pass('the worker goes with the last type');

$node->safe_psql('postgres', q{CREATE FUNCTION own(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN message; SELECT shard_start('own', 'own')});
workers(2);
is($node->safe_psql('postgres', q{SELECT shard_ask('own', 'a', '"here"')}), '"here"', 'and another owner gets one');

# Until his worker starts the keeper has his lanes. It does not answer his asks, since there is a place for him.
$node->create_owners('carol');
my ($launcher) = $node->worker_pids('shard launcher%');
my $asker = $node->session;
kill 'STOP', $launcher;
as('carol', q{CREATE FUNCTION carol.h(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN message; SELECT shard_start('third', 'carol.h')});
$asker->send(q{SELECT shard_ask('third', 'a', '"here"', '60 s');});
$node->safe_psql('postgres', q{SELECT shard_tell('third', 'b', '{}')});
$node->wait_until(q{SELECT count(*) = 1 FROM shard_inbox WHERE place = 'stash'}, 'the keeper to have read his messages');
kill 'CONT', $launcher;
is($asker->receive, '"here"', 'an ask of an owner whose worker is yet to start is answered by that');
workers(3);

$node->log_is_clean;
done_testing();
