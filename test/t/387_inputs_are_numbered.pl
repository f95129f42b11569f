# What a home of a type with replicas takes in of its own node's messages, at a node that is alone in its sets (Q30, Q34): each has a
# number, which the record of its turn has and which no crash gives twice; parked ones stay until the turn is released; each is handled
# once and in order, whenever the server dies. Messages that wait have numbers of the shard.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use ShardMutant;
use ShardWire;
use Test::More;

my $node = ShardCluster->create('first', conf => "shard.region_workers = 1\nshard.inbox_max_size = '16MB'\nautovacuum = off");

sub sql { my ($sql) = @_; return $node->safe_psql('postgres', $sql) }

# A message is handled once it is written down; with "later" it fails as long as table closed has a row.
sql($ShardMutant::recorder);
sql(q{CREATE FUNCTION ignore(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN state});
sql(q{SELECT shard_start('alone', 'recorder', 64, replicas => 1, retry_backoff => '20 ms', max_retry_backoff => '50 ms', max_attempts => 1000)});
sql(q{SELECT shard_start('noise', 'ignore', 1)});
my $type = sql(q{SELECT type_id FROM shard.type WHERE type_name = 'alone'});

# An entity of each shard.
my @entities = split /\n/, sql(q{SELECT DISTINCT ON (shard_shard_id('alone', 'e' || i)) 'e' || i FROM generate_series(1, 2000) i ORDER BY shard_shard_id('alone', 'e' || i), i});
is(scalar @entities, 64, 'entities of all shards');

sub shard_of { my ($entity) = @_; return sql("SELECT shard_shard_id('alone', '$entity')") }

# One transaction that tells an entity numbers, one after the other.
sub tells { my ($entity, $more, @whats) = @_; return 'BEGIN; ' . join('', map { qq[SELECT shard_tell('alone', '$entity', '{"what": "$_"$more}'); ] } @whats) . 'COMMIT;' }

sub items
{
	my ($entity, $section, $what) = @_;
	return sql(sprintf q{SELECT string_agg(%s, ' ' ORDER BY turn, what) FROM shard.turn_records(%d, %d) WHERE section = '%s'}, $what, $type, shard_of($entity), $section);
}

sub handled { my ($entity) = @_; return ShardMutant::in_short(split / /, sql("SELECT coalesce(string_agg(what, ' ' ORDER BY pos), '') FROM seen WHERE entity = '$entity'")) }

sub mark
{
	my ($entity) = @_;
	my ($mark) = reverse split / /, items($entity, 'marks', q{split_part(what, ' ', 3)}) // '';
	return $mark // 0;
}

sub restart
{
	$node->crash_postmaster;
	$node->recover;
	sql(q{SELECT shard_drain('60 s')});
	return;
}

# Noise, until no row of the log says anything of what was done before.
sub empty_log
{
	my $rows = 'SELECT count(*) FROM ' . ShardCluster::inbox_rows('kind, type_id') . " WHERE kind = 23 OR type_id = $type";
	ShardCluster::wait_for_condition(sub {
		$node->psql('postgres', q{SELECT shard_tell('noise', 'n', to_jsonb((SELECT string_agg(md5(j::text), '') FROM generate_series(1, 200) j))) FROM generate_series(1, 100)});
		$node->drain;
		return sql($rows) == 0 }, 'the log to be emptied');
	return;
}

my @scenarios = (
	{
		promise => 'marks of inputs outlive the log, when a worker has read them in records',
		broken_by => ['MARKS_OF_INPUTS_FORGOTTEN'],
		run => sub {
			my $entity = shift @entities;
			sql("SELECT shard_ask('alone', '$entity', '{\"noop\": true}')");
			sql(tells($entity, '', 1 .. 3));
			$node->drain;
			my $mark = mark($entity);
			restart();
			empty_log();
			return (sql("SELECT coalesce(max(seq), 0) FROM shard.shard_input WHERE type_id = $type AND shard = " . shard_of($entity)), $mark);
		},
	},
	{
		promise => 'what waits in the stash has a number of its turn',
		broken_by => ['STASH_BY_NODE'],
		run => sub {
			my $entity = shift @entities;
			sql("SELECT shard_ask('alone', '$entity', '{\"noop\": true}')");
			sql('INSERT INTO closed VALUES (1)');
			sql(tells($entity, ', "fussy": true', 1, 2));
			sql(tells($entity, ', "fussy": true', 3));
			my $held = "FROM shard.held WHERE type_id = $type AND entity = '$entity'";
			$node->wait_for_value("SELECT count(*) $held", 3, 'messages to wait');
			my %record = map { split /-/ } split / /, items($entity, 'keys', q{CASE WHEN what = 'stash stash' THEN turn ELSE 0 END || '-1'});
			my @turns = split / /, sql("SELECT string_agg((seq >> 20)::text, ' ' ORDER BY seq) $held");
			sql('DELETE FROM closed');
			$node->drain;
			return (join(' ', map { $record{$_} // 'none' } @turns) . ', ' . handled($entity), '1 1 1, 1 to 3');
		},
	});
if (!ShardMutant::prove(@scenarios))
{
	done_testing();
	exit;
}

# --- what is in records ------------------------------------------------------------------------------

my $entity = shift @entities;
my $shard = shard_of($entity);
sql(tells($entity, '', 1, 2));
$node->drain;
is(sql("SELECT count(*) FROM shard.parked WHERE turn IS NULL"), 0, 'messages that came before their home wait no more');
$node->wait_for_value('SELECT count(*) FROM shard.parked', 0, 'them to go when the turn is released');
is(items($entity, 'inputs', 'what') // '', '', 'they are no rows of the log');
my $parked = mark($entity);
cmp_ok($parked, '>', 1, 'but have a mark');
sql(tells($entity, '', 3, 4));
sql(tells($entity, '', 5));
$node->drain;
is(items($entity, 'inputs', q{split_part(what, ' ', 2)}), join(' ', map { $parked + $_ } 1 .. 3), 'what is met behind them has the next numbers');
is(items($entity, 'inputs', q{split_part(what, ' ', 1)}),
	sql('SELECT string_agg(seq::text, \' \' ORDER BY seq) FROM ' . ShardCluster::inbox_rows('seq, type_id, shard, kind') . " WHERE kind = 1 AND type_id = $type AND shard = $shard AND seq > (SELECT min(split_part(what, ' ', 1)::int8) - 1 FROM shard.turn_records($type, $shard) WHERE section = 'inputs')"),
	'and the records say of which rows');
my $lane = ShardWire::lane_of($type, $shard);
is((split /, /, items($entity, 'marks', q{what || ','}))[-1] =~ s/,//r, "1 $lane " . ($parked + 3), 'the mark is that of the newest one');
is(handled($entity), '1 to 5', 'all are handled');

restart();
sql(tells($entity, '', 6));
$node->drain;
my ($newest) = reverse split / /, items($entity, 'inputs', q{split_part(what, ' ', 2)});
cmp_ok($newest, '>', $parked + 3, 'numbers go on above them when the server has died');

# --- crashes -----------------------------------------------------------------------------------------

# Parked, taken in, in the stash: each by several transactions; the last one comes when the server is back.
for my $point (qw(turn_recorded turn_recorded_committed parked_kept parked_kept_committed inputs_left inputs_left_committed))
{
	my ($what, @committed) = (0);
	$node->set_fault($point, 'crash');
	until ($node->fault_happened)
	{
		$entity = shift @entities or die "no shard is left for $point";
		($what, @committed) = (0);
		for my $count (2, 1, 3)
		{
			my @whats = map { ++$what } 1 .. $count;
			my ($status) = $node->psql('postgres', tells($entity, '', @whats));
			push @committed, @whats if $status == 0;
		}
		ShardCluster::wait_for_condition(sub {
			return $node->fault_happened || !@committed || ($node->psql('postgres', "SELECT count(*) FROM seen WHERE entity = '$entity' AND what = '$committed[-1]'"))[1] eq '1' }, 'what was told');
		ShardCluster::wait_for_condition(sub {
			return $node->fault_happened || ($node->psql('postgres', 'SELECT count(*) FROM shard.parked'))[1] eq '0' }, 'nothing to be parked any more');
	}
	$node->clear_fault;
	$node->recover;
	my ($status) = $node->psql('postgres', tells($entity, '', 'last'));
	is($status, 0, "after a crash at $point");
	$node->wait_until(sprintf(q{SELECT count(DISTINCT what) = %d FROM seen WHERE entity = '%s' AND what = ANY ('{%s,last}')}, @committed + 1, $entity, join ',', @committed), "what was told to be there after a crash at $point");
	sql(q{SELECT shard_drain('60 s')});
	my @seen = split / /, sql("SELECT string_agg(what, ' ' ORDER BY pos) FROM seen WHERE entity = '$entity'");
	my %seen;
	is(join(' ', grep { $seen{$_}++ } @seen), '', 'nothing is handled twice');
	is(join(' ', @seen), join(' ', (sort { $a <=> $b } grep { $_ ne 'last' } @seen), 'last'), 'all in order');
	$node->wait_for_value('SELECT count(*) FROM shard.parked', 0, 'nothing to be kept any more');
}
done_testing();
