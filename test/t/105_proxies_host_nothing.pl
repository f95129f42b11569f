# C13, Y09: a node that called shard_start_proxy, and one whose roles do not fit the type's, send and
# ask like any other, and are home of nothing.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(3, confs => { 1 => q{shard.roles = 'front'}, 2 => q{shard.roles = 'back'}, 3 => q{shard.roles = 'back'} });
$cluster->start_counter(proxies => [1]);
$cluster->sql_everywhere(q{
CREATE FUNCTION backed(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql
RETURN jsonb_build_object('count', coalesce((state->>'count')::int, 0) + 1, 'at', current_setting('cluster_name'));
SELECT shard_start('backed', 'backed(jsonb,jsonb)', role => 'back');
});
$cluster->wait_registered;
my ($front) = $cluster->nodes;

my %where;
for my $id (1000 .. 1010)
{
	$front->add($id, 1);
	my $answer = $front->get($id);
	like($answer, qr/^1 from node[23]$/, "C13: entity $id answers through the proxy");
	$where{$1}++ if $answer =~ /from (\S+)/;
}
is(join(' ', sort keys %where), 'node2 node3', 'C13: from the nodes that host');
is($front->sql(q{SELECT count(*) FROM shard_homes WHERE node = 1 AND type_name = 'counter'}), 0, 'C13: the proxy is home of nothing');
is($front->sql('SELECT count(*) FROM shard_entity.counter'), 0, 'C13: and has no state') if $front->sql(q{SELECT to_regclass('shard_entity.counter') IS NOT NULL}) eq 't';

my $asked = join '', map { "SELECT shard_ask('backed', 'e$_', '1', '30 s')->>'at';\n" } 1 .. 20;
my %seen = map { $_ => 1 } split /\n/, $front->sql($asked);
is(join(' ', sort keys %seen), 'node2 node3', 'Y09: a type runs only on nodes with its role');
$front->wait_value(q{SELECT string_agg(node || ' ' || mode, ', ' ORDER BY node) FROM shard_current_regions WHERE type_name = 'counter'},
	'1 proxy, 2 hosting, 3 hosting', 'shard_current_regions to tell them apart');
is($front->sql(q{SELECT string_agg(mode, ' ') FROM shard_types WHERE type_name = 'counter'}), 'proxy', 'so does shard_types');
like($front->error_of(q{SELECT shard_stop_type('counter')}), qr/55000: .*is a proxy on this node.*HINT: .*host it/s, 'C13: a proxy has nothing to stop');
is($front->sql(q{SELECT string_agg(mode, ' ') FROM shard_types WHERE type_name = 'counter'}), 'proxy', 'and stays a proxy');
like($front->error_of(q{SELECT shard_try('counter', '1000', '1')}), qr/55000: .*(?:not hosted on this node|lives at node)/s, 'nor a handler to try');
$cluster->logs_are_clean;
done_testing();
