# P01 - P06: what is in schema shard_peer for the node itself, what is given to copy a shard, bytes; asks and messages to entities whose
# handler the peer may not call, with a sender and an id of his own choice. Twice: by a role that is bound to node 2, and by that of all
# links. Each gets what doc/security.md says, and no more.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use ShardWire;
use Test::More;

use constant { PREPARE => 1, ROWS => 2 };

my $cluster = ShardNodes->create(3, databases => 1);
my ($first, $second, $third) = $cluster->nodes;
$first->server->safe_psql('postgres', 'CREATE ROLE alice; CREATE ROLE thief LOGIN');
$cluster->sql_everywhere(<<'SQL');
DO $$ BEGIN EXECUTE format('GRANT CREATE ON DATABASE %I TO alice', current_database()); END $$;
CREATE SCHEMA closed AUTHORIZATION alice;
SET ROLE alice;
CREATE TABLE closed.seen (what text, sender_type text, sender text, id text, who text);
CREATE FUNCTION closed.vault(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN
	INSERT INTO closed.seen SELECT message->>'what', s.type_name, s.entity_id,
		CASE WHEN message->>'what' NOT LIKE 'asked%' THEN shard_message_id() END, session_user FROM shard_sender() s;
	PERFORM shard_reply('"open"');
	RETURN message; END $$;
REVOKE EXECUTE ON FUNCTION closed.vault(jsonb, jsonb) FROM PUBLIC;
SELECT shard_start('vault', 'closed.vault(jsonb,jsonb)', 64);
SQL
$cluster->start_recorder;
$first->sql(q{SELECT shard_allow_peer('thief', 2)});

my ($type, $boss) = split /\n/, $first->sql(q{SELECT type_id FROM shard.type WHERE type_name IN ('vault', 'recorder') ORDER BY type_name = 'recorder'});
my $entity = $cluster->entity_at('vault', 1);
my $shard = $cluster->shard_of('vault', $entity);
my $lane = lane_of($type, $shard);
$first->wait_until("SELECT count(*) = 1 FROM shard.own WHERE type_id = $type AND shard = $shard AND state = 'active'", 'the shard to be active');
my $epoch = $first->sql("SELECT epoch FROM shard.own WHERE type_id = $type AND shard = $shard");
my %at = (type_id => $type, shard => $shard, epoch => $epoch, entity => $entity);

# Who may speak for node 2 alone, who may speak for all; as nodes 2 and 3.
my %bound = map { $_->n => ShardWire::Member->new($_, $first, 'thief') } $second, $third;
my %unbound = map { $_->n => ShardWire::Member->new($_, $first) } $second, $third;
my %itself = (thief => ShardWire::Member->new($first, $first, 'thief'), link => ShardWire::Member->new($first, $first));

sub refused
{
	my ($state, $what, $member, $procedure, $bytes) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($answer, $errors, $text) = $member->call(call_sql($procedure, $bytes));
	is($errors, $state, $what) or diag($text);
	note("$procedure: " . pack('H*', $1) =~ s/[^ -~]+/ /gr) if $answer =~ /\\x([0-9a-f]+)/;
	return $text;
}

sub taken
{
	my ($what, $member, $procedure, $bytes) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	return refused('', $what, $member, $procedure, $bytes);
}

sub seen { my ($what) = @_; return $first->sql("SELECT sender_type, sender, id, who FROM closed.seen WHERE what = '$what'"); }

for my $sql (qq{SELECT shard_ask('vault', '$entity', '{}')}, qq{SELECT shard_tell('vault', '$entity', '{}')}, q{SELECT closed.vault(NULL, '{}')})
{
	my (undef, $errors) = $bound{2}->call("$sql;\n");
	like($errors, qr/^42[57]0[14]$/, "by SQL the role may not: $sql");
}

# --- P01, P02: what a node asks itself ------------------------------------------------------------

my %copy = (type_id => $type, shard => $shard, epoch => $epoch + 1, node => 2);
for my $secret (0, 1, 1 << 32)
{
	my $question = wire_uint($secret) . wire_int($type) . wire_uint(0) . wire_int(0) . wire_bytes('[]') . wire_int(1) . wire_int($shard) . wire_int(1) . wire_int(2);
	for my $who (sort keys %itself)
	{
		my $member = $itself{$who};
		refused('42501', "P01 $who has the node import, as the node itself, with secret $secret", $member, 'import', $member->head . import_call(%copy, secret => $secret));
		refused('42501', "P02 $who asks allocation functions, with secret $secret", $member, 'strategy', $question);
	}
	refused('SH004', 'P01 as another node', $unbound{2}, 'import', $unbound{2}->head . import_call(%copy, secret => $secret));
}

# --- P03: states of a shard that runs here ---------------------------------------------------------

my %export = (%copy, name => 'vault', owner => 'alice');
for my $by ([ 'bound', $bound{2} ], [ 'unbound', $unbound{3} ])
{
	my ($how, $member) = @$by;
	refused('SH003', "P03 rows of a shard that is not on the move, $how", $member, 'export', $member->head . copy_call(%export, kind => ROWS));
	refused('SH003', "P03 behind the first row, $how", $member, 'export', $member->head . copy_call(%export, kind => ROWS, part => 1, after => 'a'));
	refused('42501', "P03 for another owner, $how", $member, 'export', $member->head . copy_call(%export, owner => 'thief'));
	refused('SH003', "P03 of a shard of another node, $how", $member, 'export', $member->head . copy_call(%export, shard => $cluster->shard_of('vault', $cluster->entity_at('vault', 3))));
}
refused('42501', 'P03 in the name of another node', $bound{3}, 'export', $bound{3}->head . copy_call(%export));

# --- P04: bytes -----------------------------------------------------------------------------------

my $seed = $ENV{SHARD_SEED} // int(rand(1 << 31));
srand($seed);
note("seed $seed");
my $started = $first->server->safe_psql('postgres', 'SELECT pg_postmaster_start_time()');
my @procedures = split /\n/, $first->sql(q{SELECT proname FROM pg_proc WHERE pronamespace = 'shard_peer'::regnamespace ORDER BY 1});
my @calls = map { my $procedure = $_; map { call_sql($procedure, random_bytes(int(rand(80)))) } 1 .. 100 } @procedures;
my ($out, $errors) = $bound{2}->call(@calls);
is(join(' ', grep { !/^(?:SH00[1-5]|08P01|0A000|42501|22\w{3})$/ } split / /, $errors), '', 'P04 random bytes are refused as such');
is($first->server->safe_psql('postgres', 'SELECT pg_postmaster_start_time()'), $started, 'P04 the server lives');

# --- P05: asks ------------------------------------------------------------------------------------

taken('P05 a peer asks whom it has not got the right to ask', $bound{2}, 'ask', $bound{2}->head . ask_call(%at, what => 'asked by 2'));
$first->wait_until(q{SELECT count(*) = 1 FROM closed.seen WHERE what = 'asked by 2'}, 'the ask');
like(seen('asked by 2'), qr/^\|\|[^|]*\|alice$/, 'P05 it is executed, as its owner, in nobody\'s name');
refused('42501', 'P05 not as another node', $bound{3}, 'ask', $bound{3}->head . ask_call(%at, what => 'asked by 3'));
refused('SH004', 'P05 nor as the node itself', $itself{thief}, 'ask', $itself{thief}->head . ask_call(%at, what => 'asked by 1'));
refused('SH004', 'P05 nor with the role of all', $itself{link}, 'ask', $itself{link}->head . ask_call(%at, what => 'asked by 1'));
is(seen('asked by 3') . seen('asked by 1'), '', 'P05 nothing came of these');
taken('P05 with the role of all also as another node', $unbound{3}, 'ask', $unbound{3}->head . ask_call(%at, what => 'asked as 3'));
$first->wait_until(q{SELECT count(*) = 1 FROM closed.seen WHERE what = 'asked as 3'}, 'the ask');
pass('P05 it is executed');

# --- P06: messages --------------------------------------------------------------------------------

$third->sql(qq{SELECT shard_tell('vault', '$entity', '{"what": "honest"}')});
$first->wait_until(q{SELECT count(*) = 1 FROM closed.seen WHERE what = 'honest'}, 'the message of node 3');
my ($honest) = seen('honest') =~ /\|(3-\d+)\|/ or die 'no id of a message of node 3';
my ($node, $number) = split /-/, $honest;
my $rseq = 1 << 40;

# As a call of that node: what is sent next on its stream, on the lane of the shard.
sub message
{
	my ($member, %m) = @_;
	my $origin = $member->{from}->n;
	return $member->head . rows({ $member->at($lane) }, parcel(%at, lane => $lane, origin => $origin, rseq => ++$rseq, %m));
}

taken('P06 a peer sends in the name of an entity, under the id of a message that was handled', $bound{2}, 'receive',
	message($bound{2}, what => 'forged', src_type => $boss, src_entity => 'boss', mid_node => $node, mid_seq => $number));
$first->wait_until(q{SELECT count(*) = 1 FROM closed.seen WHERE what = 'forged'}, 'the forged message');
is(seen('forged'), "recorder|boss|$honest|alice", 'P06 so shard_sender() and shard_message_id() say, and it runs as its owner');
taken('P06 or of a type that there is not', $bound{2}, 'receive', message($bound{2}, what => 'of nobody', src_type => 12345, src_entity => 'boss'));
$first->wait_until(q{SELECT count(*) = 1 FROM closed.seen WHERE what = 'of nobody'}, 'the message of nobody');
is($first->sql(q{SELECT count(*) FROM shard_dead_letters}), 0, 'P06 it is handled');
refused('08P01', 'P06 not as one that another node has stamped', $bound{2}, 'receive', message($bound{2}, what => 'stamped', origin => 3));
refused('42501', 'P06 nor as another node', $bound{3}, 'receive', message($bound{3}, what => 'sent by 3'));
refused('SH004', 'P06 nor as the node itself', $itself{thief}, 'receive', $itself{thief}->head . rows({ lane => $lane, first_seq => 1 }, parcel(%at, lane => $lane, origin => 1, rseq => $rseq)));
refused('SH004', 'P06 nor with the role of all', $itself{link}, 'receive', $itself{link}->head . rows({ lane => $lane, first_seq => 1 }, parcel(%at, lane => $lane, origin => 1, rseq => $rseq)));

# Somebody else's messages have their own order and ids: nothing of them is lost or done twice.
$third->sql(qq{SELECT shard_tell('vault', '$entity', jsonb_build_object('what', 'after ' || i)) FROM generate_series(1, 20) i});
$first->wait_until(q{SELECT count(*) = 20 FROM closed.seen WHERE what LIKE 'after%'}, 'the messages of node 3');
is($first->sql(q{SELECT count(DISTINCT what) FROM closed.seen WHERE what LIKE 'after%'}), 20, 'P06 messages of others are handled once');
is(seen('stamped') . seen('sent by 3'), '', 'P06 nothing came of what was refused');

# The role of all speaks for any node: the limit that a role for each node has not got.
taken('P06 with the role of all also as another node', $unbound{3}, 'receive', message($unbound{3}, what => 'sent as 3'));
$cluster->logs_are_clean(@ShardNodes::link_troubles);
done_testing;
