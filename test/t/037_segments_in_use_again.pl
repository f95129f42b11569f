# A worker has listed the segments of the inbox for its turn and not looked at them yet, when the oldest one is emptied and
# becomes the current one again. What is in it then comes after all that is in the others.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use ShardMutant;
use Test::More;

my $node = ShardCluster->create('first', conf => "shard.region_workers = 2\nshard.inbox_max_size = '16MB'\nautovacuum = off");
$node->start_recorder;
$node->safe_psql('postgres', q{
	CREATE FUNCTION ignore(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN state;
	SELECT shard_start('noise', 'ignore')});

my @entities = map { "e$_" } 1 .. 20;
my $current = 'SELECT segment FROM shard_stat_inbox WHERE current';
my $pad = q{(SELECT string_agg(md5(j::text), '') FROM generate_series(1, 200) j)};
sub tell_all { my ($from, $to) = @_; return $node->safe_psql('postgres', join '', map { ShardCluster::tell_recorder($_, $from, $to) } @entities) }

# To entities of both workers, so that each comes by, until a segment is the current one or no more.
sub fill
{
	my ($until, $what) = @_;
	ShardCluster::wait_for_condition(sub {
		$node->safe_psql('postgres', qq{SELECT count(shard_tell('noise', 'n' || i, jsonb_build_object('noise', $pad))) FROM generate_series(1, 20) i});
		return $until->($node->safe_psql('postgres', $current)) }, $what);
	return;
}

ShardMutant::prove({
	promise => 'a segment that is emptied and used again after it was listed is read in its place',
	broken_by => ['LIST_BELIEVED'],
	run => sub {
		tell_all(1);
		$node->drain;
		my $oldest = $node->safe_psql('postgres', $current);
		my $keeper = $node->session;
		$keeper->query("BEGIN; SELECT count(*) FROM shard.inbox_$oldest;");
		fill(sub { $_[0] != $oldest }, 'the next segment to be begun');
		tell_all(2);
		$node->drain;
		# All lanes have passed it now, and nothing but the lock keeps it.
		$node->wait_until("SELECT blocked_by LIKE 'lock of process %' FROM shard_stat_inbox WHERE segment = $oldest", 'the segment to be passed');

		$node->set_fault('turn_listed', 'freeze');
		ShardCluster::wait_for_condition(sub { $node->fault_happened }, 'a worker to list the segments');
		tell_all(3, 5);
		$keeper->query('COMMIT;');
		fill(sub { $_[0] == $oldest }, 'the segment to be current again');
		tell_all(6, 8);
		$node->clear_fault;
		$node->drain;
		return (join("\n", map { $node->safe_psql('postgres', ShardCluster::recorded($_)) } @entities), join("\n", ('1 2 3 4 5 6 7 8 = 8') x @entities));
	}});
done_testing();
