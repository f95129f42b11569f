# A role fills the server's table of locks. The control worker waits until it has room again, and says so: it is the same
# process afterwards, and goes on at once.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use Test::More;

my $node = ShardCluster->create('first', conf => "max_locks_per_transaction = 10\nmax_connections = 20\nmax_prepared_transactions = 0");
$node->safe_psql('postgres', q{
CREATE ROLE attacker LOGIN;
CREATE FUNCTION note(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN message;
SELECT shard_start('note', 'note');
});
is($node->safe_psql('postgres', q{SELECT shard_ask('note', 'a', '1')}), '1', 'all is well');
my ($before) = $node->worker_pids('shard control');

my $attacker = $node->session;
$attacker->query('SET ROLE attacker;');
$attacker->query(q{DO $$ BEGIN FOR i IN 1 .. 10000000 LOOP PERFORM pg_advisory_lock(i); END LOOP; EXCEPTION WHEN out_of_memory THEN NULL; END $$;});
$node->wait_for_log(qr/the control worker waits until the server has room again: out of shared memory/);
is($attacker->query('SELECT count(*) > 100 FROM pg_locks WHERE pid = pg_backend_pid();'), 't', 'the table of locks is full');
$attacker->query('SELECT pg_advisory_unlock_all();');
$node->wait_until('SELECT ok FROM shard_health()', 'all to be well');
is($node->safe_psql('postgres', q{SELECT shard_ask('note', 'a', '2')}), '2', 'when it has room, work goes on');
is(($node->worker_pids('shard control'))[0], $before, 'the control worker is the same');
done_testing();
