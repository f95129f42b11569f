# D10: one owner starts as many types with as many shards as he may. There is room for those of others all the same; and
# when it is nearly used an operator is told, and who has most.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(2);
my ($one, $two) = $cluster->nodes;
$one->server->safe_psql($one->db, <<'SQL');
CREATE ROLE mallory LOGIN;
CREATE ROLE victim LOGIN;
CREATE ROLE trusted LOGIN;
CREATE FUNCTION h(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN message;
ALTER ROLE trusted SET shard.max_shards_per_owner = 150000;
SQL
my $db = $one->db;
$one->server->safe_psql($db, "GRANT CREATE ON DATABASE $db TO mallory, victim, trusted");

sub as
{
	my ($role, $sql) = @_;
	my ($status, $out, $err) =
		$one->server->psql($db, "\\set VERBOSITY verbose\n$sql", extra_params => [ '-U', $role ]);
	return $status == 0 ? "done $out" : $err;
}
sub start
{
	my ($role, $type, $shards) = @_;
	return as($role, "SELECT shard_start('$type', 'h', number_of_shards => $shards)");
}

like(start('mallory', "m$_", 10000), qr/^done/, "type $_ of ten with 10000 shards") for 1 .. 10;
my $error = start('mallory', 'more', 10);
like($error, qr/ERROR:\s+53400: the entity types of role "mallory" have too many shards/, 'D10: more shards he has not');
like($error, qr/DETAIL:\s+They have 100000, and entity type "more" has 10; setting "shard.max_shards_per_owner" allows 100000\./, 'D10: as is said');
like($error, qr/HINT:\s+.*administrator/, 'D10: and who may change it');
like(as('mallory', q{SET shard.max_shards_per_owner = 0}), qr/42501: permission denied to set parameter/, 'D10: he does not change the bound');
like(start('mallory', 'm1', 10000), qr/^done/, 'to start one again is none more');
like(as('victim', q{SELECT shard_start('ordinary', 'h')}), qr/^done/, 'D10: another owner has room');
like(start('trusted', "t$_", 10000), qr/^done/, "a role may have another bound: $_") for 1 .. 2;
like(as('mallory', q{SELECT shard_drop_type('m1')}), qr/^done/, 'one is dropped');
like(start('mallory', 'more', 10), qr/^done/, 'which makes room');

# Superusers are not bound, and use what there is.
my $health = q{SELECT array_to_string(problems, E'\n') FROM shard_health()};
unlike($one->server->safe_psql($db, $health), qr/of the room/, 'there is room, and nothing to be told');
$one->server->safe_psql($db, q{SELECT shard_start('huge', 'h', number_of_shards => 700000)});
$one->wait_until(qq{SELECT ($health) ~ 'came from node 1, 14 with 811010 shards, take up 81 % of the room .* role ".*" has most, 1 with 700000 shards'},
	'what is told of the room');
pass('D10: that the room of one member is nearly used is told, and who has most');
done_testing();
