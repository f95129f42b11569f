# What a home has taken in of another node is remembered over the end of its worker (H7), of whatever kind it is: requests, and
# what answers them, too. Else their origin would keep them for ever, and never leave; and would send them again where the shard
# has moved, to be handled twice.

use strict;
use warnings FATAL => 'all';

use ShardMutant;
use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(2, conf => "shard.rebalance_interval = 0\nshard.region_workers = 1");
my ($one, $two) = my @nodes = $cluster->nodes;
$cluster->sql_everywhere(q{
CREATE TABLE asked (n text);
CREATE TABLE heard (n text);
CREATE FUNCTION oracle(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	IF message ? 'noop' THEN RETURN state; END IF;
	INSERT INTO asked VALUES (message->>'n');
	IF message ? 'of' THEN PERFORM shard_reply(message->'n'); END IF;
	RETURN state;
END $$;
CREATE FUNCTION seeker(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	IF message ? 'noop' THEN RETURN state; END IF;
	IF message ? 'response' THEN
		INSERT INTO heard VALUES (message->>'with');
	ELSE
		PERFORM shard_request('oracle', message->>'of', message, '1 h', message->'n');
	END IF;
	RETURN state;
END $$;
SELECT shard_start('oracle', 'oracle', number_of_shards => 8);
SELECT shard_start('seeker', 'seeker', number_of_shards => 8)});
$cluster->wait_registered;

# Nodes' workers end, one after the other: what was taken in there is known from the log alone, and what was heard of other
# nodes' marks is forgotten; if those have ended before, they tell what they know from the log.
sub end_workers
{
	for my $node (@_)
	{
		my ($worker) = $node->workers('shard region');
		$node->sql("SELECT pg_terminate_backend($worker)");
		$node->wait_until(qq{SELECT count(*) = 1 FROM pg_stat_activity WHERE datname = current_database()
			AND backend_type = 'shard region' AND pid <> $worker}, 'another worker');
	}
	return;
}

# A seeker of node 1 asks an oracle of node 2, and hears of it.
my $asked = 0;

sub ask
{
	my ($seeker, $oracle) = @_;
	my $n = 'request ' . ++$asked;
	$one->sql(qq{SELECT shard_tell('seeker', '$seeker', '{"of": "$oracle", "n": "$n"}')});
	$one->wait_value("SELECT count(*) FROM heard WHERE n = '$n'", 1, 'the reply');
	return $n;
}

sub move
{
	my ($type, $entity, $to) = @_;
	my $shard = $cluster->shard_of($type, $entity);
	$cluster->move($type, $shard, $to);
	$cluster->wait_home($type, $shard, $to);
	return;
}

sub count_of
{
	my ($table, $n) = @_;
	my $sum = 0;
	$sum += $_->sql("SELECT count(*) FROM $table WHERE n = '$n'") for @nodes;
	return $sum;
}

my @scenarios = (
	{
		promise => 'a request is handled once, over the end of workers and a move',
		broken_by => ['REQUESTS_UNMARKED'],
		run => sub {
			my ($seeker, $oracle) = ($cluster->entity_at('seeker', 1, 'a'), $cluster->entity_at('oracle', 2, 'a'));
			my $n = ask($seeker, $oracle);
			end_workers($two, $one);
			move('oracle', $oracle, 1);
			$one->sql("SELECT shard_tell('oracle', '$oracle', '{\"n\": \"behind $n\"}')");
			$one->wait_value("SELECT count(*) FROM asked WHERE n = 'behind $n'", 1, 'what comes behind it');
			return (count_of('asked', $n), 1);
		},
	},
	{
		promise => 'the mark of a response goes with its shard',
		broken_by => ['REQUESTS_UNMARKED'],
		run => sub {
			my ($seeker, $oracle) = ($cluster->entity_at('seeker', 1, 'b'), $cluster->entity_at('oracle', 2, 'b'));
			ask($seeker, $oracle);
			end_workers($one);
			my $shard = $cluster->shard_of('seeker', $seeker);
			move('seeker', $seeker, 2);
			return ($two->sql(qq{SELECT count(*) FROM shard.shard_input JOIN shard.type USING (type_id)
				WHERE type_name = 'seeker' AND shard = $shard AND a = 2}), 1);
		},
	});

if (ShardMutant::prove(@scenarios))
{
	my ($seeker, $oracle) = ($cluster->entity_at('seeker', 1, 'c'), $cluster->entity_at('oracle', 2, 'c'));
	ask($seeker, $oracle);
	end_workers($two, $one);
	is($one->sql(q{SELECT shard_leave('60 s')}), 't', 'a node that has asked leaves');
	$cluster->has_left(1);
	$cluster->logs_are_clean(@ShardNodes::link_troubles, qr/terminating .* due to administrator command/);
}
done_testing();
