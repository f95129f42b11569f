# The type of a type's states is dropped, with the handler, and made anew: shard_start() and shard_alter() bind what fits the
# states' rows, which are all there still, and say what does not fit. Where the state table was dropped, too, nothing has to.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use Test::More;

my $node = ShardCluster->create('anew', conf => 'shard.region_workers = 1');
$node->start_recorder;
my $handler = q{CREATE FUNCTION adds(state account, message jsonb) RETURNS account LANGUAGE plpgsql AS $$
	BEGIN
		state.n := coalesce(state.n, 0) + 1;
		PERFORM shard_reply(to_jsonb(state.n));
		RETURN state;
	END $$;};
my $start = q{SELECT shard_start('adds', 'adds(account,jsonb)', 4);};
my $n = 0;
sub works
{
	my ($name) = @_;
	$n++;
	is($node->safe_psql('postgres', q{SELECT shard_ask('adds', 'one', '{}')}), $n, $name);
	return;
}
# Or warned.
sub refused
{
	my ($sql, $like, $name) = @_;
	my ($status, $out, $err) = $node->psql('postgres', $sql);
	like($err, $like, $name);
	return;
}
$node->safe_psql('postgres', "CREATE TYPE account AS (n int, note text); $handler $start");
works('an ask');

$node->safe_psql('postgres', 'DROP TYPE account CASCADE');
is($node->safe_psql('postgres', q{SELECT problem FROM shard_types WHERE type_name = 'adds'}),
	'the type of the states was dropped, which handler public.adds(public.account,jsonb) had', 'what the matter is');
refused(q{SELECT shard_ask('adds', 'one', '{}')}, qr/type of the states was dropped/i, 'an ask is told so');
$node->safe_psql('postgres', q{SELECT shard_tell('adds', 'one', '{}')});

# Another structure.
$node->safe_psql('postgres', "CREATE TYPE account AS (n int8, note text); $handler");
refused($start, qr/type public.account does not fit the states of entity type "adds".*column "n".*HINT: .*as the columns/s,
	'a type that does not fit');
refused(q{SELECT shard_alter('adds', 'handler', 'adds(account,jsonb)')}, qr/does not fit the states/, 'nor with shard_alter');

# The same one.
$node->safe_psql('postgres', "DROP TYPE account CASCADE; CREATE TYPE account AS (n int, note text); $handler $start");
$n++; # the message that waited
$node->drain;
works('bound by shard_start');
is($node->safe_psql('postgres', q{SELECT problem IS NULL FROM shard_types WHERE type_name = 'adds'}), 't', 'all is well');

# By shard_alter, under another name.
$node->safe_psql('postgres', q{DROP TYPE account CASCADE; CREATE TYPE purse AS (n int, note text);
	CREATE FUNCTION fills(state purse, message jsonb) RETURNS purse LANGUAGE plpgsql AS $$
	BEGIN
		state.n := coalesce(state.n, 0) + 1;
		PERFORM shard_reply(to_jsonb(state.n));
		RETURN state;
	END $$;});
refused(q{SELECT shard_start('adds', 'fills(purse,jsonb)', 4)}, qr/exists with another "handler".*HINT: .*shard_alter/s, 'another handler');
$node->safe_psql('postgres', q{SELECT shard_alter('adds', 'handler', 'fills(purse,jsonb)')});
works('bound by shard_alter');
refused(q{CREATE TYPE third AS (n int, note text);
	CREATE FUNCTION third(state third, message jsonb) RETURNS third LANGUAGE sql RETURN state;
	SELECT shard_alter('adds', 'handler', 'third(third,jsonb)')}, qr/Its state is of type public.third, the entities' of type public.purse/,
	'not while the type of the states is there');

# A handler alone that is gone, or made anew by somebody else.
$node->safe_psql('postgres', q{CREATE ROLE stranger; CREATE ROLE alice; GRANT CREATE ON SCHEMA shard_entity, public TO alice;
	GRANT CREATE ON DATABASE postgres TO alice;
	SELECT shard_alter('adds', 'owner', 'alice');
	DROP FUNCTION fills(purse,jsonb)});
is($node->safe_psql('postgres', q{SELECT problem FROM shard_types WHERE type_name = 'adds'}),
	'handler public.fills(public.purse,jsonb) does not exist', 'a handler that was dropped');
$node->safe_psql('postgres', q{CREATE FUNCTION fills(state purse, message jsonb) RETURNS purse LANGUAGE sql RETURN state;
	ALTER FUNCTION fills(purse,jsonb) OWNER TO stranger});
is($node->safe_psql('postgres', q{SELECT problem FROM shard_types WHERE type_name = 'adds'}),
	"handler public.fills(public.purse,jsonb) was created again by a role without the rights of the type's owner", 'a stranger');

# The table, and with it the type of its states: nothing is left that another one would have to fit.
$node->safe_psql('postgres', q{CREATE TYPE slip AS (n int);
	CREATE FUNCTION slips(state slip, message jsonb) RETURNS slip LANGUAGE sql RETURN ROW(1)::slip;
	SELECT shard_start('slips', 'slips(slip,jsonb)', 1);
	SELECT shard_tell('slips', 'one', '{}')});
$node->drain;
$node->safe_psql('postgres', q{DROP TABLE shard_entity.slips; DROP TYPE slip CASCADE; CREATE TYPE slip AS (word text);
	CREATE FUNCTION slips(state slip, message jsonb) RETURNS slip LANGUAGE sql RETURN ROW('new')::slip});
refused(q{SELECT shard_start('slips', 'slips(slip,jsonb)', 1)}, qr/ERROR: +the state table of entity type "slips" was dropped.*shard_stop_type/s, 'a state table that was dropped is made anew for nobody');
refused(q{SELECT shard_stop_type('slips'); SELECT shard_start('slips', 'slips(slip,jsonb)', 1)}, qr/WARNING: +state table of entity type "slips" was created again, empty/,
	'but for who has stopped the type');
is($node->safe_psql('postgres', q{SELECT shard_ask('slips', 'one', '{}')}), '{"word": "new"}', 'as the states are now');
$node->log_is_clean(qr/is suspended|does not fit|does not exist|exists with another|cannot be the handler|type of the states was dropped|state table of entity type "slips" was dropped/i);

done_testing();
