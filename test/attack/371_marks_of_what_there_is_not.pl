# P43: a node tells marks by the hundred thousand, of types and shards that there are not, and of shards of which nothing was sent: nothing of
# them is stored or stays in memory, nobody waits for it, and who tells them is named. Marks of what there is count.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use ShardWire;
use Test::More;

use constant { DONE => 3, MANY => 400_000, NONE => 1_000_000, FAR => 1 << 52 };

my $cluster = ShardNodes->create(2);
my ($first, $second) = $cluster->nodes;
$cluster->start_recorder;
$cluster->sql_everywhere(<<'SQL');
CREATE FUNCTION quiet(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN message;
REVOKE EXECUTE ON FUNCTION quiet(jsonb, jsonb) FROM PUBLIC;
CREATE FUNCTION echo(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN PERFORM shard_reply(message); RETURN message; END $$;
REVOKE EXECUTE ON FUNCTION echo(jsonb, jsonb) FROM PUBLIC;
SELECT shard_start('echo', 'echo(jsonb,jsonb)', 64);
SELECT shard_start('wide', 'quiet(jsonb,jsonb)', 10000);
SQL
$second->sql(q{SELECT shard_start('there', 'quiet(jsonb,jsonb)', 64)});
my %id = map { split /\|/ } split /\n/, $second->sql('SELECT type_name, type_id FROM shard.type');
is($first->sql(q{SELECT count(*) FROM shard.type WHERE type_name = 'there'}), 0, 'a type that is at node 2 alone');
my ($here, $there) = ($cluster->entity_at('echo', 1), $cluster->entity_at('recorder', 2));
my $liar = ShardWire::Member->new($second, $first);
my @sent;

sub tell_it { push @sent, @sent + 1; $first->sql(ShardCluster::tell_recorder($there, $sent[-1], $sent[-1])); $cluster->wait_recorded($there, 2, @sent); return; }
sub problems { return $first->sql(q{SELECT array_to_string(problems, '; ') FROM shard_health()}); }

# The workers' memory in kB, and the bytes of the log.
sub memory
{
	my $sum = 0;
	for my $pid (split /\n/, $first->sql(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'shard region'}))
	{
		$sum += $1 if PostgreSQL::Test::Utils::slurp_file("/proc/$pid/status") =~ /^VmRSS:\s+(\d+) kB/m;
	}
	return $sum;
}
sub inbox_size { return $first->sql(q{SELECT sum(pg_total_relation_size(oid)) FROM pg_class WHERE relnamespace = 'shard'::regnamespace AND relname ~ '^inbox'}); }

# Marks of a type for shards from .. to.
sub marks
{
	my ($type, $from, $to) = @_;
	return section(DONE, join('', map { my $shard = $_; map { wire_int($_) } $type, $shard, 1 + $shard } $from .. $to), 1);
}

sub told
{
	my ($what, $bytes) = @_;
	my ($answer, $errors, $text) = $liar->call(call_sql('receive', $liar->head . $bytes));
	is($errors, '', "P43 marks $what: the call is answered") or diag($text);
	is($first->sql("SELECT shard_ask('echo', '$here', '7', '5 s')"), 7, "P43 after marks $what nobody waits");
	return;
}

tell_it();
$cluster->drain;
my ($memory, $stored) = (memory(), inbox_size());

told('of a type of which nothing is here', marks($id{there}, 0, 63));
unlike(problems(), qr/that do not exist/, 'P43 which nobody has to be named for');
told('of a type that is none', marks(NONE, 1, MANY));
$first->wait_until(q{SELECT array_to_string(problems, '; ') ~ 'node 2, or a caller in its name, sends to shards that do not exist' FROM shard_health()}, 'health to name the node');
pass('P43 health names who tells them');
like(PostgreSQL::Test::Utils::slurp_file($first->server->logfile), qr/node 2 sends to a shard that does not exist.*\n.*a mark for shard \d+ of type 1000000/, 'P43 so does the log');
told('of many such types', section(DONE, join('', map { wire_int($_) } map { (NONE + $_, 1, 1) } 1 .. MANY / 10), 1));
told('of shards that a type has not got', marks($id{recorder}, 10_000, 10_000 + MANY));
cmp_ok(inbox_size() - $stored, '<', 1 << 20, 'P43 nothing of them is stored');
told('of shards of which nothing was sent', marks($id{wide}, 0, 9999)) for 1 .. 5;
cmp_ok(memory() - $memory, '<', 20_000, 'P43 nothing of them stays in memory');

# What is true counts: what was sent is marked as taken in, and is not kept.
tell_it();
$first->wait_until('SELECT outbox_messages = 0 FROM shard_peers WHERE node = 2', 'marks of what was sent to count');
pass('marks of what was sent count');
$cluster->logs_are_clean(@ShardNodes::link_troubles, qr/that does not exist/);
done_testing;
