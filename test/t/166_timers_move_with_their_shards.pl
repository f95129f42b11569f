# Timers move with their shards, under load, back and forth, and when a node leaves: none is lost, none fires twice, and those
# that repeat miss nothing (E36). A timer that is due while its shard is on the way fires at the new home. One that was
# cancelled on the way does not. What an entity makes and cancels by itself, at both of its homes, is in order (E31).

use strict;
use warnings FATAL => 'all';

use ShardMutant;
use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(2, databases => 1, conf => "shard.rebalance_interval = 0\nshard.region_workers = 1");
my ($one, $two) = $cluster->nodes;
$cluster->sql_everywhere(q{
CREATE TABLE seen (entity text, timer text, due timestamptz, fired int8);
CREATE FUNCTION note(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    state := coalesce(state, '0');
    IF message = '"setup"' THEN
        RETURN state;
    ELSIF message = '"own"' THEN
        IF state::int % 2 = 0 THEN
            PERFORM shard_schedule(type_name, entity_id, '4', after => '1 h', name => 'own') FROM shard_self();
        ELSE
            PERFORM shard_cancel(type_name, entity_id, 'own') FROM shard_self();
        END IF;
        RETURN to_jsonb(state::int + 1);
    END IF;
    INSERT INTO seen SELECT s.entity_id, t.* FROM shard_self() s, shard_timer() t;
    RETURN state;
END $$;
SELECT shard_start('note', 'note', number_of_shards => 8);
SELECT shard_start('narrow', 'note', number_of_shards => 64);
});
$cluster->wait_registered;
my $shards = 8;
my $entities = 40;

# ---- where a mistake must show ------------------------------------------------------------------

sub schedule
{
	my ($node, $type, $entity, $name, $after) = @_;
	$node->sql(sprintf q{SELECT shard_schedule('%s', '%s', '1', after => '%s', name => '%s')}, $type, $entity, $after, $name);
	return;
}

# An entity at node 1 that has a state, and one at node 2 whose shard is of the same lane.
sub of_one_lane
{
	for my $node ($one, $two)
	{
		$node->sql(q{SELECT count(shard_tell('narrow', 'e' || i, '"setup"')) FROM generate_series(1, 300) i});
	}
	$cluster->drain;
	$one->sql(q{SELECT count(shard_schedule('narrow', 'e' || i, '1', after => '1 h', name => 'lane')) FROM generate_series(1, 300) i});
	$cluster->drain;
	my $lanes = q{SELECT lane, min(entity) FROM shard.timer WHERE name = 'lane' GROUP BY lane};
	my %at_two = map { split /\|/ } split /\n/, $two->sql($lanes);
	for (split /\n/, $one->sql($lanes))
	{
		my ($lane, $entity) = split /\|/;
		return ($entity, $at_two{$lane}) if $at_two{$lane};
	}
	die 'no lane has shards at both nodes';
}

my ($moves, $stays) = of_one_lane();
my @scenarios = (
	{
		promise => 'timers come with their shard',
		broken_by => ['TIMERS_STAY'],
		run => sub {
			my $entity = $one->sql("SELECT min(entity) FROM shard.timer WHERE name = 'lane' AND entity <> '$moves'");
			my $shard = $cluster->shard_of('narrow', $entity);
			$cluster->move('narrow', $shard, 2);
			$cluster->wait_home('narrow', $shard, 2);
			$two->wait_until("SELECT EXISTS (SELECT FROM shard.own o JOIN shard.type USING (type_id) WHERE type_name = 'narrow' AND o.shard = $shard AND state = 'active')", 'the shard to be active');
			return ($two->sql("SELECT count(*) FROM shard_timers WHERE (entity_id, name) = ('$entity', 'lane')"), 1);
		},
	},
	{
		# The shard is sealed before its timer is due; the new home has fired a later one of the lane before the shard comes.
		promise => 'a timer that was due while its shard was on the way fires at the new home',
		broken_by => ['TIMER_MARK_KEPT'],
		run => sub {
			my $shard = $cluster->shard_of('narrow', $moves);
			my $holder = $two->session;
			$two->sql(q{CREATE FUNCTION stand_still() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_xact_lock(1); RETURN NEW; END $$;
				CREATE TRIGGER stand_still BEFORE INSERT ON shard_entity.narrow FOR EACH ROW EXECUTE FUNCTION stand_still();
				ALTER TABLE shard_entity.narrow ENABLE ALWAYS TRIGGER stand_still;});
			$holder->query('SELECT pg_advisory_lock(1);');
			schedule($one, 'narrow', $moves, 'due', '3 s');
			$one->wait_until("SELECT EXISTS (SELECT FROM shard_timers WHERE name = 'due')", 'the timer to be made');
			my $mover = $one->session;
			$mover->send("SELECT shard_move('narrow', $shard, 2);");
			$one->wait_value("SELECT o.state FROM shard.own o JOIN shard.type USING (type_id) WHERE type_name = 'narrow' AND o.shard = $shard", 'sealed', 'the shard to be sealed');
			$one->wait_until("SELECT due < clock_timestamp() FROM shard.timer WHERE name = 'due'", 'the timer to be due');
			schedule($two, 'narrow', $stays, 'later', '0 s');
			$two->wait_until("SELECT EXISTS (SELECT FROM seen WHERE timer = 'later')", 'a later one to fire');
			$holder->close;
			$mover->receive;
			$cluster->wait_home('narrow', $shard, 2);
			schedule($two, 'narrow', $moves, 'end', '1 s');
			$two->wait_until("SELECT EXISTS (SELECT FROM seen WHERE timer = 'end')", 'the end');
			return (join(' ', map { $_->sql(q{SELECT coalesce(string_agg(timer, ' ' ORDER BY due), '-') FROM seen WHERE timer IN ('due', 'end')}) } $one, $two), '- due end');
		},
	});
if (!ShardMutant::prove(@scenarios))
{
	done_testing();
	exit;
}
$two->sql('DROP TRIGGER stand_still ON shard_entity.narrow');

# ---- under load ---------------------------------------------------------------------------------

# Everybody has a home.
$one->sql("SELECT count(shard_tell('note', i::text, '\"setup\"')) FROM generate_series(1, $entities) i");
$cluster->drain;

# What both nodes have seen.
sub seen
{
	my ($what) = @_;
	my @rows = map { split /\n/, $_->sql("SELECT entity || ' ' || timer || ' ' || extract(epoch FROM due) || ' ' || fired FROM seen WHERE timer LIKE '$what'") } $cluster->nodes;
	return @rows;
}

# How many were seen more than once, and how many at all.
sub doubled
{
	my %times;
	$times{$_}++ for @_;
	return scalar grep { $_ > 1 } values %times;
}

my $singles = 2000;
$one->sql("SELECT count(shard_schedule('note', (i % $entities + 1)::text, '1', after => '1 s' + i * interval '3 ms', name => 'single' || i)) FROM generate_series(1, $singles) i");
$two->sql("SELECT count(shard_schedule('note', i::text, '2', every => '40 ms', name => 'every', missed => 'all')) FROM generate_series(1, $entities) i");
$two->sql("SELECT count(shard_schedule('note', i::text, '3', after => '1 h', name => 'cancelled')) FROM generate_series(1, $entities) i");

# Messages at which each entity makes a timer, or cancels that again.
my $toggled = 0;

sub toggle
{
	my ($node) = @_;
	$node->sql("SELECT count(shard_tell('note', i::text, '\"own\"')) FROM generate_series(1, $entities) i");
	$toggled++;
	return;
}

# Each shard goes to the other node and back.
for my $round (1 .. 2)
{
	for my $shard (0 .. $shards - 1)
	{
		my $from = $one->sql("SELECT node FROM shard_homes WHERE type_name = 'note' AND shard = $shard");
		my $to = 3 - $from;
		toggle($one);
		$cluster->move('note', $shard, $to);
		toggle($two);
		$cluster->wait_home('note', $shard, $to);
	}
}
toggle($one);
$cluster->wait_settled;
my $left = q{SELECT count(*) FROM shard_timers WHERE name LIKE 'single%'};
$_->wait_value($left, 0, 'all single ones to fire') for $one, $two;
$cluster->drain;
my @seen = seen('single%');
is(scalar @seen, $singles, 'each single timer has fired');
is(doubled(@seen), 0, 'and none twice');
my $own = q{SELECT concat_ws(' ', count(*), count(t.name), min(state::int), max(state::int))
	FROM shard_entity.note FULL JOIN (SELECT * FROM shard_timers WHERE (type_name, name) = ('note', 'own')) t USING (entity_id)};
for my $node ($one, $two)
{
	my $here = $node->sql('SELECT count(*) FROM shard_entity.note');
	is($node->sql($own), "$here $here $toggled $toggled", 'each entity has the timer that it has made last, at node ' . $node->n);
	is($node->sql(q{SELECT count(*) FROM shard_dead_letters WHERE type_name = 'note'}), 0, 'and no name was in use');
}

# A node leaves, with what is not due yet.
$two->sql('SELECT shard_leave()');
$one->wait_value(q{SELECT count(*) FROM shard_timers WHERE name = 'cancelled'}, $entities, 'all timers to be at the node that stays');
$one->wait_value(q{SELECT count(*) FROM shard_timers WHERE name = 'every'}, $entities, 'also those that repeat');
is($two->sql('SELECT count(*) FROM shard.timer'), 0, 'none is left at the other');
my $fired = $one->sql(q{SELECT sum(fired) FROM shard_timers WHERE name = 'every'});
$one->wait_until(qq{SELECT sum(fired) > $fired + $entities FROM shard_timers WHERE name = 'every'}, 'them to go on');
$one->sql("SELECT count(*) FROM (SELECT shard_cancel('note', i::text, t) FROM generate_series(1, $entities) i, unnest('{every,cancelled,own}'::text[]) t) c");
$one->server->drain($one->db);
is($one->sql(q{SELECT count(*) FROM shard_timers WHERE type_name = 'note'}), 0, 'they can be cancelled there');

my (%due, %firing);
for (map { split /\n/, $_->sql(q{SELECT entity || ' ' || round(extract(epoch FROM due) * 1000000) || ' ' || fired FROM seen WHERE timer = 'every'}) } $one, $two)
{
	my ($entity, $due, $fired) = split / /;
	push @{ $due{$entity} }, $due;
	push @{ $firing{$entity} }, $fired;
}
my ($gaps, $wrong) = (0, 0);
for my $entity (keys %due)
{
	my @due = sort { $a <=> $b } @{ $due{$entity} };
	$gaps += grep { $due[$_] - $due[ $_ - 1 ] != 40_000 } 1 .. $#due;
	my @count = sort { $a <=> $b } @{ $firing{$entity} };
	$wrong += grep { $count[$_] != $_ + 1 } 0 .. $#count;
}
is(scalar keys %due, $entities, 'each entity had one that repeats');
is($gaps, 0, 'which missed no time, and had none twice');
is($wrong, 0, 'and counted');
$cluster->logs_are_clean;
done_testing();
