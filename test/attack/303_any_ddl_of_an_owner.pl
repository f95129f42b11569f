# M01, M02, at random: the owner of some types alters whatever they are made of, in handlers and beside turns, while
# messages are handled. Nobody crashes, nobody waits for ever, nobody reads what is another's, and types that were made
# good again run. SHARD_SEED repeats a run, SHARD_SECONDS makes it longer.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use Test::More;
use Time::HiRes qw(time);

my $seed = $ENV{SHARD_SEED} // int(rand(1 << 31));
my $seconds = $ENV{SHARD_SECONDS} // 12;
diag("SHARD_SEED=$seed");
srand($seed);

my $node = ShardCluster->create('first', conf => "shard.region_workers = 2\nshard.handler_lock_timeout = '200 ms'\nautovacuum_naptime = 1");
$node->safe_psql('postgres', q{
CREATE ROLE mallory LOGIN;
CREATE ROLE alice LOGIN;
GRANT CREATE ON DATABASE postgres TO mallory, alice;
});

sub as { return $node->as(@_) }

as('alice', q{
CREATE SCHEMA alice;
CREATE TYPE alice.st AS (secret text, n int);
CREATE FUNCTION alice.keep(s alice.st, m jsonb) RETURNS alice.st LANGUAGE plpgsql AS $$ BEGIN RETURN ROW('alice''s ' || repeat('secret ', 50), coalesce(s.n, 0) + 1)::alice.st; END $$;
SELECT shard_start('vault', 'alice.keep');
});

# One handler for each kind of state. It does what the message says, before or after it has made its state, in a
# subtransaction or not.
my %kinds = (
	comp => { state => 'mallory.comp', value => q{ROW(x::uuid, n, 'text ' || n, ARRAY[ROW(n, 'in')::mallory.part], ROW(n, 'dom')::mallory.part::mallory.dom)::mallory.comp} },
	flat => { state => 'mallory.flat', value => q{ROW(x::uuid, 'zz')::mallory.flat} },
	arr  => { state => 'mallory.part[]', value => q{ARRAY[ROW(n, 'one')::mallory.part, ROW(n, 'two')::mallory.part]} },
	dom  => { state => 'mallory.dom', value => q{ROW(n, 'dom')::mallory.part::mallory.dom} },
	tab  => { state => 'mallory.tab', value => q{ROW(n, 'base', 'word')::mallory.tab} },
	json => { state => 'jsonb', value => q{to_jsonb(n)} });
my $make = q{
CREATE TYPE mallory.part AS (n int, t text);
CREATE DOMAIN mallory.dom AS mallory.part;
CREATE DOMAIN mallory.word AS text;
CREATE TABLE mallory.base (n int, t text);
CREATE TABLE mallory.tab (w mallory.word) INHERITS (mallory.base);
CREATE TYPE mallory.comp AS (u uuid, n int, t mallory.word, a mallory.part[], d mallory.dom);
CREATE TYPE mallory.flat AS (u uuid, t text);
CREATE FUNCTION mallory.yes(anyelement) RETURNS bool IMMUTABLE LANGUAGE plpgsql AS $f$ BEGIN RETURN true; END $f$;
CREATE FUNCTION mallory.number(int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $f$ BEGIN RETURN $1; END $f$;
CREATE FUNCTION mallory.touch() RETURNS trigger LANGUAGE plpgsql AS $f$ BEGIN RETURN NEW; END $f$;
};

sub handler
{
	my ($kind) = @_;
	my ($state, $value) = @{ $kinds{$kind} }{qw(state value)};
	# In SQL it may be inlined, in plpgsql its constants are kept.
	return qq{CREATE OR REPLACE FUNCTION mallory."$kind"(s $state, m jsonb) RETURNS $state LANGUAGE sql AS \$f\$ SELECT } . ($value =~ s/\bx\b/(m->>'x')/r =~ s/\bn\b/(m->>'n')::int/gr) . q{ $f$}
	  if $kind eq 'flat';
	return qq{CREATE OR REPLACE FUNCTION mallory."$kind"(s $state, m jsonb) RETURNS $state LANGUAGE plpgsql AS \$f\$
DECLARE n int := m->>'n'; x text := m->>'x'; r $state;
BEGIN
	IF m ? 'before' THEN EXECUTE m->>'before'; END IF;
	r := $value;
	IF m ? 'inside' THEN BEGIN EXECUTE m->>'inside'; EXCEPTION WHEN OTHERS THEN NULL; END; END IF;
	IF m ? 'keep' AND s IS NOT NULL THEN r := s; END IF;
	IF m ? 'after' THEN EXECUTE m->>'after'; END IF;
	RETURN r;
END \$f\$};
}

sub start_all
{
	as('mallory', "CREATE SCHEMA mallory; $make" . join '', map { handler($_) . ";\n" } sort keys %kinds);
	as('mallory', "SELECT shard_start('$_', 'mallory.\"$_\"', max_attempts => 2, retry_backoff => '10 ms')") for sort keys %kinds;
	return;
}
start_all();

# --- what she does -------------------------------------------------------------------------------

sub pick { return $_[ int(rand(@_)) ] }
my @scalars = ('int', 'text', 'uuid', 'numeric', 'bigint', 'varchar', 'jsonb', 'bytea', 'mallory.word', 'text[]', 'mallory.part', 'bool', 'name', '"char"', 'cstring');
my %attributes = (comp => [qw(u n t a d x)], flat => [qw(u t x)], part => [qw(n t x)]);
my $number = 0;

sub ddl
{
	my $type  = pick(keys %attributes);
	my $att   = pick(@{ $attributes{$type} });
	my $to    = pick(@{ $attributes{$type} });
	my $any   = pick(@scalars);
	my $kind  = pick(keys %kinds);
	my $table = "shard_entity.\"$kind\"";
	my $col   = pick(qw(u n t a d x w state entity_id shard version updated_at remembered));
	$number++;
	return pick(
		"ALTER TYPE mallory.$type ADD ATTRIBUTE $att $any",
		"ALTER TYPE mallory.$type DROP ATTRIBUTE $att",
		"ALTER TYPE mallory.$type ALTER ATTRIBUTE $att TYPE $any",
		"ALTER TYPE mallory.$type ALTER ATTRIBUTE $att TYPE $any",
		"ALTER TYPE mallory.$type RENAME ATTRIBUTE $att TO $to",
		"ALTER TYPE mallory.$type DROP ATTRIBUTE $att, ADD ATTRIBUTE $att $any",
		"ALTER TABLE mallory.base ADD COLUMN x$number $any",
		"ALTER TABLE mallory.base ALTER COLUMN t TYPE $any USING NULL",
		"ALTER TABLE mallory.tab DROP COLUMN w",
		"ALTER TABLE mallory.tab NO INHERIT mallory.base",
		'ALTER DOMAIN mallory.dom ADD CHECK (mallory.yes(VALUE))',
		"ALTER DOMAIN mallory.word ADD CHECK (length(VALUE) < $number) NOT VALID",
		'DROP DOMAIN mallory.word CASCADE',
		'DROP TYPE mallory.part CASCADE',
		"DROP FUNCTION mallory.\"$kind\"($kinds{$kind}{state}, jsonb)",
		handler($kind),
		"ALTER FUNCTION mallory.\"$kind\"($kinds{$kind}{state}, jsonb) " . pick('STRICT', 'CALLED ON NULL INPUT', 'SECURITY DEFINER', 'IMMUTABLE', 'VOLATILE', 'SET search_path = mallory'),
		"ALTER TABLE $table ADD COLUMN $col $any",
		"ALTER TABLE $table ADD COLUMN x$number int DEFAULT mallory.number($number)",
		"ALTER TABLE $table ADD COLUMN x$number int GENERATED ALWAYS AS (mallory.number(shard)) STORED",
		"ALTER TABLE $table DROP COLUMN $col",
		"ALTER TABLE $table ALTER COLUMN $col TYPE $any USING NULL",
		"ALTER TABLE $table ALTER COLUMN $col DROP NOT NULL",
		"ALTER TABLE $table RENAME COLUMN $col TO " . pick(qw(u n t a d x w state)),
		"ALTER TABLE $table ADD CHECK (mallory.yes(shard))",
		"ALTER TABLE $table SET SCHEMA mallory",
		"ALTER TABLE mallory.\"$kind\" SET SCHEMA shard_entity",
		"ALTER TABLE $table SET (fillfactor = " . (10 + int(rand(90))) . ')',
		"ALTER TABLE $table ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY",
		"CREATE INDEX i$number ON $table ((mallory.number(shard))) WHERE mallory.number(1) = 1",
		"DROP INDEX shard_entity.i" . int(rand($number)),
		"CREATE STATISTICS mallory.s$number ON (mallory.number(1)), (mallory.number(2)) FROM $table",
		"CREATE TRIGGER t$number " . pick('BEFORE', 'AFTER') . " INSERT OR UPDATE ON $table FOR EACH ROW EXECUTE FUNCTION mallory.touch()",
		"CREATE RULE r$number AS ON UPDATE TO $table DO ALSO SELECT mallory.number(1)",
		"CREATE TABLE mallory.child$number () INHERITS ($table)",
		"TRUNCATE $table",
		"DELETE FROM $table",
		"UPDATE $table SET version = version + 1",
		"VACUUM FULL $table",
		"CLUSTER $table USING \"${kind}_pkey\"",
		"REINDEX TABLE $table",
		"LOCK TABLE $table",
		'CREATE TEMP TABLE pg_class ()',
		'DROP SCHEMA mallory CASCADE',
		'ALTER SCHEMA mallory RENAME TO elsewhere; ALTER SCHEMA elsewhere RENAME TO mallory');
}

sub quoted { my ($text) = @_; $text =~ s/\\/\\\\/g; $text =~ s/"/\\"/g; $text =~ s/\n/ /g; $text =~ s/\t/ /g; $text =~ s/'/''/g; return $text }

sub message
{
	my $x = pick('90a90300-4141-4141-4141-414141414141', '01023713-3713-3713-0000-414141414141', '01010000-0000-0000-0000-000000000000', 'ffffffff-ffff-ffff-ffff-ffffffffffff');
	my @fields = (q{"n": } . int(rand(1 << 30)), qq{"x": "$x"});
	push @fields, '"keep": 1' if rand() < 0.3;
	push @fields, '"' . pick('before', 'inside', 'after') . '": "' . quoted(ddl()) . '"' if rand() < 0.3;
	return '{' . join(', ', @fields) . '}';
}

# As psql gets it: what fails, fails.
sub burst
{
	my @statements;
	for (1 .. 30)
	{
		my $kind = pick(keys %kinds);
		my $entity = 'e' . int(rand(8));
		push @statements, rand() < 0.2 ? ddl()
		  : rand() < 0.1 ? "SELECT shard_ask('$kind', '$entity', '" . message() . "', '1 s')"
		  : rand() < 0.1 ? "SELECT shard_try('$kind', '$entity', '" . message() . "')"
		  : "SELECT shard_tell('$kind', '$entity', '" . message() . "')";
	}
	# Some of it together, so that others meet it half done.
	splice @statements, int(rand(@statements)), 0, 'BEGIN', ddl(), "SELECT count(*), max(blocked_by) FROM shard_inbox", ddl(), pick('COMMIT', 'ROLLBACK') if rand() < 0.5;
	return "SET lock_timeout = '500 ms';\nSET client_min_messages = error;\n" . join('', map { "$_;\n" } @statements) . "SELECT 'through';\n";
}

sub run_burst
{
	my ($sql) = @_;
	my ($status, $out, $err) = $node->psql('postgres', $sql, on_error_stop => 0, extra_params => [ '-U', 'mallory' ], timeout => 60);
	return if defined $out && $out =~ /through\s*\z/;
	diag("session ended: $err");
	return "the burst was cut:\n$sql\n$err";
}

my $until = time + $seconds;
my ($bursts, $cut) = (0);
while (time < $until && !defined $cut)
{
	# Two of hers at once, and alice.
	my $beside = $node->session('postgres');
	$beside->send("SET SESSION AUTHORIZATION mallory;\n" . burst());
	$node->safe_psql('postgres', q{SELECT shard_tell('vault', 'v' || i, '{}') FROM generate_series(1, 20) i});
	$cut = run_burst(burst());
	eval { $beside->receive };
	$beside->close;
	$bursts++;

	# What she has ruined she begins anew, now and then, so that there is something to ruin.
	if (rand() < 0.2)
	{
		# What depends on a state table keeps its type from being dropped.
		$node->safe_psql('postgres', join "\n", 'SET client_min_messages = error;',
			(map { qq{DROP TABLE IF EXISTS shard_entity."$_" CASCADE;} } sort keys %kinds),
			'DROP SCHEMA IF EXISTS mallory CASCADE; DROP SCHEMA IF EXISTS elsewhere CASCADE;');
		$node->psql('postgres', join('', map { "SELECT shard_drop_type('$_', force => true);\n" } sort keys %kinds), on_error_stop => 0);
		$node->safe_psql('postgres', q{DELETE FROM shard.dead_letter});
		eval { start_all(); 1 } or $cut = "types cannot be started anew: $@";
	}
}
is($cut, undef, "$bursts times two sessions of hers get through");

# --- what came of it -----------------------------------------------------------------------------

my $log = PostgreSQL::Test::Utils::slurp_file($node->logfile);
unlike($log, qr/terminated by signal|TRAP:|PANIC|AddressSanitizer/, 'no process crashed');
unlike($log, qr/(?:resource was not closed|relcache reference leak|TupleDesc reference leak|cache reference leak|buffer refcount leak)/, 'nothing was left open');
is(as('alice', q{SELECT count(*) FROM shard_entity.vault WHERE secret <> 'alice''s ' || repeat('secret ', 50)}), 0, "others' states are what they were");
is(as('alice', q{SELECT (shard_ask('vault', 'v1', '{}', '60 s')->>'n')::int > 0}), 't', 'and others are served');
my $tables = as('mallory', q{SELECT string_agg(oid::regclass::text, ' ') FROM pg_class WHERE relkind = 'r' AND relowner = 'mallory'::regrole});
my @seen;
for my $table (split / /, $tables // '')
{
	my (undef, $found) = $node->psql('postgres', qq{SELECT count(*) FROM $table r WHERE r::text LIKE '%alice''s secret%'}, extra_params => [ '-U', 'mallory' ]);
	push @seen, $table if ($found // '') =~ /^[1-9]/;
}
is("@seen", '', 'none of hers has anything of them');
is($node->safe_psql('postgres', q{SELECT rolsuper FROM pg_roles WHERE rolname = 'mallory'}), 'f', 'she is no superuser');
done_testing();
