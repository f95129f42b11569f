# An owner who locks his own state table where shards go to, or has a trigger on it that takes for ever, holds up the moves of his
# own shards: nobody's else, whatever he has that could move, nor do two such owners together (M24, M27). Health says whose type it is.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use ShardOwners;
use Test::More;

my $shards = 300;
my $cluster = ShardNodes->create(2, conf => 'shard.region_workers = 1');
my ($one, $two) = $cluster->nodes;
for my $node ($one, $two)
{
	ShardOwners::create_roles($node, 'alice', 'mallory', 'mary');
	# their types come first
	ShardOwners::as($node, 'mallory', qq{SELECT shard_start('tm', 'mallory.keep', $shards, handoff_timeout => '1 day')});
	ShardOwners::as($node, 'mary', qq{SELECT shard_start('ty', 'mary.keep', $shards, handoff_timeout => '1 day')});
	ShardOwners::as($node, 'alice', qq{SELECT shard_start('ta', 'alice.keep', $shards)});
}
$cluster->wait_registered;
ShardOwners::as($one, @$_) for map { [ $_->[0], qq{SELECT count(shard_tell('$_->[1]', i::text, '{"n": 1}')) FROM generate_series(1, 2000) i} ] } [ mallory => 'tm' ], [ mary => 'ty' ], [ alice => 'ta' ];
$cluster->drain;

sub at { my ($type, $n) = @_; return $one->sql("SELECT count(*) FROM shard_homes WHERE type_name = '$type' AND node = $n") }

# All of a type's shards go, as far as they come before the patience of the test ends.
sub all_leave
{
	my ($type, $n, $what) = @_;
	my $ok = eval { ShardCluster::wait_for_condition(sub { at($type, $n) == 0 }, "shards of $type to leave node $n"); 1 };
	ok($ok, $what) or diag(at($type, $n) . " are left: $@");
	return;
}

sub health { return join ' ', map { $_->sql('SELECT problems::text FROM shard_health()') } $one, $two }

cmp_ok(at('ta', 2), '>', 50, "some of alice's shards are at node 2");
cmp_ok(at('tm', 2), '>', 50, "and some of mallory's");

# A lock at the target.
my $locker = $one->session;
$locker->query('SET SESSION AUTHORIZATION mallory; BEGIN; LOCK TABLE shard_entity.tm; SELECT pg_backend_pid();') =~ /(\d+)/ or die 'no pid';
my $pid = $1;
$one->sql('SELECT shard_evacuate(2)');
all_leave('ta', 2, "alice's shards leave while mallory has his table locked");
cmp_ok(at('tm', 2), '>', 50, 'his own stay');
ShardCluster::wait_for_condition(sub { health() =~ /entity type \\*"tm\\*" could not be moved to node 1.*is locked on node 1 by process $pid.*its owner is role \\*"mallory/ }, 'health to name the type and the lock');
unlike(health(), qr/entity type \\*"ta\\*" could not be moved/, 'and not her');
$locker->close;
all_leave('tm', 2, "mallory's leave when the lock is gone");

# Triggers at the target, of two owners.
all_leave('ty', 2, "and mary's");
$one->sql('SELECT shard_evacuate(2, evacuate => false)');
for ([ mallory => 'tm', 3 ], [ mary => 'ty', 1 ])
{
	my ($owner, $type, $places) = @$_;
	ShardOwners::as($two, $owner, qq{
CREATE TABLE $owner.is_slow ();
CREATE FUNCTION $owner.slow() RETURNS trigger LANGUAGE plpgsql AS \$\$ BEGIN
	WHILE EXISTS (SELECT FROM pg_class WHERE relname = 'is_slow' AND relnamespace = '$owner'::regnamespace) LOOP PERFORM pg_sleep(0.1); END LOOP;
	RETURN new;
END \$\$;
CREATE TRIGGER slow BEFORE INSERT ON shard_entity.$type FOR EACH ROW EXECUTE FUNCTION $owner.slow();
ALTER TABLE shard_entity.$type ENABLE ALWAYS TRIGGER slow});
	# Theirs are copied before hers are asked for.
	for my $shard (split /\n/, $one->sql(qq{SELECT shard FROM shard_homes WHERE type_name = '$type' AND node = 1 ORDER BY shard LIMIT 8}))
	{
		$one->sql("SELECT shard_pin('$type', $shard, 2)");
	}
	$two->wait_until(qq{SELECT count(*) >= $places FROM shard_rebalances WHERE type_name = '$type' AND phase = 'copying'}, "shards of $owner to be copied");
}
$one->sql('SELECT shard_evacuate(1)');
all_leave('ta', 1, "alice's shards leave while mallory's and mary's are copied for ever, in all the places that there are together");
cmp_ok(at('tm', 1), '>', 200, 'his own stay');
$two->wait_until(q{SELECT array_to_string(problems, '; ') ~ 'entity type "tm" of role "mallory" holds up moves to this node: 3 of its shards, such as shard \d+ by process \d+, have not come on' FROM shard_health()},
	'health to say whose shards are copied for ever');
ShardOwners::as($two, $_, "DROP TABLE $_.is_slow") for 'mallory', 'mary';
all_leave('tm', 1, "his leave when the trigger lets them");
all_leave('ty', 1, "and hers");
$two->wait_until(q{SELECT problems::text !~ 'holds up moves' FROM shard_health()}, 'health to be silent');

is($two->sql(q{SELECT (SELECT count(*) FROM shard_entity.tm) + (SELECT count(*) FROM shard_entity.ty) + (SELECT count(*) FROM shard_entity.ta)}), 6000, 'all states have come');
$cluster->logs_are_clean(@ShardNodes::link_troubles);
done_testing();
