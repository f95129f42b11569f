# Beside states a backup applies what waits, positions in orders, timers, failures, marks, outputs that are not done, and dead letters: at rest
# each row of its tables is as at the home, also when the backup dies at each step of that. None of it counts, shows or fires there (Q10).

use strict;
use warnings FATAL => 'all';

use ShardMutant;
use ShardNodes;
use ShardNoise;
use Test::More;

my $cluster = ShardNodes->create(3, conf => "shard.rebalance_interval = 0\nshard.voters = 3\nshard.region_workers = 1\nshard.inbox_max_size = '8MB'");
my @nodes = $cluster->nodes;
$cluster->sql_everywhere(q{
CREATE TABLE closed (one int);
CREATE FUNCTION does(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	IF message ? 'wait' AND EXISTS (SELECT FROM public.closed) THEN RAISE EXCEPTION 'closed to %', message->>'wait' USING ERRCODE = 'serialization_failure'; END IF;
	IF message ? 'fail' THEN RAISE EXCEPTION 'fails %', message->>'fail' USING DETAIL = 'so it is', ERRCODE = 'check_violation'; END IF;
	IF message ? 'timer' THEN PERFORM shard_schedule('kept', entity_id, '{"fired": 1}', after => '1 hour', every => '1 day', name => message->>'timer') FROM shard_self(); END IF;
	IF message ? 'once' THEN PERFORM shard_schedule('kept', entity_id, '{"fired": 1}', after => (message->>'once')::interval) FROM shard_self(); END IF;
	IF message ? 'cancel' THEN PERFORM shard_cancel('kept', entity_id, message->>'cancel') FROM shard_self(); END IF;
	IF message ? 'idle' THEN PERFORM shard_set_receive_timeout('2 hours', '{}'); END IF;
	IF message ? 'tell' THEN PERFORM shard_tell('placed', 'x', jsonb_build_object('from', message->>'tell')); END IF;
	IF message ? 'noop' THEN RETURN state; END IF;
	RETURN jsonb_build_object('n', coalesce((state->>'n')::int, 0) + 1);
END $$;
CREATE FUNCTION number_of(message jsonb) RETURNS int8 LANGUAGE sql RETURN (message->>'n')::int8;
});
for my $node (@nodes)
{
	$node->sql(q{SELECT shard_start('kept', 'does', 8, replicas => 1, max_attempts => 2, retry_backoff => '1 s', max_retry_backoff => '1 h')});
	$node->sql(q{SELECT shard_start('numbered', 'does', 4, replicas => 1, ordered_by => 'number_of', ordered_from => 1, ordered_timeout => '1 h')});
}
$cluster->start_recorder;
$cluster->wait_registered;

# At a copy a letter has no number of the node, and the time at which its turn began.
my $letter = 'type_id, shard, number, entity, kind, epoch, stamp, src_type, src_entity, mid_node, mid_seq, payload, sqlstate, error, detail, hint, context, attempts';

# All rows of shards of types with replicas that nodes have in a role.
sub rows
{
	my ($role, $table, $what) = @_;
	my @rows;
	for my $node (@nodes)
	{
		push @rows, split /\n/, $node->sql(sprintf q{SELECT replace(rows.what, chr(10), ' ') FROM (SELECT type_id, shard, (%s)::text AS what FROM %s t) rows
			JOIN shard.type y USING (type_id) JOIN shard_replicas r ON r.type_name = y.type_name AND r.shard = rows.shard AND r.node = %d AND r.role = '%s'},
			$what, $table, $node->n, $role);
	}
	return join "\n", sort @rows;
}

sub differing
{
	my @differ = grep { rows('home', "shard.$_", 't') ne rows('backup', "shard.$_", 't') } qw(held ordered timer history);
	# those of a life of the shard that was given up stay at its home alone
	my $of_life = '(SELECT * FROM shard.dead_letter d WHERE lost = (SELECT c.lost FROM shard.copy c WHERE c.type_id = d.type_id AND c.shard = d.shard))';
	push @differ, 'letters' if rows('home', $of_life, "row($letter)") ne rows('backup', 'shard.letter', "row($letter)");
	return join ' ', @differ;
}

# Homes try again what waits, so rows may change while they are looked at.
sub at_rest
{
	my ($what, %least) = @_;
	$cluster->wait_up;
	my $differ = '';
	ShardCluster::wait_for_condition(sub { $differ = differing(); note("$what: $differ") if $differ ne ''; return $differ eq '' }, "$what: copies to be as their homes");
	is($differ, '', "$what: each row is as at the home");
	for my $table (sort keys %least)
	{
		my @rows = split /\n/, rows('backup', "shard.$table", 't');
		cmp_ok(scalar @rows, '>=', $least{$table}, "$what: there are rows in shard.$table");
	}
	return;
}

# What makes rows, from each of the nodes: so marks are of two others.
sub tell_all
{
	my ($n, @from) = @_;
	for my $node (@from)
	{
		my $from = $node->n . '-' . $n;
		$node->sql(qq{
			SELECT shard_tell('kept', 'e' || i, '{"wait": "$from"}') FROM generate_series(1, 12) i;
			SELECT shard_tell('kept', 'l' || i, '{"fail": "$from"}') FROM generate_series(1, 8) i;
			SELECT shard_tell('kept', 't' || i, '{"timer": "$from"}') FROM generate_series(1, 12) i;
			SELECT shard_tell('kept', 't' || i, '{"timer": "same"}') FROM generate_series(1, 12) i;
			SELECT shard_tell('kept', 't' || i, '{"cancel": "$from"}') FROM generate_series(1, 4) i;
			SELECT shard_tell('kept', 't' || i, '{"idle": "$from"}') FROM generate_series(1, 3) i;
			SELECT shard_tell('kept', 't' || i, '{"once": "1 ms"}') FROM generate_series(9, 12) i;});
	}
	return;
}


# An entity, where its shard's home is, and its backup.
$nodes[0]->sql(q{SELECT count(shard_ask('kept', 'k' || i, '{}', '60 s')) FROM generate_series(1, 60) i});
my ($home_n, $backup_n, $shard, $one, $two) = split /\|/, $nodes[0]->sql(q{SELECT h.node, b.node, h.shard, min('k' || i), max('k' || i) FROM generate_series(1, 60) i
	JOIN shard_replicas h ON h.type_name = 'kept' AND h.shard = shard_shard_id('kept', 'k' || i) AND h.role = 'home'
	JOIN shard_replicas b ON b.type_name = 'kept' AND b.shard = h.shard AND b.role = 'backup' GROUP BY 1, 2, 3 HAVING count(*) > 1 ORDER BY 1, 2, 3 LIMIT 1});
my ($home, $backup) = map { $cluster->node($_) } $home_n, $backup_n;
my ($third) = grep { $_->n != $home_n && $_->n != $backup_n } @nodes;
my $type = $home->sql(q{SELECT type_id FROM shard.type WHERE type_name = 'kept'});
my $of = "type_id = $type AND shard = $shard";
my ($near) = $cluster->entities_at('recorder', $backup_n, 1);

sub ask { my ($entity, $message) = @_; return $home->sql("SELECT shard_ask('kept', '$entity', '$message', '60 s')->>'n'") }

sub wait_applied
{
	my $turn = $home->sql("SELECT max(turn) FROM shard.turn_records($type, $shard)");
	$backup->wait_until("SELECT applied >= $turn FROM shard.copy WHERE $of", 'all to be applied');
	return;
}

sub restart { my ($node) = @_; $node->server->crash_postmaster; $node->server->start; return }

# A turn of the backup's worker, after it has started.
sub turn_there
{
	$backup->eventually("SELECT shard_ask('recorder', '$near', '{\"what\": \"turn\"}', '60 s')");
	return;
}

# A type that the home alone has, whose extractor does what table way says.
$home->sql(q{
CREATE TABLE way (how text);
INSERT INTO way VALUES ('sound');
GRANT SELECT ON way TO PUBLIC;
CREATE FUNCTION modulo(id text) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
	IF (SELECT how FROM public.way) = 'raise' THEN RAISE 'no shard today'; END IF;
	RETURN 3;
END $$;
SELECT shard_start('placed', 'does', 4, shard_id_extractor => 'modulo');
});
$home->eventually(q{SELECT shard_ask('placed', 'x', '{}', '30 s')});

# What is told is released when the type that it is for was resharded, and has no place there.
sub tell_in_vain
{
	my ($shards) = @_;
	$backup->server->set_fault('store_before_commit', 'freeze');
	$home->sql("SELECT shard_tell('kept', '$one', '{\"tell\": \"it\"}')");
	ShardCluster::wait_for_condition(sub { $backup->server->fault_happened }, 'a record to be at the backup');
	$home->sql(q{SELECT shard_stop_type('placed')});
	$home->sql("CALL shard_reshard('placed', $shards)");
	$home->sql(q{UPDATE way SET how = 'raise'});
	$home->sql("SELECT shard_start('placed', 'does', $shards, shard_id_extractor => 'modulo')");
	$backup->server->clear_fault;
	return;
}

my $sound = ShardMutant::prove(
	{
		promise => 'the newest of each row is applied',
		broken_by => ['OLDER_ROWS_APPLIED'],
		run => sub {
			$backup->sql(q{SELECT shard_stop_type('kept')});
			ask($one, '{"timer": "comes and goes"}');
			ask($one, '{"cancel": "comes and goes"}');
			$backup->sql(q{SELECT shard_start('kept', 'does', 8, replicas => 1, max_attempts => 2, retry_backoff => '1 s', max_retry_backoff => '1 h')});
			wait_applied();
			return ($backup->sql("SELECT count(*) FROM shard.timer WHERE $of AND entity = '$one'"), '0');
		},
	},
	{
		promise => 'outputs are in the table until they are done',
		broken_by => ['OUTPUTS_NEVER_DONE'],
		run => sub {
			tell_in_vain(8);
			$backup->wait_value("SELECT entity || ' ' || src_entity FROM shard.output WHERE $of", "x $one", 'the output to be there');
			restart($backup);
			$cluster->wait_up;
			# What was applied and not flushed is applied once more.
			$backup->wait_value("SELECT count(*) FROM shard.output WHERE $of", 1, 'it to be there after a crash');
			$home->sql(q{UPDATE way SET how = 'sound'});
			$home->wait_value(q{SELECT state->>'n' FROM shard_entity.placed}, 2, 'it to come');
			ask($one, '{}');
			$home->sql(q{SELECT shard_drain('60 s')});
			wait_applied();
			return ($backup->sql("SELECT count(*) FROM shard.output WHERE $of"), '0');
		},
	},
	{
		promise => 'a stash of a copy is not in memory, and timers of a copy do not fire',
		broken_by => ['STASH_OF_COPIES_COUNTS', 'TIMERS_OF_COPIES_FIRE'],
		run => sub {
			$cluster->sql_everywhere('INSERT INTO closed VALUES (1)');
			$home->sql("SELECT shard_tell('kept', '$two', '{\"wait\": \"here\"}')");
			ask($one, '{"timer": "later"}');
			$home->wait_until("SELECT EXISTS (SELECT FROM shard.held WHERE $of)", 'it to wait');
			$backup->wait_value("SELECT (SELECT count(*) FROM shard.held WHERE $of) || ' ' || (SELECT count(*) FROM shard.timer WHERE $of)", '1 1', 'the rows to be applied');
			$home->server->stop('immediate');
			$backup->sql("UPDATE shard.timer SET due = due - interval '1 day' WHERE $of");
			restart($backup);
			turn_there() for 1 .. 3;
			my $fired = $backup->sql('SELECT count(*) FROM ' . ShardCluster::inbox_rows('type_id, shard, kind') . " WHERE kind = 15 AND $of");
			my $here = $backup->sql("SELECT count(*) FROM shard.region_entities() WHERE $of");
			$backup->sql("UPDATE shard.timer SET due = due + interval '1 day' WHERE $of");
			return ("$fired $here", '0 0');
		},
	});
unless ($sound)
{
	done_testing();
	exit;
}

# --- what is shown ------------------------------------------------------------------------------------------

is($backup->sql(q{SELECT concat_ws(' ', (SELECT count(*) FROM shard_timers WHERE entity_id = '} . $one . q{'), (SELECT count(*) FROM shard_inbox WHERE entity_id = '} . $two . q{'),
	(SELECT count(*) FROM shard_history('kept', '} . $two . q{')), (SELECT coalesce(sum(parked), 0) FROM shard_region_stats WHERE type_name = 'kept' AND shard = } . $shard . q{))}),
	'0 0 0 0', 'views show nothing of a copy');
$home->server->start;
$cluster->wait_up;
$home->wait_until("SELECT EXISTS (SELECT FROM shard_timers WHERE entity_id = '$one')", 'the home to be back');
at_rest('after a crash of the home', held => 1, timer => 1);

# --- all kinds of rows ----------------------------------------------------------------------------------------

sub wait_met { $_->wait_until(q{SELECT NOT EXISTS (SELECT FROM shard_inbox WHERE place IN ('inbox', 'parked') AND type_name IN ('kept', 'numbered'))}, 'all to be met') for @nodes; return }

tell_all(1, @nodes);
$nodes[ $_ % 3 ]->sql(qq{SELECT shard_tell('numbered', 'n' || i, '{"n": $_}') FROM generate_series(1, 8) i}) for 1, 2, 4, 5, 7;
wait_met();
at_rest('rows that are new', held => 60, ordered => 8, timer => 40, history => 24, letter => 24);
for my $point (qw(apply_written apply_rows_written apply_before_commit apply_after_commit))
{
	$backup->server->set_fault($point, 'crash');
	tell_all($point, $home, $third);
	ShardCluster::wait_for_condition(sub { $backup->server->fault_happened }, "a death at $point");
	$backup->server->clear_fault;
	$backup->server->recover;
	$cluster->wait_up;
	at_rest("a death at $point");
}

# --- rows that go ---------------------------------------------------------------------------------------------

$cluster->sql_everywhere('DELETE FROM closed');
$nodes[ $_ % 3 ]->sql(qq{SELECT shard_tell('numbered', 'n' || i, '{"n": $_}') FROM generate_series(1, 8) i}) for 3, 6;
$_->wait_until(q{SELECT NOT EXISTS (SELECT FROM shard_inbox WHERE type_name IN ('kept', 'numbered'))}, 'what waited to be handled') for @nodes;
$_->sql(q{SELECT shard_redrive(ARRAY(SELECT id FROM shard_dead_letters ORDER BY id LIMIT 5))}) for @nodes;
wait_met();
at_rest('rows that are gone', ordered => 8, history => 24);
is(rows('backup', 'shard.held', 't'), '', 'nothing waits any more');

# --- failures are trimmed -------------------------------------------------------------------------------------

ask($one, '{}');
$third->sql("SELECT shard_tell('kept', '$one', jsonb_build_object('fail', i)) FROM generate_series(1, 50) i");
wait_met();
at_rest('failures of which the oldest went');
is($backup->sql("SELECT count(*) FROM shard.history WHERE $of AND entity = '$one'"), 20, 'at a copy, too');

# --- marks ----------------------------------------------------------------------------------------------------

# At a home they are in the table as of a rotation.
my $marks = q{SELECT string_agg(row(i.shard, prefix_kind, a, b, seq)::text, ' ' ORDER BY i.shard, prefix_kind, a, b) FROM shard.shard_input i
	JOIN shard_replicas h ON h.shard = i.shard AND h.type_name = 'kept' AND h.node = %d AND h.role = 'home'
	JOIN shard_replicas b ON b.shard = i.shard AND b.type_name = 'kept' AND b.node = %d AND b.role = 'backup' WHERE i.type_id = %d};
$marks = sprintf $marks, $home_n, $backup_n, $type;
my ($there) = $cluster->entities_at('recorder', $home_n, 1);
my $copied = $backup->sql($marks);
ShardNoise::send_until($home, 'recorder', $there, sub { return $home->sql($marks) eq $copied }, 'the home to have the marks in its table');
like($copied, qr/,1,\d+,\d+,/, 'marks of nodes are there');
is($home->sql($marks), $copied, 'and are those of the home');

# --- copies that end ------------------------------------------------------------------------------------------

my @tables = qw(held ordered timer history shard_input output letter);
sub left { my ($node, $which) = @_; return join ' ', map { $node->sql("SELECT count(*) FROM shard.$_ WHERE $which") } @tables }

$home->sql("DELETE FROM shard.own WHERE $of; DELETE FROM shard_entity.kept WHERE shard = $shard");
restart($home);
$cluster->wait_up;
$home->eventually("SELECT shard_give_up('kept', $shard)");
$backup->wait_until("SELECT lost > 0 FROM shard.copy WHERE $of", 'the shard to begin anew');
is(left($backup, $of), '0 0 0 0 0 0 0', 'of a shard that begins anew nothing is left at the backup');
is($home->eventually("SELECT shard_ask('kept', '$one', '{\"timer\": \"again\"}', '60 s')->>'n'"), 1, 'it goes on without its state');
at_rest('another life', timer => 1);
cmp_ok($backup->sql('SELECT count(*) FROM shard.held JOIN shard.backup_here USING (type_id, shard)') + $backup->sql('SELECT count(*) FROM shard.timer JOIN shard.backup_here USING (type_id, shard)'), '>', 1, 'copies have rows');
$backup->sql(q{SELECT shard_drop_type('kept', force => true)});
is(left($backup, "type_id = $type AND " . '(type_id, shard) IN (SELECT type_id, shard FROM shard.backup_here)'), '0 0 0 0 0 0 0', 'with what copies had');
restart($backup);
$cluster->wait_up;
is($backup->sql("SELECT count(*) FROM shard.dead_letter WHERE type_id = $type AND error ~ 'dropped'"), 0, 'which become no dead letters');
done_testing();
