# C01, C02: a role of one node takes the entities of another role's type, which another node has: as a host, to which
# shards are rebalanced, or as a proxy, through which she asks. In the cluster a type belongs to the role of that
# name, and only its members start it.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use ShardOwners;
use Test::More;

my $cluster = ShardNodes->create(2, conf => 'shard.rebalance_interval = 1s');
my ($one, $two) = $cluster->nodes;
ShardOwners::create_roles($_, 'alice', 'mallory') for $cluster->nodes;

# --- C01: as a host ------------------------------------------------------------------------------

my $ids = q{(SELECT array_agg('iban-' || i) FROM generate_series(1, 40) i)};
ShardOwners::as($one, 'alice', q{SELECT shard_start('bank', 'alice.keep', number_of_shards => 4)});
$cluster->wait_registered($one);
ShardOwners::as($one, 'alice', qq{SELECT shard_tell('bank', id, '{"balance": 100}') FROM unnest($ids) id});
$cluster->drain;
$two->wait_until(q{SELECT count(*) = 4 FROM shard_homes WHERE type_name = 'bank'}, 'node 2 to know of the type');

my $error = ShardOwners::refused($two, 'mallory', q{SELECT shard_start('bank', 'mallory.keep', number_of_shards => 4)});
like($error // 'none', qr/ERROR:\s+42501: permission denied to start entity type "bank"/, 'C01: another role does not start it elsewhere');
like($error // '', qr/DETAIL:\s+It belongs to role "alice" in the cluster\./, 'C01: whose it is is said');
like($error // '', qr/HINT:\s+Members of that role/, 'C01: and who may');
is($two->sql(q{SELECT to_regclass('shard_entity.bank') IS NULL AND NOT EXISTS (SELECT FROM shard_types WHERE type_name = 'bank')}),
	't', 'C01: nothing of it is there');

# --- C02: as a proxy -----------------------------------------------------------------------------

$error = ShardOwners::refused($two, 'mallory', q{SELECT shard_start_proxy('bank', handler => 'mallory.keep')});
like($error // 'none', qr/42501: permission denied to start entity type "bank"/, 'C02: nor as a proxy');
like($error // '', qr/belongs to role "alice" in the cluster/, 'C02: whose it is is said');
$error = ShardOwners::refused($two, 'mallory', q{SELECT shard_ask('bank', 'iban-1', '{"balance": 0}')});
like($error // 'none', qr/42704/, 'C02: so she asks nobody');
is(ShardOwners::as($one, 'alice', q{SELECT string_agg(DISTINCT state->>'balance', ' ') FROM shard_entity.bank}), '100', 'C02: what is there stays');
is($one->sql(q{SELECT string_agg(DISTINCT node::text, ' ') FROM shard_homes WHERE type_name = 'bank'}), '1', 'C01: and stays where it is');

# --- who may -------------------------------------------------------------------------------------

$two->sql('CREATE ROLE teller LOGIN IN ROLE alice; GRANT CREATE ON DATABASE postgres TO teller');
ShardOwners::as($two, 'teller', q{SELECT shard_start_proxy('bank')});
is($two->sql(q{SELECT mode, owner FROM shard_types WHERE type_name = 'bank'}), 'proxy|alice', "a member makes it a proxy, which is alice's");
like(ShardOwners::as($two, 'alice', q{SELECT shard_ask('bank', 'iban-1', '{}', '30 s')}), qr/"balance": 100/, 'she asks through it');
$error = ShardOwners::refused($two, 'mallory', q{SELECT shard_start('bank', 'mallory.keep', number_of_shards => 4)});
like($error // 'none', qr/42501/, 'C01: a proxy makes it nobody else\'s');
ShardOwners::as($two, 'alice', q{SELECT shard_start('bank', 'alice.keep', number_of_shards => 4)});
is($two->sql(q{SELECT mode, owner FROM shard_types WHERE type_name = 'bank'}), 'hosting|alice', 'alice makes it a host');
$cluster->wait_registered;
$one->wait_value(q{SELECT string_agg(DISTINCT node::text, ' ' ORDER BY node::text) FROM shard_homes WHERE type_name = 'bank' AND phase = 'stable'}, '1 2',
	'shards to come to the second host');
$cluster->drain;
is($two->sql(q{SELECT relowner::regrole FROM pg_class WHERE oid = 'shard_entity.bank'::regclass}), 'alice', 'into her table');
my $answers = join '', map { qq{SELECT shard_ask('bank', 'iban-$_', '{}', '30 s')->>'balance';\n} } 1 .. 40;
my %seen = map { $_ => 1 } split /\n/, ShardOwners::as($two, 'alice', $answers);
is(join(' ', sort keys %seen), '100', 'and all goes on');

ShardOwners::as($one, 'mallory', q{SELECT shard_start('hers', 'mallory.keep')});
$two->eventually(q{SELECT shard_start('hers', 'mallory.keep')});
is($two->sql(q{SELECT owner FROM shard_types WHERE type_name = 'hers'}), 'mallory', "what a superuser starts that the cluster has is its owner's");
$cluster->logs_are_clean;
done_testing();
