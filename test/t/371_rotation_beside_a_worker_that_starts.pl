# A worker starts, and does not know yet of which shards there are copies, when another one empties the segment with their turn
# records, which the former process had passed. What is needed of it stays (Q5).

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use Test::More;

my $node = ShardCluster->create('first', conf => "shard.region_workers = 2\nshard.inbox_max_size = '16MB'\nautovacuum = off");

sub sql { my ($sql) = @_; return $node->safe_psql('postgres', $sql) }

sql(q{
	CREATE FUNCTION ignore(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN state;
	CREATE FUNCTION keep(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN message;
	SELECT shard_start('noise', 'ignore');
	SELECT shard_start('kept', 'keep', 32, replicas => 1);
	SELECT shard_ask('kept', i::text, '{}') FROM generate_series(1, 200) i});
$node->drain;
my $current = 'SELECT segment FROM shard_stat_inbox WHERE current';
my $newest = q{SELECT string_agg(shard || ' ' || turn, ', ' ORDER BY shard) FROM (SELECT c.shard, max(r.turn) AS turn
	FROM shard.copy c LEFT JOIN LATERAL shard.turn_records(c.type_id, c.shard) r ON r.section = 'record' GROUP BY c.shard) s};
my $before = sql($newest);
is(scalar(() = $before =~ /\d+ \d+/g), 32, 'all shards have done something');

# Nothing but a lock keeps the segment with the records.
my $oldest = sql($current);
my $keeper = $node->session;
$keeper->query("BEGIN; SELECT count(*) FROM shard.inbox_$oldest;");
my $pad = q{(SELECT string_agg(md5(j::text), '') FROM generate_series(1, 200) j)};
ShardCluster::wait_for_condition(sub {
	sql(qq{SELECT count(shard_tell('noise', 'n' || i, jsonb_build_object('noise', $pad))) FROM generate_series(1, 20) i});
	return sql($current) != $oldest }, 'the next segment to be begun');
$node->drain;
$node->wait_until("SELECT blocked_by LIKE 'lock of process %' FROM shard_stat_inbox WHERE segment = $oldest", 'the segment to be passed');

$node->set_fault('sets_forgotten', 'freeze');
sql(q{SELECT pg_terminate_backend(min(pid)) FROM pg_stat_activity WHERE backend_type = 'shard region'});
ShardCluster::wait_for_condition(sub { $node->fault_happened }, 'another process to start');
$keeper->query('COMMIT;');
$node->wait_until("SELECT NOT EXISTS (SELECT FROM shard.inbox_$oldest)", 'the segment to be emptied');
$node->clear_fault;
$node->drain;
is(sql($newest), $before, 'the newest record of each shard is there');

# Nothing else says where their histories end.
$node->crash_postmaster;
$node->recover;
sql(q{SELECT shard_ask('kept', i::text, '{"more": true}') FROM generate_series(1, 200) i});
my %turn = split / |, /, sql($newest);
my %was = split / |, /, $before;
is(join(' ', grep { $turn{$_} <= $was{$_} } sort keys %was), '', 'turns go on from where they were');
done_testing();
