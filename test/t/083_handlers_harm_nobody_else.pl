# What goes wrong with one message, or with one row, is the matter of that message alone: others are handled.

use strict;
use warnings FATAL => 'all';

use PostgreSQL::Test::Utils qw(slurp_file);
use ShardCluster;
use Test::More;

my $node = ShardCluster->create('first', conf => "shard.region_workers = 1\nshard.handler_lock_timeout = '60 s'");
$node->start_recorder;

# A handler that takes some tenths of a second and looks at no interrupt, also not when it is done. And one that
# fails once, so that it is run carefully, and waits at the gate then.
my $long = join ', ', ('sha512(state)') x 300;
$node->safe_psql('postgres', qq{
CREATE FUNCTION deaf(state bytea, message jsonb) RETURNS bytea LANGUAGE sql
RETURN CASE WHEN message ? 'long' THEN (ARRAY[$long])[1] ELSE message::text::bytea END;
CREATE FUNCTION plain(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN message;
CREATE SEQUENCE runs;
CREATE FUNCTION careful(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS \$\$
BEGIN
	IF nextval('runs') = 1 THEN RAISE EXCEPTION 'once more'; END IF;
	PERFORM FROM gate FOR SHARE;
	RETURN coalesce(state, '[]') || message;
END \$\$;
SELECT shard_start('plain', 'plain'), shard_start('deaf', 'deaf', handler_timeout => '10 ms'), shard_start('careful', 'careful', handler_timeout => '180 s');
SELECT shard_ask(t, 'warm', '{}') FROM unnest('{plain,deaf}'::text[]) t;
INSERT INTO shard_entity.deaf (shard, entity_id, state) SELECT shard_shard_id('deaf', 'a'), 'a', decode(repeat('00', 1000000), 'hex');
});
my $worker = ($node->worker_pids('%region%'))[0];

# A worker in a careful turn, at the gate.
sub careful_at_gate
{
	my ($entity, $gate) = @_;
	$gate //= 'gate';
	$node->safe_psql('postgres', q{SELECT setval('runs', 1, false)});
	my $keeper = $node->session;
	$keeper->query("BEGIN; SELECT FROM $gate FOR UPDATE;");
	$node->safe_psql('postgres', qq{SELECT shard_tell('careful', '$entity', '"told"')});
	$node->wait_until(q{SELECT count(*) > 0 FROM pg_stat_activity WHERE backend_type LIKE 'shard%' AND wait_event_type = 'Lock'}, 'a worker at the gate');
	return $keeper;
}

# --- a handler that does not notice that its time is over ----------------------------------------

$node->safe_psql('postgres', q{BEGIN; SELECT shard_tell('deaf', 'a', '{"long": 1}'); SELECT shard_tell('plain', 'a', '1'), shard_tell('deaf', 'a', '2'); COMMIT;});
is($node->safe_psql('postgres', q{SELECT shard_ask('plain', 'b', '3', '60 s')}), 3, 'others are asked');
$node->drain;
is($node->safe_psql('postgres', 'SELECT type_name, message, sqlstate, error FROM shard_dead_letters'),
	'deaf|{"long": 1}|57014|the handler ran longer than its handler_timeout', 'its message is given up');
is($node->safe_psql('postgres', q{SELECT p.state, encode(d.state, 'escape') FROM shard_entity.plain p, shard_entity.deaf d WHERE p.entity_id = 'a' AND d.entity_id = 'a'}),
	'1|2', 'the others are handled');

# --- a worker that is cancelled ------------------------------------------------------------------

my $keeper = careful_at_gate('cancelled');
my $turn = $node->safe_psql('postgres', "SELECT xact_start FROM pg_stat_activity WHERE pid = $worker");
$node->safe_psql('postgres', "SELECT pg_cancel_backend($worker)");
$node->wait_until("SELECT coalesce((SELECT xact_start > '$turn' FROM pg_stat_activity WHERE pid = $worker), true)", 'the turn to end');
$keeper->query('COMMIT;');
$node->drain;
is($node->safe_psql('postgres', q{SELECT state FROM shard_entity.careful WHERE entity_id = 'cancelled'}), '["told"]', 'a message whose run was cancelled is handled');
is(join(' ', $node->worker_pids('%region%')), $worker, 'by the same worker');

# --- a worker that waits for a lock ----------------------------------------------------------------

# The timer of a call wakes nobody who waits: with log_lock_waits the server says so once for each wait, and the handler's
# time ends in the wait all the same, in the first run and in the careful one.
$node->safe_psql('postgres', q{
CREATE FUNCTION waits(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	PERFORM FROM gate FOR SHARE;
	RETURN message;
END $$;
SELECT shard_start('waits', 'waits', handler_timeout => '2 s');
ALTER SYSTEM SET log_lock_waits = on;
ALTER SYSTEM SET deadlock_timeout = '200 ms';
});
$node->reload;
$node->wait_until(q{SELECT current_setting('deadlock_timeout') = '200ms'}, 'the settings to be read');
my $log_before = -s $node->logfile;
$keeper = $node->session;
$keeper->query('BEGIN; SELECT FROM gate FOR UPDATE;');
$node->safe_psql('postgres', q{SELECT shard_tell('waits', 'a', '1')});
$node->drain;
$keeper->query('COMMIT;');
is($node->safe_psql('postgres', q{SELECT sqlstate FROM shard_dead_letters WHERE type_name = 'waits'}), 57014, 'the time of a handler that waits for a lock ends');
my @waits = slurp_file($node->logfile, $log_before) =~ /process $worker still waiting for/g;
ok(@waits >= 1 && @waits <= 2, 'each wait is logged once') or diag(scalar(@waits) . ' lines');
$node->safe_psql('postgres', 'ALTER SYSTEM RESET log_lock_waits; ALTER SYSTEM RESET deadlock_timeout');
$node->reload;

# --- a row that comes while its message is handled -----------------------------------------------

$keeper = careful_at_gate('inserted');
$node->safe_psql('postgres', q{INSERT INTO shard_entity.careful (shard, entity_id, state) SELECT shard_shard_id('careful', 'inserted'), 'inserted', '["by hand"]'});
$keeper->query('COMMIT;');
$node->drain;
is($node->safe_psql('postgres', q{SELECT state FROM shard_entity.careful WHERE entity_id = 'inserted'}), '["by hand", "told"]', 'the message is handled with the row');

# The same for one that changes between the last look at it and the write: what is checked then waits.
$node->safe_psql('postgres', q{
CREATE TABLE second_gate AS SELECT 1 AS one;
CREATE FUNCTION slow(state jsonb) RETURNS bool LANGUAGE plpgsql AS $$
BEGIN
	IF state ? 'told' THEN PERFORM FROM second_gate FOR SHARE; END IF;
	RETURN true;
END $$;
ALTER TABLE shard_entity.careful ADD CHECK (slow(state));
INSERT INTO shard_entity.careful (shard, entity_id, state) SELECT shard_shard_id('careful', 'changed'), 'changed', '["first"]';
});
$keeper = careful_at_gate('changed', 'second_gate');
$node->safe_psql('postgres', q{UPDATE shard_entity.careful SET state = '["by hand"]' WHERE entity_id = 'changed'});
$keeper->query('COMMIT;');
$node->drain;
is($node->safe_psql('postgres', q{SELECT state FROM shard_entity.careful WHERE entity_id = 'changed'}), '["by hand", "told"]', 'so is one whose row changes while it is written');
is($node->safe_psql('postgres', q{SELECT count(*) FROM shard_dead_letters WHERE type_name = 'careful'}), 0, 'no message of these was given up');

# --- a row that others reference -----------------------------------------------------------------

$node->safe_psql('postgres', q{
CREATE TABLE refers (shard int, entity_id text, FOREIGN KEY (shard, entity_id) REFERENCES shard_entity.plain);
INSERT INTO refers SELECT shard, entity_id FROM shard_entity.plain WHERE entity_id = 'b';
});
my $held = 'SELECT xmin, xmax, ctid FROM shard_entity.plain WHERE entity_id = \'b\'';
my $before = $node->safe_psql('postgres', $held);
like($before, qr/\|[1-9]\d*\|/, 'a foreign key has left its lock on the row');
is($node->safe_psql('postgres', q{SELECT shard_ask('plain', 'b', '3')}), 3, 'a question changes nothing');
is($node->safe_psql('postgres', $held), $before, 'not even locks');
my $user = $node->session;
$user->query('BEGIN; INSERT INTO refers SELECT * FROM refers;');
my $second = $node->session;
$second->query('BEGIN; INSERT INTO refers SELECT * FROM refers;');
$before = $node->safe_psql('postgres', $held);
is($node->safe_psql('postgres', q{SELECT shard_ask('plain', 'b', '3')}), 3, 'nor while two hold it');
is($node->safe_psql('postgres', $held), $before, 'not even locks');
is($node->safe_psql('postgres', q{SELECT shard_ask('plain', 'b', '4')}), 4, 'the row can be written meanwhile');
$_->query('COMMIT;') for $user, $second;

# A row that is to go has to wait for them, and the message does so, not the worker.
$node->safe_psql('postgres', q{
CREATE FUNCTION gone(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN nullif(message, '"go"');
SELECT shard_start('gone', 'gone');
SELECT shard_ask('gone', e, '1') FROM unnest('{a,b}'::text[]) e;
});
$user->query(q{BEGIN; SELECT FROM shard_entity.gone FOR KEY SHARE;});
$second->query(q{BEGIN; SELECT FROM shard_entity.gone WHERE entity_id = 'b' FOR KEY SHARE;});
is($node->safe_psql('postgres', q{SELECT shard_tell('gone', e, '"go"') FROM unnest('{a,b}'::text[]) e; SELECT shard_ask('plain', 'b', '4', '30 s')}) =~ s/^\n+//r, 4,
	'others are handled while rows that are to go are held');
is($node->safe_psql('postgres', 'SELECT count(*) FROM shard_entity.gone'), 2, 'they stay until then');
$_->query('COMMIT;') for $user, $second;
$node->drain;
is($node->safe_psql('postgres', 'SELECT count(*) FROM shard_entity.gone'), 0, 'and go');
is($node->safe_psql('postgres', q{SELECT count(*) FROM shard_dead_letters WHERE type_name = 'gone'}), 0, 'no message of these was given up');

# --- a row that cannot be read -------------------------------------------------------------------

# Out of line values of the table are gone.
$node->safe_psql('postgres', q{
SELECT shard_tell('plain', 'broken', (SELECT to_jsonb(string_agg(md5(i::text), '')) FROM generate_series(1, 1000) i));
SELECT shard_drain();
});
my $toast = $node->data_dir . '/' . $node->safe_psql('postgres', q{SELECT pg_relation_filepath(reltoastrelid) FROM pg_class WHERE oid = 'shard_entity.plain'::regclass});
cmp_ok(-s $toast, '>', 0, 'the state is out of line');
$node->stop;
truncate $toast, 0 or die "truncate: $!";
$node->start;
$node->safe_psql('postgres', q{BEGIN; SELECT shard_tell('plain', e, '5') FROM unnest('{a,broken,b}'::text[]) e; SELECT shard_tell('recorder', 'a', '{"what": "1"}'); SELECT shard_start_entity('plain', 'broken'); COMMIT;});
$node->drain;
is($node->safe_psql('postgres', q{SELECT entity_id, message, sqlstate FROM shard_dead_letters WHERE type_name = 'plain'}), 'broken|5|XX001', 'its message is given up');
is($node->safe_psql('postgres', q{SELECT string_agg(entity_id || state, ' ' ORDER BY entity_id) FROM shard_entity.plain WHERE entity_id IN ('a', 'b')}), 'a5 b5', 'others are handled');
is($node->safe_psql('postgres', ShardCluster::recorded('a')), '1 = 1', 'of other types, too');
my ($status, $out, $err) = $node->psql('postgres', "\\set VERBOSITY verbose\nSELECT shard_ask('plain', 'broken', '6')");
like($err, qr/ERROR:  XX001:/, 'who asks is told');
is($node->safe_psql('postgres', q{SELECT shard_ask('plain', 'a', '7')}), 7, 'and others are answered');

$node->log_is_clean;
done_testing();
