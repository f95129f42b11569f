# D18: an owner alters a type of hers and leaves the transaction open, or prepares it. Other owners start and alter types
# meanwhile. Who adds a type, and stays, holds up only others who do; they are told for whom they have waited.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use Test::More;

my $server = ShardCluster->create('node', conf => 'max_prepared_transactions = 4');
$server->create_owners('mallory', 'alice');
$server->safe_psql('postgres', 'CREATE FUNCTION h(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN message');
$server->as($_->[0], "SELECT shard_start('$_->[1]', 'h')") for [ 'mallory', 'plant' ], [ 'alice', 'hers' ];

sub error_as
{
	my ($role, $sql) = @_;
	my ($status, undef, $err) = $server->psql('postgres', "\\set VERBOSITY verbose\n$sql", extra_params => $role ? [ '-U', $role ] : []);
	return $status == 0 ? 'done' : $err;
}
sub health { return $server->safe_psql('postgres', q{SELECT array_to_string(problems, ' ') FROM shard_health()}) }

# Everything of alice's, in a time in which nobody has waited for long.
sub alice_goes_on
{
	my ($why) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	is(error_as('alice', qq{SET lock_timeout = '5 s'; SELECT $_}), 'done', "D18: $why: $_")
	  for q{shard_alter('hers', 'max_attempts', '4')}, q{shard_stop_type('hers')}, q{shard_start('hers', 'h', max_attempts => 4)},
	  q{shard_start('second', 'h')}, q{shard_drop_type('second')}, q{shard_alter('hers', 'max_attempts', '5')};
	return;
}

# --- a type of her own -----------------------------------------------------------------------------

my $mallory = $server->session_as('mallory');
$mallory->query(q{BEGIN; SELECT shard_alter('plant', 'max_attempts', '4');});
alice_goes_on('beside an open transaction');
my $error = error_as('', q{SET lock_timeout = '500 ms'; SELECT shard_stop_type('plant')});
like($error, qr/ERROR:\s+55P03: entity type "plant" is being changed by another transaction/, 'D18: the type itself is hers');
like($error, qr/DETAIL:\s+The lock is held by process \d+ of role "mallory", in a transaction open since/, 'D18: as is said');
like($error, qr/HINT:.*pg_terminate_backend/, 'and what to do about it');
$mallory->query(q{PREPARE TRANSACTION 'hold';});
alice_goes_on('beside a prepared one');
like(error_as('', q{SET lock_timeout = '500 ms'; SELECT shard_drop_type('plant')}),
	qr/DETAIL:\s+The lock is held by prepared transaction "hold" of role "mallory", in a transaction prepared since/, 'D18: of a prepared one its name is said');
$server->wait_until(q{SELECT array_to_string(problems, ' ') ~ 'prepared transaction "hold" of role "mallory" keeps others from altering entity type "plant", since' FROM shard_health()},
	'health to say so, ten seconds later');
$mallory->query(q{ROLLBACK PREPARED 'hold';});
is(error_as('', q{SELECT shard_alter('plant', 'max_attempts', '6')}), 'done', 'then it is free');

# --- another type ------------------------------------------------------------------------------------

$mallory->query(q{BEGIN; SELECT shard_start('another', 'h');});
is(error_as('alice', q{SET lock_timeout = '5 s'; SELECT shard_alter('hers', 'max_attempts', '7')}), 'done', 'D18: what is there can be altered beside a start');
is(error_as('alice', q{SET lock_timeout = '5 s'; SELECT shard_stop_type('hers'); SELECT shard_start('hers', 'h', max_attempts => 7)}), 'done', 'and started again');
$error = error_as('alice', q{SELECT shard_start('second', 'h')});
like($error, qr/ERROR:\s+55P03: another transaction is starting an entity type/, 'D18: a start waits so long and no longer');
like($error, qr/DETAIL:\s+The lock is held by process \d+ of role "mallory"/, 'D18: and says for whom');
like(health(), qr/process \d+ of role "mallory" keeps others from starting entity types, since/, 'D18: so does health');
$mallory->query(q{ROLLBACK;});
is(error_as('alice', q{SELECT shard_start('second', 'h')}), 'done', 'then it is started');
unlike(health(), qr/keeps others/, 'and health has nothing to say');

# --- a type that goes while somebody waits for it ------------------------------------------------------

$mallory->query(q{BEGIN; SELECT shard_drop_type('plant');});
my $admin = $server->session;
$admin->send(q{SELECT shard_start('plant', 'h');});
$server->wait_until(q{SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'object' AND NOT granted}, 'somebody to wait for its end');
$mallory->query(q{COMMIT;});
$admin->receive;
is($server->safe_psql('postgres', q{SELECT owner = 10 FROM shard.type WHERE type_name = 'plant'}), 't', 'who waited starts another one of the name');
$mallory->close;
$admin->close;
$server->log_is_clean;
done_testing();
