# A type that is dropped with force at one of its two hosts takes with it what waited there: nothing counts as waiting any
# more, neither while the type is gone, nor in its buffer when it is started again, be it in the same transaction.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;

# No shard gets a home, so all messages are parked; and nothing is counted again by itself.
my $cluster = ShardNodes->create(2, databases => 1, conf => "shard.min_members = 3\nshard.recount_interval = 0");
my ($one, $two) = $cluster->nodes;
$cluster->sql_everywhere('CREATE FUNCTION keep(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN message');
my $start = q{SELECT shard_start('keep', 'keep', 8, buffer_size => 8)};
my $drop = q{SET client_min_messages = error; SELECT shard_drop_type('keep', true)};
$_->sql($start) for $one, $two;
$cluster->wait_registered;
my $waits = q{SELECT coalesce((SELECT p FROM shard_health(), unnest(problems) p WHERE p ~ 'messages cannot be handled now'), 'none')};

sub fill
{
	$two->sql(q{SELECT shard_tell('keep', i::text, '1') FROM generate_series(1, 6) i});
	$two->wait_until("SELECT problems::text ~ '6 messages cannot be handled now' FROM shard_health()", 'the buffer to be half full');
	return;
}

sub is_empty
{
	my ($what) = @_;
	# a turn that has seen the change
	$two->sql(q{SELECT shard_tell('keep', 'one more', '1')});
	$two->wait_until('SELECT count(*) = 1 FROM shard.parked', 'another message to be parked');
	is($two->sql($waits), 'none', "$what: what was dropped counts no more");
	return;
}

fill();
$two->sql("BEGIN; $drop; $start; COMMIT");
is_empty('dropped and started in one transaction');
$two->sql('BEGIN; ' . $drop . '; COMMIT');
$two->sql($start);
is_empty('dropped, then started');
done_testing();
