# What was sent to the old home of a shard, or waits there, is handled once and in order at the new one: the places
# where a move could lose, double or reorder messages are gone to on purpose. Builds with the mistake that belongs
# to each are noticed here (test/mutants.sh).

use strict;
use warnings FATAL => 'all';

use ShardMutant;
use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(3, proxy => 1, conf => 'shard.region_workers = 1');
my $proxy = $cluster->proxy;

$cluster->sql_everywhere($ShardMutant::recorder . q{
SELECT shard_start('recorder', 'recorder(jsonb,jsonb)', number_of_shards => 64, max_attempts => 1000,
    retry_backoff => '100 ms', max_retry_backoff => '1 s');
});

# A shard moves from one home to another, which is the coordinator's node; a third node sends.
my $new = $cluster->coordinator;
my ($origin, $old) = $cluster->others($new->n);

# An entity of a shard of its own at the old home, which has handled its message 1.
sub begin
{
	my ($prefix) = @_;
	my $entity = $cluster->entity_at('recorder', $old->n, $prefix);
	$cluster->drain;
	$origin->sql(ShardCluster::tell_recorder($entity, 1));
	wait_seen($entity, 1, $old);
	$cluster->drain;
	return $entity;
}

sub tell_many
{
	my ($entity, $from, $to) = @_;
	return qq{SELECT shard_tell_many('recorder', array_agg(text '$entity'), array_agg(jsonb_build_object('what', i) ORDER BY i))
		FROM generate_series($from, $to) i;};
}

sub wait_seen
{
	my ($entity, $what, $node) = @_;
	$node->wait_until("SELECT EXISTS (SELECT FROM seen WHERE (entity, what) = ('$entity', '$what'))",
		"entity $entity to handle $what at node " . $node->n);
	return;
}

# Returns when the sender knows, too; as it has the homes, it has them in its log.
sub move
{
	my ($entity) = @_;
	my $shard = $cluster->shard_of('recorder', $entity);
	$cluster->move('recorder', $shard, $new->n, $new);
	$cluster->wait_home('recorder', $shard, $new->n, $new, $origin);
	return;
}

# What an entity has handled at the old home and then at the new one.
sub summary
{
	my ($entity) = @_;
	my @seen = map { split / /, $_->sql("SELECT string_agg(what, ' ' ORDER BY pos) FROM seen WHERE entity = '$entity'") } $old, $new;
	return ShardMutant::in_short(@seen);
}

my @scenarios = (
	{
		# The sender's worker stands still until its log has, in this order: messages for the old home,
		# which will refuse them all; the new home; newer messages. The first ones are far more than a turn
		# has time to send again before it comes to the newer ones.
		promise => 'what the old home refuses goes to the new one before anything newer',
		broken_by => [ 'NEWER_BEFORE_RESENT', 'NO_RESEND' ],
		run => sub {
			my $entity = begin('refused');
			my @workers = $origin->workers('%region%');
			$origin->server->stop_idle(@workers);
			$origin->sql('BEGIN; ' . ShardCluster::tell_recorder($entity, 2)
				. "SELECT count(shard_tell('recorder', '$entity', '{\"noop\": true}')) FROM generate_series(1, 40000);"
				. ShardCluster::tell_recorder($entity, 3) . 'COMMIT;');
			move($entity);
			$origin->sql(ShardCluster::tell_recorder($entity, 4, 10));
			kill 'CONT', @workers;
			wait_seen($entity, 10, $new);
			return (summary($entity), '1 to 10');
		},
	},
	{
		# The old home has stored messages, and takes them in when it can tell the sender nothing any more:
		# so that sends all of them again.
		promise => 'the new home knows what the old one has taken in',
		broken_by => ['IMPORT_WITHOUT_MARKS'],
		run => sub {
			my $entity = begin('known');
			my @workers = $old->workers('%region%');
			$old->server->stop_idle(@workers);
			$origin->sql(tell_many($entity, 2, 10));
			$old->wait_value("SELECT count(*) FROM shard_inbox WHERE entity_id = '$entity' AND place = 'inbox'", 9, 'messages to arrive');
			$proxy->hold($old->n, $origin->n);
			kill 'CONT', @workers;
			wait_seen($entity, 10, $old);
			move($entity);
			$origin->sql(tell_many($entity, 11, 12));
			wait_seen($entity, 12, $new);
			$proxy->heal;
			$cluster->wait_reachable;
			return (summary($entity), '1 to 12');
		},
	},
	{
		promise => 'what waits at the old home for another attempt goes along',
		broken_by => ['IMPORT_WITHOUT_STASH'],
		run => sub {
			my $entity = begin('stash');
			$cluster->sql_everywhere('INSERT INTO closed VALUES (1)');
			$origin->sql(join '', map { qq{SELECT shard_tell('recorder', '$entity', '{"what": "$_", "fussy": true}');\n} } 2 .. 5);
			$old->wait_value("SELECT count(*) FROM shard_inbox WHERE entity_id = '$entity' AND place = 'stash'", 4, 'messages to wait');
			move($entity);
			$cluster->sql_everywhere('DELETE FROM closed');
			$origin->sql(ShardCluster::tell_recorder($entity, 6));
			wait_seen($entity, 6, $new);
			return (summary($entity), '1 to 6');
		},
	},
	{
		promise => 'what was given up at the old home and is sent again there goes to the new one',
		broken_by => ['REDRIVE_OLD_STAMP'],
		run => sub {
			my $entity = begin('redriven');
			$old->sql('INSERT INTO closed VALUES (1)');
			$origin->sql(qq{SELECT shard_tell('recorder', '$entity', '{"what": "2", "strict": true}')});
			$old->wait_value("SELECT count(*) FROM shard_dead_letters WHERE entity_id = '$entity'", 1, 'message 2 to be given up');
			$old->sql('DELETE FROM closed');
			move($entity);
			$old->sql('SELECT shard_redrive()');
			$old->sql(ShardCluster::tell_recorder($entity, 3));
			wait_seen($entity, 3, $new);
			return (summary($entity), '1 to 3');
		},
	});

if (ShardMutant::prove(@scenarios))
{
	$cluster->drain;
	$cluster->wait_settled;
	$cluster->logs_are_clean(qr/closed/, @ShardNodes::link_troubles);
}
done_testing();
