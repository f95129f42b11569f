# P39: who may speak as the coordinator, with the one role of all links, orders moves that nobody has decided: to have a shard stand still
# and read it, or to keep it away from a node for good. The map that a node has learned says which moves there are (M25).

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use ShardWire;
use Test::More;

use constant { HAND_OFF => 73, IMPORT => 75, ROWS => 2, MOVE => 4711, FAR => 1_000_000_000, NOT_YET => 'SH003' };

my $cluster = ShardNodes->create(3);
$cluster->start_recorder;
my ($coordinator) = $cluster->coordinator;
my ($victim, $other) = grep { $_->n != $coordinator->n } $cluster->nodes;
my ($here, $there) = map { $cluster->entity_at('recorder', $_->n) } $victim, $other;
my ($shard, $comes) = map { $cluster->shard_of('recorder', $_) } $here, $there;
my $type = $victim->sql(q{SELECT type_id FROM shard.type WHERE type_name = 'recorder'});
my $own = "SELECT concat_ws(' ', state, epoch, coalesce(move_id, 0)) FROM shard.own WHERE type_id = $type AND shard =";
my $boss = ShardWire::Member->new($coordinator, $victim);
$coordinator->sql(ShardCluster::tell_recorder($_, 1, 3)) for $here, $there;
$cluster->wait_recorded($here, $victim->n, 1 .. 3);
$cluster->wait_recorded($there, $other->n, 1 .. 3);

# --- stopped -------------------------------------------------------------------------------------

my $before = $victim->sql("$own $shard");
like($before, qr/^active/, 'a shard is active');
is(($boss->control(HAND_OFF, shards => [ [ $type, $shard, $_, MOVE ] ]))[1], '', "P39 it is to be stopped in epoch $_") for 0 .. 3;
is(($boss->control(HAND_OFF, shards => [ map { [ $type, $shard, $_ % 4, MOVE + $_ ] } 1 .. 20_000 ]))[1], '', 'P39 or by one of many orders at once');
$coordinator->sql(ShardCluster::tell_recorder($here, 4, 6));
$cluster->wait_recorded($here, $victim->n, 1 .. 6);
is($victim->sql("$own $shard"), $before, 'P39 it goes on: the cluster has decided no such move');

# --- copied --------------------------------------------------------------------------------------

is(($boss->control(IMPORT, node => $other->n, shards => [ [ $type, $comes, $_, MOVE ] ]))[1], '', "P39 a shard of another node is to be copied, for epoch $_") for 1, FAR;
$cluster->move('recorder', $comes, $victim->n);
$coordinator->sql(ShardCluster::tell_recorder($there, 4, 6));
$victim->wait_until("SELECT state->>'count' = '6' FROM shard_entity.recorder WHERE entity_id = '$there'", 'the shard to go on where it moved');
unlike($victim->sql("$own $comes"), qr/@{[MOVE]}/, 'P39 nothing keeps it from moving there');

# --- read ----------------------------------------------------------------------------------------

# As an older version had it sealed.
my ($state, $epoch, $move) = split / /, $before;
my $change = "UPDATE shard.own SET state = '%s', move_id = %s WHERE type_id = $type AND shard = $shard";
$victim->sql(sprintf $change, 'sealed', MOVE);
my $thief = ShardWire::Member->new($other, $victim);
my ($out, $sqlstate, $error) = $thief->call(
	call_sql('export', $thief->head . copy_call(kind => ROWS, type_id => $type, shard => $shard, epoch => $epoch + 1, move => MOVE, name => 'recorder', owner => $victim->sql('SELECT current_user'))));
is($sqlstate, NOT_YET, 'P39 a shard that was sealed for no move is given to nobody');
like($error, qr/cluster has not decided.*moves to node @{[$other->n]} in epoch @{[$epoch + 1]}, by move @{[MOVE]}/s, 'P39 the error says why');
like(
	$victim->sql(q{SELECT array_to_string(problems, ' ') FROM shard_health()}),
	qr/"recorder": shard $shard is sealed here in epoch $epoch for move @{[MOVE]}, which the cluster has not decided/,
	'P39 health names it');
$victim->sql(sprintf $change, 'active', $move);
$victim->wait_until('SELECT ok FROM shard_health()', 'health');
done_testing;
