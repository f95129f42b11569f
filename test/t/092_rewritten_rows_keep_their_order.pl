# VACUUM frees line pointers of aborted senders on a page of the log; VACUUM FULL lays what is on a page over the ends of
# new ones. However turns end between rows of the same old page, none of them is passed over or comes before its time.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use Test::More;

my $node = ShardCluster->create('rewritten', conf => 'shard.region_workers = 1');
$node->safe_psql('postgres', q{
CREATE TABLE handled (n int);
CREATE FUNCTION takes(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	IF (message->>'n')::int % 7 = 0 THEN RAISE 'as told'; END IF;
	INSERT INTO handled VALUES ((message->>'n')::int);
	RETURN message;
END $$;
SELECT shard_start('takes', 'takes(jsonb,jsonb)', 1, max_attempts => 1);
SELECT shard_ask('takes', 'a', '{"n": 1}');
TRUNCATE handled;
});
my ($worker) = $node->worker_pids('%region%');
$node->stop_idle($worker);
my $n = 0;
sub tells { my ($count) = @_; my $from = $n + 1; $n += $count; return "SELECT count(shard_tell('takes', 'a', jsonb_build_object('n', i))) FROM generate_series($from, $n) i;" }
# Rolled back messages, so many that they are written, in front of others; then VACUUM, and more.
for my $round (1 .. 40)
{
	$node->safe_psql('postgres', qq{BEGIN; SAVEPOINT a; SELECT count(shard_tell('takes', 'a', '{"n": 0}')) FROM generate_series(1, 70) i; RELEASE a; ROLLBACK;});
	$node->safe_psql('postgres', tells(15));
	$node->vacuum_inbox;
	$node->safe_psql('postgres', tells(10 + $round % 7));
}
$node->vacuum_inbox('FULL');
kill 'CONT', $worker;
$node->drain;
is($node->safe_psql('postgres', "SELECT string_agg(i::text, ' ') FROM generate_series(1, $n) i WHERE NOT EXISTS (SELECT FROM handled WHERE n = i)
	AND NOT EXISTS (SELECT FROM shard_dead_letters WHERE (message->>'n')::int = i)"), '', "nothing of $n messages is lost");
is($node->safe_psql('postgres', "SELECT count(*) - count(DISTINCT n) FROM handled"), 0, 'nor doubled');
is($node->safe_psql('postgres', "SELECT count(*) FROM (SELECT n < lag(n) OVER (ORDER BY ctid) AS wrong FROM handled) h WHERE wrong"), 0, 'and all are in order');
$node->stop;
done_testing();
