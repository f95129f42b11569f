# Replies to asks that another node holds are kept in the log until it has them, and in memory only so far: a turn ends when
# it has met some, and a worker that starts leaves out what is beyond, and says so (E44).

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(2, conf => "shard.region_workers = 1\nshard.rebalance_interval = 0");
my ($one, $two) = $cluster->nodes;
$cluster->sql_everywhere(q{
CREATE FUNCTION clerk(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql
	RETURN CASE WHEN message ? 'noop' THEN state ELSE jsonb_build_object('token', encode(shard_defer_reply(), 'hex')) END;
SELECT shard_start('clerk', 'clerk', number_of_shards => 8);
});
$cluster->wait_registered;
my ($here, $there) = map { $cluster->entity_at('clerk', $_->n) } $one, $two;
$cluster->drain;

my $asker = $one->session;
$asker->send(qq{SELECT shard_ask('clerk', '$there', '{}', '170 s');});
$two->wait_value('SELECT sum(open_asks) FROM shard_stat_workers', 1, 'an open ask');
my $token = $two->sql("SELECT state->>'token' FROM shard_entity.clerk WHERE entity_id = '$there'");
$two->server->stop('immediate');

# 90 MB for a node that cannot be reached.
$one->sql(qq{SELECT shard_reply(decode('$token', 'hex'), to_jsonb(repeat('x', 1000000))) FROM generate_series(1, 90)});
my $handled = qq{SELECT shard_ask('clerk', '$here', '{"noop": true}', '60 s') IS NULL};
$one->sql($handled);
my $logged = sub { my ($line) = @_; return scalar(() = PostgreSQL::Test::Utils::slurp_file($one->server->logfile) =~ /$line/g) };
ShardCluster::wait_for_condition(sub { $logged->('LOG: .*a reply for node 2 is dropped') > 0 }, 'what is beyond to be left out');
is($logged->('replies for other nodes are dropped'), 0, 'no worker has had to leave out any at its start');
my ($old) = $one->server->worker_pids('%region%');
$one->sql("SELECT pg_terminate_backend($old)");
$one->wait_until("SELECT EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'shard region' AND pid <> $old)", 'another worker');
is($one->sql($handled), 't', 'the next worker runs');
is($logged->('replies for other nodes are dropped'), 1, 'and has left out what is beyond, of what it found in the log');

# The other node has lost its asks with its server; it takes what is told, and nothing waits any more.
$asker->close;
$two->server->start;
$cluster->wait_up;
$cluster->drain;
pass('both go on');
done_testing();
