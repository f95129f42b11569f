# What a backup has applied it needs no more: the records leave with the segment of the log that they are in, but for the newest
# one of each shard, whatever they have (Q5, Q10). It goes on from there, also after a start.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use ShardNoise;
use Test::More;

my $cluster = ShardNodes->create(2, conf => "shard.rebalance_interval = 0\nshard.voters = 1\nshard.region_workers = 1\nshard.inbox_max_size = '8MB'");
my ($home, $backup) = $cluster->nodes;
$cluster->sql_everywhere(q{
	CREATE FUNCTION adds(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql
		RETURN to_jsonb(coalesce((state)::int, 0) + coalesce((message->>'add')::int, 0))});
$_->sql(q{SELECT shard_start('kept', 'adds', 8, replicas => 1)}) for $home, $backup;
$cluster->start_recorder;
$cluster->wait_registered;
my $near = $cluster->entity_at('recorder', 2);

# Entities of shards of their own whose home is node 1. An ask at the home has no mark, as the first one, which brings the homes; a message
# has one.
$home->sql(q{SELECT shard_ask('kept', 'e' || i, '{}', '60 s') FROM generate_series(0, 39) i});
my %seen;
my ($alone, $marked) = grep { !$seen{ $cluster->shard_of('kept', $_) }++ } split /\n/, $home->sql(q{SELECT entity FROM generate_series(0, 39) i, concat('e', i) AS entity, shard_location('kept', entity) WHERE node = 1 ORDER BY i});
my ($shard, $with_mark) = map { $cluster->shard_of('kept', $_) } $alone, $marked;
my $type = $backup->sql(q{SELECT type_id FROM shard.type WHERE type_name = 'kept'});

sub add { my ($entity, $n) = @_; $home->sql("SELECT shard_ask('kept', '$entity', '{\"add\": $n}', '60 s')"); return; }
sub applied { my ($of) = @_; return "SELECT applied FROM shard.copy WHERE type_id = $type AND shard = $of"; }
sub newest { my ($of) = @_; return $home->sql("SELECT max(turn) FROM shard.turn_records($type, $of)"); }
sub wait_applied { my ($of) = @_; $backup->wait_value(applied($of), newest($of), 'all to be applied'); return; }
sub same { my ($entity, $what) = @_; is($backup->sql("SELECT state FROM shard_replica.kept WHERE entity_id = '$entity'"), $home->sql("SELECT state FROM shard_entity.kept WHERE entity_id = '$entity'"), $what); return; }
sub turns { my ($of) = @_; return $backup->sql("SELECT string_agg(turn::text, ' ' ORDER BY turn) FROM shard.turn_kept WHERE type_id = $type AND shard = $of"); }

add($alone, $_) for 1 .. 5;
add($marked, $_) for 1 .. 2;
$backup->sql("SELECT shard_tell('kept', '$marked', '{\"add\": 3}')");
$home->wait_value("SELECT state FROM shard_entity.kept WHERE entity_id = '$marked'", 6, 'the message of the other node to be handled');
add($marked, $_) for 4 .. 5;
wait_applied($_) for $shard, $with_mark;
same($alone, 'one that has states alone is applied');
same($marked, 'one with a mark is, too');

my $in_log = 'SELECT count(*) FROM ' . ShardCluster::inbox_rows('kind') . ' WHERE kind = 23';
ShardNoise::send_until($backup, 'recorder', $near, sub { return $backup->sql($in_log) == 0 }, 'the segments with the records to be emptied');
is(turns($_), newest($_), 'of its records the newest is left') for $shard, $with_mark;

# Nothing but that record, and its row, says where the copy stands.
$backup->server->crash_postmaster;
$backup->server->recover;
$cluster->wait_up;
add($alone, 6);
add($marked, 6);
wait_applied($_) for $shard, $with_mark;
same($_, 'it goes on after a start') for $alone, $marked;

# Records that are applied out of the table, and out of the log.
$backup->sql(q{SELECT shard_stop_type('kept')});
my $stood = $backup->sql(applied($shard));
add($alone, 7) for 1 .. 3;
ShardNoise::send_until($backup, 'recorder', $near, sub { return $backup->sql($in_log) == 0 }, 'the segments with more records to be emptied');
add($alone, 8);
is($backup->sql(applied($shard)), $stood, 'nothing is applied while the type is stopped');
like(turns($shard), qr/^$stood .* @{[ newest($shard) - 1 ]}$/, 'what is not applied stays');
$backup->sql(q{SELECT shard_start('kept', 'adds', 8, replicas => 1)});
wait_applied($shard);
same($alone, 'what was in the table and what is in the log is applied');

# One that has a row which no table here can have, holds up its own copy, and no other one, and nothing of it is applied.
sub crc32c
{
	my ($bytes) = @_;
	my $crc = 0xffffffff;
	for my $byte (unpack 'C*', $bytes)
	{
		$crc ^= $byte;
		$crc = $crc & 1 ? ($crc >> 1) ^ 0x82f63b78 : $crc >> 1 for 1 .. 8;
	}
	return $crc ^ 0xffffffff;
}

$backup->sql(q{SELECT shard_stop_type('kept')});
$stood = $backup->sql(applied($shard));
add($_, 9) for $alone, $alone, $marked;
ShardNoise::send_until($backup, 'recorder', $near, sub { return $backup->sql($in_log) == 0 }, 'the segments with them to be emptied');
my $at = "FROM shard.turn_kept WHERE type_id = $type AND shard = $shard AND turn = $stood + 2";
add($alone, 9);
my $kept = $backup->sql("SELECT encode(record, 'hex') $at");
my ($length, undef) = unpack 'VV', my $record = pack 'H*', $kept;
(my $body = substr $record, 8, $length) =~ s/\Q$alone\E/"\xff" x length $alone/ge;
my $spoilt = unpack 'H*', pack('VV', $length, crc32c($body)) . $body . substr $record, 8 + $length;
isnt($spoilt, $kept, 'a record is changed');
$backup->sql("UPDATE shard.turn_kept SET record = decode('$spoilt', 'hex') WHERE type_id = $type AND shard = $shard AND turn = $stood + 2");
$backup->sql(q{SELECT shard_start('kept', 'adds', 8, replicas => 1)});
wait_applied($with_mark);
$backup->wait_until("SELECT EXISTS (SELECT FROM shard_health() h, unnest(h.problems) p WHERE p ~ 'cannot apply it: record @{[ $stood + 2 ]} of shard $shard is damaged: images')", 'health to say what is damaged');
is($backup->sql(applied($shard)), $stood + 1, 'what stands before it is applied, and nothing of it');
$backup->sql("UPDATE shard.turn_kept SET record = decode('$kept', 'hex') WHERE type_id = $type AND shard = $shard AND turn = $stood + 2");
wait_applied($shard);
same($alone, 'all is applied when the record is sound again');

# One that is gone holds up its own copy, and no other one.
$backup->sql(q{SELECT shard_stop_type('kept')});
$stood = $backup->sql(applied($shard));
add($_, 9) for $alone, $alone, $marked;
ShardNoise::send_until($backup, 'recorder', $near, sub { return $backup->sql($in_log) == 0 }, 'the segments with them to be emptied');
my $gone = $stood + 1;
is($backup->sql("DELETE FROM shard.turn_kept WHERE type_id = $type AND shard = $shard AND turn = $gone RETURNING turn"), $gone, 'a record is taken away');
$backup->sql(q{SELECT shard_start('kept', 'adds', 8, replicas => 1)});
wait_applied($with_mark);
same($marked, 'another shard is applied');
$backup->wait_until("SELECT EXISTS (SELECT FROM shard_health() h, unnest(h.problems) p WHERE p ~ 'cannot apply it: record $gone of shard $shard is gone, or damaged')", 'health to say which record is gone');
is($backup->sql(applied($shard)), $stood, 'nothing behind it is applied');
done_testing();
