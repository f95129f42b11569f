# An inbox that a rolled back sender filled makes room as soon as somebody is refused, though nothing
# else happens: each worker has to leave its place in the full segment, and all of them are idle.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use Test::More;
use Time::HiRes qw(time usleep);

my $node = ShardCluster->create('first', conf => "shard.inbox_max_size = '1MB'\nshard.region_workers = 8\nautovacuum = off");
$node->start_recorder;
# Every worker has a place in the log.
$node->safe_psql('postgres', q{SELECT count(shard_tell('recorder', 'e' || i, '{}')) FROM generate_series(1, 300) i;});
$node->drain;
$node->wait_until('SELECT count(*) = 8 FROM shard_stat_workers WHERE pid IS NOT NULL', 'eight workers');

my $fill = q{SELECT count(shard_tell('recorder', 'never', jsonb_build_object('noise', (SELECT string_agg(md5((i * j)::text), '') FROM generate_series(1, 100) j)))) FROM generate_series(1, 2000) i;};
my $tell = q{SELECT shard_tell('recorder', 'kept', jsonb_build_object('noise', (SELECT string_agg(md5(j::text), '') FROM generate_series(1, 400) j)));};
for my $round (1 .. 3)
{
	my ($status, undef, $error) = $node->psql('postgres', $fill);
	like($error, qr/inbox is full/, "the sender of round $round is refused");

	# He left it just below the limit: the first long message is taken, not the second.
	my $start = time;
	my $taken = 0;
	until ($taken == 20 || time - $start > $ShardCluster::patience)
	{
		$node->psql('postgres', $tell) == 0 ? $taken++ : usleep(20_000);
	}
	is($taken, 20, 'others are taken after a while');
	# Were each worker's place only looked at once a second, that would take eight of them.
	cmp_ok(time - $start, '<', 4, 'which is short');
	$node->drain;
}
$node->log_is_clean;
done_testing();
