# A node's files put back from a copy, whether or not it wrote before its peers met it, and a clone of
# its machine: found out, loudly, on both sides of the link, before anything is done twice or lost in
# silence; shard_link_accept lets messages flow again.

use strict;
use warnings FATAL => 'all';

use File::Path qw(rmtree);
use PostgreSQL::Test::RecursiveCopy;
use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(3, proxy => 1);
$cluster->start_recorder;
my ($one, $two, $three) = $cluster->nodes;
my ($there, $here) = ($cluster->entity_at('recorder', 1), $cluster->entity_at('recorder', 2));
my $handled = 0;

sub exchange
{
	my ($count) = @_;
	$two->sql(ShardCluster::tell_recorder($there, $handled + 1, $handled + $count));
	$handled += $count;
	$cluster->wait_recorded($there, 1, 1 .. $handled);
	$cluster->drain;
	return;
}

# The copy is taken while the node is down.
sub copy
{
	my ($name) = @_;
	$two->server->stop('fast');
	$two->server->backup_fs_cold($name);
	$two->server->recover;
	$cluster->wait_up;
	return;
}

sub put_back
{
	my ($name) = @_;
	$two->server->stop('fast');
	rmtree($two->server->data_dir);
	PostgreSQL::Test::RecursiveCopy::copypath($two->server->backup_dir . "/$name", $two->server->data_dir);
	chmod 0700, $two->server->data_dir;
	return;
}

# Every member shows that somebody wants the place of node 2, and the command to let it in; returns that.
sub is_shown
{
	my ($what, @witnesses) = @_;
	my $health = q{SELECT substring(array_to_string(problems, '; ') FROM 'copy of node 2 wants its place and is refused.*(shard_admit\(2, \d+\))') FROM shard_health()};
	for my $node (@witnesses)
	{
		$node->wait_until("SELECT ($health) IS NOT NULL", 'node ' . $node->n . ' to say that somebody is refused');
		is($node->sql('SELECT string_agg(node::text, $$ $$) FROM shard_members WHERE claimed'), 2, "$what: node " . $node->n . ' shows whose place it is');
	}
	return $witnesses[-1]->sql($health);
}

sub is_quarantined
{
	my ($what) = @_;
	$one->wait_until(q{SELECT state = 'quarantined' FROM shard_peers WHERE node = 2}, 'quarantine at node 1');
	$two->wait_until(q{SELECT state = 'quarantined' FROM shard_peers WHERE node = 1}, 'quarantine at node 2');
	pass("$what: quarantined on both sides");
	$_->wait_until(q{SELECT array_to_string(problems, '; ') ~ 'quarantine' FROM shard_health()}, 'health of node ' . $_->n . ' to say so')
	  for $one, $two;
	like($two->sql('SELECT last_error FROM shard_peers WHERE node = 1'), qr/./, "$what: with a reason");
	return;
}

sub accept_link
{
	my ($what) = @_;
	$two->sql('SELECT shard_link_accept(1)');
	$one->sql('SELECT shard_link_accept(2)');
	$two->wait_until(q{SELECT state <> 'quarantined' FROM shard_peers WHERE node = 1}, 'the end of quarantine');
	return;
}

exchange(5);
copy('early');
exchange(5);
put_back('early');
$two->server->recover;
$two->server->wait_for_log(qr/node 2 is not admitted: .*shard_admit/);
$two->server->wait_for_log(qr/this node has voted, and has forgotten its vote/);
pass('put back: the others remind its voter of what it has voted');
my $admit = is_shown('put back', $one, $three);
like($one->sql(q{SELECT array_to_string(problems, '; ') FROM shard_health()}), qr/end that server, if it is an old primary or a copy; to let it in, .*\Q$admit\E at a member other than node 2/,
	'put back: health has both ways out, and where the command works');
$two->wait_until(qq{SELECT position('handles no messages' IN s) > 0 AND position('$admit at a member other than node 2' IN s) > 0 FROM (SELECT array_to_string(problems, '; ') FROM shard_health()) h (s)},
	'the refused start to say where to call');
like($two->error_of("SELECT $admit") // 'nothing', qr/shard_admit\(\) is refused for node 2 here\n.*waits to be admitted.*HINT:  Call \Q$admit\E at another member\./s,
	'put back: called at the refused start itself, the command says where it works');
$three->sql("SELECT $admit");
$_->wait_value('SELECT count(*) FROM shard_members WHERE claimed', 0, 'node ' . $_->n . ' to see it in its place') for $one, $two, $three;
pass('put back: let in by the command that health has, at any member');
$two->wait_value('SELECT voter_state FROM shard.node', 'ok', 'its voter to vote again');
$two->sql(ShardCluster::tell_recorder($there, 'after'));
is_quarantined('put back');
is($cluster->recorded($there, $one), join(' ', 1 .. $handled) . " = $handled at 1", 'nothing of it arrives');
accept_link('put back');
$cluster->wait_recorded($there, 1, 1 .. $handled, 'after');
pass('flows again after shard_link_accept');
$one->sql(ShardCluster::tell_recorder($here, 'x'));
$two->wait_until("SELECT count(*) = 1 FROM seen WHERE entity = '$here'", 'the other direction');
pass('in the other direction, too');

# A clone of the machine elsewhere: the one at the registered address stays.
$two->server->stop('fast');
$two->server->backup_fs_cold('clone');
$two->server->recover;
$cluster->wait_up;
my $incarnation = $one->sql('SELECT incarnation FROM shard_members WHERE node = 2');
my $clone = ShardCluster->new('clone');
$clone->init_from_backup($two->server, 'clone');
$clone->append_conf('postgresql.conf', 'port = ' . $clone->port);
$clone->start;
$clone->wait_until(q{SELECT array_to_string(problems, '; ') ~ 'handles no messages.*looks like an old copy.*shard_admit\(2, ' FROM shard_health()},
	'the clone to notice');
note($clone->safe_psql('postgres', 'SELECT array_to_string(problems, $$; $$) FROM shard_health()'));
is_shown('clone', $one, $two, $three);
$clone->psql('postgres', ShardCluster::tell_recorder($there, 'clone'));
$two->sql(ShardCluster::tell_recorder($there, 'original'));
$cluster->wait_recorded($there, 1, 1 .. $handled, 'after', 'original');
pass('a clone is refused, the original goes on');
is($one->sql('SELECT incarnation FROM shard_members WHERE node = 2'), $incarnation, 'as the same incarnation');
$clone->stop('immediate');
$_->wait_until(q{SELECT NOT bool_or(claimed) AND (SELECT problems::text !~ 'wants its place' FROM shard_health()) FROM shard_members}, 'node ' . $_->n . ' to see that the clone is gone')
  for $one, $two, $three;
pass('and forgotten when it has gone');

$three->server->log_is_clean(@ShardNodes::link_troubles, qr/quarantine/);
done_testing();
