# Calls by which shards are copied, made by hand: who may make them, what they get of a shard and when, in
# how many pieces. Then bytes from anywhere.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use ShardWire;
use Test::More;

use constant { PREPARE => 1, ROWS => 2, COLUMNS => 96, COUNTS => 97, CHUNK => 98, NEXT => 99 };

my $node = ShardCluster->create('first', conf => q{
log_statement = none
log_min_error_statement = panic
});
$node->start_recorder;
my $peer = ShardWire::Peer->new($node);
my $type = $node->safe_psql('postgres', q{SELECT type_id FROM shard.type WHERE type_name = 'recorder'});
my $shard = $node->safe_psql('postgres', q{SELECT shard_shard_id('recorder', 'e1')});
$node->safe_psql('postgres', ShardCluster::tell_recorder('e1', 1, 3));
$node->drain;

# --- calls and answers -----------------------------------------------------------------------------

sub position { my ($part, $after) = @_; return wire_int($part // 0) . wire_bytes($after // ''); }

my $owner = $node->safe_psql('postgres', 'SELECT current_user');

# Of shard_peer.export: kind, type_id, shard, epoch, move, name, max_bytes, position, the owner at the new home.
sub export
{
	my (%c) = (kind => ROWS, type_id => $type, shard => $shard, epoch => 1, move => 1, name => 'recorder', max_bytes => 1 << 20, position => position(), owner => $owner, @_);
	return ($c{head} // $peer->head) . join('', map { wire_int($_) } @c{qw(kind type_id shard epoch move)})
	  . wire_bytes($c{name}) . wire_int($c{max_bytes}) . $c{position} . wire_bytes($c{owner});
}

sub call_of_import
{
	my ($head, $secret) = @_;
	return $head . join('', map { wire_int($_) } ROWS, $type, $shard, 1, 1, 2) . wire_uint($secret);
}

sub refused
{
	my ($state, $what, $procedure, $bytes) = @_;
	my (undef, $errors) = $peer->call(call_sql($procedure, $bytes));
	is($errors, $state, $what);
	return;
}

sub take_uint
{
	my ($bytes) = @_;
	my ($value, $shift) = (0, 0);
	while (1)
	{
		my $byte = ord substr $$bytes, 0, 1, '';
		$value |= ($byte & 0x7f) << $shift;
		return $value if $byte < 0x80;
		$shift += 7;
	}
}

sub take_int { my $bits = take_uint($_[0]); return $bits & 1 ? -($bits >> 1) - 1 : $bits >> 1; }

sub take_bytes { my ($bytes) = @_; return substr $$bytes, 0, take_uint($bytes), ''; }

# The sections of an answer: kind => [ bytes ].
sub answer
{
	my ($out, $errors) = $peer->call(call_sql('export', export(@_)));
	is($errors, '', 'no error');
	my $bytes = pack 'H*', $out =~ /\\x([0-9a-f]+)/ ? $1 : '';
	take_int(\$bytes);                      # version
	take_uint(\$bytes) for 1 .. 2;          # cluster
	take_int(\$bytes) for 1 .. 3;
	take_uint(\$bytes) for 1 .. 2;          # incarnation
	take_int(\$bytes) for 1 .. 3;
	my %sections;
	while (length $bytes)
	{
		my $kind = take_uint(\$bytes);
		take_uint(\$bytes);
		push @{ $sections{$kind} }, take_bytes(\$bytes);
	}
	return \%sections;
}

# Part and number of rows of each chunk.
sub chunks
{
	my ($answer) = @_;
	return join ' ', map { my $bytes = $_; my $part = take_int(\$bytes); "$part:" . take_int(\$bytes) } @{ $answer->{ +CHUNK } // [] };
}

# --- who may -----------------------------------------------------------------------------------------

refused('SH004', 'a member cannot have another one import', 'import', call_of_import($peer->head, 1));
my $self = ShardWire::header(cluster => $peer->{cluster}, from => 1, from_inc => $peer->{inc_no}, incarnation => $peer->{incarnation}, to => 1);
refused('42501', 'nor can who says to be the node itself', 'import', call_of_import($self, 1));
refused('08P01', 'nor with half a call', 'import', $self . wire_int(1));
refused('SH004', 'a node does not export to itself', 'export', export(head => $self));
refused('SH001', 'nor to an incarnation that is over', 'export', export(head => $peer->head(from_inc => 0)));
refused('08P01', 'bytes behind the call', 'export', export() . 'x');
refused('42704', 'no such type', 'export', export(type_id => 77));
refused('SH004', 'a type of another name', 'export', export(name => 'recorded'));
refused('42501', 'a type of another owner', 'export', export(owner => 'mallory'));
refused('08P01', 'a type of nobody', 'export', export(owner => ''));

# --- what is given -----------------------------------------------------------------------------------

refused('SH003', 'no rows of a shard that runs', 'export', export());
refused('SH003', 'nothing of a shard that is not here', 'export', export(kind => PREPARE, shard => $shard ^ 1));
my $prepared = answer(kind => PREPARE);
is(join(' ', sort keys %$prepared), COLUMNS . ' ' . COUNTS, 'but what its table is like, and how many rows there are');
like($prepared->{ +COLUMNS }[0], qr/entity_id.*text.*state.*jsonb/s, 'columns have names and types');

$node->safe_psql('postgres', "INSERT INTO shard_entity.recorder (shard, entity_id, state) SELECT $shard, 'e1-' || i, to_jsonb(repeat('x', 100)) FROM generate_series(1, 30) i");
$node->safe_psql('postgres', "INSERT INTO shard.shard_input SELECT $type, $shard, 1, n, 3, 5 FROM generate_series(1, 500) n");
$node->safe_psql('postgres', "UPDATE shard.own SET state = 'sealed', move_id = 1 WHERE type_id = $type AND shard = $shard");
refused('SH003', 'sealed for a move that was not decided', 'export', export());
# epoch, nodes, wish, phase, move, target, loss, reason (extension/core/record.c)
my $moves = unpack 'H*', wire_int(0) . wire_uint(1) . join '', map { wire_int($_) } 1, 1, 1, 1, 2, 0, 0;
$node->safe_psql('postgres', "UPDATE shard.control SET value = '\\x$moves' WHERE store = 4 AND kind = 8 AND a = $type AND b = $shard");
refused('SH003', 'sealed for another move', 'export', export(move => 2));
refused('SH003', 'which ends another epoch', 'export', export(epoch => 2));
is(chunks(answer()), '1:31 3:200 3:200 3:100', 'all of a sealed shard');
my ($rows, $calls, $at) = (0, 0, position());
while (1)
{
	my $answer = answer(max_bytes => 1000, position => $at);
	$calls++;
	$rows += (split /:/)[1] for split / /, chunks($answer);
	$at = $answer->{ +NEXT }[0];
	last if $at eq position();
}
is($rows, 531, 'piece by piece, each row once');
cmp_ok($calls, '>=', 5, 'in several calls');
is(chunks(answer(position => position(1, 'zzz'))), '3:200 3:200 3:100', 'behind the last row comes the next part');
is(chunks(answer(max_bytes => 1)), '1:1', 'at least one row, however long');

# --- bytes from anywhere -----------------------------------------------------------------------------

my $seed = $ENV{SHARD_SEED} // int(rand(1 << 31));
srand($seed);
note("seed $seed");
my $started = $node->safe_psql('postgres', 'SELECT pg_postmaster_start_time()');
my $front = length $peer->head;
my @calls;
for (1 .. 1500)
{
	push @calls, call_sql('export', mutate(export(position => position(int(rand(5)), random_bytes(int(rand(12))))), $front));
	push @calls, call_sql('import', mutate(call_of_import($self, 1), length $self));
	push @calls, call_sql((qw(import export))[ rand 2 ], $peer->head . random_bytes(int(rand(60))));
}
my ($answers, $errors) = $peer->call(@calls);
my %states;
$states{$_}++ for split / /, $errors;
$states{none} = () = $answers =~ /\\x/g;
note(join ', ', map { "$_: $states{$_}" } sort keys %states);
is(eval { my $sum = 0; $sum += $_ for values %states; $sum }, scalar @calls, 'each call is answered or refused');
is(join(' ', grep { !/^(?:none|SH00[1-4]|08P01|42501|42704|22\w{3})$/ } sort keys %states), '', 'as one would expect');
is($node->safe_psql('postgres', 'SELECT pg_postmaster_start_time()'), $started, 'the server lives');
$node->log_is_clean;
done_testing();
