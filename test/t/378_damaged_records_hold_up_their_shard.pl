# Turn records that cannot be read back, at the home or at a backup, while it runs or when it starts: they hold up the shard that
# they are of, which shard_health names, and no other one; the log is emptied all the same (Q5, Q7).

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use ShardNoise;
use PostgreSQL::Test::Utils;
use Test::More;

my $cluster = ShardNodes->create(3, conf => "shard.rebalance_interval = 0\nshard.voters = 3\nshard.region_workers = 1\nshard.inbox_max_size = '8MB'");
my ($one, $two, $three) = $cluster->nodes;
$cluster->sql_everywhere(q{
CREATE TABLE told (id text);
CREATE FUNCTION does(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	IF message ? 'id' THEN INSERT INTO told VALUES (message->>'id'); END IF;
	IF message ? 'tell' THEN PERFORM shard_tell('plain', 'p', jsonb_build_object('id', message->>'tell')); END IF;
	IF message ? 'noop' THEN RETURN state; END IF;
	RETURN jsonb_build_object('n', coalesce((state->>'n')::int, 0) + 1, 'mark', message->>'mark');
END $$;
});
$_->sql(q{SELECT shard_start('kept', 'does', 16, replicas => 1)}) for $one, $two;
# What is told there keeps nothing in the home's log while the backup is away.
$three->sql(q{SELECT shard_start_proxy('kept')});
$one->sql(q{SELECT shard_start('plain', 'does', 4)});
$one->sql(q{SELECT shard_start('alone', 'does', 16, replicas => 1)});
$cluster->start_recorder;
$cluster->wait_registered;
$cluster->allocate('plain', 'p');
plan skip_all => 'pages with checksums show the damage to the server' if $one->sql('SHOW data_checksums') eq 'on';
my $near = $cluster->entity_at('recorder', 1);

# Entities of shards of their own whose home is node 1.
my %shard;
$one->sql(q{SELECT shard_ask('kept', 'e' || i, '{"noop": true}', '60 s') FROM generate_series(0, 79) i});
my @entities = grep { !$shard{ $cluster->shard_of('kept', $_) }++ }
	split /\n/, $one->sql(q{SELECT entity FROM generate_series(0, 79) i, concat('e', i) AS entity, shard_location('kept', entity) WHERE node = 1 ORDER BY i});
my ($spoilt, $sound, $copied, $logged) = @entities;
my @of = map { $cluster->shard_of('kept', $_) } $spoilt, $sound, $copied, $logged;

sub restart { my ($node) = @_; $node->server->crash_postmaster; $node->server->start; $cluster->wait_up; return; }

sub ask { my ($type, $entity) = @_; return $one->sql("SELECT shard_ask('$type', '$entity', '{}', '60 s')->>'n'"); }

sub tells
{
	my ($entity, $mark) = @_;
	$three->sql("SELECT shard_tell('kept', '$entity', '{\"mark\": \"$mark\"}')");
	$one->wait_value("SELECT state->>'mark' FROM shard_entity.kept WHERE entity_id = '$entity'", $mark, "$mark to be handled");
	return;
}

# Changes a record in the log of a node whose server is down; both words have the same length.
sub damage
{
	my ($node, $mark, $with, @files) = @_;
	my $changed = 0;
	for my $file (@files)
	{
		my $bytes = PostgreSQL::Test::Utils::slurp_file($file);
		$changed += $bytes =~ s/\Q$mark\E/$with/g;
		open my $out, '+<', $file or die "$file: $!";
		binmode $out;
		print $out $bytes;
		close $out or die "$file: $!";
	}
	cmp_ok($changed, '>', 0, "record $mark is damaged at node " . $node->n);
	return;
}

# Where the log of a node is.
sub files
{
	my ($node) = @_;
	return grep { -s } map { $node->server->data_dir . '/' . $node->sql("SELECT pg_relation_filepath('$_')") } @ShardCluster::inbox_tables;
}

# The same of a node that is stopped for it.
sub damage_at_rest
{
	my ($node, $mark, $with) = @_;
	my @files = files($node);
	$node->server->stop;
	damage($node, $mark, $with, @files);
	$node->server->start;
	return;
}

# Fills the node's log until nothing of that is left in it.
sub empty_log
{
	my ($node, $mark) = @_;
	my $rows = 'SELECT count(*) FROM ' . ShardCluster::inbox_rows('kind, payload') . qq{ WHERE kind = 23 AND position('$mark'::bytea IN payload) > 0};
	ShardNoise::send_until($node, 'recorder', $near, sub { return $node->sql($rows) == 0 }, 'the segment with the record to be emptied');
	return;
}

sub named
{
	my ($pattern) = @_;
	$one->wait_until("SELECT EXISTS (SELECT FROM shard_health() h, unnest(h.problems) p WHERE p ~ '$pattern')", "health to say $pattern");
	return 1;
}

# --- a home reads it for its backup --------------------------------------------------------------------

$two->server->stop('immediate');
tells($spoilt, 'mark-1');
tells($sound, 'mark-2');
empty_log($one, 'mark-1');
is($one->sql(q{WITH u AS (UPDATE shard.turn_kept SET record = decode(replace(encode(record, 'hex'), encode('mark-1', 'hex'), encode('mark-w', 'hex')), 'hex')
	WHERE position('mark-1'::bytea IN record) > 0 RETURNING 1) SELECT count(*) FROM u}), 1, 'a record that is kept is damaged');
$two->server->start;
is(ask('kept', $sound), 2, 'a shard beside that of the record goes on');
named("copies at node 2 cannot follow .*1, one of them that of shard $of[0] of entity type \"kept\".*damaged");
like($one->error_of("SELECT shard_ask('kept', '$spoilt', '{}', '3 s')"), qr/SH100/, 'and that one does not');

# --- a home starts ------------------------------------------------------------------------------------------

$two->server->stop('immediate');
tells($logged, 'mark-3');
damage_at_rest($one, 'mark-3', 'mark-x');
$two->server->start;
$cluster->wait_up;
is(ask('kept', $sound), 3, 'when the home has started again, too');
named('copies at node 2 cannot follow .*2, one of them');

# --- its log is emptied -------------------------------------------------------------------------------------

empty_log($one, 'mark-x');
is($one->sql(q{SELECT shard FROM shard.turn_kept WHERE position('mark-x'::bytea IN record) > 0}), $of[3], 'the record is kept as it is');
is(ask('kept', $sound), 4, 'and others go on');
restart($one);
is(ask('kept', $sound), 5, 'also when it was started again');
named('copies at node 2 cannot follow .*2, one of them');

# --- a backup starts ----------------------------------------------------------------------------------------

is($one->sql("SELECT shard_ask('kept', '$copied', '{\"mark\": \"mark-4\"}', '60 s')->>'n'"), 1, 'something that the backup has');
damage_at_rest($two, 'mark-4', 'mark-y');
$cluster->wait_up;
is(ask('kept', $sound), 6, 'a shard beside it goes on');
like($one->error_of("SELECT shard_ask('kept', '$copied', '{}', '3 s')"), qr/SH100/, 'that of the record does not: its home has forgotten what the backup had stored');
named('copies at node 2 cannot follow .*3, one of them');
restart($one);
is(ask('kept', $copied), 3, 'the backup gets the record again from a home that has it still');

# --- what a turn told -----------------------------------------------------------------------------------------

my %alone;
my ($silent, $beside) = grep { !$alone{ $cluster->shard_of('alone', $_) }++ } map { "a$_" } 1 .. 50;
ask('alone', $_) for $silent, $beside;
$one->server->set_fault('output_left', 'freeze');
$one->sql("SELECT shard_tell('alone', '$silent', '{\"tell\": \"mark-5\"}')");
ShardCluster::wait_for_condition(sub { $one->server->fault_happened }, 'what it tells to be about to leave');
$one->sql('CHECKPOINT');
my @files = files($one);
$one->server->stop('immediate');
damage($one, 'mark-5', 'mark-z', @files);
$one->server->start;
$cluster->wait_up;
$one->server->clear_fault;
$one->sql("SELECT shard_ask('alone', '$beside', '{\"tell\": \"sound\"}', '60 s')");
$one->wait_value('SELECT string_agg(id, $$ $$) FROM told', 'sound', 'what a shard beside it tells');
named('have told is not sent: 1, one of them that of shard ' . $cluster->shard_of('alone', $silent) . ' of entity type "alone"');
done_testing();
