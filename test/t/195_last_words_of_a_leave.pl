# Around joining and leaving: region workers of a node that joins are back at once and nothing looks like a failure; whoever has
# left is told so, also when it wants to cancel that; and the others end their links to it before they fail.

use strict;
use warnings FATAL => 'all';

use PostgreSQL::Test::Utils;
use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(2, databases => 1, conf => 'shard.region_workers = 1');
my ($one, $two) = $cluster->nodes;
my $server = $one->server;
my $log = slurp_file($server->logfile);
like($log, qr/region worker 0 starts again: this database is node 2 of another cluster now/, 'the worker of a node that joins starts again');
unlike($log, qr/shard region.*exited with exit code/, 'which is no failure');

$cluster->start_counter;
my ($id) = $cluster->entities_at('counter', 2, 1, '');
$cluster->drain;
$one->wait_value('SELECT state FROM shard_peers WHERE node = 2', 'open', 'a link to node 2');
is($two->sql(q{SELECT shard_leave('60 s')}), 't', 'a node leaves');
$cluster->has_left(2);
like($two->error_of('SELECT shard_leave(cancel => true)') // '', qr/55000: cannot cancel the leave of this node\nDETAIL:  This node has left its cluster/,
	'it hears that it is too late to cancel that');
like($two->error_of(q{SELECT shard_join('} . $one->dsn . q{')}) // '', qr/55000: .*DROP EXTENSION shard CASCADE.*shard_allow_peer/s,
	'and how it could come again');
# The view has no row of who is gone.
$one->wait_value('SELECT string_agg(DISTINCT state, $$, $$) FROM shard.peers() WHERE node = 2', 'idle', 'the link to be closed');
my $before = -s $server->logfile;
$server->safe_psql('postgres', 'DROP DATABASE node2 WITH (FORCE)');
$one->add($id, 1);
is($one->get($id), '1 from node1', 'its entities live on');
is($one->sql(q{SELECT shard_drain('60 s')}), 't', 'nothing waits for it');
unlike(slurp_file($server->logfile, $before), qr/link to node 2 failed/, 'nobody calls it any more');
is($one->sql('SELECT count(last_error) FROM shard.peers() WHERE node = 2'), 0, 'nor is there an error');
done_testing();
