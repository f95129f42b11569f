# A handler on trial and extractors run in the session of somebody else for as long as the type's handler_timeout, and a handler on
# trial waits for a lock as long as one in a worker: nobody holds what is locked there, the owner's or the sender's, for longer.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use Test::More;

my $node = ShardCluster->create('first', conf => "shard.handler_lock_timeout = 300ms\n");
$node->create_owners('mallory', 'alice');

sub as { return $node->as(@_) }

# The error of what is to fail.
sub fails
{
	my ($role, $sql) = @_;
	my ($status, undef, $error) = $node->psql('postgres', $sql, extra_params => [ '-U', $role, '-v', 'VERBOSITY=verbose' ]);
	return $status == 0 ? "\"$sql\" was done" : $error;
}

as('mallory', q{
CREATE TABLE mallory.rows (id int PRIMARY KEY, n int); INSERT INTO mallory.rows VALUES (1, 0);
CREATE FUNCTION mallory.run(q text) RETURNS text LANGUAGE plpgsql AS $$ BEGIN EXECUTE q; RETURN 'x'; END $$;
CREATE FUNCTION mallory.h(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN PERFORM mallory.run(message->>'q'); RETURN message; END $$;
CREATE FUNCTION mallory.keep(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN message;
CREATE FUNCTION mallory.id(message jsonb) RETURNS text LANGUAGE sql AS $$ SELECT mallory.run(message->>'q') $$;
CREATE FUNCTION mallory.shard(id text) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN PERFORM mallory.run(id); RETURN 1; END $$;
-- goes on when it is cancelled, a few times or for good
CREATE FUNCTION mallory.stubborn(times int) RETURNS text LANGUAGE plpgsql AS $$ BEGIN
	FOR i IN 1 .. times LOOP
		BEGIN
			PERFORM pg_sleep(30);
		EXCEPTION WHEN query_canceled THEN NULL;
		END;
	END LOOP;
	RETURN 'x';
END $$;
SELECT shard_start('tried', 'mallory.h', handler_timeout => '300 ms');
SELECT shard_start('told', 'mallory.keep', entity_id_extractor => 'mallory.id', handler_timeout => '300 ms');
SELECT shard_start('cut', 'mallory.keep', shard_id_extractor => 'mallory.shard', number_of_shards => 4, handler_timeout => '300 ms');
});
as('alice', q{
CREATE TABLE alice.rows (id int PRIMARY KEY, n int); INSERT INTO alice.rows VALUES (1, 0);
CREATE FUNCTION alice.h(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN
	UPDATE alice.rows SET n = n + 1;
	EXECUTE message->>'do';
	RETURN message;
END $$;
SELECT shard_start('alice', 'alice.h', handler_timeout => '60 s', max_attempts => 1);
});
my $late = qr/ERROR:\s+57014: (?:the handler|an extractor of entity type "\w+") ran longer than its handler_timeout/;
my %ways = (
	shard_try => sub { return "SELECT 1 FROM shard_try('tried', 'e', jsonb_build_object('q', \$q\$$_[0]\$q\$))" },
	shard_tell => sub { return "SELECT shard_tell('told', jsonb_build_object('q', \$q\$$_[0]\$q\$))" },
	shard_shard_id => sub { return "SELECT shard_shard_id('cut', \$q\$$_[0]\$q\$)" },
);
for my $way (sort keys %ways)
{
	my $do = $ways{$way};
	like(fails('alice', $do->('SELECT pg_sleep(30)')), $late, "$way: one that sleeps");
	like(fails('alice', $do->('SELECT mallory.stubborn(3)')), $late, "$way: and catches the cancellation");
	# what was late is over for what comes next
	my (undef, $out, $errors) = $node->psql('postgres', $do->('SELECT pg_sleep(30)') . '; SELECT pg_sleep(0.4); ' . $do->('SELECT 1') . q{; SELECT 'after'}, extra_params => [ '-U', 'alice' ], on_error_stop => 0);
	like($out, qr/after$/, "$way: the session goes on");
	is(scalar(() = $errors =~ /ERROR:/g), 1, "$way: what comes next is not cancelled");
	next if $way eq 'shard_try';
	(my $told = $do->('SELECT pg_sleep(30)')) =~ s/^SELECT/SELECT 1 FROM/;
	like(fails('alice', "SELECT shard_ask('alice', 'a', jsonb_build_object('do', \$d\$$told\$d\$))"), $late, "$way: in a handler that has more time");
}
is(as('alice', 'UPDATE alice.rows SET n = 0 RETURNING n'), 0, 'her row is free');

# However long the type's own limit is, a handler of another owner waits for a second: all of his entities do. The type's
# owner may take his own time.
as('mallory', q{SELECT shard_start('idle', 'mallory.keep', shard_id_extractor => 'mallory.shard', number_of_shards => 4, handler_timeout => '60 s'),
	shard_start('mine', 'mallory.h', handler_timeout => '60 s')});
my $idle = q{SELECT 1 FROM shard_shard_id('idle', 'SELECT pg_sleep(%s)')};
like(fails('alice', q{SELECT shard_ask('alice', 'a', jsonb_build_object('do', $d$} . sprintf($idle, 20) . q{$d$), '60 s')}), $late, "a handler does not wait for another owner's extractor");
as('mallory', q{SELECT shard_ask('mine', 'a', jsonb_build_object('q', $d$} . sprintf($idle, 1.5) . q{$d$), '60 s')});

# Nobody ends a session that catches for good but itself.
like(fails('alice', $ways{shard_tell}->('SELECT mallory.stubborn(100000)')), qr/terminating connection|server closed the connection/, 'one that goes on for good ends with its session');

# --- locks ----------------------------------------------------------------------------------------

my $holder = $node->session;
$holder->query('BEGIN; UPDATE mallory.rows SET n = 1;');
as('mallory', q{SELECT shard_alter('tried', 'handler_timeout', '30 s')});
like(fails('alice', $ways{shard_try}->('UPDATE mallory.rows SET n = 2')), qr/ERROR:\s+55P03/, 'a handler on trial waits for a lock no longer than in a worker');
like(fails('alice', $ways{shard_try}->(q{SELECT set_config('lock_timeout', NULL, true)})), qr/ERROR:\s+42501: permission denied to set parameter "lock_timeout"/, "nor has it the client's bound by a value that is NULL");
is(as('alice', q{SET lock_timeout = '7s'; SELECT 1 FROM shard_try('tried', 'e', '{"q": "SELECT 1"}'); SHOW lock_timeout}), "1\n7s", 'what the session has set is as before');
$holder->query('ROLLBACK;');
my $trier = $node->session;
$trier->query(q{BEGIN; SELECT shard_try('tried', 'e', '{"q": "UPDATE mallory.rows SET n = 2"}');});
is(as('mallory', q{SET lock_timeout = '5s'; UPDATE mallory.rows SET n = 3 RETURNING n}), 3, 'a trial that is over holds no row');
$trier->query('ROLLBACK;');
$_->close for $holder, $trier;
$node->log_is_clean;

done_testing();
