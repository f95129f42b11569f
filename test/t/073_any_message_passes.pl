# Whatever jsonb a sender may tell, the home takes: its check of what comes over a link refuses nothing
# that PostgreSQL makes. Messages and replies of asks come out as they went in, and errors of handlers
# whatever their SQLSTATE.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(2);
my ($one, $two) = $cluster->nodes;
$cluster->sql_everywhere(q{
CREATE TABLE got (pos bigserial, message jsonb);
CREATE FUNCTION echo(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	INSERT INTO got (message) VALUES (message);
	PERFORM shard_reply(message);
	RETURN '{}';
END $$;
SELECT shard_start('echo', 'echo', max_message_size => 64000000);
CREATE SEQUENCE raised;
CREATE FUNCTION fail(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	IF message ? 'noop' THEN RETURN '{}'; END IF;
	PERFORM nextval('raised');
	RAISE 'failed with %', message USING ERRCODE = message->>0;
END $$;
SELECT shard_start('fail', 'fail');
});
$cluster->wait_registered;
my $there = $cluster->entity_at('echo', 2);
# what gave its shard a home leaves no trace
$cluster->drain;
$two->sql('TRUNCATE got');

# Values of all kinds, nested at random. setseed makes it the same again.
my $seed = $ENV{SHARD_SEED} // int(rand(1 << 31));
note("seed $seed");
$one->sql(q{
CREATE TABLE scalars (no int, v jsonb);
INSERT INTO scalars SELECT row_number() OVER () - 1, v FROM (
	SELECT v::jsonb FROM unnest('{0,-0,1,-1,0.0,0.10,1e-300,1e300,-12345678901234567890.123456789,1e-16383,9999,10000,99999999,1e131000,true,false,"null"}'::text[]) v
	UNION ALL SELECT to_jsonb(v) FROM unnest(ARRAY['', 'a', repeat('x', 10), repeat('long ', 3000), 'ÄÖÜ 中文 😀', E'\\ " \n \t', E'\x01']) v
	UNION ALL SELECT to_jsonb(v) FROM unnest(ARRAY[1.5, 3e40, -7, 0.00001]::numeric[]) v
	UNION ALL SELECT to_jsonb(now()) UNION ALL SELECT '{}' UNION ALL SELECT '[]' UNION ALL SELECT '[[]]' UNION ALL SELECT '[{}]') s;
CREATE FUNCTION any_json(depth int) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
	size int := CASE WHEN random() < 0.1 THEN 100 * random() ELSE 5 * random() END;
	result jsonb;
BEGIN
	IF depth = 0 OR random() < 0.3 THEN
		SELECT v INTO STRICT result FROM scalars ORDER BY random() LIMIT 1;
	ELSIF random() < 0.5 THEN
		SELECT coalesce(jsonb_agg(any_json(depth - 1)), '[]') INTO result FROM generate_series(1, size);
	ELSE
		SELECT coalesce(jsonb_object_agg(repeat('k', (10 * random())::int) || i, any_json(depth - 1)), '{}') INTO result FROM generate_series(1, size) i;
	END IF;
	RETURN result;
END $$;
CREATE TABLE sent (pos bigserial, message jsonb);
INSERT INTO sent (message) SELECT v FROM scalars ORDER BY no;
});
$one->sql("SELECT setseed($seed / 4294967296.0); INSERT INTO sent (message) SELECT any_json(3) FROM generate_series(1, 1000)");
$one->sql(q{
INSERT INTO sent (message) SELECT ('"' || repeat(md5(i::text), 30000) || '"')::jsonb FROM generate_series(1, 3) i;
INSERT INTO sent (message) SELECT jsonb_object_agg('key' || i, i) FROM generate_series(1, 100000) i;
INSERT INTO sent (message) SELECT (repeat('[', 900) || repeat(']', 900))::jsonb;
});
$one->sql(qq{SELECT shard_tell_many('echo', array_agg('$there'::text), array_agg(message ORDER BY pos)) FROM sent});
$cluster->drain;

my $sums = q{SELECT string_agg(md5(message::text), ' ' ORDER BY pos) FROM };
my ($sent, $got) = ($one->sql($sums . 'sent'), $two->sql($sums . 'got'));
is($two->sql('SELECT count(*) FROM got'), $one->sql('SELECT count(*) FROM sent'), 'each message has arrived');
ok($sent eq $got, 'as it was sent, in order');
is($one->sql(qq{SELECT count(*) FROM (SELECT * FROM sent ORDER BY pos % 7, pos LIMIT 60) s WHERE shard_ask('echo', '$there', message, '60 s') IS DISTINCT FROM message}), 0, 'replies are what was asked');
is($one->sql(qq{SELECT count(*) FROM sent WHERE octet_length(message::text) > 100000 AND shard_ask('echo', '$there', message, '60 s') IS DISTINCT FROM message}), 0, 'long ones, too');

# The codes that nodes answer each other are a handler's to raise, too: nobody takes its error for theirs.
my $failing = $cluster->entity_at('fail', 2);
for my $code (qw(SH001 SH002 SH003 SH005 08P01))
{
	$two->sql(q{ALTER SEQUENCE raised RESTART});
	like($one->error_of(qq{SELECT shard_ask('fail', '$failing', '["$code"]', '60 s')}) // '', qr/$code.*failed with/, "error $code comes back");
	is($two->sql(q{SELECT nextval('raised')}), 2, 'of one execution');
}
$cluster->logs_are_clean(@ShardNodes::link_troubles);
done_testing();
