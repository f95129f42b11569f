# A state table that was dropped takes its states along and nothing else: what was sent before and is sent meanwhile waits,
# here and at other members, shard_health() says how the type goes on, and so it does: empty, or with states that were put back.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(2, databases => 1);
my ($one, $two) = $cluster->nodes;
$cluster->start_counter;
my ($id) = $cluster->entities_at('counter', 1, 1, '');
my ($other) = $cluster->entities_at('counter', 2, 1, '');
my $again = q{SELECT shard_start('counter', 'counter(jsonb,jsonb)', number_of_shards => 12, shard_id_extractor => 'modulo_twelve')};
my $start = "SELECT shard_stop_type('counter'); $again";
my $waiting = q{SELECT count(*) FROM shard_inbox WHERE type_name = 'counter' AND place = 'stash'};

sub said
{
	my ($sql) = @_;
	my ($out, $said);
	$one->server->psql($one->db, $sql, stdout => \$out, stderr => \$said);
	return $said;
}

# Drops it, as a role may that gives up what it has; then both nodes send.
sub drop_and_send
{
	$one->sql('DROP TABLE shard_entity.counter CASCADE');
	$one->sql(qq{SELECT shard_tell('counter', '$id', '{"add": 1}'), shard_tell('counter', '$other', '{"add": 1}')});
	$two->sql(qq{SELECT shard_tell('counter', '$id', '{"add": 10}')});
	$one->wait_value($waiting, 2, 'both messages to wait');
	return;
}

$one->add($id, 100);
$one->add($other, 100);
$cluster->drain;
$one->sql('CREATE VIEW reader AS SELECT * FROM shard_entity.counter');

drop_and_send();
$two->wait_value(q{SELECT state->>'count' FROM shard_entity.counter WHERE entity_id = '} . $other . q{'}, 101, 'the other node to go on');
like($one->sql(q{SELECT string_agg(p, '; ') FROM shard_health(), unnest(problems) p WHERE p ~ 'counter'}),
	qr/^entity type "counter" is suspended: its state table was dropped, with all states in it; shard_stop_type\(\) and shard_start\(\) .* empty/, 'health says what leads on');
is($one->sql(q{SELECT problem LIKE 'its state table was dropped%' FROM shard_types}), 't', 'so does shard_types');
like($one->error_of(qq{SELECT shard_ask('counter', '$id', '{}', '5 s')}), qr/55000/, 'asks are refused');
like($one->error_of(q{SELECT shard_drop_type('counter')}), qr/2BP01.*DETAIL:  Its state table was dropped; waiting messages: 2; dead letters: 0\.\nHINT:.*shard_start/s,
	'who would drop the type hears what there is, and how to keep it');

like($one->error_of($again), qr/55000: .*was dropped.*HINT:.*SELECT shard_stop_type\('counter'\)/s, 'a deployment that starts its types again does not begin anew from nothing');
my $anew = said($start);
like($anew, qr/WARNING: +state table of entity type "counter" was created again, empty\n/, 'shard_start() says that it begins empty');
unlike($anew, qr/ERROR/, 'and does it');
$cluster->drain;
is($one->get($id), '11 from node1', 'what waited was handled, once');
is($two->get($other), '101 from node2', 'other shards are as they were');
is(said($again), '', 'then it is as any other');
is($one->sql(q{SELECT count(*) FROM shard_dead_letters}), 0, 'no dead letters');
$_->wait_value('SELECT ok, problems FROM shard_health()', 't|{}', 'node ' . $_->n . ' to be well') for $one, $two;

# States that are put back in the same transaction are there before the first message.
$one->sql('CREATE TABLE saved AS SELECT * FROM shard_entity.counter');
drop_and_send();
$one->sql("BEGIN; $start; INSERT INTO shard_entity.counter SELECT * FROM saved; COMMIT");
$cluster->drain;
is($one->get($id), '22 from node1', 'states that were put back go on');

# As pg_restore does it: another table of that name has the rows.
drop_and_send();
$one->sql('CREATE TABLE shard_entity.counter (LIKE saved)');
like($one->error_of($start), qr/42P07/, 'another table of the name is nobody\'s');
$one->sql(q{ALTER TABLE shard_entity.counter RENAME TO counter_saved});
$one->sql("BEGIN; $start; INSERT INTO shard_entity.counter SELECT * FROM shard_entity.counter_saved; COMMIT");
$cluster->drain;
is($one->get($id), '11 from node1', 'nothing was in it');

# A move meanwhile waits for the table. Whoever wants to be rid of the type is.
drop_and_send();
my $shard = $id % 12;
like($one->error_of("SELECT shard_move('counter', $shard, 2)"), qr/state table/, 'such a shard does not move');
like(said(q{SELECT shard_drop_type('counter', force => true)}), qr/NOTICE: +deleted waiting messages of entity type "counter": 2$/m, 'force says what it deletes');
$one->sql($again);
$cluster->drain;
is($one->get($id), '0 from node1', 'which begins anew, too');

$cluster->logs_are_clean(@ShardNodes::link_troubles, qr/is suspended|state table|is in use|already exists/);
done_testing();
