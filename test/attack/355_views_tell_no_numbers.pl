# O07: entity ids of others are not shown, but numbers of their messages were, which tell how many there are and when, and the
# shards of their entities, which are a hash of the id.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use Test::More;

my $server = ShardCluster->create('node');
$server->create_owners('alice', 'eve');
$server->as('alice', q{
CREATE FUNCTION alice.h(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN message;
CREATE FUNCTION alice.number_of(message jsonb) RETURNS int8 LANGUAGE sql IMMUTABLE RETURN (message->>'n')::int8;
SELECT shard_start('orders', 'alice.h', ordered_by => 'alice.number_of', ordered_timeout => '1 h');
SELECT shard_tell('orders', 'iban', jsonb_build_object('n', n)) FROM unnest('{7001, 7003}'::int[]) n;
});
$server->wait_until(q{SELECT count(*) = 1 FROM shard_inbox WHERE place = 'ordered'}, 'a message that waits for its number');

my %seen = (
	shard_inbox        => 'number',
	shard_ordered      => 'concat_ws(\',\', shard, began, expected, first_waiting)',
	shard_region_state => 'shard');
my $shard = $server->safe_psql('postgres', q{SELECT shard_shard_id('orders', 'iban')});
my %is = (shard_inbox => '7003', shard_ordered => "$shard,7001,7002,7003", shard_region_state => $shard);
for my $view (sort keys %seen)
{
	my $sql = "SELECT $seen{$view} FROM $view WHERE type_name = 'orders'";
	is($server->as('alice', $sql), $is{$view}, "its owner sees all of $view");
	is($server->as('eve', $sql), '', "O07: others see no numbers in $view");
	is($server->as('eve', "SELECT count(*) FROM $view WHERE type_name = 'orders'"), $view eq 'shard_region_state' ? 0 : 1, 'but that there is something, where no worker has to list it');
}
# Which shards have messages: also by a function that is asked before the view has looked at the type.
$server->as('eve', q{CREATE FUNCTION eve.peek(t text) RETURNS bool LANGUAGE plpgsql COST 0.0001 AS $$ BEGIN RAISE NOTICE 'peeked %', t; RETURN true; END $$});
$server->safe_psql('postgres', 'CREATE ROLE looks LOGIN; GRANT pg_monitor TO looks; CREATE ROLE friend LOGIN; GRANT alice TO friend');
for my $view ('shard_region_stats', 'shard_homes')
{
	$server->wait_until("SELECT count(*) = 1 FROM $view", "a row in $view");
	is($server->as($_, "SELECT type_name, shard FROM $view"), "orders|$shard", "O07: $_ sees the rows of $view") for 'alice', 'friend', 'looks';
	my ($status, $out, $err) = $server->psql('postgres', "SELECT * FROM $view WHERE eve.peek(type_name::text)", extra_params => [ '-U', 'eve' ]);
	is("$status $out$err", '0 ', "O07: others see none of $view");
}
is($server->as('eve', q{SELECT waiting FROM shard_ordered}), 1, 'and how much waits');
$server->log_is_clean;
done_testing();
