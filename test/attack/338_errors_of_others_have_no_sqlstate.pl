# G12: errors of others were not shown, but their SQLSTATE was, which a handler raises as it likes: what is in a message may be in it.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use Test::More;

my $server = ShardCluster->create('node');
$server->create_owners('alice', 'eve');
$server->as('alice', q{
CREATE FUNCTION alice.h(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN
	RAISE EXCEPTION USING ERRCODE = message->>'as'; END $$;
SELECT shard_start('dies', 'alice.h', max_attempts => 1);
SELECT shard_start('waits', 'alice.h', max_attempts => 9, retry_backoff => '1 h', max_retry_backoff => '1 h');
SELECT shard_tell('dies', 'secret', '{"as": "AL001"}'), shard_tell('waits', 'secret', '{"as": "40P01"}');
});
$server->wait_until(q{SELECT count(*) = 1 FROM shard_inbox WHERE attempts > 0}, 'one to wait');
$server->wait_until(q{SELECT count(*) = 1 FROM shard_dead_letters}, 'one to be given up');
my %raised = (shard_inbox => '40P01', shard_dead_letters => 'AL001');
for my $view (sort keys %raised)
{
	is($server->as('alice', "SELECT sqlstate FROM $view"), $raised{$view}, "she sees hers in $view");
	is($server->as('eve', "SELECT count(*), count(sqlstate) FROM $view"), '1|0', "G12: others see in $view that there is something, and not which error");
	is($server->as('eve', "SELECT count(*) FROM $view WHERE sqlstate = '$raised{$view}'"), 0, 'G12: nor by a condition');
}

# Who cleans up what is old gives all ids that he sees, and is not stopped by letters of others.
is($server->as('eve', 'SELECT count(*), count(id) FROM shard_dead_letters'), '1|0', 'others see no id of a dead letter');
$server->safe_psql('postgres', 'GRANT EXECUTE ON FUNCTION shard_discard, shard_redrive TO eve, alice');
my $all = q{SELECT %s(coalesce(array_agg(id), '{}')) FROM shard_dead_letters};
is($server->as('eve', sprintf($all, $_)), 0, "so $_() of all has none, and is no error") for qw(shard_redrive shard_discard);
is($server->as('alice', sprintf($all, 'shard_discard')), 1, 'and hers are hers');
$server->log_is_clean;
done_testing();
