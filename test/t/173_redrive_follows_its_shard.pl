# A dead letter that is sent again is a new message of the node where it is (D26): it is handled once, wherever
# its shard is by then, whoever sent it first and whatever happens in between.

use strict;
use warnings FATAL => 'all';

use PostgreSQL::Test::Utils;
use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(3, databases => 1, conf => "shard.region_workers = 1\nshard.rebalance_interval = 0");
my ($one, $two, $three) = $cluster->nodes;

# Each message that is told to fails at a node as long as there is a row in table closed.
$cluster->sql_everywhere(q{
CREATE TABLE closed (one int);
CREATE TABLE seen (pos bigserial, entity text, what text, id text);
CREATE FUNCTION recorder(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    IF message ? 'noop' THEN RETURN state; END IF;
    IF message ? 'strict' AND EXISTS (SELECT FROM closed) THEN
        RAISE EXCEPTION 'closed to %', shard_message_id();
    END IF;
    INSERT INTO seen (entity, what, id) SELECT entity_id, message->>'what', shard_message_id() FROM shard_self();
    RETURN jsonb_build_object('count', coalesce((state->>'count')::int, 0) + 1);
END $$;
SELECT shard_start('recorder', 'recorder(jsonb,jsonb)', number_of_shards => 32, max_message_size => 8388608);
});
$cluster->wait_registered;

sub strict { my ($entity, $what) = @_; return qq{SELECT shard_tell('recorder', '$entity', '{"what": "$what", "strict": true}');} }

sub dead { my ($entity) = @_; return "SELECT count(*) FROM shard_dead_letters WHERE entity_id = '$entity'" }

# An entity at node 1, where message 1, which node 2 has sent, is a dead letter. Nothing is on its way.
sub begin
{
	my ($prefix) = @_;
	my $entity = $cluster->entity_at('recorder', 1, $prefix);
	$cluster->drain;
	$one->sql('INSERT INTO closed VALUES (1)');
	$two->sql(strict($entity, 1));
	$one->wait_value(dead($entity), 1, 'message 1 to be a dead letter');
	$one->sql('DELETE FROM closed');
	$cluster->drain;
	return ($entity, $cluster->shard_of('recorder', $entity));
}

sub move
{
	my ($shard, @path) = @_;
	for my $n (@path)
	{
		$cluster->move('recorder', $shard, $n);
		$cluster->wait_home('recorder', $shard, $n);
	}
	return;
}

sub is_recorded
{
	my ($node, $entity, $expected, $what) = @_;
	# What comes last ends the wait, lost ones do not.
	my ($last) = $expected =~ /(\S+) =/;
	$node->wait_until("SELECT EXISTS (SELECT FROM seen WHERE (entity, what) = ('$entity', '$last'))", "message $last of $entity");
	is($node->sql(ShardCluster::recorded($entity)), $expected, $what);
	return;
}

{
	my ($entity, $shard) = begin('moved');
	my $id = $one->sql("SELECT replace(error, 'closed to ', '') FROM shard_dead_letters WHERE entity_id = '$entity'");
	move($shard, 3);
	is($one->sql('SELECT shard_redrive()'), 1, 'a message of another node is sent again, its shard being at a third one');
	$one->sql(ShardCluster::tell_recorder($entity, 2));
	is_recorded($three, $entity, '1 2 = 2', 'it is handled there, before what was sent later');
	is($three->sql("SELECT id FROM seen WHERE (entity, what) = ('$entity', '1')"), $id, 'under its old id');
	is($one->sql(dead($entity)), 0, 'it is no dead letter any more');
}
{
	my ($entity, $shard) = begin('back');
	move($shard, 3, 1);
	$one->sql('SELECT shard_redrive()');
	$one->sql(ShardCluster::tell_recorder($entity, 2));
	is_recorded($one, $entity, '1 2 = 2', 'so it is by its old home, when the shard is back there');
}
{
	my ($entity, $shard) = begin('again');
	move($shard, 3);
	$three->sql('INSERT INTO closed VALUES (1)');
	$one->sql('SELECT shard_redrive()');
	$three->wait_value(dead($entity), 1, 'it to fail there, too');
	$three->sql('DELETE FROM closed');
	$cluster->drain;
	move($shard, 2);
	$three->sql('SELECT shard_redrive()');
	$three->sql(ShardCluster::tell_recorder($entity, 2));
	is_recorded($two, $entity, '1 2 = 2', 'what failed at two homes is handled by the node that had sent it first');
	is($one->sql('SELECT count(*) FROM seen WHERE what = \'1\' AND entity = \'' . $entity . '\'')
		+ $three->sql("SELECT count(*) FROM seen WHERE entity = '$entity'"), 0, 'and by nobody else');
}
{
	my ($entity, $shard) = begin('twice');
	move($shard, 3);
	my ($first, $second) = ($one->session, $one->session);
	is($first->query('BEGIN; SELECT shard_redrive();'), 1, 'sent again in a transaction');
	$second->send('SELECT shard_redrive();');
	$one->wait_until("SELECT count(*) > 0 FROM pg_stat_activity WHERE query LIKE 'SELECT shard_redrive%' AND wait_event_type = 'Lock'",
		'the second redrive to wait for the first');
	$first->query('COMMIT;');
	is($second->receive, 0, 'a second redrive of the same one waits, and finds it gone');
	is($first->query("BEGIN; SELECT count(*) FROM shard_dead_letters; ROLLBACK;"), 0, 'no dead letter is left');
	$one->sql(ShardCluster::tell_recorder($entity, 2));
	is_recorded($three, $entity, '1 2 = 2', 'it is handled once');
}
{
	# No worker has met it when everything dies, and its shard is somewhere else when it is met.
	my ($entity, $shard) = begin('crash');
	$one->server->stop_idle($one->workers('%region%'));
	is($one->sql('BEGIN; SELECT shard_redrive(); ROLLBACK; SELECT shard_redrive();'), "1\n1", 'what was rolled back can be sent again');
	$one->server->crash;
	$one->server->recover;
	$cluster->wait_reachable;
	$cluster->wait_registered;
	is_recorded($one, $entity, '1 = 1', 'a crash before it is met does not lose it');
	move($shard, 3);
	$one->sql(ShardCluster::tell_recorder($entity, 2));
	is_recorded($three, $entity, '2 = 2', 'nor is it handled twice');
}
{
	# Each message is 4 MB, in the table some 50 kB. In memory there is one at a time.
	my $entity = $cluster->entity_at('recorder', 1, 'large');
	$cluster->drain;
	$one->sql('INSERT INTO closed VALUES (1)');
	$one->sql(qq{SELECT count(shard_tell('recorder', '$entity', jsonb_build_object('what', i, 'strict', true, 'pad', repeat('x', 4000000))))
		FROM generate_series(1, 24) i});
	$one->wait_value(dead($entity), 24, 'large messages to be dead letters');
	my $session = $one->session;
	my $status = '/proc/' . $session->query('SELECT pg_backend_pid();') . '/status';
  SKIP: {
		skip 'no /proc', 1 unless -e $status;
		my $peak = sub { (slurp_file($status) =~ /^VmHWM:\s+(\d+) kB/m)[0] };
		my $before = $peak->();
		is($session->query('BEGIN; SELECT shard_redrive(); ROLLBACK;'), 24, 'large ones are sent again');
		cmp_ok(($peak->() - $before) / 1024, '<', 40, 'without all of them in memory');
	}
	$one->sql("DELETE FROM shard.dead_letter; DELETE FROM closed");
}
{
	my ($entity, $shard) = begin('left');
	is($one->eventually(q{SELECT shard_leave('60 s')}), 't', 'a node with a dead letter leaves');
	$cluster->has_left(1);
	like($one->error_of('SELECT shard_redrive()'), qr/55000/, 'it does not send it again into nowhere');
	is($one->sql(dead($entity)), 1, 'and keeps it');
}

$cluster->drain;
$cluster->logs_are_clean(qr/closed/, qr/terminating|crash|recover/i, @ShardNodes::link_troubles);
done_testing();
