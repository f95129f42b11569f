package ShardClock;

=head1 NAME

ShardClock - a clock that can be set back by an hour, up to three times, for the processes of a server

=head1 SYNOPSIS

  my $clock = ShardClock->new;
  $clock->with(sub { $server->start });
  $clock->set_back;

It is a library that is loaded before all others, which a sanitizer does not allow: see available().

=cut

use strict;
use warnings FATAL => 'all';

use PostgreSQL::Test::Utils;

sub available { return !$ENV{ASAN_OPTIONS} }

sub new
{
	my ($class) = @_;
	my $folder = PostgreSQL::Test::Utils::tempdir;
	my $self = bless { folder => $folder, times => 0 }, $class;
	# Each file that is there takes an hour.
	my $hours = join ' + ', map { '(access("' . $self->file($_) . '", F_OK) == 0)' } 1 .. 3;
	append_to_file("$folder/clock.c", <<"END");
#define _GNU_SOURCE
#include <dlfcn.h>
#include <sys/time.h>
#include <unistd.h>

int
gettimeofday(struct timeval *restrict now, void *restrict zone)
{
	static int (*real) (struct timeval *restrict, void *restrict);

	if (!real)
		*(void **) &real = dlsym(RTLD_NEXT, "gettimeofday");
	if (real(now, zone) != 0)
		return -1;
	now->tv_sec -= 3600 * ($hours);
	return 0;
}
END
	system_or_bail('cc', '-shared', '-fPIC', '-o', "$folder/clock.so", "$folder/clock.c", '-ldl');
	return $self;
}

# Whoever writes this file sets the clock back: the first, second or third hour.
sub file { my ($self, $hour) = @_; return "$self->{folder}/back.$hour" }

# Calls this; a server that it starts has this clock.
sub with
{
	my ($self, $do) = @_;
	local $ENV{LD_PRELOAD} = "$self->{folder}/clock.so";
	return $do->();
}

sub set_back
{
	my ($self) = @_;
	append_to_file($self->file(++$self->{times}), '');
	return;
}

1;
