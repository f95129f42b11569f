package ShardWire;

=head1 NAME

ShardWire - calls between nodes as bytes, made by hand (extension/core/packet.h)

=head1 SYNOPSIS

  my $peer = ShardWire::Peer->new($node);       # node 2, as far as this node has learned
  my ($answers, $errors) = $peer->call(call_sql('hello', $peer->head . greeting(0 .. 63)));

=cut

use strict;
use warnings FATAL => 'all';

use Exporter qw(import);

our @EXPORT = qw(ask_call call_sql copy_call greeting header import_call lane_of mutate offer parcel random_bytes rows section store_sql stored stream turn_record
	wire_bytes wire_int wire_uint);

use constant { TELL => 1, STREAM => 1, FACTS => 2, DONE => 3, REFUSED => 4, GREET => 5, QUARANTINE => 6, RECORDS => 8 };

# Seven bits a byte, lowest first. Numbers above 2^63 come as hexadecimal text.
sub wire_uint
{
	my ($value) = @_;
	my $out = '';
	while ($value >= 0x80)
	{
		$out .= chr(($value & 0x7f) | 0x80);
		$value >>= 7;
	}
	return $out . chr($value);
}

sub wire_int
{
	my ($value) = @_;
	return wire_uint($value < 0 ? ~($value << 1) : $value << 1);
}

# Back again: of bytes that are one.
sub _number
{
	my ($bytes) = @_;
	my ($value, $shift) = (0, 0);
	$value |= ($_ & 0x7f) << 7 * $shift++ for unpack 'C*', $bytes;
	return $value;
}

sub wire_bytes { my ($bytes) = @_; return wire_uint(length $bytes) . $bytes; }

# A uuid as text, in its two halves.
sub _uuid
{
	my ($text) = @_;
	my $hex = $text =~ s/-//gr;
	return join '', map { wire_uint(unpack('Q>', pack('H16', $_))) } substr($hex, 0, 16), substr($hex, 16);
}

# Who calls whom: cluster, incarnation (uuids as text), from, from_inc, to, to_inc.
sub header
{
	my (%h) = @_;
	return
		wire_int($h{version} // 1)
	  . _uuid($h{cluster})
	  . wire_int($h{era} // 0)
	  . wire_int($h{from})
	  . wire_int($h{from_inc} // 1)
	  . _uuid($h{incarnation})
	  . wire_int($h{to})
	  . wire_int($h{to_inc} // 0)
	  . wire_int($h{known_n} // 0);
}

sub section
{
	my ($kind, $bytes, $mandatory) = @_;
	return wire_uint($kind) . wire_uint($mandatory ? 1 : 0) . wire_bytes($bytes);
}

# The front of a stream's rows, or of a greeting: lane, gen, first_seq, n_rows, writer.
sub stream
{
	my (%s) = @_;
	return
		wire_int($s{lane})
	  . wire_int($s{channel} // 0)
	  . wire_int($s{gen} // 0)
	  . wire_int($s{first_seq} // 0)
	  . wire_int($s{n_rows} // 0)
	  . _uuid($s{writer} // '00000000-0000-0000-0000-000000000001');
}

# Hello on these lanes.
sub greeting
{
	my (@lanes) = @_;
	return join '', map { section(GREET, stream(lane => $_), 1) } @lanes;
}

# {"what": "..."} as the server stores it.
sub _jsonb
{
	my ($what) = @_;
	return pack('VVV', 0x20000001, 0x80000004, length $what) . 'what' . $what;
}

# The lane of a shard, as shard_message_lane() has it.
sub _mix
{
	# products of two such numbers have up to 64 bits
	use integer;
	my ($h) = @_;
	$h ^= $h >> 16;
	$h = $h * 0x85ebca6b & 0xffffffff;
	$h ^= $h >> 13;
	$h = $h * 0xc2b2ae35 & 0xffffffff;
	return $h ^ $h >> 16;
}

sub lane_of { my ($type_id, $shard) = @_; return $type_id % 8 * 8 + _mix(_mix($type_id) ^ $shard) % 8; }

# What follows the header in a call of ask: type_id, shard, epoch, entity, what (or payload).
sub ask_call
{
	my (%a) = @_;
	return join('', map { wire_int($_) } @a{qw(type_id shard epoch)}, $a{lane} // lane_of(@a{qw(type_id shard)}), $a{after} // 0, $a{timeout} // 5_000_000)
	  . wire_bytes($a{entity})
	  . wire_bytes($a{payload} // _jsonb($a{what} // ''));
}

# In one of export: kind (1: prepare, 2: rows), type_id, shard, epoch, move, name of the type, its owner; part and after: from where.
sub copy_call
{
	my (%c) = @_;
	return join('', map { wire_int($_) } $c{kind} // 1, @c{qw(type_id shard epoch)}, $c{move} // 1)
	  . wire_bytes($c{name}) . wire_int($c{max_bytes} // 1 << 20) . wire_int($c{part} // 0) . wire_bytes($c{after} // '') . wire_bytes($c{owner});
}

# In one of import: kind, type_id, shard, epoch, move, node to copy from, secret.
sub import_call
{
	my (%c) = @_;
	return join('', map { wire_int($_) } $c{kind} // 2, @c{qw(type_id shard epoch)}, $c{move} // 1, $c{node}) . wire_uint($c{secret});
}

# A message: type_id, shard, lane, origin, rseq, entity, what (or payload); others have defaults.
sub parcel
{
	my (%p) = @_;
	return
		wire_uint($p{kind} // TELL)
	  . wire_int($p{type_id})
	  . wire_int($p{shard})
	  . wire_int($p{epoch} // 0)
	  . wire_int(1)
	  . wire_int($p{origin})
	  . wire_int($p{lane})
	  . wire_int($p{rseq})
	  . wire_bytes($p{entity})
	  . wire_int($p{src_type} // 0)
	  . wire_bytes($p{src_entity} // '')
	  . wire_int($p{mid_node} // $p{origin})
	  . wire_int($p{mid_seq} // $p{rseq})
	  . wire_bytes($p{payload} // _jsonb($p{what} // ''));
}

# Rows of a stream as a section.
sub rows
{
	my ($stream, @parcels) = @_;
	return section(STREAM, stream(%$stream, n_rows => scalar @parcels) . join('', @parcels), 1);
}

# CRC-32C, as PostgreSQL has it.
my @crc;
for my $byte (0 .. 255)
{
	my $value = $byte;
	$value = $value & 1 ? $value >> 1 ^ 0x82f63b78 : $value >> 1 for 1 .. 8;
	push @crc, $value;
}

sub _sum
{
	my ($bytes) = @_;
	my $crc = 0xffffffff;
	$crc = $crc >> 8 ^ $crc[ ($crc ^ $_) & 0xff ] for unpack 'C*', $bytes;
	return $crc ^ 0xffffffff;
}

# A turn record without inputs (extension/core/flow/record.h): type_id, shard, epoch, turn, before (one that was made so, or
# none), outputs, sections (bytes). Returns { bytes, turn, epoch, sum, oseq }.
sub turn_record
{
	my (%r) = @_;
	my $before = $r{before} // { turn => 0, epoch => 0, sum => 0, oseq => 0 };
	my $turn = $r{turn} // $before->{turn} + 1;
	my $outputs = $r{outputs} // 0;
	my $body = wire_uint(1) . join('', map { wire_int($_) } @r{qw(type_id shard)}, $r{epoch} // 0, $turn, $before->{epoch}) . wire_uint($before->{sum})
	  . wire_int($before->{oseq} + 1) . wire_int($outputs) . ($r{sections} // '');
	my $sum = _sum($body);
	return {
		bytes => pack('VV', length $body, $sum) . $body . pack('V', 0),
		turn => $turn, epoch => $r{epoch} // 0, sum => $sum, oseq => $before->{oseq} + $outputs
	};
}

# What a call of store says of a shard (extension/core/flow/replica.h): type_id, shard, epoch, released, records; or asks: a
# record, or an empty one for the beginning.
sub offer
{
	my (%o) = @_;
	my @records = @{ $o{records} // [] };
	my $out = join('', map { wire_int($_) } @o{qw(type_id shard)}, $o{epoch} // 0, $o{released} // 0, scalar @records) . wire_uint($o{asks} ? 1 : 0);
	$out .= wire_int($o{asks}{epoch} // 0) . wire_int($o{asks}{turn} // 0) . wire_uint($o{asks}{sum} // 0) if $o{asks};
	return $out . join '', map { $_->{bytes} } @records;
}

# A call of store that says this of shards.
sub store_sql { my ($head, @offers) = @_; return call_sql('store', $head . section(RECORDS, join('', @offers), 1)); }

# The answer to store, as psql shows it: "shard: verdict stored need", for each shard.
sub stored
{
	my ($answer) = @_;
	my @names = qw(none store replace stored need needs-copy refused ahead forked broken damaged);
	my ($hex) = $answer =~ /\\x([0-9a-f]+)/ or return $answer;
	my @numbers = map { _number($_) } pack('H*', $hex) =~ /([\x80-\xff]*[\x00-\x7f])/gs;
	my @lines;
	splice @numbers, 0, 11 + 3;    # header; kind, flags and length of the section
	while (my ($type_id, $shard, $epoch, $verdict, $stored, $need) = map { $_ >> 1 } splice @numbers, 0, 6)
	{
		push @lines, "$shard: $names[$verdict] $stored $need";
	}
	return join ', ', @lines;
}

sub call_sql
{
	my ($procedure, $bytes) = @_;
	return "CALL shard_peer.$procedure('\\x" . unpack('H*', $bytes) . "', NULL);\n";
}

sub random_bytes { my ($length) = @_; return join '', map { chr(int(rand(256))) } 1 .. $length; }

# Some bytes changed, lost or added, from a place on.
sub mutate
{
	my ($bytes, $from) = @_;
	$from //= 0;
	for (0 .. rand(3))
	{
		my $at = $from + int(rand(length($bytes) - $from));
		my $how = rand(4);
		if ($how < 2) { substr($bytes, $at, 1) = chr(int(rand(256))); }
		elsif ($how < 3) { substr($bytes, $at, int(rand(8))) = ''; }
		else { substr($bytes, $at, 0) = random_bytes(1 + int(rand(8))); }
		last if length($bytes) <= $from;
	}
	return $bytes;
}

# Node 2, which does not exist, though node 1 takes it for a member.
package ShardWire::Peer;

use strict;
use warnings FATAL => 'all';

sub new
{
	my ($class, $node) = @_;
	my $self = bless { node => $node }, $class;

	$node->wait_until('SELECT EXISTS (SELECT FROM shard.control WHERE store = 4 AND kind = 6)', 'the control plane');
	$node->safe_psql('postgres', q{
INSERT INTO shard.control SELECT store, kind, 2, b, n, deleted, value FROM shard.control WHERE store = 4 AND kind = 6 AND a = 1;
CREATE ROLE peer LOGIN;
SELECT shard_allow_peer('peer');
});
	$self->{incarnation} = $node->safe_psql('postgres', 'SELECT inc_uuid FROM shard.node');
	$self->look;
	return $self;
}

# Who node 1 is by now: after each start another incarnation.
sub look
{
	my ($self) = @_;
	$self->{node}->wait_until('SELECT ok FROM shard_health()', 'the node to be up');
	@$self{qw(cluster inc_no)} = split /\|/, $self->{node}->safe_psql('postgres', 'SELECT cluster_id, inc_no FROM shard.node');
	return;
}

# The header of a call of its own; options as for header.
sub head
{
	my ($self, @options) = @_;
	return ShardWire::header(cluster => $self->{cluster}, from => 2, incarnation => $self->{incarnation}, to => 1, @options);
}

# Runs calls; returns the answers, and the errors as SQLSTATEs.
sub call
{
	my ($self, @sql) = @_;
	my ($out, $err) = ('', '');
	$self->{node}->psql('postgres', join('', "\\set VERBOSITY verbose\n", @sql),
		stdout => \$out, stderr => \$err, on_error_stop => 0, extra_params => [ '-U', 'peer' ]);
	return ($out, join ' ', $err =~ /(?:ERROR|FATAL):  (\w{5}):/g);
}

# A member of a cluster (ShardNodes), whose part somebody takes who has got the role of its links.
package ShardWire::Member;

use strict;
use warnings FATAL => 'all';

use Digest::SHA qw(hmac_sha256);

# Speaks as node from to node to, having logged in as a role (default: that of the links).
sub new
{
	my ($class, $from, $to, $role) = @_;
	return bless { from => $from, to => $to, role => $role // $ShardNodes::peer_role }, $class;
}

# The ballot under which the last term began, and the newest version, as the node that is called has learned.
sub decided
{
	my ($self) = @_;
	my $record = pack 'H*', $self->{to}->sql(q{SELECT encode(value, 'hex') FROM shard.control WHERE store = 4 AND kind = 1});
	my ($count, @numbers) = map { ShardWire::_number($_) } $record =~ /([\x80-\xff]*[\x00-\x7f])/gs;
	return ($numbers[ 2 * $count - 2 ] >> 1, $self->{to}->sql('SELECT n FROM shard.control WHERE store = 4 AND kind = 0'));
}

# The code with which the coordinator, who is called, takes commands from the node at its address: as the coordinator makes it, by its secret.
sub code
{
	my ($self) = @_;
	my $identity = pack 'H*', $self->{to}->sql(q{SELECT encode(value, 'hex') FROM shard.control WHERE store = 1});
	my @numbers = map { ShardWire::_number($_) } $identity =~ /([\x80-\xff]*[\x00-\x7f])/gs;
	my ($high, $low, $era, $n_claimed) = @numbers[ 0 .. 2, 11 ];
	my ($ballot) = $self->decided;
	my $inc_no = $self->{from}->sql('SELECT inc_no FROM shard.node');
	my $at = 12 + 2 * $n_claimed;
	my $dsn = $self->{to}->sql('SELECT dsn FROM shard_members WHERE node = ' . $self->{from}->n);
	my $code = hmac_sha256(pack('Q<6', $high, $low, $era >> 1, $ballot, $self->{from}->n, $inc_no) . $dsn, pack('Q<2', @numbers[ $at, $at + 1 ]));
	return join '', map { sprintf '%016x', $_ } unpack 'Q<2', $code;
}

# The header of a call of its own, as of now; options as for header.
sub head
{
	my ($self, @options) = @_;
	my ($cluster, $inc_no, $incarnation) = split /\|/, $self->{from}->sql('SELECT cluster_id, inc_no, inc_uuid FROM shard.node');
	return ShardWire::header(cluster => $cluster, from => $self->{from}->n, from_inc => $inc_no,
		incarnation => $incarnation, to => $self->{to}->n, @options);
}

# Runs calls; returns the answers, and the errors as SQLSTATEs and whole.
sub call
{
	my ($self, @sql) = @_;
	my ($out, $err) = ('', '');
	$self->{to}->server->psql($self->{to}->db, join('', "\\set VERBOSITY verbose\n", @sql),
		stdout => \$out, stderr => \$err, on_error_stop => 0, extra_params => [ '-U', $self->{role} ]);
	return ($out, (join ' ', $err =~ /(?:ERROR|FATAL):  (\w{5}):/g), $err);
}

# Where a stream of its own stands there; hello if it is not known: options for stream, with the next row as first_seq.
sub at
{
	my ($self, $lane) = @_;
	my $known = 'SELECT gen, seq + 1 FROM shard.streams_in() WHERE origin = ' . $self->{from}->n . " AND lane = $lane";
	$self->call(ShardWire::call_sql('hello', $self->head . ShardWire::greeting($lane))) if $self->{to}->sql($known) eq '';
	my ($gen, $next) = split /\|/, $self->{to}->sql($known);
	return (lane => $lane, gen => $gen, first_seq => $next);
}

# Fields of a message of the control plane (extension/core/control.c), by their bits.
my @fields = qw(cluster era protocol_version from from_inc to to_inc b ballot point n commit_n token flag node epoch status type_id uuid uuid2
	text entries shards nodes nodes2);

sub _list { my ($one, @list) = @_; return ShardWire::wire_uint(scalar @list) . join '', map { $one->($_) } @list; }
sub _ints { return join '', map { ShardWire::wire_int($_) } @{ $_[0] }; }

# An entry of a map: kind, a, b, n, its value's bytes; no value: it was removed.
sub _entry
{
	my ($kind, $a, $b, $n, $value) = @{ $_[0] };
	return _ints([ $kind, $a, $b, $n ]) . (defined $value ? ShardWire::wire_uint(length($value) << 1) . $value : ShardWire::wire_uint(1));
}

sub _field
{
	my ($name, $value) = @_;
	return ShardWire::_uuid($value) if $name =~ /^(?:cluster|uuid2?)$/;
	return _ints($value) if $name eq 'point';
	return '' if $name eq 'flag';
	return ShardWire::wire_bytes($value) if $name eq 'text';
	return _list(\&_entry, @$value) if $name eq 'entries';
	return _list(\&_ints, @$value) if $name eq 'shards';
	return _list(sub { ShardWire::wire_int($_[0]) }, @$value) if $name =~ /^nodes2?$/;
	return ShardWire::wire_int($value);
}

# A message of the control plane, in the name of the node: its kind, and fields; a point is [ b, n ], a uuid a text, a shard
# [ type_id, shard, epoch, move ].
sub message
{
	my ($self, $kind, %f) = @_;
	@$self{qw(cluster inc_no)} = split /\|/, $self->{from}->sql('SELECT cluster_id, inc_no FROM shard.node') unless $f{cluster};
	%f = (cluster => $self->{cluster}, protocol_version => 1, from => $self->{from}->n, from_inc => $self->{inc_no}, to => $self->{to}->n, %f);
	my ($bits, $bytes) = (0, '');
	for my $i (0 .. $#fields)
	{
		my $value = $f{ $fields[$i] };
		next unless ref $value ? @$value : $value;
		$bits |= 1 << $i;
		$bytes .= _field($fields[$i], $value);
	}
	return ShardWire::wire_uint($kind) . ShardWire::wire_uint($bits) . $bytes;
}

# Says it.
sub control
{
	my ($self, @message) = @_;
	return $self->call(ShardWire::call_sql('control', ShardWire::wire_bytes($self->message(@message))));
}

1;
