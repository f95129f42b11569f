# However much is held or parked: a worker that compares it with what it has in memory takes some of it in each turn,
# and comes to all of it.

use strict;
use warnings FATAL => 'all';

use PostgreSQL::Test::Utils;
use ShardCluster;
use Test::More;

my $node = ShardCluster->create('counting', conf => "shard.region_workers = 1\nshard.recount_interval = '1 ms'\nlog_min_messages = debug1");
my $entities = 8000;
my $held = 3 * $entities;
$node->safe_psql('postgres', qq{
CREATE FUNCTION counts(state int, message jsonb) RETURNS int LANGUAGE sql RETURN coalesce(state, 0) + 1;
SELECT shard_start(t, 'counts') FROM unnest('{held,parked}'::text[]) t;
SELECT shard_ask('held', 'e1', '{}');
SELECT shard_stop_type('held');
SELECT count(shard_tell('held', 'e' || i % $entities, '{}')) FROM generate_series(1, $held) i;
});
$node->wait_for_value('SELECT count(*) FROM shard.held', $held, 'messages to be held');

# The server's log from here on.
my $from = 0;
sub begin_log { $from = -s $node->logfile; return }
sub logged { return substr slurp_file($node->logfile), $from }
sub recounts { return $node->safe_psql('postgres', 'SELECT sum(recounts) FROM shard_stat_workers') }

# --- a bounded piece in each turn ----------------------------------------------------------------

# From the end of one recount to that of the next.
sub pieces
{
	my $log = logged();
	return $log =~ /which were the last\n(.*?recounted \d+ messages, which were the last)/s ? $1 =~ /recounted (\d+) messages/g : ();
}
begin_log();
my @pieces;
ShardCluster::wait_for_condition(sub { @pieces = pieces() }, 'a recount from its beginning to its end');
my $sum = 0;
$sum += $_ for @pieces;
is($sum, $held, "all is recounted, in pieces: @pieces");
is(join(' ', grep { $_ > 11_000 } @pieces), '', 'of which none is large');
is(recounts(), 0, 'nothing was counted wrongly');

# --- which finds what it is to find --------------------------------------------------------------

# Of one entity memory believes that something is held; of another one, that nothing is.
my ($shard) = $node->safe_psql('postgres', q{SELECT max(shard) FROM shard.held});
my ($one) = $node->safe_psql('postgres', qq{SELECT max(entity) FROM shard.held WHERE shard = $shard});
my ($other) = $node->safe_psql('postgres', qq{SELECT min('z' || i) FROM generate_series(1, 10000) i WHERE shard_shard_id('held', 'z' || i) = $shard});
$node->safe_psql('postgres', qq{UPDATE shard.held SET entity = '$other' WHERE entity = '$one'});
$node->wait_for_value('SELECT sum(recounts) FROM shard_stat_workers', 2, 'the change to be found');
like(logged(), qr/what is held of entity "($one|$other)" of type "held" was counted wrongly/, 'which is said');
$node->safe_psql('postgres', q{SELECT shard_start('held', 'counts')});
$node->drain;
is($node->safe_psql('postgres', qq{SELECT count(*) FROM shard_entity.held WHERE state >= 3}), $entities, 'all that is held is handled');
is($node->safe_psql('postgres', qq{SELECT state FROM shard_entity.held WHERE entity_id = '$other'}), 3, 'that, too');

# --- parked messages -----------------------------------------------------------------------------

# Nobody gives homes.
my ($coordinator) = $node->worker_pids('%control%');
$node->stop_idle($coordinator);
$node->safe_psql('postgres', q{SELECT count(shard_tell('parked', 'e' || i, '{}')) FROM generate_series(1, 15000) i});
$node->wait_for_value('SELECT count(*) FROM shard.parked', 15_000, 'messages to be parked');
begin_log();
ShardCluster::wait_for_condition(sub { @pieces = pieces() }, 'a recount from its beginning to its end');
$sum = 0;
$sum += $_ for @pieces;
is($sum, 15_000, "parked ones are recounted, too: @pieces");
is(join(' ', grep { $_ > 11_000 } @pieces), '', 'likewise');
is(recounts(), 2, 'and were counted rightly');
$node->safe_psql('postgres', q{DELETE FROM shard.parked WHERE entity = 'e77'});
$node->wait_for_value('SELECT sum(recounts) FROM shard_stat_workers', 3, 'the change to be found');
like(logged(), qr/parked messages of type "parked" were counted wrongly.*\n.*had counted 15000, there are 14999/, 'one is missed');
kill 'CONT', $coordinator;
$node->drain;
is($node->safe_psql('postgres', 'SELECT count(*) FROM shard_entity.parked'), 14_999, 'the others are handled');
$node->stop;
done_testing();
