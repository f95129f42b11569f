# A type is dropped that cannot run. What is sent while that is not committed, and joins the stash behind
# the back of who drops, becomes a dead letter: at once, or when the next worker starts.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use Test::More;

my $node = ShardCluster->create('dropped', conf => "shard.region_workers = 1\nshard.handler_lock_timeout = '60 s'");

# A type without handler, of which a message waits; so many do then.
sub start_mute
{
	my ($type, $count) = @_;
	$node->safe_psql('postgres', qq{
		CREATE FUNCTION $type(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN message;
		SELECT shard_start('$type', '$type');
		SELECT shard_tell('$type', 'a', '0');
		SELECT shard_drain();
		DROP FUNCTION $type;
		SELECT shard_tell('$type', 'a', '1')});
	is_stashed($count);
	return;
}

sub is_stashed
{
	my ($count) = @_;
	return $node->wait_until(qq{SELECT count(*) = $count FROM shard.held}, "$count messages in the stash");
}

# A session that has dropped it, and has not committed; two more messages are stashed meanwhile.
sub drop_behind
{
	my ($type) = @_;
	my $dropper = $node->session;
	$dropper->query(qq{SET client_min_messages = warning; BEGIN; SELECT shard_drop_type('$type', force => true);});
	$node->safe_psql('postgres', qq{SELECT shard_tell('$type', 'a', '2'), shard_tell('$type', 'b', '3')});
	is_stashed(3);
	return $dropper;
}

sub dead_letters
{
	my $dead = $node->safe_psql('postgres', q{SELECT entity_id, message, sqlstate, error FROM shard_dead_letters ORDER BY id});
	$node->safe_psql('postgres', 'DELETE FROM shard.dead_letter');
	return $dead;
}

my $buried = "a|2|42704|the entity type of the message was dropped\nb|3|42704|the entity type of the message was dropped";

start_mute('mute', 1);
drop_behind('mute')->query('COMMIT;');
is_stashed(0);
is(dead_letters(), $buried, 'what came behind the back of the drop is a dead letter');

# The worker ends before it gets to know of it.
start_mute('other', 1);
my $dropper = drop_behind('other');
my ($worker) = $node->worker_pids('%region%');
$node->stop_idle($worker);
$dropper->query('COMMIT;');
kill 'KILL', $worker;
$node->recover;
is_stashed(0);
is(dead_letters(), $buried, 'the same if the worker died before it got to know of it');

# It is told when it is done.
sub told { my @lines = PostgreSQL::Test::Utils::slurp_file($node->logfile) =~ /LOG: +(2 messages in the stash of entity type \d+ became dead letters)/g; return scalar @lines; }
ShardCluster::wait_for_condition(sub { told() >= 2 }, 'two lines in the log');
is(told(), 2, 'the log tells how much was given up, once for each type');

# Another type is dropped in the middle of the turn that buries what the first one had. The turn waits for a
# lock then; after that it stashes a message of the second one, and gets to know that both are gone.
$node->safe_psql('postgres', q{
	CREATE FUNCTION gate(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql AS $$
		SELECT pg_advisory_xact_lock(1); SELECT message $$;
	SELECT shard_start('gate', 'gate');
	SELECT shard_tell('gate', 'a', '0');
	SELECT shard_drain()});
start_mute('first', 1);
start_mute('second', 2);
my $holder = $node->session;
$holder->query('SELECT pg_advisory_lock(1);');
($worker) = $node->worker_pids('%region%');
$node->stop_idle($worker);
$node->safe_psql('postgres', qq{SELECT shard_tell('$_', 'a', '"of $_"')}) for 'gate', 'second', 'first';
$node->safe_psql('postgres', q{SET client_min_messages = warning; SELECT shard_drop_type('first', force => true)});
kill 'CONT', $worker;
$node->wait_until(q{SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted}, 'the turn waits');
$node->safe_psql('postgres', q{SET client_min_messages = warning; SELECT shard_drop_type('second', force => true)});
$holder->query('SELECT pg_advisory_unlock(1);');
$node->wait_until(q{SELECT count(*) = 2 FROM shard.dead_letter}, 'the messages of both are dead letters');
is_stashed(0);

is($node->safe_psql('postgres', q{SELECT count(*) FROM shard_inbox}), 0, 'nothing waits');
$node->wait_until('SELECT ok FROM shard_health()', 'nothing to be amiss');
done_testing();
