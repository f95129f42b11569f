# A home of a type with replicas whose backup is away: what it does stays in its database, and nothing of it is shown (Q12, Q37, Q38).

use strict;
use warnings FATAL => 'all';

use ShardMutant;
use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(2, conf => "shard.rebalance_interval = 0\nshard.region_workers = 1");
my ($one, $two) = $cluster->nodes;
$cluster->sql_everywhere(q{
CREATE TABLE seen (id text);
CREATE FUNCTION does(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	IF message ? 'id' THEN INSERT INTO seen VALUES (message->>'id'); END IF;
	IF message ? 'tell' THEN PERFORM shard_tell('plain', message->>'tell', '{"id": "told"}'); END IF;
	IF message ? 'look' OR message ? 'noop' THEN RETURN state; END IF;
	RETURN jsonb_build_object('n', coalesce((state->>'n')::int, 0) + 1);
END $$;
});

# What a home shows whose backup is away: error of an ask, the state here, error of an ask that looks, what was told.
sub away
{
	$_->sql(q{SELECT shard_start('both', 'does', 4, replicas => 1)}) for $one, $two;
	$_->sql(q{SELECT shard_start('plain', 'does', 4)}) for $one, $two;
	$cluster->wait_registered;
	$cluster->allocate('both', 1 .. 20);
	$cluster->allocate('plain', 'p');
	my $home = $cluster->home_of('both', $cluster->shard_of('both', 1)) == 1 ? $one : $two;
	my $entity = $cluster->entity_at('both', $home->n, 'e');
	my ($other) = grep { $_ != $home } $one, $two;
	$other->server->stop;
	my $ask = sub { return ($home->error_of("SELECT shard_ask('both', '$entity', '$_[0]', '2 s')") // 'a reply') =~ s/.*(SH100).*/$1/sr };
	my @seen = $ask->(q[{"tell": "p"}]);
	push @seen, $home->sql("SELECT state->>'n' FROM shard_entity.both WHERE entity_id = '$entity'"), $ask->('{"look": true}');
	return (@seen, $home->sql(q{SELECT count(*) FROM seen WHERE id = 'told'}));
}

ShardMutant::prove(
	{
		promise => 'without its backup a home shows nothing: no reply, though the turn is there; none that only looks; nothing that was told',
		broken_by => ['SHOWN_UNRELEASED'],
		run => sub { return (join('; ', away()), 'SH100; 1; SH100; 0') },
	});
done_testing();
