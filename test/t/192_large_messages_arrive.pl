# A message of 200 MB goes to another node as any: the link does not fail meanwhile, and what is behind it arrives, too.

use strict;
use warnings FATAL => 'all';

use ShardNodes;
use ShardMutant;
use Test::More;

my $cluster = ShardNodes->create(2);
my ($one, $two) = $cluster->nodes;
$_->sql($ShardMutant::recorder) for $one, $two;
$_->sql(q{SELECT shard_start('recorder', 'recorder', max_message_size => 268435456)}) for $one, $two;
my $there = $cluster->entity_at('recorder', 2);
sub logged { my ($what) = @_; return PostgreSQL::Test::Utils::slurp_file($one->server->logfile) =~ /$what/ }
my $sound = ShardMutant::prove(
	{
		promise => 'the link does not fail over a large message',
		broken_by => ['SENDING_IS_READING'],
		run => sub {
			$one->sql(qq{SELECT count(shard_tell('recorder', '$there', jsonb_build_object('what', i::text, 'x', repeat('0123456789abcdef', 12582912)))) FROM generate_series(1, 1) i});
			$one->sql(qq{SELECT shard_tell('recorder', '$there', '{"what": "small"}')});
			my $failed = q{link to node 2 failed};
			$two->wait_until(q{SELECT count(*) = 2 FROM seen}, 'all to arrive') unless $ENV{SHARD_MUTANT};
			ShardCluster::wait_for_condition(sub { logged($failed) || $two->sql('SELECT count(*) FROM seen') == 2 }, 'an end of it') if $ENV{SHARD_MUTANT};
			return (logged($failed) ? 'failed' : 'well', 'well');
		},
	});
if ($sound)
{
	is($two->sql(q{SELECT string_agg(what, ' ' ORDER BY pos) FROM seen}), '1 small', 'in order');
	$cluster->drain;
	$cluster->logs_are_clean;
}
done_testing();
