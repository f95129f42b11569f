# A node of another server version joins: messages and asks both ways, its crash, and its turn as
# coordinator. SHARD_OTHER_SERVER is the installation to take, as test/mixed.sh prepares it.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;

my $other = $ENV{SHARD_OTHER_SERVER};
plan skip_all => 'no second server version: see test/mixed.sh' unless $other;

my $cluster = ShardNodes->create(3, install => { 2 => $other });
my ($one, $two, $three) = $cluster->nodes;
my @version = map { $_->sql('SELECT current_setting($$server_version$$)') } $one, $two;
note("versions @version");
isnt($version[0] =~ s/\D.*//r, $version[1] =~ s/\D.*//r, "PostgreSQL $version[0] and $version[1]");
$cluster->start_recorder;
my @entity = map { $cluster->entity_at('recorder', $_) } 1 .. 3;
my $sent = 0;
my $exchange = sub {
	my ($what) = @_;
	for my $node ($cluster->nodes)
	{
		$node->sql(join '', map { ShardCluster::tell_recorder($_, $sent + 1, $sent + 20) } @entity);
		$sent += 20;
		$cluster->wait_recorded($entity[$_], $_ + 1, 1 .. $sent) for 0 .. 2;
		is($node->sql(qq{SELECT shard_ask('recorder', '$entity[$_]', '{"noop": 1}', '30 s')->>'count'}), $sent,
			"$what: node " . $node->n . ' asks node ' . ($_ + 1)) for 0 .. 2;
	}
};
$exchange->('joined');
$two->server->crash;
$two->server->recover;
$cluster->wait_up;
$exchange->('after a crash');
# Until it is its turn.
for (1 .. 3)
{
	my $coordinator = $cluster->coordinator($two);
	last if $coordinator->n == 2;
	$coordinator->server->stop('immediate');
	$two->wait_until('SELECT count(*) = 1 FROM shard_members WHERE coordinator AND node <> ' . $coordinator->n, 'another coordinator');
	$coordinator->server->recover;
	$cluster->wait_up;
}
note('coordinator: node ' . $cluster->coordinator->n);
$exchange->('under another coordinator');
$cluster->drain;
$cluster->logs_are_clean(@ShardNodes::link_troubles);
done_testing();
