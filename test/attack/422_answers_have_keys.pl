# Who answers a request has its key. What everybody may see of a request, its id, tells nothing of the key (K08); with another key, or the
# token of another request made to fit, nothing is answered (K09); who may not send to who has asked cannot use a token that was stolen
# (K10). A message that looks like an answer is none for shard_response(), nor is a timer of the name of a request (K11); a member of the
# cluster without the key answers nothing, and contents that are none are dead letters (K12).

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use ShardWire;
use Test::More;

use constant { REQUEST => 27, RESPONSE => 28, SCHEDULE => 13 };

my $cluster = ShardNodes->create(2, conf => "shard.region_workers = 1\nshard.owners_may_share_workers = on\nshard.rebalance_interval = 0");
my ($one, $two) = my @nodes = $cluster->nodes;
for my $member (@nodes)
{
	$member->sql(q{
	CREATE TABLE heard (pos bigserial, entity text, what text, truly boolean);
	CREATE FUNCTION oracle(state text, message jsonb) RETURNS text LANGUAGE plpgsql AS $$
	BEGIN
		IF message ? 'noop' THEN RETURN NULL; END IF;
		RETURN encode(shard_defer_reply(), 'hex');
	END $$;
	CREATE FUNCTION seeker(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		IF message ? 'noop' THEN RETURN NULL; END IF;
		IF message ? 'response' THEN
			INSERT INTO heard (entity, what, truly) SELECT entity_id, coalesce(message->>'reply', message->>'response'), shard_response() = message->>'request' FROM shard_self();
			RETURN state;
		END IF;
		RETURN to_jsonb(shard_request('oracle', message->>'of', '{}', '1 h'));
	END $$;
	REVOKE EXECUTE ON FUNCTION seeker(jsonb, jsonb) FROM PUBLIC;
	SELECT shard_start('oracle', 'oracle', number_of_shards => 12), shard_start('seeker', 'seeker(jsonb,jsonb)', number_of_shards => 12)});
	$cluster->wait_registered($member);
}
my $seeker = $cluster->entity_at('seeker', 1);
my $oracle = $cluster->entity_at('oracle', 1);
$cluster->drain;
$one->sql('CREATE ROLE mallory');

# An open request of who asks: its id, and the token that answers it.
sub open_request
{
	my ($of) = @_;
	$one->sql("SELECT shard_tell('seeker', '$seeker', '{\"of\": \"$of\"}')");
	$cluster->drain;
	return ($one->sql("SELECT state #>> '{}' FROM shard_entity.seeker WHERE entity_id = '$seeker'"), pack('H*', $one->sql("SELECT state FROM shard_entity.oracle WHERE entity_id = '$of'")));
}

# A token with other bytes at these places, and a good sum.
sub forged
{
	my ($token, %change) = @_;
	my $bytes = substr $token, 0, -4;
	substr($bytes, $_, 1) = chr(ord(substr($bytes, $_, 1)) ^ $change{$_}) for keys %change;
	my $sum = 2166136261;
	$sum = ($sum ^ $_) * 16777619 & 0xffffffff for unpack 'C*', $bytes;
	return $bytes . pack('V', $sum);
}

sub reply { my ($token, $what) = @_; return sprintf q{SELECT shard_reply('\x%s', '"%s"')}, unpack('H*', $token), $what }
sub heard { $cluster->drain; return $one->sql("SELECT coalesce(string_agg(what || CASE WHEN truly THEN '' ELSE '?' END, ' ' ORDER BY pos), '') FROM heard WHERE entity = '$seeker'") }

my ($id, $token) = open_request($oracle);
like($id, qr/^[0-9a-f]{32}$/, 'an id');
unlike(unpack('H*', $token), qr/$id/, 'K08 the id is no part of the token');
$one->sql(reply(forged($token, -2 => $_), 'forged')) for 1 .. 50;
is(heard(), '', 'K09 other keys answer nothing');
like($one->error_of('SET ROLE mallory; ' . reply($token, 'stolen')), qr/permission denied to send to entity type "seeker"/, 'K10 a token that was stolen is refused to who may not send');
$one->sql(sprintf q{SELECT shard_tell('seeker', '%s', '{"response": "reply", "request": "%s", "reply": "told"}')}, $seeker, $id);
is(heard(), 'told?', 'K11 a message that looks like an answer is none for shard_response()');
for my $call ("shard_schedule('seeker', '$seeker', '{}', after => '1 s', name => 'request:$id')", "shard_cancel('seeker', '$seeker', 'request:$id')")
{
	like($one->error_of("SELECT $call"), qr/must not begin with "request:"/, 'K11 no timer has the name of a request');
}

# A member.
my %type = map { split /\|/ } split /\n/, $one->sql('SELECT type_name, type_id FROM shard.type');
my $shard = $cluster->shard_of('seeker', $seeker);
my $lane = lane_of($type{seeker}, $shard);
my $liar = ShardWire::Member->new($two, $one);
my $rseq = 1 << 40;

# An object of texts as the server stores it.
sub object
{
	my (%pair) = @_;
	my @keys = sort { length $a <=> length $b || $a cmp $b } keys %pair;
	my @texts = (@keys, @pair{@keys});
	return pack('V*', 0x20000000 | @keys, 0x80000000 | length $texts[0], map { length } @texts[ 1 .. $#texts ]) . join('', @texts);
}

# Sends these contents, each in a message of this kind, in the name of node 2; SQLSTATE of a call that is refused.
my $epoch = $one->sql("SELECT epoch FROM shard.own WHERE type_id = $type{seeker} AND shard = $shard");
sub tells
{
	my ($kind, @contents) = @_;
	my (undef, $errors) = $liar->call(call_sql('receive', $liar->head . rows({ $liar->at($lane) },
		map { parcel(type_id => $type{seeker}, shard => $shard, lane => $lane, epoch => $epoch, origin => 2, rseq => ++$rseq, entity => $seeker, kind => $kind, payload => $_) } @contents)));
	return $errors;
}

my $void = 'SELECT sum(void_replies) FROM shard_stat_workers';
my $before = $one->sql($void);
is(tells(RESPONSE, map { object(key => sprintf('%032x', $_), response => 'reply', reply => 'forged') } 1 .. 20), '', 'K12 answers with other keys are taken');
is(heard(), 'told?', 'K12 and answer nothing');
is($one->sql($void) - $before, 20, 'K12 but are counted');
is(tells(RESPONSE, object(what => 'x'), object(key => $id, reply => 'x'), object(key => 'x' x 32, reply => 'x'), object(key => '0' x 31, reply => 'x')), '', 'K12 so are such without a key');
is(heard(), 'told?', 'K12 which answer nothing, nor does the id');
is(tells(REQUEST, object(what => 'x'), object(key => '0' x 32), object(key => '0' x 32, message => '{}', shard => 'x')), '', 'K12 requests that say nothing');
is(tells(SCHEDULE, object(name => "request:$id", message => 'forged')), '', 'K12 a timer of the name of a request');
$cluster->drain;
is($one->sql('SELECT string_agg(sqlstate, $$ $$ ORDER BY id) FROM shard_dead_letters'), 'XX001 XX001 22004 XX001', 'K12 are dead letters');
isnt(tells(RESPONSE, 'x'), '', 'K12 what is no jsonb is refused');
is($one->sql(q{SELECT count(*) FROM shard_timers WHERE name LIKE 'request:%'}), 1, 'the request is open');

# With the key it is answered, once.
$one->sql(reply($token, 'right')) for 1 .. 2;
is(heard(), 'told? right', 'who has the token answers, once');
$cluster->logs_are_clean(qr/node 2/, qr/peer/, qr/became a dead letter/);
done_testing();
