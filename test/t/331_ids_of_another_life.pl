# shard_message_id() is a key for effects outside of the database, and of tables that survive: no message gets the id that
# one of another life of the data had. Such are a database that was made from a dump, and one in which the extension was
# dropped and made anew.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use ShardMutant;
use Test::More;

my $node = ShardCluster->create('lives', conf => 'shard.region_workers = 1');

# Starts a type, has it handle some messages, and returns how many of their ids are in its ledger that were there before.
sub live {
	my ($database) = @_;
	$node->safe_psql($database, q{
CREATE TABLE IF NOT EXISTS ledger (id text, life int);
CREATE OR REPLACE FUNCTION keep(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN
	INSERT INTO ledger SELECT shard_message_id(), coalesce(max(life), 0) + 1 FROM ledger WHERE life < message::int; RETURN message; END $$;
SELECT shard_start('keeper', 'keep');});
	my $life = $node->safe_psql($database, 'SELECT coalesce(max(life), 0) + 1 FROM ledger');
	$node->safe_psql($database, "SELECT count(shard_tell('keeper', n::text, '$life')) FROM generate_series(1, 100) n");
	$node->wait_until("SELECT count(*) = 100 FROM ledger WHERE life = $life", "life $life", $database);
	return $node->safe_psql($database, 'SELECT count(*) - count(DISTINCT id) FROM ledger');
}

my $sound = ShardMutant::prove(
	{
		promise => 'no id is given twice when the extension was made anew',
		broken_by => ['SEQ_FROM_ONE'],
		run => sub {
			my $before = live('postgres');
			$node->safe_psql('postgres', 'DROP EXTENSION shard CASCADE; CREATE EXTENSION shard');
			return ($before + live('postgres'), 0);
		},
	},
	{
		promise => 'nor in a database that was made from a dump',
		broken_by => ['SEQ_FROM_ONE'],
		run => sub {
			$node->safe_psql('postgres', 'CREATE DATABASE restored');
			$node->safe_psql('restored', 'CREATE EXTENSION shard; CREATE TABLE ledger (id text, life int)');
			$node->safe_psql('restored', sprintf "INSERT INTO ledger VALUES ('%s', 1)", $_) for split /\n/, $node->safe_psql('postgres', 'SELECT id FROM ledger');
			return (live('restored'), 0);
		},
	});
$node->log_is_clean if $sound;
done_testing();
