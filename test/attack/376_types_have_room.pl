# P55: who has got the credentials of one member starts types of two thousand million shards, and very many of a million. The map does
# not take them, and others find room for theirs; who is honest and wants too much hears of the bound. P57: it gives orders without end,
# each of which had its line in the log.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use ShardWire;
use Test::More;

use constant { START_TYPE => 66, HOST_SHARDS => 70, HAND_OFF => 73, LEARNED => 4, LARGE => 900_000 };

my $cluster = ShardNodes->create(2);
my $coordinator = $cluster->coordinator;
my ($other) = $cluster->others($coordinator->n);
$cluster->start_recorder;
my $kind = $coordinator->sql("SELECT DISTINCT kind FROM shard.control WHERE store = ${\LEARNED} AND encode(value, 'escape') LIKE '%recorder%'");
my $shards = $coordinator->sql(q{SELECT number_of_shards FROM shard.type WHERE type_name = 'recorder'});

# The record of a type, as the map has that of the recorder, with another name and so many shards. It is read before there are
# records of others.
my $recorder = pack 'H*', $coordinator->sql("SELECT encode(value, 'hex') FROM shard.control WHERE store = ${\LEARNED} AND kind = $kind LIMIT 1");
my $front = ShardWire::wire_bytes('recorder') . ShardWire::wire_int($shards);
die 'no recorder in the record' if index($recorder, $front) != 0;
sub record
{
	my ($name, $number) = @_;
	return ShardWire::wire_bytes($name) . ShardWire::wire_int($number) . substr $recorder, length $front;
}

my $liar = ShardWire::Member->new($other, $coordinator);
for my $n (1 .. 10)
{
	$liar->control(START_TYPE, token => 1, entries => [ [ $kind, 0, 0, 0, record("endless$n", 2_000_000_000) ] ]);
	$liar->control(START_TYPE, token => 1, entries => [ [ $kind, 0, 0, 0, record("large$n", LARGE) ] ]);
}
my $taken = "SELECT count(DISTINCT a) FROM shard.control WHERE store = ${\LEARNED} AND kind = $kind AND NOT deleted AND encode(value, 'escape') LIKE ";
is($coordinator->sql("$taken '%endless%'"), 0, 'P55 no type of two thousand million shards is in the map');
cmp_ok($coordinator->sql("$taken '%large%'"), '<=', 1, 'P55 and of ten large ones that a member brings one at most');
my $start = sub { my ($name, $number) = @_; return "SELECT shard_start('$name', 'recorder(jsonb,jsonb)', number_of_shards => $number)" };
is($coordinator->eventually($start->('honest', 100_000)), '', 'P55 another member starts types');
like($coordinator->error_of($start->('wide', 1_000_001)), qr/22023: .*number_of_shards.*1000000/s, 'P55 a type of more than a million shards is refused');
like($coordinator->error_of($start->('wide', 900_001)), qr/53400: cannot start entity type "wide": too many entity types or shards\nDETAIL:  .*2000000 shards.*\nHINT:  Start .* fewer/s,
	'P55 who would have more than his part hears of the bound');
$other->sql($start->('honest', 100_000));
is($coordinator->eventually($start->('wide', 900_001)), '', 'P55 types that others have, too, are not his alone');

# --- P57: lines about a peer ------------------------------------------------------------------------

my $log = -s $coordinator->server->logfile;
my $begin = time;
for (1 .. 50)
{
	$liar->control($_, type_id => 1, shards => []) for HAND_OFF, HOST_SHARDS;
}
my $lines = () = PostgreSQL::Test::Utils::slurp_file($coordinator->server->logfile, $log) =~ /which only the coordinator does: it came into office just now/g;
# A line of a kind comes again after a minute.
my $minutes = int((time - $begin) / 60);
cmp_ok($lines, '>=', 2, 'P57 of a hundred orders that a member has no right to give two kinds are told');
cmp_ok($lines, '<=', 2 * (1 + $minutes), 'P57 once each');
done_testing;
