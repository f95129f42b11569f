# An owner whose handler takes most of a second for each message, and who has many of them, keeps nobody's inbox full: his worker puts
# messages aside between two calls, in order, where the inbox is about to fill up. When too many of them wait, his
# senders are refused, also for entities of which nothing waits yet; others never. Nor does he keep others' segments from being
# emptied while his handler is stuck and he has the first group of lanes.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use Test::More;
use Time::HiRes ();

my $node = ShardCluster->create('first', conf => "shard.region_workers = 1\nshard.inbox_max_size = '16MB'");
$node->create_owners('mallory', 'alice');
$node->as('mallory', q{
CREATE FUNCTION mallory.h(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN
	IF EXISTS (SELECT FROM pg_class WHERE relname = 'is_slow') THEN PERFORM pg_sleep(0.75); END IF;
	RETURN coalesce(state, '[]') || (message->'n');
END $$;
CREATE TABLE mallory.is_slow ();
SELECT shard_start('tm', 'mallory.h', buffer_size => 1000)});
$node->as('alice', q{
CREATE FUNCTION alice.h(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN to_jsonb(coalesce(state::int, 0) + 1);
SELECT shard_start('ta', 'alice.h')});
$node->wait_until('SELECT ok FROM shard_health()', 'ok');

# So that mallory's first message is being handled when the inbox fills up.
$node->safe_psql('postgres', q{SELECT count(shard_tell('tm', 'e' || e, jsonb_build_object('n', n))) FROM generate_series(1, 5) n, generate_series(1, 40) e});
my $refused = 0;
my $batches = 0;
my $aside = q{SELECT count(*) FROM shard.held};
# Four times the inbox, no faster than alice's own worker handles it, while mallory has time for some messages.
ShardCluster::wait_for_condition(sub {
	my ($status, undef, $error) = $node->psql('postgres', q{SELECT count(shard_tell('ta', i::text, jsonb_build_object('x', repeat('x', 1000)))) FROM generate_series(1, 300) i});
	$status == 0 ? $batches++ : $refused++;
	diag($error) if $status != 0;
	$node->wait_until(q{SELECT NOT EXISTS (SELECT FROM shard_inbox WHERE type_name = 'ta')}, 'what alice was sent') if $batches % 2 == 0;
	Time::HiRes::usleep(50_000);
	return $batches >= 160 }, "alice's messages");
is($refused, 0, "alice's messages, four times what the inbox may have, are taken");
cmp_ok($node->safe_psql('postgres', $aside), '>', 20, "some of mallory's were put aside");

# Whatever mallory sends, it is bounded.
my $taken = 0;
ShardCluster::wait_for_condition(sub {
	my ($status, undef, $error) = $node->psql('postgres', qq{\\set VERBOSITY verbose
SELECT count(shard_tell('tm', 'f' || i || ' ' || $taken, jsonb_build_object('n', 0, 'x', repeat('x', 4000)))) FROM generate_series(1, 100) i});
	$taken += 100 if $status == 0;
	$node->psql('postgres', q{SELECT count(shard_tell('ta', i::text, '{}')) FROM generate_series(1, 10) i});
	return $status != 0 && $error =~ /53400: .*buffer/ }, 'mallory to be refused for his buffer');
cmp_ok($taken, '<', 10_000, "it was his own, after $taken messages");
is($node->safe_psql('postgres', q{SELECT count(shard_tell('ta', i::text, '{}')) FROM generate_series(1, 10) i}), 10, 'alice is not refused');

$node->as('mallory', 'DROP TABLE mallory.is_slow');
$node->wait_until(q{SELECT shard_drain('5 s')}, 'all to be handled');
is($node->safe_psql('postgres', q{SELECT count(*) || ' ' || bool_and(state = '[1, 2, 3, 4, 5]') FROM shard_entity.tm WHERE entity_id LIKE 'e%'}), '40 true',
	'once, in order');
is($node->safe_psql('postgres', q{SELECT count(*) FROM shard_entity.tm WHERE entity_id LIKE 'f%'}), $taken, 'and the others');
$node->wait_until(q{SELECT count(shard_tell('tm', 'g', '{"n": 1}')) = 1}, 'mallory to be taken again');
$node->log_is_clean;
done_testing();
