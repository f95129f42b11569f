# Who replies to an ask has its token, and the right to send to the type that was asked. A token says nothing that
# helps to make another one (K01); with a key of one's own nobody is answered (K02); the token of another type's ask, made one
# of one's own type, finds nothing (K03); nor does one that names another slot, generation or node (K04). Without the right to send a
# token that was stolen is of no use (K05). Replies that nobody waits for fill nothing but the log, as messages do (K06).

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use ShardWire;
use Test::More;

my $node = ShardCluster->create('first', conf => "shard.region_workers = 1\nshard.owners_may_share_workers = on");
$node->create_owners('alice', 'mallory');
for my $owner ('alice', 'mallory')
{
	$node->as($owner, qq{
	CREATE FUNCTION $owner.clerk(state text, message jsonb) RETURNS text LANGUAGE plpgsql AS \$\$
	BEGIN
		RETURN encode(shard_defer_reply(), 'hex');
	END \$\$;
	REVOKE EXECUTE ON FUNCTION $owner.clerk FROM PUBLIC;
	SELECT shard_start('clerk_of_$owner', '$owner.clerk', number_of_shards => 1)});
}
# The worker of all lanes ends when there is a second owner, and with it the asks that are open (E46).
$node->wait_for_value(q{SELECT string_agg(owners, ' ' ORDER BY owners) || ' ' || count(pid) FROM shard_stat_workers}, ' alice mallory 3', 'a worker of each owner, and one of nobody');
my ($alice, $mallory) = map { $node->safe_psql('postgres', "SELECT type_id FROM shard.type WHERE type_name = 'clerk_of_$_'") } 'alice', 'mallory';

# An ask that is open: who asks, and the token.
sub open_ask
{
	my ($owner, $others) = @_;
	my $session = $node->session;
	$session->send("SET ROLE $owner; SELECT shard_ask('clerk_of_$owner', 'a', '{}', '180 s');");
	$node->wait_until('SELECT sum(open_asks) = ' . (($others // 0) + 1) . ' FROM shard_stat_workers', 'an open ask');
	return ($session, $node->safe_psql('postgres', "SELECT state FROM shard_entity.clerk_of_$owner"));
}

# The fields of a token as numbers, by their names; and the token that they make, with a good sum.
my @fields = qw(kind cluster_high cluster_low type entity shard node slot generation key_high key_low);
my %signed = map { $_ => 1 } qw(kind type shard node slot generation);

sub fields
{
	my ($token) = @_;
	my $bytes = substr(pack('H*', $token), 0, -4);
	my %field;
	for my $name (@fields)
	{
		if ($name eq 'entity')
		{
			my $length = ord substr($bytes, 0, 1, '');
			$field{$name} = substr($bytes, 0, $length, '');
			next;
		}
		$bytes =~ s/^([\x80-\xff]*[\x00-\x7f])//s or die 'no number';
		$field{$name} = $1;
	}
	return %field;
}

sub token
{
	my (%field) = @_;
	my $bytes = join '', map { $_ eq 'entity' ? ShardWire::wire_bytes($field{entity}) : $field{$_} } @fields;
	my $sum = 2166136261;
	$sum = ($sum ^ $_) * 16777619 & 0xffffffff for unpack 'C*', $bytes;
	return unpack 'H*', $bytes . pack('V', $sum);
}

sub reply { my ($token, $with) = @_; return qq{SELECT shard_reply(decode('$token', 'hex'), '"$with"')} }

# How many replies have found nobody.
my $void = 0;

sub finds_nobody
{
	my ($role, $token, $why) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	$node->as($role, reply($token, $why));
	$node->wait_until('SELECT sum(void_replies) = ' . ++$void . ' FROM shard_stat_workers', "a reply in vain: $why");
	return pass($why);
}

my ($asker, $token) = open_ask('alice');
my %true = fields($token);
is(token(%true), $token, 'a token can be taken apart, and put together');

# Mallory has asks of her own, and knows how tokens are made.
my ($own, $own_token) = open_ask('mallory', 1);
my %own = fields($own_token);
isnt($own{"key_$_"}, $true{"key_$_"}, 'K01 another key') for qw(high low);
$own->close;
$node->safe_psql('postgres', q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query LIKE '%clerk_of_mallory%' AND pid <> pg_backend_pid()});
$node->wait_until('SELECT sum(open_asks) = 1 FROM shard_stat_workers', 'one open ask');

finds_nobody('alice', token(%true, key_high => $own{key_high}, key_low => $own{key_low}), 'K02 another key');
finds_nobody('alice', token(%true, key_low => ShardWire::wire_uint(0)), 'K02 no key');
finds_nobody('mallory', token(%true, type => ShardWire::wire_int($mallory)), 'K03 the ask of another type as one of the own type');
finds_nobody('alice', token(%true, slot => ShardWire::wire_int($_)), "K04 slot $_") for 0, 2147483647;
finds_nobody('alice', token(%true, generation => ShardWire::wire_int(12345)), 'K04 another generation');
finds_nobody('alice', token(%true, node => ShardWire::wire_int($_)), "K04 node $_, which is none") for 2, 2147483647;
finds_nobody('alice', token(%true, shard => ShardWire::wire_int(0x7fffffff)), 'K04 a shard that is none');
for my $case ([ kind => ShardWire::wire_int(9) ], [ slot => ShardWire::wire_int(-1) ], [ node => ShardWire::wire_int(0) ], [ generation => ShardWire::wire_int(4294967296) ],
	[ type => ShardWire::wire_int(0) ], [ entity => '' ], [ entity => "\xff\xfe" ], [ entity => 'x' x 2000 ], [ cluster_low => ShardWire::wire_uint(1) ])
{
	my ($status, undef, $error) = $node->psql('postgres', "\\set VERBOSITY verbose\n" . reply(token(%true, @$case), 'x'), extra_params => [ '-U', 'alice' ]);
	like($error, qr/22023: +invalid reply token.*DETAIL:.*HINT:/s, "K04 no token: $case->[0]");
}
for my $stolen ($token, token(%true, type => ShardWire::wire_int($alice + $mallory)))
{
	my ($status, undef, $error) = $node->psql('postgres', "\\set VERBOSITY verbose\n" . reply($stolen, 'x'), extra_params => [ '-U', 'mallory' ]);
	like($error, qr/42501: +permission denied to send|42704: +the entity type of the reply token/, 'K05 without the right to send');
}

# K06: many at once, and the right one behind them.
my $false = token(%true, key_low => $own{key_low});
$node->as('alice', "SELECT count(shard_reply(decode('$false', 'hex'), to_jsonb(repeat('x', 1000)))) FROM generate_series(1, 20000)");
$node->as('alice', reply($token, 'the right one'));
is($asker->receive, '"the right one"', 'K06 the ask is answered, by its token');
$node->drain;
is($node->safe_psql('postgres', 'SELECT sum(void_replies) FROM shard_stat_workers'), $void + 20000, 'K06 the others were for nobody');

$node->log_is_clean(qr/terminating .* due to administrator command/);
done_testing();
