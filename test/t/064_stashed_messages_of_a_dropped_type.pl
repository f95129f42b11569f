# A type is dropped that cannot run. What is sent while that is not committed, and joins the stash behind
# the back of who drops, becomes a dead letter: at once, or when the next worker starts.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use Test::More;

my $node = ShardCluster->create('dropped', conf => 'shard.region_workers = 1');

# A type without handler, of which a message waits.
sub start_mute
{
	my ($type) = @_;
	$node->safe_psql('postgres', qq{
		CREATE FUNCTION $type(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN message;
		SELECT shard_start('$type', '$type');
		SELECT shard_tell('$type', 'a', '0');
		SELECT shard_drain();
		DROP FUNCTION $type;
		SELECT shard_tell('$type', 'a', '1')});
	is_stashed(1);
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

start_mute('mute');
drop_behind('mute')->query('COMMIT;');
is_stashed(0);
is(dead_letters(), $buried, 'what came behind the back of the drop is a dead letter');

# The worker ends before it gets to know of it.
start_mute('other');
my $dropper = drop_behind('other');
my ($worker) = $node->worker_pids('%region%');
kill 'STOP', $worker;
$dropper->query('COMMIT;');
kill 'KILL', $worker;
$node->recover;
is_stashed(0);
is(dead_letters(), $buried, 'the same if the worker died before it got to know of it');

is($node->safe_psql('postgres', q{SELECT count(*) FROM shard_inbox}), 0, 'nothing waits');
is($node->safe_psql('postgres', q{SELECT ok FROM shard_health()}), 't', 'and nothing is amiss');
done_testing();
