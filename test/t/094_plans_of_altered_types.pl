# A handler whose plans were made before its state type was altered goes on by itself: the worker's session never ends, so
# the plans that PL/pgSQL keeps in it are made anew when one no longer fits.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use Test::More;

my $node = ShardCluster->create('planned', conf => 'shard.region_workers = 1');
$node->start_recorder;
$node->safe_psql('postgres', q{
	CREATE TYPE account AS (balance int, moves int);
	CREATE TABLE rates (rate int, PRIMARY KEY (rate));
	INSERT INTO rates VALUES (1);
	CREATE FUNCTION account(state account, message jsonb) RETURNS account LANGUAGE plpgsql AS $$
	DECLARE
		found rates;
	BEGIN
		SELECT * INTO found FROM rates;
		found.rate := coalesce(found.rate, 0);
		state.moves := coalesce(state.moves, 0) + found.rate;
		state.balance := coalesce(state.balance, 0) + (message->>'amount')::int;
		PERFORM shard_reply(to_jsonb(state.moves));
		RETURN state;
	END $$;
	SELECT shard_start('account', 'account(account,jsonb)', 4)});
my $moves = 0;
sub works
{
	my ($name) = @_;
	$moves++;
	is($node->safe_psql('postgres', q{SELECT shard_ask('account', 'one', '{"amount": 1}')}), $moves, "$name: an ask");
	$moves++;
	$node->safe_psql('postgres', q{SELECT shard_tell('account', 'one', '{"amount": 1}')});
	$node->drain;
	is($node->safe_psql('postgres', "SELECT moves, balance FROM shard_entity.account WHERE entity_id = 'one'"),
		"$moves|$moves", "$name: a message");
	return;
}
works('before');
for my $type ('int8', 'numeric')
{
	$node->safe_psql('postgres', "BEGIN; ALTER TYPE account ALTER ATTRIBUTE moves TYPE $type;
		ALTER TABLE shard_entity.account ALTER COLUMN moves TYPE $type; COMMIT");
	works("the state's attribute is $type");
}

# Messages come first this time.
$node->safe_psql('postgres', q{ALTER TABLE rates ALTER COLUMN rate TYPE int8});
$node->safe_psql('postgres', q{SELECT shard_tell('account', 'two', '{"amount": 1}') FROM generate_series(1, 10)});
$node->drain;
is($node->safe_psql('postgres', q{SELECT moves FROM shard_entity.account WHERE entity_id = 'two'}), 10,
	'the row type of a table was altered: messages');
works('the row type of a table was altered');
is($node->safe_psql('postgres', 'SELECT count(*) FROM shard_dead_letters'), 0, 'no message was blamed');

# What the handler itself is to blame for stays its fault.
$node->safe_psql('postgres', q{
	CREATE FUNCTION wrong(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		RAISE EXCEPTION 'not mine' USING ERRCODE = 'datatype_mismatch';
	END $$;
	SELECT shard_start('wrong', 'wrong(jsonb,jsonb)', 1);
	SELECT shard_tell('wrong', 'x', '{}')});
$node->drain;
is($node->safe_psql('postgres', q{SELECT sqlstate FROM shard_dead_letters WHERE type_name = 'wrong'}), '42804', 'a handler of that error');
# Whether a table fits a type is seen by who has the table locked, as a turn does, though somebody waits to lock it for himself:
# else a message of that turn would be blamed for what he is about to mend.
$node->safe_psql('postgres', q{
	DROP TYPE account CASCADE;
	CREATE TYPE account AS (balance int, moves text);
	CREATE FUNCTION account(state account, message jsonb) RETURNS account LANGUAGE sql RETURN state});
my ($holder, $mender) = ($node->session, $node->session);
$holder->query('BEGIN; LOCK TABLE shard_entity.account IN ROW EXCLUSIVE MODE;');
$mender->send('BEGIN; LOCK TABLE shard_entity.account; COMMIT;');
$node->wait_until(q{SELECT count(*) = 1 FROM pg_locks WHERE relation = 'shard_entity.account'::regclass AND NOT granted}, 'somebody to wait for the table');
ok(!eval { $holder->query(q{SELECT shard_alter('account', 'handler', 'account(account,jsonb)');}); 1 }, 'a type that does not fit is refused');
like($@, qr/does not fit the states.*column "moves" of state table "account" is of type numeric, not text/s, 'and why');
$holder->query('ROLLBACK;');
$mender->receive;

$node->log_is_clean(qr/became a dead letter: not mine|entity type "account" cannot run|does not fit the states/);

done_testing();
