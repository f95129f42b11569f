# What stands in the way of remembered entities that start with their shard: a shard that pauses in the middle of it, a
# page of their table that cannot be read. Other shards, other types and messages go on, and nobody is left out when it is
# mended (E13, E24). And an idle entity of a shard that pauses waits for its stop message without any work being done.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use Test::More;

my $node = ShardCluster->create('first', conf => "shard.region_workers = 1\nautovacuum = off");
sub value { return $node->safe_psql('postgres', shift) }
sub wait_value { my ($query, $value, $what) = @_; return $node->wait_for_value($query, $value, $what) }

value(q{
CREATE TABLE closed (one int);
CREATE TABLE seen (pos bigserial, entity text, what text);
CREATE FUNCTION note(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	IF message->>'what' = 'fail' AND EXISTS (SELECT FROM closed) THEN RAISE EXCEPTION 'closed'; END IF;
	INSERT INTO seen (entity, what) SELECT entity_id, message->>'what' FROM shard_self();
	RETURN jsonb_build_object('fill', repeat('x', 500));
END $$;
CREATE FUNCTION letter(id text) RETURNS int IMMUTABLE LANGUAGE sql RETURN ascii(id) - ascii('a');
});
my $running = q{SELECT count(*) FROM shard_region_state WHERE type_name = '%s' AND entity_id LIKE '%s%%' AND state = 'running'};
my $paused = q{SELECT string_agg(shard::text, ' ') FROM shard_region_stats WHERE paused_until > now()};
my $all_started = q{SELECT count(*) FROM shard_region_stats WHERE recovering};

# Five entities of shard 0 have started when it pauses; the rate lets no other one start until it is raised.
value(q{
SELECT shard_start('walk', 'note', number_of_shards => 2, shard_id_extractor => 'letter', remember_entities => true,
	start_message => '{"what": "start"}', supervision => 'escalate', shard_failure_backoff => '1 h', max_retry_backoff => '1 h',
	entity_recovery_strategy => 'constant', entity_recovery_number => 5, entity_recovery_frequency => '1 day');
SELECT count(shard_tell('walk', letter || i, '{"what": "work"}')) FROM unnest('{a,b}'::text[]) letter, generate_series(10, 39) i});
$node->drain;
value('TRUNCATE seen');
$node->stop('fast');
$node->start;
wait_value(sprintf($running, 'walk', ''), 5, 'some to start');
value(q{INSERT INTO closed VALUES (1); SELECT shard_tell('walk', 'a10', '{"what": "fail"}')});
wait_value($paused, 0, 'their shard to pause');
value(q{SELECT shard_alter('walk', 'entity_recovery_frequency', '10 ms')});
wait_value(sprintf($running, 'walk', 'b'), 30, 'those of the other shard to start meanwhile');
is(value($paused), 0, 'the shard pauses still');
is(value(q{SELECT count(*) FROM seen WHERE entity LIKE 'a%'}), 5, 'E24: nobody starts in a shard that pauses');
is(value(q{SELECT bool_or(recovering) FROM shard_region_stats WHERE shard = 0}), 't', 'it is not finished');
value(q{DELETE FROM closed; SELECT shard_alter('walk', 'shard_failure_backoff', '10 ms'), shard_alter('walk', 'max_retry_backoff', '1 s')});
wait_value(sprintf($running, 'walk', 'a'), 30, 'those of the shard to start after its pause');
wait_value($all_started, 0, 'the walk to end');
is(value(q{SELECT count(*) || ' ' || count(DISTINCT entity) FROM seen WHERE what = 'start'}), '60 60', 'E13: each has started once');
is(value(q{SELECT string_agg(remembered::text, ' ' ORDER BY shard) FROM shard_region_stats WHERE type_name = 'walk'}), '30 30', 'and is counted once');

# A shard pauses; an idle entity of it has a stop message to come.
value(q{
SELECT shard_start('rest', 'note', number_of_shards => 2, shard_id_extractor => 'letter', supervision => 'escalate',
	stop_message => '{"what": "stop"}', passivate_idle_after => '1 h', shard_failure_backoff => '1 h', max_retry_backoff => '1 h');
INSERT INTO closed VALUES (1);
SELECT shard_tell('rest', e, '{"what": "work"}') FROM unnest('{a1,a2,b1}'::text[]) e});
$node->drain;
value(q{SELECT shard_tell('rest', 'a2', '{"what": "fail"}')});
wait_value($paused, 0, 'the shard to pause');
value(q{SELECT shard_alter('rest', 'passivate_idle_after', '10 ms')});
wait_value(sprintf($running, 'rest', 'b'), 0, 'the idle one of the other shard to leave');
# Idle ones are looked for as often as some other one may have become idle: the worker has done all that it does.
my ($before, $quiet) = ('', 0);
ShardCluster::wait_for_condition(
	sub {
		my $now = value(q{SELECT pg_current_wal_insert_lsn() || ' ' || pg_snapshot_xmax(pg_current_snapshot()) || ' ' || sum(turns) FROM shard_stat_workers});
		$quiet = $now eq $before ? $quiet + 1 : 0;
		$before = $now;
		return $quiet >= 20;
	},
	'turns to end, and nothing to be written, while the shard pauses');
ShardCluster::wait_for_rest($node->worker_pids('%region%'), 'the worker to rest');
is(value($paused), 0, 'it pauses still');
is(value(sprintf $running, 'rest', 'a1'), 1, 'its idle entity is there');
value(q{DELETE FROM closed; SELECT shard_alter('rest', 'shard_failure_backoff', '10 ms'), shard_alter('rest', 'max_retry_backoff', '1 s')});
wait_value(sprintf($running, 'rest', ''), 0, 'all to leave after the pause');
is(value(q{SELECT string_agg(entity, ' ' ORDER BY entity) FROM seen WHERE what = 'stop'}), 'a1 a2 b1', 'each with its stop message');

# A page of the table of states is damaged. It is one of shard 0, where the walk begins.
value(q{
SELECT shard_start('torn', 'note', number_of_shards => 2, shard_id_extractor => 'letter', remember_entities => true);
SELECT shard_start('whole', 'note', number_of_shards => 2, shard_id_extractor => 'letter', remember_entities => true)});
value(qq{SELECT count(shard_tell('torn', letter || i, '{"what": "work"}')) FROM generate_series(10, 39) i, unnest('{a,b}'::text[]) letter}) for 1 .. 2;
value(q{SELECT count(shard_tell('whole', 'a' || i, '{"what": "work"}')) FROM generate_series(10, 39) i});
$node->drain;
my $file = value(q{SELECT pg_relation_filepath('shard_entity.torn')});
my $page = value(q{SELECT (ctid::text::point)[0]::int FROM shard_entity.torn WHERE entity_id = 'a20'});
my $good = value(qq{SELECT min(entity_id) FROM shard_entity.torn WHERE (ctid::text::point)[0]::int <> $page});
$node->stop('fast');

sub overwrite
{
	my ($bytes) = @_;
	my $path = $node->data_dir . "/$file";
	open my $fh, '+<:raw', $path or die "cannot open $path: $!";
	seek $fh, $page * 8192, 0;
	read $fh, my $old, 8192;
	seek $fh, $page * 8192, 0;
	print $fh $bytes;
	close $fh or die "cannot write $path: $!";
	return $old;
}

my $sound = overwrite("\xff" x 8192);
$node->start;
wait_value(sprintf($running, 'whole', ''), 30, 'entities of another type to start');
is(value(qq{SELECT shard_ask('torn', '$good', '{"what": "asked"}', '30 s') ? 'fill'}), 't', 'an entity whose row can be read answers');
value(q{SELECT shard_tell('whole', 'a10', '{"what": "told"}')});
$node->drain;
is(value(q{SELECT count(*) FROM seen WHERE what = 'told'}), 1, 'and messages are handled');
is(value(q{SELECT bool_or(recovering) FROM shard_region_stats WHERE type_name = 'torn'}), 't', 'the others are still to start');
overwrite($sound);
value(q{SELECT shard_alter('torn', 'handler_timeout', '20 s')});
wait_value(sprintf($running, 'torn', ''), 60, 'all to start once the page is mended');
$node->log_is_clean(qr/closed|pauses for|invalid page|one of \d+ in a row that failed/);
done_testing();
