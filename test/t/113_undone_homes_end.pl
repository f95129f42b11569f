# R13, R29, N2: while links to node 3 are cut, node 3 is written off by the others and made the only voter by its own operator. When the
# links are mended its era counts: shards that the write-off gave to others are active at node 3 alone. Who had them says so, in
# the log and in shard_health(), keeps the rows, and a message that was sent to it and is in doubt is not handled again. N4: a shard
# that has moved meanwhile, between the others, is at neither: its states are kept where it went to, and it stands still, and is named,
# where it was, until it is given up there. M23: messages that wait where the home was undone become dead letters there when a move brings
# the shard back, or it begins anew there.

use strict;
use warnings FATAL => 'all';

use PostgreSQL::Test::Utils;
use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(3, proxy => 1, conf => 'shard.rebalance_interval = 0');
my ($one, $two, $three) = $cluster->nodes;
is($three->sql('SELECT string_agg(node::text, $$ $$ ORDER BY node) FROM shard_members WHERE voter'), '1 2 3', 'three vote');
$cluster->start_counter;
my @entities = 1 .. 12;
$one->add($_, 1) for @entities;
$_->sql(q{SELECT shard_drain('60 s')}) for $one, $two, $three;
my %home = map { $_ => ($one->get($_) =~ /node(\d)/)[0] } @entities;
my @of_three = grep { $home{$_} == 3 } @entities;
ok(@of_three > 0, 'node 3 has some: ' . @of_three);
my ($moved) = grep { $home{$_} == 1 } @entities;
my $moved_shard = $cluster->shard_of('counter', $moved);

# Messages of these have numbers.
$_->sql(q{
CREATE FUNCTION game(state int8[], message jsonb) RETURNS int8[] LANGUAGE sql RETURN state || (message->>'n')::int8;
CREATE FUNCTION number_of(message jsonb) RETURNS int8 LANGUAGE sql RETURN (message->>'n')::int8;
SELECT shard_start('game', 'game', ordered_by => 'number_of', ordered_from => 1, ordered_timeout => '1 h', number_of_shards => 12, shard_id_extractor => 'modulo_twelve')})
	for $one, $two, $three;
$cluster->wait_registered;
$one->sql("SELECT shard_tell('game', '$_', '{\"n\": 1}')") for 1 .. 12;
$_->wait_value('SELECT count(*) FROM shard_inbox', 0, 'games to begin') for $one, $two, $three;
my $game_home = q{SELECT node FROM shard_homes WHERE type_name = 'game' AND shard = };
my ($game, $lost_game) = grep { $one->sql($game_home . $cluster->shard_of('game', $_)) eq '3' } 1 .. 12;
my ($game_shard, $lost_shard) = map { $cluster->shard_of('game', $_) } $game, $lost_game;

# --- two that decide, of one cluster ---------------------------------------------------------------

$cluster->proxy->partition([3], [ 1, 2 ], 'cut');
$two->wait_until('SELECT NOT reachable FROM shard_members WHERE node = 3', 'node 3 to be missed');
$three->wait_until('SELECT bool_and(NOT reachable) FROM shard_members WHERE node IN (1, 2)', 'node 3 to miss the others');
$two->eventually('SELECT shard_write_off(3, force => true)');
$two->eventually("SELECT shard_move('counter', $moved_shard, 2)");
is($one->get($moved), '1 from node2', 'a shard moves');
$two->wait_until('SELECT count(*) = 0 FROM shard_homes WHERE node = 3', 'other homes for the shards of node 3');
my %other = map { $_ => ($one->get($_) =~ /^0 from node(\d)/)[0] // 0 } @of_three;
is(join(' ', grep { !$other{$_} } @of_three), '', 'they begin anew there');
$three->eventually(q{SELECT shard_force_voters('{3}', force => true)});
$three->wait_until('SELECT bool_or(coordinator) FROM shard_members WHERE node = 3', 'node 3 to coordinate');

# From the other node than the home: the message is on a wire, and the answer that it was handled is not awaited.
my ($from, $id) = $other{ $of_three[0] } == 1 ? ($two, $of_three[0]) : ($one, $of_three[0]);
my $home = $cluster->node($other{$id});
$from->add($id, 100);
$home->wait_until(qq{SELECT state->>'count' = '100' FROM shard_entity.counter WHERE entity_id = '$id'}, 'it to be handled');
$three->add($_, 10) for @of_three;
is($three->get($id), '11 from node3', 'node 3 goes on with its states');

# One more waits there when the home ends.
my $locker = $home->session;
$locker->query("BEGIN; SELECT FROM shard_entity.counter WHERE entity_id = '$id' FOR UPDATE;");
$home->add($id, 1000);
$home->wait_value(q{SELECT count(*) FROM shard.held WHERE place = 'stash'}, 1, 'it to wait');

# So do numbered ones, which came before those with lower numbers.
my %waits = ($game => $cluster->node($two->sql($game_home . $game_shard)), $lost_game => $cluster->node($two->sql($game_home . $lost_shard)));
$waits{$_}->sql("SELECT shard_tell('game', '$_', '{\"n\": 3}'), shard_tell('game', '$_', '{\"n\": 2}')") for $game, $lost_game;
my $waiting = q{SELECT count(*) FROM shard.held WHERE place = 'ordered' AND entity = };
$waits{$_}->wait_value("$waiting'$_'", 2, 'numbered ones to wait') for $game, $lost_game;

# --- one cluster -----------------------------------------------------------------------------------

$cluster->proxy->heal;
$cluster->wait_up;
$cluster->wait_reachable;
$_->wait_until('SELECT bool_or(coordinator) FROM shard_members WHERE node = 3', 'all to follow node 3') for $one, $two;
my $active = q{SELECT count(*) FROM shard_homes WHERE here = 'active' AND node <> (SELECT node_id FROM shard.node)};
$_->wait_value($active, 0, 'no home elsewhere of what is active here') for $one, $two;
for my $node ($one, $two, $three)
{
	is(join(' ', map { $node->get($_) } @of_three), join(' ', map { '11 from node3' } @of_three), 'node ' . $node->n . ' asks node 3');
}
is(join(' ', map { $two->get($_) =~ s/ .*//r } grep { $home{$_} != 3 && $_ != $moved } @entities),
	join(' ', map { 1 } grep { $home{$_} != 3 && $_ != $moved } @entities), 'the others go on');
my $problems = q{SELECT coalesce(string_agg(p, E'\n'), '') FROM shard_health(), unnest(problems) p};
my $n = $home->n;
my $shard = $cluster->shard_of('counter', $id);
$home->wait_until("SELECT ($problems) ~ 'entity type \"counter\" (was|were) active at this node, $n, .*shard $shard lives at node 3'", 'health to name it');
like(slurp_file($home->server->logfile), qr/WARNING:  shards? (?:\d+, )*$shard(?:, \d+)* of entity type "counter" (?:was|were) active at this node, $n, .*node 3 is (?:its|their) home/, 'and the log');
is($home->sql("SELECT state->>'count' FROM shard_entity.counter WHERE entity_id = '$id'"), 100, 'its rows are kept');

$locker->query('ROLLBACK');
$locker->close;
$home->wait_until("SELECT ($problems) ~ 'messages that waited, which no worker handles'", 'health to name the message');
is($home->sql(q{SELECT count(*) FROM shard.held WHERE place = 'stash'}), 1, 'which is kept');

# --- a move that brings a shard back ---------------------------------------------------------------

my $back = $waits{$game};
$back->wait_until("SELECT ($problems) ~ 'of entity type \"game\" .*messages that waited, which no worker handles'", 'health to name numbered ones');
$three->eventually("SELECT shard_move('game', $game_shard, " . $back->n . ')');
my $dead = q{SELECT count(*) || ' ' || coalesce(min(sqlstate || ' ' || error), '') FROM shard_dead_letters WHERE type_name = 'game' AND entity_id = };
is($back->sql("$dead'$game'"), '2 55000 waited at a home that was undone', 'what waited are dead letters');
is($back->sql("$waiting'$game'"), 0, 'and wait no more');
like(slurp_file($back->server->logfile), qr/2 messages for shard $game_shard of entity type "game" that waited here become dead letters/, 'the log says so');
$back->sql(qq{SELECT shard_redrive(array_agg(id)) FROM shard_dead_letters WHERE type_name = 'game' AND entity_id = '$game'});
$back->wait_until("SELECT state = '{1,2,3}' FROM shard_entity.game WHERE entity_id = '$game'", 'them to be handled at the home, in their order');

# --- a move that is undone -------------------------------------------------------------------------

$one->wait_until("SELECT ($problems) ~ 'shard $moved_shard of entity type \"counter\" stands still.*shard_give_up'", 'health to name the shard that has moved');
is($two->sql("SELECT state->>'count' || ' ' || (SELECT here FROM shard_homes WHERE type_name = 'counter' AND shard = $moved_shard) FROM shard_entity.counter WHERE entity_id = '$moved'"),
	'1 sealed', 'its states are kept where it went to');
like($three->error_of(q{SELECT shard_give_up('counter', } . $cluster->shard_of('counter', $id) . ')') // 'nothing', qr/he shard runs at its home/, 'none is given up that runs');
$three->eventually("SELECT shard_give_up('counter', $moved_shard)");
is($two->get($moved), '0 from node1', 'it begins anew');

# --- seen to ---------------------------------------------------------------------------------------

$home->sql(q{DELETE FROM shard_entity.counter s WHERE NOT EXISTS (SELECT FROM shard_homes h WHERE h.type_name = 'counter' AND h.shard = s.shard AND h.here = 'active')});
$two->sql(qq{DELETE FROM shard_entity.counter s WHERE entity_id = '$moved'});
$home->wait_until("SELECT ($problems) ~ 'messages that waited, which no worker handles'", 'health to name the message alone');
# The recipe of doc/operations.md; numbered ones of the other game are left for what follows.
$home->sql(q{WITH gone AS (DELETE FROM shard.held h WHERE place = 'stash' AND EXISTS (SELECT FROM shard.own o JOIN shard.route r USING (type_id, shard)
        WHERE (o.type_id, o.shard) = (h.type_id, h.shard) AND o.state = 'sealed' AND r.doubt > o.epoch) RETURNING *)
INSERT INTO shard.dead_letter (type_id, shard, entity, kind, epoch, stamp, src_type, src_entity, mid_node, mid_seq, payload, sqlstate, error, attempts)
SELECT type_id, shard, entity, kind, epoch, stamp, src_type, src_entity, mid_node, mid_seq, payload, '55000', 'waited at a home that was undone', attempts
FROM gone ORDER BY seq});
my $before = $three->get($id) =~ /^(\d+)/ ? $1 : 0;
$home->sql(q{SELECT shard_redrive(array_agg(id)) FROM shard_dead_letters WHERE type_name = 'counter' AND sqlstate = '55000'});
$three->wait_until("SELECT (state->>'count')::int = $before + 1000 FROM shard_entity.counter WHERE entity_id = '$id'", 'it to be handled at the home');
$home->wait_until("SELECT ($problems) !~ 'type \"counter\" .*by decisions that went'", 'health to be well when they were seen to');

# --- one that begins anew there --------------------------------------------------------------------

my $anew = $waits{$lost_game};
$_->wait_until('SELECT count(*) = 3 FROM shard_members WHERE voter', 'all to vote') for $one, $two;
$three->server->stop('immediate');
$one->wait_until('SELECT NOT reachable FROM shard_members WHERE node = 3', 'node 3 to be missed');
$anew->eventually("SELECT shard_pin('game', $lost_shard, " . $anew->n . ')');
$one->eventually('SELECT shard_write_off(3, force => true)');
$anew->wait_until("SELECT node = " . $anew->n . " FROM shard_homes WHERE type_name = 'game' AND shard = $lost_shard", 'it to begin anew');
$anew->wait_value("$dead'$lost_game'", '2 55000 waited at a home that was undone', 'what waited are dead letters');
is($anew->sql("$waiting'$lost_game'"), 0, 'and wait no more');
done_testing();
