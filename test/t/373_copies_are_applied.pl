# A backup applies what it has stored and what is released: at rest shard_replica.<type> has of each copy what its home has of the
# shard, row by row; also when the backup dies at each step of that. What does not fit, or cannot run, is stored and said (Q10, Q32).

use strict;
use warnings FATAL => 'all';

use ShardMutant;
use ShardNodes;
use ShardNoise;
use Test::More;

my $cluster = ShardNodes->create(3, conf => "shard.rebalance_interval = 0\nshard.voters = 3\nshard.region_workers = 1\nshard.inbox_max_size = '8MB'");
my @nodes = $cluster->nodes;

$cluster->sql_everywhere(q{
	CREATE TYPE account AS (owner text, balance numeric(10,2));
	CREATE FUNCTION keep(state account, message jsonb) RETURNS account LANGUAGE sql
		RETURN CASE WHEN NOT message ? 'end' THEN row(message->>'owner', coalesce((state).balance, 0) + (message->>'add')::numeric)::account END;
	CREATE FUNCTION last(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN message});
$_->sql(q{SELECT shard_start('kept', 'keep', 12, replicas => 1); SELECT shard_start('twice', 'last', 6, replicas => 2)}) for @nodes;
$cluster->start_recorder;
$cluster->wait_registered;

sub ask
{
	my ($message, $from, $to, $type) = @_;
	$nodes[0]->sql(sprintf q{SELECT count(shard_ask('%s', 'e' || i, '%s'::jsonb || jsonb_build_object('owner', 'o' || i), '60 s')) FROM generate_series(%d, %d) i},
		$type // 'kept', $message, $from, $to);
	return;
}

# Rows of each shard, at its home and at each of its backups.
sub at_rest
{
	my ($what, $type, @columns) = @_;
	$_->wait_value(qq{SELECT coalesce(sum(unapplied), 0) FROM shard_replicas WHERE type_name = '$type'}, 0, 'all to be applied') for @nodes;
	my (%home, %copy);
	for my $node (@nodes)
	{
		my $rows = 'SELECT shard, md5(string_agg(t::text, chr(10) ORDER BY entity_id)) FROM %s.%s t WHERE shard IN (SELECT shard FROM shard_replicas '
			. 'WHERE type_name = %s AND node = %d AND role = %s) GROUP BY 1';
		$home{$_->[0]}{$_->[1]} = 1 for map { [ split /\|/ ] } split /\n/, $node->sql(sprintf $rows, 'shard_entity', $type, "'$type'", $node->n, "'home'");
		$copy{$_->[0]}{ $_->[1] }++ for map { [ split /\|/ ] } split /\n/, $node->sql(sprintf $rows, 'shard_replica', $type, "'$type'", $node->n, "'backup'");
		is($node->sql(qq{SELECT count(*) FROM shard_replica.$type t WHERE shard NOT IN (SELECT shard FROM shard_replicas WHERE type_name = '$type' AND node = } . $node->n . q{ AND role = 'backup')}),
			0, "$what: nothing of other shards at node " . $node->n);
	}
	my $flat = sub { my ($of) = @_; return join ' ', map { my $shard = $_; map { "$shard:$_" } sort keys %{ $of->{$shard} } } sort { $a <=> $b } keys %$of };
	is($flat->(\%copy), $flat->(\%home), "$what: each copy is equal to its home");
	return scalar keys %copy;
}

ask('{"add": 1}', 1, 300);
is(at_rest('states that are new', 'kept'), 12, 'all shards have states');

# A home, its backup, and an entity of each type: of one that has copies at these two, and of one that has them at all three.
ask('1', 1, 60, 'twice');
my ($home_n, $backup_n, $goes) = split /\|/, $nodes[0]->sql(q{SELECT h.node, b.node, min('e' || i) FROM generate_series(1, 60) i
	JOIN shard_replicas h ON h.type_name = 'kept' AND h.shard = shard_shard_id('kept', 'e' || i) AND h.role = 'home'
	JOIN shard_replicas b ON b.type_name = 'kept' AND b.shard = h.shard AND b.role = 'backup'
	WHERE EXISTS (SELECT FROM shard_replicas t WHERE t.type_name = 'twice' AND t.role = 'home' AND t.node = h.node) GROUP BY 1, 2 ORDER BY 1, 2 LIMIT 1});
my ($home, $backup) = map { $cluster->node($_) } $home_n, $backup_n;
my ($third) = grep { $_->n != $home_n && $_->n != $backup_n } @nodes;

# --- what is not released --------------------------------------------------------------------------------

my $waits = $home->sql(qq{SELECT min('e' || i) FROM generate_series(1, 60) i JOIN shard_replicas r ON r.type_name = 'twice'
	AND r.shard = shard_shard_id('twice', 'e' || i) AND r.role = 'home' AND r.node = $home_n});
$home->sql("SELECT shard_ask('twice', '$waits', '1', '60 s')");
sub states { return $backup->sql("SELECT state FROM shard_replica.twice WHERE entity_id = '$waits'") }
sub stored { return "SELECT unapplied FROM shard_replicas WHERE type_name = 'twice' AND node = $backup_n AND shard = shard_shard_id('twice', '$waits')" }
$backup->wait_value("SELECT state FROM shard_replica.twice WHERE entity_id = '$waits'", 1, 'the first state to be applied');

my $sound = ShardMutant::prove(
	{
		promise => 'a turn that not all have stored is not applied',
		broken_by => ['APPLIED_UNRELEASED'],
		run => sub {
			$third->server->stop('immediate');
			my $records = "SELECT max(turn) FROM shard.turn_records((SELECT type_id FROM shard.type WHERE type_name = 'twice'), shard_shard_id('twice', '$waits'))";
			my $before = $backup->sql($records);
			$home->sql("SELECT shard_tell('twice', '$waits', '2')");
			$backup->wait_until("SELECT ($records) > $before", 'the turn to be stored');
			my $balance = $home->sql(qq{SELECT shard_ask('kept', '$goes', '{"owner": "o", "add": 1}', '60 s')->>'balance'});
			$backup->wait_value("SELECT balance FROM shard_replica.kept WHERE entity_id = '$goes'", $balance, 'another shard to be applied');
			return (states(), '1');
		},
	});
unless ($sound)
{
	done_testing();
	exit;
}
is($backup->sql(stored()), 1, 'it is shown as not applied');
$third->server->start;
$cluster->wait_up;
$backup->wait_value("SELECT state FROM shard_replica.twice WHERE entity_id = '$waits'", 2, 'it to be applied, once all have stored it');

# --- what changes and goes ----------------------------------------------------------------------------------

ask('{"add": 2}', 100, 250);
ask('{"end": true}', 200, 300);
at_rest('states that change and go', 'kept');
at_rest('two copies of each', 'twice');

# --- the backup dies ----------------------------------------------------------------------------------------

for my $point (qw(apply_written apply_before_commit apply_after_commit))
{
	$backup->server->set_fault($point, 'crash');
	$nodes[0]->sql(q{SELECT count(shard_tell('kept', 'e' || i, '{"owner": "c", "add": 1}')) FROM generate_series(1, 100) i});
	ShardCluster::wait_for_condition(sub { $backup->server->fault_happened }, "a death at $point");
	$backup->server->clear_fault;
	$backup->server->recover;
	$cluster->wait_up;
	$cluster->drain;
	at_rest("a death at $point", 'kept');
}

# --- records go ---------------------------------------------------------------------------------------------


# --- columns ------------------------------------------------------------------------------------------------

$cluster->sql_everywhere('ALTER TABLE shard_entity.kept ADD COLUMN noted int DEFAULT 7');
ask('{"add": 3}', 1, 50);
$backup->wait_until(q{SELECT EXISTS (SELECT FROM shard_health() h, unnest(h.problems) p WHERE p ~ 'entity type "kept": .* cannot apply it: .*shard_replica.kept.* lacks column "noted"')},
	'health to say which column lacks');
cmp_ok($backup->sql(q{SELECT sum(unapplied) FROM shard_replicas WHERE type_name = 'kept'}), '>', 0, 'what does not fit is stored');
$cluster->sql_everywhere('ALTER TABLE shard_replica.kept ADD COLUMN noted int DEFAULT 7');
at_rest('a column that came', 'kept');
$cluster->sql_everywhere('ALTER TABLE shard_entity.kept DROP COLUMN noted; ALTER TABLE shard_replica.kept DROP COLUMN noted');
ask('{"add": 4}', 1, 300);
at_rest('a column that went', 'kept');
$backup->wait_until(q{SELECT NOT EXISTS (SELECT FROM shard_health() h, unnest(h.problems) p WHERE p ~ 'cannot apply')}, 'health to be quiet');

# --- locks, and a type that is stopped ------------------------------------------------------------------------

my $keeper = $backup->session;
$keeper->query('BEGIN; LOCK TABLE shard_replica.kept IN SHARE MODE;');
$home->sql("SELECT shard_ask('kept', '$goes', '{\"owner\": \"l\", \"add\": 1}', '60 s')");
$backup->wait_until(q{SELECT EXISTS (SELECT FROM shard_health() h, unnest(h.problems) p WHERE p ~ 'cannot apply it: table shard_replica.kept is locked')}, 'health to say so');
$keeper->query('COMMIT;');
at_rest('a lock that ended', 'kept');
$backup->sql(q{SELECT shard_stop_type('kept')});
$home->sql("SELECT shard_ask('kept', '$goes', '{\"owner\": \"s\", \"add\": 1}', '60 s')");
$backup->wait_until(q{SELECT EXISTS (SELECT FROM shard_health() h, unnest(h.problems) p WHERE p ~ 'cannot apply it: the type is stopped here')}, 'health to say that');
$backup->sql(q{SELECT shard_start('kept', 'keep', 12, replicas => 1)});
at_rest('a type that goes on', 'kept');

# --- whose table it is ----------------------------------------------------------------------------------------

$backup->sql('CREATE ROLE stranger LOGIN');
is($backup->sql(q{SELECT has_table_privilege('stranger', 'shard_replica.kept', 'SELECT')}), 'f', 'others do not read copies');
$_->sql(q{SELECT shard_drop_type('kept', force => true)}) for @nodes;
is($backup->sql(q{SELECT to_regclass('shard_replica.kept') IS NULL}), 't', 'the table goes with its type');
done_testing();
