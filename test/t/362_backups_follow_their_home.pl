# What a shard with replicas does is shown when its backup has stored it (Q6, Q7, Q11): while the backup is away, an ask ends
# by its time-out, and what was told waits; then everything goes on. So it is after a kill -9 of either side at each step of a
# record on its way; no message is lost, none is handled twice, and the backup has the home's history, record by record.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use ShardWire;
use Test::More;

my $cluster = ShardNodes->create(3, conf => "shard.rebalance_interval = 0\nshard.voters = 3");
my @nodes = $cluster->nodes;

$cluster->sql_everywhere(q{CREATE FUNCTION count_up(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql
	RETURN jsonb_build_object('count', coalesce((state->>'count')::int, 0) + 1)});
$_->sql(q{SELECT shard_start('kept', 'count_up', 12, replicas => 1)}) for @nodes;
$cluster->wait_registered;
$nodes[0]->sql(q{SELECT shard_tell('kept', i::text, '{}') FROM generate_series(1, 200) i});
$_->wait_value(q{SELECT count(DISTINCT shard) FROM shard_replicas}, 12, 'all homes') for @nodes;

my ($shard, $home_n, $backup_n) = split /\|/, $nodes[0]->sql(q{SELECT h.shard, h.node, b.node FROM shard_replicas h JOIN shard_replicas b USING (shard)
	WHERE h.role = 'home' AND b.role = 'backup' ORDER BY 1 LIMIT 1});
my ($home, $backup) = map { $cluster->node($_) } $home_n, $backup_n;
my ($other) = grep { $_->n != $home_n && $_->n != $backup_n } @nodes;
my ($entity) = grep { $cluster->shard_of('kept', $_) == $shard } map { "e$_" } 1 .. 1000;
my $count = 0;

sub tells { my ($node) = @_; $count++; return $node->sql("SELECT shard_tell('kept', '$entity', '{}')"); }
sub ask_sql { my ($timeout) = @_; return "SELECT shard_ask('kept', '$entity', '{}', '$timeout')->>'count'"; }
sub asks { my ($node, $what) = @_; $count++; is($node->sql(ask_sql('180 s')), $count, $what); return; }

# The records of a shard that a node has: turn => sum.
sub records
{
	my ($node) = @_;
	my $log = ShardCluster::inbox_rows('seq, kind, chunk, payload');
	my $type = $node->sql(q{SELECT type_id FROM shard.type WHERE type_name = 'kept'});
	my %sum;
	for my $row (split /\n/, $node->sql("SELECT string_agg(encode(payload, 'hex'), '' ORDER BY chunk) FROM $log WHERE kind = 23 GROUP BY seq ORDER BY seq"))
	{
		my $bytes = pack 'H*', $row;
		while (length $bytes)
		{
			my ($length, $sum) = unpack 'VV', $bytes;
			my ($version, $type_id, $of, $epoch, $turn) = map { ShardWire::_number($_) } substr($bytes, 8, $length) =~ /\G([\x80-\xff]*[\x00-\x7f])/gs;
			$sum{ $turn >> 1 } = $sum if $type_id >> 1 == $type && $of >> 1 == $shard;
			$bytes = substr $bytes, 8 + $length;
			$bytes = substr $bytes, 4 + unpack 'V', $bytes;
		}
	}
	return \%sum;
}

# --- both are there ----------------------------------------------------------------------------------

asks($home, 'an ask at the home is answered');
asks($_, "at node @{[$_->n]}, too") for $other, $backup;
tells($_) for @nodes;
asks($home, 'what was told is handled');

# --- the backup is away ------------------------------------------------------------------------------

$backup->server->stop('immediate');
like($home->error_of(ask_sql('2 s')), qr/SH100/, 'without the backup an ask ends by its time-out');
$count++;
tells($home);
$backup->server->start;
asks($home, 'when it is back all that waited is done, and shown');

# --- crashes -----------------------------------------------------------------------------------------

for my $fault ([ $backup, 'store_before_commit' ], [ $backup, 'store_after_commit' ], [ $backup, 'store_past_gate' ], [ $home, 'records_shipped' ])
{
	my ($node, $point) = @$fault;
	$node->server->set_fault($point, 'crash');
	tells($other);
	ShardCluster::wait_for_condition(sub { $node->server->fault_happened }, "the crash at $point");
	$node->server->recover;
	$node->server->clear_fault;
	asks($other, "after a crash at $point all is handled once");
}
$home->server->crash_postmaster;
$home->server->start;
asks($other, 'after a crash of the home, too');

# --- what they have ----------------------------------------------------------------------------------

my ($made, $stored) = (records($home), records($backup));
cmp_ok(scalar keys %$made, '>', 5, 'the home has made records');
is(join(' ', grep { !defined $stored->{$_} || $stored->{$_} != $made->{$_} } sort { $a <=> $b } keys %$made), '', 'and the backup has each of them as it is');
is(join(' ', sort { $a <=> $b } keys %$stored), join(' ', 1 .. keys %$stored), 'without a gap');
$cluster->logs_are_clean(@ShardNodes::link_troubles, qr/turn records cannot be stored/);
done_testing();
