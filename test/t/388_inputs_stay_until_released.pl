# A home of a type with replicas whose backup is away: what it has taken in of its own node's messages stays, in the log or parked,
# until the backup has the turns (Q30). If the home is elsewhere then, it waits with its numbers to go there, in order, also when the
# server has died since (Q21).

use strict;
use warnings FATAL => 'all';

use ShardMutant;
use ShardNodes;
use ShardNoise;
use Test::More;

my $cluster = ShardNodes->create(2, conf => "shard.rebalance_interval = 0\nshard.region_workers = 1\nshard.inbox_max_size = '16MB'\nautovacuum = off");
$cluster->sql_everywhere(q{
CREATE TABLE seen (pos bigserial, entity text, what text);
CREATE FUNCTION keep(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	IF NOT message ? 'noop' THEN INSERT INTO seen (entity, what) SELECT entity_id, message->>'what' FROM shard_self(); END IF;
	RETURN jsonb_build_object('n', coalesce((state->>'n')::int, 0) + 1);
END $$;
CREATE FUNCTION noise(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN state;
CREATE FUNCTION fact(type_id int, shard int, epoch int, n int8, nodes int[], lost int) RETURNS void LANGUAGE c AS '$libdir/shard', 'shard_test_fact';
});
for my $one ($cluster->nodes)
{
	$one->sql(q{SELECT shard_start('both', 'keep', 16, replicas => 1)});
	$one->sql(q{SELECT shard_start('noise', 'noise', 16)});
}
$cluster->wait_registered;
$cluster->allocate('both', 1 .. 100);
$cluster->allocate('noise', 1 .. 100);
my ($home, $other) = $cluster->nodes;
my $type = $home->sql(q{SELECT type_id FROM shard.type WHERE type_name = 'both'});

# Entities of shards whose home is here.
my %taken;
my @entities = grep { !$taken{ $cluster->shard_of('both', $_) }++ } $cluster->entities_at('both', $home->n, 40, 'e');
my $noisy = $cluster->entity_at('noise', $home->n, 'n');

sub tells { my ($entity, @whats) = @_; $home->sql('BEGIN; ' . join('', map { qq[SELECT shard_tell('both', '$entity', '{"what": "$_"}'); ] } @whats) . 'COMMIT;'); return; }
sub wait_handled { my ($entity, $count) = @_; $home->wait_value("SELECT count(*) FROM seen WHERE entity = '$entity'", $count, "messages of $entity to be handled"); return; }
sub handled { my ($entity) = @_; return ShardMutant::in_short(split / /, $home->sql("SELECT coalesce(string_agg(what, ' ' ORDER BY pos), '') FROM seen WHERE entity = '$entity'")) }

# Messages of an entity in the log, and whether the segment that was current at the beginning has been emptied.
sub logged { my ($entity) = @_; return $home->sql('SELECT count(*) FROM ' . ShardCluster::inbox_rows('entity, kind, payload') . " WHERE kind = 1 AND entity = '$entity' AND position('what'::bytea IN payload) > 0") }
sub current { return $home->sql('SELECT segment FROM shard_stat_inbox WHERE current') }

# The home is the other node, and begins without the state: so each message that had been taken in, and goes there, is in doubt.
sub lost_fact
{
	my ($entity) = @_;
	return sprintf q{SELECT fact(%d, shard_shard_id('both', '%s'), 1, 1000000, ARRAY[%d, %d], 1)}, $type, $entity, $other->n, $home->n;
}

# What has become of them, as soon as the fact is met: still parked, or a dead letter; each by its number.
sub in_doubt
{
	my ($entity) = @_;
	$home->wait_value("SELECT epoch FROM shard.route WHERE type_id = $type AND shard = shard_shard_id('both', '$entity')", 1, 'the fact to be met');
	return $home->sql(sprintf q{SELECT coalesce(string_agg(what, ' ' ORDER BY stamp), 'none') FROM (
		SELECT shard.payload_json(type_id, payload)->>'what', right(encode(substring(stamp FROM 1 FOR 1), 'hex'), 2) FROM shard.parked WHERE entity = '%1$s' AND turn IS NULL
		UNION ALL SELECT shard.payload_json(type_id, payload)->>'what', right(encode(substring(stamp FROM 1 FOR 1), 'hex'), 2) FROM shard.dead_letter WHERE entity = '%1$s') s (what, stamp)}, $entity);
}

sub restart
{
	$home->server->crash_postmaster;
	$home->server->recover;
	return;
}

# Two segments are begun while the first one could go.
sub make_noise
{
	my ($last, $count) = ('', 0);
	ShardNoise::send_until($home, 'noise', $noisy, sub { my $now = current(); $count++ if $now ne $last; $last = $now; return $count > 2 }, 'new segments of the log');
	return;
}

# Without its backup the home does what comes for these; nobody but it knows of that. A start before that would find it not admitted.
my @ready = splice @entities, 0, 6;

my @scenarios = (
	{
		promise => 'rows of the log stay while no backup has the turn, also for a worker that has started anew',
		broken_by => ['INPUTS_NOT_KEPT'],
		run => sub {
			my $entity = shift @ready;
			make_noise();
			my $before = logged($entity);
			restart();
			make_noise();
			return ("$before " . logged($entity) . ', ' . handled($entity), '4 4, 1 to 4');
		},
	},
	{
		promise => 'when the home is elsewhere all that it may lack goes there with its numbers, in order, also when the server has died since',
		broken_by => ['INPUTS_NOT_PARKED'],
		run => sub {
			my $entity = shift @ready;
			restart();
			$home->sql(lost_fact($entity));
			return (in_doubt($entity), '1 2 3 4');
		},
	});
$other->server->stop;
for my $entity (@ready)
{
	tells($entity, 1);
	tells($entity, 2 .. 4);
	wait_handled($entity, 4);
}
if (!ShardMutant::prove(@scenarios))
{
	done_testing();
	exit;
}

# --- crashes -----------------------------------------------------------------------------------------

my @lost;
for my $point (qw(inputs_parked inputs_parked_committed))
{
	my $entity;
	$home->server->set_fault($point, 'crash');
	until ($home->server->fault_happened)
	{
		$entity = shift @ready or die "no shard is left for $point";
		$home->try(lost_fact($entity));
		ShardCluster::wait_for_condition(sub { return $home->server->fault_happened || ($home->try("SELECT epoch FROM shard.route WHERE type_id = $type AND shard = shard_shard_id('both', '$entity')"))[1] eq '1' }, 'the fact to be met');
	}
	$home->server->clear_fault;
	$home->server->recover;
	is(in_doubt($entity), '1 2 3 4', "after a crash at $point");
	push @lost, $entity;
}

# --- the backup is back ------------------------------------------------------------------------------

my ($kept) = $home->sql(q{SELECT entity FROM seen ORDER BY pos LIMIT 1});
is(logged($kept), 4, 'the rows that were kept are there');
$other->server->start;
$home->wait_value(sprintf(q{SELECT count(shard.payload_json(type_id, payload)->>'what') FROM shard.dead_letter WHERE entity = '%s'}, $_), 4, "what was sent for $_ to be given up") for @lost;
is($home->sql("SELECT string_agg(shard.payload_json(type_id, payload)->>'what', ' ' ORDER BY id) FROM shard.dead_letter WHERE entity = '$_'"), '1 2 3 4', 'in order, each once') for @lost;
ShardNoise::send_until($home, 'noise', $noisy, sub { return logged($kept) == 0 }, 'them to leave the log when the backup has the turn');
is(handled($kept), '1 to 4', 'and each was handled once');
is($other->sql("SELECT count(*) FROM shard.copy c, shard.turn_records(c.type_id, c.shard) r WHERE r.section = 'inputs' AND c.nodes[1] = " . $home->n), 0, 'the backup has none of them');
done_testing();
