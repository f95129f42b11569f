# The audit of the ledger tests finds each kind of violation, and finds none in clean books. Runs on
# a plain server: what the audit reads of the extension is imitated by tables.

use strict;
use warnings FATAL => 'all';

use PostgreSQL::Test::Cluster;
use ShardLedger;
use Test::More;

my $node = PostgreSQL::Test::Cluster->new('plain');
$node->init(extra => ['--no-sync', '--encoding=UTF8']);
$node->start;
my $ledger = ShardLedger->new(node => $node, seed => 1);
$ledger->install_books;
$node->safe_psql('postgres', <<'SQL');
CREATE TABLE shard_inbox (type_name text, entity_id text, message jsonb);
CREATE TABLE shard_dead_letters (type_name text, entity_id text, message jsonb, sqlstate text);
CREATE TABLE shard_timers (type_name text, entity_id text, name text);
CREATE SCHEMA shard_entity;
CREATE TABLE shard_entity.ledger (entity_id text, state jsonb);
CREATE TABLE shard_entity.alive (entity_id text, state jsonb, remembered boolean);
CREATE FUNCTION ledger_lives() RETURNS SETOF shard_entity.alive STABLE LANGUAGE sql AS 'SELECT * FROM shard_entity.alive';
CREATE FUNCTION ledger_states() RETURNS SETOF shard_entity.ledger STABLE LANGUAGE sql AS 'SELECT * FROM shard_entity.ledger';
SQL

# Sessions c1 and c2 send to entities r0-a and r0-b; times are minutes. c1's transaction 2 overlaps
# c2's transaction 1; c1's 3 was prepared and committed after its 4; c2's 2 is an ask without answer.
my $clean = <<'SQL';
TRUNCATE sent, committed, handled, shard_inbox, shard_dead_letters, shard_entity.ledger;
INSERT INTO sent
SELECT session, txn, n, kind, entity, jsonb_build_object('s', session, 't', txn, 'n', n, 'act', 'fail'), '2001-01-01 10:00'::timestamptz + called * interval '1 min'
FROM (VALUES ('c1', 1, 0, 'tell', 'r0-a', 1), ('c1', 1, 1, 'tell', 'r0-a', 2), ('c1', 1, 2, 'tell', 'r0-b', 3),
             ('c1', 2, 0, 'many', 'r0-a', 10), ('c2', 1, 0, 'tell', 'r0-a', 11),
             ('c1', 3, 0, 'prepared', 'r0-a', 20), ('c1', 4, 0, 'tell', 'r0-a', 21),
             ('c2', 2, 0, 'ask', 'r0-a', 30), ('c2', 3, 0, 'tell', 'r0-b', 31),
             ('c2', 4, 0, 'tell', 'r0-b', 40), ('c2', 5, 0, 'tell', 'r0-b', 41),
             ('c2', 6, 0, 'ask', 'r0-b', 50), ('@r0-a', 2, 0, 'handler', 'r0-b', 51))
     AS v (session, txn, n, kind, entity, called);
INSERT INTO committed
SELECT session, txn, messages, '2001-01-01 10:00'::timestamptz + at * interval '1 min'
FROM (VALUES ('c1', 1, 3, 4), ('c1', 2, 1, 15), ('c2', 1, 1, 14), ('c1', 3, 1, 25), ('c1', 4, 1, 22),
             ('c2', 3, 1, 32), ('c2', 6, 1, 55)) AS v (session, txn, messages, at);
INSERT INTO handled
SELECT s.entity, v.pos, s.message
FROM (VALUES ('c1', 1, 0, 1), ('c1', 1, 1, 2), ('c2', 1, 0, 3), ('c1', 2, 0, 4), ('c1', 4, 0, 5), ('c1', 3, 0, 6),
             ('c1', 1, 2, 1), ('c2', 3, 0, 2), ('c2', 6, 0, 3), ('@r0-a', 2, 0, 4)) AS v (session, txn, n, pos)
JOIN sent s USING (session, txn, n);
INSERT INTO shard_inbox SELECT 'ledger', entity, message FROM sent WHERE (session, txn) = ('c2', 4);
INSERT INTO shard_dead_letters SELECT 'ledger', entity, message, '22023' FROM sent WHERE (session, txn) = ('c2', 5);
SQL

# The state as the handler would have left it.
my $state = <<'SQL';
TRUNCATE shard_entity.ledger;
INSERT INTO shard_entity.ledger
SELECT entity, jsonb_build_object('count', count(*), 'hash', ledger_fold(message ORDER BY pos)) FROM handled GROUP BY entity;
SQL

# Entities handle two of their messages in each other's place.
sub swapped
{
	my ($entity, $one, $other) = @_;
	return "UPDATE handled SET pos = CASE pos WHEN $one THEN $other ELSE $one END WHERE entity = '$entity' AND pos IN ($one, $other);";
}

sub message
{
	my ($session, $txn, $n) = @_;
	return "(SELECT message FROM sent WHERE (session, txn, n) = ('$session', $txn, $n))";
}

my $m = message('c2', 1, 0);
my @cases = (
	[ 'a message in no place', "DELETE FROM shard_inbox;", 'P1: a message is lost' ],
	[ 'a handled message forgotten', "DELETE FROM handled WHERE (entity, pos) = ('r0-a', 6);", 'P1: a message is lost' ],
	[ 'a message from a handler lost', "DELETE FROM handled WHERE (entity, pos) = ('r0-b', 4);", 'P1: a message is lost' ],
	[ 'an answered ask undone', "UPDATE handled SET pos = 3 WHERE (entity, pos) = ('r0-b', 4); DELETE FROM handled WHERE message = @{[message('c2', 6, 0)]};",
		'P1: a message is lost' ],
	[ 'an answered ask waiting', "DELETE FROM handled WHERE (entity, pos) = ('r0-b', 3); UPDATE handled SET pos = 3 WHERE (entity, pos) = ('r0-b', 4);
		INSERT INTO shard_inbox VALUES ('ledger', 'r0-b', @{[message('c2', 6, 0)]});",
		'P1: an answered ask has no effect', 'P2: an ask was kept' ],
	[ 'a reported commit without rows', "INSERT INTO committed VALUES ('c9', 1, 1, now());", 'P1: a reported transaction is gone' ],
	[ 'a message handled twice', "INSERT INTO handled VALUES ('r0-a', 7, $m);",
		'P2: a message was handled more than once', 'P3: handled after what was sent after its commit' ],
	[ 'the last message handled twice', "INSERT INTO handled VALUES ('r0-a', 7, @{[message('c1', 3, 0)]});",
		'P2: a message was handled more than once' ],
	[ 'handled and dead', "INSERT INTO shard_dead_letters VALUES ('ledger', 'r0-a', $m, '22023');", 'P2: a message is in two places' ],
	[ 'handled and waiting', "INSERT INTO shard_inbox VALUES ('ledger', 'r0-a', $m);", 'P2: a message is in two places' ],
	[ 'dead twice', "INSERT INTO shard_dead_letters SELECT * FROM shard_dead_letters;", 'P2: a message is in two places' ],
	[ 'handled by another entity', "UPDATE sent SET entity = 'r0-z' WHERE (session, txn) = ('c2', 1);", 'P2: a message was changed' ],
	[ 'another payload', "UPDATE handled SET message = message || '{\"act\": \"x\"}' WHERE (entity, pos) = ('r0-a', 3);", 'P2: a message was changed' ],
	[ 'an ask among the dead letters', "INSERT INTO shard_dead_letters VALUES ('ledger', 'r0-a', @{[message('c2', 2, 0)]}, '22023');", 'P2: an ask was kept' ],
	[ 'waiting, of the other type, and handled', "INSERT INTO shard_inbox VALUES ('owned', 'r0-a', $m);", 'P2: a message is in two places' ],
	[ 'the other type\'s dead for no reason of its own', "UPDATE shard_dead_letters SET type_name = 'owned', sqlstate = '23505';", 'P1: a message was given up without need, 23505' ],
	[ 'dead for no reason of its own', "UPDATE shard_dead_letters SET sqlstate = '23505';", 'P1: a message was given up without need, 23505' ],
	[ 'a transaction\'s messages reversed', swapped('r0-a', 1, 2), 'P3: handled after what was sent later in its transaction' ],
	[ 'a session\'s transactions reversed', "DELETE FROM committed;" . swapped('r0-a', 4, 5), 'P3: handled after what its session sent later' ],
	[ 'a tell after the ask that followed it', swapped('r0-b', 2, 3), 'P3: handled after what its session sent later' ],
	[ 'a commit seen before a call, reversed', swapped('r0-b', 1, 2), 'P3: handled after what was sent after its commit' ],
	[ 'an entity on two nodes', "UPDATE handled SET node = 2 WHERE (entity, pos) = ('r0-a', 6);", 'P4: an entity ran on several nodes' ],
	[ 'a rolled back message handled', "DELETE FROM sent WHERE (session, txn) = ('c1', 3); DELETE FROM committed WHERE (session, txn) = ('c1', 3);",
		'P5: a message that no transaction sent' ],
	[ 'a rolled back message waiting', "INSERT INTO shard_inbox VALUES ('ledger', 'r0-a', '{\"s\": \"c9\", \"t\": 1, \"n\": 0}');",
		'P5: a message that no transaction sent' ],
);

# Changes after which the state is computed show what they change alone; these show the state.
my $differ = 'P2: state and effects differ';
my @state_cases = (
	[ 'an effect without state', "DELETE FROM shard_entity.ledger WHERE entity_id = 'r0-a';", $differ ],
	[ 'state without effect', "INSERT INTO shard_entity.ledger VALUES ('r0-z', '{\"count\": 1, \"hash\": \"\"}');", $differ ],
	[ 'another count', "UPDATE shard_entity.ledger SET state = state || '{\"count\": 9}' WHERE entity_id = 'r0-a';", $differ ],
	[ 'another fold', "UPDATE shard_entity.ledger SET state = state || '{\"hash\": \"x\"}' WHERE entity_id = 'r0-a';", $differ ],
	[ 'a position used twice', "UPDATE handled SET pos = 5 WHERE (entity, pos) = ('r0-a', 6);", $differ ],
);

# Lives: entity r0-la has started, made a timer that has fired five times, been idle, and ended itself; r0-lb runs, and has a
# timer that is due in an hour.
my $lives = <<'SQL';
TRUNCATE sent, committed, handled, shard_inbox, shard_dead_letters, shard_entity.ledger;
TRUNCATE lives, commanded, shard_timers, shard_entity.alive;
INSERT INTO lives (entity, seq, what, timer, due, fired)
SELECT entity, seq, what, timer, '2001-01-01 10:00'::timestamptz + fired * interval '60 ms', fired
FROM (VALUES ('r0-la', 1, 'start', NULL, NULL), ('r0-la', 2, 'message', 'every3', NULL), ('r0-la', 3, 'tick', 'every3', 1),
             ('r0-la', 4, 'tick', 'every3', 2), ('r0-la', 5, 'tick', 'every3', 3), ('r0-la', 6, 'stop', NULL, NULL),
             ('r0-la', 7, 'start', NULL, NULL), ('r0-la', 8, 'tick', 'every3', 4), ('r0-la', 9, 'tick', 'every3', 5),
             ('r0-la', 10, 'left', NULL, NULL), ('r0-lb', 1, 'start', NULL, NULL), ('r0-lb', 2, 'message', NULL, NULL))
     AS v (entity, seq, what, timer, fired);
INSERT INTO shard_entity.alive VALUES ('r0-la', '{"seq": 10}', false), ('r0-lb', '{"seq": 2, "far": "far4"}', true);
INSERT INTO shard_timers VALUES ('alive', 'r0-lb', 'far4');
SQL
my $often = 'E32: a timer did not fire as often as it was to';
my @life_cases = (
	[ 'a call that is not in the state', q(UPDATE shard_entity.alive SET state = '{"seq": 9}' WHERE entity_id = 'r0-la';), 'P2: calls and states of a life differ' ],
	[ 'a call twice', q(INSERT INTO lives (entity, seq, what) VALUES ('r0-lb', 2, 'message');), 'P2: calls and states of a life differ' ],
	[ 'a life at two nodes', q(INSERT INTO lives (entity, seq, what, node) VALUES ('r0-lb', 1, 'start', 2);),
		'P2: calls and states of a life differ', 'P4: two nodes had a life at once' ],
	[ 'no start message', q(UPDATE lives SET what = 'message' WHERE (entity, seq) = ('r0-lb', 1);), 'E12: no start message before message' ],
	[ 'no start message after a stop', q(UPDATE lives SET what = 'message' WHERE (entity, seq) = ('r0-la', 7);), 'E12: no start message before message' ],
	[ 'who has ended is remembered', 'UPDATE shard_entity.alive SET remembered = true;', 'E10: remembered, and has ended itself' ],
	[ 'who runs is forgotten', 'UPDATE shard_entity.alive SET remembered = false;', 'E10: forgotten after message' ],
	[ 'a timer is lost', 'TRUNCATE shard_timers;', 'E31: a timer is gone that was not cancelled' ],
	[ 'a cancelled timer is kept', q(INSERT INTO shard_timers VALUES ('alive', 'r0-la', 'far9');), 'E31: a timer is there that was cancelled' ],
	[ 'a firing twice', q(UPDATE lives SET what = 'tick', timer = 'every3', fired = 5 WHERE (entity, seq) = ('r0-la', 7); UPDATE lives SET what = 'message' WHERE what = 'stop';),
		'E32: a firing was handled twice', $often, 'E34: a firing was left out' ],
	[ 'a firing too few', q(UPDATE lives SET what = 'message', timer = NULL WHERE (entity, seq) = ('r0-la', 9);), $often ],
	[ 'no firing', q(UPDATE lives SET what = 'message', timer = NULL WHERE what = 'tick';), $often ],
	[ 'a time left out', q(UPDATE lives SET due = due + interval '60 ms' WHERE fired = 5;), 'E34: a firing was left out' ],
	[ 'a timer of nobody', q(UPDATE lives SET timer = NULL WHERE what = 'message';), 'E31: a timer that nobody made' ],
);

# Kinds without count and example.
sub found { return join "\n", map { s/ \(\d.*//r } $ledger->violations }

$node->safe_psql('postgres', $clean . $state);
is(found(), '', 'clean books');

# What may be: overlapping transactions in either order, an unanswered ask done or not.
$node->safe_psql('postgres', $clean . swapped('r0-a', 3, 4) . $state);
is(found(), '', 'overlapping transactions have no order');
$node->safe_psql('postgres', "$clean UPDATE sent SET node = 2 WHERE session = 'c2'; " . swapped('r0-b', 1, 2) . $state);
is(found(), '', 'senders on different nodes have no order');
$node->safe_psql('postgres', "$clean INSERT INTO handled VALUES ('r0-a', 7, @{[message('c2', 2, 0)]}); $state");
is(found(), '', 'an unanswered ask may have been done');

for my $case (@cases)
{
	my ($name, $change, @expected) = @$case;
	$node->safe_psql('postgres', $clean . $change . $state);
	is(found(), join("\n", @expected), $name);
}
for my $case (@state_cases)
{
	my ($name, $change, @expected) = @$case;
	$node->safe_psql('postgres', $clean . $state . $change);
	is(found(), join("\n", @expected), $name);
}

$node->safe_psql('postgres', $lives);
is(found(), '', 'clean lives');
$node->safe_psql('postgres', "$lives UPDATE shard_entity.alive SET remembered = true; INSERT INTO commanded VALUES ('r0-la');");
is(found(), '', 'who was passivated by a client is remembered or not');
for my $case (@life_cases)
{
	my ($name, $change, @expected) = @$case;
	$node->safe_psql('postgres', $lives . $change);
	is(found(), join("\n", @expected), $name);
}

done_testing();
