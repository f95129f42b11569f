# Types with replicas in what others do without them: batch handlers; the log of a home that is emptied while its backup is
# away; DROP EXTENSION meanwhile.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use ShardNoise;
use Test::More;

my $cluster = ShardNodes->create(3, conf => "shard.rebalance_interval = 0\nshard.voters = 3\nshard.region_workers = 1\nshard.inbox_max_size = '8MB'");
my ($one, $two, $three) = $cluster->nodes;
$cluster->sql_everywhere(q{
CREATE FUNCTION total(state jsonb, messages jsonb[]) RETURNS jsonb LANGUAGE sql
	RETURN jsonb_build_object('n', coalesce((state->>'n')::int, 0) + (SELECT coalesce(sum((m->>'n')::int), 0) FROM unnest(messages) m));
CREATE FUNCTION ignore(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN state});
$_->sql(q{SELECT shard_start('total', 'total', 4, replicas => 1)}) for $one, $two;
$_->sql(q{SELECT shard_start('noise', 'ignore', 4)}) for $one, $two;
# What is told at the home's own node stays in its log until its turn is released (Q30); what comes from elsewhere does not.
$three->sql(q{SELECT shard_start_proxy('total')});
$cluster->wait_registered;
my $noisy = $cluster->entity_at('noise', 1, 'n');
my $entity = $cluster->entity_at('total', 1, 'e');
my ($type, $shard) = ($one->sql(q{SELECT type_id FROM shard.type WHERE type_name = 'total'}), $cluster->shard_of('total', $entity));
my $state = "SELECT state->>'n' FROM shard_entity.total WHERE entity_id = '$entity'";
my $records = "SELECT string_agg(DISTINCT turn::text || ' ' || epoch, ', ') FROM shard.turn_records($type, $shard) WHERE section = 'record'";
$one->wait_value("SELECT string_agg(concat_ws(' ', role, node, redundancy), ', ' ORDER BY node) FROM shard_replicas WHERE type_name = 'total' AND shard = $shard",
	'home 1 2 of 2, backup 2 2 of 2', 'the shard to have a copy');
my $newest = "SELECT max(turn) FROM shard.turn_records($type, $shard) WHERE section = 'record'";

# --- batches -----------------------------------------------------------------------------------------

$one->sql("SELECT shard_tell('total', '$entity', '{\"n\": 1}') FROM generate_series(1, 100)");
is($one->sql("SELECT shard_ask('total', '$entity', '{\"n\": 1}', '60 s')->>'n'"), 101, 'a batch is handled, and an ask is shown');
$two->wait_value($records, $one->sql($records), 'the backup to have the records');

# --- the backup is away ------------------------------------------------------------------------------

my $lacked = "$records AND turn > " . $one->sql($newest);
$two->server->stop('immediate');
$three->sql("SELECT shard_tell('total', '$entity', '{\"n\": 1}') FROM generate_series(1, 100)");
$one->wait_value($state, 201, 'a batch without the backup');
like($one->error_of("SELECT shard_ask('total', '$entity', '{\"n\": 1}', '10 s')"), qr/SH100/, 'which is not shown');
my $made = $one->sql($lacked);

# --- the home's log is emptied -----------------------------------------------------------------------

my $in_log = "SELECT count(*) FROM shard.turn_records($type, $shard) WHERE section = 'record' AND seq > 0";
ShardNoise::send_until($one, 'noise', $noisy, sub { return $one->sql($in_log) == 0 }, 'the segments with the records to be emptied');
is($one->sql($lacked), $made, 'the records that the backup lacks are kept');
$one->server->crash_postmaster;
$one->server->start;
is($one->sql($lacked), $made, 'also where the home starts again');
$two->server->start;
is($one->sql("SELECT shard_ask('total', '$entity', '{\"n\": 1}', '180 s')->>'n'"), 203, 'with the backup all is shown');
is($two->sql($newest), $one->sql($newest), 'the backup has what has left the log, and what came behind it');

# --- without the extension ---------------------------------------------------------------------------

$two->server->stop('immediate');
like($one->error_of("SELECT shard_ask('total', '$entity', '{\"n\": 1}', '10 s')"), qr/SH100/, 'a turn that waits for its backup');
# It waits for the running turn, for a while.
$one->eventually('DROP EXTENSION shard CASCADE');
$one->sql('CREATE EXTENSION shard');
$one->sql(q{SELECT shard_start('total', 'total', 4, replicas => 1)});
is($one->sql("SELECT shard_ask('total', '$entity', '{\"n\": 1}', '60 s')->>'n'"), 1, 'another extension has nothing of its copies');
ok($one->sql(q{SELECT shard_drain('60 s')}) eq 't', 'and waits for nobody');
$two->server->start;
done_testing();
