# The clock of a server is set back by an hour: a message in back-off waits for max_retry_backoff at most, as if it had failed
# now (D16), with nothing else that wakes its worker.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use Test::More;

plan skip_all => 'a library that comes before that of the sanitizer' if $ENV{ASAN_OPTIONS};

# The time of the server's processes is an hour ago as soon as the file is there.
my $folder = PostgreSQL::Test::Utils::tempdir;
my $back = "$folder/back";
my $library = "$folder/clock.so";
PostgreSQL::Test::Utils::append_to_file("$folder/clock.c", <<"END");
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/time.h>
#include <unistd.h>

int
gettimeofday(struct timeval *restrict now, void *restrict zone)
{
	static int (*real) (struct timeval *restrict, void *restrict);

	if (!real)
		*(void **) &real = dlsym(RTLD_NEXT, "gettimeofday");
	if (real(now, zone) != 0)
		return -1;
	if (access("$back", F_OK) == 0)
		now->tv_sec -= 3600;
	return 0;
}
END
PostgreSQL::Test::Utils::system_or_bail('cc', '-shared', '-fPIC', '-o', $library, "$folder/clock.c", '-ldl');

my $node;
{
	local $ENV{LD_PRELOAD} = $library;
	$node = ShardCluster->create('clock', conf => 'shard.region_workers = 1');
}
$node->safe_psql('postgres', q{
CREATE TABLE closed ();
INSERT INTO closed DEFAULT VALUES;
CREATE TABLE seen (what text);
CREATE FUNCTION note(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    IF EXISTS (SELECT FROM closed) THEN RAISE serialization_failure; END IF;
    INSERT INTO seen VALUES (message #>> '{}');
    RETURN message;
END $$;
SELECT shard_start('note', 'note', retry_backoff => '3 s', max_retry_backoff => '3 s');
SELECT shard_tell('note', 'e', '"told"');
});
$node->wait_until('SELECT count(*) = 1 FROM shard_inbox WHERE attempts > 0', 'the message to have failed');
my $before = $node->safe_psql('postgres', 'SELECT clock_timestamp()');
PostgreSQL::Test::Utils::append_to_file($back, '');
is($node->safe_psql('postgres', "SELECT clock_timestamp() < '$before'::timestamptz - interval '50 min'"), 't', 'the clock is set back');
$node->safe_psql('postgres', 'TRUNCATE closed');
$node->wait_until('SELECT count(*) = 1 FROM seen', 'the message to be handled, before the hour is over');
pass('a message in back-off does not wait until the clock is where it was');
done_testing();
