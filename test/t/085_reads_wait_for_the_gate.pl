# An answer that only reads waits for the gate as one that writes does: what it tells of may still be lost (G4,
# D20). It writes nothing for that.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use ShardMutant;
use Test::More;

my $node = ShardCluster->create('first', conf => "max_wal_senders = 2\nautovacuum = off\nbgwriter_lru_maxpages = 0");
$node->safe_psql('postgres', q{
	CREATE FUNCTION counter(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		IF message ? 'fail' THEN RAISE EXCEPTION 'it is %', state->>'n'; END IF;
		RETURN CASE WHEN message ? 'add' THEN jsonb_build_object('n', coalesce((state->>'n')::int, 0) + 1) ELSE state END;
	END $$;
	SELECT shard_start('counter', 'counter(jsonb,jsonb)');
});

sub ask { my ($message, $timeout) = @_; return qq{SELECT shard_ask('counter', 'a', '{"$message": 1}', '$timeout')} }

# What an ask with a short time comes to: its answer, or why there is none.
sub outcome
{
	my ($message) = @_;
	my ($status, $out, $error) = $node->psql('postgres', ask($message, '500 ms'));
	return $out if $status == 0;
	return $error =~ /outcome unknown|timed out/ ? 'no answer' : $error =~ /(it is \d+)/ ? $1 : $error;
}

sub set_gate
{
	my ($gate) = @_;
	$node->safe_psql('postgres', "ALTER SYSTEM SET shard.gate = '$gate'");
	$node->reload;
	$node->wait_until("SELECT setting = '$gate' FROM pg_settings WHERE name = 'shard.gate'", 'the gate');
	return;
}

my $sound = ShardMutant::prove({
	promise => 'nothing that could be lost is shown',
	broken_by => ['READS_UNGATED'],
	run => sub {
		my @seen;
		push @seen, $node->safe_psql('postgres', ask('add', '60 s'));
		push @seen, $node->safe_psql('postgres', ask('read', '60 s'));
		# There is no standby.
		set_gate('standby');
		push @seen, outcome('add'), outcome('read'), outcome('fail');
		# The last one comes with the worker's start.
		$node->stop('fast');
		$node->start;
		$node->wait_up;
		$node->wait_until('SELECT count(*) > 0 FROM shard_stat_workers', 'a worker');
		push @seen, outcome('read');
		set_gate('local');
		$node->wait_until(ask('read', '60 s') . "->>'n' = '2'", 'an answer');
		push @seen, $node->safe_psql('postgres', ask('read', '60 s')), outcome('fail');
		return (join('; ', @seen), '{"n": 1}; {"n": 1}; no answer; no answer; no answer; no answer; {"n": 2}; it is 2');
	}});
if ($sound)
{
	$node->drain;
	my $written;
	# Others write now and then: one quiet moment is enough.
	ShardCluster::wait_for_condition(sub {
		my $session = $node->session;
		my $before = $session->query('SELECT pg_current_wal_insert_lsn();');
		$session->query(ask('read', '60 s') . ';') for 1 .. 20;
		$written = $session->query("SELECT pg_current_wal_insert_lsn() - '$before';");
		return $written eq '0' }, 'asks that read to write nothing');
	is($written, 0, 'no WAL is written by asks that read');
	$node->log_is_clean(qr/it is \d/);
}
done_testing();
