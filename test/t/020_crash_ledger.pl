# Through crashes of every kind under random load: nothing committed is lost (P1), nothing is handled
# twice (P2), order is kept (P3), nothing rolled back is handled (P5).
#
# SHARD_SEED repeats a run, SHARD_SECONDS makes it longer. With SHARD_MUTANT the server runs a build
# broken on purpose (test/mutants.sh), and the test passes if the audit notices.

use strict;
use warnings FATAL => 'all';

use List::Util qw(min);
use ShardCluster;
use ShardLedger;
use Test::More;
use Time::HiRes qw(time);

my $mutant  = $ENV{SHARD_MUTANT};
my $seconds = ShardLedger::seconds($mutant ? 24 : 75);
my $node    = ShardCluster->create('crashing', conf => 'shard.region_workers = 2');
my $ledger  = ShardLedger->new(node => $node, seed => ShardLedger::seed());
$ledger->install;

my $until = time + $seconds;
my @violations;
while (time < $until)
{
	# Short rounds for a mutant: the first violation ends the run.
	$ledger->round(
		seconds      => min($mutant ? 6 : 25, $until - time),
		disturbances => [ ShardLedger::crashes() ],
		undrained    => $mutant);
	@violations = $ledger->violations;
	if ($mutant)
	{
		last if @violations;
		next;
	}
	is(join("\n", @violations), '', "no violation after @{[ $ledger->messages_sent ]} messages");
	# The tables as they are tell more than many further rounds.
	last if @violations;
}

if ($mutant)
{
	ok(@violations, "the audit finds fault with $mutant") and note(join "\n", @violations);
}
else
{
	is(join("\n", $ledger->unexpected_client_errors), '', 'clients met only what a crash explains');
	$node->log_is_clean(qr/ledger: told to fail/, qr/due to lock timeout/);
}

done_testing();
