# F09 restated: a node dies while homes are being allocated, some of them for itself. What waits for it
# waits until it is back; all other entities answer at once; no message is lost.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use Test::More;

my $cluster = ShardNodes->create(3);
$cluster->start_recorder(shards => 50);
my ($one, $two, $three) = $cluster->nodes;
my $lost = $cluster->coordinator->n == 2 ? $three : $two;
my ($sender) = grep { $_->n != $lost->n } $cluster->nodes;

my $session = $sender->session;
$session->send(join '', map { ShardCluster::tell_recorder("e$_", 1) } 1 .. 15);
$lost->server->crash;
$session->receive;
$session->send(join '', map { ShardCluster::tell_recorder("e$_", 1) } 16 .. 35);
$session->receive;

# Whoever has a home elsewhere answers.
my $others = q{SELECT 'e' || i FROM generate_series(1, 35) i, shard_homes h
	WHERE h.type_name = 'recorder' AND h.shard = shard_shard_id('recorder', 'e' || i) AND h.node <> } . $lost->n;
$sender->wait_until("SELECT count(*) >= 10 FROM ($others) o", 'homes');
my @others = split /\n/, $sender->sql($others);
is($sender->sql("SELECT count(shard_ask('recorder', e, '{\"what\": 2}', '30 s')) FROM unnest(string_to_array('@others', ' ')) e"), scalar @others, 'F09: others answer meanwhile');
note(scalar(@others) . ' of 35 live elsewhere');

$lost->server->recover;
$cluster->wait_up;
$cluster->drain;
my $wrong = grep { $cluster->recorded("e$_") !~ /^1(?: 2)? = \d at \d$/ } 1 .. 35;
is($wrong, 0, 'F09: all messages were handled, once');
is($sender->sql(q{SELECT count(shard_ask('recorder', 'e' || i, '{"what": 3}', '30 s')) FROM generate_series(1, 50) i}), 50, 'F09: all fifty answer');
$cluster->logs_are_clean(@ShardNodes::link_troubles);
done_testing();
