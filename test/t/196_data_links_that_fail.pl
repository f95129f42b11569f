# Links of region workers that fail while the control workers hear one another: for want of connections at the other
# end, or by an error there. Whoever asks is told why, and health and shard_peers say so within seconds, until it is mended.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(3, conf => "shard.region_workers = 1\n");
my ($one, $two, $three) = $cluster->nodes;
my $role = $ShardNodes::peer_role;
$cluster->start_recorder;
my ($there, $back) = ($cluster->entity_at('recorder', 3), $cluster->entity_at('recorder', 1));
my $health = q{SELECT array_to_string(problems, '; ') FROM shard_health()};
my $ask = qq{SELECT shard_ask('recorder', '$there', '{"what": "asked"}', '2 s')};
my $well = 'SELECT ok, problems FROM shard_health()';

# Waits until these messages were handled there; asks were, too, some perhaps after their time.
sub has_there
{
	$three->wait_value("SELECT string_agg(what, ' ' ORDER BY pos) FROM seen WHERE entity = '$there' AND what <> 'asked'", "@_",
		"node 3 to handle @_");
	return;
}

# --- no connection for asks ----------------------------------------------------------------------

$one->eventually($ask);
$one->sql(ShardCluster::tell_recorder($there, 1, 1));
has_there(1);
$_->wait_value($well, 't|{}', 'node ' . $_->n . ' to be well') for $cluster->nodes;
my $links = $three->sql("SELECT count(*) FROM pg_stat_activity WHERE usename = '$role' AND application_name !~ ' ask '");
$three->sql("ALTER ROLE $role CONNECTION LIMIT $links");
$three->sql("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename = '$role' AND application_name ~ ' ask '");
my $error;
for (1 .. 30)
{
	$error = $one->error_of($ask) // '';
	last if $error =~ /too many connections/;
}
like($error, qr/55P03.*it was not executed\nDETAIL:\s+Its home, node 3, cannot be reached for asks since 20\d\d-.*: .*too many connections for role/,
	'an ask that gets no connection says what its home says');
like($one->sql(q{SELECT string_agg(last_error, ' ') FROM shard_peers WHERE node = 3}), qr/^asks: .*too many connections for role/, 'shard_peers has it');
$one->wait_until("SELECT ($health) ~ 'asks of entities at node 3 fail, no connection for them could be made for \\d+ s: .*too many connections.*CONNECTION LIMIT'",
	'health to say so, and what to mend');
pass('health says so, and what to mend');
is($one->sql("CREATE ROLE nosy; GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO nosy; SELECT 1"), 1, 'a role that may not see addresses');
like($one->error_of("SET ROLE nosy; $ask") // '', qr/DETAIL:\s+Its home, node 3, cannot be reached for asks since [^:]*:\d\d:[^:]*\.\n/, 'is told no error that may name one');
unlike($one->sql("SET ROLE nosy; $health"), qr/too many/, 'neither by health');
$one->sql(ShardCluster::tell_recorder($there, 2, 3));
has_there(1 .. 3);
pass('what is told goes on');
$three->sql("ALTER ROLE $role CONNECTION LIMIT -1");
$one->wait_value($well, 't|{}', 'node 1 to be well, though nobody asks');
is($one->sql(q{SELECT count(last_error) FROM shard_peers}), 0, 'and shard_peers');
$one->eventually($ask);
pass('asks are answered again');

# --- an idle link that breaks --------------------------------------------------------------------

# Nobody can be let in again meanwhile, and nobody needs to.
$cluster->drain;
$three->sql("ALTER ROLE $role CONNECTION LIMIT 0");
$three->sql("SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity WHERE usename = '$role' AND application_name ~ 'region'");
$one->wait_value('SELECT concat(state, last_error) FROM shard_peers WHERE node = 3', 'idle', 'the link to be idle, without an error');
is($one->sql("SELECT ($health) ~ 'messages for node'"), 'f', 'no message waits, and health speaks of none');
$three->sql("ALTER ROLE $role CONNECTION LIMIT -1");
$_->wait_value($well, 't|{}', 'node ' . $_->n . ' to be well') for $cluster->nodes;

# --- an error at the receiver --------------------------------------------------------------------

# Hello is answered, and each call after it ends with an error, as with a full disk.
$three->sql("REVOKE EXECUTE ON PROCEDURE shard_peer.receive FROM $role");
$one->sql(ShardCluster::tell_recorder($there, 4, 5));
$one->wait_until("SELECT ($health) ~ 'messages for node 3 wait, the link for them has failed for ([5-9]|\\d\\d) s: permission denied for procedure receive; see shard_peers'",
	'health to say that messages wait, and why');
pass('messages that cannot be taken in there: health says so, and why');
$three->sql("GRANT EXECUTE ON PROCEDURE shard_peer.receive TO $role");
has_there(1 .. 5);
$one->wait_value($well, 't|{}', 'node 1 to be well');
$cluster->drain;
pass('mended, all is well');
done_testing();
