# P44: a node sends messages for types and shards that there are not: they are passed over, and the stream goes on. Of a type that was there they
# are dead letters, of which there are so many at most. One who may know more than this node comes again.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use ShardWire;
use Test::More;

use constant { NONE => 1_000_000, MOST => 50 };

my $cluster = ShardNodes->create(2);
my ($first, $second) = $cluster->nodes;
$cluster->start_recorder;
$cluster->sql_everywhere(<<'SQL');
CREATE FUNCTION quiet(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN message;
REVOKE EXECUTE ON FUNCTION quiet(jsonb, jsonb) FROM PUBLIC;
SELECT shard_start('gone', 'quiet(jsonb,jsonb)', 64);
SQL
$first->server->append_conf('postgresql.conf', 'shard.max_stray_dead_letters = ' . MOST);
$first->server->reload;
my %id = map { split /\|/ } split /\n/, $first->sql('SELECT type_name, type_id FROM shard.type');
$_->sql(q{SELECT shard_drop_type('gone')}) for $first, $second;
$_->wait_until("SELECT count(*) = 0 FROM shard.control WHERE store = 4 AND kind = 7 AND a = $id{gone} AND NOT deleted", 'the cluster to forget the type') for $first, $second;
$_->wait_until("SELECT count(*) = 0 FROM shard.type WHERE type_id = $id{gone}", 'the node to forget it') for $first, $second;

my $liar = ShardWire::Member->new($second, $first);
my $rseq = 1 << 40;
my $entity = $cluster->entity_at('recorder', 1);
my @sent;

sub dead { return $first->sql('SELECT count(*) FROM shard_dead_letters'); }
sub logged { return PostgreSQL::Test::Utils::slurp_file($first->server->logfile); }

# So many messages on one stream, for entities what1, what2, ...
sub message_call
{
	my ($type, $shard, $what, $count, @head) = @_;
	my $lane = lane_of($type, $shard);
	return $liar->head(@head) . rows({ $liar->at($lane) },
		map { parcel(type_id => $type, shard => $shard, lane => $lane, epoch => 1, origin => 2, rseq => ++$rseq, entity => "$what$_", what => $_) } 1 .. $count);
}

sub taken
{
	my ($what, @message) = @_;
	my ($answer, $errors, $text) = $liar->call(call_sql('receive', message_call(@message)));
	is($errors, '', "P44 messages $what: the call is answered") or diag($text);
	return;
}

sub position { my ($type, $shard) = @_; return $first->sql('SELECT seq FROM shard.streams_in() WHERE origin = 2 AND lane = ' . lane_of($type, $shard)); }

# --- what never was -------------------------------------------------------------------------------

$liar->at(lane_of(NONE, 3));
my $before = position(NONE, 3);
taken('of a type that is none', NONE, 3, 'none', 1000);
is(position(NONE, 3) - $before, 1000, 'P44 the stream does not stand still');
$first->wait_until(q{SELECT array_to_string(problems, '; ') ~ 'node 2, or a caller in its name, sends to shards that do not exist' FROM shard_health()}, 'health to name the node');
pass('P44 health names who sends them');
like(logged(), qr/node 2 sends to a shard that does not exist.*\n.*a message for shard 3 of type 1000000/, 'P44 so does the log');
taken('for a shard that the type has not got', $id{recorder}, 100_000, 'far', 100);

my $upto = $first->sql('SELECT n FROM shard.control WHERE store = 4 AND kind = 0');
for my $case ([ 'SH003', $upto + 1000, 'may know the type' ], [ '', 1 << 52, 'knows more than there can be' ])
{
	my ($state, $n, $why) = @$case;
	$before = position(NONE, 3);
	my (undef, $errors) = $liar->call(call_sql('receive', message_call(NONE, 3, 'later', 1, known_n => $n)));
	is($errors, $state, "P44 of one who $why");
	is(position(NONE, 3) - $before, $state eq '' ? 1 : 0, 'P44 as far the stream has come');
}
$cluster->drain;
is(dead(), 0, 'P44 nothing of them is stored');

# --- what is gone ---------------------------------------------------------------------------------

for my $round (1 .. 4)
{
	taken("of a type that is gone, $round", $id{gone}, 5, "gone$round-", 2 * MOST);
	$cluster->drain;
	cmp_ok(dead(), '>', MOST / 2, 'P44 they are dead letters');
	cmp_ok(dead(), '<=', MOST, 'P44 of all such types there are so many at most');
}
taken('for shards that it never had', $id{gone}, 1_000_000 + $_, "shard$_-", 1) for 1 .. 5;
$cluster->drain;
cmp_ok(dead(), '<=', MOST, 'P44 they count, too');
like(logged(), qr/WARNING:.*deleted the oldest dead letters of entity types that are not here/, 'P44 the log says that the oldest went');

# Streams of the node go on, and dead letters of a type that is here are its own affair.
push @sent, $_ and $second->sql(ShardCluster::tell_recorder($entity, $_, $_)) for 1 .. 3;
$cluster->wait_recorded($entity, 1, @sent);
pass('honest messages are handled');

# What there was no room for is in the log by its number.
$first->server->stop;
my $log = logged();
my ($kept, $counted) = (0, 0);
$kept += $1 while $log =~ /became dead letters: (\d+)/g;
$counted += $1 while $log =~ /: (\d+) more were not stored/g;
is($kept + $counted, 4 * 2 * MOST + 5, 'P44 the log has each of them once');
cmp_ok($counted, '>', 4 * MOST, 'P44 most of them were counted, and no more');
done_testing;
