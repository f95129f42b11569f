# Messages that wait for lower numbers come with their shard, and go on as soon as they can: also if a message of
# their entity comes up in the very turn in which the shard becomes active, at the new home (M6) or again at the old
# one (D25). The worker's memory of what waits is never wrong, and nothing of it is given up by mistake.

use strict;
use warnings FATAL => 'all';

use ShardMutant;
use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(2, databases => 1, conf => 'shard.region_workers = 1');
my ($one, $two) = $cluster->nodes;

$cluster->sql_everywhere(q{
CREATE TABLE seen (pos bigserial, entity text, what text);
CREATE FUNCTION game(state int8[], message jsonb) RETURNS int8[] LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO seen (entity, what) SELECT entity_id, message->>'n' FROM shard_self();
    IF message ? 'stop' THEN PERFORM shard_stop(); RETURN NULL; END IF;
    RETURN state || (message->>'n')::int8;
END $$;
CREATE FUNCTION number_of(message jsonb) RETURNS int8 LANGUAGE sql RETURN (message->>'n')::int8;
});

sub start_type
{
	my ($type, $settings) = @_;
	$_->sql("SELECT shard_start('$type', 'game', ordered_by => 'number_of', ordered_from => 1,
		allocation_strategy => 'locality', number_of_shards => 64, $settings)") for $cluster->nodes;
	return;
}
start_type('patient', q{ordered_timeout => '1 h'});
start_type('hasty', q{ordered_timeout => '1 h'});
start_type('fragile', q{ordered_timeout => '1 h', handoff_timeout => '2 s'});
start_type('narrow', q{ordered_timeout => '1 h', ordered_window => 5});
$cluster->wait_registered;

# One transaction; a number with an "s" behind it ends the entity.
sub tell_numbers
{
	my ($type, $game, @numbers) = @_;
	return join '', "BEGIN;\n", (map {
			my ($n, $stop) = /^(\d+)(s?)$/;
			"SELECT shard_tell('$type', '$game', '{\"n\": $n" . ($stop ? ', "stop": 1' : '') . "}');\n"
		} @numbers), "COMMIT;\n";
}

sub seen
{
	my ($game) = @_;
	return "SELECT string_agg(what, ' ' ORDER BY pos) FROM seen WHERE entity = '$game'";
}

sub position
{
	my ($game) = @_;
	return "SELECT concat_ws(' ', began, expected, skipped, late, waiting) FROM shard_ordered WHERE entity_id = '$game'";
}

# Messages of an entity that are neither handled nor waiting for their number; those are the last to go.
my $busy = q{SELECT count(*) FROM shard_inbox WHERE place <> 'ordered'};

# What an entity has handled at either home, and where it stands now.
sub summary
{
	my ($game, $node) = @_;
	$node->wait_value($busy, 0, 'all messages to come up');
	my @seen = map { split / /, $_->sql(seen($game)) // '' } $one, $two;
	my @wrong = grep { $_ ne '0' } map { $_->sql('SELECT sum(recounts) FROM shard_stat_workers') } $one, $two;
	return "@seen; " . $node->sql(position($game)) . (@wrong ? '; counted wrongly' : '');
}

sub wait_seen
{
	my ($node, $game, $what) = @_;
	$node->wait_until("SELECT EXISTS (SELECT FROM seen WHERE (entity, what) = ('$game', '$what'))", "$game to handle $what");
	return;
}

# A game at node 1, which has handled 1, and of which 5 to 8 wait there. It moves to node 2, whose worker stands still
# until its log has the home and after it these messages: one turn meets all of it.
sub arrive
{
	my ($type, $game, @numbers) = @_;
	$one->sql(tell_numbers($type, $game, 1));
	wait_seen($one, $game, 1);
	$one->sql(tell_numbers($type, $game, 5 .. 8));
	$one->wait_value(position($game), '1 2 0 0 4', 'messages to wait');
	my $shard = $cluster->shard_of($type, $game);
	$cluster->wait_home($type, $shard, 1, $two);
	my @workers = $two->workers('%region%');
	$two->server->stop_idle(@workers);
	$cluster->move($type, $shard, 2, $one);
	$cluster->wait_home($type, $shard, 2, $two);
	$two->sql(tell_numbers($type, $game, @numbers)) if @numbers;
	kill 'CONT', @workers;
	return;
}

my @scenarios = (
	{
		promise => 'what waits goes on when it is expected, also if the turn of its arrival handles a message',
		broken_by => ['QUEUE_FORGOTTEN'],
		run => sub {
			arrive('patient', 'silent', 2);
			wait_seen($two, 'silent', 2);
			$two->sql(tell_numbers('patient', 'silent', 3, 4, 9));
			wait_seen($two, 'silent', 9);
			return (summary('silent', $two), '1 2 3 4 5 6 7 8 9; 1 10 0 0 0');
		},
	},
	{
		promise => 'a gap that is none is not given up',
		broken_by => ['QUEUE_FORGOTTEN'],
		run => sub {
			arrive('hasty', 'skip', 10);
			$two->sql(tell_numbers('hasty', 'skip', 2 .. 4, 9));
			$_->sql(q{SELECT shard_alter('hasty', 'ordered_timeout', '1 ms')}) for $cluster->nodes;
			$two->sql(tell_numbers('hasty', 'skip', 11));
			wait_seen($two, 'skip', 11);
			return (summary('skip', $two), '1 2 3 4 5 6 7 8 9 10 11; 1 12 0 0 0');
		},
	},
	{
		promise => 'a number that comes twice is handled once, and in order',
		broken_by => [],
		run => sub {
			arrive('narrow', 'twice', 10);
			$two->sql(tell_numbers('narrow', 'twice', 2 .. 4, 11 .. 15, 10, 16, 9));
			$two->sql(tell_numbers('narrow', 'twice', 17 .. 40));
			wait_seen($two, 'twice', 40);
			return (summary('twice', $two) =~ s/;.*//r, join ' ', 1 .. 8, 10 .. 40);
		},
	},
	{
		promise => 'a stop ends the order only when nothing waits: no old number runs into the new life',
		broken_by => [],
		run => sub {
			arrive('patient', 'stop', 2);
			$two->sql(tell_numbers('patient', 'stop', 3, '4s', 9, '10s'));
			wait_seen($two, 'stop', 10);
			$two->wait_value(position('stop'), '', 'the order to end');
			$two->sql(tell_numbers('patient', 'stop', 1 .. 3));
			wait_seen($two, 'stop', 3);
			return (summary('stop', $two), '1 2 3 4 5 6 7 8 9 10 1 2 3; 1 4 0 0 0');
		},
	},
	{
		promise => 'without ordered_by what waits goes first',
		broken_by => ['QUEUE_FORGOTTEN'],
		run => sub {
			arrive('patient', 'free', 2);
			wait_seen($two, 'free', 2);
			$_->sql(q{SELECT shard_alter('patient', 'ordered_by', NULL)}) for $cluster->nodes;
			$two->sql(tell_numbers('patient', 'free', 3, 4, 9, 10));
			wait_seen($two, 'free', 10);
			my $got = summary('free', $two);
			$_->sql(q{SELECT shard_alter('patient', 'ordered_by', 'number_of')}) for $cluster->nodes;
			return ($got, '1 2 5 6 7 8 3 4 9 10; 1 9 0 0 0');
		},
	},
	{
		promise => 'the same at the old home, when a move is given up',
		broken_by => ['QUEUE_FORGOTTEN'],
		run => sub {
			my $game = 'back';
			$one->sql(tell_numbers('fragile', $game, 1));
			wait_seen($one, $game, 1);
			$one->sql(tell_numbers('fragile', $game, 5 .. 8));
			$one->wait_value(position($game), '1 2 0 0 4', 'messages to wait');
			my $shard = $cluster->shard_of('fragile', $game);
			my $holder = $two->session;
			$two->sql(q{CREATE FUNCTION stand_still() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_xact_lock(1); RETURN NEW; END $$;
				CREATE TRIGGER stand_still BEFORE INSERT ON shard_entity.fragile FOR EACH ROW EXECUTE FUNCTION stand_still();
				ALTER TABLE shard_entity.fragile ENABLE ALWAYS TRIGGER stand_still;});
			$holder->query('SELECT pg_advisory_lock(1);');
			my $own = "SELECT o.state FROM shard.own o JOIN shard.type USING (type_id) WHERE type_name = 'fragile' AND o.shard = $shard";
			my $mover = $one->session;
			$mover->send("SELECT shard_move('fragile', $shard, 2);");
			$one->wait_value($own, 'sealed', 'the shard to be sealed');
			$one->sql(tell_numbers('fragile', $game, 2));
			$one->wait_value($own, 'active', 'the move to be given up');
			$holder->close;
			wait_seen($one, $game, 2);
			$one->sql(tell_numbers('fragile', $game, 3, 4, 9));
			wait_seen($one, $game, 9);
			return (summary($game, $one), '1 2 3 4 5 6 7 8 9; 1 10 0 0 0');
		},
	});

if (ShardMutant::prove(@scenarios))
{
	my $log = PostgreSQL::Test::Utils::slurp_file($one->server->logfile);
	unlike($log, qr/of entity "(?!twice)\w+" of type "\w+" were skipped/, 'no gap is reported where there was none');
	unlike($log, qr/counted wrongly/, 'memory was never wrong');
	$one->server->log_is_clean(@ShardNodes::link_troubles);
}
done_testing();
