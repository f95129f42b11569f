package ShardLedger;

=head1 NAME

ShardLedger - random load that keeps books, disturbances, and the audit of the books

=head1 SYNOPSIS

  my $ledger = ShardLedger->new(node => $node, seed => 42);
  $ledger->install;
  $ledger->prove(seconds => ShardLedger::seconds(60), disturbances => [ ShardLedger::crashes() ]);

=head1 THE BOOKS

=over

=item sent

One row per message, written by the sender in the transaction that sends it, before it calls
C<shard_tell>. So the rows of C<sent> are exactly the messages that count, whatever became of the
reply to COMMIT. Messages that handlers send are entered likewise, as of session C<@entity>.

=item committed

Transactions whose COMMIT was reported, with the time of the report. Clients write it to files
outside the database, which the crash of a server cannot take back.

=item handled

One row per message, written by the handler. It has no unique key: a message handled twice must
show, not fail. C<pos> is counted in the entity's state, so it tells the entity's own order, and the
state also folds what it handled into a hash.

=back

Messages with act C<mend> fail at most places in their entity's life and become dead letters; clients send those again,
at the node where they are, at any time. So they may be handled late, or still be dead letters in the end, but no
other message may, and none twice.

An ask is in C<sent> as kind C<ask>, committed before it is made: it may be handled or not until it
is answered, but must have been when it was.

Entities are of three types, of two owners, whose messages are mixed in turns: C<ledger>; C<owned>, whose state is a
composite with an attribute C<twin>, the count once more; and C<alive>, of L<ShardLives>. The second one's owner alters
its type meanwhile.

Times of C<called_at> and C<committed.at> are of one machine's clock; stepping that clock during a
run invalidates it.

=cut

use strict;
use warnings FATAL => 'all';

use List::Util qw(max min);
use POSIX ();
use PostgreSQL::Test::Utils;
use ShardLives;
use ShardLoad;
use Test::More;
use Time::HiRes qw(time);

my $clients  = 6;
my $patience = $PostgreSQL::Test::Utils::timeout_default // 180;

# --- SQL: the books ------------------------------------------------------------------------------

my $books = <<'SQL';
CREATE TABLE sent (
    session   text NOT NULL,
    txn       bigint NOT NULL,
    n         int NOT NULL,
    kind      text NOT NULL,       -- how it was sent; 'prepared', 'ask' and 'timer' are judged differently
    entity    text NOT NULL,
    message   jsonb NOT NULL,
    called_at timestamptz NOT NULL,
    node      int NOT NULL DEFAULT 0,    -- where it was sent; in a cluster, of which others are merged here
    PRIMARY KEY (session, txn, n)
);
CREATE TABLE committed (
    session  text NOT NULL,
    txn      bigint NOT NULL,
    messages int NOT NULL,
    at       timestamptz NOT NULL,
    PRIMARY KEY (session, txn)
);
CREATE TABLE handled (
    entity  text NOT NULL,
    pos     bigint NOT NULL,
    message jsonb NOT NULL,
    node    int NOT NULL DEFAULT 0
);

CREATE FUNCTION ledger_step(hash text, message jsonb) RETURNS text LANGUAGE sql IMMUTABLE
RETURN md5(hash || concat_ws('/', message->>'s', message->>'t', message->>'n'));

CREATE AGGREGATE ledger_fold(jsonb) (SFUNC = ledger_step, STYPE = text, INITCOND = '');

-- Enters a message in the books and returns it, to be used as the argument of shard_tell: so it is
-- entered before the call.
CREATE FUNCTION ledger_note(session text, txn bigint, n int, kind text, entity text, act text)
RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    message jsonb := jsonb_build_object('s', session, 't', txn, 'n', n, 'act', act);
BEGIN
    -- Longer than a page even when compressed: hashes do not compress.
    IF act = 'large' THEN
        message := message || jsonb_build_object('pad',
            (SELECT string_agg(md5(session || txn || '/' || n || '/' || i), '') FROM generate_series(1, 700) i));
    END IF;
    INSERT INTO sent VALUES (session, txn, n, kind, entity, message, clock_timestamp());
    RETURN message;
END $$;

-- Two entities in every round get two fifths of all messages: what goes wrong between messages of
-- one entity needs many of them there at once. A fifth goes to those of type owned, a tenth to those of type alive.
CREATE FUNCTION ledger_entity(round text, i bigint) RETURNS text LANGUAGE sql IMMUTABLE
RETURN round || CASE WHEN i % 5 < 2 THEN '-hot' || i % 2 WHEN i % 5 = 2 THEN '-o' || i % 7 WHEN i % 10 = 3 THEN '-l' || i % 37 ELSE '-e' || i % 41 END;

CREATE FUNCTION ledger_type(entity text) RETURNS text LANGUAGE sql IMMUTABLE
RETURN CASE WHEN entity LIKE '%-o%' THEN 'owned' WHEN entity LIKE '%-l%' THEN 'alive' ELSE 'ledger' END;

-- What the handler does with the message.
CREATE FUNCTION ledger_act(i bigint) RETURNS text LANGUAGE sql IMMUTABLE
RETURN CASE i % 101 WHEN 7 THEN 'mend' WHEN 13 THEN 'fail' WHEN 29 THEN 'mend' WHEN 53 THEN 'mend' WHEN 97 THEN 'mend' WHEN 31 THEN 'flaky' WHEN 47 THEN 'flaky'
                    WHEN 64 THEN 'chain' WHEN 71 THEN 'relay' WHEN 89 THEN 'large' ELSE 'plain' END;
SQL

# --- SQL: the entity type ------------------------------------------------------------------------

my $entity_type = <<'SQL';
-- Drives transient failures: what a sequence gives is not undone by the rollback that a failure
-- causes, so a retry meets the next value.
CREATE SEQUENCE ledger_flake;

-- What handlers do beside their state.
CREATE FUNCTION ledger_do(self text, pos bigint, message jsonb) RETURNS void LANGUAGE plpgsql AS $$
DECLARE
    round text := split_part(self, '-', 1);
    act   text := message->>'act';
    heir  text;
BEGIN
    -- Before anything fails: the effects of failed attempts must vanish.
    INSERT INTO handled VALUES (self, pos, message);

    IF act = 'fail' THEN
        RAISE EXCEPTION 'ledger: told to fail' USING ERRCODE = 'invalid_parameter_value';
    ELSIF act = 'mend' AND pos % 3 <> 0 THEN
        -- A dead letter, until it is sent again at another place in its entity's life.
        RAISE EXCEPTION 'ledger: told to fail here' USING ERRCODE = 'invalid_parameter_value';
    ELSIF act = 'flaky' AND nextval('ledger_flake') % 2 = 0 THEN
        RAISE EXCEPTION 'ledger: told to fail for now' USING ERRCODE = 'serialization_failure';
    ELSIF act IN ('chain', 'relay') THEN
        -- Two messages, possibly to one entity or to itself; a relay's are relayed once more.
        FOR k IN 0 .. 1 LOOP
            heir := ledger_entity(round, pos * 7 + k * 11 + (message->>'n')::bigint);
            PERFORM shard_tell(ledger_type(heir), heir, ledger_note('@' || self, pos, k, 'handler', heir,
                CASE act WHEN 'relay' THEN 'chain' ELSE 'plain' END));
        END LOOP;
    END IF;
END $$;

CREATE FUNCTION ledger_handler(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    pos bigint := coalesce((state->>'count')::bigint, 0) + 1;
BEGIN
    PERFORM ledger_do((SELECT entity_id FROM shard_self()), pos, message);
    RETURN jsonb_build_object('count', pos, 'hash', ledger_step(coalesce(state->>'hash', ''), message));
END $$;

SELECT shard_start('ledger', 'ledger_handler(jsonb,jsonb)',
                   retry_backoff => '10 ms', max_retry_backoff => '100 ms'/*settings*/);

-- The other owner's. Whatever type twin has, a state that says something else is noticed here, or by the audit.
DO $$
BEGIN
    CREATE ROLE ledger_owner;
EXCEPTION WHEN duplicate_object THEN NULL;  -- another database of this server has it
END $$;
DO $$ BEGIN EXECUTE format('GRANT CREATE ON DATABASE %I TO ledger_owner', current_database()); END $$;
GRANT USAGE, CREATE ON SCHEMA public TO ledger_owner;
GRANT SELECT, INSERT ON sent, handled TO ledger_owner;
GRANT USAGE ON SEQUENCE ledger_flake TO ledger_owner;
SET ROLE ledger_owner;
CREATE TYPE ledger_state AS (count bigint, hash text, twin bigint);
DO $$ BEGIN FOR i IN 0 .. 15 LOOP EXECUTE 'CREATE TABLE ledger_news_' || i || ' ()'; END LOOP; END $$;
CREATE FUNCTION ledger_owned(state ledger_state, message jsonb) RETURNS ledger_state LANGUAGE plpgsql AS $$
DECLARE
    old jsonb  := to_jsonb(state);
    pos bigint := coalesce((old->>'count')::bigint, 0) + 1;
BEGIN
    IF old->>'twin' IS DISTINCT FROM old->>'count' OR current_user <> 'ledger_owner' THEN
        RAISE EXCEPTION 'ledger: a wrong state or user: % %', old, current_user;
    END IF;
    -- Some of the first messages of a turn come to a table that it has not locked yet: only there it hears of what others
    -- have altered meanwhile.
    EXECUTE 'SELECT FROM ledger_news_' || pos % 16;
    PERFORM ledger_do((SELECT entity_id FROM shard_self()), pos, message);
    RETURN jsonb_populate_record(NULL::ledger_state, jsonb_build_object('count', pos, 'twin', pos,
        'hash', ledger_step(coalesce(old->>'hash', ''), message)));
END $$;
SELECT shard_start('owned', 'ledger_owned(ledger_state,jsonb)',
                   retry_backoff => '10 ms', max_retry_backoff => '100 ms'/*settings*/);
RESET ROLE;

-- Makes twin of another type, in the state's type and then in its table, each in a transaction of its own: so the former
-- is done while turns use what the latter has. Until both are done the type waits.
CREATE PROCEDURE ledger_alter(wanted regtype) LANGUAGE plpgsql AS $$
BEGIN
    IF wanted <> (SELECT atttypid FROM pg_attribute WHERE attrelid = 'ledger_state'::regclass AND attname = 'twin') THEN
        EXECUTE format('ALTER TYPE ledger_state ALTER ATTRIBUTE twin TYPE %s', wanted);
    END IF;
    COMMIT;
    IF wanted <> (SELECT atttypid FROM pg_attribute WHERE attrelid = 'shard_entity.owned'::regclass AND attname = 'twin') THEN
        EXECUTE format('ALTER TABLE shard_entity.owned ALTER COLUMN twin TYPE %1$s USING twin::%1$s', wanted);
    END IF;
END $$;
SQL

# For the audit. Not a view: one could not alter the table under it.
my $states = <<'SQL';
CREATE FUNCTION ledger_states() RETURNS TABLE (entity_id text, state jsonb) STABLE LANGUAGE sql AS $$
    SELECT entity_id, state FROM shard_entity.ledger
    UNION ALL
    SELECT entity_id, jsonb_build_object('hash', hash, 'count', CASE WHEN twin::text = count::text THEN count END)
    FROM shard_entity.owned
    UNION ALL
    SELECT entity_id, state FROM shard_entity.alive WHERE state ? 'count'
$$;
SQL

# --- SQL: the audit ------------------------------------------------------------------------------

# One statement, one snapshot: what is handled between two looks must not seem lost. Each violation
# names the promise that it breaks (doc/guarantees.md).
my $audit = <<'SQL';
WITH seen AS (
    SELECT 'handled' AS place, entity, message FROM handled
    UNION ALL
    SELECT 'waiting', entity_id, message FROM shard_inbox WHERE type_name IN ('ledger', 'owned', 'alive') AND message ? 's'
    UNION ALL
    SELECT 'dead', entity_id, message FROM shard_dead_letters
    WHERE type_name IN ('ledger', 'owned', 'alive') AND entity_id LIKE :'round' || '-%'
), fate AS (
    SELECT message->>'s' AS session, (message->>'t')::bigint AS txn, (message->>'n')::int AS n,
           count(*) FILTER (WHERE place = 'handled') AS handled,
           count(*) FILTER (WHERE place = 'waiting') AS waiting,
           count(*) FILTER (WHERE place = 'dead') AS dead,
           min(entity) AS entity, max(entity) AS other_entity, min(message::text)::jsonb AS message
    FROM seen GROUP BY 1, 2, 3
), ordered AS (
    -- Every handled message beside the latest of what its entity handled before it.
    -- What may have been given up and sent again comes later than it was sent first, as what a timer brings does; and
    -- what a timer of the entity's own brings does not wait for what others have sent before, and is still on its way.
    SELECT s.*, c.at AS committed_at, s.message->>'act' = 'mend' OR s.kind = 'timer' AS again,
           max(s.called_at) FILTER (WHERE s.kind NOT IN ('ask', 'timer')) OVER before AS latest_call_before,
           max(s.txn) OVER session_before AS latest_txn_before,
           max(s.n) OVER txn_before AS latest_n_before
    FROM handled h
    JOIN sent s ON (s.session, s.txn, s.n) = (h.message->>'s', (h.message->>'t')::bigint, (h.message->>'n')::int)
    LEFT JOIN committed c ON (c.session, c.txn) = (s.session, s.txn)
    WINDOW before AS (PARTITION BY h.entity, s.node ORDER BY h.pos
                      ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING),
           -- An entity that moves is another sender at each of its homes (H8).
           session_before AS (PARTITION BY h.entity, s.session, s.node ORDER BY h.pos
                              ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING),
           txn_before AS (PARTITION BY h.entity, s.session, s.txn ORDER BY h.pos
                          ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)
), folded AS (
    SELECT entity, count(*) AS count, ledger_fold(message ORDER BY pos) AS hash,
           bool_and(pos = place) AS gapless
    FROM (SELECT *, row_number() OVER (PARTITION BY entity ORDER BY pos) AS place FROM handled) h
    GROUP BY entity
), violations AS (
    SELECT 'P1: a message is lost' AS violation, s.session, s.txn, s.n, s.entity
    FROM sent s LEFT JOIN fate f USING (session, txn, n) LEFT JOIN committed c USING (session, txn)
    WHERE f.session IS NULL AND (s.kind <> 'ask' OR c.at IS NOT NULL)
    UNION ALL
    SELECT 'P1: an answered ask has no effect', s.session, s.txn, s.n, s.entity
    FROM sent s JOIN committed c USING (session, txn) JOIN fate f USING (session, txn, n)
    WHERE s.kind = 'ask' AND f.handled = 0
    UNION ALL
    SELECT 'P1: a reported transaction is gone', c.session, c.txn, NULL, NULL
    FROM committed c
    WHERE c.messages <> (SELECT count(*) FROM sent s WHERE (s.session, s.txn) = (c.session, c.txn))
    UNION ALL
    SELECT 'P2: a message was handled more than once', session, txn, n, entity
    FROM fate WHERE handled > 1
    UNION ALL
    SELECT 'P2: a message is in two places', session, txn, n, entity
    FROM fate WHERE handled + waiting + dead > 1 AND handled <= 1
    UNION ALL
    SELECT 'P2: a message was changed', s.session, s.txn, s.n, s.entity
    FROM sent s JOIN fate f USING (session, txn, n)
    WHERE f.entity <> s.entity OR f.other_entity <> s.entity OR f.message <> s.message
    UNION ALL
    SELECT 'P1: a message was given up without need, ' || sqlstate, message->>'s', (message->>'t')::bigint, (message->>'n')::int, entity_id
    FROM shard_dead_letters
    WHERE type_name IN ('ledger', 'owned', 'alive') AND entity_id LIKE :'round' || '-%'
          AND (coalesce(message->>'act', ''), sqlstate) NOT IN (('fail', '22023'), ('mend', '22023'), ('flaky', '40001'))
    UNION ALL
    SELECT 'P2: an ask was kept', s.session, s.txn, s.n, s.entity
    FROM sent s JOIN fate f USING (session, txn, n)
    WHERE s.kind = 'ask' AND f.waiting + f.dead > 0
    UNION ALL
    SELECT 'P2: state and effects differ', NULL, NULL, NULL, format('%s, %s in its state and %s handled',
           coalesce(f.entity, e.entity_id), coalesce(e.state->>'count', 'none'), coalesce(f.count, 0))
    FROM folded f
    FULL JOIN (SELECT * FROM ledger_states() WHERE entity_id LIKE :'round' || '-%') e ON e.entity_id = f.entity
    WHERE (f.count, f.hash, f.gapless) IS DISTINCT FROM ((e.state->>'count')::bigint, e.state->>'hash', true)
    UNION ALL
    SELECT 'P3: handled after what was sent later in its transaction', session, txn, n, entity
    FROM ordered WHERE latest_n_before > n AND NOT again
    UNION ALL
    -- What a session prepares may commit after what it sends next, and an ask without answer may
    -- have been given up; both only need to come after what came before them.
    SELECT 'P3: handled after what its session sent later', session, txn, n, entity
    FROM ordered
    WHERE latest_txn_before > txn AND NOT again AND kind <> 'prepared' AND (kind <> 'ask' OR committed_at IS NOT NULL)
    UNION ALL
    SELECT 'P3: handled after what was sent after its commit', session, txn, n, entity
    FROM ordered WHERE latest_call_before > committed_at AND NOT again
    UNION ALL
    SELECT 'P4: an entity ran on several nodes', NULL, NULL, NULL, entity
    FROM handled WHERE NOT :'moves'::boolean GROUP BY entity HAVING count(DISTINCT node) > 1
    UNION ALL
    SELECT 'P4: two nodes had an entity at once', NULL, NULL, NULL, entity
    FROM handled GROUP BY entity, pos HAVING count(DISTINCT node) > 1
    UNION ALL
    SELECT 'P5: a message that no transaction sent', f.session, f.txn, f.n, f.entity
    FROM fate f LEFT JOIN sent s USING (session, txn, n)
    WHERE s.session IS NULL
)
SELECT violation || ' (' || count(*) || ', as '
       || min(concat_ws(' ', entity, 'of ' || session, txn || '.' || n)) || ')'
FROM violations GROUP BY violation ORDER BY violation;
SQL

# --- life of a ledger ----------------------------------------------------------------------------

# Arguments: node, seed; db (default postgres); settings of the entity type.
sub new
{
	my ($class, %arg) = @_;
	my $self = bless {
		db     => 'postgres',
		rounds => 0,
		sent   => 0,
		%arg,
		chance => ShardLoad::random_stream($arg{seed}),
	}, $class;

	# A stream each: what a client does next depends on the seed alone, not on when others did
	# what.
	$self->{clients} = [
		map {
			{
				name   => "c$_",
				txn    => 0,
				chance => ShardLoad::random_stream($arg{seed} * 100 + $_),
				file   => "$PostgreSQL::Test::Utils::tmp_check/ledger_" . $self->{node}->name . "_c$_",
			}
		} 1 .. $clients
	];
	return $self;
}

# SQL of the books, and of the entity type with this ledger's settings (", name => value").
sub books { return $books . $ShardLives::books }

sub entity_type
{
	my ($self) = @_;
	my $settings = $self->{settings} // '';
	return ($entity_type =~ s{/\*settings\*/}{$settings}gr) . ShardLives::type($settings) . $states;
}

# The books without the entity type: all that the audit needs.
sub install_books
{
	my ($self) = @_;
	$self->{node}->safe_psql($self->{db}, $self->books);
	return;
}

sub install
{
	my ($self) = @_;
	$self->install_books;
	$self->{node}->safe_psql($self->{db}, $self->entity_type);
	return;
}

# The server has to be up. Returns one line per kind of violation.
sub violations
{
	my ($self) = @_;
	my $out = $self->{node}->safe_psql($self->{db}, $self->{undrained} ? $audit : $audit . $ShardLives::audit,
		extra_params => [ '-v', 'round=' . $self->_round, '-v', 'moves=' . ($self->{moves} ? 't' : 'f') ]);
	return split /\n/, $out;
}

sub _round { my ($self) = @_; return "r$self->{rounds}" }

# One round: new books, load under disturbance for some seconds, recovery, everything drained.
# Option undrained => true: do not insist that all can be drained.
sub round
{
	my ($self, %opt) = @_;
	my $node = $self->{node};

	$node->safe_psql($self->{db}, 'TRUNCATE sent, committed, handled');
	$self->{rounds}++;
	unlink "$_->{file}.out" for @{ $self->{clients} };

	$self->_load($opt{seconds}, $opt{disturbances} // []);
	$node->recover;
	$self->_resolve_prepared;
	$self->_load_committed;
	my $place = sub { return $node->safe_psql($self->{db}, @_) };
	my $began = time;
	my $drained = eval { ShardLives::settle($place); $node->drain($self->{db}); ShardLives::settle($place); 1 };
	note(sprintf 'at rest after %.1f s', time - $began);
	die $@ unless $drained || $opt{undrained};
	$self->{undrained} = !$drained;
	$self->{sent} += $node->safe_psql($self->{db}, 'SELECT count(*) FROM sent');
	return;
}

# Rounds for some seconds, each audited: one test a round, then those of client errors and log.
# With SHARD_MUTANT the server runs a build that is broken on purpose (test/mutants.sh), and there is
# one test: that the audit notices.
sub prove
{
	my ($self, %opt) = @_;
	my $mutant = $ENV{SHARD_MUTANT};
	my $length = $mutant ? 6 : 25;
	my $until  = time + $opt{seconds};
	my @violations;
	local $Test::Builder::Level = $Test::Builder::Level + 1;

	# The books as the first violation left them tell more than many further rounds.
	while (!@violations && time < $until)
	{
		$self->round(
			seconds      => max(1, min($length, $until - time)),
			disturbances => $opt{disturbances},
			undrained    => $mutant);
		@violations = $self->violations;
		$self->has_none("no violation after $self->{sent} messages", @violations) unless $mutant;
	}
	if ($mutant)
	{
		ok(@violations, "the audit finds fault with $mutant") and note(join "\n", @violations);
		return;
	}
	is(join("\n", $self->_unexpected_client_errors), '', 'clients met only what the disturbances explain');
	$self->{node}->log_is_clean(qr/ledger: told to fail/, qr/due to lock timeout/);
	return;
}

# One test: there are no violations. Its name says which there are: it may be all that is left of a run.
sub has_none
{
	my ($self, $name, @violations) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my $found = join '; ', map { (split /\n/)[0] } @violations;
	return is(join("\n", @violations), '', $found eq '' ? $name : "$name, but $found");
}

# Clients and disturbances take turns by the number of scripts that ended, not by time: so a slow
# machine gets the same mixture.
sub _load
{
	my ($self, $seconds, $disturbances) = @_;
	my $chance = $self->{chance};
	my $until  = time + $seconds;
	my $ended  = 0;
	my $next   = 4 + $chance->(8);

	while (time < $until)
	{
		$_->{pid} //= $self->_start_script($_) for @{ $self->{clients} };
		$self->_reap;
		next if !@$disturbances || ++$ended < $next;
		my ($name, $do) = @{ $disturbances->[ $chance->(scalar @$disturbances) ] };
		note("after $ended scripts: $name");
		$do->($self->{node}, $chance);
		$next = $ended + 3 + $chance->(8);
	}
	$self->_reap while grep { $_->{pid} } @{ $self->{clients} };
	return;
}

# Waits for one client's psql to end.
sub _reap
{
	my ($self) = @_;
	local $SIG{ALRM} = sub { die "a client did not come back" };
	alarm $patience;
	my $pid = waitpid(-1, 0);
	alarm 0;
	for my $client (@{ $self->{clients} })
	{
		$client->{pid} = undef if $client->{pid} && $client->{pid} == $pid;
	}
	return;
}

# A psql of its own for each script: when its server dies, so does it, and the client goes on with
# the next. Nobody needs to know where it was: the books do.
sub _start_script
{
	my ($self, $client) = @_;
	my $file = $client->{file};
	open my $script, '>', "$file.sql" or die "cannot write $file.sql: $!";
	print $script $self->script_of($client);
	close $script or die "cannot write $file.sql: $!";

	my @psql = ('psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-v', 'VERBOSITY=verbose',
		'-d', $self->connstr_of($client), '-f', "$file.sql");
	my $pid = fork // die "cannot fork: $!";
	return $pid if $pid;
	open STDIN,  '<',  '/dev/null' or POSIX::_exit(126);
	open STDOUT, '>>', "$file.out" or POSIX::_exit(126);
	open STDERR, '>>', "$file.err" or POSIX::_exit(126);
	# Not exit: that would run the test's END blocks, which stop the server.
	{ exec { $psql[0] } @psql }
	POSIX::_exit(127);
}

# What a client runs next, and where.
sub script_of { my ($self, $client) = @_; return ShardLoad::script($self->_round, $client) }
sub connstr_of { my ($self, $client) = @_; return $self->{node}->connstr($self->{db}) }

# Transactions that lost their client after PREPARE, perhaps across crashes.
sub _resolve_prepared
{
	my ($self) = @_;
	my @gids = split /\n/, $self->{node}->safe_psql($self->{db},
		'SELECT gid FROM pg_prepared_xacts WHERE database = current_database() ORDER BY gid');
	for my $gid (@gids)
	{
		my $verb = $self->{chance}->(2) ? 'COMMIT' : 'ROLLBACK';
		$self->{node}->safe_psql($self->{db}, "$verb PREPARED '$gid'");
	}
	return;
}

# Takes the clients' outside records into the database.
sub _load_committed
{
	my ($self) = @_;
	my $rows = '';
	for my $file (grep { -e } map { "$_->{file}.out" } @{ $self->{clients} })
	{
		$rows .= join '', map { "$_\n" } slurp_file($file) =~ /^COMMITTED\|(.*)$/mg;
	}
	$rows =~ tr/|/\t/;
	$self->{node}->safe_psql($self->{db}, "COPY committed FROM stdin;\n$rows\\.\n");
	return;
}

# What clients may be told while servers die under them: classes 08 and 57P, failed asks, asks of an
# entity whose row somebody holds, or whose type is being altered, asks whose time ran out, or whose worker was cancelled.
my $expected = qr/ledger:\ told\ to\ fail|cannot\ run\ (?:now|at\ node)|due\ to\ user\ request|holds\ the\ state\ row|outcome\ unknown|tim(?:ed|e)?[\ -]?out|
	connection\ to\ server|server\ closed\ the\ connection|terminat|
	57P0\d:|08\d{3}:|the\ database\ system\ is/xi;

# Errors that no client should have met.
sub _unexpected_client_errors
{
	my ($self) = @_;
	my @errors = map { slurp_file("$_->{file}.err") =~ /^.*(?:ERROR|FATAL|PANIC|error:).*$/mg }
	  grep { -e "$_->{file}.err" } @{ $self->{clients} };
	return grep { $_ !~ $expected } @errors;
}

# --- disturbances --------------------------------------------------------------------------------

# Each is a name and what to do with a running node; it leaves the node running.
my %disturbance = (
	'kill -9 of everything' => sub { my ($node) = @_; $node->crash; $node->recover },
	'kill -9 of the postmaster' => sub { my ($node) = @_; $node->crash_postmaster; $node->recover },
	'immediate stop' => sub { my ($node) = @_; $node->stop('immediate'); $node->recover },
	'fast restart' => sub { my ($node) = @_; $node->stop('fast'); $node->recover },
	'kill -9 of a worker' => sub {
		my ($node, $chance) = @_;
		my @pids = $node->worker_pids or return;
		$node->crash_process($pids[ $chance->(scalar @pids) ]);
	},
	'terminated worker' => sub {
		my ($node, $chance) = @_;
		my @pids = $node->worker_pids or return;
		$node->safe_psql('postgres', "SELECT pg_terminate_backend($pids[$chance->(scalar @pids)])");
	},
	'all workers terminated' => sub {
		my ($node) = @_;
		$node->safe_psql('postgres',
			"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type LIKE 'shard%'");
	},
	'another number of workers' => sub {
		my ($node, $chance) = @_;
		my $workers = 1 + $chance->(4);
		note("shard.region_workers = $workers");
		$node->safe_psql('postgres', "ALTER SYSTEM SET shard.region_workers = $workers");
		$chance->(2) ? $node->crash : $node->stop('fast');
		$node->recover;
	},
);

# What users may do to a type that runs, and operators to its workers.
my $definitions = q{SELECT string_agg(pg_get_functiondef(oid), ';') FROM pg_proc WHERE proname IN ('ledger_handler', 'ledger_owned')};
my $altered = q{CALL ledger_alter('text'); SELECT pg_sleep(0.1); CALL ledger_alter('bigint');};
%disturbance = (
	%disturbance,
	'cancelled workers' => sub {
		my ($node) = @_;
		$node->safe_psql('postgres', "SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE backend_type LIKE 'shard%'");
	},
	'a handler replaced' => sub {
		my ($node) = @_;
		$node->safe_psql('postgres', $node->safe_psql('postgres', $definitions));
	},
	'a state table rewritten' => sub { my ($node) = @_; $node->safe_psql('postgres', 'VACUUM FULL shard_entity.ledger') },
	'a state table locked' => sub {
		my ($node) = @_;
		$node->safe_psql('postgres', 'BEGIN; LOCK TABLE shard_entity.ledger; SELECT pg_sleep(0.3); COMMIT');
	},
	'a state table altered' => sub {
		my ($node) = @_;
		$node->safe_psql('postgres', q{
			ALTER TABLE shard_entity.ledger ADD COLUMN IF NOT EXISTS mine int DEFAULT 1;
			ALTER TABLE shard_entity.ledger DROP COLUMN mine, ADD COLUMN mine text;
			ALTER TABLE shard_entity.ledger DROP COLUMN mine});
	},
	# Back again, so that it is in the end what it is at other nodes.
	'a state type altered' => sub { my ($node) = @_; $node->safe_psql('postgres', $altered) },
);

# By name, as round() takes them. A name given twice comes twice as often.
sub disturbances { return map { [ $_, $disturbance{$_} // die "no disturbance $_" ] } @_ }

sub crashes
{
	return disturbances(
		'kill -9 of everything', 'kill -9 of the postmaster', 'immediate stop', 'fast restart',
		'kill -9 of a worker', ('terminated worker') x 3, 'all workers terminated');
}

sub users
{
	return disturbances('cancelled workers', 'a handler replaced', 'a state table rewritten', 'a state table locked',
		'a state table altered', ('a state type altered') x 3);
}

# --- settings of a run ---------------------------------------------------------------------------

# The seed is printed, so that a failure can be met again.
sub seed
{
	my $seed = $ENV{SHARD_SEED} // (time * 1000) % 1_000_000;
	diag("SHARD_SEED=$seed");
	return $seed;
}

# How long the load lasts, in all rounds together.
sub seconds
{
	my ($default) = @_;
	return $ENV{SHARD_SECONDS} // $default;
}

1;
