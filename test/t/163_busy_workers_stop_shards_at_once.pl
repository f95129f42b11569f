# A shard that moves does not wait until a busy worker has come to the end of what it has: turns are short, the
# turns that stop and seal the shard handle nothing, and they go before all that waits: in the inbox, in a stash,
# for lower numbers.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use ShardNodes;
use Test::More;

# Each sleeps for 10 ms: all of them are never handled before a test is through with them.
my $messages = 4000;
my $cluster = ShardNodes->create(2, databases => 1, conf => 'shard.region_workers = 1');
my ($here, $there) = $cluster->nodes;
$cluster->sql_everywhere(<<'SQL');
CREATE TABLE closed (one int);
CREATE TABLE hurry (one int);
CREATE TABLE held (one int);
CREATE TABLE handled (pos bigserial, turn xid8 DEFAULT pg_current_xact_id(), n int, slow bool);
CREATE FUNCTION slow(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	slow bool := NOT EXISTS (SELECT FROM hurry);
BEGIN
	IF message ? 'n' THEN
		IF EXISTS (SELECT FROM closed) THEN
			RAISE EXCEPTION 'closed' USING ERRCODE = 'serialization_failure';
		END IF;
		INSERT INTO handled (n, slow) VALUES ((message->>'n')::int, slow);
		IF slow THEN
			PERFORM pg_sleep(coalesce((message->>'sleep')::float, 0.01));
		END IF;
	END IF;
	IF message ? 'hold' THEN
		WHILE EXISTS (SELECT FROM held) LOOP
			PERFORM pg_sleep(0.01);
		END LOOP;
	END IF;
	RETURN message;
END $$;
CREATE FUNCTION number_of(message jsonb) RETURNS bigint LANGUAGE sql IMMUTABLE RETURN (message->>'n')::bigint;
SELECT shard_start('slow', 'slow', 4, handler_timeout => '180 s');
SELECT shard_start('waiting', 'slow', 4, max_attempts => 1000, retry_backoff => '100 ms', max_retry_backoff => '1 s');
SELECT shard_start('numbered', 'slow', 4, ordered_by => 'number_of', ordered_from => 1, ordered_window => 5000, ordered_timeout => '1 hour');
SQL
$cluster->start_recorder;

# SQL that tells an entity the messages $from to $to.
sub feed
{
	my ($type, $entity, $from, $to) = @_;
	return "SELECT count(shard_tell('$type', '$entity', jsonb_build_object('n', n))) FROM generate_series($from, $to) n";
}

# Entities in shards of their own, which have a state; each test moves one.
my %shard;
for my $entity ($cluster->entities_at('recorder', 1, 20))
{
	my $shard = $cluster->shard_of('recorder', $entity);
	$shard{$shard} //= $entity;
}
my @moving = sort { $a <=> $b } keys %shard;
cmp_ok(scalar @moving, '>=', 3, 'there are shards to be moved');
$here->sql(ShardCluster::tell_recorder($shard{$_}, 1, 3)) for @moving[ 0 .. 2 ];
$cluster->drain;

# Messages to $entity, so many in the end, are on their way. Ten more are sent, and another shard moves.
sub move_meanwhile
{
	my ($what, $type, $entity, $count) = @_;
	my $shard = shift @moving;
	my $own = "shard.own WHERE shard = $shard AND type_id = (SELECT type_id FROM shard.type WHERE type_name = 'recorder')";
	my $all = $count + 10;

	# The copy stands still before it begins, so the shard is sealed, and nothing else happens to it.
	$here->server->set_fault('import_begin', 'freeze');
	$here->wait_until('SELECT count(*) > 50 FROM handled', "$what to be under way");
	$here->sql(feed($type, $entity, $count + 1, $all));
	my $mover = $here->session;
	$mover->send("SELECT shard_move('recorder', $shard, 2);");
	$here->wait_value("SELECT state FROM $own", 'sealed', 'another shard to be sealed');
	cmp_ok($here->sql('SELECT count(*) FROM handled'), '<', $all, "$what: a shard is stopped before all of it is handled");
	is($here->sql("SELECT count(*) FROM handled WHERE turn::xid = (SELECT xmin FROM $own)"), 0, "$what: the turn that seals handles nothing");
	$here->server->clear_fault;
	$mover->receive;
	$mover->close;
	$cluster->wait_home('recorder', $shard, 2);
	is($there->sql("SELECT state->>'count' FROM shard_entity.recorder WHERE entity_id = '$shard{$shard}'"), 3, "$what: and the shard has moved");

	$here->sql('INSERT INTO hurry VALUES (1)');
	$here->wait_value('SELECT count(*) FROM handled', $all, 'everything to be handled');
	is($here->sql('SELECT count(*) FROM (SELECT n, row_number() OVER (ORDER BY pos) AS place FROM handled) h WHERE n = place'),
		$all, "$what: all is handled in order");
	cmp_ok($here->sql('SELECT max(n) FROM (SELECT count(*) FILTER (WHERE slow) AS n FROM handled GROUP BY turn) t'),
		'<', 100, "$what: turns were short");
	$here->sql('DELETE FROM handled; DELETE FROM hurry');
	return;
}

my ($busy) = $cluster->entity_at('slow', 1);
$here->sql(feed('slow', $busy, 1, $messages));
move_meanwhile('an inbox', 'slow', $busy, $messages);

# Behind a message that failed all others wait, and so does what comes meanwhile.
my ($waiting) = $cluster->entity_at('waiting', 1);
$here->sql('INSERT INTO closed VALUES (1)');
$here->sql(feed('waiting', $waiting, 1, $messages));
$here->wait_value("SELECT count(*) FROM shard_inbox WHERE type_name = 'waiting' AND place = 'stash'", $messages, 'a stash');
$here->sql('DELETE FROM closed');
move_meanwhile('a stash', 'waiting', $waiting, $messages);

my ($numbered) = $cluster->entity_at('numbered', 1);
$here->sql(feed('numbered', $numbered, 2, $messages));
$here->wait_value("SELECT count(*) FROM shard_inbox WHERE type_name = 'numbered' AND place = 'ordered'", $messages - 1, 'all to wait for the first one');
$here->sql(feed('numbered', $numbered, 1, 1));
move_meanwhile('lower numbers', 'numbered', $numbered, $messages);

# Asks that come together do not make one turn either: two of them take longer than a turn may.
my $asks = 8;
$here->sql("INSERT INTO held VALUES (1); SELECT shard_tell('slow', '$busy', '{\"hold\": true}')");
$here->wait_value(q{SELECT wait_event FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'shard region'},
	'PgSleep', 'the worker to be held');
my @asking = map { $here->session } 1 .. $asks;
$asking[$_]->send("SELECT shard_ask('slow', '$busy', '{\"n\": $_, \"sleep\": 0.06}', '180 s')->>'n';") for 0 .. $#asking;
$here->wait_value(q{SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT shard_ask(%' AND state = 'active' AND wait_event_type = 'Extension'},
	$asks, 'all to ask');
$here->sql('DELETE FROM held');
is($asking[$_]->receive, $_, "ask $_ is answered") for 0 .. $#asking;
$_->close for @asking;
is($here->sql('SELECT count(*), count(DISTINCT n) FROM handled'), "$asks|$asks", 'each of them was handled once');
cmp_ok($here->sql('SELECT max(n) FROM (SELECT count(*) AS n FROM handled GROUP BY turn) t'), '<=', 2, 'in several turns');
$cluster->logs_are_clean;
done_testing();
