# What an ask has answered, a crash of the server at the next moment does not take back, though turns
# commit asynchronously; nor is it done twice.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use Test::More;

my $node = ShardCluster->create('first', fsync => 1);
$node->start_recorder;

for my $n (1 .. 3)
{
	my $reply = $node->safe_psql('postgres',
		qq{SELECT shard_tell('recorder', 'a', '{"what": "tell $n"}');
		   SELECT shard_ask('recorder', 'a', '{"what": "ask $n"}', '180 s')->>'count'});
	$reply =~ s/^\n//;
	is($reply, 2 * $n, 'an ask comes after the tell before it');
	$node->crash;
	$node->recover;
	$node->drain;
	$node->wait_recorded('a', map { ("tell $_", "ask $_") } 1 .. $n);
	pass('its effect survives the crash, once');
}

$node->log_is_clean;
done_testing();
