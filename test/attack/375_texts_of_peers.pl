# P48: databases of different encodings do not become one cluster; who has got the role of the links sends names, addresses, reasons and ids
# that are no text in the encoding of the database. None of it is stored as text, or shown.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use ShardWire;
use Test::More;

use constant { COMMAND => 96, EVACUATE => 17, JOIN => 33, LEARNED => 4, ROWS => 2, START_TYPE => 66 };

my $cluster = ShardNodes->create(3, databases => 1);
my $server = $cluster->node(1)->server;
my ($first, $second, $third) = $cluster->nodes;
my $coordinator = $cluster->coordinator;
my ($liar) = $cluster->others($coordinator->n);
$cluster->start_recorder;

# --- encodings -----------------------------------------------------------------------------------

for my $encoding (qw(LATIN1 SQL_ASCII EUC_JP))
{
	my $db = "other_\L$encoding";
	$server->safe_psql('postgres', "CREATE DATABASE $db ENCODING '$encoding' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0");
	$server->safe_psql($db, "CREATE EXTENSION shard; SELECT shard_allow_peer('$ShardNodes::peer_role')");
	my $dsn = $first->dsn =~ s/dbname=\S+/dbname=$db/r;
	my (undef, undef, $error) = $server->psql($db, "\\set VERBOSITY verbose\nSELECT shard_join('" . $first->dsn . "', '$dsn')");
	like($error, qr/55000: the seed's database has another encoding.*The seed.s encoding is UTF8, that of this database is $encoding/s, "a database of $encoding does not join one of UTF8, and hears both");
}
is($first->sql('SELECT count(*) FROM shard_members'), 3, 'nor has it a number');

# --- messages of the control plane -------------------------------------------------------------------

my $member = ShardWire::Member->new($liar, $coordinator);
my ($ballot) = $member->decided;
my $bad = "by \xff\xfe\xe9";

# A name of the same length, in a record that the map has.
sub record
{
	my ($of, $from, $to) = @_;
	my $record = pack 'H*', $coordinator->sql("SELECT encode(value, 'hex') FROM shard.control WHERE store = ${\LEARNED} AND value LIKE '%$from%' AND $of LIMIT 1");
	$record =~ s/\Q$from\E/$to/ or die 'it is not in the record';
	return $record;
}

my $kinds = join ' ', split /\n/, $coordinator->sql("SELECT DISTINCT kind FROM shard.control WHERE store = ${\LEARNED} AND value LIKE '%recorder%'");
my $types = "SELECT count(*) FROM shard.control WHERE store = ${\LEARNED} AND kind = $kinds";
my $before = $coordinator->sql($types);
$member->control(START_TYPE, token => 1, entries => [ [ $kinds, 0, 0, 0, record("kind = $kinds", 'recorder', "recor\xff\xfer") ] ]);
$member->control(COMMAND, b => $ballot, token => 1 << 60, uuid => $member->code, status => EVACUATE, node => $liar->n, text => $bad, flag => 1);
$coordinator->wait_until("SELECT EXISTS (SELECT FROM shard.decision WHERE why LIKE '%by %')", 'the decision');
is($coordinator->sql(q{SELECT count(convert_from(textsend(why), 'UTF8')) > 0 FROM shard.decision}), 't', 'P48 reasons that are stored are texts');
is($coordinator->sql(q{SELECT why LIKE '%by ???%' FROM shard.decision WHERE why LIKE '%by %' ORDER BY id DESC LIMIT 1}), 't', 'P48 with question marks for what is none');
like(PostgreSQL::Test::Utils::slurp_file($server->logfile), qr/node ${\$liar->n}, or a caller in its name, sends start type with names or addresses that are no texts/, 'P48 the log names who sends a type whose name is none');
is($coordinator->sql($types), $before, 'P48 a type whose name is no text is not taken');
my $kind_of_members = $coordinator->sql("SELECT DISTINCT kind FROM shard.control WHERE store = ${\LEARNED} AND value LIKE '%dbname=node1%'");
my ($answer) = $member->control(JOIN, from => 0, from_inc => 0, to => 0, uuid => '00000bad-0000-0000-0000-000000000001', uuid2 => '00000bad-0000-0000-0000-000000000002',
	entries => [ [ $kind_of_members, 0, 0, 0, record("kind = $kind_of_members", 'dbname=node2', "dbname=nod\xff\xfe") ] ]);
like(pack('H*', ($answer =~ /\\x([0-9a-f]+)/)[0] // ''), qr/names or addresses of the node are no texts/, 'P48 nor a joiner whose address is none, which hears it');
is($_->sql(q{SELECT count(convert_from(textsend(dsn || app_version), 'UTF8')) FROM shard_members}), 3, 'P48 members as node ' . $_->n . ' has them are texts') for $cluster->nodes;

# --- calls -----------------------------------------------------------------------------------------

my ($type) = $coordinator->sql(q{SELECT type_id FROM shard.type WHERE type_name = 'recorder'});
my $shard = $cluster->shard_of('recorder', $cluster->entity_at('recorder', $coordinator->n));
my %at = (type_id => $type, shard => $shard, epoch => 0);
is(($member->call(call_sql('export', $member->head . copy_call(%at, epoch => 1, kind => ROWS, node => $liar->n, name => "\xff\xfe", owner => 'postgres'))))[1],
	'22021', 'P48 the name of a type in a call is refused');
my $user = $coordinator->sql('SELECT current_user');
is(($member->call(call_sql('export', $member->head . copy_call(%at, epoch => 1, kind => ROWS, node => $liar->n, name => 'recorder', owner => "\xff\xfe"))))[1],
	'22021', 'P48 and that of an owner');
like(($member->call(call_sql('ask', $member->head . ask_call(%at, entity => "\xff", what => 'x'))))[1], qr/^(?:08P01|22021)$/, 'P48 and an id in an ask');
my $lane = lane_of($type, $shard);
my %stream = $member->at($lane);
like(($member->call(call_sql('receive', $member->head . rows(\%stream, parcel(%at, lane => $lane, origin => $liar->n, rseq => 1 << 40, entity => "\xff", what => 'x')))))[1],
	qr/^(?:08P01|22021)$/, 'P48 and one in a stream');
like(($member->call(call_sql('receive', $member->head . rows(\%stream, parcel(%at, lane => $lane, origin => $liar->n, rseq => 1 << 40, entity => 'a', what => "\xff\xfe")))))[1],
	qr/^(?:08P01|22021)$/, 'P48 and a message');
is($coordinator->sql(q{SELECT count(*) FROM shard_dead_letters}), 0, 'P48 nothing of them is stored');
my $entity = $cluster->entity_at('recorder', $first->n);
$second->sql(ShardCluster::tell_recorder($entity, 'é'));
$cluster->wait_recorded($entity, $first->n, 'é');
pass('P48 and what is text comes as it was');
done_testing;
