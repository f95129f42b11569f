# A shard with replicas begins anew at its home, whose log still has the records of the history that was given up. Nothing of
# that is told, and its copies follow the new one (C21, Q29).

use strict;
use warnings FATAL => 'all';

use ShardMutant;
use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(2, conf => "shard.rebalance_interval = 0\nshard.voters = 1");
my ($one, $two) = $cluster->nodes;
$cluster->sql_everywhere(q{
CREATE TABLE seen (id text);
CREATE FUNCTION does(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	IF message ? 'id' THEN INSERT INTO seen VALUES (message->>'id'); END IF;
	IF message ? 'tell' THEN PERFORM shard_tell('plain', 'p', jsonb_build_object('id', message->>'tell')); END IF;
	IF message ? 'noop' OR message ? 'look' THEN RETURN state; END IF;
	RETURN jsonb_build_object('n', coalesce((state->>'n')::int, 0) + 1);
END $$;
});
$_->sql(q{SELECT shard_start('both', 'does', 4, replicas => 1)}) for $one, $two;
$_->sql(q{SELECT shard_start('plain', 'does', 4)}) for $one, $two;
$cluster->wait_registered;
$cluster->allocate('plain', 'p');
my $entity = $cluster->entity_at('both', 1, 'e');
my $shard = $cluster->shard_of('both', $entity);

sub restart { my ($node) = @_; $node->server->crash_postmaster; $node->server->start; return; }

# Whether all that the second life has done is told, which is nothing, when it is loaded again.
sub is_told
{
	# A turn that no backup has, which tells something; then the home has lost the shard.
	$two->server->stop('immediate');
	like($one->error_of("SELECT shard_ask('both', '$entity', '{\"tell\": \"given up\"}', '10 s')"), qr/SH100/, 'a turn that waits for its backup');
	$one->sql("DELETE FROM shard.own WHERE shard = $shard AND type_id = (SELECT type_id FROM shard.type WHERE type_name = 'both')");
	$one->sql("DELETE FROM shard_entity.both WHERE shard = $shard");
	restart($one);
	$two->server->start;
	$cluster->wait_up;
	$one->eventually("SELECT shard_give_up('both', $shard)");

	# Its next life, of which the backup has all, after another start.
	$one->eventually("SELECT shard_ask('both', '$entity', '{\"look\": true}', '60 s')");
	is($one->sql("SELECT shard_ask('both', '$entity', '{}', '60 s')->>'n'"), 1, 'it has begun without its state');
	restart($one);
	$cluster->wait_up;
	is($one->eventually("SELECT shard_ask('both', '$entity', '{\"look\": true}', '60 s')->>'n'"), 1, 'and goes on');
	return $one->sql(q{SELECT shard_drain('60 s')});
}

if (ShardMutant::prove(
	{
		promise => 'what a turn told that was given up does not wait for the release of one of that number',
		broken_by => ['GIVEN_UP_TURNS_READ'],
		run => sub { return (is_told(), 't') },
	}))
{
	is($one->sql("SELECT shard_ask('both', '$entity', '{\"tell\": \"later\"}', '60 s')->>'n'"), 2, 'it tells something');
	$_->wait_until(q{SELECT shard_drain('1 s')}, 'all to be handled') for $one, $two;
	is(join(' ', sort map { $_->sql(q{SELECT coalesce(string_agg(id, ' ' ORDER BY id), '') FROM seen}) } $one, $two), ' later', 'which comes, and nothing else');
}
done_testing();
