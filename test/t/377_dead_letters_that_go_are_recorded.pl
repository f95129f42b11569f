# Three nodes, a type with replicas: what SQL changes at a shard's home (Q33), and which of its dead letters are gone (Q35), comes to its
# backup with the records of the next turns; at the backup's own table SQL changes nothing.

use strict;
use warnings FATAL => 'all';

use ShardMutant;
use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(3, conf => "shard.rebalance_interval = 0\nshard.voters = 3");
my @nodes = $cluster->nodes;

$cluster->sql_everywhere(q{CREATE FUNCTION may(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	IF message ? 'fail' THEN RAISE EXCEPTION 'fails %', message->>'fail'; END IF;
	RETURN jsonb_build_object('n', coalesce((state->>'n')::int, 0) + 1);
END $$});
$_->sql(q{SELECT shard_start('kept', 'may', 6, replicas => 1, max_attempts => 1)}) for @nodes;
$cluster->wait_registered;
$nodes[0]->sql(q{SELECT shard_ask('kept', i::text, '{}', '60 s') FROM generate_series(1, 60) i});
$_->wait_value(q{SELECT count(DISTINCT shard) FROM shard_replicas}, 6, 'all homes') for @nodes;
my $coordinator = $cluster->coordinator($nodes[0])->n;
my ($shard, $home_n, $backup_n) = split /\|/, $nodes[0]->sql(q{SELECT h.shard, h.node, b.node FROM shard_replicas h JOIN shard_replicas b USING (shard)
	WHERE h.role = 'home' AND b.role = 'backup' ORDER BY 1 LIMIT 1});
my ($home, $backup) = map { $cluster->node($_) } $home_n, $backup_n;
my $type = $home->sql(q{SELECT type_id FROM shard.type WHERE type_name = 'kept'});
my ($one, $two) = split /\|/, $home->sql(qq{SELECT min(i), max(i) FROM generate_series(1, 60) i WHERE shard_shard_id('kept', i::text) = $shard});

sub last_turn { return $home->sql("SELECT coalesce(max(turn), 0) FROM shard.turn_records($type, $shard)") }

# What the records of the shard have behind a turn, at both.
sub told
{
	my ($turn, $section) = @_;
	$home->sql(q{SELECT shard_drain('60 s')});
	my $end = last_turn();
	$backup->wait_until("SELECT coalesce(max(turn), 0) >= $end FROM shard.turn_records($type, $shard)", 'the backup to have them');
	my @told = map { $_->sql("SELECT string_agg(concat_ws(' ', entity, what), ', ' ORDER BY turn, what) FROM shard.turn_records($type, $shard) WHERE section = '$section' AND turn > $turn") } $home, $backup;
	is($told[0], $told[1], "$section: the same at both");
	return $told[0];
}

my $turn = last_turn();
$home->sql("UPDATE shard_entity.kept SET state = '{\"n\": 70}' WHERE entity_id = '$one'");
is(told($turn, 'images'), $one, 'SQL at the home');
$turn = last_turn();
$home->sql("DELETE FROM shard_entity.kept WHERE entity_id = '$two'");
is(told($turn, 'images'), "$two gone", 'a row that is gone');
$turn = last_turn();
$backup->sql("INSERT INTO shard_entity.kept (shard, entity_id, state) VALUES ($shard, '$two', '{}')");
$backup->sql(q{SELECT shard_drain('60 s')});
is(told($turn, 'images'), '', 'SQL at the backup is nothing');

# --- dead letters ----------------------------------------------------------------------------------------

sub fails_with { my (@which) = @_; $home->sql(qq{SELECT shard_tell('kept', '$one', '{"fail": "$_"}')}) for @which; return }
sub named { return $home->sql('SELECT string_agg(number::text, \' \' ORDER BY id) FROM shard.dead_letter') }
$turn = last_turn();
fails_with('a', 'b', 'c', 'd');
is(told($turn, 'letters'), join(', ', map { "$one fails $_" } qw(a b c d)), 'dead letters');
my @name = split / /, named();
is(scalar(@name), 4, 'each has a name');
is(scalar(grep { $name[$_] > $name[ $_ - 1 ] } 1 .. 3), 3, 'which rise');
$turn = last_turn();
$home->sql(q{SELECT shard_discard(ARRAY[min(id)]) FROM shard.dead_letter});
is(told($turn, 'letters'), "$name[0] gone", 'one that was discarded');
$turn = last_turn();
$home->sql(q{BEGIN; DELETE FROM shard.dead_letter; ROLLBACK; DELETE FROM shard.dead_letter WHERE id = (SELECT min(id) FROM shard.dead_letter)});
is(told($turn, 'letters'), "$name[1] gone", 'one that a superuser deleted');
$cluster->sql_everywhere(q{CREATE OR REPLACE FUNCTION may(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN state || message});
$turn = last_turn();
my $log = ShardCluster::inbox_rows('kind, seq');
my $seq = $home->sql("SELECT max(seq) FROM $log");
$home->sql(q{SELECT shard_redrive()});
is($home->sql("SELECT string_agg(kind::text, ' ' ORDER BY seq) FROM $log WHERE seq > $seq AND kind IN (1, 25)"), '1 1 25 25', 'messages are sent again before their letters go');
is(told($turn, 'letters'), "$name[2] gone, $name[3] gone", 'those that were sent again');
is($home->sql(q{SELECT count(*) FROM shard.dead_letter}), 0, 'none is left');

# A crash between the deletion and the turn that meets it.
$cluster->sql_everywhere(q{CREATE OR REPLACE FUNCTION may(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION ''fails''; END'});
for my $point (qw(outside_met turn_recorded))
{
	$turn = last_turn();
	fails_with('e');
	told($turn, 'letters');
	my ($name) = named();
	$turn = last_turn();
	$home->server->set_fault($point, 'crash');
	$home->server->psql('postgres', q{SELECT shard_discard(type_name => 'kept')});
	ShardCluster::wait_for_condition(sub { $home->server->fault_happened }, $point);
	$home->server->clear_fault;
	$home->server->recover;
	$home->wait_until('SELECT EXISTS (SELECT FROM shard_replicas)', 'the home to be back');
	is($home->sql(q{SELECT count(*) FROM shard.dead_letter}), 0, 'the letter is gone');
	like(told($turn, 'letters'), qr/^$name gone$/, "a crash at $point");
}

# --- another life of the shard ------------------------------------------------------------------------------

# What a letter was called before the shard began without its state, means another one there.
ShardMutant::prove(
	{
		promise => 'a dead letter of another life of its shard is not taken for one of this',
		broken_by => ['LETTERS_OF_ANOTHER_LIFE'],
		run => sub {
			$turn = last_turn();
			fails_with('f');
			told($turn, 'letters');
			$home->sql('UPDATE shard.dead_letter SET lost = lost + 1');
			$turn = last_turn();
			$home->sql(q{SELECT shard_discard(type_name => 'kept')});
			return (told($turn, 'letters'), '');
		},
	});
done_testing();
