# What a backup takes of its shards' home, by calls that are made here in the home's name (Q7 to Q9, Q36): it compares each
# record with the one before it, stores it once, and knows where it stands after a crash, and when the log was emptied. From
# others, and under other epochs, it takes nothing.

use strict;
use warnings FATAL => 'all';

use ShardMutant;
use ShardNodes;
use ShardNoise;
use ShardWire;
use Test::More;

my $cluster = ShardNodes->create(3, conf => "shard.rebalance_interval = 0\nshard.voters = 3\nshard.inbox_max_size = '8MB'");
my @nodes = $cluster->nodes;

$cluster->sql_everywhere(q{CREATE FUNCTION keep(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN state});
$_->sql(q{SELECT shard_start('kept', 'keep', 12, replicas => 1)}) for @nodes;
$cluster->start_recorder;
$cluster->wait_registered;
# Homes of which nothing is recorded: an ask that only looks is no turn of its shard.
$nodes[0]->sql(q{SELECT shard_ask('kept', i::text, '{}', '60 s') FROM generate_series(1, 200) i});
$_->wait_value(q{SELECT count(DISTINCT shard) FROM shard_replicas}, 12, 'all homes') for @nodes;

# A shard whose home is not the coordinator, and its backup, which is to come back while the home is away.
my $coordinator = $cluster->coordinator($nodes[0])->n;
# Two shards of that home and that backup.
my ($shard, $beside, $home_n, $backup_n) = split /\|/, $nodes[0]->sql(qq{SELECT min(h.shard), max(h.shard), h.node, b.node FROM shard_replicas h JOIN shard_replicas b USING (shard)
	WHERE h.role = 'home' AND b.role = 'backup' AND h.node <> $coordinator GROUP BY 3, 4 HAVING count(*) > 1 ORDER BY 1 LIMIT 1});
my ($home, $backup) = map { $cluster->node($_) } $home_n, $backup_n;
my ($other) = grep { $_->n != $home_n && $_->n != $backup_n } @nodes;
my $type = $backup->sql(q{SELECT type_id FROM shard.type WHERE type_name = 'kept'});
my @of = (type_id => $type, shard => $shard);
my $stand = $backup->sql("SELECT epoch FROM shard.copy WHERE type_id = $type AND shard = $shard");
is($stand, 0, 'the first home');

my $near = $cluster->entity_at('recorder', $backup_n);

# The home does nothing from here on but what is called in its name.
my $liar = ShardWire::Member->new($home, $backup);
my $head = $liar->head;
my $stranger = ShardWire::Member->new($other, $backup);
$home->server->stop('immediate');

sub says { my (@offers) = @_; return ($liar->call(store_sql($head, @offers))); }
sub answer { my (@offers) = @_; my ($out, $errors, $text) = says(@offers); return $errors ne '' ? $text : stored($out); }
sub refused { my ($what, $bytes) = @_; is((says($bytes))[1], 'SH005', $what); return; }

sub rows_of
{
	my ($node) = @_;
	return $node->sql('SELECT count(*) FROM ' . ShardCluster::inbox_rows('kind') . ' WHERE kind = 23');
}

# The history of the shard, as its home would have made it.
my @record = (undef);
push @record, turn_record(@of, before => $record[-1], outputs => 2) for 1 .. 6;

# --- storing -----------------------------------------------------------------------------------------

is(answer(offer(@of, asks => {})), "$shard: stored 0 0", 'a copy of a shard that has done nothing has nothing');
is(answer(offer(@of, asks => $record[2])), "$shard: need 0 1", 'and needs all that there is');
is(answer(offer(@of, records => [ @record[ 1 .. 3 ] ])), "$shard: stored 3 0", 'it stores that');
my $rows = rows_of($backup);
is($rows, 1, 'as one row of its log');
is(answer(offer(@of, records => [ @record[ 1 .. 3 ] ])), "$shard: stored 3 0", 'acknowledges it again');
is(answer(offer(@of, asks => $record[2])), "$shard: forked 0 0", 'knows when the home has forgotten a turn');
is(rows_of($backup), $rows, 'and stores it once');
is(answer(offer(@of, records => [ $record[5] ])), "$shard: need 0 4", 'it takes nothing behind a gap');
my $false = turn_record(@of, before => $record[2], outputs => 1);
is(answer(offer(@of, records => [$false])), "$shard: forked 0 0", 'nor a turn of this epoch with another content');
my $strange = turn_record(@of, before => $false);
is(answer(offer(@of, records => [$strange])), "$shard: forked 0 0", 'nor one that follows it');
is(answer(offer(@of, released => 3)), "$shard: stored 0 0", 'it hears what is released');

# --- who may -----------------------------------------------------------------------------------------

is(stored(($stranger->call(store_sql($stranger->head, offer(@of, records => [ $record[4] ]))))[0]), "$shard: refused 0 0", 'not from another member');
is(answer(offer(@of, epoch => 1, records => [ $record[4] ])), '', 'under an epoch that is not there it answers nothing');
is(($liar->call(call_sql('store', ShardWire::Member->new($other, $backup)->head . section(40, 'x', 1))))[1], '0A000', 'a mandatory section that is not known');
$backup->sql('CREATE ROLE nobody LOGIN');
is((ShardWire::Member->new($other, $backup, 'nobody')->call(call_sql('store', $head)))[1], '42501', 'nor from a role that is no node');

# --- bytes -------------------------------------------------------------------------------------------

sub bad { my ($what, @records) = @_; is(answer(offer(@of, records => \@records)), "$shard: damaged 0 0", $what); return; }

my $changed = { bytes => $record[4]{bytes} =~ s/.\x00{4}\z/\x7f\x00\x00\x00\x00/sr };
bad('a record that was changed', $changed);
bad('one with inputs', { bytes => $record[4]{bytes} =~ s/\x00{4}\z/\x02\x00\x00\x00\x02\x02/r });
bad('one of another shard', turn_record(type_id => $type, shard => ($shard + 1) % 12));
bad('one of a newer epoch than its home', turn_record(@of, epoch => 1, before => $record[3]));
bad('records that do not follow one another', @record[ 4, 6 ]);
my @beside = (type_id => $type, shard => $beside);
is(answer(offer(@of, records => [$changed]), offer(@beside, records => [ turn_record(@beside) ])), "$shard: damaged 0 0, $beside: stored 1 0", 'a shard beside it is stored');
refused('fewer than it says', substr(offer(@of, records => [ $record[4] ]), 0, -1));
refused('a shard twice', offer(@of, asks => {}) . offer(@of, asks => {}));
srand(7);
says(ShardWire::mutate(offer(@of, records => [ $record[4] ]))) for 1 .. 20;
is(answer(offer(@of, asks => $record[3])), "$shard: stored 3 0", 'nothing of it was taken');

# --- errors right before the commit -------------------------------------------------------------------

$backup->server->set_fault('copy_ends_reserved', 'error');
like(answer(offer(@of, records => [ $record[4] ])), qr/XX000.*copy_ends_reserved/s, 'where a copy ends is not to be had');
is(answer(offer(@of, asks => $record[3])), "$shard: stored 3 0", 'so nothing was stored');
$backup->server->clear_fault;

# --- crashes -----------------------------------------------------------------------------------------

$backup->server->crash_postmaster;
$backup->server->start;
$backup->wait_until('SELECT EXISTS (SELECT FROM shard_replicas)', 'the backup to be back');
ShardCluster::wait_for_condition(sub { answer(offer(@of, asks => $record[3])) eq "$shard: stored 3 0" }, 'the copy to stand where it stood');
is(answer(offer(@of, records => [ $record[4] ])), "$shard: stored 4 0", 'and it goes on');

# --- the log is emptied ------------------------------------------------------------------------------

ShardNoise::send_until($backup, 'recorder', $near, sub { return rows_of($backup) == 0 }, 'the segment with the records to be emptied');
unless (ShardMutant::prove(
	{
		promise => 'records leave the log, are compared with, and followed, also where another content has the number',
		broken_by => ['RECORDS_LEAVE_WITH_LOG'],
		run => sub {
			my $kept = $backup->sql(qq{SELECT string_agg(turn::text, ' ' ORDER BY turn) FROM shard.turn_kept WHERE shard = $shard});
			my $followed = answer(offer(@of, records => [ @record[ 2 .. 5 ] ]));
			my $other = answer(offer(@of, records => [ turn_record(@of, before => $record[1], outputs => 9) ]));
			return ("$kept; $followed; $other", "1 2 3 4; $shard: stored 5 0; $shard: forked 0 0");
		},
	}))
{
	done_testing();
	exit;
}
$backup->server->crash_postmaster;
$backup->server->start;
$backup->wait_until('SELECT EXISTS (SELECT FROM shard_replicas)', 'the backup to be back');
ShardCluster::wait_for_condition(sub { answer(offer(@of, asks => $record[5])) eq "$shard: stored 5 0" }, 'the copy to stand where it stood');
is(answer(offer(@of, records => [ $record[6] ])), "$shard: stored 6 0", 'and it goes on, too');

# --- the home comes back, which has made none of that --------------------------------------------------

$home->server->start;
$cluster->wait_up;
$home->wait_until(qq{SELECT EXISTS (SELECT FROM shard_health() h, unnest(h.problems) p WHERE p ~ 'copies at node $backup_n cannot follow.*shard ($shard|$beside) of entity type "kept".*other turns')},
	'health to name copies that cannot follow');
done_testing();
