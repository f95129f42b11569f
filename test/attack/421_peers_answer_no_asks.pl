# K07: who speaks as a member tells a node replies to asks that are open there. Without the key of an ask nothing of it is stored, and
# nobody is answered; bytes that are no replies are refused as a whole; and no reply is one that the asker could not read.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use ShardWire;
use Test::More;

use constant REPLIES => 7;

my $node = ShardCluster->create('first', conf => 'shard.region_workers = 1');
my $peer = ShardWire::Peer->new($node);
$node->safe_psql('postgres', q{
	CREATE FUNCTION clerk(state text, message jsonb) RETURNS text LANGUAGE plpgsql AS $$
	BEGIN
		RETURN encode(shard_defer_reply(), 'hex');
	END $$;
	SELECT shard_start('clerk', 'clerk', number_of_shards => 1)});
my $asker = $node->session;
$asker->send(q{SELECT shard_ask('clerk', 'a', '{}', '180 s');});
$node->wait_until('SELECT sum(open_asks) = 1 FROM shard_stat_workers', 'an open ask');
my $token = pack 'H*', $node->safe_psql('postgres', 'SELECT state FROM shard_entity.clerk');

# A token with other bytes in these places, and a good sum.
sub forged
{
	my ($token, %change) = @_;
	my $bytes = substr $token, 0, -4;
	substr($bytes, $_, 1) = chr(ord(substr($bytes, $_, 1)) ^ $change{$_}) for keys %change;
	my $sum = 2166136261;
	$sum = ($sum ^ $_) * 16777619 & 0xffffffff for unpack 'C*', $bytes;
	return $bytes . pack('V', $sum);
}

sub jsonb { my ($what) = @_; return pack('VVV', 0x20000001, 0x80000004, length $what) . 'what' . $what }

sub reply { my ($token, $payload) = @_; return wire_bytes($token) . wire_bytes($payload) }

# What a call with these replies ends with: no SQLSTATE, if it was taken.
sub error_of
{
	my (@replies) = @_;
	my (undef, $error) = $peer->call(call_sql('hello', $peer->head), call_sql('receive', $peer->head . section(REPLIES, join('', @replies), 1)));
	return $error;
}

my $rows = 'SELECT count(*) FROM ' . ShardCluster::inbox_rows('kind') . ' WHERE kind = 26';

is(error_of(map { reply(forged($token, -2 => $_), jsonb('forged')) } 1 .. 50), '', 'K07 replies with other keys are passed over');
is(error_of(reply(forged($token, 1 => 1), jsonb('elsewhere'))), '', 'K07 and those of another cluster');
is($node->safe_psql('postgres', $rows), 0, 'K07 nothing of them is stored');
for my $bad ([ 'no token', reply('x' x 50, jsonb('x')) ], [ 'a short token', reply('x', jsonb('x')) ], [ 'no jsonb', reply($token, 'x') ],
	[ 'nor is this', reply($token, "\xff" x 40) ], [ 'bytes behind', reply($token, jsonb('x')) . "\x01" ], [ 'too short', substr(reply($token, jsonb('x')), 0, -1) ])
{
	is(error_of($bad->[1]), '08P01', "K07 $bad->[0]: refused");
}
srand(421);
my %seen;
$seen{ error_of(mutate(reply(forged($token, -2 => 1), jsonb('forged')))) }++ for 1 .. 100;
is(join(' ', sort keys %seen), ' 08P01', 'K07 changed at random: refused, or passed over');
is($node->safe_psql('postgres', $rows), 0, 'K07 nothing is stored');
is($node->safe_psql('postgres', 'SELECT sum(open_asks) FROM shard_stat_workers'), 1, 'K07 the ask is open');

# With it the asker is answered, once.
is(error_of(reply($token, jsonb('right')), reply($token, jsonb('again'))), '', 'who has the key');
is($asker->receive, '{"what": "right"}', 'answers');

$node->log_is_clean(qr/node 2/, qr/peer/);
done_testing();
