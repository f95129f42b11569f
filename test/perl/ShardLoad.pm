package ShardLoad;

=head1 NAME

ShardLoad - SQL scripts of random transactions that keep the books of ShardLedger

=head1 SYNOPSIS

  my $client = { name => 'c1', txn => 0, chance => ShardLoad::random_stream(42) };
  my $sql = ShardLoad::script('r1', $client);

=head1 DESCRIPTION

Each transaction enters its messages in table C<sent> by C<ledger_note> and, once its COMMIT has
returned, prints a line C<COMMITTED|session|txn|messages|time>.

=cut

use strict;
use warnings FATAL => 'all';

# A linear congruential generator rather than rand: the same seed gives the same load everywhere.
sub random_stream
{
	my ($state) = @_;
	my $next = sub {
		my ($n) = @_;
		$state = ($state * 1103515245 + 12345) % 2**31;
		return int($state / 2**12) % $n;
	};
	$next->(2) for 1 .. 5;    # small seeds begin alike
	return $next;
}

# What a client does next, with its weight.
my @mixture = (
	[ 6, \&_tells ], [ 3, \&_tell_many ], [ 3, \&_set_based ], [ 2, \&_copy ],
	[ 4, \&_savepoints ], [ 3, \&_rolled_back ], [ 2, \&_late ], [ 1, \&_huge_late ],
	[ 2, \&_two_phase ], [ 4, \&_ask ], [ 1, \&_lock_state ], [ 1, \&_touch_state ],
	[ 2, \&_vacuum ], [ 3, \&_redrive ], [ 2, \&_timers ], [ 1, \&_command ],
);

# A load that leaves a machine time for other things: nothing large, and pauses.
my @light = ([ 8, \&_tells ], [ 2, \&_savepoints ], [ 1, \&_rolled_back ], [ 3, \&_ask ], [ 1, \&_touch_state ], [ 2, \&_redrive ], [ 1, \&_timers ], [ 1, \&_command ], [ 4, \&_pause ]);

# A script of transactions for a client: its name, its stream of chance, the number of its last
# transaction; light: of the light load. $round prefixes the names of entities.
sub script
{
	my ($round, $client) = @_;
	my @kinds = $client->{light} ? @light : @mixture;
	my $weights = 0;
	$weights += $_->[0] for @kinds;
	my $sql = "SET statement_timeout = '90 s';\n";
	for (1 .. 12)
	{
		my $ticket = $client->{chance}->($weights);
		my $kind = 0;
		$ticket -= $kinds[ $kind++ ][0] while $ticket >= $kinds[$kind][0];
		$sql .= $kinds[$kind][1]->($round, $client);
	}
	return $sql;
}

sub _pause { my ($round, $client) = @_; return 'SELECT pg_sleep(0.0' . (1 + $client->{chance}->(9)) . ");\n" }

# A transaction being written: number, number of the next message, messages that will count.
sub _begin
{
	my ($round, $client) = @_;
	return {
		client => $client,
		round  => $round,
		txn    => ++$client->{txn},
		n      => 0,
		counts => 0,
		salt   => $client->{chance}->(10_000),
	};
}

# COMMIT, and its report in the outside file.
sub _commit
{
	my ($t, $statement) = @_;
	return ($statement // 'COMMIT') . ";\n" . _report($t);
}

# The time is asked of the server after COMMIT returned.
sub _report
{
	my ($t) = @_;
	return "SELECT 'COMMITTED', '$t->{client}{name}', $t->{txn}, $t->{counts}, clock_timestamp();\n";
}

# A set of the transaction's next messages: (entity, message) in order. $to pins the entity.
sub _messages
{
	my ($t, $count, $kind, $to) = @_;
	my ($first, $last) = ($t->{n}, $t->{n} + $count - 1);
	$t->{n} += $count;
	$t->{counts} += $count;
	my $entity = $to ? "'$to'" : "ledger_entity('$t->{round}', i + $t->{salt})";
	# A volatile function in the select list: the subquery is not flattened, each message is noted
	# once and in order.
	return "(SELECT i, $entity AS entity, ledger_note('$t->{client}{name}', $t->{txn}, i, '$kind', "
	  . "$entity, ledger_act(i + $t->{salt})) AS message FROM generate_series($first, $last) i) m";
}

sub _tell
{
	my ($t, $kind, $to) = @_;
	$t->{salt} = $t->{client}{chance}->(10_000);
	return "SELECT shard_tell(ledger_type(entity), entity, message) FROM "
	  . _messages($t, 1, $kind // 'tell', $to) . ";\n";
}

sub _many
{
	my ($t, $count, $kind) = @_;
	return "SELECT shard_tell_many(ledger_type(entity), array_agg(entity ORDER BY i), array_agg(message ORDER BY i)) FROM "
	  . _messages($t, $count, $kind // 'many') . " GROUP BY ledger_type(entity);\n";
}

sub _alive { my ($t) = @_; return "$t->{round}-l" . $t->{client}{chance}->(37) }

sub _hot { my ($t) = @_; return "$t->{round}-hot" . $t->{client}{chance}->(2) }

# One to four single tells, alone or in a transaction block.
sub _tells
{
	my $t = _begin(@_);
	my $count = $t->{client}{chance}->(4);
	return _tell($t) . _report($t) if !$count;
	return "BEGIN;\n" . join('', map { _tell($t) } 0 .. $count) . _commit($t);
}

sub _tell_many
{
	my $t = _begin(@_);
	return "BEGIN;\n" . _many($t, 1 + $t->{client}{chance}->(200)) . _tell($t) . _commit($t);
}

sub _set_based
{
	my $t = _begin(@_);
	return "SELECT shard_tell(ledger_type(entity), entity, message) FROM "
	  . _messages($t, 1 + $t->{client}{chance}->(100), 'set') . ";\n" . _report($t);
}

# Through the view, by COPY and by INSERT.
sub _copy
{
	my $t = _begin(@_);
	my ($name, $entity) = ($t->{client}{name}, _hot($t));
	my $sql = "BEGIN;\nINSERT INTO shard_inbox (type_name, entity_id, message) SELECT ledger_type(entity), entity, message FROM "
	  . _messages($t, 10, 'insert') . ";\n";
	my $rows = '';
	for my $n ($t->{n} .. $t->{n} + 9)
	{
		$sql .= "SELECT ledger_note('$name', $t->{txn}, $n, 'copy', '$entity', 'plain');\n";
		$rows .= qq(ledger\t$entity\t{"s": "$name", "t": $t->{txn}, "n": $n, "act": "plain"}\n);
	}
	$t->{n} += 10;
	$t->{counts} += 10;
	return "${sql}COPY shard_inbox (type_name, entity_id, message) FROM stdin;\n$rows\\.\n" . _commit($t);
}

# Sub-transactions: kept, rolled back, and kept inside a rolled back one.
sub _savepoints
{
	my $t = _begin(@_);
	my $sql = "BEGIN;\n" . _tell($t) . "SAVEPOINT a;\n" . _tell($t);
	my $counts = $t->{counts};
	$sql .= "SAVEPOINT b;\n" . _many($t, 20) . "SAVEPOINT c;\n" . _tell($t) . "RELEASE c;\n"
	  . "ROLLBACK TO b;\n";
	$t->{counts} = $counts;
	return $sql . _tell($t) . "RELEASE a;\n" . _tell($t) . _commit($t);
}

sub _rolled_back
{
	my $t = _begin(@_);
	return "BEGIN;\n" . _tell($t) . _many($t, 1 + $t->{client}{chance}->(60)) . "ROLLBACK;\n";
}

# Open while others come and go. The sleeps are the load's shape; nothing relies on them.
sub _late
{
	my $t = _begin(@_);
	my $nap = 'SELECT pg_sleep(' . (0.1 + $t->{client}{chance}->(10) / 10) . ");\n";
	return "BEGIN;\n" . _tell($t, 'tell', _hot($t)) . $nap . _many($t, 20) . $nap
	  . _tell($t, 'tell', _hot($t)) . _commit($t);
}

# Late, and more than a turn can handle at once.
sub _huge_late
{
	my $t = _begin(@_);
	return "BEGIN;\n" . _many($t, 2000 + $t->{client}{chance}->(2000)) . "SELECT pg_sleep(0.3);\n"
	  . _tell($t, 'tell', _hot($t)) . _commit($t);
}

# The session goes on before it decides on what it prepared.
sub _two_phase
{
	my ($round, $client) = @_;
	my $t = _begin($round, $client);
	my $gid = "$client->{name}-$t->{txn}";
	my $sql = "BEGIN;\n" . _tell($t, 'prepared', _hot($t)) . _many($t, 5, 'prepared')
	  . "PREPARE TRANSACTION '$gid';\n" . _tells($round, $client);
	return $sql . "ROLLBACK PREPARED '$gid';\n" if !$client->{chance}->(3);
	return $sql . _commit($t, "COMMIT PREPARED '$gid'");
}

# A tell and an ask that comes after it. A failed ask is no reason to stop.
sub _ask
{
	my ($round, $client) = @_;
	my $sql = _tells($round, $client);
	my $t = _begin($round, $client);
	my $entity = (_hot($t), "$t->{round}-e" . $client->{chance}->(41), "$t->{round}-o" . $client->{chance}->(7), _alive($t))[ $client->{chance}->(4) ];
	my $act = (qw(plain plain chain flaky fail))[ $client->{chance}->(5) ];
	$t->{counts} = 1;
	return $sql . <<SQL;
SELECT ledger_note('$client->{name}', $t->{txn}, 0, 'ask', '$entity', '$act') \\gset
\\set ON_ERROR_STOP 0
SELECT shard_ask(ledger_type('$entity'), '$entity', :'ledger_note', '10 s');
\\set failed :ERROR
\\set ON_ERROR_STOP 1
\\if :failed
\\else
@{[_report($t)]}\\endif
SQL
}

# A user holds a state row while messages for it arrive.
sub _lock_state
{
	my $t = _begin(@_);
	my $entity = _hot($t);
	return "BEGIN;\nSELECT FROM shard_entity.ledger WHERE entity_id = '$entity' FOR UPDATE;\n"
	  . _tell($t, 'tell', $entity) . "SELECT pg_sleep(0.4);\n" . _tell($t, 'tell', $entity) . _commit($t);
}

# A user writes a state row without changing it: the copy in memory is out of date nevertheless.
sub _touch_state
{
	my $t = _begin(@_);
	my $entity = _hot($t);
	return "UPDATE shard_entity.ledger SET updated_at = updated_at WHERE entity_id = '$entity';\n"
	  . _tell($t, 'tell', $entity) . _report($t);
}

# Dead letters of this round that are at this node are sent again; every fourth time not after all. Something is sent
# in the same transaction.
sub _redrive
{
	my $t = _begin(@_);
	my $redrive = "SELECT shard_redrive((SELECT coalesce(array_agg(id), '{}') FROM shard_dead_letters\n"
	  . "WHERE type_name IN ('ledger', 'owned', 'alive') AND message->>'act' = 'mend' AND entity_id LIKE '$t->{round}-%'));\n";
	return "BEGIN;\n" . _tell($t) . $redrive . "ROLLBACK;\n" if !$t->{client}{chance}->(4);
	return "BEGIN;\n" . _tell($t) . $redrive . _tell($t) . _commit($t);
}

# Timers that fire once, after what the transaction tells.
sub _timers
{
	my $t = _begin(@_);
	my ($name, $entity) = ($t->{client}{name}, _alive($t));
	my $sql = "BEGIN;\n" . _tell($t, 'tell', $entity);
	for (0 .. $t->{client}{chance}->(4))
	{
		my $ms = $t->{client}{chance}->(500);
		my $n = $t->{n}++;
		$t->{counts}++;
		$sql .= "SELECT shard_schedule('alive', '$entity', ledger_note('$name', $t->{txn}, $n, 'timer', '$entity', "
		  . "ledger_act($ms)), after => '$ms ms', name => 'client-$name-$t->{txn}-$n');\n";
	}
	return $sql . _tell($t) . _commit($t);
}

# Has an entity start, or leave.
sub _command
{
	my $t = _begin(@_);
	my $entity = "$t->{round}-l" . $t->{client}{chance}->(6);
	return "SELECT shard_start_entity('alive', '@{[_alive($t)]}');\n" if $t->{client}{chance}->(2);
	return "BEGIN;\nINSERT INTO commanded VALUES ('$entity');\nSELECT shard_passivate('alive', '$entity');\n"
	  . _tell($t, 'tell', $entity) . _commit($t);
}

# Line pointers of rolled back messages are free again, the file perhaps shorter; or each internal table is
# rewritten that nobody keeps locked for long.
sub _vacuum
{
	my ($round, $client) = @_;
	return <<'SQL' if !$client->{chance}->(3);
SET lock_timeout = '50 ms';
\set ON_ERROR_STOP 0
SELECT format('VACUUM FULL %s', c.oid::regclass) FROM pg_class c
WHERE c.relnamespace = 'shard'::regnamespace AND c.relkind = 'r' ORDER BY random() \gexec
\set ON_ERROR_STOP 1
RESET lock_timeout;
SQL
	my $options = $client->{chance}->(2) ? '' : '(TRUNCATE on) ';
	return _rolled_back($round, $client) . <<SQL;
SELECT format('VACUUM ${options}%s', c.oid::regclass) FROM pg_class c
WHERE c.relnamespace = 'shard'::regnamespace AND c.relkind = 'r' AND c.relname LIKE 'inbox%' ORDER BY c.oid \\gexec
SQL
}

1;
