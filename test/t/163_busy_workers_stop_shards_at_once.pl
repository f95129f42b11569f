# A shard that moves does not wait until a busy worker has come to the end of its turns: the turns that stop
# and seal it handle no messages, and go before all that waits.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use ShardNodes;
use Test::More;

my $messages = 6000;
my $cluster = ShardNodes->create(2, databases => 1, conf => 'shard.region_workers = 1');
my ($here, $there) = $cluster->nodes;
$cluster->sql_everywhere(<<'SQL');
CREATE TABLE handled (n int);
CREATE FUNCTION slow(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	IF message ? 'n' THEN
		INSERT INTO handled VALUES ((message->>'n')::int);
		PERFORM pg_sleep(0.005);
	END IF;
	RETURN message;
END $$;
SELECT shard_start('slow', 'slow', 4);
SQL
$cluster->start_recorder;
my ($busy) = $cluster->entity_at('slow', 1);
my ($moving) = $cluster->entity_at('recorder', 1);
my $shard = $cluster->shard_of('recorder', $moving);
$here->sql(ShardCluster::tell_recorder($moving, 1, 3));
$cluster->drain;

# The copy stands still before it begins, so the shard is sealed, and nothing else happens to it.
$here->server->set_fault('import_begin', 'freeze');
$here->sql("SELECT count(shard_tell('slow', '$busy', jsonb_build_object('n', n))) FROM generate_series(1, $messages) n");
$here->wait_until('SELECT count(*) > 50 FROM handled', 'the worker to be busy');
my $mover = $here->session;
$mover->send("SELECT shard_move('recorder', $shard, 2);");
my $own = "shard.own WHERE shard = $shard AND type_id = (SELECT type_id FROM shard.type WHERE type_name = 'recorder')";
$here->wait_value("SELECT state FROM $own", 'sealed', 'the shard to be sealed');
is($here->sql("SELECT count(*) FROM handled h WHERE h.xmin = (SELECT xmin FROM $own)"), 0, 'the turn that sealed it handled nothing else');
cmp_ok($here->sql('SELECT count(*) FROM handled'), '<', $messages, 'though there was enough to do');
$here->server->clear_fault;
$mover->receive;
$mover->close;
$cluster->wait_home('recorder', $shard, 2);
is($there->sql("SELECT state->>'count' FROM shard_entity.recorder WHERE entity_id = '$moving'"), 3, 'and it has moved');
done_testing();
