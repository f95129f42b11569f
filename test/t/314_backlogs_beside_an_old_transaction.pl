# As long as a transaction of the database is older, nothing that has left a table goes from its index. What waits of an
# entity or a shard is read in pieces, and each begins where the one before has stopped: a backlog of n messages costs n
# reads and not n * n. So it is also if the worker's statements were planned when vacuum had just said that the tables have
# no page, so that reading them from end to end cost nothing.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use ShardMutant;
use Test::More;

my $messages = 10000;
my $node = ShardCluster->create('backlog', conf => "shard.region_workers = 1\nautovacuum = off");
sub sql { return $node->safe_psql('postgres', @_) }

sql(q{
CREATE FUNCTION count_up(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql
RETURN to_jsonb(coalesce(state::int, 0) + 1);
CREATE FUNCTION number_of(message jsonb) RETURNS int8 LANGUAGE sql IMMUTABLE RETURN message::int8;
SELECT shard_start('plain', 'count_up', number_of_shards => 1);
CREATE FUNCTION put_off(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
	PERFORM shard_set_receive_timeout('1 h', '0');
	RETURN to_jsonb(coalesce(state::int, 0) + 1);
END $$;
SELECT shard_start('puts_off', 'put_off', number_of_shards => 1);
SELECT shard_start('numbered', 'count_up', number_of_shards => 1, ordered_by => 'number_of', ordered_from => 1,
	ordered_window => 1000000);
CREATE FUNCTION fail(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN to_jsonb(1 / 0);
SELECT shard_start('fails', 'fail', number_of_shards => 1, max_attempts => 1, max_restarts => 100, restart_window => '10 ms');
SELECT shard_start('wide', 'count_up', number_of_shards => 256);
SELECT shard_start('late', 'count_up', number_of_shards => 8);
SELECT shard_start('parked', 'count_up', number_of_shards => 8);
SELECT shard_tell('plain', 'a', '0'), shard_tell('numbered', 'b', '1');
});
$node->drain;

# What is read of an index and its table, and how many rows have left that, as the worker has told by then.
sub read_of {
	return split /\|/, sql("SELECT idx_tup_read + seq_tup_read, n_tup_del FROM pg_stat_user_indexes i JOIN pg_stat_user_tables t USING (relid)
		WHERE i.schemaname = 'shard' AND i.indexrelname = '$_[0]'");
}

# Handles a backlog beside a transaction that sees the whole of it; go lets it go on.
sub reads_of {
	my ($index, $type, $entity, $go) = @_;
	my $old = $node->session;
	$old->query('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1;');
	my ($read, $gone) = read_of($index);
	$go->();
	# shard_drain() would read, too
	$node->wait_until("SELECT sum(state::int) >= $messages FROM shard_entity.$type WHERE entity_id LIKE '$entity%'", "$type: all to be handled");
	$node->wait_until("SELECT n_tup_del >= $gone + $messages FROM pg_stat_user_tables t JOIN pg_stat_user_indexes i USING (relid)
		WHERE i.schemaname = 'shard' AND i.indexrelname = '$index'", 'the worker to tell what it has done');
	my ($now) = read_of($index);
	note("$type: $messages messages were read " . ($now - $read) . ' times');
	$old->query('COMMIT;');
	$old->close;
	return ($now - $read <= 4 * $messages ? 'once' : 'again and again', 'once');
}

# Whoever plans from now on is told that these tables have no pages.
sub vacuum {
	ShardCluster::wait_for_condition(sub {
		sql('VACUUM shard.held, shard.parked'); # what a turn just sees yet stays
		return sql("SELECT sum(relpages) FROM pg_class WHERE oid IN ('shard.held'::regclass, 'shard.parked'::regclass)") == 0;
	}, 'the tables to be empty');
	return;
}

sub backlog {
	my ($type, $entity, $from, $to) = @_;
	sql("SELECT count(shard_tell('$type', '$entity', to_jsonb(n))) FROM generate_series($from, $to) n");
}

my $sound = ShardMutant::prove(
	{
		promise => 'a stash is read once, when its type goes on',
		broken_by => ['STASH_READ_AGAIN'],
		run => sub {
			vacuum();
			sql(q{SELECT shard_stop_type('plain')});
			backlog('plain', 'a', 1, $messages);
			$node->wait_until("SELECT count(*) = $messages FROM shard_inbox WHERE type_name = 'plain' AND place = 'stash'", 'messages to be stashed');
			return reads_of('held_pkey', 'plain', 'a', sub { sql(q{SELECT shard_start('plain', 'count_up', number_of_shards => 1)}) });
		},
	},
	{
		promise => 'messages that waited for a number are read once, when it has come',
		broken_by => ['STASH_READ_AGAIN'],
		run => sub {
			vacuum();
			backlog('numbered', 'b', 3, $messages + 2);
			$node->wait_until("SELECT count(*) = $messages FROM shard_inbox WHERE type_name = 'numbered'", 'messages to wait for a number');
			return reads_of('held_ordered', 'numbered', 'b', sub { backlog('numbered', 'b', 2, 2) });
		},
	},
	{
		promise => 'parked messages are read once, when their shard has a home',
		broken_by => [qw(STASH_READ_AGAIN PLAN_BY_SIZE)],
		run => sub {
			vacuum();
			my ($control) = $node->worker_pids('%control%'); # no home while it stands still
			$node->stop_idle($control);
			backlog('parked', "c$_", 1, $messages / 20) for 1 .. 20; # in turns, by shards
			$node->wait_until("SELECT count(*) = $messages FROM shard_inbox WHERE place = 'parked'", 'messages to be parked');
			return reads_of('parked_pkey', 'parked', 'c', sub { kill 'CONT', $control });
		},
	},
	{
		promise => 'a timer that was put off often is found no slower',
		broken_by => ['TIMER_READ_AGAIN'],
		run => sub {
			my $times = 4000;
			my $old = $node->session;
			$old->query('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1;');
			my ($read) = read_of('timer_pkey');
			backlog('puts_off', 'often', 1, $times);
			$node->wait_until("SELECT state::int >= $times FROM shard_entity.puts_off WHERE entity_id = 'often'", 'all to be handled');
			$node->wait_until("SELECT n_tup_upd >= $times - 1 FROM pg_stat_user_tables WHERE relid = 'shard.timer'::regclass", 'the worker to tell what it has done');
			my ($now) = read_of('timer_pkey');
			note("$times looks read " . ($now - $read) . ' rows of the timer');
			$old->query('COMMIT;');
			$old->close;
			return ($now - $read <= 10 * $times ? 'once' : 'again and again', 'once');
		},
	},
	{
		promise => 'a worker that starts reads what is parked once, and not for each of its shards',
		broken_by => ['PLAN_BY_SIZE'],
		run => sub {
			sql(q{SELECT count(shard_tell('wide', i::text, '0')) FROM generate_series(1, 500) i});
			$node->drain;
			my ($control) = $node->worker_pids('%control%');
			$node->stop_idle($control);
			backlog('late', "d$_", 1, $messages / 2) for 1 .. 2; # so few shards that any seems to be found at once
			$node->wait_until("SELECT count(*) = $messages FROM shard_inbox WHERE place = 'parked'", 'messages to be parked');
			sql('ANALYZE shard.parked, shard.own');
			$node->crash; # which leaves no statistics of reads
			$node->recover;
			$node->wait_until("SELECT sum(state::int) = $messages FROM shard_entity.late", 'all to be handled');
			$node->wait_until("SELECT n_tup_del >= $messages FROM pg_stat_user_tables WHERE relid = 'shard.parked'::regclass", 'the worker to tell what it has done');
			my ($now) = read_of('parked_pkey');
			note("$messages parked messages were read $now times");
			return ($now <= 30 * $messages ? 'once' : 'again and again', 'once');
		},
	},
	{
		promise => 'an entity that has failed often fails no slower',
		broken_by => ['HISTORY_READ_AGAIN'],
		run => sub {
			my $failures = 3000;
			my $old = $node->session;
			$old->query('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1;');
			my ($read, $gone) = read_of('history_pkey');
			backlog('fails', 'f', 1, $failures);
			$node->wait_until("SELECT count(*) = $failures FROM shard_dead_letters WHERE type_name = 'fails'", 'all to fail');
			$node->wait_until("SELECT n_tup_del >= $gone + $failures - 101 FROM pg_stat_user_tables WHERE relid = 'shard.history'::regclass", 'the worker to tell what it has done');
			my ($now) = read_of('history_pkey');
			note("$failures failures read " . ($now - $read) . ' rows of the history');
			is(sql(q{SELECT string_agg(number::text, ' ' ORDER BY number) FROM shard_history('fails', 'f')}), join(' ', $failures - 100 .. $failures), 'the last failures are kept');
			$old->query('COMMIT;');
			$old->close;
			# the one before; and a hundred, thrice: those of which max_restarts asks, those that stay, and what may lie before
			return ($now - $read <= 400 * $failures ? 'once' : 'again and again', 'once');
		},
	});
$node->log_is_clean if $sound;
done_testing();
