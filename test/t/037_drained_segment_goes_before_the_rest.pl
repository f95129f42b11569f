# A sender whose rows began in one segment of the inbox and ended in the next one commits late, and is
# drained in many turns. The first segment is emptied while rows of the second one are still to be handled:
# the worker goes on with those, in order.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use Test::More;

my $node = ShardCluster->create('first', conf => "shard.region_workers = 1\nshard.inbox_max_size = '2MB'\nshard.handler_lock_timeout = '60 s'\nautovacuum = off");
$node->start_recorder;
# A turn ends after 100 ms. The last messages but a few wait until nobody holds table gate.
$node->safe_psql('postgres', q{
	CREATE TABLE slowly (what int, at timestamptz DEFAULT clock_timestamp());
	CREATE FUNCTION slow(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM pg_sleep(0.02);
		IF (message->>'what')::int = 290 THEN
			PERFORM FROM gate FOR SHARE;
		END IF;
		INSERT INTO slowly VALUES ((message->>'what')::int);
		RETURN message;
	END $$;
	SELECT shard_start('slow', 'slow(jsonb,jsonb)', 1, handler_timeout => '180 s')});

# Long enough to be appended at once, and not with the commit.
my $pad = q{(SELECT string_agg(md5((i * j)::text), '') FROM generate_series(1, 60) j)};
my $tell = sub { my ($from, $to) = @_;
	qq{SELECT count(shard_tell('slow', 'e', jsonb_build_object('what', i, 'pad', $pad))) FROM generate_series($from, $to) i;} };
my $used = "FROM ($ShardCluster::segments) AS t(s) WHERE pg_relation_size(s) > 0";

# What has no home yet would be parked.
$node->safe_psql('postgres', $tell->(0, 0));
$node->drain;

my $first = $node->safe_psql('postgres', "SELECT s $used");
my $late = $node->session;
$late->query('BEGIN; ' . $tell->(1, 100));
ShardCluster::wait_for_condition(sub {
	$node->safe_psql('postgres', qq{SELECT count(shard_tell('recorder', 'noise', jsonb_build_object('what', $pad))) FROM generate_series(1, 50) i});
	return $node->safe_psql('postgres', "SELECT count(*) $used") >= 2 }, 'the next segment to be begun');
$node->drain;
is($node->safe_psql('postgres', "SELECT pg_relation_size('$first') > 0"), 't', 'the sender keeps the first segment');
$late->query($tell->(101, 300));
# Their rows, too, are passed while the sender is open.
$node->safe_psql('postgres', ShardCluster::tell_recorder('noise', 'last'));
$node->drain;
my $keeper = $node->session;
$keeper->query('BEGIN; SELECT FROM gate FOR UPDATE;');
$late->query('COMMIT;');
$node->wait_for_value("SELECT pg_relation_size('$first')", 0, 'the first segment to be emptied');
cmp_ok($node->safe_psql('postgres', 'SELECT count(*) FROM slowly'), '<', 301, 'it is emptied while the sender is drained');
$keeper->query('COMMIT;');
$node->drain;
is($node->safe_psql('postgres', 'SELECT count(*), array_agg(what ORDER BY at) = array_agg(what ORDER BY what) FROM slowly'),
	'301|t', 'all is handled, once and in order');
$node->log_is_clean;
done_testing();
