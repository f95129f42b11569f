# A sender that stays open keeps segments of the inbox from being emptied. The worker does not try
# over and over: it writes next to nothing until he ends, and then they are emptied.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use Test::More;

my $node = ShardCluster->create('first', conf => "shard.inbox_max_size = '1MB'\nautovacuum = off");
$node->start_recorder;
my $tell = q{SELECT count(shard_tell('recorder', '%s', jsonb_build_object('what', i, 'noise',
	(SELECT string_agg(md5((i * j)::text), '') FROM generate_series(1, 40) j)))) FROM generate_series(1, %d) i;};

my $open = $node->session;
$open->query('BEGIN; ' . q{SELECT count(shard_tell('recorder', 'late', '{}')) FROM generate_series(1, 200);});
$node->safe_psql('postgres', sprintf $tell, 'a', 80) for 1 .. 7;
$node->wait_until(q{SELECT count(*) > 1 AND bool_or(NOT current AND blocked_by IS NOT NULL) FROM shard_stat_inbox WHERE bytes > 0},
	'a segment that is held back');
$node->wait_until(q{SELECT messages_handled >= 560 FROM shard_stat_workers WHERE messages_handled > 0}, 'what can be handled');

my $look = q{SELECT sum(turns), pg_current_wal_insert_lsn() - '0/0' FROM shard_stat_workers};
# What the turns before it asked for may still be on its way.
$node->safe_psql('postgres', 'SELECT shard_drain()');
my ($turns, $wal) = split /\|/, $node->safe_psql('postgres', $look);
# as long as we look on
$node->safe_psql('postgres', 'SELECT pg_sleep(3)');
my ($turns_later, $wal_later) = split /\|/, $node->safe_psql('postgres', $look);
cmp_ok($turns_later - $turns, '<', 20, 'few turns while a sender is open');
cmp_ok($wal_later - $wal, '<', 100_000, 'little WAL while a sender is open');

$open->query('COMMIT;');
$node->drain;
is($node->safe_psql('postgres', q{SELECT string_agg(entity_id || ' ' || (state->>'count'), ', ' ORDER BY entity_id) FROM shard_entity.recorder}),
	'a 560, late 200', 'all are handled in the end');
$node->wait_until(q{SELECT count(*) = 1 FROM shard_stat_inbox WHERE bytes > 0}, 'the segments to be emptied');
pass('segments are emptied when the sender has ended');

$node->log_is_clean;
done_testing();
