# Messages of an ordered type that failed are sent again with shard_redrive(): their numbers were passed when they failed, so they are
# handled at once; and those that were given up for their number stay given up.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use Test::More;

my $node = ShardCluster->create('again', conf => 'shard.region_workers = 1');
$node->start_recorder;
$node->safe_psql('postgres', q{
	CREATE FUNCTION number(message jsonb) RETURNS int8 LANGUAGE sql RETURN (message->>'seq')::int8;
	CREATE FUNCTION adds(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql
	RETURN to_jsonb(coalesce(state #>> '{}', '') || (message->>'seq') || '/' || (10 / (message->>'by')::int) || ' ');
	SELECT shard_start('adds', 'adds(jsonb,jsonb)', 4, ordered_by => 'number', ordered_from => 1, max_attempts => 1)});
sub state { return $node->safe_psql('postgres', q{SELECT state #>> '{}' FROM shard_entity.adds}) }
sub letters { return $node->safe_psql('postgres', q{SELECT string_agg(sqlstate, ',' ORDER BY id) FROM shard_dead_letters}) }
sub game
{
	my ($seq, $by) = @_;
	$node->safe_psql('postgres', qq{SELECT shard_tell('adds', 'one', '{"seq": $seq, "by": $by}')});
	return;
}
game(1, 5);
game($_, 0) for 2, 3;
game(6, 0); # waits for 4 and 5 before it fails
game(4, 5);
game(4, 5);
game(5, 5);
$node->drain;
is(state(), '1/2 4/2 5/2 ', 'what did not fail');
is(letters(), '22012,22012,23505,22012', 'what failed, and a number that was sent twice');

# The handler is mended for what cannot be divided.
$node->safe_psql('postgres', q{CREATE OR REPLACE FUNCTION adds(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql
	RETURN to_jsonb(coalesce(state #>> '{}', '') || (message->>'seq') || '/' || coalesce(10 / nullif((message->>'by')::int, 0), 0) || ' ')});
is($node->safe_psql('postgres', q{SELECT shard_redrive(type_name => 'adds')}), 4, 'all are sent again');
$node->drain;
is(state(), '1/2 4/2 5/2 2/0 3/0 6/0 ', 'those that failed are handled, once');
is(letters(), '23505', 'the one sent twice is not');
game(7, 5);
$node->drain;
is(state(), '1/2 4/2 5/2 2/0 3/0 6/0 7/2 ', 'the order goes on');

# One that fails again, and across a restart.
$node->safe_psql('postgres', q{CREATE OR REPLACE FUNCTION adds(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql
	RETURN to_jsonb(coalesce(state #>> '{}', '') || (message->>'seq') || '/' || (10 / (message->>'by')::int) || ' ')});
game(8, 0);
$node->drain;
for (1, 2)
{
	is($node->safe_psql('postgres', q{SELECT shard_redrive(array_agg(id)) FROM shard_dead_letters WHERE sqlstate = '22012'}), 1, 'sent again');
	$node->drain;
	is(letters(), '23505,22012', 'it keeps its cause');
}
$node->restart;
$node->safe_psql('postgres', q{CREATE OR REPLACE FUNCTION adds(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql
	RETURN to_jsonb(coalesce(state #>> '{}', '') || (message->>'seq') || '/' || coalesce(10 / nullif((message->>'by')::int, 0), 0) || ' ')});
$node->safe_psql('postgres', q{SELECT shard_redrive(array_agg(id)) FROM shard_dead_letters WHERE sqlstate = '22012'});
$node->drain;
is(state(), '1/2 4/2 5/2 2/0 3/0 6/0 7/2 8/0 ', 'it is handled in the end');
# A turn ends with the failure of a message whose number was expected. What has no number and fails when the turn is done again
# is a dead letter like any other (kind 1, and not 7).
$node->safe_psql('postgres', q{
	CREATE SEQUENCE calls;
	CREATE FUNCTION plain(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql
	AS $$ BEGIN IF message->>'warm' IS NULL AND nextval('calls') > 1 THEN RAISE 'the second time'; END IF; RETURN '1'; END $$;
	CREATE OR REPLACE FUNCTION adds(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql
	RETURN to_jsonb(coalesce(state #>> '{}', '') || (message->>'seq') || '/' || (10 / (message->>'by')::int) || ' ');
	SELECT shard_start('plain', 'plain(jsonb,jsonb)', 1, max_attempts => 1)});
$node->safe_psql('postgres', q{SELECT shard_ask('plain', 'one', '{"warm": true}', '60 s')});
$node->safe_psql('postgres', q{BEGIN;
	SELECT shard_tell('plain', 'one', '{}'), shard_tell('adds', 'one', '{"seq": 9, "by": 0}');
	COMMIT});
$node->drain;
cmp_ok($node->safe_psql('postgres', q{SELECT last_value FROM calls}), '>', 1, 'a message is handled again, since one behind it failed');
is($node->safe_psql('postgres', q{SELECT string_agg(t.type_name || ' ' || d.kind, ', ' ORDER BY d.id)
	FROM shard.dead_letter d JOIN shard.type t USING (type_id) WHERE d.id > (SELECT min(id) FROM shard.dead_letter)}),
	'plain 1, adds 7', 'only what had a number is sent again without it');
$node->log_is_clean(qr/became a dead letter/);

done_testing();
