# A reply that comes later, from a session: sent when its transaction commits, once, to the ask that it is for and to no
# other one; durable before the asker believes it; and what becomes of an open ask when its worker or its server ends.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use ShardMutant;
use Test::More;

my $node = ShardCluster->create('first', conf => "max_wal_senders = 2\nshard.region_workers = 1");
$node->safe_psql('postgres', q{
	CREATE FUNCTION clerk(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	DECLARE
		token bytea := shard_defer_reply();
	BEGIN
		IF message ? 'with' THEN PERFORM shard_reply(token, message->'with'); END IF;
		RETURN jsonb_build_object('token', encode(token, 'hex'), 'n', coalesce((state->>'n')::int, 0) + 1);
	END $$;
	SELECT shard_start('clerk', 'clerk');
});

# The token of the newest question.
sub token { return $node->safe_psql('postgres', q{SELECT state->>'token' FROM shard_entity.clerk WHERE entity_id = 'a'}) }

sub reply { my ($token, $with) = @_; return qq{SELECT shard_reply(decode('$token', 'hex'), '$with')} }

sub ask { my ($timeout, $message) = @_; return sprintf q{SELECT shard_ask('clerk', 'a', '%s', '%s');}, $message // '{}', $timeout }

my $asking = q{query LIKE '%shard_ask%' AND state = 'active' AND pid <> pg_backend_pid()};

sub wait_open
{
	my ($n) = @_;
	return $node->wait_until("SELECT sum(open_asks) = $n FROM shard_stat_workers", "$n open asks");
}

# A question that waits for its answer: session and token.
sub open_ask
{
	my ($session, $others) = @_;
	$session->send(ask('180 s'));
	wait_open(($others // 0) + 1);
	return token();
}

# The same with another key, and its sum made good: the key stands before the sum, which has four bytes.
sub forged
{
	my ($token) = @_;
	my $bytes = substr(pack('H*', $token), 0, -4);
	substr($bytes, -2, 1) = chr(ord(substr($bytes, -2, 1)) ^ 1);
	my $sum = 2166136261;
	$sum = ($sum ^ $_) * 16777619 & 0xffffffff for unpack 'C*', $bytes;
	return unpack 'H*', $bytes . pack('V', $sum);
}

sub set_gate
{
	my ($gate) = @_;
	$node->safe_psql('postgres', "ALTER SYSTEM SET shard.gate = '$gate'");
	$node->reload;
	$node->wait_until("SELECT setting = '$gate' FROM pg_settings WHERE name = 'shard.gate'", 'the gate');
	return;
}

my @scenarios = (
	{
		promise => 'a reply is for one ask, and not for the next one of the same session',
		broken_by => ['REPLY_TO_NEXT'],
		run => sub {
			my $asker = $node->session;
			my $old = open_ask($asker);
			$node->safe_psql('postgres', "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE $asking");
			eval { $asker->receive };
			my @seen = $@ =~ /canceling.*outcome of the ask is unknown/s ? 'cancelled' : "not cancelled: $@";
			my $new = open_ask($asker);
			$node->safe_psql('postgres', reply($old, '"old"'));
			$node->drain;
			$node->safe_psql('postgres', reply($new, '"new"'));
			push @seen, $asker->receive;
			return (join('; ', @seen), 'cancelled; "new"');
		},
	},
	{
		promise => 'who does not know the key answers nobody',
		broken_by => ['REPLY_UNKEYED'],
		run => sub {
			my $asker = $node->session;
			my $token = open_ask($asker);
			$node->safe_psql('postgres', reply(forged($token), '"forged"'));
			$node->drain;
			$node->safe_psql('postgres', reply($token, '"right"'));
			return ($asker->receive, '"right"');
		},
	},
	{
		promise => 'a reply that could be lost is not believed',
		broken_by => ['REPLY_UNFLUSHED'],
		run => sub {
			my $asker = $node->session;
			# There is no standby.
			set_gate('standby');
			my $seen = eval { $asker->query(ask('2 s', '{"with": "early"}')) } // ($@ =~ /outcome unknown/ ? 'no answer' : $@);
			set_gate('local');
			return ("$seen, " . $asker->query(ask('180 s', '{"with": "in time"}')), 'no answer, "in time"');
		},
	});

if (ShardMutant::prove(@scenarios))
{
	my ($asker, $other) = ($node->session, $node->session);

	# Sent at COMMIT, and once.
	my $token = open_ask($asker);
	my $before = $node->safe_psql('postgres', 'SELECT sum(void_replies) FROM shard_stat_workers');
	$other->query('BEGIN; ' . reply($token, '"rolled back"') . '; ROLLBACK;');
	$other->query('BEGIN; ' . reply($token, '"committed"') . ';');
	$node->drain;
	wait_open(1);
	pass('before COMMIT a reply is not sent');
	$other->query('COMMIT;');
	is($asker->receive, '"committed"', 'and then it is');
	$other->query(reply($token, '"again"') . ';');
	$node->drain;
	is($node->safe_psql('postgres', 'SELECT sum(void_replies) FROM shard_stat_workers'), $before + 1,
		'one that was sent again finds nobody, and is counted');

	# Many, in any order.
	my @askers = map { $node->session } 1 .. 5;
	my @tokens = map { open_ask($askers[$_], $_) } 0 .. 4;
	$node->safe_psql('postgres', join ';', map { reply($tokens[$_], $_) } 3, 1, 4, 0, 2);
	is(join(' ', map { $_->receive } @askers), '0 1 2 3 4', 'each asker is answered what is for him');
	wait_open(0);

	# An asker that leaves.
	my $gone = $node->session;
	$token = open_ask($gone);
	$gone->close;
	$node->safe_psql('postgres', "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE $asking");
	wait_open(0);
	$node->safe_psql('postgres', reply($token, '1'));

	# The handler's worker ends: nobody is left in the dark.
	$token = open_ask($asker);
	$node->safe_psql('postgres', 'SELECT pg_terminate_backend(pid) FROM shard_stat_workers');
	like(eval { $asker->receive; 'answered' } // $@, qr/shard worker ended during an ask .*outcome unknown/s,
		'an asker is told that the worker has ended');
	$node->wait_until('SELECT ok FROM shard_health()', 'the next worker');
	$node->safe_psql('postgres', reply($token, '"nobody"'));
	$node->drain;

	# The server ends: the state with the token is there, and the token answers nobody.
	$token = open_ask($asker);
	my $n = $node->safe_psql('postgres', q{SELECT state->>'n' FROM shard_entity.clerk WHERE entity_id = 'a'});
	$node->safe_psql('postgres', 'CHECKPOINT');
	$node->crash;
	$node->recover;
	is(token(), $token, 'a token in a state survives a crash');
	my $next = $node->session;
	my $new = open_ask($next);
	$node->safe_psql('postgres', reply($token, '"of a former life"'));
	$node->drain;
	$node->safe_psql('postgres', reply($new, '"of this life"'));
	is($next->receive, '"of this life"', 'it answers no ask of the next life');
	is($node->safe_psql('postgres', q{SELECT state->>'n' FROM shard_entity.clerk WHERE entity_id = 'a'}), $n + 1, 'nothing was handled twice');

	# Of which cluster it is a node says before its control worker has begun: this lock, which keeps that one from it, is
	# there again after a crash.
	$token = open_ask($next);
	$node->safe_psql('postgres', q{BEGIN; LOCK TABLE shard.node IN SHARE MODE; PREPARE TRANSACTION 'no control worker'});
	$node->crash;
	$node->recover;
	is($node->safe_psql('postgres', reply($token, '"at once"') . q{; SELECT ok FROM shard_health()}), "\nf", 'a token is good from the first moment of a server');
	$node->safe_psql('postgres', q{ROLLBACK PREPARED 'no control worker'});
	$node->drain;

	$node->log_is_clean(qr/terminating .* due to administrator command/);
}
done_testing();
