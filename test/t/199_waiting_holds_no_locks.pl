# Who waits for a command of the control plane has none of our tables locked: VACUUM FULL of them passes. A control worker
# whose tables somebody has locked waits for them, and says so; it does not end.

use strict;
use warnings FATAL => 'all';

use PostgreSQL::Test::Utils;
use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(3, conf => 'shard.rebalance_interval = 0');
$cluster->start_counter(settings => ", handoff_timeout => '5 min'");
my ($one, $two, $three) = $cluster->nodes;
$one->get($_) for 0 .. 11;
my ($shard) = grep { $cluster->home_of('counter', $_) == 3 } 0 .. 11;
$one->add($shard, 1);
$cluster->drain;
$cluster->wait_settled;
my $worker = q{SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND backend_type ~ '^shard control'};
my %before = map { $_->n => $_->sql($worker) } $cluster->nodes;
like($before{$_}, qr/^\d+$/, "node $_ has a control worker") for sort keys %before;

# Tables of ours that a backend has locked.
sub locked
{
	my ($node, $pid) = @_;
	return $node->sql("SELECT coalesce(string_agg(DISTINCT c.relname, ', '), 'nothing') FROM pg_locks l JOIN pg_class c ON c.oid = l.relation
		WHERE l.pid = $pid AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database()) AND c.relnamespace = 'shard'::regnamespace");
}

# The calls of a function that wait, and the pid of the first.
sub waiting { my ($node, $like) = @_; return $node->sql("SELECT min(pid) FROM pg_stat_activity WHERE query LIKE '$like%' AND state = 'active' AND pid <> pg_backend_pid()") }

# --- a move whose shard does not come to rest -----------------------------------------------------

# The process that has to stop it does nothing.
my @frozen = $three->workers('shard region%');
$three->server->stop_idle(@frozen);
my $mover = $two->session;
$mover->send("SELECT shard_move('counter', $shard, 1);");
$one->wait_until("SELECT count(*) > 0 FROM shard_rebalances WHERE shard = $shard", 'the move to begin');
$two->wait_until(q{SELECT count(*) = 1 FROM pg_stat_activity WHERE query LIKE 'SELECT shard_move%' AND state = 'active' AND wait_event_type = 'Extension'}, 'its caller to wait');
is(locked($two, waiting($two, 'SELECT shard_move')), 'nothing', 'who waits for a move has nothing locked');
is($two->error_of(q{SET lock_timeout = '5 s'; VACUUM FULL shard.control}) // 'none', 'none', 'VACUUM FULL passes beside it');

# --- an evacuation, a leave -------------------------------------------------------------------------

my $emptier = $two->session;
$emptier->send("SELECT shard_evacuate(3, timeout => '1 h');");
# Two changes of a node are not decided at once: the later one would be refused.
$one->wait_value('SELECT evacuated FROM shard_members WHERE node = 3', 't', 'an evacuation to be decided');
my $leaver = $three->session;
$leaver->send(q{SELECT shard_leave('1 h');});
$two->wait_until(q{SELECT count(*) = 1 FROM pg_stat_activity WHERE query LIKE 'SELECT shard_evacuate%' AND state = 'active' AND wait_event_type = 'Extension'}, 'an evacuation to wait');
$one->wait_value(q{SELECT status FROM shard_members WHERE node = 3}, 'leaving', 'a leave to be decided');
for ([ $two, 'SELECT shard_evacuate' ], [ $three, 'SELECT shard_leave' ])
{
	my ($node, $call) = @$_;
	is($node->error_of(q{SET lock_timeout = '5 s'; VACUUM FULL shard.control}) // 'none', 'none', "VACUUM FULL passes beside $call()");
	ok(eval { ShardCluster::wait_for_condition(sub { locked($node, waiting($node, $call)) eq 'nothing' }, 'no lock'); 1 }, "$call() keeps no lock");
}
$three->sql('SELECT shard_leave(cancel => true)');
$two->sql('SELECT shard_evacuate(3, false)');
is($emptier->receive, 'f', 'who waits for a node to be emptied does not wait longer than it is being emptied');
kill 'CONT', @frozen;
$mover->receive;
$cluster->wait_home('counter', $shard, 1);
pass('the move ends when its shard is at rest');

# --- a table that somebody has locked ---------------------------------------------------------------

my ($other) = grep { $_->n != $cluster->coordinator->n } $cluster->nodes;
my $pins = 0;
my $clerk = $other->session;
my $clerk_pid = $clerk->query('SELECT pg_backend_pid();');
for ([ control => '' ], [ decision => ' IN SHARE MODE' ], [ node => '' ], [ node => ' IN SHARE MODE' ])
{
	my ($table, $mode) = @$_;
	my $from = -s $other->server->logfile;
	$clerk->query("BEGIN; LOCK TABLE shard.$table$mode;");
	$cluster->coordinator->sql("SELECT shard_pin('counter', 0, @{[ 1 + $pins++ % 2 ]})");
	ok(eval { ShardCluster::wait_for_condition(sub { slurp_file($other->server->logfile, $from) =~
		/the control worker waits for table shard\.$table, which is locked by process $clerk_pid\b.*DETAIL: .*no part.*HINT: .*pg_locks/s }, 'the log'); 1 },
		"a control worker that cannot write shard.$table says so, and who has it");
	like($other->sql(q{SET statement_timeout = '60 s'; SELECT problems::text FROM shard_health()}), qr/shard\.$table is locked by process $clerk_pid:/, 'and health does, too');
	$clerk->query('COMMIT;');
	$other->wait_value(q{SELECT count(*) FROM shard_members WHERE reachable}, 3, 'it to go on');
	$other->wait_until(q{SELECT ok FROM shard_health()}, 'and nothing to be wrong');
}
$clerk->close;
$cluster->coordinator->sql(q{SELECT shard_unpin('counter', 0)});
# Who may only read what is ours keeps it from nothing.
$other->sql('CREATE ROLE reader; GRANT USAGE ON SCHEMA shard TO reader; GRANT SELECT ON ALL TABLES IN SCHEMA shard TO reader');
for my $table (qw(control decision node))
{
	like($other->error_of("BEGIN; SET ROLE reader; LOCK TABLE shard.$table IN SHARE MODE") // 'nothing', qr/42501/, "a reader cannot lock shard.$table");
}
$other->sql('DROP OWNED BY reader; DROP ROLE reader');
is($_->sql($worker), $before{ $_->n }, 'the control worker of node ' . $_->n . ' has not ended') for $cluster->nodes;

# --- tables that a step does not write --------------------------------------------------------------

# Who waits behind somebody that reads keeps others out as well. The two other nodes move a shard meanwhile: the coordinator
# learns homes, and that a function of its types has changed.
my $head = $cluster->coordinator;
my ($from_node, $to_node) = grep { $_->n != $head->n } $cluster->nodes;
# Not the one that was pinned: it may still be on its way.
$cluster->wait_settled;
my ($moved) = grep { $cluster->home_of('counter', $_) == $from_node->n } 1 .. 11;
for my $locked (qw(type own route))
{
	my ($reader, $locker) = ($head->session, $head->session);
	my $pid = $locker->query('SELECT pg_backend_pid();');
	$reader->query("BEGIN; LOCK TABLE shard.$locked IN ACCESS SHARE MODE;");
	$locker->send("BEGIN; LOCK TABLE shard.$locked;");
	ok(eval { ShardCluster::wait_for_condition(sub { $head->server->safe_psql('postgres',
		"SELECT count(*) FROM pg_locks WHERE pid = $pid AND NOT granted") == 1 }, 'a lock that waits'); 1 }, "shard.$locked is about to be locked");
	$head->sql('ALTER FUNCTION counter(jsonb, jsonb) COST 10');
	$to_node->sql("SELECT shard_move('counter', $moved, ${\ $to_node->n})");
	is($cluster->home_of('counter', $moved, $to_node), $to_node->n, "a shard moves while the coordinator's shard.$locked is kept");
	is($cluster->coordinator($to_node)->n, $head->n, 'and the coordinator stays what it is');
	like($head->sql(q{SET statement_timeout = '60 s'; SELECT problems::text FROM shard_health()}), qr/shard\.$locked is about to be locked by process $pid: .*nothing else was looked at/,
		'its health says who keeps it');
	$reader->query('COMMIT;');
	$locker->close;
	$reader->close;
	($from_node, $to_node) = ($to_node, $from_node);
}
# The log, to which a home that was decided is appended: nothing goes on there, and nothing ends.
{
	my ($locker, $mover) = ($head->session, $to_node->session);
	my $log = -s $head->server->logfile;
	$locker->query('BEGIN; LOCK TABLE ' . join(', ', @ShardCluster::inbox_tables) . ' IN SHARE MODE;');
	$mover->send("SELECT shard_move('counter', $moved, ${\ $to_node->n});");
	ok($head->server->wait_for_log(qr/the control worker waits for table shard\.inbox_\d, which is locked/, $log), 'who has a home to write down waits for the log');
	$locker->query('COMMIT;');
	$_->close for $locker, $mover;
	$to_node->eventually("SELECT shard_move('counter', $moved, ${\ $to_node->n})") if $cluster->home_of('counter', $moved, $to_node) != $to_node->n;
	is($cluster->home_of('counter', $moved, $to_node), $to_node->n, 'and the shard moves then');
}
$head->wait_until('SELECT ok FROM shard_health()', 'good health');
is($_->sql($worker), $before{ $_->n }, 'nor has the control worker of node ' . $_->n . ' ended now') for $cluster->nodes;
done_testing();
