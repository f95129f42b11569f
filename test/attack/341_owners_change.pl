# C03 to C09, of our own thinking: the owner of a type that the cluster has is another one at a node: because two took
# the name at once, a table was given away, a role was renamed or is missing, or a database joins that brings the name
# along. It runs nowhere where its owner is not the cluster's, no shard goes between tables of two owners, and nothing is lost.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use ShardOwners;
use Test::More;

my $cluster = ShardNodes->create(2);
my ($one, $two) = $cluster->nodes;
ShardOwners::create_roles($_, 'alice', 'mallory') for $cluster->nodes;

# --- C03: both at once ---------------------------------------------------------------------------

for my $round (1 .. 4)
{
	my $name = "race$round";
	my %session = (alice => $one->session, mallory => $two->session);
	$session{$_}->query("SET SESSION AUTHORIZATION $_;") for keys %session;
	$session{$_}->send("SELECT shard_start('$name', '$_.keep');") for $round % 2 ? qw(alice mallory) : qw(mallory alice);
	my %error;
	for my $role (keys %session)
	{
		eval { $session{$role}->receive; 1 } or $error{$role} = $@;
	}
	is(scalar keys %error, 1, "C03: of two who take a name at once one has it ($round)");
	like((values %error)[0] // '', qr/permission denied to start entity type "$name"/, 'C03: the other one is told so');
	my @owners = map { split /\n/, $_->sql("SELECT owner FROM shard_types WHERE type_name = '$name'") } $one, $two;
	is(scalar @owners, 1, "C03: there is one, @owners");
}

# --- a type that both nodes host -----------------------------------------------------------------

ShardOwners::as($one, 'alice', q{SELECT shard_start('bank', 'alice.keep', number_of_shards => 8)});
ShardOwners::as_eventually($two, 'alice', q{SELECT shard_start('bank', 'alice.keep', number_of_shards => 8)});
$cluster->wait_registered;
my @here = $cluster->entities_at('bank', 1, 2);
my ($there, $other) = $cluster->entities_at('bank', 2, 2);
ShardOwners::as($one, 'alice', qq{SELECT shard_ask('bank', e, '{"n": 1}', '30 s') FROM unnest(ARRAY['$here[0]', '$there', '$other']) e});
my $problem = q{SELECT coalesce(problem, 'none') FROM shard_types WHERE type_name = 'bank'};
my $belongs = q{it belongs to role "alice" in the cluster, and here to role "mallory"};

# --- C04: dropped here, and started as another one's -----------------------------------------------

ShardOwners::as($one, 'alice', q{SELECT shard_start('shop', 'alice.keep')});
ShardOwners::as_eventually($two, 'alice', q{SELECT shard_start('shop', 'alice.keep')});
ShardOwners::as($two, 'alice', q{SELECT shard_drop_type('shop')});
like(ShardOwners::refused($two, 'mallory', q{SELECT shard_start('shop', 'mallory.keep')}) // 'none', qr/42501.*belongs to role "alice"/s,
	'C04: what is dropped at one node, and hosted elsewhere, is nobody else\'s');

# --- C05: the table is given away ----------------------------------------------------------------

$two->sql('GRANT alice TO mallory; GRANT CREATE ON SCHEMA shard_entity TO mallory');
$two->sql('ALTER TABLE shard_entity.bank OWNER TO mallory');
$two->wait_value($problem, $belongs, 'the type to be suspended where its owner is another one');
$two->sql('REVOKE alice FROM mallory');
ShardOwners::as($one, 'alice', qq{SELECT shard_tell('bank', '$there', '{"n": 2}')});
my $error = ShardOwners::refused($two, 'mallory', qq{SELECT shard_tell('bank', '$here[0]', '{"n": 666}')});
like($error // 'none', qr/55000.*in the cluster to role "alice"/s, 'C05: nobody sends from there');
$error = ShardOwners::refused($two, 'mallory', qq{SELECT shard_ask('bank', '$there', '{"n": 666}')});
like($error // 'none', qr/55000/, 'C05: nor asks');
like($two->sql(q{SELECT array_to_string(problems, ' ') FROM shard_health()}), qr/entity type "bank" is suspended: \Q$belongs\E/, 'C05: health says so');
my ($shard_there) = $cluster->shard_of('bank', $there);
my (undef, undef, $moved) = $one->try("SELECT shard_move('bank', $shard_there, 1)");
like($moved, qr/belongs to role "mallory" on node 2, and to role "alice" on node 1/, 'C05: no shard leaves her table');
my ($shard_here) = $cluster->shard_of('bank', $here[0]);
(undef, undef, $moved) = $one->try("SELECT shard_move('bank', $shard_here, 2)");
like($moved, qr/does not host/, 'C05: nor comes into it');
is(ShardOwners::as($one, 'alice', qq{SELECT shard_ask('bank', '$here[0]', '{}', '30 s')->>'n'}), 1, 'C05: the rest goes on');
$error = ShardOwners::refused($two, 'mallory', q{SELECT shard_alter('bank', 'owner', 'mallory')});
like($error // 'none', qr/42501.*belongs to role "alice" in the cluster/s, 'C05: she cannot make it hers in the cluster');
$two->sql(q{SELECT shard_alter('bank', 'owner', 'alice')});
$two->wait_value($problem, 'none', 'the type to run again');
$one->wait_until(qq{SELECT shard_ask('bank', '$there', '{}', '30 s')->>'n' = '2'}, 'what waited to be handled');
is($one->sql(qq{SELECT shard_ask('bank', '$there', '{}', '30 s')->>'by'}), 'alice', 'C05: by its owner');

ShardOwners::as($one, 'alice', q{SELECT shard_start('kiosk', 'alice.keep')});
ShardOwners::as_eventually($two, 'alice', q{SELECT shard_start_proxy('kiosk')});

# --- C06: a role is renamed ----------------------------------------------------------------------

$two->sql('ALTER ROLE alice RENAME TO alicia');
$two->wait_value($problem, 'it belongs to role "alice" in the cluster, and here to role "alicia"', 'the type to be suspended where its owner has another name');
$two->wait_until(q{SELECT array_to_string(problems, ' ') ~ 'entity type "kiosk" is suspended: it belongs to role "alice"' FROM shard_health()},
	'health to name a proxy, too, from which nobody can send');
$one->sql(qq{SELECT shard_tell('bank', '$there', '{"n": 3}')});
$two->sql('CREATE ROLE alice LOGIN; GRANT CREATE ON DATABASE postgres TO alice');
$error = ShardOwners::refused($two, 'alice', q{SELECT shard_start('bank', 'mallory.keep', number_of_shards => 8)});
like($error // 'none', qr/42501/, 'C06: who has the name now does not get it');
is(ShardOwners::refused($two, 'alicia', q{SELECT shard_alter('bank', 'owner', 'alicia')}) =~ /42501/, 1, 'C06: she who has another name now cannot take it along, as the old one is somebody else');
$two->sql('DROP OWNED BY alice; DROP ROLE alice');
$one->sql('ALTER ROLE alice RENAME TO alicia');
$two->sql(q{SELECT shard_alter('bank', 'owner', 'alicia')});
$_->wait_value($problem, 'none', 'the type to run under the new name') for $one, $two;
$one->wait_until(qq{SELECT shard_ask('bank', '$there', '{}', '30 s')->>'n' = '3'}, 'what waited to be handled');
is($one->sql(qq{SELECT shard_ask('bank', '$here[0]', '{}', '30 s')->>'n'}), 1, 'C06: here and there');
$_->sql('ALTER ROLE alicia RENAME TO alice') for $one, $two;
$one->sql(q{SELECT shard_alter('bank', 'owner', 'alice')});
$_->wait_value($problem, 'none', 'the type to run under the old name') for $one, $two;

# --- C07: a role that only one node has ------------------------------------------------------------

ShardOwners::create_roles($one, 'carol');
ShardOwners::as($one, 'carol', q{SELECT shard_start('safe', 'carol.keep')});
my $missing = '';
$two->wait_until(q{SELECT count(*) > 0 FROM shard_members}, 'an answer');
ShardCluster::wait_for_condition(
	sub {
		(undef, undef, $missing) = $two->try(q{SELECT shard_start('safe', 'mallory.keep')});
		return $missing =~ /does not exist/;
	},
	'node 2 to know the type');
like($missing, qr/role "carol" does not exist at this node.*Entity type "safe" belongs to it in the cluster.*CREATE ROLE/s, 'C07: what is missing is said');
$error = ShardOwners::refused($two, 'mallory', q{SELECT shard_start('safe', 'mallory.keep')});
like($error // 'none', qr/42704|42501/, 'C07: nor can others start it');

# --- C08: a database that brings the name along ----------------------------------------------------

my $third = $cluster->add_node;
$cluster->has_left(3);
ShardOwners::create_roles($third, 'mallory');
ShardOwners::as($third, 'mallory', q{SELECT shard_start('bank', 'mallory.keep', number_of_shards => 8)});
my ($seed, $own) = ($one->dsn, $third->dsn);
my (undef, undef, $join) = $third->try("SELECT shard_join('$seed', '$own')");
like($join, qr/type "bank" has other settings in the cluster: its owner is "alice" in the cluster, "mallory" on the node/, 'C08: it does not join, and hears why');
$third->sql('CREATE ROLE alice LOGIN; GRANT USAGE ON SCHEMA mallory TO alice; GRANT EXECUTE ON FUNCTION mallory.keep TO alice');
$third->sql(q{SELECT shard_alter('bank', 'owner', 'alice')});
is($third->eventually("SELECT shard_join('$seed', '$own')"), 3, 'with the same owner it does');

# --- C09: the owner gives it away ------------------------------------------------------------------

$error = ShardOwners::refused($one, 'alice', q{SELECT shard_alter('bank', 'owner', 'mallory')});
like($error // 'none', qr/42501.*Only members of that role/s, 'C09: not to whom she does not belong');
$error = ShardOwners::refused($one, 'mallory', q{SELECT shard_alter('bank', 'owner', 'mallory')});
like($error // 'none', qr/42501/, 'C09: nor does the other one take it');

# --- C10: the owner was dropped at one node --------------------------------------------------------

ShardOwners::create_roles($_, 'eve') for $one, $two;
ShardOwners::as($one, 'eve', q{SELECT shard_start('left', 'eve.keep', number_of_shards => 8)});
ShardOwners::as_eventually($two, 'eve', q{SELECT shard_start('left', 'eve.keep', number_of_shards => 8)});
$cluster->wait_registered;
my ($left) = $cluster->entities_at('left', 2, 1);
ShardOwners::as($two, 'eve', qq{SELECT shard_ask('left', '$left', '{"n": 1}', '30 s')});
$two->sql('DROP OWNED BY eve CASCADE; DROP ROLE eve');
$two->wait_until(q{SELECT problem ~ 'which was dropped' FROM shard_types WHERE type_name = 'left'}, 'the type to be suspended there');
my $left_shard = $cluster->shard_of('left', $left);
for (1 .. 2)
{
	(undef, undef, $moved) = $one->try("SELECT shard_move('left', $left_shard, 1)");
	like($moved, qr/belongs to role \d+, which was dropped on node 2, and to role "eve" on node 1/, 'C10: no shard leaves the table of nobody, which is said');
}
$cluster->logs_are_clean;
done_testing();
