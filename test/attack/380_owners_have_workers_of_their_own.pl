# Types of different owners run in different workers (O10, O11, O12): what one leaves in its session or its transaction
# - cursors, large objects, connections, settings, the seed - the other one does not find. Workers come with an
# owner's first type, and go some time after the last one.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use Test::More;

my $node = ShardCluster->create('first', conf => "shard.region_workers = 1\nshard.owner_workers_keep = '1 s'");
$node->create_owners('alice', 'bob');
$node->safe_psql('postgres', 'CREATE EXTENSION dblink');

sub as { return $node->as(@_) }

sub workers
{
	my ($how_many) = @_;
	$node->wait_for_value(q{SELECT count(*) || ' ' || count(pid) FROM shard_stat_workers}, "$how_many $how_many", "$how_many workers");
	$node->wait_until('SELECT ok FROM shard_health()', 'all of them to work');
	return;
}

workers(1);
as('alice', q{
CREATE FUNCTION alice.leave(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	c refcursor := 'of_alice';
	object oid;
BEGIN
	OPEN c FOR SELECT 'secret of alice';
	object := lo_from_bytea(0, 'secret of alice');
	PERFORM lo_open(object, 393216);
	PERFORM dblink_connect('out', 'dbname=postgres user=alice password=x') WHERE message ? 'dblink';
	PERFORM set_config('alice.secret', 'secret of alice', false), setseed(0.5);
	RETURN to_jsonb(pg_backend_pid());
END $$;
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
is($node->safe_psql('postgres', q{SELECT string_agg(owners, '; ' ORDER BY worker) FROM shard_stat_workers}), 'alice; bob',
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

# A node that starts knows at once whom it has.
$node->restart;
workers(2);
as('bob', q{SELECT shard_drop_type('look', force => true)});
workers(1);
pass('the worker goes with the last type');

$node->safe_psql('postgres', q{CREATE FUNCTION own(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN message; SELECT shard_start('own', 'own')});
workers(2);
is($node->safe_psql('postgres', q{SELECT shard_ask('own', 'a', '"here"')}), '"here"', 'and another owner gets one');

$node->log_is_clean;
done_testing();
