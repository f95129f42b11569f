# A type that was dropped at all members is gone: its record, its homes, what health says of it; and its name is
# free, with other settings. While a member is away that may have it, all that waits; nobody who leaves does.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(4);
my ($one, $two, $three, $four) = $cluster->nodes;
my $other = q{SELECT shard_start('counter', 'counter(jsonb,jsonb)', number_of_shards => 7)};
my $same = q{SELECT shard_start('counter', 'counter(jsonb,jsonb)', number_of_shards => 12, shard_id_extractor => 'modulo_twelve')};
my $drop = q{SET client_min_messages = warning; SELECT shard_drop_type('counter', force => true)};

# Types, homes and pins that a node has learned, and what it keeps of shards.
my $rests = q{SELECT (SELECT count(*) FROM shard.control WHERE store = 4 AND kind IN (7, 8, 9) AND NOT deleted)
	|| ' ' || (SELECT count(*) FROM shard_homes) || ' ' || (SELECT count(*) FROM shard.route)
	|| ' ' || (SELECT count(*) FROM shard.own) || ' ' || (SELECT count(*) FROM shard.shard_input)};

# Messages from a node give each shard a home, of which every node hears in its time.
sub spread
{
	my ($node) = @_;
	$cluster->wait_registered;
	$node->add($_, $_) for 1 .. 12;
	$cluster->drain;
	$cluster->wait_settled;
	return;
}

# --- gone ------------------------------------------------------------------------------------------

$cluster->start_counter(proxies => [4]);
$one->sql(q{SELECT shard_pin('counter', 3, 1)});
spread($four);
is($one->sql('SELECT count(DISTINCT node) FROM shard_homes'), 3, 'a type that three members host');
$_->sql($drop) for $one, $two;
$cluster->wait_registered;
is($two->sql('SELECT count(*) FROM shard_homes'), 12, 'dropped at some, it stays');
like($one->error_of($other), qr/42710: the cluster has entity type "counter" with other settings/, 'and its name is taken');
$_->sql($drop) for $three, $four;
$_->wait_value($rests, '0 0 0 0 0', 'node ' . $_->n . ' to have forgotten all of the type') for $cluster->nodes;
pass('dropped at all, it is gone');
$_->wait_until('SELECT ok FROM shard_health()', 'all to be well') for $cluster->nodes;
pass('and health has nothing to say of it');

$_->sql($other) for $one, $two;
$four->sql(q{SELECT shard_start_proxy('counter', handler => 'counter(jsonb,jsonb)')});
spread($four);
is($four->sql(q{SELECT number_of_shards FROM shard_types}), 7, 'it is started again with other settings');
is($three->sql(q{SELECT bool_and(epoch = 0 AND node IN (1, 2)) FROM shard_homes}), 't', 'and begins anew');
like($four->get(5), qr/^5 from/, 'with no state of before');
$_->sql($drop) for $one, $two, $four;
$one->sql($same);
is($one->sql(q{SELECT count(*) FROM shard_homes}), 0, 'also at once after it was dropped, and as it was before');
like($one->get(5), qr/^0 from/, 'it is another one');
$four->wait_value('SELECT count(*) FROM shard_homes', 1, 'node 4 to hear of its first home');

# A start that is open, and one that is rolled back.
my $starting = $two->session;
$starting->query("BEGIN; $same;");
$one->sql($drop);
$cluster->wait_registered($one, $three, $four);
is($four->sql('SELECT count(*) FROM shard_homes'), 1, 'a transaction that may start it keeps a type');
$starting->query('COMMIT;');
$cluster->wait_registered;
$two->sql(q{SELECT shard_tell('counter', '1', '{"add": 1}')});
$two->wait_value(q{SELECT node FROM shard_homes WHERE shard = 1}, 2, 'it to go on there');
$two->sql($drop);
$three->wait_value($rests, '0 0 0 0 0', 'the type to be forgotten');
$one->sql("BEGIN; $other; ROLLBACK");
$_->wait_value($rests, '0 0 0 0 0', 'a start that was rolled back to be forgotten') for $cluster->nodes;
pass('neither a drop nor a rolled back start leaves anything');
$one->sql("BEGIN; $other; ROLLBACK; $same");
pass('a start that was rolled back is not held against the next one');
$one->sql($drop);

# --- a member is down ------------------------------------------------------------------------------

$_->sql($same) for $one, $two, $three;
spread($one);
$one->sql($drop);
$three->server->crash;
$two->sql($drop);
$one->wait_until(q{SELECT NOT reachable FROM shard_members WHERE node = 3}, 'node 3 to be missed');
is($one->sql('SELECT count(*) FROM shard_homes'), 12, 'while a member is down that has the type, it stays');
like($one->error_of($other), qr/42710: the cluster has entity type "counter" with other settings/, 'as it was');
$three->server->start;
$cluster->wait_reachable;
$cluster->wait_registered;
is($four->sql('SELECT count(*) FROM shard_homes'), 12, 'nor does its return change anything');
$three->eventually($drop);   # refused as long as a shard is on its way there
$_->wait_value($rests, '0 0 0 0 0', 'the type to be forgotten') for $cluster->nodes;
pass('but its dropping does');

$_->sql($same) for $one, $two;
spread($one);
$three->server->stop('fast');
$_->sql($drop) for $one, $two;
$one->wait_until(q{SELECT array_to_string(problems, ' ') ~ 'node 3' FROM shard_health()}, 'node 3 to be missed');
unlike($one->sql(q{SELECT array_to_string(problems, '; ') FROM shard_health()}), qr/counter/, 'health says nothing of what nobody has');
is($one->sql('SELECT count(*) FROM shard_homes'), 12, 'though it waits for a member that is down');

# --- leaving ---------------------------------------------------------------------------------------

isnt($one->sql('SELECT count(*) FROM shard_homes WHERE node = 2'), 0, 'a member has homes of a type that nobody has');
is($two->sql(q{SELECT shard_leave('60 s')}), 't', 'it leaves');
$cluster->has_left(2);
$three->server->start;
$cluster->wait_reachable;
$_->wait_value($rests, '0 0 0 0 0', 'the type to be forgotten') for $cluster->nodes;
pass('the one that was down has nothing of the type: it is gone');
$_->sql($other) for $one, $three;
spread($one);
is($four->sql(q{SELECT bool_and(node IN (1, 3)) FROM shard_homes}), 't', 'and may come again');

# --- a coordinator that has never heard of a host ----------------------------------------------------

$three->server->crash;
$one->sql($drop);
$one->wait_until(q{SELECT NOT reachable FROM shard_members WHERE node = 3}, 'node 3 to be missed');
$one->server->stop('fast');
$one->server->start;
$_->wait_until(q{SELECT array_to_string(problems, '; ') ~ 'entity type "counter": no member that is heard has it, and \d+ shards? waits? for node 3'
	FROM shard_health()}, 'health to say who is waited for') for $one, $four;
like($four->error_of(q{SELECT shard_start_proxy('counter')}),
	qr/55006: no member that is heard has entity type "counter".*It may be there at node 3\./s, 'so does the error of who wants it as a proxy');
$three->server->start;
$cluster->wait_reachable;
$four->eventually(q{SELECT shard_start_proxy('counter')});
pass('who can have it when its host is back');
$cluster->logs_are_clean(@ShardNodes::link_troubles);
done_testing();
