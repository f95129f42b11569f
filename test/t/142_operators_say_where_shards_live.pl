# Moves, pins, evacuation and rebalancing, by functions that work at any member: what they do, what the
# views say of it, and what they say to who makes a mistake.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(3, databases => 1, 
	conf => "shard.rebalance_interval = '1 h'\nshard.roles = 'hot'\nshard.role_min_members = 'hot=4'");
my ($one, $two, $three) = $cluster->nodes;

sub fails
{
	my ($node, $sql, $pattern, $why) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	like($node->error_of($sql) // 'no error', $pattern, $why);
	return;
}

my $homes = q{SELECT string_agg(shard || '@' || node || ' ' || phase || ' ' || coalesce(here, '-') || ' ' || reason,
	', ' ORDER BY shard) FROM shard_homes WHERE type_name = 'external'};

# The third node hosts nothing of it.
$_->sql(q{CREATE FUNCTION external(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql
	RETURN to_jsonb(coalesce(state::int, 0) + 1);
	CREATE FUNCTION same(text) RETURNS int IMMUTABLE LANGUAGE sql RETURN $1::int}) for $cluster->nodes;
$_->sql(q{SELECT shard_start('external', 'external', 4, shard_id_extractor => 'same',
	allocation_strategy => 'external', allocation_settings => '{"rebalance_limit": 2}', handoff_timeout => '20 s')})
  for $one, $two;
$cluster->wait_registered;

# --- a type as the cluster knows it --------------------------------------------------------------

fails($three, q{SELECT shard_start('external', 'external', 4, shard_id_extractor => 'same',
	allocation_strategy => 'external', handoff_timeout => '20 s')},
	qr/42710: .*other settings/s, 'members agree on the settings of allocation');
fails($three, q{SELECT shard_start('external', 'external', 4, shard_id_extractor => 'same',
	allocation_strategy => 'external', allocation_settings => '{"rebalance_limit": 2}', handoff_timeout => '21 s')},
	qr/42710: .*other settings/s, 'and on the time for a move');
$three->eventually(q{SELECT shard_start_proxy('external', handler => 'external')});
is($three->sql(q{SELECT concat_ws(' ', mode, settings->>'allocation_strategy', settings->'allocation_settings',
	settings->>'handoff_timeout') FROM shard_types WHERE type_name = 'external'}),
	'proxy external {"rebalance_limit": 2} 20 s', 'a proxy has them from the cluster');

# --- pins before there is a home -----------------------------------------------------------------

$three->sql(q{SELECT shard_pin('external', s, 1) FROM generate_series(0, 2) s});
$one->sql(q{SELECT shard_tell('external', s::text, '{}') FROM generate_series(0, 2) s});
$one->wait_value($homes, '0@1 stable active first message, 1@1 stable active first message, 2@1 stable active first message',
	'pinned shards to get their homes where they are pinned');

# --- mistakes ------------------------------------------------------------------------------------

$two->sql(q{SELECT shard_unpin('external', 0)});
fails($two, q{SELECT shard_move('nothing', 0, 2)}, qr/42704: .*no entity type "nothing".*HINT: .*shard_types/s, 'unknown type');
fails($two, q{SELECT shard_move('external', 4, 2)}, qr/22023: .*no shard 4.*DETAIL: .*0 to 3.*HINT: /s, 'shard out of range');
fails($two, q{SELECT shard_pin('external', -1, 2)}, qr/22023: .*no shard -1/s, 'below it, too');
fails($two, q{SELECT shard_move('external', 0, 9)}, qr/42704: .*no node 9.*HINT: .*shard_members/s, 'unknown node');
fails($two, q{SELECT shard_pin('external', 0, 0)}, qr/42704: .*no node 0/s, 'no node at all');
fails($two, q{SELECT shard_move('external', 0, 1)}, qr/55000: .*on node 1 already/s, 'the node where it is');
fails($two, q{SELECT shard_move('external', 3, 1)}, qr/55000: .*no home yet.*HINT: .*shard_pin/s, 'a shard without a home');
fails($two, q{SELECT shard_move('external', 0, 3)}, qr/55000: .*could not move shard 0.*DETAIL: .*does not host.*HINT: .*shard_start/s,
	'a node that is only a proxy');
fails($two, q{SELECT shard_rebalance('nothing')}, qr/42704: .*no entity type/, 'rebalancing what is unknown');
fails($two, q{SELECT * FROM shard_rebalance_plan('nothing')}, qr/42704: .*no entity type/, 'and planning it');
fails($two, q{SELECT shard_evacuate(9)}, qr/42704: .*no node 9/, 'emptying an unknown node');
fails($two, q{SELECT shard_evacuate(2, timeout => '-1 s')}, qr/22023: .*negative/, 'a negative time');
fails($two, q{BEGIN; CREATE TABLE written (); SELECT shard_move('external', 0, 2)},
	qr/25001: .*has written.*HINT: .*Commit/s, 'in a transaction that has written');
fails($two, "SELECT $_", qr/22004: .*cannot be null/, "$_") for q{shard_move('external', 0, NULL)}, q{shard_move(NULL, 0, 2)},
  q{shard_pin('external', NULL, 2)}, 'shard_evacuate(NULL)', 'shard_down(NULL)';
is($two->sql(q{SELECT shard_unpin('external', 3)}), '', 'what is not pinned can be unpinned');

# --- moves ---------------------------------------------------------------------------------------

$three->sql(q{SELECT shard_move('external', 0, 2)});
$_->wait_until(q{SELECT node = 2 AND phase = 'stable' AND reason = 'operator' FROM shard_homes
	WHERE type_name = 'external' AND shard = 0}, 'a move that a proxy asked for') for $cluster->nodes;
$two->wait_value(q{SELECT shard || ' ' || here FROM shard_homes WHERE type_name = 'external' AND here IS NOT NULL}, '0 active',
	'node 2 to run it');
$one->sql(q{SELECT shard_tell('external', '0', '{}')});
$two->wait_value(q{SELECT state::int FROM shard_entity.external}, '2', 'it goes on with its state');
is($three->sql(q{SELECT concat_ws(' ', what, type_name, shard, from_node, to_node, why ~ '@3$', node) FROM shard_decisions
	WHERE shard = 0 AND what LIKE 'move%' ORDER BY at DESC LIMIT 1}), 'moved external 0 1 2 t 1',
	'shard_decisions says who wanted it, and who decided');
$three->wait_value('SELECT count(*) FROM shard_rebalances', 0, 'nothing to move any more');

# --- pins and plans ------------------------------------------------------------------------------

$one->sql(q{SELECT shard_pin('external', 1, 2)});
$three->wait_until(q{SELECT node = 2 AND phase = 'stable' AND reason = 'pin' FROM shard_homes
	WHERE type_name = 'external' AND shard = 1}, 'a pinned shard to go where it is pinned');
fails($one, q{SELECT shard_move('external', 1, 1)}, qr/55000: .*pinned to node 2.*HINT: .*shard_unpin/s, 'what is pinned stays there');
is($one->sql(q{SELECT count(*) FROM shard_rebalance_plan()}), 0, 'nothing else would move');
is($one->sql(q{SELECT shard_rebalance('external')}), 0, 'nor does it');

# --- a node is emptied ---------------------------------------------------------------------------

is($three->sql(q{SELECT shard_evacuate(2, timeout => '60 s')}), 't', 'a node is emptied');
$two->wait_value(q{SELECT count(*) FROM shard_homes WHERE node = 2}, 0, 'it to know that it has no shards');
$_->wait_value('SELECT evacuated FROM shard_members WHERE node = 2', 't', 'all see that it is') for $cluster->nodes;
fails($one, q{SELECT shard_move('external', 0, 2)}, qr/55000: .*cannot be given shards.*DETAIL: .*being emptied.*HINT: .*shard_evacuate/s,
	'it is given none');
is($two->sql(q{SELECT shard_evacuate(2, false)}), 't', 'until it may have some again');
$three->wait_until(q{SELECT node = 2 AND phase = 'stable' FROM shard_homes WHERE type_name = 'external' AND shard = 1},
	'and the pinned one to come back');

# --- a move that fails ---------------------------------------------------------------------------

$one->sql(q{SELECT shard_unpin('external', 2)});
$one->sql(q{ALTER TABLE shard_entity.external ADD COLUMN other int});
fails($one, q{SELECT shard_move('external', 2, 2)}, qr/55000: .*could not move shard 2.*DETAIL: .*lacks column.*HINT: .*state tables of both/s,
	'a table that does not fit is told');
like($three->sql(q{SELECT concat_ws(' ', phase, from_node, to_node, error) FROM shard_rebalances WHERE shard = 2}),
	qr/^failed 1 2 .*lacks column/, 'and shown');
$one->error_of(q{SELECT shard_move('external', 2, 2)});
$one->wait_until(q{SELECT problems::text ~ 'shard 2 of entity type .*external.* could not be moved to node 2' FROM shard_health()},
	'what fails again and again is a problem');
$one->sql(q{ALTER TABLE shard_entity.external DROP COLUMN other});
$one->sql(q{SELECT shard_move('external', 2, 2)});
$one->wait_until(q{SELECT problems::text !~ 'could not be moved' FROM shard_health()}, 'until it is moved');
$three->wait_value(q{SELECT count(*) FROM shard_rebalances}, 0, 'it not to be shown any more');

# --- who may -------------------------------------------------------------------------------------

$one->sql('CREATE ROLE nobody');
fails($one, "SET ROLE nobody; SELECT $_", qr/42501: permission denied for function/, "$_ is not for everybody")
  for q{shard_move('external', 0, 2)}, q{shard_pin('external', 0, 2)}, q{shard_unpin('external', 0)}, 'shard_evacuate(2)',
  'shard_rebalance()', q{shard_rebalance_plan()}, 'shard_leave()';
fails($one, 'SET ROLE nobody; SELECT * FROM shard_decisions', qr/42501: permission denied for view/, 'nor are decisions');
is($one->sql('SET ROLE nobody; SELECT count(*) FROM shard_rebalances'), 0, 'moves are for everybody, who sees those of his types');

# --- too few of a role ---------------------------------------------------------------------------

$one->eventually(q{SELECT shard_start('hot', 'external', 4, role => 'hot')});
$two->wait_until(q{SELECT problems::text ~ '3 of the 4 members with role .*hot.* that shard.role_min_members wants' FROM shard_health()},
	'health to say that the role has too few members');
pass('a role with too few members is a problem');

# --- a node leaves with its shards ---------------------------------------------------------------

$two->sql(q{ALTER TABLE shard_entity.external ADD COLUMN other int});
$two->sql(q{SELECT shard_start('alone', 'external', 1)});
$two->sql(q{SELECT shard_tell('alone', 'e', '{}')});
$two->wait_value(q{SELECT node FROM shard_homes WHERE type_name = 'alone'}, 2, 'a type of its own');
# The reason is there when the coordinator has tried; to leave is to be asked for again and again.
my ($status, $out, $err);
ShardCluster::wait_for_condition(sub { ($status, $out, $err) = $three->try(q{SELECT shard_evacuate(2, timeout => '2 s')}); return $err =~ /lacks column "other"/ },
	'a move to be tried, for who empties the node');
is("$status $out", '0 f', 'a node whose shards cannot move is not emptied in time');
like($err, qr/WARNING: .*node 2 still has shards: 1 of entity type "alone", \d of entity type "external".*HINT: .*shard_evacuate/s, 'that says what stays');
like($err, qr/DETAIL: .*To node 1, shards? \d[\d, ]* of entity type "external": .*lacks column "other".*No shard of entity type "alone" is moving: no other member that is up hosts it\./s,
	'... and why');
($status, $out, $err) = $three->try(q{SELECT shard_evacuate(2)});
is("$status $out $err", '0 f ', 'who does not wait is told nothing');
$three->sql(q{SELECT shard_evacuate(2, false)});
ShardCluster::wait_for_condition(sub { ($status, $out, $err) = $two->try(q{SELECT shard_leave('2 s')}); return $err =~ /lacks column "other"/ },
	'a move to be tried');
is("$status $out", '0 f', 'a node whose shards cannot move does not leave in time');
like($err, qr/WARNING: .*still has shards: 1 of entity type "alone", \d of entity type "external".*HINT: .*shard_rebalances/s, 'and says what stays');
like($err, qr/DETAIL: .*lacks column "other".*No shard of entity type "alone" is moving.*HINT: .*has started/s, '... and why');
$one->wait_until(q{SELECT problems::text ~ 'entity type .*alone.* still has 1 shard.s. there; they move to members that are up and have started it' FROM shard_health()},
	'health to say it, too');
$one->sql(q{SELECT shard_start('alone', 'external', 1)});
$two->sql(q{ALTER TABLE shard_entity.external DROP COLUMN other});
is($two->sql(q{SELECT shard_leave('120 s')}), 't', 'when they can, it leaves');
$one->wait_value($homes, '0@1 stable active evacuation, 1@1 stable active leaving, 2@1 stable active leaving', 'its shards have moved');
is($two->sql('SELECT count(*) FROM shard_entity.external'), 0, 'it has nothing left of them');
is($one->sql('SELECT count(*) FROM shard_entity.external'), 3, 'which is all here');
$cluster->logs_are_clean(@ShardNodes::link_troubles);
done_testing();
