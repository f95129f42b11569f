# Calls of operators that change nothing, or wait for what cannot come, say so at once.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(3, databases => 1);
my ($one, $two, $three) = $cluster->nodes;
my ($seed, $own) = ($one->dsn, $two->dsn);

sub said
{
	my ($node, $sql) = @_;
	my ($out, $said);
	$node->server->psql($node->db, $sql, stdout => \$out, stderr => \$said);
	return "$out $said";
}

# --- joined already ------------------------------------------------------------------------------

(my $elsewhere = $own) =~ s/127\.0\.0\.1/127.0.0.2/;
like(said($two, "SELECT shard_join('$seed', '$elsewhere')"),
	qr/^2 .*WARNING: +this node is node 2 of that cluster already, and keeps its address\n.*DETAIL: .*is "host=127\.0\.0\.1 .*"\.\n.*HINT: .*shard_set_address\(/s,
	'who joins again with another address hears that he keeps the one that he has, and what changes it');
is(said($two, "SELECT shard_join('$seed', '$own')"), '2 ', 'with the same one there is nothing to say');
is(said($two, "SELECT shard_join('$seed')"), '2 ', 'nor without one');
is($one->sql('SELECT dsn FROM shard_members WHERE node = 2'), $own, 'its address is what it was');

# --- not known yet -------------------------------------------------------------------------------

# Its control worker is only started by the extension: who comes before it waits for it.
my $dsn = $one->dsn =~ s/dbname=\S+/dbname=fresh/r;
$one->server->safe_psql('postgres', 'CREATE DATABASE fresh');
$one->server->safe_psql('fresh', qq{CREATE EXTENSION shard;
SELECT shard_allow_peer('$ShardNodes::peer_role');
SELECT shard_set_address('$dsn');});
is($one->server->safe_psql('fresh', 'SELECT dsn FROM shard_members'), $dsn, 'the address of a node that has just been made');

# --- given up already ----------------------------------------------------------------------------

$one->sql('SELECT shard_down(3)');
like(said($one, 'SELECT shard_down(3)'), qr/NOTICE: +node 3 was downed already/, 'a second shard_down()');
$three->wait_until(q{SELECT problems::text ~ 'was downed' FROM shard_health()}, 'node 3 to know it');
like($three->error_of(q{SELECT shard_drain('1 hour')}), qr/55000: this node handles no messages\nDETAIL: +This node was downed/, 'there shard_drain() does not wait');
$one->sql('SELECT shard_write_off(3)');
like(said($one, 'SELECT shard_write_off(3)'), qr/NOTICE: +node 3 was written off already/, 'a second shard_write_off()');
$cluster->has_left(3);

# --- nothing is handled here ---------------------------------------------------------------------

is($two->sql('SELECT shard_leave()'), 't', 'a node leaves');
$cluster->has_left(2);
$two->wait_until(q{SELECT problems::text ~ 'it has left its cluster' FROM shard_health()}, 'it to know');
like($two->error_of(q{SELECT shard_drain('1 hour')}), qr/55000: this node handles no messages\nDETAIL: +This node takes no part in its cluster any more.*HINT: .*shard_health/s,
	'there shard_drain() does not wait');
is($one->sql(q{SELECT shard_drain('30 s')}), 't', 'elsewhere it does');

# --- voters --------------------------------------------------------------------------------------

like($one->error_of('SELECT shard_force_voters(ARRAY[1, 2])'), qr/55000.*odd number of members.*HINT:  Name this node, and beside it an even number/s,
	'an even number of voters');
$cluster->logs_are_clean(@ShardNodes::link_troubles, qr/no messages|cannot be made the voters|keeps its address|has left|written off|fenced/);
done_testing();
