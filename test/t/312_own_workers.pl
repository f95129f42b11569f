# A type that is started with worker => 'own' runs in region workers of its own (C19): no other type of its owner is
# there, whatever it does; also after a restart. What cannot be is refused, and nothing of it stays.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use Test::More;

my $node = ShardCluster->create('first', conf => 'shard.region_workers = 1');

# The process that runs an entity of a type.
sub process
{
	my ($type) = @_;
	return $node->safe_psql('postgres', "SELECT shard_ask('$type', 'e', '{}', '60 s')");
}

sub refused
{
	my ($statement, $error, $what) = @_;
	my ($rc, $out, $err) = $node->psql('postgres', "\\set VERBOSITY verbose\n$statement");
	like($err, $error, $what);
	return;
}

$node->safe_psql('postgres', q{
CREATE FUNCTION process(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	PERFORM pg_sleep((message->>'takes')::float8);
	RETURN pg_backend_pid();
END $$;
SELECT shard_start('plain', 'process'), shard_start('other', 'process'), shard_start('own', 'process', worker => 'own');
});
is($node->safe_psql('postgres', q{SELECT string_agg(settings->>'worker', ' ' ORDER BY type_name) FROM shard_types}), 'shared own shared',
	'the setting is shown');
is(process('plain'), process('other'), 'types of an owner share a process');
isnt(process('own'), process('plain'), 'but for one that wants it to itself');

# A call that does not end holds up nobody else.
my $session = $node->session;
$node->safe_psql('postgres', q{SELECT shard_alter('own', 'handler_timeout', '10 min'), shard_tell('own', 'slow', '{"takes": 500}')});
$node->wait_until(q{SELECT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'shard region' AND wait_event = 'PgSleep')}, 'the call');
ok(process('plain') > 0, 'others answer while one of its calls runs');
my $before = process('plain');
$node->stop('immediate');
$node->start;
$node->safe_psql('postgres', q{SELECT shard_stop_type('own')});
isnt(process('plain'), $before, 'and after a crash');

# What cannot be.
refused(q{SELECT shard_start('x', 'process', worker => 'mine')}, qr/ERROR:  22023: invalid value for setting "worker": "mine"\nHINT:  Valid values are "shared", "own"/,
	'another word');
refused(q{SELECT shard_alter('plain', 'worker', 'own')}, qr/setting "worker" .*\nDETAIL:  The type's number, which all its rows have, says which workers run it/,
	'it cannot be altered');
refused(q{SELECT shard_start('plain', 'process', worker => 'own')}, qr/worker/, 'nor by a second start');
$node->safe_psql('postgres', join(';', map { "SELECT shard_start('own$_', 'process', worker => 'own')" } 1 .. 3));
refused(q{SELECT shard_start('x', 'process', worker => 'own')},
	qr/ERROR:  53400: cannot start entity type "x": .*\nDETAIL:  8 owners and types with worker "own" .*\nHINT:  Start the type with worker "shared".*: "own", "own1", "own2", "own3"\./, 'more than there are');
is($node->safe_psql('postgres', q{SELECT count(*) FROM shard_types WHERE type_name = 'x'}), 0, 'nothing of it stays');
$node->safe_psql('postgres', q{SELECT shard_start('x', 'process')});
is(process('x'), process('plain'), 'sharing is always possible');
isnt(process('own3'), process('own2'), 'each has its own');
$node->safe_psql('postgres', q{SELECT shard_drop_type('own3', force => true)});
$node->wait_until(q{SELECT NOT EXISTS (SELECT FROM shard.type WHERE type_name = 'own3')}, 'one to go');
$node->safe_psql('postgres', q{SELECT shard_start('again', 'process', worker => 'own')});
isnt(process('again'), process('plain'), 'which makes room');

done_testing();
