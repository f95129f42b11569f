# What an aborted move has copied, and what is left of a state that was given up, waits to be deleted as long
# as a user holds it, in rows or as a whole table. Nobody's messages wait for that: neither those of other
# shards, nor, if the shard lives elsewhere, its own.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;

# One worker for all lanes of a node: what stops one of them stops all.
my $cluster = ShardNodes->create(3, conf => 'shard.region_workers = 1');
$cluster->start_counter(settings => q{, handoff_timeout => '5 s'});
$cluster->start_recorder;
my ($one, $two, $three) = $cluster->nodes;
$one->get($_) for 0 .. 11;
my ($copied, $lost) = grep { $cluster->home_of('counter', $_) == 1 } 0 .. 11;
$one->add($_, 1) for map { $_, $_ + 12 } $copied, $lost;
my %witness = map { $_ => $cluster->entity_at('recorder', $_) } 1 .. 2;
$cluster->drain;

sub of_counter { my ($what, $table, $shard) = @_; return "SELECT $what FROM $table JOIN shard.type USING (type_id) WHERE type_name = 'counter' AND shard = $shard" }
sub own { my ($shard) = @_; return of_counter(q{coalesce(max(state), 'none')}, 'shard.own', $shard) }
sub left { my ($shard) = @_; return "SELECT count(*) FROM shard_entity.counter WHERE shard = $shard" }

# Whether the worker of all lanes of a node goes on.
my %told;
sub goes_on
{
	my ($n, $what) = @_;
	$told{$n}++;
	$three->sql(ShardCluster::tell_recorder($witness{$n}, $told{$n}));
	$cluster->wait_recorded($witness{$n}, $n, 1 .. $told{$n});
	pass($what);
	return;
}

# Ends the region worker of a node; another one starts.
sub end_worker
{
	my ($node) = @_;
	my ($pid) = $node->workers('shard region');
	$node->sql("SELECT pg_terminate_backend($pid)");
	$node->wait_until("SELECT count(*) = 1 FROM pg_stat_activity WHERE datname = current_database() AND backend_type = 'shard region' AND pid <> $pid", 'another region worker');
	return;
}

# --- a move that is aborted ------------------------------------------------------------------------

# The copy is staged, and nobody hears of it.
my $epoch = $one->sql(of_counter('epoch', 'shard.route', $copied));
$two->server->set_fault('import_after_commit', 'freeze');
my $mover = $one->session;
$mover->send("SELECT shard_move('counter', $copied, 2);");
ShardCluster::wait_for_condition(sub { $two->server->fault_happened }, 'the copy to be staged');
is($two->sql(own($copied)), 'staged', 'a copy is staged');
my $holder = $two->session;
$holder->query("BEGIN; SELECT FROM shard_entity.counter WHERE entity_id = '$copied' FOR KEY SHARE; SAVEPOINT row; LOCK TABLE shard_entity.counter IN ACCESS EXCLUSIVE MODE;");
$one->wait_until("SELECT epoch > $epoch AND phase = 'stable' FROM shard_homes WHERE type_name = 'counter' AND shard = $copied", 'the move to be given up');
goes_on(2, "a user's lock on the table stops no other lane of the worker");
$two->wait_until(of_counter("epoch > $epoch", 'shard.route', $copied), 'the worker to know it');
goes_on(2, 'nor when it knows that the copy is of no use');
is($two->sql(own($copied)), 'staged', 'the copy waits to be deleted');
is($one->get($copied), '1 from node1', 'the shard itself goes on where it is');
$two->server->thaw_fault;
$two->server->clear_fault;
$mover->close;
end_worker($two);
goes_on(2, 'a new worker does not stop there, either');

# The same with a row, and a copy that would come to where the old one is.
$holder->query('ROLLBACK TO row;');
$two->wait_value(left($copied), 1, 'all rows to go but the one that is held');
my (undef, undef, $error) = $one->server->psql($one->db, "SELECT shard_move('counter', $copied, 2)");
isnt($error, '', 'a copy does not come over one that is held');
goes_on(2, 'and stops nobody');
$holder->query('COMMIT;');
$two->wait_value(own($copied), 'none', 'the copy to go when nobody holds it');
is($two->sql(left($copied)), 0, 'with all its rows');
$cluster->bring('counter', $copied, 2);
is($one->get($copied), '1 from node2', 'then the shard moves there');
is($one->get($copied + 12), '1 from node2', 'with all its entities');
$cluster->wait_settled;

# --- a state that is given up ----------------------------------------------------------------------

# Rows of the shard are left here, since somebody holds one, when its new home is lost.
$holder->close;
$holder = $one->session;
$holder->query("BEGIN; SELECT FROM shard_entity.counter WHERE entity_id = '$lost' FOR SHARE;");
$cluster->bring('counter', $lost, 2);
$one->wait_value(left($lost), 1, 'all rows to go but one');
$two->server->crash;
$cluster->has_left(2);
$holder->query('LOCK TABLE shard_entity.counter IN ACCESS EXCLUSIVE MODE;');
$one->sql("SELECT shard_pin('counter', $lost, 1)");
$one->eventually('SELECT shard_write_off(2)');
$one->wait_value(own($lost), 'clearing', 'the shard to begin anew where rows of it are left');
goes_on(1, "a user's lock on the table stops no other lane");
$three->add($lost, 1);
$one->wait_value("SELECT count(*) FROM shard_inbox WHERE type_name = 'counter' AND entity_id = '$lost' AND place = 'stash'", 1, 'a message from elsewhere to be taken in');
$one->add($lost, 1);
end_worker($one);
goes_on(1, 'a new worker does not stop there, either');
is($one->sql(own($lost)), 'clearing', 'the shard still waits');

# The worker ends when the rows are gone, and nothing else has happened.
$one->server->set_fault('cleared', 'exit');
$holder->query('COMMIT;');
ShardCluster::wait_for_condition(sub { $one->server->fault_happened }, 'the worker to end when the rows are gone');
$one->server->clear_fault;
is($three->get($lost), '2 from node1', 'it begins empty when nobody holds them, with what came meanwhile');
$cluster->drain;
is($one->sql("SELECT string_agg(entity_id || ' ' || (state->>'count'), ', ') FROM shard_entity.counter WHERE shard = $lost"), "$lost 2",
	'once, and without what was there before');
$cluster->wait_settled;
$_->server->log_is_clean(@ShardNodes::link_troubles, qr/fault point cleared/) for $one, $three;
done_testing();
