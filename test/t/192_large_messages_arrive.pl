# A message of 200 MB goes to another node as any: the link does not fail meanwhile, and what is behind it arrives, too.

use strict;
use warnings FATAL => 'all';

use PostgreSQL::Test::Utils;
use ShardNodes;
use ShardMutant;
use Test::More;

my $cluster = ShardNodes->create(2);
my ($one, $two) = $cluster->nodes;
$_->sql($ShardMutant::recorder) for $one, $two;
$_->sql(q{SELECT shard_start('recorder', 'recorder', max_message_size => 268435456)}) for $one, $two;
my $there = $cluster->entity_at('recorder', 2);
my $from = -s $one->server->logfile;
$one->sql(qq{SELECT shard_tell('recorder', '$there', jsonb_build_object('what', 'large', 'x', repeat('0123456789abcdef', 12582912)))});
$one->sql(qq{SELECT shard_tell('recorder', '$there', '{"what": "small"}')});
$two->wait_until(q{SELECT count(*) = 2 FROM seen}, 'both to arrive');
is($two->sql(q{SELECT string_agg(what, ' ' ORDER BY pos) FROM seen}), 'large small', 'in order');
$cluster->drain;
unlike(slurp_file($one->server->logfile, $from), qr/link to node 2 failed/, 'and by a link that does not fail');
$cluster->logs_are_clean;
done_testing();
