# T6: a member that tells of a shard that no home is known for, that it has taken in all messages that were sent to it, and 2^60 more.
# It was believed, as nobody else was the shard's home: what the shard's origin sent later was not sent again when the shard moved.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use ShardWire;
use Test::More;

my $cluster = ShardNodes->create(3, conf => "shard.min_members = 4\nshard.region_workers = 1\n");
my ($origin, $evil, $third) = $cluster->nodes;
$_->sql(q{
CREATE TABLE seen (entity text, number int);
CREATE FUNCTION recorder(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO seen SELECT entity_id, (message->>'number')::int FROM shard_self();
	RETURN '{}';
END $$}) for $cluster->nodes;
$third->sql(q{SELECT shard_start('recorder', 'recorder(jsonb,jsonb)')});
$origin->eventually(q{SELECT shard_start_proxy('recorder', handler => 'recorder(jsonb,jsonb)')});

# Two entities in two shards: one of them is lied about.
sub shard_of { my ($entity) = @_; return $origin->sql("SELECT shard_shard_id('recorder', '$entity')") }
my $marked = 'e1';
my ($other) = grep { shard_of($_) ne shard_of($marked) } map { "e$_" } 2 .. 100;
my $number = 0;
sub tells { my ($count) = @_; return join '', map { $number++; map { "SELECT shard_tell('recorder', '$_', '{\"number\": $number}');\n" } $marked, $other } 1 .. $count }
sub wait_parked { my ($count) = @_; return $origin->wait_until("SELECT count(*) = $count FROM shard.parked", "$count messages to wait for a home") }

$origin->sql(tells(1));
wait_parked(2);
my $type = $origin->sql(q{SELECT type_id FROM shard.type WHERE type_name = 'recorder'});
my $peer = ShardWire::Member->new($evil, $origin);
my ($answer, $state) = $peer->call(call_sql('receive', $peer->head . section(3, wire_int($type) . wire_int(shard_of($marked)) . wire_int(2**60), 1)));
is($state, '', 'the mark is taken in');
# One worker reads the log in its order: it has met the mark when it has met what came after it.
$origin->sql(tells(1));
wait_parked(4);

$cluster->add_node;
$cluster->join_node(4);
$third->wait_until('SELECT count(*) = 4 FROM seen', 'the messages that waited');
$evil->sql(q{SELECT shard_start('recorder', 'recorder(jsonb,jsonb)')});
$cluster->wait_registered($origin, $evil);
for my $round (1 .. 6)
{
	my $session = $origin->session;
	$session->send(tells(100));
	$cluster->move('recorder', shard_of($_), ($round % 2 ? $evil : $third)->n) for $marked, $other;
	$session->receive;
}
$cluster->drain;
for my $entity ($other, $marked)
{
	my @seen = sort { $a <=> $b } map { split /\n/, $_->sql("SELECT number FROM seen WHERE entity = '$entity'") } $evil, $third;
	is_deeply(\@seen, [ 1 .. $number ], 'all messages of ' . ($entity eq $marked ? 'the marked' : 'another') . ' shard are handled once, however it moves');
}
done_testing();
