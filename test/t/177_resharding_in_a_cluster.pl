# Another number of shards in a cluster (doc/protocol/resharding.md). While another member has the type the call is refused,
# and nothing has changed. When its entities are all at one node, and the others have dropped it, they get their shards
# there, and homes that no other node can take first; then shards move as ever: nobody is lost, or begins anew.

use strict;
use warnings FATAL => 'all';

use ShardMutant;
use ShardNodes;
use Test::More;

my $entities = 60;
my $cluster = ShardNodes->create(3, databases => 1, conf => "shard.rebalance_interval = 0\nshard.region_workers = 1");
my ($one, $two, $three) = $cluster->nodes;
$cluster->sql_everywhere(q{
CREATE FUNCTION note(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql
	RETURN CASE WHEN message ? 'noop' THEN state ELSE jsonb_build_object('count', coalesce((state->>'count')::int, 0) + 1) END;
});
my $number = 12;

sub start_at
{
	my (@nodes) = @_;
	$_->eventually("SELECT shard_start('note', 'note', number_of_shards => $number, remember_entities => true)") for @nodes;
	$cluster->wait_registered(@nodes);
	return;
}

sub tell_all
{
	my ($node) = @_;
	$node->sql(qq{SELECT count(shard_tell('note', 'e' || i, '{"what": 1}')) FROM generate_series(1, $entities) i});
	$cluster->drain;
	return;
}

# Entities and their messages, over all nodes.
sub total
{
	my ($n, $sum) = (0, 0);
	for my $node ($cluster->nodes)
	{
		my ($count, $messages) = split /\|/, $node->sql(q{SELECT count(*), coalesce(sum((state->>'count')::int), 0) FROM shard_entity.note});
		$n += $count;
		$sum += $messages;
	}
	return "$n $sum";
}

start_at($one, $two, $three);
tell_all($_) for ($one, $two);
$one->sql(q{SELECT shard_schedule('note', 'e' || i, '{"noop": 1}', after => '1 h', name => 'alarm') FROM generate_series(1, 20) i});
$cluster->drain;
is(total(), "$entities " . 2 * $entities, 'entities are at all nodes');

# All entities come to node 1, which alone keeps the type.
sub gather
{
	for my $n (2, 3)
	{
		$one->sql("SELECT shard_evacuate($n)");
	}
	$one->wait_value(q{SELECT string_agg(DISTINCT node || ' ' || phase, ',') FROM shard_homes WHERE type_name = 'note'}, '1 stable', 'all shards to be at node 1');
	$cluster->wait_settled;
	$_->eventually(q{SELECT shard_drop_type('note')}) for ($two, $three);
	$one->sql("SELECT shard_evacuate($_, false)") for (2, 3);
	return;
}

my $sound = ShardMutant::prove(
	{
		promise => 'while another member has the type nothing moves',
		broken_by => ['RESHARD_BEFORE_LEAVING'],
		run => sub {
			$one->sql(q{SELECT shard_stop_type('note')});
			my $homes = q{SELECT string_agg(shard || ' ' || node || ' ' || phase, ',' ORDER BY shard) FROM shard_homes WHERE type_name = 'note'};
			my $before = $one->sql($homes);
			my $error = $one->error_of(q{CALL shard_reshard('note', 31)}) // '';
			my $left = $one->sql('SELECT count(*) FROM shard_reshardings');
			return (($error =~ /55006: cannot reshard entity type "note": the cluster has it still/ ? 'refused ' : $error)
				. $left . ($one->sql($homes) eq $before ? '' : ', and shards went elsewhere'), 'refused 0');
		},
	},
	{
		promise => 'the first homes of all shards are where the entities are',
		broken_by => ['CLAIMS_FORGOTTEN'],
		run => sub {
			start_at($one);
			gather();
			$one->sql(q{SELECT shard_stop_type('note')});
			$number = 31;
			# Others come first, while the cluster knows the type's new number, and node 1 does not have it yet.
			my $session = $one->session;
			$one->{server}->set_fault('reshard_numbered', 'freeze');
			$session->query('SELECT 1;');
			$session->send("CALL shard_reshard('note', $number);");
			ShardCluster::wait_for_condition(sub { $one->{server}->fault_happened }, 'the number to be there');
			start_at($two, $three);
			$two->sql(qq{SELECT count(shard_tell('note', 'e' || i, '{"what": 1}')) FROM generate_series(1, $entities) i});
			# Homes of a type that is asked for later are there: so would be these.
			$_->sql(q{SELECT shard_start('late', 'note')}) for ($two, $three);
			$two->sql(q{SELECT shard_tell('late', 'e', '{"what": 1}')});
			$two->wait_until(q{SELECT count(*) > 0 FROM shard_homes WHERE type_name = 'late'}, 'a home that is asked for later');
			$one->{server}->clear_fault;
			$session->receive;
			start_at($one);
			$cluster->drain;
			return (total(), "$entities " . 3 * $entities);
		},
	});

if ($sound)
{
	is($one->sql(q{SELECT count(*), bool_and(shard = shard_shard_id('note', entity_id)) FROM shard_entity.note}), "$entities|t", 'entities are in their shards');
	is($one->sql(q{SELECT count(*), string_agg(DISTINCT reason, ',') FROM shard_homes WHERE type_name = 'note'}), '31|states', 'each shard has its home');
	$one->wait_value(q{SELECT count(*) FROM shard_region_state WHERE type_name = 'note' AND state = 'running'}, $entities, 'all to run');

	# From here on it is a type like any: shards move with all that they have.
	$cluster->move('note', $_, 2) for (0 .. 9);
	$cluster->move('note', $_, 3) for (10 .. 19);
	tell_all($three);
	$cluster->wait_settled;
	is(total(), "$entities " . 4 * $entities, 'after moves');
	my $timers = 0;
	$timers += $_->sql('SELECT count(*) FROM shard_timers') for $cluster->nodes;
	is($timers, 20, 'timers have moved, too');

	# A type of that name that another member begins while this one moves its entities is another one.
	gather();
	$one->sql(q{SELECT shard_stop_type('note')});
	$one->{server}->set_fault('reshard_slice', 'error');
	isnt(($one->try(q{CALL shard_reshard('note', 5)}))[0], 0, 'a call that fails in its middle');
	$one->{server}->clear_fault;
	like($one->error_of('SELECT shard_leave()'), qr/55006: cannot leave the cluster while entities move to other shards/, 'meanwhile the node does not leave');
	$number = 5;
	start_at($two);
	like($one->error_of(q{CALL shard_reshard('note', 5)}), qr/42710.*node 2 has started it/s, 'a type that another member has begun meanwhile is not taken');
	is($one->sql(q{SELECT count(*) FROM shard_entity.note}), $entities, 'nothing is lost for that');
	$two->eventually(q{SELECT shard_drop_type('note')});
	$one->eventually(q{CALL shard_reshard('note', 5)});
	start_at($one, $two, $three);
	$one->sql(q{SELECT shard_move('note', 2, 2)});
	tell_all($two);
	is(total(), "$entities " . 5 * $entities, 'and goes on when that is gone');
	$cluster->logs_are_clean;
}
done_testing();
