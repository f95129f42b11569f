# An inbox that a rolled back sender filled makes room as soon as somebody is refused, though nothing
# else happens: each worker has to leave its place in the full segment, and all of them are idle.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use Test::More;
use Time::HiRes qw(time);

my $node = ShardCluster->create('first', conf => "shard.inbox_max_size = '1MB'\nshard.region_workers = 8\nautovacuum = off");
$node->start_recorder;
# Every worker has a place in the log.
$node->safe_psql('postgres', q{SELECT count(shard_tell('recorder', 'e' || i, '{}')) FROM generate_series(1, 300) i;});
$node->drain;
$node->wait_until('SELECT count(*) = 8 FROM shard_stat_workers WHERE pid IS NOT NULL', 'eight workers');

my $fill = q{SELECT count(shard_tell('recorder', 'never', jsonb_build_object('noise', (SELECT string_agg(md5((i * j)::text), '') FROM generate_series(1, 100) j)))) FROM generate_series(1, 2000) i;};
# Sends twenty long messages, each until it is taken.
my $tell = q{
DO $$ BEGIN
	FOR i IN 1 .. 20 LOOP
		LOOP
			BEGIN
				PERFORM shard_tell('recorder', 'kept', jsonb_build_object('noise', (SELECT string_agg(md5(j::text), '') FROM generate_series(1, 400) j)));
				EXIT;
			EXCEPTION WHEN configuration_limit_exceeded THEN
				PERFORM pg_sleep(0.02);
			END;
		END LOOP;
		COMMIT;
	END LOOP;
END $$;};
my @took;
for my $round (1 .. 3)
{
	my ($status, undef, $error) = $node->psql('postgres', $fill);
	like($error, qr/inbox is full/, "the sender of round $round is refused");

	# He left it just below the limit: the first long message is taken, not the second.
	my $start = time;
	$node->safe_psql('postgres', $tell, timeout => $ShardCluster::patience);
	push @took, time - $start;
	pass('others are taken after a while');
	$node->drain;
}
# Were each worker's place only looked at once a second, that would take eight of them, each time.
ShardCluster::in_time((sort { $a <=> $b } @took)[0], 4, 8, 'which is short');
$node->log_is_clean;
done_testing();
