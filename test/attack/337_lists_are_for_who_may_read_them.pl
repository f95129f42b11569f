# G4: anybody may read shard_region_state, and each look had every worker write down all entities in its memory, between two turns,
# once for each who asked. Who may see none of them has none listed; many who ask at once have one list for each set of types.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use Test::More;

my $server = ShardCluster->create('node', conf => "shard.handler_lock_timeout = '1min'\nshard.owners_may_share_workers = on\nshard.max_region_workers = 1");
$server->create_owners('alice', 'bob');
$server->safe_psql('postgres', 'CREATE ROLE nobody LOGIN; CREATE ROLE friend LOGIN; GRANT alice, bob TO friend');
for my $owner ('alice', 'bob')
{
	$server->as($owner, qq{
CREATE FUNCTION $owner.h(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS \$\$ BEGIN
	IF message ? 'wait' THEN PERFORM pg_advisory_xact_lock(4711); END IF; RETURN message; END \$\$;
SELECT shard_start('$owner', '$owner.h', number_of_shards => 1, handler_timeout => '1 min');
SELECT shard_tell('$owner', '$owner ' || i, '{}') FROM generate_series(1, 3) i;
});
}
$server->drain;

my $state = q{SELECT string_agg(coalesce(entity_id, '?'), ', ' ORDER BY entity_id) FROM shard_region_state};
my $superuser = $server->safe_psql('postgres', 'SELECT current_user');
my @alice = map { "alice $_" } 1 .. 3;
my @bob = map { "bob $_" } 1 .. 3;
my %sees = (alice => "@{[ join ', ', @alice ]}", bob => join(', ', @bob), friend => join(', ', @alice, @bob), nobody => '', $superuser => join(', ', @alice, @bob));
is($server->as($_, $state), $sees{$_}, "G4: $_ sees what is his") for sort keys %sees;

my $holder = $server->session;
$holder->query('BEGIN; SELECT pg_advisory_xact_lock(4711);');
$server->as('alice', q{SELECT shard_tell('alice', 'alice 1', '{"wait": 1}')});
$server->wait_until(q{SELECT count(*) = 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted}, 'a worker that is busy');
my ($status, $out, $err) = $server->psql('postgres', $state, extra_params => [ '-U', 'nobody' ]);
is("$status $out$err", '0 ', 'G4: nobody is asked for who may see nothing');

# All of these are answered in one turn, each with his own.
my @askers;
for my $role (map { ($_) x 3 } sort grep { $_ ne 'nobody' } keys %sees)
{
	my $session = $server->session;
	$session->query("SET SESSION AUTHORIZATION $role;") if $role ne $superuser;
	push @askers, [ $role, $session ];
}
# None before all are there: nobody waits for long.
$_->[1]->send("$state;") for @askers;
$server->wait_until(q{SELECT count(*) = 12 FROM pg_stat_activity WHERE backend_type = 'client backend' AND wait_event_type = 'Extension'}, 'all to wait');
$holder->query('ROLLBACK;');
is($_->[1]->receive, $sees{ $_->[0] }, "G4: $_->[0] has what is his, asked beside others") for @askers;
$_->close for $holder, map { $_->[1] } @askers;
$server->drain;
is($server->as('alice', q{SELECT running FROM shard_location('alice', 'alice 2')}), 't', 'one entity is looked up');
is($server->as('alice', q{SELECT running FROM shard_location('alice', 'alice 4')}), 'f', 'and so is one that is not there');
$server->log_is_clean;
done_testing();
