# P42: hello in the name of another node, with the last generation that a stream can have: it does not count. With one in reach the
# node's messages wait, and shard_link_accept() makes the link work again, as often as that happens.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use ShardWire;
use Test::More;

use constant { GREET => 5, LAST => 2**31 - 1, REACH => 1024 };

my $cluster = ShardNodes->create(3);
my ($first, $second, $third) = $cluster->nodes;
$cluster->start_recorder;
my $entity = $cluster->entity_at('recorder', 1);
my $type = $first->sql(q{SELECT type_id FROM shard.type WHERE type_name = 'recorder'});
my $lane = lane_of($type, $cluster->shard_of('recorder', $entity));
my @sent;

# Who speaks for node 3 with the role of the links.
my $liar = ShardWire::Member->new($third, $first);

sub tell_it { push @sent, @sent + 1; $third->sql(ShardCluster::tell_recorder($entity, $sent[-1], $sent[-1])); return; }
sub generation { return $first->sql("SELECT gen FROM shard.streams_in() WHERE origin = 3 AND lane = $lane"); }

sub greet
{
	my ($gen, $base) = @_;
	my ($answer, $errors, $text) = $liar->call(call_sql('hello', $liar->head . section(GREET, stream(lane => $lane, gen => $gen, first_seq => $base // 0), 1)));
	is($errors, '', "hello with generation $gen is answered") or diag($text);
	return;
}

tell_it();
$cluster->wait_recorded($entity, 1, @sent);
$cluster->drain;
is(generation(), 0, 'the stream is in its first generation');

for my $gen (LAST, LAST - 1, 2**30, REACH + 1)
{
	greet($gen);
	is(generation(), 0, "P42 generation $gen is out of reach");
}
greet(LAST, 2**40);
tell_it();
$cluster->wait_recorded($entity, 1, @sent);
pass('P42 messages of the node come as before');

# In reach: the node learns of it, and its operator decides. What was on its way is in doubt, as ever where an origin has regressed.
for my $round (1, 2)
{
	$cluster->drain;
	my $gen = generation() + REACH;
	greet($gen);
	is(generation(), $gen, "P42 generation $gen is in reach");
	$third->sql(ShardCluster::tell_recorder($entity, 100 + $round, 100 + $round));
	$third->wait_until(q{SELECT state = 'quarantined' FROM shard_peers WHERE node = 1}, 'quarantine');
	$third->sql('SELECT shard_link_accept(1)');
	tell_it();
	$cluster->wait_recorded($entity, 1, @sent);
	pass('P42 shard_link_accept() ends that');
	is($third->sql('SELECT count(*), max(sqlstate) FROM shard_dead_letters'), "$round|SH100", 'P42 what was on its way is a dead letter there');
	isnt(generation(), $gen, 'in another generation');
}
tell_it();
$cluster->wait_recorded($entity, 1, @sent);
is($first->sql('SELECT count(*) FROM shard_dead_letters'), 0, 'no dead letters where they are handled');
done_testing;
