# The clock of a home's server is set back by an hour just when it waits a moment before it reads records for its backup again.
# It waits no longer for that.

use strict;
use warnings FATAL => 'all';

use ShardClock;
use ShardNodes;
use Test::More;

plan skip_all => 'a library that comes before that of the sanitizer' unless ShardClock::available;

my $cluster = ShardNodes->create(2, conf => "shard.rebalance_interval = 0\nshard.voters = 1\nshard.region_workers = 1");
my ($home, $backup) = $cluster->nodes;
$cluster->sql_everywhere(q{
CREATE TABLE seen ();
CREATE FUNCTION does(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	IF message ? 'tell' THEN PERFORM shard_tell('plain', 'p', '"told"'); END IF;
	IF message = '"told"' THEN INSERT INTO seen DEFAULT VALUES; END IF;
	RETURN message;
END $$;
});
$home->sql(q{SELECT shard_start('plain', 'does', 4)});
$_->sql(q{SELECT shard_start('kept', 'does', 4, replicas => 1)}) for $home, $backup;
$cluster->wait_registered;
$cluster->allocate('kept', 1 .. 20);
my $entity = $cluster->entity_at('kept', 1, 'e');

my $clock = ShardClock->new;
$home->server->stop;
$clock->with(sub { $home->server->start });
$cluster->wait_up;

# The home has a record for its backup, and the call with it is lost.
my $calls = q{FROM pg_stat_activity WHERE application_name ~ 'shard records' AND datname = current_database()};
my $newest = "SELECT coalesce(max(turn), 0) FROM shard.turn_records((SELECT type_id FROM shard.type WHERE type_name = 'kept'), shard_shard_id('kept', '$entity'))";
my $old = $home->sql($newest);
$home->server->set_fault('records_shipped', 'freeze');
$home->sql(qq{SELECT shard_tell('kept', '$entity', '{"tell": true}')});
while (1)
{
	ShardCluster::wait_for_condition(sub { $home->server->fault_happened }, 'a call of the home');
	last if $home->sql($newest) > $old;

	# It was one before that, which tells the backup what is released.
	$home->server->clear_fault;
	$home->server->set_fault('records_shipped', 'freeze');
}
my $keeper = $home->session;
$keeper->query('BEGIN; ALTER EXTENSION shard UPDATE;');
my $pid = $backup->sql("SELECT pid $calls");
$backup->sql("SELECT pg_terminate_backend($pid, 60000)");
$home->server->clear_fault;

# The backup, asked once more, says that it needs it, and the home may not read it: it looks again and again.
$home->server->set_fault('records_not_read', 'freeze');
ShardCluster::wait_for_condition(sub { $home->server->fault_happened }, 'the home to be refused its records');
my $before = $home->sql('SELECT clock_timestamp()');
$clock->set_back;
is($home->sql("SELECT clock_timestamp() < '$before'::timestamptz - interval '50 min'"), 't', 'the clock is set back');
$home->server->clear_fault;
$keeper->query('COMMIT;');
$home->wait_until('SELECT count(*) = 1 FROM seen', 'the record to be stored, and what it told to be shown');
done_testing();
