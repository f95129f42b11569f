# Requests in a cluster: who asks at one node, who is asked at another, from each to each; while the shard of the one or the other
# moves, under load, and over a crash of a node: each request has exactly one outcome, and it is its own (E48 - E53).

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(3, conf => "shard.rebalance_interval = 0\nshard.region_workers = 1");
my ($one, $two, $three) = my @nodes = $cluster->nodes;
for my $node (@nodes)
{
	$node->sql(q{
	CREATE TABLE heard (entity text, what text, n text);
	CREATE FUNCTION oracle(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		IF message ? 'noop' THEN RETURN state; END IF;
		CASE message->>'do'
			WHEN 'keep' THEN RETURN jsonb_build_object('token', encode(shard_defer_reply(), 'hex'));
			WHEN 'answer' THEN PERFORM shard_reply(decode(state->>'token', 'hex'), message->'with');
			WHEN 'fail' THEN RAISE EXCEPTION 'no' USING ERRCODE = 'P0042';
			ELSE PERFORM shard_reply(message->'n');
		END CASE;
		RETURN state;
	END $$;
	CREATE FUNCTION seeker(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		IF message ? 'noop' THEN RETURN state; END IF;
		IF message ? 'response' THEN
			INSERT INTO heard SELECT entity_id, coalesce(message->>'reply', message->>'sqlstate', message->>'response'), message->>'with' FROM shard_self();
		ELSE
			PERFORM shard_request('oracle', message->>'of', message, coalesce((message->>'timeout')::interval, '1 h'), message->'n');
		END IF;
		RETURN to_jsonb(coalesce(state::text::int, 0) + 1);
	END $$;
	SELECT shard_start('oracle', 'oracle', number_of_shards => 12, max_attempts => 1);
	SELECT shard_start('seeker', 'seeker', number_of_shards => 12)});
	$cluster->wait_registered($node);
}

sub ask
{
	my ($node, $entity, $of, $n, $do, $timeout) = @_;
	$node->sql(sprintf q{SELECT shard_tell('seeker', '%s', jsonb_build_object('of', '%s', 'n', '%s', 'do', '%s', 'timeout', '%s'))},
		$entity, $of, $n, $do, $timeout // '1 h');
	return;
}

# At whichever node: what was heard of a request.
sub outcome
{
	my ($n, $expected, $what) = @_;
	my $got = '';
	ShardCluster::wait_for_condition(sub { $got = join ',', grep { $_ ne '' } map { $_->sql("SELECT string_agg(what, ',') FROM heard WHERE n = '$n'") } @nodes; return $got ne '' }, "an outcome of $what");
	$cluster->drain;
	$got = join ',', grep { $_ ne '' } map { $_->sql("SELECT string_agg(what, ',') FROM heard WHERE n = '$n'") } @nodes;
	is($got, $expected, $what);
	return;
}

sub kept { my ($node, $entity) = @_; return $node->wait_until("SELECT count(*) = 1 FROM shard_entity.oracle WHERE entity_id = '$entity' AND state ? 'token'", 'a request that is kept') }

sub move
{
	my ($type, $entity, $to) = @_;
	my $shard = $cluster->shard_of($type, $entity);
	$cluster->move($type, $shard, $to);
	$cluster->wait_home($type, $shard, $to);
	return;
}

my %seeker = map { $_->n => $cluster->entity_at('seeker', $_->n) } @nodes;
my %oracle = map { $_->n => $cluster->entity_at('oracle', $_->n) } @nodes;
$cluster->drain;
for my $from (@nodes)
{
	for my $to (@nodes)
	{
		my ($i, $j) = ($from->n, $to->n);
		ask($one, $seeker{$i}, $oracle{$j}, "$i to $j", 'reply');
		outcome("$i to $j", "$i to $j", "node $i asks node $j");
		next if $i == $j;
		ask($one, $seeker{$i}, $oracle{$j}, "error $i to $j", 'fail');
		outcome("error $i to $j", 'P0042', 'and hears its error');
	}
}

# Who has asked moves, to and fro: the request goes with it.
ask($one, $seeker{1}, $oracle{2}, 'open', 'keep');
kept($two, $oracle{2});
move('seeker', $seeker{1}, 3);
is($three->sql(q{SELECT count(*) FROM shard_timers WHERE name LIKE 'request:%'}), 1, 'an open request moves with its shard');
$one->sql("SELECT shard_tell('oracle', '$oracle{2}', '{\"do\": \"answer\", \"with\": \"found\"}')");
outcome('open', 'found', 'the answer finds who has asked at its new home');

# Who is asked moves; both.
ask($one, $seeker{2}, $oracle{2}, 'moved', 'keep');
kept($two, $oracle{2});
move('oracle', $oracle{2}, 1);
move('seeker', $seeker{2}, 3);
$two->sql("SELECT shard_tell('oracle', '$oracle{2}', '{\"do\": \"answer\", \"with\": \"by way of node 1\"}')");
outcome('moved', 'by way of node 1', 'and who is asked answers from its own');

# Nobody answers, and the shard has moved.
ask($one, $seeker{2}, $oracle{3}, 'in vain', 'keep', '3 s');
kept($three, $oracle{3});
move('seeker', $seeker{2}, 2);
outcome('in vain', 'timeout', 'time is over at the new home');
$three->sql("SELECT shard_tell('oracle', '$oracle{3}', '{\"do\": \"answer\", \"with\": \"late\"}')");
$two->wait_until('SELECT sum(void_replies) > 0 FROM shard_stat_workers', 'an answer that finds nobody');
outcome('in vain', 'timeout', 'a late answer finds nobody there');

# The server of who has asked dies while the answer is on its way.
ask($one, $seeker{3}, $oracle{1}, 'over a crash', 'keep');
kept($one, $oracle{1});
$three->server->crash;
$one->sql("SELECT shard_tell('oracle', '$oracle{1}', '{\"do\": \"answer\", \"with\": \"after all\"}')");
$three->server->recover;
$cluster->wait_up;
outcome('over a crash', 'after all', 'and an answer waits for the node that was away');

# Under load: shards move all the time, one node leaves.
my $requests = 3_000;
my $load = qq{SELECT count(shard_tell('seeker', 'l' || i % 60, jsonb_build_object('of', 'm' || i % 50, 'n', 'l' || i, 'do', 'reply')))};
my $seen = 0;
for my $part (1 .. 6)
{
	my ($from, $to) = (($part - 1) * $requests / 6 + 1, $part * $requests / 6);
	$nodes[$part % 3]->sql("$load FROM generate_series($from, $to) i");
	move($_ % 2 ? 'seeker' : 'oracle', $_ % 2 ? "l$_" : "m$_", 1 + ($part + $_) % 3) for 1 .. 2;
}
is($two->sql(q{SELECT shard_leave('60 s')}), 't', 'a node leaves');
my $sum = q{SELECT count(*) FROM heard WHERE n LIKE 'l%'};
ShardCluster::wait_for_condition(sub { $seen = 0; $seen += $_->sql($sum) for @nodes; return $seen >= $requests }, 'all outcomes');
$_->sql('SELECT shard_drain()') for $one, $three;
my %count;
for my $node (@nodes)
{
	$count{$_}++ for split /\n/, $node->sql(q{SELECT n || ' ' || what FROM heard WHERE n LIKE 'l%'});
}
is(scalar keys %count, $requests, 'each request has an outcome');
is(scalar(grep { $_ > 1 } values %count), 0, 'and only one');
is(scalar(grep { my ($n, $what) = split / /; $n ne $what } keys %count), 0, 'which is its own');
is($one->sql(q{SELECT count(*) FROM shard_timers WHERE name LIKE 'request:%'}) + $three->sql(q{SELECT count(*) FROM shard_timers WHERE name LIKE 'request:%'}), 0, 'nothing is left');

$cluster->logs_are_clean(@ShardNodes::link_troubles, qr/became a dead letter: no/, qr/terminating .* due to administrator command/);
done_testing();
