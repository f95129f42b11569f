# What a home has taken in from another node it knows again after a crash, from the rows of the log, and
# when these are gone, from the marks that were saved before: an origin that sends everything once more,
# in a new generation of its stream, has nothing handled twice.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use ShardWire;
use Test::More;

my $node = ShardCluster->create('home', conf => "log_statement = none\nlog_min_error_statement = panic\n");
$node->start_recorder;
$node->safe_psql('postgres', ShardCluster::tell_recorder('e', 'local'));
$node->drain;

# Node 2, as far as node 1 has learned.
$node->safe_psql('postgres', q{
INSERT INTO shard.control SELECT store, kind, 2, b, n, deleted, value FROM shard.control WHERE store = 4 AND kind = 6 AND a = 1;
CREATE ROLE peer LOGIN;
SELECT shard_allow_peer('peer');
});
my $other = $node->safe_psql('postgres', 'SELECT inc_uuid FROM shard.node');
my ($type, $shard) = split /\|/, $node->safe_psql('postgres',
	q{SELECT type_id, shard_shard_id('recorder', 'e') FROM shard.type WHERE type_name = 'recorder'});
my $rseq = 1 << 40;
my $lane;

sub head
{
	my $cluster = $node->safe_psql('postgres', 'SELECT cluster_id FROM shard.node');
	return header(cluster => $cluster, from => 2, incarnation => $other, to => 1, to_inc => 0);
}

sub parcels
{
	my ($lane, $first, $last) = @_;
	return map { parcel(type_id => $type, shard => $shard, origin => 2, entity => 'e', lane => $lane, rseq => $rseq + $_, what => $_) } $first .. $last;
}

# Calls as the peer; the SQLSTATEs of errors.
sub call
{
	my ($out, $err) = ('', '');
	$node->psql('postgres', "\\set VERBOSITY verbose\n" . join('', @_),
		stdout => \$out, stderr => \$err, on_error_stop => 0, extra_params => [ '-U', 'peer' ]);
	return join ' ', $err =~ /(?:ERROR|FATAL):  (\w{5}):/g;
}

# The same messages from the first on, as a generation of the stream that begins behind seq 100 * gen.
sub send_all
{
	my ($gen, $last) = @_;
	my $base = 100 * $gen;
	$node->wait_until(q{SELECT ok FROM shard_health()}, 'the node to be up');
	is(call(ShardWire::call_sql('hello', head() . section(5, stream(lane => $lane, gen => $gen, first_seq => $base), 1)),
			ShardWire::call_sql('receive', head() . rows({ lane => $lane, gen => $gen, first_seq => $base + 1 }, parcels($lane, 1, $last)))),
		'', "generation $gen is received");
	$node->drain;
	return;
}

# The lane of the shard is the one where its messages are not refused.
is(call(ShardWire::call_sql('hello', head() . greeting(0 .. 63))), '', 'hello');
($lane) = grep { call(ShardWire::call_sql('receive', head() . rows({ lane => $_, first_seq => 1 }, parcels($_, 1, 1)))) eq '' } 0 .. 63;
ok(defined $lane, 'the lane is found');
$node->drain;

my @handled = ('local', 1);
sub is_handled
{
	my ($what, @more) = @_;
	push @handled, @more;
	is($node->safe_psql('postgres', ShardCluster::recorded('e')), "@handled = " . @handled, $what);
	return;
}

is_handled('a message of another node is handled');
send_all(1, 5);
is_handled('what comes a second time is not', 2 .. 5);

$node->crash;
$node->recover;
send_all(2, 8);
is_handled('nor after a crash: the log tells', 6 .. 8);

# All rows of before leave the log.
$node->append_conf('postgresql.conf', "shard.inbox_max_size = '1MB'");
$node->reload;
my $before = $node->safe_psql('postgres', 'SELECT max(seq) FROM (SELECT seq FROM shard.inbox_0 UNION ALL SELECT seq FROM shard.inbox_1) s');
$node->safe_psql('postgres', q{
DO $$
BEGIN
    FOR i IN 1 .. 400 LOOP
        LOOP
            BEGIN
                PERFORM shard_tell('recorder', 'filler', jsonb_build_object('what', (SELECT string_agg(md5(j::text || i), '') FROM generate_series(1, 200) j)));
                EXIT;
            EXCEPTION WHEN configuration_limit_exceeded THEN
                PERFORM pg_sleep(0.01);
            END;
        END LOOP;
        COMMIT;
    END LOOP;
END $$;}, timeout => $ShardCluster::patience);
$node->wait_until("SELECT min(oldest) > $before FROM shard_stat_inbox", 'the log to be rid of them');
is($node->safe_psql('postgres', "SELECT a, seq - $rseq FROM shard.shard_input WHERE type_id = $type AND shard = $shard"), '2|8', 'the mark is saved');

$node->crash;
$node->recover;
send_all(3, 10);
is_handled('nor when the rows are gone: the saved marks tell', 9 .. 10);
$node->log_is_clean;
done_testing();
