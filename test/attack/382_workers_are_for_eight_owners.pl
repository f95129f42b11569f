# There are workers for eight owners. The ninth is refused, so that he cannot hold up others (D04 to D09), unless the
# administrator says that owners may share; so it is where the administrator has set a bound for workers. Who
# shares, who waits, and for whom there is no process, shard_health says.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use Test::More;

my $node = ShardCluster->create('first', conf => "shard.region_workers = 1\nshard.owner_workers_keep = 0");
$node->safe_psql('postgres', q{
CREATE FUNCTION echo(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN message;
DO $$ BEGIN FOR i IN 1 .. 10 LOOP
	EXECUTE format('CREATE ROLE owner%s LOGIN; GRANT CREATE ON DATABASE postgres TO owner%s', i, i);
END LOOP; END $$;
});

sub as { return $node->as(@_) }

sub problem
{
	my ($pattern, $what) = @_;
	$node->wait_until("SELECT problems::text ~ '$pattern' FROM shard_health()", $what);
	return pass($what);
}

sub setting
{
	my ($name, $value) = @_;
	$node->safe_psql('postgres', "ALTER SYSTEM SET $name = $value");
	return $node->reload;
}

sub all_answer
{
	my ($what, @owners) = @_;
	is(join(' ', map { $node->safe_psql('postgres', qq{SELECT shard_ask('type$_', 'a', '"$_"', '60 s')}) } @owners),
		join(' ', map { qq{"$_"} } @owners), $what);
	return;
}

as("owner$_", "SELECT shard_start('type$_', 'echo')") for 1 .. 8;
$node->wait_until('SELECT count(pid) = 8 FROM shard_stat_workers', 'eight workers');
is($node->safe_psql('postgres', 'SELECT count(DISTINCT type_id % 8) FROM shard.type'), 8, 'eight owners have eight groups');
all_answer('all of them are answered', 1 .. 8);

my ($rc, $out, $err) = $node->psql('postgres', q{\set VERBOSITY verbose
SELECT shard_start('type9', 'echo')}, extra_params => [ '-U', 'owner9' ]);
like($err, qr/ERROR:  53400: cannot start entity type "type9": too many owners of entity types\nDETAIL:  8 owners .*\nHINT:  .*shard\.owners_may_share_workers/,
	'the ninth owner is refused');
as('owner8', q{SELECT shard_start('type80', 'echo')});
pass('who has types may have more');

# Owners may share.
setting('shard.owners_may_share_workers', 'on');
$node->wait_until(q{SELECT setting = 'on' FROM pg_settings WHERE name = 'shard.owners_may_share_workers'}, 'the setting');
as('owner9', q{SELECT shard_start('type9', 'echo')});
$node->wait_until(q{SELECT count(*) = 1 FROM shard_stat_workers WHERE owners LIKE '%, %'}, 'one worker with two owners');
all_answer('then the ninth shares with one of them', 1 .. 9);
$node->wait_until('SELECT ok FROM shard_health()', 'nobody to complain of what is allowed');
setting('shard.owners_may_share_workers', 'off');
problem('types of owner\d, owner\d share worker \d: what one of these owners does holds up', 'who shares without leave is named');
as('owner9', q{SELECT shard_drop_type('type9', force => true)});
$node->wait_until('SELECT ok FROM shard_health()', 'the end of that');

# A type that changes hands stays where it is.
$node->safe_psql('postgres', 'ALTER TABLE shard_entity.type80 OWNER TO owner7');
problem('types of owner7, owner8 share worker \d', 'who shares since a type has changed hands is named');
as('owner7', q{SELECT shard_drop_type('type80', force => true)});
$node->wait_until('SELECT ok FROM shard_health()', 'the end of that');

# The administrator's bound: who came last waits; or shares.
my $pids = q{SELECT string_agg(pid::text, ' ' ORDER BY worker) FROM shard_stat_workers WHERE worker < 6};
my $before = $node->safe_psql('postgres', $pids);
setting('shard.max_region_workers', 6);
problem('types of \w+, \w+ have no region worker, and their messages wait: shard.max_region_workers is 6', 'who waits is named');
$node->wait_until(q{SELECT count(pid) = 6 AND count(*) = 6 FROM shard_stat_workers WHERE owners <> ''}, 'six workers');
is($node->safe_psql('postgres', $pids), $before, 'the others go on');
($rc, $out, $err) = $node->psql('postgres', join ';', map { "SELECT shard_ask('type$_', 'a', '1', '1 s')" } 1 .. 8);
like($err, qr/entity type "type\d" cannot run at node 1/, 'who asks one of them is told');
setting('shard.owners_may_share_workers', 'on');
all_answer('or they share', 1 .. 8);
setting('shard.owners_may_share_workers', 'off');
setting('shard.max_region_workers', 64);
$node->wait_until('SELECT count(pid) = 8 FROM shard_stat_workers', 'eight workers');
all_answer('they have their own again', 1 .. 8);

# No slot in the server.
setting('max_worker_processes', 8);
$node->restart;
problem('worker \d, for types of owner\d, does not run: no background worker slot is free; raise max_worker_processes, which is 8', 'a missing slot is told');

$node->log_is_clean(qr/lane \d+ is still owned by another region worker/);
done_testing();
