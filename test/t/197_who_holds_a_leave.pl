# Transactions that are open at a node keep a shard from moving, or the node from leaving: whoever waits is told whose they are, at
# each attempt, and by health. Of moves that nobody wants any more health says nothing.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(3, conf => 'shard.rebalance_interval = 0');
$cluster->start_counter;
my ($one, $two, $three) = $cluster->nodes;
$one->get($_) for 0 .. 11;
my ($shard, $locked) = grep { $cluster->home_of('counter', $_) == 3 } 0 .. 11;
$one->add($_, 1) for $shard, $locked;
$cluster->drain;
$cluster->wait_settled;
my $coordinator = $cluster->coordinator($one);
my $health = q{SELECT array_to_string(problems, '; ') FROM shard_health()};
my $well = 'SELECT ok, problems FROM shard_health()';

# Messages of a call beside its result.
sub said { my ($node, $query) = @_; my ($out, $err); $node->server->psql($node->db, $query, stdout => \$out, stderr => \$err); return $err }

# --- a state that somebody has locked, to change it ------------------------------------------------

# What he does with it is not lost: the shard moves with it, or after him.
my $holder = $three->session;
for my $lock ('FOR UPDATE', 'FOR NO KEY UPDATE')
{
	my $other = $three->session;
	$other->query("BEGIN; SELECT FROM shard_entity.counter WHERE entity_id = '$locked' FOR KEY SHARE;");
	my $pid = $holder->query("BEGIN; SELECT pg_backend_pid();") =~ s/^\D*//r;
	$holder->query("SELECT FROM shard_entity.counter WHERE entity_id = '$locked' $lock;") if $lock ne 'FOR UPDATE';
	$other->query('COMMIT;');
	$holder->query("SELECT FROM shard_entity.counter WHERE entity_id = '$locked' $lock;");
	my ($out, $err);
	$one->server->psql($one->db, "SELECT shard_move('counter', $locked, 1)", stdout => \$out, stderr => \$err);
	like($err, qr/could not move shard $locked .* to node 1\n.*changed or locked by SQL on node 3, by process $pid\./, "$lock: a shard does not move meanwhile");
	$holder->query(qq{UPDATE shard_entity.counter SET state = '{"count": 40}' WHERE entity_id = '$locked'; COMMIT;});
	$other->close;
	$cluster->move('counter', $locked, 1);
	$cluster->wait_home('counter', $locked, 1);
	is($one->get($locked), "40 from node1", "$lock: what was changed under the lock has moved along");
	$cluster->move('counter', $locked, 3);
	$cluster->wait_home('counter', $locked, 3);
}

# --- a state that somebody is changing -----------------------------------------------------------

my $pid = $holder->query("BEGIN; UPDATE shard_entity.counter SET state = state WHERE entity_id = '$shard'; SELECT pg_backend_pid();");
is($one->sql("SELECT shard_evacuate(3, timeout => '1 s')"), 'f', 'a node is not emptied while somebody changes a state');
ok(eval { ShardCluster::wait_for_condition(sub { said($one, "SELECT shard_evacuate(3, timeout => '1 s')") =~
	/WARNING:  node 3 still has shards: \d+ of entity type "counter"\nDETAIL: .*To node \d, shard $shard of entity type "counter": .*by process $pid.*\nHINT: .*shard_rebalances/s }, 'the warning'); 1 },
	'who waits for that is told which shard it is, and why');
$coordinator->wait_until("SELECT ($health) ~ 'shard $shard of entity type \"counter\" could not be moved to node \\d, tried \\d times in the last hour: node \\d says: states of shard $shard .* by process $pid'",
	'health to say that the move fails, and whose transaction it is');
pass('health of the coordinator says that the move fails, and whose transaction it is');
is($one->sql("SELECT count(*) FILTER (WHERE error IS NULL) || ' of ' || (count(*) > 0) FROM shard_rebalances WHERE shard = $shard"), '0 of true', 'so does shard_rebalances')
  for 1 .. 5;
$one->wait_until("SELECT phase <> 'failed' AND error ~ 'the attempt before failed: .*by process $pid' FROM shard_rebalances WHERE shard = $shard", 'it to say so while the move is tried again');
pass('also while it is tried again');
$one->sql('SELECT shard_evacuate(3, false)');
$_->wait_value($well, 't|{}', 'node ' . $_->n . ' to be well') for $cluster->nodes;
pass('when nobody wants it any more, nothing is said');

$three->eventually("SELECT NOT shard_leave('1 s')");
ok(eval { ShardCluster::wait_for_condition(sub { said($three, "SELECT shard_leave('1 s')") =~ /still has shards.*\n.*by process $pid/s }, 'the warning'); 1 },
	'who leaves is told');
$three->sql('SELECT shard_leave(cancel => true)');
$holder->query('ROLLBACK;');
$_->wait_value($well, 't|{}', 'node ' . $_->n . ' to be well') for $cluster->nodes;

# --- a transaction that has sent -----------------------------------------------------------------

$pid = $holder->query("BEGIN; SELECT shard_tell('counter', '$shard', '{}'); SELECT pg_backend_pid();") =~ s/^\D*//r;
$three->sql("BEGIN; SELECT shard_tell('counter', '$shard', '{}'); PREPARE TRANSACTION 'sent $_'") for 1 .. 4;
my $waits = qr/has no shards any more, but has not left yet\nDETAIL:  The node waits for the end of transactions that have sent messages: 4 prepared transactions: "sent 1", "sent 2", "sent 3", \.\.\. \(see pg_prepared_xacts\); process $pid, whose transaction is open since /;
ok(eval { ShardCluster::wait_for_condition(sub { said($three, "SELECT shard_leave('5 s')") =~ $waits }, 'the warning'); 1 },
	'who leaves is told whose transaction it waits for');
$three->sql("ROLLBACK PREPARED 'sent $_'") for 1 .. 3;
like($three->sql($health), qr/this node is leaving, and waits for the end of transactions that have sent messages: prepared transaction "sent 4" \(see pg_prepared_xacts\); process $pid/, 'health says so');
$three->sql("ROLLBACK PREPARED 'sent 4'");
like($one->sql($health), qr/node 3 has no shards any more, and leaves when/, 'at another node, too');
$holder->query('ROLLBACK;');
$holder->close;
is($three->sql(q{SELECT shard_leave('60 s')}), 't', 'it leaves when that has ended');
$cluster->has_left(3);
$_->wait_value($well, 't|{}', 'node ' . $_->n . ' to be well') for $cluster->nodes;
done_testing();
