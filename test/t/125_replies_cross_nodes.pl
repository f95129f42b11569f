# An entity tells entities of other nodes, which reply to their sender: shard_sender and shard_reply
# name and reach it wherever it lives, in order.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(3);
$cluster->sql_everywhere(q{
CREATE TABLE heard (pos bigserial, entity text, what text);
CREATE FUNCTION server(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	IF message ? 'noop' THEN RETURN state; END IF;
	PERFORM shard_reply(jsonb_build_object('reply', message->'n',
		'to', (SELECT type_name || '/' || entity_id FROM shard_sender()), 'from', (SELECT entity_id FROM shard_self())));
	RETURN jsonb_build_object('served', coalesce((state->>'served')::int, 0) + 1);
END $$;
CREATE FUNCTION client(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	IF message ? 'noop' THEN RETURN state; END IF;
	IF message ? 'ask' THEN
		FOR i IN 1 .. 20 LOOP
			PERFORM shard_tell('server', message->>'ask', jsonb_build_object('n', i));
		END LOOP;
	ELSE
		INSERT INTO heard (entity, what) SELECT entity_id, concat_ws(' ', message->>'from', message->>'reply', message->>'to') FROM shard_self();
	END IF;
	RETURN coalesce(state, '{}');
END $$;
SELECT shard_start('server', 'server'), shard_start('client', 'client');
});
$cluster->wait_registered;
my @servers = map { $cluster->entity_at('server', $_) } 1 .. 3;
my @clients = map { $cluster->entity_at('client', $_) } 1 .. 3;
for my $c (0 .. 2)
{
	$cluster->node(1)->sql(qq{SELECT shard_tell('client', '$clients[$c]', '{"ask": "$_"}')}) for @servers;
}
$cluster->drain;
for my $c (0 .. 2)
{
	for my $s (0 .. 2)
	{
		my $expected = join ', ', map { "$servers[$s] $_ client/$clients[$c]" } 1 .. 20;
		is($cluster->node($c + 1)->sql(qq{SELECT string_agg(what, ', ' ORDER BY pos) FROM heard WHERE entity = '$clients[$c]' AND what LIKE '$servers[$s] %'}),
			$expected, 'replies of a server at node ' . ($s + 1) . ' to a client at node ' . ($c + 1));
	}
}
$cluster->logs_are_clean;
done_testing();
