package ShardHistory;

=head1 NAME

ShardHistory - what clients saw of a register that they asked, and whether one copy of it can explain that

=head1 SYNOPSIS

  my $history = ShardHistory->new;
  $history->read_file($file);                  # what psql printed, running script()
  is(join("\n", $history->violations), '', 'asks are linearizable');

=head1 DESCRIPTION

An entity of type C<register> holds a value. An ask either writes a value, used once in all, and
returns the one before, or returns the value. A client prints a line when it calls and one when it has
the answer, with the time. An ask without answer may have taken effect at any time after its call, or
never.

The history of an entity is linearizable if its asks can be put into one order that contradicts no
answer and no two times. The search is that of Wing and Gong with the memory of Lowe: all orders, depth
first, but no pair (set of asks done, value) twice.

=cut

use strict;
use warnings FATAL => 'all';

use PostgreSQL::Test::Utils;

our $type = <<'SQL';
CREATE FUNCTION register(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    PERFORM shard_reply(jsonb_build_object('was', coalesce(state->>'value', 'none')));
    IF message ? 'value' THEN
        RETURN jsonb_build_object('value', message->>'value');
    END IF;
    RETURN state;
END $$;
SELECT shard_start('register', 'register(jsonb,jsonb)', number_of_shards => 16);
SQL

# --- making one ----------------------------------------------------------------------------------

# A script of asks for a client { name, chance, asks }; entities are registers "$prefix-0" and so on.
sub script
{
	my ($client, $count, $prefix, $timeout) = @_;
	$timeout //= '3 s';
	my $sql = "\\set ON_ERROR_STOP 0\nSET statement_timeout = '60 s';\n";
	for (1 .. $count)
	{
		my $id = "$client->{name}." . ++$client->{asks};
		my $entity = "$prefix-" . $client->{chance}->(4);
		my $value = $client->{chance}->(3) ? $id : '';
		my $message = $value ? qq({"value": "$value"}) : '{}';
		$sql .= <<SQL;
SELECT 'CALL', '$id', '$entity', '$value', extract(epoch FROM clock_timestamp());
SELECT 'ANSWER', '$id', shard_ask('register', '$entity', '$message', '$timeout')->>'was', extract(epoch FROM clock_timestamp());
SQL
	}
	return $sql;
}

sub new { my ($class) = @_; return bless { asks => {} }, $class }

# An ask: id, entity, value written ('' reads), time of the call; and of its answer, if there was one.
sub call
{
	my ($self, $id, $entity, $value, $at) = @_;
	$self->{asks}{$id} = { id => $id, entity => $entity, value => $value, from => $at };
	return;
}

sub answer
{
	my ($self, $id, $was, $at) = @_;
	my $ask = $self->{asks}{$id} // die "answer to an ask that nobody made: $id";
	@$ask{qw(was to)} = ($was, $at);
	return;
}

sub read_file
{
	my ($self, $file) = @_;
	return unless -e $file;
	for my $line (split /\n/, slurp_file($file))
	{
		my ($what, @field) = split /\|/, $line, -1;
		$self->call(@field) if $what eq 'CALL' && @field == 4;
		$self->answer(@field) if $what eq 'ANSWER' && @field == 3;
	}
	return;
}

# Asks made, and answered.
sub counts
{
	my ($self) = @_;
	my @asks = values %{ $self->{asks} };
	return (scalar @asks, scalar grep { defined $_->{to} } @asks);
}

# --- judging -------------------------------------------------------------------------------------

# One line for each entity whose history no order explains.
sub violations
{
	my ($self) = @_;
	my %of;
	push @{ $of{ $_->{entity} } }, $_ for values %{ $self->{asks} };
	return map { _is_linearizable($of{$_}) ? () : "asks of $_ contradict one another:\n" . _story($of{$_}) }
	  sort keys %of;
}

# Asks without an answer matter only if somebody saw what they wrote: any other one may as well not
# have happened.
sub _relevant
{
	my ($asks) = @_;
	my %seen = map { $_->{was} => 1 } grep { defined $_->{to} } @$asks;
	return sort { $a->{from} <=> $b->{from} || $a->{id} cmp $b->{id} }
	  grep { defined $_->{to} || ($_->{value} ne '' && $seen{ $_->{value} }) } @$asks;
}

# The asks that may be next: not done, and called before every undone one was answered.
sub _next
{
	my ($asks, $done, $first) = @_;
	my ($limit, @next) = (9**9**9);
	for my $i ($first .. $#$asks)
	{
		next if vec $$done, $i, 1;
		last if $asks->[$i]{from} > $limit;
		$limit = $asks->[$i]{to} if defined $asks->[$i]{to} && $asks->[$i]{to} < $limit;
	}
	for my $i ($first .. $#$asks)
	{
		last if $asks->[$i]{from} > $limit;
		push @next, $i unless vec $$done, $i, 1;
	}
	return @next;
}

sub _is_linearizable
{
	my @asks = _relevant($_[0]);
	my $answered = grep { defined $_->{to} } @asks;
	my %known;
	my @stack = ([ '', 'none', 0, 0 ]);    # done, value, all before are done, how many answered are done
	while (my $place = pop @stack)
	{
		my ($done, $value, $first, $count) = @$place;
		return 1 if $count == $answered;
		$first++ while $first < @asks && vec $done, $first, 1;
		for my $i (_next(\@asks, \$done, $first))
		{
			my $ask = $asks[$i];
			next if defined $ask->{to} && $ask->{was} ne $value;
			my $then = $done;
			vec($then, $i, 1) = 1;
			my $now = $ask->{value} ne '' ? $ask->{value} : $value;
			next if $known{"$now\0$then"}++;
			push @stack, [ $then, $now, $first, $count + (defined $ask->{to} ? 1 : 0) ];
		}
	}
	return $answered == 0;
}

sub _story
{
	my @asks = _relevant($_[0]);
	my $start = @asks ? $asks[0]{from} : 0;
	return join "\n", map {
		sprintf '  %8.3f - %-8s %-12s %-20s %s', $_->{from} - $start,
		  defined $_->{to} ? sprintf('%.3f', $_->{to} - $start) : '?', $_->{id},
		  $_->{value} ne '' ? "writes $_->{value}" : 'reads', defined $_->{was} ? "was $_->{was}" : ''
	} @asks;
}

1;
