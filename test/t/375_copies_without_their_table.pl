# The table of copies belongs to the type's owner. Without it records are stored, and health says so; a shard that begins anew, and
# a node that is no backup of a shard, have no rows of what was (C21, Q10).

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(2, conf => "shard.rebalance_interval = 0\nshard.voters = 1\nshard.region_workers = 1");
my ($home, $backup) = $cluster->nodes;
$cluster->sql_everywhere(q{
	CREATE FUNCTION adds(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql
		RETURN to_jsonb(coalesce((state)::int, 0) + coalesce((message->>'add')::int, 0))});
$_->sql(q{SELECT shard_start('kept', 'adds', 4, replicas => 1); SELECT shard_start('other', 'adds', 4, replicas => 1)}) for $home, $backup;
$cluster->wait_registered;
my $entity = $cluster->entity_at('kept', 1);
my $shard = $cluster->shard_of('kept', $entity);
my ($beside) = grep { $_ ne $entity && $cluster->shard_of('kept', $_) == $shard } $cluster->entities_at('kept', 1, 12);
my $near = $cluster->entity_at('other', 1);

sub add { my ($entity, $type) = @_; $type //= 'kept'; return $home->sql("SELECT shard_ask('$type', '$entity', '{\"add\": 1}', '60 s')"); }
sub restart { my ($node) = @_; $node->server->crash_postmaster; $node->server->start; return; }
sub wait_copy { my ($entity, $state, $type) = @_; $type //= 'kept'; $backup->wait_value("SELECT state FROM shard_replica.$type WHERE entity_id = '$entity'", $state, "$entity to be $state at the backup"); return; }
sub health { my ($what) = @_; return qq{SELECT EXISTS (SELECT FROM shard_health() h, unnest(h.problems) p WHERE p ~ '$what')}; }

# --- what has the name of such a table, and is none -------------------------------------------------------

$home->sql('CREATE TABLE shard_replica.left (); ALTER INDEX shard_replica.kept_pkey RENAME TO victim');
$_->sql(q{SELECT shard_start('victim', 'adds', 4); SELECT shard_start('left', 'adds', 4)}) for $home, $backup;
$_->sql(q{SELECT shard_drop_type('victim'); SELECT shard_drop_type('left')}) for $home, $backup;
is($home->sql(q{SELECT string_agg(relname, ' ' ORDER BY relname) FROM pg_class WHERE relnamespace = 'shard_replica'::regnamespace AND relname IN ('victim', 'left')}),
	'left victim', 'a type without replicas takes nothing of others with it');
$home->sql('DROP TABLE shard_replica.left');

# --- rows of others ---------------------------------------------------------------------------------------

wait_copy($_, add($_)) for $entity, $beside, $entity;
my $own = $cluster->entity_at('kept', 2);
$backup->sql(sprintf q{INSERT INTO shard_replica.kept (shard, entity_id, state) VALUES (%d, '%s', '1')}, $cluster->shard_of('kept', $own), $own);
restart($backup);
$cluster->wait_up;
$backup->wait_value("SELECT count(*) FROM shard_replica.kept WHERE entity_id = '$own'", 0, 'rows of a shard of which the node is no backup to go');
my $rows = "SELECT string_agg(t::text, ' ' ORDER BY entity_id) FROM %s.kept t WHERE shard = $shard";
is($backup->sql(sprintf $rows, 'shard_replica'), $home->sql(sprintf $rows, 'shard_entity'), 'those of others stay');

# --- a shard that begins anew -----------------------------------------------------------------------------

$backup->server->stop('immediate');
$home->sql("DELETE FROM shard.own WHERE shard = $shard AND type_id = (SELECT type_id FROM shard.type WHERE type_name = 'kept')");
$home->sql("DELETE FROM shard_entity.kept WHERE shard = $shard");
restart($home);
$backup->server->start;
$cluster->wait_up;
$home->eventually("SELECT shard_give_up('kept', $shard)");
is($home->eventually("SELECT shard_ask('kept', '$entity', '{\"add\": 1}', '60 s')"), 1, 'the shard has begun anew');
wait_copy($entity, 1);
is($backup->sql("SELECT count(*) FROM shard_replica.kept WHERE entity_id = '$beside'"), 0, 'so has its copy');
wait_copy($entity, add($entity));
restart($backup);
$cluster->wait_up;
wait_copy($entity, add($entity));

# --- a table that is emptied, and one that is dropped -------------------------------------------------------

$backup->sql('TRUNCATE shard_replica.kept');
wait_copy($beside, add($beside));
is($backup->sql("SELECT count(*) FROM shard_replica.kept WHERE entity_id = '$entity'"), 0, 'what its owner has emptied is not filled again');
wait_copy($entity, add($entity));
$backup->sql('DROP TABLE shard_replica.kept');
add($entity);
$backup->wait_until(health('entity type "kept": .* cannot apply it: table shard_replica.kept does not exist'), 'health to say that the table is gone');
wait_copy($near, add($near, 'other'), 'other');
cmp_ok($backup->sql(q{SELECT sum(unapplied) FROM shard_replicas WHERE type_name = 'kept'}), '>', 0, 'what cannot be applied is stored');
$_->sql(q{SELECT shard_drop_type('kept', force => true)}) for $backup, $home;
$backup->wait_until('SELECT NOT (' . substr(health('entity type "kept"'), 7) . ')', 'health to be quiet, as the type is gone');
done_testing();
