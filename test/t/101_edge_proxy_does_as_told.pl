# The proxies between nodes do to a connection what they were told, know from which server it comes,
# and nothing to others. Runs on plain servers, which call one another by dblink.

use strict;
use warnings FATAL => 'all';

use PostgreSQL::Test::Cluster;
use ShardCluster;
use ShardProxy;
use Test::More;
use Time::HiRes qw(time);

my $proxy = ShardProxy->start;
my (@node, @port);
for my $n (1 .. 3)
{
	$node[$n] = ShardCluster->create("plain$n", tcp => '127.0.0.1', extension => 0);
	$node[$n]->safe_psql('postgres', 'CREATE EXTENSION dblink; CREATE TABLE effect (what text)');
	$port[$n] = PostgreSQL::Test::Cluster::get_free_port();
	$proxy->node($n, listen => $port[$n], server => $node[$n]);
}

sub dsn { my ($n) = @_; return "host=127.0.0.1 port=$port[$n] dbname=postgres sslmode=disable connect_timeout=30" }

# SQL at one node, called by another; returns what it returns or "failed".
sub call
{
	my ($from, $to, $sql) = @_;
	my ($status, $out) = $node[$from]->psql('postgres', "SELECT * FROM dblink('@{[dsn($to)]}', \$call\$$sql\$call\$) AS t(x text)");
	return $status == 0 ? $out : 'failed';
}

sub effects { my ($n) = @_; return $node[$n]->safe_psql('postgres', 'SELECT string_agg(what, $$ $$) FROM effect') }

is(call(1, 2, 'SELECT current_setting($$port$$)'), $node[2]->port, 'a call gets through');
is(call(2, 2, 'SELECT current_setting($$port$$)'), $node[2]->port, 'to itself, too');
is(length call(1, 2, q{SELECT repeat($$x$$, 1000000)}), 1_000_000, 'and a long answer');

$proxy->cut(1, 2);
is(call(1, 2, 'SELECT 1'), 'failed', 'cut');
is(call(2, 1, 'SELECT 1'), 'failed', 'the way back, too');
is(call(3, 2, 'SELECT 1'), '1', 'but nobody else');
$proxy->heal(1, 2);
is(call(1, 2, 'SELECT 1'), '1', 'healed');

# A connection made before, a query of which is lost on its way until it heals.
my $session = $node[1]->session;
$session->query("SELECT dblink_connect('c', '@{[dsn(3)]}');");
$proxy->hold(1, 3);
$session->send(q{SELECT dblink_exec('c', 'INSERT INTO effect VALUES ($$late$$)');});
is(call(2, 3, 'SELECT count(*) FROM effect'), '0', 'held: nothing arrives');
is(call(1, 2, 'SELECT 1'), '1', 'other edges are free');
$proxy->heal;
$session->receive;
is(effects(3), 'late', 'it arrives afterwards');

# The answer only.
$proxy->hold(3, 1);
$session->send(q{SELECT dblink_exec('c', 'INSERT INTO effect VALUES ($$one way$$)');});
$node[3]->wait_until(q{SELECT count(*) = 2 FROM effect}, 'the query to arrive');
pass('one way: the query arrives');
$proxy->heal;
$session->receive;
pass('its answer afterwards');

my $before = time;
$proxy->delay(1, 3, 300);
$session->query(q{SELECT dblink_exec('c', 'INSERT INTO effect VALUES ($$slow$$)');});
cmp_ok(time - $before, '>=', 0.3, 'delayed');
$proxy->heal;

# Between COMMIT and its reply.
$proxy->cut_reply(1, 2, 2, 'INSERT INTO effect');
is(call(1, 2, 'INSERT INTO effect VALUES ($$first$$) RETURNING what'), 'first', 'the first reply is delivered');
is(call(1, 2, 'INSERT INTO effect VALUES ($$second$$) RETURNING what'), 'failed', 'the second is not');
is(effects(2), 'first second', 'though it was done');
is($proxy->fired, 1, 'which is counted');
$proxy->cut_query(1, 2, 1, 'INSERT INTO effect');
is(call(1, 2, 'INSERT INTO effect VALUES ($$third$$) RETURNING what'), 'failed', 'a query cut on its way');
is(effects(2), 'first second', 'was not done');

# A server that starts again is known again, without being told.
$node[1]->crash;
$node[1]->recover;
$proxy->cut(1, 2);
is(call(1, 2, 'SELECT 1'), 'failed', 'a restarted server is known');
is(call(3, 2, 'SELECT 1'), '1', 'from others');
$proxy->heal;

$node[2]->freeze;
$node[1]->psql('postgres', "SELECT dblink_connect('d', '@{[dsn(2)]}')", timeout => 1, timed_out => \my $hung);
ok($hung, 'a frozen server does not answer');
$node[2]->thaw;
is(call(1, 2, 'SELECT 1'), '1', 'a thawed one does');

done_testing();
