# D25: an owner sends to a type by the ten thousand, and drops it in the same transaction, again and again. Nobody could take these
# messages: were each stored, and all that is stored counted for every few of them, the log would stay full for everybody for minutes,
# and what is left of others' types would go. So it is looked at once, a part makes room, and the rest is counted, and no more.

use strict;
use warnings FATAL => 'all';

use PostgreSQL::Test::Utils;
use ShardCluster;
use Test::More;

use constant { MOST => 1000, ROUNDS => 3, EACH => 20_000, OTHERS => 300 };

my $node = ShardCluster->create('node', conf => "shard.region_workers = 1\nautovacuum = off\nshard.max_stray_dead_letters = " . MOST);
$node->create_owners('alice', 'mallory');

# In one transaction, as its owner.
sub drop_with_messages
{
	my ($role, $type, $count) = @_;
	$node->as($role, qq{
		CREATE OR REPLACE FUNCTION $role.h(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN message;
		BEGIN;
		SELECT shard_start('$type', '$role.h');
		SELECT count(shard_tell('$type', (i % 1000)::text, to_jsonb('$role'::text))) FROM generate_series(1, $count) i;
		SELECT shard_drop_type('$type', force => true);
		COMMIT;});
	$node->drain;
	return;
}
sub number { my ($query) = @_; return $node->safe_psql('postgres', $query) }

drop_with_messages('alice', 'hers', OTHERS);
is(number('SELECT count(*) FROM shard_dead_letters WHERE type_name IS NULL'), OTHERS, 'messages of a type that went become dead letters');
drop_with_messages('mallory', "his$_", EACH) for 1 .. ROUNDS;

$node->wait_until(q{SELECT n_tup_ins - n_tup_del = (SELECT count(*) FROM shard.dead_letter) FROM pg_stat_all_tables WHERE relid = 'shard.dead_letter'::regclass},
	'the counters of the table');
my $stat = q{FROM pg_stat_all_tables WHERE relid = 'shard.dead_letter'::regclass};
my $looked = number("SELECT seq_tup_read + idx_tup_fetch $stat");
my $stored = number("SELECT n_tup_ins $stat");
note("$looked rows were looked at, $stored stored");
cmp_ok(number('SELECT count(*) FROM shard.dead_letter'), '<=', MOST, 'D16: there are so many and no more');
cmp_ok($looked, '<', ROUNDS * EACH / 2, 'D25: fewer rows are looked at than messages came');
cmp_ok($stored, '<', 3 * MOST, 'D25: few are stored that only go again');
cmp_ok(number(q{SELECT count(*) FROM shard_dead_letters WHERE message = '"alice"'}), '>=', OTHERS / 3, q{D25: he does not push out others'});

$node->stop;
my $log = slurp_file($node->logfile);
my ($kept, $counted) = (0, 0);
$kept += $1 while $log =~ /became dead letters: (\d+)/g;
$counted += $1 while $log =~ /: (\d+) more were not stored/g;
is($kept + $counted, OTHERS + ROUNDS * EACH, 'D16: the log has each of them once');
is($kept, $stored, 'D16: and what was stored');
done_testing();
