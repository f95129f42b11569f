# P69: a member answers the question behind shard_rebalances with a hundred thousand lines, where a node has some thousand. When
# each was compared with all others nobody could end the backend that did so: not statement_timeout, not pg_terminate_backend(),
# not a fast stop of the server. Its words are shown as its own (P70). Who answers with more rows of other views than a node can have is named there.

use strict;
use warnings FATAL => 'all';

use PostgreSQL::Test::Utils;
use ShardNodes;
use Test::More;

# Many enough to hold up whoever compares each with all others; and more than a node can have, which any machine sends in time.
my $lines = 131072;
my $few = 20000;
my $cluster = ShardNodes->create(2);
my ($good, $evil) = $cluster->nodes;
$cluster->start_counter;
$good->sql('CREATE ROLE watcher; GRANT pg_monitor TO watcher');

# What its own server says of copies of shards, and of decisions.
sub say_lines
{
	my $count = shift;
	$evil->sql(<<SQL);
CREATE OR REPLACE FUNCTION shard.imports(OUT type_id int4, OUT shard int4, OUT epoch int4, OUT move_id int8, OUT from_node int4, OUT phase text,
	OUT rows_copied int8, OUT rows_total int8, OUT bytes_copied int8, OUT started timestamptz, OUT changed timestamptz, OUT error text)
RETURNS SETOF record LANGUAGE sql VOLATILE PARALLEL UNSAFE AS
\$\$ SELECT 1, n, 1, 1::int8, 1, 'failed', 0::int8, 0::int8, 0::int8, now(), now(), 'line ' || n FROM pg_catalog.generate_series(1, $count) n \$\$;
SQL
	is($evil->sql('SELECT count(*) FROM shard.imports()'), $count, "there are $count lines");
	return;
}

$evil->sql(q{INSERT INTO shard.decision (kind, why) SELECT 'moved', 'line ' || n FROM generate_series(1, 20001) n});

# What a reader is told within some seconds; undef: his backend is still at it.
sub look
{
	my ($role, $sql) = @_;
	my $timed_out;
	my (undef, $out, $err) = $good->try("SET ROLE $role; SET statement_timeout = '20s'; $sql", timeout => 40, timed_out => \$timed_out);
	return $timed_out ? undef : $out . $err;
}

# A node that does not answer in time is left out, which this one may be on a slow machine: then once more.
sub look_for
{
	my ($role, $sql, $expected, $patience) = @_;
	my $until = time() + ($patience // $PostgreSQL::Test::Utils::timeout_default);
	my $seen;
	do
	{
		$seen = look($role, $sql);
	} until (!defined $seen || $seen =~ $expected || time() > $until);
	return $seen;
}

say_lines($lines);
ok(defined look_for('watcher', 'SELECT count(*) FROM shard_rebalances', qr/^[1-9]/, 15), 'P69 whoever reads shard_rebalances gets an answer, or an error')
	or die 'nobody can end that backend';
say_lines($few);
my $count = look_for('watcher', 'SELECT count(*) FROM shard_rebalances', qr/^[1-9]/);
cmp_ok($count, '>', 0, 'P69 it has lines of the other node');
cmp_ok($count, '<', 5000, 'P69 and not more than a node has');
is(look_for('none', "SELECT count(*) FILTER (WHERE error NOT LIKE 'node 2 says: line %') || ' ' || count(DISTINCT to_node) FROM shard_rebalances", qr/ [1-9]/), '0 1',
	'P70 whose words these are');
is(look_for('none', "SELECT (count(*) FILTER (WHERE what = 'moved')) || ' ' || string_agg(why, '') FILTER (WHERE what = 'no answer') FROM shard_decisions WHERE node = 2",
		qr/^[1-9]/),
	'20000 the answer has more than 20000 rows', 'P69 of decisions it is said that there are too many');
is($good->sql('SELECT count(*) FROM shard_members WHERE status = $$up$$'), 2, 'and all goes on');
done_testing();
