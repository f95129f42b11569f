# The extension is made in a database of any encoding, an id has the same shard in all of them, and entities
# are told apart byte by byte, whatever collations say.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use Test::More;

my $node = ShardCluster->create('first', extension => 0);

# Sends to an id that is not ASCII, and to one of each length that might be read beyond its end.
sub count_in
{
	my ($db, $id) = @_;
	return $node->safe_psql($db, qq{
SELECT shard_tell('counter', $id, '{}') FROM generate_series(1, 3);
SELECT shard_ask('counter', $id, '{}', '60 s');
}) =~ s/\n+/ /gr;
}

my %shard;
# Ideographs and letters with accents, as code points.
my %sample = (UTF8 => 233, LATIN1 => 233, LATIN9 => 233, WIN1252 => 233, EUC_JP => 26085, EUC_KR => 26085, EUC_CN => 26085, SQL_ASCII => 65);
for my $encoding (sort keys %sample)
{
	my $db = "db_\L$encoding";
	$node->safe_psql('postgres', "CREATE DATABASE $db ENCODING '$encoding' LC_COLLATE 'C' LC_CTYPE 'C' TEMPLATE template0");
	my ($status, undef, $error) = $node->psql($db, 'CREATE EXTENSION shard');
	is($status, 0, "a database with encoding $encoding has the extension") or do { diag($error); next };
	$node->safe_psql($db, q{
CREATE FUNCTION counter(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN to_jsonb(coalesce(state::int, 0) + 1);
SELECT shard_start('counter', 'counter')});
	# chr() takes code points in UTF-8 alone
	my $id = "convert_from('\\x" . unpack('H*', do { my $c = chr $sample{$encoding}; utf8::encode($c); $c }) . "', 'UTF8')";
	$id = "'A'" if $encoding eq 'SQL_ASCII';
	like(count_in($db, $id), qr/4\s*$/, "entities of $encoding count");
	is($node->safe_psql($db, "SELECT entity_id = $id FROM shard_entity.counter"), 't', "ids of $encoding are kept");
	push @{ $shard{ $sample{$encoding} } }, $node->safe_psql($db, "SELECT shard_shard_id('counter', $id)");

	# A column of varying ids before it: what lies behind an empty one differs from row to row.
	my $empty = q{SELECT string_agg(DISTINCT shard_shard_id('counter', left(before, 0))::text, ' ') FROM (VALUES ('a'), ('bcd'), (repeat('e', 50)), (repeat('f', 300))) AS v (before)};
	push @{ $shard{''} }, $node->safe_psql($db, $empty);
	push @{ $shard{''} }, $node->safe_psql($db, $empty =~ s/'counter', (left\(before, 0\))/$1, 1000, 'murmur2'/r);
}
is_deeply([ map { my %seen = map { $_ => 1 } @$_; scalar keys %seen } values %shard ], [ (1) x keys %shard ], 'an id has the same shard in all of them, the empty one, too')
  or diag(explain(\%shard));

# ---- collations ---------------------------------------------------------------------------------

SKIP:
{
	my $db = 'db_utf8';
	my ($status) = $node->psql($db, q{CREATE COLLATION nobody_cares (provider = icu, locale = 'und-u-ks-level2', deterministic = false)});
	skip 'the server has no ICU', 1 if $status != 0;

	# All that is ours compares ids bytewise.
	is($node->safe_psql($db, q{SELECT string_agg(attrelid::regclass || '.' || attname, ' ') FROM pg_attribute
		WHERE attrelid IN (SELECT oid FROM pg_class WHERE relnamespace = 'shard'::regnamespace AND relkind = 'r')
			AND attname IN ('entity', 'src_entity') AND attcollation <> '"C"'::regcollation}), '', 'ids in tables of ours have collation "C"');

	# Of a type whose table says that "a" is "A" nothing is handled, and it says why.
	$node->safe_psql($db, q{SELECT shard_tell('counter', 'a', '{}')});
	$node->drain($db);
	$node->safe_psql($db, q{ALTER TABLE shard_entity.counter ALTER entity_id TYPE text COLLATE nobody_cares});
	$node->safe_psql($db, q{SELECT shard_tell('counter', 'A', '{}')});
	$node->wait_until(q{SELECT problem LIKE '%nondeterministic%' FROM shard_types WHERE type_name = 'counter'}, 'the type to be suspended', $db);
	is($node->safe_psql($db, q{SELECT count(*) FROM shard_inbox WHERE entity_id = 'A'}), 1, 'a message waits');
	my (undef, undef, $error) = $node->psql($db, qq{\\set VERBOSITY verbose\nSELECT shard_ask('counter', 'A', '{}')});
	like($error, qr/55000/, 'an ask is refused');
	$node->safe_psql($db, q{ALTER TABLE shard_entity.counter ALTER entity_id TYPE text COLLATE "C"});
	$node->drain($db);
	is($node->safe_psql($db, q{SELECT string_agg(entity_id || ' ' || state, ', ' ORDER BY entity_id) FROM shard_entity.counter WHERE entity_id IN ('a', 'A')}),
		'A 1, a 1', 'mended, it is handled');
}

$node->log_is_clean(qr/cannot run/);
done_testing();
