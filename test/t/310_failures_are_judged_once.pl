# What becomes of a message that fails is judged as its type wants it, once for each attempt, wherever the server dies
# meanwhile: attempts, back-off, pauses of shards and the history of an entity are as committed. What passes by itself
# makes no dead letters, however long it takes.
#
# Built with the mutants DECIDER_IGNORED and PAUSE_OF_OTHERS it has to find that (test/mutants.sh).

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use ShardMutant;
use Test::More;

# One worker: a pause is known to the worker of its shard, which the others have to share.
my $node = ShardCluster->create('first', conf => 'shard.region_workers = 1');
sub sql { return $node->safe_psql('postgres', @_) }

# A message that says so fails with its SQLSTATE as long as there is a row in table closed.
sql(q{
CREATE TABLE closed (one int);
CREATE TABLE seen (pos bigserial, entity text, what text);
CREATE FUNCTION fragile(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	IF message ? 'fail' AND EXISTS (SELECT FROM closed) THEN
		RAISE EXCEPTION 'closed' USING ERRCODE = message->>'fail';
	END IF;
	INSERT INTO seen (entity, what) SELECT entity_id, message->>'what' FROM shard_self();
	RETURN jsonb_build_object('count', coalesce((state->>'count')::int, 0) + 1);
END $$;
CREATE FUNCTION last_digit(id text) RETURNS int IMMUTABLE LANGUAGE sql RETURN right(id, 1)::int;
CREATE FUNCTION decide(sqlstate text, message text, attempts int) RETURNS text LANGUAGE sql
	RETURN CASE sqlstate WHEN 'AA001' THEN 'escalate' WHEN '53100' THEN 'restart' END;
SELECT shard_start('fragile', 'fragile', number_of_shards => 10, shard_id_extractor => 'last_digit', decider => 'decide',
	supervision => 'resume', max_attempts => 1000, retry_backoff => '50 ms', max_retry_backoff => '50 ms',
	shard_failure_backoff => '1 h');
INSERT INTO closed VALUES (1);
});

sub seen { my ($entity) = @_; return sql("SELECT coalesce(string_agg(what, ' ' ORDER BY pos), '') FROM seen WHERE entity = '$entity'") }
sub tell_it { my ($entity, $what, $fail) = @_; return sql(qq{SELECT shard_tell('fragile', '$entity', jsonb_build_object('what', '$what'} . ($fail ? qq{, 'fail', '$fail'} : '') . '))') }
sub wait_seen { my ($entity, $what) = @_; return $node->wait_until("SELECT EXISTS (SELECT FROM seen WHERE (entity, what) = ('$entity', '$what'))", "$entity to handle $what") }
sub paused { return sql("SELECT coalesce(string_agg(shard::text, ' ' ORDER BY shard), '') FROM shard_region_stats WHERE paused_until IS NOT NULL") }
sub mend { sql("SELECT shard_alter('fragile', 'max_retry_backoff', '60 ms'), shard_alter('fragile', 'shard_failure_backoff', '60 ms')"); return }
sub harden { sql("INSERT INTO closed VALUES (1); SELECT shard_alter('fragile', 'shard_failure_backoff', '1 h')"); return }

my @scenarios = (
	{
		promise => 'a decider has its word, and one shard pauses: the other goes on, over a crash, too',
		broken_by => [ 'DECIDER_IGNORED', 'PAUSE_OF_OTHERS' ],
		run => sub {
			tell_it('a1', 1);
			tell_it('b2', 1);
			wait_seen($_, 1) for 'a1', 'b2';
			tell_it('a1', 2, 'AA001');
			$node->wait_until("SELECT EXISTS (SELECT FROM shard_history('fragile', 'a1'))", 'a failure to be judged');
			tell_it('x1', 3);
			tell_it('b2', 3);
			$node->wait_until("SELECT NOT EXISTS (SELECT FROM shard_inbox WHERE place = 'inbox')", 'all to be read');
			my $before = paused() . ': ' . join ', ', map { seen($_) } 'a1', 'x1', 'b2';
			unless ($ENV{SHARD_MUTANT})
			{
				$node->crash;
				$node->recover;
			}
			$node->wait_until("SELECT count(*) = 1 FROM shard_stat_workers WHERE pid IS NOT NULL", 'the worker');
			tell_it('c3', 1);
			my $after = paused() . ': ' . join ', ', map { seen($_) } 'a1', 'x1', 'b2';
			sql('DELETE FROM closed');
			mend();
			wait_seen('c3', 1);
			$node->drain;
			my $end = paused() . ': ' . join ', ', map { seen($_) } 'a1', 'x1', 'b2';
			harden();
			return ("$before; $after; $end", '1: 1, , 1 3; 1: 1, , 1 3; : 1 2, 3, 1 3');
		}
	});

if (ShardMutant::prove(@scenarios))
{
	# The server dies in the turn that has judged a failure, before its commit, and after some more attempts.
	sql("SELECT shard_alter('fragile', 'supervision', 'restart')");
	$node->set_fault('failure_judged', 'crash');
	tell_it('j4', 1, '40000');
	ShardCluster::wait_for_condition(sub { $node->fault_happened }, 'the server to die');
	$node->recover;
	$node->wait_until("SELECT attempts >= 3 FROM shard_inbox WHERE entity_id = 'j4'", 'further attempts');
	sql('CREATE TABLE behind_them ()');   # turns do not wait for the disk; this commit does
	$node->crash;
	$node->recover;
	my $attempts = sql("SELECT attempts FROM shard_inbox WHERE entity_id = 'j4'");
	cmp_ok($attempts, '>=', 3, 'attempts survive a crash');
	$node->wait_until("SELECT attempts > $attempts + 2 FROM shard_inbox WHERE entity_id = 'j4'", 'more attempts');
	is(sql("SELECT string_agg(DISTINCT (number = attempts)::text, ' ') FROM shard_history('fragile', 'j4')"), 'true',
		'E20: each attempt was judged and written once');
	sql('DELETE FROM closed');
	wait_seen('j4', 1);
	is(seen('j4'), 1, 'the message is handled once');

	# The disk is full: for handlers, and where states are written. Nothing is given up.
	sql(q{
	INSERT INTO closed VALUES (1);
	SELECT shard_alter('fragile', 'max_attempts', '1');
	CREATE FUNCTION full_disk() RETURNS trigger LANGUAGE plpgsql AS $$
	BEGIN
		IF NEW.entity_id LIKE 'w%' AND EXISTS (SELECT FROM closed) THEN
			RAISE EXCEPTION 'no space left' USING ERRCODE = 'disk_full';
		END IF;
		RETURN NEW;
	END $$;
	CREATE TRIGGER full_disk BEFORE INSERT OR UPDATE ON shard_entity.fragile FOR EACH ROW EXECUTE FUNCTION full_disk();
	SELECT count(shard_tell('fragile', 'd' || i, '{"what": "1", "fail": "53100"}')) FROM generate_series(1, 50) i;
	SELECT count(shard_tell('fragile', 'w' || i, '{"what": "1"}')) FROM generate_series(1, 50) i;
	});
	$node->wait_until("SELECT count(*) = 100 AND min(attempts) > 5 FROM shard_inbox WHERE place = 'stash' AND attempts > 0", 'all to fail again and again');
	is(sql('SELECT count(*) FROM shard_dead_letters'), 0, 'E21: a full disk makes no dead letters');
	is(sql("SELECT count(*) FROM shard_history('fragile', 'd1')"), 0, 'nor history');
	sql("UPDATE shard.held SET held_at = now() - interval '6 minutes' WHERE entity = 'd1'");
	is(sql("SELECT count(*) FROM shard_health(), unnest(problems) p WHERE p ~ 'first message of entity \"d1\" of type \"fragile\" waits since .*(53100|closed)'"), 1,
		'shard_health() names one that has waited for minutes');
	sql('DELETE FROM closed');
	$node->drain;
	is(sql("SELECT count(*), count(DISTINCT entity) FROM seen WHERE entity ~ '^[dw]'"), '100|100', 'then each is handled, once');
	$node->log_is_clean(qr/closed|no space left|pauses for/);
}
done_testing();
