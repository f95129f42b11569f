# An owner for whom there is no region worker (shard.max_region_workers): his messages are taken into the stash by a worker that
# runs nobody's code. shard_drain() does not call them handled, they keep no segment of the inbox, so that nobody else is
# refused, and a full buffer refuses his senders. When there is a worker they are handled, in order.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use Test::More;

my $node = ShardCluster->create('first', conf => "shard.region_workers = 1\nshard.max_region_workers = 1\nshard.inbox_max_size = '8MB'");
$node->create_owners('alice', 'bob');
$node->as('alice', q{
CREATE FUNCTION alice.h(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN to_jsonb(coalesce(state::int, 0) + 1);
SELECT shard_start('ta', 'alice.h')});
$node->wait_until('SELECT ok FROM shard_health()', 'a worker of alice');
$node->as('bob', q{
CREATE FUNCTION bob.h(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN coalesce(state, '[]') || message;
SELECT shard_start('tb', 'bob.h', buffer_size => 30)});
$node->wait_until(q{SELECT problems::text ~ 'types of bob have no region worker, and their messages wait' FROM shard_health()}, 'bob to wait');

my $batch = q{SELECT count(shard_tell('ta', i::text, jsonb_build_object('x', repeat('x', 1000)))) FROM generate_series(1, 500) i};
my $flood = sub {
	my ($what) = @_;
	my $refused = 0;
	for (1 .. 40)
	{
		my ($status, undef, $error) = $node->psql('postgres', $batch);
		$refused++ if $status != 0;
		diag($error) if $status != 0;
		$node->wait_until(q{SELECT NOT EXISTS (SELECT FROM shard_inbox WHERE type_name = 'ta')}, 'what alice was sent');
	}
	is($refused, 0, "alice's messages, two and a half times the inbox, are taken: $what");
	return;
};
$flood->('bob waits, with nothing');

# What waits is told from what is handled, and is safe from a crash.
$node->safe_psql('postgres', q{SELECT shard_tell('tb', 'x', to_jsonb(i)) FROM generate_series(1, 20) i});
is($node->safe_psql('postgres', q{SELECT shard_drain('3 s')}), 'f', 'shard_drain() says that something waits');
is($node->safe_psql('postgres', q{SELECT count(*) FROM shard_inbox WHERE type_name = 'tb'}), 20, 'which is there');
my (undef, undef, $error) = $node->psql('postgres', q{\set VERBOSITY verbose
SELECT shard_ask('tb', 'x', '0', '60 s')});
like($error, qr/ERROR:  55000: entity type "tb" cannot run at node 1\nDETAIL:  Its owner has no region worker there: shard.max_region_workers is 1/,
	'who asks is told why');
$flood->('bob waits, with messages');
$node->crash;
$node->start;
$node->safe_psql('postgres', q{SELECT shard_tell('tb', 'x', to_jsonb(i)) FROM generate_series(21, 40) i});
$node->wait_until(q{SELECT problems::text ~ 'the buffer of entity type ."tb." is full' FROM shard_health()}, 'the buffer to be full');
(undef, undef, $error) = $node->psql('postgres', q{\set VERBOSITY verbose
SELECT shard_tell('tb', 'y', '0')});
like($error, qr/ERROR:  53400: .*buffer/, 'his senders are refused');
is($node->safe_psql('postgres', q{SELECT shard_ask('ta', '1', '{}', '60 s')}), 81, "alice's are not");

is($node->safe_psql('postgres', q{SELECT count(*) FROM shard_stat_workers WHERE owners = '' AND pid IS NOT NULL}), 1, 'one worker is nobody\'s');
my $setting = sub { my ($name, $value) = @_; $node->safe_psql('postgres', "ALTER SYSTEM SET $name = $value"); $node->reload; return; };
$setting->('shard.max_region_workers', 2);
$node->wait_until(q{SELECT shard_drain('5 s')}, 'all to be handled once there is a worker');
is($node->safe_psql('postgres', q{SELECT state FROM shard_entity.tb WHERE entity_id = 'x'}), '[' . join(', ', 1 .. 40) . ']', 'once, in order');
is($node->safe_psql('postgres', q{SELECT jsonb_array_length(shard_ask('tb', 'x', '41', '60 s'))}), 41, 'and asks are answered');

# An owner who had a worker may lose it.
$setting->('shard.max_region_workers', 1);
$node->wait_until(q{SELECT problems::text ~ 'types of bob have no region worker' FROM shard_health()}, 'bob to wait again');
$node->safe_psql('postgres', q{SELECT shard_tell('tb', 'x', '42')});
$flood->('bob waits again');
$setting->('shard.owners_may_share_workers', 'on');
$node->wait_until(q{SELECT shard_drain('5 s')}, 'all to be handled when he may share');
is($node->safe_psql('postgres', q{SELECT jsonb_array_length(state) FROM shard_entity.tb WHERE entity_id = 'x'}), 42, 'once');
$node->log_is_clean(qr/lane \d+ is still owned by another region worker/);
done_testing();
