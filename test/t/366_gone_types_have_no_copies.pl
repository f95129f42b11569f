# When a type with replicas is gone from the cluster nothing of its copies is left: a backup answers nothing of them any more,
# and a home whose turns were never released waits for nobody.

use strict;
use warnings FATAL => 'all';

use ShardMutant;
use ShardNodes;
use ShardWire;
use Test::More;

my $cluster = ShardNodes->create(2, conf => "shard.rebalance_interval = 0\nshard.voters = 1");
my ($one, $two) = $cluster->nodes;

$cluster->sql_everywhere(q{CREATE FUNCTION keep(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN message});

# A type that both host, and an entity of it whose home is node 1; its number, and the shard.
sub start
{
	my ($name) = @_;
	$_->sql("SELECT shard_start('$name', 'keep', 8, replicas => 1)") for $one, $two;
	$cluster->wait_registered;
	my $entity = $cluster->entity_at($name, 1, 'e');
	return ($entity, $two->sql("SELECT type_id FROM shard.type WHERE type_name = '$name'"), $cluster->shard_of($name, $entity));
}

# What node 2 has of the shard, as it answers node 1.
sub answer
{
	my ($type, $shard) = @_;
	my $wire = ShardWire::Member->new($one, $two);
	my ($out, $errors) = $wire->call(store_sql($wire->head, offer(type_id => $type, shard => $shard, asks => {})));
	return $errors ne '' ? $errors : stored($out);
}

# A backup of a type that is gone.
sub backup
{
	my ($entity, $type, $shard) = start('dropped');
	$one->sql("SELECT shard_ask('dropped', '$entity', '{}', '60 s')");
	my $before = answer($type, $shard) ne '';
	$_->sql(q{SELECT shard_drop_type('dropped', force => true)}) for $one, $two;
	$_->wait_value("SELECT count(*) FROM shard.copy WHERE type_id = $type", 0, 'the type to be gone') for $one, $two;
	# A later turn of that worker says that it has met what came before.
	$one->sql(q{SELECT shard_drain()});
	$two->sql(q{SELECT shard_drain()});
	return ("$before " . answer($type, $shard), '1 ');
}

# A home with turns that no backup has, of a type that is gone.
sub home
{
	my ($entity) = start('unseen');
	$two->server->stop('immediate');
	like($one->error_of("SELECT shard_ask('unseen', '$entity', '{}', '10 s')"), qr/SH100/, 'a turn that waits for its backup');
	$one->eventually(q{SELECT shard_write_off(2)});
	$one->sql(q{SELECT shard_drop_type('unseen', force => true)});
	$one->wait_value(q{SELECT count(*) FROM shard.copy}, 0, 'the type to be gone');
	return ($one->sql(q{SELECT shard_drain('60 s')}), 't');
}

ShardMutant::prove(
	{
		promise => 'a copy of a type that is gone takes nothing',
		broken_by => ['COPIES_OF_GONE_TYPES'],
		run => \&backup,
	},
	{
		promise => 'nobody waits for copies of a type that is gone',
		broken_by => ['COPIES_OF_GONE_TYPES'],
		run => \&home,
	});
done_testing();
