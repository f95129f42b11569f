# What is left at the old home of a shard is deleted whatever its users do: triggers and foreign keys that
# forbid it, rows and tables that somebody holds, a worker that starts anew meanwhile. Nobody's messages
# wait for it.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(2, conf => 'shard.rebalance_interval = 0');
$cluster->start_counter;
my ($one, $two) = $cluster->nodes;
my @here = grep { $one->get($_); $cluster->home_of('counter', $_) == 1 } 0 .. 11;
my ($first, $second, $third, $fourth) = @here;
$one->add($_, 1) for $fourth, map { $_, $_ + 12, $_ + 24 } $first, $second, $third;
$cluster->drain;

sub left { my ($shard) = @_; return "SELECT count(*) FROM shard_entity.counter WHERE shard = $shard" }
my $own = sub { my ($shard) = @_; return "SELECT coalesce(max(state), 'none') FROM shard.own WHERE shard = $shard" };

# A user's trigger and a user's foreign key.
$one->sql(q{
CREATE FUNCTION never() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'never'; END $$;
CREATE TRIGGER never BEFORE DELETE ON shard_entity.counter FOR EACH ROW EXECUTE FUNCTION never();
CREATE TRIGGER never_ever BEFORE DELETE ON shard_entity.counter FOR EACH ROW EXECUTE FUNCTION never();
ALTER TABLE shard_entity.counter ENABLE ALWAYS TRIGGER never_ever;
CREATE TABLE notes (shard int, entity_id text, note text, FOREIGN KEY (shard, entity_id) REFERENCES shard_entity.counter);
INSERT INTO notes SELECT shard, entity_id, 'mine' FROM shard_entity.counter;
});
$cluster->move('counter', $first, 2);
$cluster->wait_home('counter', $first, 2);
$one->wait_value(left($first), 0, 'rows to go that a trigger and a foreign key keep');
$one->wait_value($own->($first), 'none', 'and the ownership row after them');
is($one->sql('SELECT count(*) FROM notes'), 10, "the user's own rows are not touched");

# A row that somebody holds: the others go, it waits; messages do not.
my $holder = $one->session;
$holder->query("BEGIN; SELECT FROM shard_entity.counter WHERE entity_id = '$second' FOR KEY SHARE;");
$cluster->move('counter', $second, 2);
$cluster->wait_home('counter', $second, 2);
$one->wait_value(left($second), 1, 'all rows to go but the one that somebody holds');
is($one->sql($own->($second)), 'sealed', 'the shard is not forgotten');
is($one->get($third), '1 from node1', 'other shards go on');
is($one->get($second), '1 from node2', 'and the shard itself, at its new home');
is($one->sql('SELECT count(*) FROM shard_region_state WHERE shard = ' . $second), 0, 'nothing of it is in memory');
pg_terminate($one);
is($one->get($third), '1 from node1', 'a new worker is there');
is($one->sql(left($second)), 1, 'the row is still held');
$one->sql(qq{UPDATE shard_entity.counter SET state = '{"count": 7}' WHERE entity_id = '$second'});
$holder->query('COMMIT;');
$one->wait_value(left($second), 0, 'the row to go when nobody holds it');
$one->wait_value($own->($second), 'none', 'and the ownership row');
$one->server->wait_for_log(qr/WARNING:.* states of shard $second of entity type "counter" were changed by SQL/);
pass('who changed what had left is not left in the dark');
is($one->get($second), '1 from node2', 'it changed nothing');

# So many held rows that one transaction tries no more: those behind them go all the same.
$one->sql("INSERT INTO shard_entity.counter (shard, entity_id, state)
	SELECT $fourth, left(i::text, 1) || '-' || i, '{}' FROM generate_series(1000, 3999) i");
$holder->query("BEGIN; SELECT count(*) FROM (SELECT FROM shard_entity.counter
	WHERE shard = $fourth AND entity_id LIKE '2-%' FOR SHARE) h;");
$cluster->move('counter', $fourth, 2);
$cluster->wait_home('counter', $fourth, 2);
$one->wait_value(left($fourth), 1000, 'rows before and behind those that somebody holds to go');
$holder->query('COMMIT;');
$one->wait_value($own->($fourth), 'none', 'the others to follow');
$cluster->move('counter', $fourth, 1);
$cluster->wait_home('counter', $fourth, 1);

# A new home that is written off: the shard begins anew where rows of it are left.
$holder->query("BEGIN; SELECT FROM shard_entity.counter WHERE entity_id = '$third' FOR SHARE;");
$cluster->move('counter', $third, 2);
$cluster->wait_home('counter', $third, 2);
$one->wait_value(left($third), 1, 'all rows to go but one');
$two->server->crash;
$one->eventually('SELECT shard_write_off(2)');
$one->wait_value($own->($third), 'clearing', 'the shard to wait for its rows to go');
$one->add($third, 1);
is($one->get($fourth), '1 from node1', 'other shards go on');
is($one->sql(left($third)), 1, 'while the row is held');
pg_terminate($one);
is($one->get($fourth), '1 from node1', 'by a new worker, too');
$holder->query('COMMIT;');
is($one->get($third), '1 from node1', 'a shard whose state is lost begins empty, trigger or not');
is($one->sql(left($third)), 1, 'and nothing is left of what it was here before');
$one->server->log_is_clean(@ShardNodes::link_troubles, qr/were changed by SQL/);
done_testing();

# Ends all region workers of a node; others start.
sub pg_terminate
{
	my ($node) = @_;
	my $before = join ' ', $node->workers;
	$node->sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'shard region'");
	$node->wait_until("SELECT count(*) FILTER (WHERE pid IN (0)) = 0 AND count(*) > 0 FROM shard_stat_workers WHERE pid <> ALL ('{" . join(',', split ' ', $before) . "}')", 'other region workers');
	return;
}
