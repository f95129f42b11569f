# A gate at the synchronous standbys that lets nothing pass is named by shard_health(): that none is named, connected or keeps
# up, since when, what waits, and what to do. Also while nothing waits, if there is none; and no more when it is over.

use strict;
use warnings FATAL => 'all';

use PostgreSQL::Test::Cluster;
use ShardCluster;
use Test::More;

my $node = ShardCluster->create('first', conf => "max_wal_senders = 5");
$node->safe_psql('postgres', q{
	CREATE FUNCTION counter(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		PERFORM shard_reply(message);
		RETURN jsonb_build_object('n', coalesce((state->>'n')::int, 0) + 1);
	END $$;
	SELECT shard_start('counter', 'counter(jsonb,jsonb)');
});

sub setting
{
	my ($name, $value) = @_;
	$node->safe_psql('postgres', "ALTER SYSTEM SET $name = '$value'");
	$node->reload;
	return;
}

sub problems { return $node->safe_psql('postgres', q{SELECT array_to_string(problems, '; ') FROM shard_health()}) }

sub wait_health
{
	my ($pattern, $what) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $last = '';
	ok(eval { ShardCluster::wait_for_condition(sub { ($last = problems()) =~ $pattern }, $what) ; 1 }, $what) or diag($last);
	return;
}

sub ask_fails
{
	my ($status, undef, $error) = $node->psql('postgres', q{\set VERBOSITY verbose
		SELECT shard_ask('counter', 'a', '{}', '1 s')});
	return $error =~ /SH100/;
}

my $since = qr/20\d\d-\d\d-\d\d [^;]*/;
my $cure = qr/; bring a standby back; if this server was promoted itself, .* or empty it; if none was promoted, you may set shard\.gate to 'local': then what others were told may be lost/;
my $waits = qr/; what was committed since $since waits: asks time out, and messages for other nodes, .* and shard_drain\(\) wait$cure/;
my $none = qr/nothing waits for it yet, and what is committed next will$cure/;

# --- no standby is named -------------------------------------------------------------------------

is($node->safe_psql('postgres', q{SELECT shard_ask('counter', 'a', '{"a": 0}', '60 s')}), '{"a": 0}', 'an ask');
is(problems(), '', 'all is well with the gate here');
setting('shard.gate', 'standby');
ShardCluster::wait_for_condition(\&ask_fails, 'the gate to be closed');
wait_health(qr/^the gate is at the synchronous standbys, and synchronous_standby_names names none, since $since$waits/, 'no standby is named');
setting('shard.gate', 'local');
wait_health(qr/^$/, 'open, all is well');
is($node->safe_psql('postgres', q{SELECT shard_ask('counter', 'a', '{"a": 1}', '60 s')}), '{"a": 1}', 'an ask');

# --- one is named and not connected --------------------------------------------------------------

# Commits of sessions would wait for it, too.
setting('synchronous_commit', 'local');
setting('shard.gate', 'auto');
setting('synchronous_standby_names', 'second');
wait_health(qr/^the gate is at the synchronous standbys, and of those that synchronous_standby_names = 'second' asks for, 0 of 1 stream [^,;]*, since $since;/,
	'the one that is named is not connected');
ShardCluster::wait_for_condition(\&ask_fails, 'the gate to be closed');
wait_health(qr/, 0 of 1 stream [^,;]*, since $since$waits/, 'and what waits for it');

# --- there is one --------------------------------------------------------------------------------

$node->backup('base');
my $standby = ShardCluster->new('second');
$standby->init_from_backup($node, 'base', has_streaming => 1);
$standby->append_conf('postgresql.conf', "port = " . $standby->port . "\ncluster_name = 'second'");
$standby->append_conf('postgresql.conf', "primary_conninfo = '" . $node->connstr . " application_name=second'");
$standby->start;
wait_health(qr/^$/, 'all is well with the standby');
is($node->safe_psql('postgres', q{SELECT shard_ask('counter', 'a', '{"a": 2}', '60 s')}), '{"a": 2}', 'an ask');

# Connected, it stores nothing.
my $receiver = $standby->safe_psql('postgres', 'SELECT pid FROM pg_stat_wal_receiver');
kill 'STOP', $receiver or die "cannot stop process $receiver: $!";
ok(ask_fails(), 'an ask waits for the standby');
wait_health(qr/^the gate is at the synchronous standbys, and those that are connected, of synchronous_standby_names = 'second', do not keep up [^,;]*$waits/,
	'the one that is connected does not keep up');
kill 'CONT', $receiver or die "cannot continue process $receiver: $!";
wait_health(qr/^$/, 'all is well when it has caught up');

$standby->stop('fast');
wait_health(qr/, 0 of 1 stream [^,;]*, since $since; (?:$none|what was committed since)/, 'a standby that went away is missed');
setting('synchronous_standby_names', '');
wait_health(qr/^$/, 'none is asked for: all is well');
$node->log_is_clean;
done_testing();
