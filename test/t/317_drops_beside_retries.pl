# A type is dropped while its messages fail and are tried again: what memory counts of them is wrong then, which is no defect to be
# reported.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use Test::More;

my $rounds = 40;
my $node = ShardCluster->create('drops', conf => 'shard.region_workers = 1');
sub sql { return $node->safe_psql('postgres', @_) }

sql(q{
CREATE FUNCTION fail(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RAISE serialization_failure; END $$;
SET client_min_messages = warning;
SELECT shard_start('stays', 'fail');
});
my $worker = sql('SELECT pid FROM shard_stat_workers');
for (1 .. $rounds)
{
	sql(q{
SET client_min_messages = warning;
SELECT shard_start('goes', 'fail', retry_backoff => '1 ms', max_retry_backoff => '2 ms');
SELECT count(shard_tell('goes', i::text, '{}')) FROM generate_series(1, 60) i});
	$node->wait_until(q{SELECT count(*) > 0 FROM shard_inbox WHERE type_name = 'goes' AND attempts > 5}, 'messages to be tried again');
	sql(q{SET client_min_messages = warning; SELECT shard_drop_type('goes', true)});
}
is(sql('SELECT pid, recounts FROM shard_stat_workers'), "$worker|0", "$rounds drops are no defects");
done_testing();
