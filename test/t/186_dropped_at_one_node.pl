# A type that is dropped at one member goes on at the others (D28, C17). What they send to its shards there waits:
# nothing is lost, given up, done twice or out of order, whether the shards move away, as they do by themselves,
# or the type is started there again, and whether or not that server crashes meanwhile.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(3);
my ($one, $two, $three) = $cluster->nodes;

# Three kinds: with states and in no order; in the order of numbers; and one that has never a state, which may
# be dropped without force.
$cluster->sql_everywhere(<<'SQL');
CREATE TABLE seen (pos bigserial, type text, entity text, what int);
CREATE FUNCTION note(state jsonb, message jsonb, type text) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    IF message ? 'noop' THEN RETURN state; END IF;
    PERFORM shard_reply(message);
    IF message ? 'what' THEN
        INSERT INTO seen (type, entity, what) SELECT note.type, entity_id, (message->>'what')::int FROM shard_self();
    END IF;
    RETURN CASE WHEN note.type <> 'bare' THEN jsonb_build_object('n', coalesce((state->>'n')::int, 0) + 1) END;
END $$;
CREATE FUNCTION plain(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN note(state, message, 'plain');
CREATE FUNCTION numbered(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN note(state, message, 'numbered');
CREATE FUNCTION bare(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN note(state, message, 'bare');
CREATE FUNCTION number_of(message jsonb) RETURNS int8 LANGUAGE sql RETURN (message->>'what')::int8;
SQL
my @types = qw(plain numbered bare);
my %settings = (numbered => q{, ordered_by => 'number_of', ordered_from => 1, ordered_timeout => '1 h'});

sub start_types
{
	my (@nodes) = @_;
	for my $node (@nodes)
	{
		$node->sql("SELECT shard_start('$_', '$_(jsonb,jsonb)', 12" . ($settings{$_} // '') . ')') for @types;
	}
	$cluster->wait_registered(@nodes);
	return;
}

sub drop_types
{
	my ($node) = @_;
	$node->sql(q{SET client_min_messages = warning; SELECT shard_drop_type('plain', true), shard_drop_type('numbered', true), shard_drop_type('bare')});
	return;
}

start_types($cluster->nodes);
my %entities = map { $_ => [ $cluster->entities_at($_, 2, 3) ] } @types;
$cluster->drain;

# The next numbers for all these entities: of the numbered type odd ones from node 1, even ones, the last first,
# from node 3; of the others only node 1 sends, since two senders have no order.
my $sent = 0;
sub tell_all
{
	my ($count) = @_;
	my ($from, $to) = ($sent + 1, $sent + $count);
	for my $type (@types)
	{
		my $list = join ', ', map { "'$_'" } @{ $entities{$type} };
		my $tell = "SELECT shard_tell('$type', e, jsonb_build_object('what', i)) FROM generate_series($from, $to) i, unnest(ARRAY[$list]) e";
		if ($type eq 'numbered')
		{
			$one->sql("$tell WHERE i % 2 = 1 ORDER BY i");
			$three->sql("$tell WHERE i % 2 = 0 ORDER BY i DESC");
		}
		else
		{
			$one->sql("$tell ORDER BY i");
		}
	}
	$sent = $to;
	return;
}

# All that the entities have handled, node 2 first, which had them first.
sub seen
{
	my ($type, $entity, @nodes) = @_;
	return join ' ', grep { $_ ne '' }
	  map { $_->sql("SELECT string_agg(what::text, ' ' ORDER BY pos) FROM seen WHERE (type, entity) = ('$type', '$entity')") } @nodes;
}

sub is_handled
{
	my ($what, @nodes) = @_;
	my $all = join ' ', 1 .. $sent;
	my @wrong;
	for my $type (@types)
	{
		for my $entity (@{ $entities{$type} })
		{
			ShardCluster::wait_for_condition(sub { split(/ /, seen($type, $entity, @nodes)) >= $sent }, "$entity of $type to handle all");
			my $seen = seen($type, $entity, @nodes);
			push @wrong, "$type $entity: $seen" if $seen ne $all;
		}
	}
	is(join("\n", @wrong), '', "$what: each message was handled, once, in order");
	return;
}

sub no_dead_letters
{
	my ($what) = @_;
	is(join(' ', grep { $_ ne '0' } map { $_->sql('SELECT count(*) FROM shard_dead_letters') } $cluster->nodes), '', "$what: no dead letters");
	return;
}

# What waits at node 2 of these types.
sub wait_waiting
{
	my ($count) = @_;
	$two->wait_value(q{SELECT count(*) FROM shard.held}, $count, "$count messages to wait");
	return;
}

# Nothing can be copied to the others while their tables are locked.
sub lock_tables
{
	my @sessions = map { $_->session } $one, $three;
	$_->query('BEGIN; LOCK TABLE ' . join(', ', map { "shard_entity.$_" } @types) . ' IN SHARE MODE;') for @sessions;
	return @sessions;
}

my $dropped = q{SELECT count(*) FROM shard_health(), unnest(problems) p WHERE p ~ 'entity type "(plain|numbered|bare)" was dropped here'};

tell_all(4);
is_handled('before', $two);

# --- started again -------------------------------------------------------------------------------

my @locks = lock_tables();
drop_types($two);
tell_all(6);
wait_waiting(6 * 9);
is($two->sql(q{SELECT string_agg(type_name, ' ') FROM shard_types}), '', 'the types are not there any more');
like($two->error_of(q{SELECT shard_tell('plain', 'e', '{}')}), qr/42704/, 'nobody there can send');
is($two->sql($dropped), 3, 'health says what was dropped');
like($two->sql(q{SELECT string_agg(p, ' ') FROM shard_health(), unnest(problems) p WHERE p ~ '"plain"'}),
	qr/with \d+ of its shards still here, and 18 messages that wait .*shard_start/, 'how much waits, and what to do');
ShardCluster::wait_for_condition(sub { PostgreSQL::Test::Utils::slurp_file($two->server->logfile)
	=~ /messages wait for entity type "plain", which was dropped on this node/ }, 'a line in the log');
like($one->error_of("SELECT shard_ask('plain', '$entities{plain}[0]', '{}', '20 s')"), qr/55000.*entity type "plain" was dropped at node 2\nHINT:  Start it there with shard_start\(\), or ask again if its shards move away/s,
	'an ask says why it is not answered, and what to do');
no_dead_letters('dropped');

$two->server->crash;
$two->server->recover;
$cluster->wait_reachable;
$cluster->wait_registered($two);
tell_all(2);
wait_waiting(8 * 9);
no_dead_letters('after a crash');
is($two->sql($dropped), 3, 'health says so after a crash, too');

start_types($two);
is_handled('started again', $two);
no_dead_letters('started again');
$_->query('COMMIT;') for @locks;
$two->wait_value('SELECT ok, problems FROM shard_health()', 't|{}', 'the node to be well');
like($one->sql("SELECT shard_ask('plain', '$entities{plain}[0]', '{\"a\": 1}', '30 s')"), qr/"a": 1/, 'asks are answered');
is($two->sql(q{SELECT string_agg(DISTINCT coalesce(here, 'NULL'), ' ') FROM shard_homes WHERE node = 2}), 'active', 'shard_homes says that its shards are there');

# They move as ever, without a restart, and back.
for my $type (@types)
{
	my $shard = $cluster->shard_of($type, $entities{$type}[0]);
	$cluster->move($type, $shard, 1);
	$cluster->move($type, $shard, 2);
}
$cluster->wait_settled;
tell_all(2);
is_handled('moved, and back', $two, $one, $three);

# --- not started again ---------------------------------------------------------------------------

@locks = lock_tables();
drop_types($two);
tell_all(5);
wait_waiting(5 * 9);
$two->server->crash;
$two->server->recover;
$cluster->wait_reachable;
tell_all(1);
wait_waiting(6 * 9);
$_->query('COMMIT;') for @locks;
$one->wait_value('SELECT count(*) FROM shard_homes WHERE node = 2', 0, 'the shards to move to the others by themselves');
is($one->sql(q{SELECT count(DISTINCT why) FROM shard_decisions WHERE what = 'move begun' AND from_node = 2 AND why ~ 'does not host the type any more'}),
	1, 'shard_decisions says why');
tell_all(3);
is_handled('moved by themselves', $two, $one, $three);
no_dead_letters('moved by themselves');
$two->wait_value('SELECT ok, problems FROM shard_health()', 't|{}', 'the node without the types to be well');
$two->wait_value('SELECT (SELECT count(*) FROM shard.held) + (SELECT count(*) FROM shard.own)', 0, 'nothing to be left there');

# A host again, it gets shards and handles what is sent to them.
start_types($two);
for my $type (@types)
{
	$cluster->move($type, $cluster->shard_of($type, $entities{$type}[0]), 2);
}
$cluster->wait_settled;
tell_all(2);
for my $type (@types)
{
	my $entity = $entities{$type}[0];
	$two->wait_until("SELECT EXISTS (SELECT FROM seen WHERE (type, entity, what) = ('$type', '$entity', $sent))", "$entity of $type to run at node 2");
}
pass('a host again, it handles messages');

# --- and leaves ----------------------------------------------------------------------------------

drop_types($two);
tell_all(3);
is($two->sql(q{SELECT shard_leave('120 s')}), 't', 'a node leaves that has dropped them');
$cluster->has_left(2);
my $last = join ' ', $sent - 2 .. $sent;
for my $type (@types)
{
	ShardCluster::wait_for_condition(sub { grep { seen($type, $entities{$type}[0], $_) =~ /(?:^| )$last$/ } $one, $three },
		"an entity of $type to go on");
}
pass('what was sent to its shards is handled where they are now');
no_dead_letters('at the end');
is(join(' ', grep { $_ ne '0' } map { $_->sql('SELECT sum(recounts) FROM shard_stat_workers') } $cluster->nodes), '', 'nothing was counted wrongly');
$cluster->logs_are_clean(@ShardNodes::link_troubles, qr/was dropped on this node/, qr/could not be copied|cannot be copied|is locked/);
done_testing();
