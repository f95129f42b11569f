# D10: a role has as many types as it may have, gives their tables to another one, and starts more. They are its own
# until the other one says that it wants them, and then the other one's.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use Test::More;

my $server = ShardCluster->create('node');
$server->create_owners('mallory');
$server->safe_psql('postgres', <<'SQL');
CREATE ROLE grp;
GRANT grp TO mallory;
GRANT CREATE ON SCHEMA mallory TO grp;
CREATE FUNCTION h(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN message;
ALTER ROLE mallory SET shard.max_types_per_owner = 2;
SQL

sub answer
{
	my ($sql) = @_;
	my ($status, undef, $err) = $server->psql('postgres', "\\set VERBOSITY verbose\n$sql", extra_params => [ '-U', 'mallory' ]);
	return $status == 0 ? 'done' : $err;
}
sub give
{
	my ($type) = @_;
	my $schema = $server->safe_psql('postgres', "SELECT schemaname FROM pg_tables WHERE tablename = '$type'");
	return answer(($schema eq 'mallory' ? '' : "ALTER TABLE shard_entity.$type SET SCHEMA mallory;") . "ALTER TABLE mallory.$type OWNER TO grp");
}
my $full = sub { my ($role) = @_; return qr/ERROR:\s+53400: role "$role" has too many entity types\nDETAIL:\s+It has 2;/ };

is(answer("SELECT shard_start('t$_', 'h')"), 'done', "type $_ of two") for 1, 2;
like(answer(q{SELECT shard_start('t3', 'h')}), $full->('mallory'), 'no third one');
is(answer(q{ALTER TABLE shard_entity.t2 SET SCHEMA mallory; CREATE INDEX ON mallory.t2 (version); ALTER TABLE mallory.t2 ADD UNIQUE (entity_id); SELECT shard_tell('t2', 'a', '{"n": 1}')}),
	'done', 'a table may be moved, to have an index');
$server->wait_until(q{SELECT count(*) = 1 FROM mallory.t2 WHERE state->>'n' = '1'}, 'its type to go on there');
is(give('t1'), 'done', 'one is given away');
like(answer(q{SELECT shard_start('t3', 'h')}), $full->('mallory'), 'D10: which makes no room');
is(answer(q{SELECT shard_alter('t1', 'owner', 'grp')}), 'done', 'the other role wants it');
is(answer(q{SELECT shard_start('t3', 'h')}), 'done', 'and has it from then on');
is(give('t2'), 'done', 'the next one');
is(answer(q{SELECT shard_alter('t2', 'owner', 'grp')}), 'done', 'is wanted, too');
is(give('t3'), 'done', 'a third one is given');
like(answer(q{SELECT shard_alter('t3', 'owner', 'grp')}), $full->('grp'), 'D10: but the other role has as many as it may have');
is(answer(q{SELECT shard_alter('t1', 'owner', 'grp')}), 'done', 'to say so again of one that it has is none more');
$server->log_is_clean;
done_testing();
