# Code of a type runs at its backups, too, where a value of a state is read: if it crashes the server there twice, it does not run
# any more. Records are stored meanwhile, and applied after the call that shard_health names (Q10, D5).

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(2, conf => "shard.rebalance_interval = 0\nshard.voters = 1\nshard.region_workers = 1");
my ($home, $backup) = $cluster->nodes;

# A number is no address of a text: a function in C that is called with what it does not expect.
$cluster->sql_everywhere(q{
	CREATE TABLE fuse (blown bool);
	CREATE FUNCTION segfault(i int) RETURNS text STRICT VOLATILE LANGUAGE internal AS 'upper';
	CREATE FUNCTION is_good(n int) RETURNS bool LANGUAGE plpgsql AS $$
	BEGIN
		IF EXISTS (SELECT FROM fuse) THEN PERFORM segfault(5); END IF;
		RETURN true;
	END $$;
	CREATE DOMAIN good AS int CHECK (is_good(VALUE));
	CREATE TYPE counted AS (n good);
	CREATE FUNCTION adds(state counted, message jsonb) RETURNS counted LANGUAGE sql RETURN row(coalesce((state).n, 0) + 1)::counted});
$_->sql(q{SELECT shard_start('kept', 'adds', 4, replicas => 1)}) for $home, $backup;
$cluster->wait_registered;
my $entity = $cluster->entity_at('kept', 1);

sub ask { return $home->sql("SELECT shard_ask('kept', '$entity', '{}', '60 s')->>'n'"); }
sub wait_copy { my ($n) = @_; $backup->wait_value("SELECT n FROM shard_replica.kept WHERE entity_id = '$entity'", $n, "the copy to be $n"); return; }

wait_copy(ask());
$backup->sql('INSERT INTO fuse VALUES (true)');
my $last = ask();
my $said = q{SELECT EXISTS (SELECT FROM shard_health() h, unnest(h.problems) p WHERE p ~ 'entity type "kept": .* cannot apply it: .*crashed the server twice')};
ShardCluster::wait_for_condition(sub { my ($status, $out) = $backup->try($said); return $status == 0 && $out eq 't'; }, 'health to say that it crashed the server twice');
$cluster->wait_up;
$last = ask();
is($backup->sql(qq{SELECT n < $last FROM shard_replica.kept WHERE entity_id = '$entity'}), 't', 'what cannot be applied is stored, and shown at the home');
$backup->sql('DELETE FROM fuse');
my ($way_out) = $backup->sql(q{SELECT p FROM shard_health() h, unnest(h.problems) p WHERE p ~ 'cannot apply it'}) =~ /(SELECT shard_alter\('kept', 'handler', '[^']*'\))/;
$backup->sql($way_out);
wait_copy($last);
is($backup->sql(q{SELECT coalesce(sum(unapplied), 0) FROM shard_replicas WHERE type_name = 'kept'}), 0, 'then all is applied');
done_testing();
