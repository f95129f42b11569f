package ShardMutant;

=head1 NAME

ShardMutant - scenarios in which a build that is broken on purpose must go wrong, whatever the machine does

=head1 SYNOPSIS

  my @scenarios = (
	{
		promise => 'what is sent late is handled',
		broken_by => ['CURSOR_BY_ID'],
		run => sub { ...; return ($got, $expected) },
	});
  ShardMutant::prove(@scenarios);

=head1 DESCRIPTION

Random load finds most of the mutants of test/mutants.sh soon, and some only with luck: for those there is a
scenario that waits for each condition which the mistake needs. It ends with a message that is handled in any
case, and returns what was seen up to there and what a sound build shows. So a build that does not work at
all, or a wait in vain, is no difference that counts: the test dies.

=cut

use strict;
use warnings FATAL => 'all';

use Test::More;

# An entity's messages are written down in table seen. As long as there is a row in table closed, one that is
# "fussy" fails for the moment, and one that is "strict" for good.
our $recorder = q{
CREATE TABLE closed (one int);
CREATE TABLE seen (pos bigserial, entity text, what text);
CREATE FUNCTION recorder(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    IF message ? 'noop' THEN RETURN state; END IF;
    IF message ? 'fussy' AND EXISTS (SELECT FROM closed) THEN
        RAISE EXCEPTION 'closed' USING ERRCODE = 'serialization_failure';
    ELSIF message ? 'strict' AND EXISTS (SELECT FROM closed) THEN
        RAISE EXCEPTION 'closed';
    END IF;
    INSERT INTO seen (entity, what) SELECT entity_id, message->>'what' FROM shard_self();
    RETURN jsonb_build_object('count', coalesce((state->>'count')::int, 0) + 1);
END $$;
};

# One test for each scenario. With SHARD_MUTANT only those are run that must show the difference, and the test
# is that they do. Returns whether the build is sound.
sub prove
{
	my (@scenarios) = @_;
	my $mutant = $ENV{SHARD_MUTANT};
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	@scenarios = grep { grep { $_ eq $mutant } @{ $_->{broken_by} } } @scenarios if $mutant;
	die "no scenario is there for $mutant" unless @scenarios;
	for my $scenario (@scenarios)
	{
		my ($got, $expected) = $scenario->{run}->();
		if ($mutant)
		{
			isnt($got, $expected, "not so with $mutant: $scenario->{promise}");
			note("seen: $got");
		}
		else
		{
			is($got, $expected, $scenario->{promise});
		}
	}
	return !$mutant;
}

# What a list of numbers looks like, shortly: "1 to 9" if it is that, else also from where it is not.
sub in_short
{
	my (@numbers) = @_;
	my $good = 0;
	$good++ while $good < @numbers && $numbers[$good] eq $good + 1;
	return "1 to $good" if $good == @numbers;
	my $end = $good + 19 < $#numbers ? $good + 19 : $#numbers;
	return "1 to $good, then @numbers[$good .. $end], of " . @numbers;
}

1;
