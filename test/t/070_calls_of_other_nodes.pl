# Calls between nodes made by hand: who may call, what is taken once, what is refused and with which
# SQLSTATE; positions survive crashes and the rotation of the log. Then bytes from anywhere: nothing of
# it harms the server.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use ShardWire;
use Test::More;

my $node = ShardCluster->create('first', conf => q{
shard.inbox_max_size = '4MB'
log_statement = none
log_min_error_statement = panic
});
$node->start_recorder;
my $peer = ShardWire::Peer->new($node);
my ($cluster, $inc_no, $other) = @$peer{qw(cluster inc_no incarnation)};

sub head { return $peer->head(@_); }
sub call { return $peer->call(@_); }

sub answers { my ($out, $err) = call(@_); is($err, '', 'no error'); return $out; }

sub refused
{
	my ($state, $what, @sql) = @_;
	my ($out, $err) = call(@sql);
	is($err, $state, $what);
	return;
}

sub position { return $node->safe_psql('postgres', "SELECT inc, gen, seq FROM shard.streams_in() WHERE origin = 2 AND lane = $_[0]"); }
sub in_log { return $node->safe_psql('postgres', "SELECT count(*) FROM (SELECT kind FROM shard.inbox_0 UNION ALL SELECT kind FROM shard.inbox_1) s WHERE kind = $_[0]"); }

# --- who may call --------------------------------------------------------------------------------

my $hello = head() . greeting(0 .. 63);
my ($rc, $out, $err) = $node->psql('postgres', "CREATE ROLE stranger LOGIN");
($rc, $out, $err) = $node->psql('postgres', call_sql('hello', $hello), extra_params => [ '-U', 'stranger' ]);
like($err, qr/permission denied/, 'a role that is no peer may not call');
refused('42501 42501', 'a peer sees nothing else', "SELECT * FROM shard.position;\n", "SELECT * FROM seen;\n");
refused('25000', 'not within a transaction', "BEGIN;\n" . call_sql('hello', $hello));
refused('22004', 'not without bytes', "CALL shard_peer.hello(NULL, NULL);\n");
refused('08P01', 'not with others', call_sql('hello', "\x80"));
refused('SH004', 'another version', call_sql('hello', "\x04" . substr($hello, 1)));
refused('SH004', 'another cluster', call_sql('hello', head(cluster => $other) . greeting(0)));
refused('SH004', 'another node', call_sql('hello', head(to => 3) . greeting(0)));
refused('SH004', 'from itself', call_sql('hello', head(from => 1) . greeting(0)));
refused('SH003', 'an unknown node', call_sql('hello', head(from => 7) . greeting(0)));
refused('SH003', 'an incarnation to come', call_sql('hello', head(from_inc => 2) . greeting(0)));
refused('SH003', 'for an incarnation to come', call_sql('hello', head(to_inc => $inc_no + 1) . greeting(0)));
refused('SH001', 'an incarnation that is over', call_sql('hello', head(from_inc => 0) . greeting(0)));
refused('SH001', 'a copy', call_sql('hello', head(incarnation => $cluster) . greeting(0)));
is($node->safe_psql('postgres', 'SELECT count(*) FROM shard.streams_in()'), 0, 'nothing came of it');

# --- what is taken -------------------------------------------------------------------------------

my $type = $node->safe_psql('postgres', q{SELECT type_id FROM shard.type WHERE type_name = 'recorder'});
my $rseq = 1 << 40;
my %message = (type_id => $type, shard => 5, origin => 2, entity => 'e');

refused('SH002', 'rows without hello', call_sql('receive', head() . rows({ lane => 0, first_seq => 1 }, "\x15")));
answers(call_sql('hello', $hello));
is(position($_), '1|0|0', "hello on lane $_") for 0, 63;

# The lane of the shard is the one where its messages are not refused.
my ($lane) = grep { (call(call_sql('receive', head() . rows({ lane => $_, first_seq => 1 }, parcel(%message, lane => $_, rseq => $rseq)))))[1] eq '' } 0 .. 63;
is(position($lane), '1|0|1', 'a message is received');
is(in_log(1), 1, 'it is in the log');

sub batch { my ($first, $count) = @_; return rows({ lane => $lane, first_seq => $first }, map { parcel(%message, lane => $lane, rseq => $rseq + $_, what => $_) } $first .. $first + $count - 1); }

answers(call_sql('receive', head() . batch(1, 1)), call_sql('receive', head() . batch(1, 10)), call_sql('receive', head() . batch(3, 4)));
is(position($lane), '1|0|10', 'what is known is skipped');
is(in_log(1), 10, 'and not stored again');
refused('SH002', 'a gap', call_sql('receive', head() . batch(12, 1)));
refused('SH002', 'another generation', call_sql('receive', head() . rows({ lane => $lane, gen => 1, first_seq => 11 }, "\x15")));
answers(call_sql('receive', head() . rows({ lane => $lane, first_seq => 11 }, "\x15", "\x15")));
is(position($lane), '1|0|12', 'places without content count');
is(in_log(1), 10, 'and are not stored');

refused('08P01', "$_->[0]", call_sql('receive', head() . rows({ lane => $lane, first_seq => 13 }, parcel(%message, lane => $lane, rseq => $rseq, @{ $_->[1] }))))
  for [ 'no shard of the lane', [ shard => 1 << 20, lane => $lane ] ], [ 'a stamp of another node', [ origin => 3 ] ],
  [ 'an empty entity', [ entity => '' ] ], [ 'a long entity', [ entity => 'x' x 256 ] ], [ 'bytes that are no text', [ entity => "\xff\xfe" ] ],
  [ 'a text with a zero', [ entity => "a\0b" ] ], [ 'no jsonb', [ payload => 'abcdefgh' ] ], [ 'an empty payload', [ payload => '' ] ],
  [ 'jsonb that reaches beyond its end', [ payload => pack('VVV', 0x20000001, 0x80000004, 1000) . 'whatx' ] ],
  [ 'jsonb with a key that is a number', [ payload => pack('VVV', 0x20000001, 0x90000004, 1) . 'whatx' ] ],
  [ 'an unknown kind', [ kind => 99 ] ];
is(position($lane), '1|0|12', 'nothing came of these');

refused('0A000', 'a mandatory section that is not known', call_sql('receive', head() . section(40, 'x', 1)));
answers(call_sql('receive', head() . section(40, 'x', 0) . batch(13, 1)));
is(position($lane), '1|0|13', 'one that may be skipped is skipped');
refused('0A000', 'another channel', call_sql('hello', head() . section(5, stream(lane => 1, channel => 1), 1)));
refused('08P01', 'rows in hello', call_sql('hello', head() . batch(14, 1)));
refused('08P01', 'a section that is cut', call_sql('receive', substr(head() . batch(14, 3), 0, -3)));
answers(call_sql('hello', head() . section(5, stream(lane => $lane, gen => 1, first_seq => 20), 1)));
is(position($lane), '1|1|20', 'a new generation begins where it says');

# The other side says that the link is quarantined; it goes on when it does.
answers(call_sql('receive', head() . section(6, wire_int($lane) . wire_int(0) . wire_int(3), 0)));
is($node->safe_psql('postgres', "SELECT quarantine FROM shard.streams_in() WHERE lane = $lane"), 'receiver regressed', 'a quarantine is shown');
is($node->safe_psql('postgres', "SELECT quarantine FROM shard.position WHERE lane = $lane"), 'receiver regressed', 'and stored');
sub go_on { return call_sql('receive', head() . rows({ lane => $lane, gen => 1, first_seq => 21 }, "\x15")); }
answers(go_on());
is($node->safe_psql('postgres', "SELECT quarantine IS NULL FROM shard.streams_in() WHERE lane = $lane"), 't', 'and its end');
is(position($lane), '1|1|21', 'rows of the new generation');

# --- what stays ----------------------------------------------------------------------------------

my $before = $node->safe_psql('postgres', 'SELECT origin, lane, inc, gen, seq FROM shard.streams_in() ORDER BY 1, 2');
for my $how ('crash', 'stop')
{
	$how eq 'crash' ? $node->crash : $node->stop('fast');
	$node->recover;
	$node->wait_until("SELECT count(*) = 64 FROM shard.streams_in()", 'the positions');
	is($node->safe_psql('postgres', 'SELECT origin, lane, inc, gen, seq FROM shard.streams_in() ORDER BY 1, 2'), $before, "positions survive: $how");
}

# Enough messages to empty the segment that has them.
for (1 .. 20)
{
	$node->safe_psql('postgres', q{SELECT shard_tell('recorder', 'f' || i, jsonb_build_object('what', repeat(md5(i::text), 20))) FROM generate_series(1, 300) i});
	$node->drain;
	last if $node->safe_psql('postgres', 'SELECT count(*) FROM shard.position') > 1;
}
$node->wait_until('SELECT count(*) = 64 FROM shard.position', 'rotation to save the positions');
pass('rotation saves positions');
is($node->safe_psql('postgres', 'SELECT origin, lane, inc, gen, seq FROM shard.position ORDER BY 1, 2'), $before, 'as they are');
$node->crash;
$node->recover;
$node->wait_until("SELECT count(*) = 64 FROM shard.streams_in()", 'the positions');
is($node->safe_psql('postgres', 'SELECT origin, lane, inc, gen, seq FROM shard.streams_in() ORDER BY 1, 2'), $before, 'they are read from their table');
$peer->look;
answers(call_sql('hello', head() . greeting($lane)));
is(position($lane), '1|1|21', 'and go on');

# --- bytes from anywhere -------------------------------------------------------------------------

my $seed = $ENV{SHARD_SEED} // int(rand(1 << 31));
srand($seed);
note("seed $seed");
my $started = $node->safe_psql('postgres', 'SELECT pg_postmaster_start_time()');
my $front = length head();
my $seq = 22;
my @calls;
for (1 .. 3000)
{
	# a fact that this node has not learned of is waited for, so not as often
	my $fact = rand() < 0.1 ? section(2, join('', map { wire_int($_) } $type, 5, 100, 1, 0, 0, 0)) : '';
	my $good = head() . $fact . batch($seq, 3) . section(3, join('', map { wire_int($_) } $type, 5, $rseq));
	$good =~ s/^(.{$front})(.*)$/$1 . mutate($2)/es;
	push @calls, call_sql((qw(receive receive hello ask))[ rand 4 ], $good);
	push @calls, call_sql((qw(receive hello ask control who stats call_back))[ rand 7 ], random_bytes(int(rand(60))));
	push @calls, call_sql((qw(receive hello ask))[ rand 3 ], head() . random_bytes(int(rand(100))));
}
# The header, too: what it claims may be waited for, so not as often.
push @calls, call_sql('receive', mutate(head() . batch($seq, 1))) for 1 .. 10;
my ($answers, $errors) = call(@calls);
my %states;
$states{$_}++ for split / /, $errors;
$states{none} = () = $answers =~ /\\x/g;
note(join ', ', map { "$_: $states{$_}" } sort keys %states);
is(eval { my $sum = 0; $sum += $_ for values %states; $sum }, scalar @calls, 'each call is answered or refused');
is(join(' ', grep { !/^(?:none|SH00[1-4]|08P01|0A000|22\w{3}|54000)$/ } sort keys %states), '', 'as one would expect');
is($node->safe_psql('postgres', 'SELECT pg_postmaster_start_time()'), $started, 'the server lives');
is($node->safe_psql('postgres', q{SELECT count(*) > 0 FROM pg_stat_activity WHERE backend_type = 'shard region'}), 't', 'so do the workers');
answers(call_sql('hello', head() . greeting($lane)));

# --- a node that takes nothing -------------------------------------------------------------------

# Its caller shows elsewhere what it says.
$node->append_conf('postgresql.conf', 'shard.enabled = off');
$node->restart;
($rc, $out, $err) = $node->psql('postgres', call_sql('hello', head() . greeting($lane)), extra_params => [ '-U', 'peer' ]);
like($err, qr/ERROR:  node 1 takes nothing from other nodes at the moment/, 'an error names the node that it is about');
($rc, $out, $err) = $node->psql('postgres', call_sql('control', ''), extra_params => [ '-U', 'peer' ]);
like($err, qr/ERROR:  the control worker of node 1 does not run/, 'so does the refusal of control messages');
$node->log_is_clean;
done_testing();
