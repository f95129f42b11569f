# Asks for entities of a node that is down: who cannot wait is told that nothing was executed, and why;
# who can is answered when the node is back, after what the session told before. An ask that the
# asker gives up is not executed later.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(2);
my ($one, $two) = $cluster->nodes;
$cluster->sql_everywhere(q{
CREATE FUNCTION total(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	IF message ? 'noop' THEN
		RETURN state;
	END IF;
	state := to_jsonb(coalesce(state::int, 0) + message::int);
	PERFORM shard_reply(state);
	RETURN state;
END $$;
SELECT shard_start('total', 'total');
});
$cluster->wait_registered;
my $there = $cluster->entity_at('total', 2);
sub ask { my ($add, $timeout) = @_; return "SELECT shard_ask('total', '$there', '$add', '$timeout');"; }

my $before = $one->sql(ask(1, '30 s'));
$two->server->stop('fast');
# An ask that was sent on a link that has just ended might have been executed.
$one->wait_until("SELECT state <> 'open' FROM shard_peers WHERE node = 2", 'the end of the link');
my $error = $one->error_of(ask(100, '1 s')) // '';
like($error, qr/55P03.*it was not executed/, 'an ask that cannot be sent was not executed');
like($error, qr/DETAIL:.*node 2/, 'and says at which node');
like($error, qr/HINT:.*shard_peers/, 'with a hint');
like($one->error_of(ask(100, '0 s')) // '', qr/55P03/, 'one without time, too');

# One that waits longer than the node is away; another is given up meanwhile.
$one->sql("SELECT shard_tell('total', '$there', '10') FROM generate_series(1, 3)");
my $waiting = $one->session;
$waiting->send(ask(1, '120 s'));
my $cancelled = $one->session;
my $pid = $cancelled->query('SELECT pg_backend_pid();');
$cancelled->send(ask(1000, '120 s'));
$one->wait_until("SELECT state = 'active' AND wait_event IS NOT NULL FROM pg_stat_activity WHERE pid = $pid", 'the ask');
$one->sql("SELECT pg_cancel_backend($pid)");
ok(!eval { $cancelled->receive; 1 }, 'an ask is cancelled');
$two->server->recover;
is($waiting->receive, $before + 31, 'an ask is answered when the node is back, after the tells before it');
is($one->sql(ask(0, '30 s')), $before + 31, 'what was given up was not executed');
$cluster->logs_are_clean(@ShardNodes::link_troubles);
done_testing();
