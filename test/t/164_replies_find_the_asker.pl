# Replies that come later, in a cluster: the asker at one node, the entity at another, who replies at a third one; while the
# entity's shard moves away; over links that fail or lose an answer, from a node whose server dies meanwhile; and an asker whose home leaves is told so.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(3, proxy => 1);
my ($one, $two, $three) = $cluster->nodes;
for my $node ($one, $two, $three)
{
	$node->sql(q{
	CREATE FUNCTION clerk(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		IF message ? 'noop' THEN RETURN state; END IF;
		IF message ? 'token' THEN
			PERFORM shard_reply(decode(message->>'token', 'hex'), message->'with');
			RETURN state;
		END IF;
		RETURN jsonb_build_object('token', encode(shard_defer_reply(), 'hex'), 'n', coalesce((state->>'n')::int, 0) + 1);
	END $$;
	SELECT shard_start('clerk', 'clerk', number_of_shards => 12)});
	$cluster->wait_registered($node);
}

my $open = 'SELECT sum(open_asks) FROM shard_stat_workers';

# An ask from one node that is open at another: the session, and the token as the home has it.
sub open_ask
{
	my ($asker, $home, $entity) = @_;
	my $session = $asker->session;
	$session->send(qq{SELECT shard_ask('clerk', '$entity', '{}', '170 s');});
	$home->wait_value($open, 1, 'an open ask at node ' . $home->n);
	return ($session, $home->sql("SELECT state->>'token' FROM shard_entity.clerk WHERE entity_id = '$entity'"));
}

sub reply { my ($node, $token, $with) = @_; return $node->sql(qq{SELECT shard_reply(decode('$token', 'hex'), '"$with"')}) }

# Everybody is asked from everywhere, and answered from everywhere.
my %entity = map { $_->n => $cluster->entity_at('clerk', $_->n) } $one, $two, $three;
$cluster->drain;
for my $home ($one, $two, $three)
{
	for my $asker ($one, $two, $three)
	{
		for my $answerer ($one, $two, $three)
		{
			my $what = join ' ', 'asked by', $asker->n, 'at', $home->n, 'answered by', $answerer->n;
			my ($session, $token) = open_ask($asker, $home, $entity{ $home->n });
			reply($answerer, $token, $what);
			is($session->receive, qq{"$what"}, $what);
		}
	}
}

# The shard moves while its ask is open: the ask stays, and the entity replies from its new home.
my $entity = $entity{2};
my $shard = $cluster->shard_of('clerk', $entity);
my ($session, $token) = open_ask($one, $two, $entity);
$cluster->move('clerk', $shard, 3);
$cluster->wait_home('clerk', $shard, 3);
is($three->sql("SELECT state->>'token' FROM shard_entity.clerk WHERE entity_id = '$entity'"), $token, 'the token moves with the state');
is($two->sql($open), 1, 'the ask is still open at the former home');
$one->sql(qq{SELECT shard_tell('clerk', '$entity', '{"token": "$token", "with": "from the new home"}')});
is($session->receive, '"from the new home"', 'the entity replies from its new home');
# To and fro: the asker finds the entity where it is.
($session, $token) = open_ask($one, $three, $entity);
$cluster->move('clerk', $shard, 2);
$cluster->wait_home('clerk', $shard, 2);
reply($one, $token, 'after a move back');
is($session->receive, '"after a move back"', 'and after a move back');

# A link that stands still: the reply comes when it goes on.
($session, $token) = open_ask($two, $two, $entity);
$cluster->proxy->cut(3, 2);
reply($three, $token, 'late');
$three->wait_until("SELECT count(*) > 0 FROM shard_peers WHERE node = 2 AND last_error <> ''", 'a link that fails');
is($two->sql($open), 1, 'a reply waits for its link');
# Meanwhile the worker that has it ends, by itself and with its server.
$three->sql('SELECT pg_terminate_backend(pid) FROM shard_stat_workers');
$three->wait_until('SELECT count(*) > 0 FROM shard_stat_workers WHERE pid IS NOT NULL', 'the next worker');
$three->server->crash;
$three->server->recover;
$cluster->proxy->heal(3, 2);
is($session->receive, '"late"', 'and comes when that is back, from the log');
$cluster->wait_up;

# The answer to the call is lost: it is made again, and finds nobody.
($session, $token) = open_ask($one, $two, $entity);
$cluster->proxy->cut_reply(3, 2, 1, 'receive');
reply($three, $token, 'once');
is($session->receive, '"once"', 'a reply whose receipt was lost');
($session, $token) = open_ask($one, $two, $entity);
reply($three, $token, 'next');
is($session->receive, '"next"', 'is for one ask, and not for the next one');

# The node that holds the ask leaves: the asker does not wait in vain.
($session, $token) = open_ask($one, $two, $entity);
$two->sql(q{SELECT shard_leave('60 s')});
like(eval { $session->receive; 'answered' } // $@, qr/outcome (is )?unknown/, 'an asker is told that the home of its ask has left');
$one->wait_until("SELECT count(*) = 0 FROM shard_homes WHERE node = 2", 'other homes');
reply($three, $token, 'nobody');
$three->wait_until('SELECT sum(void_replies) > 0 FROM shard_stat_workers', 'a reply that finds no node');
pass('a reply to an ask at a node that has left finds nobody');

$cluster->logs_are_clean(@ShardNodes::link_troubles, qr/terminating .* due to administrator command/);
done_testing();
