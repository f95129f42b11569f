# The clock of a server is set back by an hour: a message in back-off waits for max_retry_backoff at most, as if it had failed
# now (D16), with nothing else that wakes its worker; so do a start that failed (E14), a gap in an order (D25), and an entity that
# was stopped and is remembered (E20). Nor does a worker wait that is to be started again. What happens to an entity in a turn
# in which the clock is set back is not undone.

use strict;
use warnings FATAL => 'all';

use ShardClock;
use ShardCluster;
use Test::More;

plan skip_all => 'a library that comes before that of the sanitizer' unless ShardClock::available;

my $clock = ShardClock->new;
my $node = $clock->with(sub { return ShardCluster->create('clock', conf => 'shard.region_workers = 1') });
# Each entity notes what it was given, unless the way is closed: then it fails for the moment, or for good.
$node->safe_psql('postgres', q{
CREATE TABLE closed ();
INSERT INTO closed DEFAULT VALUES;
CREATE TABLE seen (what text);
CREATE FUNCTION note(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    IF message #>> '{}' = 'fail' THEN RAISE 'it fails'; END IF;
    IF EXISTS (SELECT FROM closed) THEN RAISE serialization_failure; END IF;
    INSERT INTO seen VALUES (message #>> '{}');
    RETURN message;
END $$;
CREATE FUNCTION number(message jsonb) RETURNS int8 LANGUAGE sql IMMUTABLE RETURN (message #>> '{}')::int8;
CREATE FUNCTION numbered(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO seen VALUES ('number ' || (message #>> '{}'));
    RETURN message;
END $$;
SELECT shard_start('note', 'note', retry_backoff => '3 s', max_retry_backoff => '3 s');
SELECT shard_start('starts', 'note', start_message => '"started"', entity_restart_backoff => '3 s');
SELECT shard_start('stops', 'note', start_message => '"again"', entity_restart_backoff => '3 s', remember_entities => true,
    supervision => 'stop', max_attempts => 1);
SELECT shard_start('numbered', 'numbered', ordered_by => 'number', ordered_timeout => '20 s');
});

sub sql { return $node->safe_psql('postgres', @_) }

sub all_seen { return sql(q{SELECT string_agg(what, ', ' ORDER BY what) FROM seen}) // '' }

# one that runs, is remembered, and is stopped
sql('DELETE FROM closed');
sql(q{SELECT shard_tell('stops', 'r', '"told"')});
$node->wait_until(q{SELECT count(*) = 2 FROM seen}, 'an entity to run');
sql(q{TRUNCATE seen; INSERT INTO closed DEFAULT VALUES; SELECT shard_tell('stops', 'r', '"fail"')});
$node->wait_until(q{SELECT count(*) = 1 FROM shard_dead_letters}, 'it to be stopped');

sql(q{SELECT shard_tell('numbered', 'n', '1')});
$node->wait_until('SELECT count(*) = 1 FROM seen', 'a number to be handled');
sql(q{SELECT shard_tell('numbered', 'n', '3')});
$node->wait_until(q{SELECT count(*) = 1 FROM shard_inbox WHERE type_name = 'numbered'}, 'a number to wait');
sql(q{SELECT shard_tell('note', 'e', '"told"'), shard_start_entity('starts', 's')});
$node->wait_until(q{SELECT count(*) = 1 FROM shard_inbox WHERE type_name = 'note' AND attempts > 0}, 'the message to have failed');
$node->wait_until(q{SELECT count(*) = 1 FROM shard.held WHERE place = 'start' AND entity = 's' AND attempts > 0}, 'the start to have failed');
my $before = sql('SELECT clock_timestamp()');
$clock->set_back;
is(sql("SELECT clock_timestamp() < '$before'::timestamptz - interval '50 min'"), 't', 'the clock is set back');
sql('DELETE FROM closed');
eval { $node->wait_until('SELECT count(*) = 5 FROM seen', 'all to be handled, before the hour is over') };
is(all_seen(), 'again, number 1, number 3, started, told', 'nothing waits until the clock is where it was');

# Each time that it fails a worker is started later: some seconds in the end.
sub region { return sql(q{SELECT coalesce(min(pid), 0) FROM pg_stat_activity WHERE backend_type = 'shard region'}) }
for my $time (1 .. 4)
{
	my $pid = region();
	sql("SELECT pg_terminate_backend($pid)");
	$node->wait_until(qq{SELECT count(*) = 0 FROM pg_stat_activity WHERE pid = $pid}, 'a worker to end');
	last if $time == 4;
	$node->wait_until(qq{SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = 'shard region'}, 'another one');
}
$clock->set_back;
sql(q{SELECT shard_tell('note', 'e', '"more"')});
eval { $node->wait_until(q{SELECT count(*) = 1 FROM seen WHERE what = 'more'}, 'a worker, before the hour is over') };
is(sql(q{SELECT count(*) FROM seen WHERE what = 'more'}), 1, 'nor does a worker');

# In a turn: a message that has failed before sets it back and fails again, while something is to be started later.
my $file = $clock->file(3);
sql(qq{
CREATE SEQUENCE attempt;
CREATE FUNCTION sets_back(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS \$\$
BEGIN
    IF nextval('attempt') = 4 THEN COPY (SELECT 1) TO '$file'; END IF;
    IF currval('attempt') <= 4 THEN RAISE serialization_failure; END IF;
    INSERT INTO seen VALUES ('set back ' || (message #>> '{}'));
    RETURN message;
END \$\$;
SELECT shard_start('sets_back', 'sets_back', retry_backoff => '10 ms');
SELECT shard_start('later', 'note', start_message => '"again"', entity_restart_backoff => '300 s', remember_entities => true,
    supervision => 'stop', max_attempts => 1);
SELECT shard_tell('later', 'l', '"told"');
});
$node->wait_until(q{SELECT count(*) = 1 FROM shard_entity.later WHERE state = '"told"'}, 'another one to run');
sql(q{SELECT shard_tell('later', 'l', '"fail"')});
$node->wait_until(q{SELECT count(*) = 2 FROM shard_dead_letters}, 'it to be stopped');
# the others wait behind it
sql(q{SELECT shard_tell('sets_back', 'e', to_jsonb(i::text)) FROM generate_series(1, 5) i});
$node->drain;
is(sql(q{SELECT string_agg(what, ', ' ORDER BY what) FROM seen WHERE what ~ '^set back'}), join(', ', map { "set back $_" } 1 .. 5), 'each is handled once');
is(sql('SELECT count(*) FROM shard_inbox'), 0, 'and nothing waits');
$node->log_is_clean(qr/it fails|administrator command|could not serialize/);
done_testing();
