#!/usr/bin/perl
# usage: proxy.pl  (commands on standard input, answers on standard output)
#
# TCP proxies between the nodes of a cluster, one for each node, that know from which node a
# connection comes, so that what happens on one directed edge need not happen on another; and that
# understand enough of PostgreSQL's protocol to cut a connection exactly between a peer's COMMIT and
# its reply. Ends when its standard input does.
#
# Nodes register the address of their proxy as their own. So all connections come from 127.0.0.1; who
# made one is found through /proc: the socket's inode, the process that has it, the postmaster that is
# that process's parent. A connection of nobody we know is of node 0.
#
# Commands, one a line; each is answered with one line, "ok ..." or "error ...":
#
#   node N LISTEN PORT FILE  node N: listen here, connect there; the lock file of its postmaster, which
#                            is read for each connection: a server may be restarted, and its first ones
#                            come before anybody else has heard of that
#   hold F T                 bytes from F to T stop, on the connections of both, as if all packets were
#                            lost; new connections hang. What was held goes on with "heal".
#   cut F T                  connections between F and T are reset, and new ones too
#   delay F T MS             bytes from F to T arrive so much later
#   stutter F T MS           bytes from F to T stop at random for up to so long, as TCP does when
#                            packets are lost
#   cutreply F T N PATTERN   the N-th query that matches, by its text or its name if it is prepared, and
#                            that F sends from now on is executed by T, and its answer is not delivered:
#                            the connection is reset instead
#   cutquery F T N PATTERN      the same, but T does not get the query either
#   spoil F T PATTERN        of bytes that match in what F sends to T over connections that it made, the third one is
#                            changed, if they come together
#   reset F T                resets the connections that F made to T
#   heal [F T]               ends hold, cut, delay, stutter, spoil, of one direction or of all
#   fired                    how often cutreply and cutquery have cut
#   stats                    connections made, bytes passed
use strict;
use warnings FATAL => 'all';

use Errno qw(EAGAIN EINTR EINPROGRESS);
use IO::Select;
use IO::Socket::INET;
use Socket qw(SOL_SOCKET SO_LINGER SO_ERROR IPPROTO_TCP TCP_NODELAY);
use Time::HiRes qw(time);

my %node;       # number => { listen, port, lock, socket }
my %rule;       # "F>T" => { hold, cut, delay, stutter }
my @cuts;       # { edge, n, text, when => 'query' | 'reply' }
my @links;      # connections under way
my ($fired, $made, $passed) = (0, 0, 0);
my $input = '';

$SIG{PIPE} = 'IGNORE';
$| = 1;

# --- who made a connection -----------------------------------------------------------------------

# The inode of the socket at the other end: the one whose local address is our peer's.
sub inode_of
{
	my ($port, $ours) = @_;
	my ($local, $remote) = map { sprintf '0100007F:%04X', $_ } $port, $ours;
	open my $table, '<', '/proc/net/tcp' or return;
	while (<$table>)
	{
		my @field = split;
		return $field[9] if $field[1] eq $local && $field[2] eq $remote;
	}
	return;
}

# The postmaster of a node; nothing if there is none.
sub postmaster_of
{
	my ($n) = @_;
	open my $file, '<', $node{$n}{lock} or return;
	my $pid = <$file> // '';
	return $pid =~ /^(\d+)$/ ? $1 : undef;
}

sub children_of
{
	my ($pid) = @_;
	open my $file, '<', "/proc/$pid/task/$pid/children" or return;
	return split ' ', <$file> // '';
}

sub has_inode
{
	my ($pid, $inode) = @_;
	opendir my $dir, "/proc/$pid/fd" or return;
	while (defined(my $fd = readdir $dir))
	{
		my $target = readlink "/proc/$pid/fd/$fd" or next;
		return 1 if $target eq "socket:[$inode]";
	}
	return;
}

sub source_of
{
	my ($socket, $listen) = @_;
	my $port = $socket->peerport or return 0;
	my $inode = inode_of($port, $listen) or return 0;
	for my $n (keys %node)
	{
		my $postmaster = postmaster_of($n) or next;
		# The newest processes first: a peer connects soon after it was started, or often.
		return $n if grep { has_inode($_, $inode) } reverse children_of($postmaster);
	}
	return 0;
}

# --- rules ---------------------------------------------------------------------------------------

sub is { my ($from, $to, $what) = @_; return $rule{"$from>$to"}{$what} }

sub random_seconds { my ($ms) = @_; return rand($ms) / 1000 }

# When bytes that were read now may be written; they never overtake.
sub due
{
	my ($side, $from, $to) = @_;
	my $now = time;
	my $due = $now + (is($from, $to, 'delay') // 0) / 1000;
	my $stutter = is($from, $to, 'stutter');
	$due += random_seconds($stutter) if $stutter && rand() < 0.1;
	$due = $side->{last_due} if ($side->{last_due} // 0) > $due;
	return $side->{last_due} = $due;
}

# --- links ---------------------------------------------------------------------------------------

# A link is a client's socket, the server's, and a queue of [due, bytes] for each of them.
sub accept_link
{
	my ($to) = @_;
	my $client = $node{$to}{socket}->accept or return;
	$made++;
	my $from = source_of($client, $node{$to}{listen});
	my $link = { from => $from, to => $to, client => { socket => $client }, server => {},
		queries => '', startup => 1, replies => '' };
	$_->{queue} = [] for @$link{qw(client server)};
	$client->blocking(0);
	setsockopt $client, IPPROTO_TCP, TCP_NODELAY, 1;
	return hard_close($client) if is($from, $to, 'cut') || is($to, $from, 'cut');
	push @links, $link;
	connect_link($link);
	return;
}

# While packets of either direction are lost, no connection comes about.
sub connect_link
{
	my ($link) = @_;
	my ($from, $to) = @$link{qw(from to)};
	return if is($from, $to, 'hold') || is($to, $from, 'hold');
	my $server = IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $node{$to}{port},
		Proto => 'tcp', Blocking => 0);
	return close_link($link) unless $server;
	$link->{server}{socket} = $server;
	setsockopt $server, IPPROTO_TCP, TCP_NODELAY, 1;
	return;
}

# Close by a reset: as a host does that knows nothing of the connection.
sub hard_close
{
	my ($socket) = @_;
	return unless $socket;
	setsockopt $socket, SOL_SOCKET, SO_LINGER, pack('ii', 1, 0);
	close $socket;
	return;
}

sub close_link
{
	my ($link) = @_;
	hard_close(delete $_->{socket}) for @$link{qw(client server)};
	$link->{closed} = 1;
	return;
}

# The number of whole messages' bytes at the front, after "look" was called for each; look's answer
# true ends it.
sub each_message
{
	my ($bytes, $look) = @_;
	while (length $$bytes >= 5)
	{
		my ($type, $length) = unpack 'aN', $$bytes;
		last if length $$bytes < 1 + $length;
		my $message = substr $$bytes, 0, 1 + $length, '';
		return 1 if $look->($type, $message);
	}
	return;
}

# What a message executes: the text of a query, the name of a prepared statement. Nothing for others.
sub text_of
{
	my ($type, $message) = @_;
	return substr $message, 5 if $type eq 'Q';
	if ($type eq 'P')
	{
		my ($name, $text) = unpack 'x5 Z* Z*', $message;
		return $name eq '' ? $text : undef;
	}
	if ($type eq 'B')
	{
		my ($portal, $name) = unpack 'x5 Z* Z*', $message;
		return $name eq '' ? undef : $name;
	}
	return;
}

# Looks at what the client sends: is it a query that is to be cut? True: not to be forwarded.
sub look_at_queries
{
	my ($link, $bytes) = @_;
	$link->{queries} .= $bytes;
	if ($link->{startup})
	{
		return unless length $link->{queries} >= 8;
		my ($length, $code) = unpack 'NN', $link->{queries};
		return if length $link->{queries} < $length;
		substr $link->{queries}, 0, $length, '';
		# A request for encryption or cancellation comes before, or instead of, a start.
		return if $code != 3 << 16;
		$link->{startup} = 0;
	}
	my $stop = 0;
	each_message(\$link->{queries}, sub {
		my ($type, $message) = @_;
		my $text = text_of($type, $message) // return 0;
		for my $cut (@cuts)
		{
			next if $cut->{edge} ne "$link->{from}>$link->{to}" || $text !~ /$cut->{text}/;
			next if --$cut->{n} > 0;
			@cuts = grep { $_ != $cut } @cuts;
			if ($cut->{when} eq 'query') { $stop = 1 }
			else { $link->{cut_reply} = 1 }
			return 1;
		}
		return 0;
	});
	return $stop;
}

# Reads what came from one side into the queue of the other.
sub pump_in
{
	my ($link, $side) = @_;
	my ($in, $out) = $side eq 'client' ? @$link{qw(client server)} : @$link{qw(server client)};
	my ($from, $to) = $side eq 'client' ? @$link{qw(from to)} : @$link{qw(to from)};
	my $got = sysread $in->{socket}, my $bytes, 65536;
	if (!defined $got)
	{
		return if $! == EAGAIN || $! == EINTR;
		return close_link($link);
	}
	# An end of file is passed on after what came before it.
	if (!$got)
	{
		return close_link($link) unless $out->{socket};
		$in->{ended} = 1;
		push @{ $out->{queue} }, [ due($out, $from, $to), undef ];
		return;
	}
	$passed += $got;
	if ($side eq 'client')
	{
		if (@cuts || $link->{startup} || length $link->{queries})
		{
			if (look_at_queries($link, $bytes)) { $fired++; return close_link($link) }
		}
	}
	elsif ($link->{cut_reply})
	{
		# ReadyForQuery says that the transaction has ended.
		$link->{replies} .= $bytes;
		return unless each_message(\$link->{replies}, sub { $_[0] eq 'Z' });
		$fired++;
		return close_link($link);
	}
	my $spoil = $side eq 'client' && is($from, $to, 'spoil');
	if ($spoil)
	{
		while ($bytes =~ /$spoil/gs) { substr($bytes, $-[0] + 2, 1) ^= "\x40"; pos($bytes) = $-[0] + 3 }
	}
	push @{ $out->{queue} }, [ due($out, $from, $to), $bytes ];
	return;
}

# Writes what is due.
sub pump_out
{
	my ($link, $side) = @_;
	my $out = $link->{$side};
	my ($from, $to) = $side eq 'server' ? @$link{qw(from to)} : @$link{qw(to from)};
	return if is($from, $to, 'hold');
	while (@{ $out->{queue} } && $out->{socket} && $out->{queue}[0][0] <= time)
	{
		my $bytes = $out->{queue}[0][1];
		if (!defined $bytes)
		{
			shift @{ $out->{queue} };
			return close_link($link) if $link->{client}{ended} && $link->{server}{ended};
			shutdown $out->{socket}, 1;
			next;
		}
		my $put = syswrite $out->{socket}, $bytes;
		if (!defined $put)
		{
			return if $! == EAGAIN || $! == EINTR || $! == EINPROGRESS || $!{ENOTCONN};
			return close_link($link);
		}
		if ($put < length $bytes) { $out->{queue}[0][1] = substr $bytes, $put; return }
		shift @{ $out->{queue} };
	}
	return;
}

# --- commands ------------------------------------------------------------------------------------

sub add_node
{
	my ($n, $listen, $port, $lock) = @_;
	my $socket = IO::Socket::INET->new(LocalAddr => '127.0.0.1', LocalPort => $listen,
		Proto => 'tcp', Listen => 128, ReuseAddr => 1) or return "error cannot listen on $listen: $!";
	$socket->blocking(0);
	$node{$n} = { socket => $socket, listen => $listen, port => $port, lock => $lock };
	return 'ok';
}

sub links_between
{
	my ($a, $b) = @_;
	return grep { ($_->{from} == $a && $_->{to} == $b) || ($_->{from} == $b && $_->{to} == $a) } @links;
}

sub obey
{
	my ($line) = @_;
	my ($verb, $f, $t, @rest) = split ' ', $line;
	if ($verb eq 'node') { return add_node($f, $t, @rest) }
	if ($verb eq 'hold') { $rule{"$f>$t"}{hold} = 1; return 'ok' }
	if ($verb eq 'delay' || $verb eq 'stutter') { $rule{"$f>$t"}{$verb} = $rest[0]; return 'ok' }
	if ($verb eq 'spoil') { $rule{"$f>$t"}{spoil} = join ' ', @rest; return 'ok' }
	if ($verb eq 'cut')
	{
		$rule{"$f>$t"}{cut} = 1;
		close_link($_) for links_between($f, $t);
		return 'ok';
	}
	if ($verb eq 'reset')
	{
		close_link($_) for my @those = grep { $_->{from} == $f && $_->{to} == $t } @links;
		return 'ok ' . @those;
	}
	if ($verb eq 'cutreply' || $verb eq 'cutquery')
	{
		my ($n, $text) = (shift @rest, join ' ', @rest);
		push @cuts, { edge => "$f>$t", n => $n, text => $text, when => $verb eq 'cutreply' ? 'reply' : 'query' };
		return 'ok';
	}
	if ($verb eq 'heal')
	{
		if (defined $f) { delete $rule{"$f>$t"} }
		else { %rule = (); @cuts = () }
		# Connections that hung are made now.
		connect_link($_) for grep { !$_->{server}{socket} && !$_->{closed} } @links;
		return 'ok';
	}
	return "ok $fired" if $verb eq 'fired';
	return "ok $made $passed" if $verb eq 'stats';
	return "error unknown command $verb";
}

sub read_commands
{
	my $got = sysread STDIN, my $bytes, 65536;
	exit 0 unless $got;
	$input .= $bytes;
	while ($input =~ s/^(.*)\n//)
	{
		my $line = $1;
		print obey($line), "\n";
	}
	return;
}

# --- the loop ------------------------------------------------------------------------------------

# How long until something held back by time is due; at most a second.
sub next_due
{
	my $next = time + 1;
	for my $link (@links)
	{
		for my $side ('client', 'server')
		{
			my $first = $link->{$side}{queue}[0] or next;
			$next = $first->[0] if $first->[0] < $next;
		}
	}
	my $wait = $next - time;
	return $wait > 0.001 ? $wait : 0.001;
}

# Neither read more than a sender's window while the other end does not take it, nor wait for it.
sub wants_read { my ($link, $side) = @_;
	my $in = $link->{$side};
	my $other = $link->{ $side eq 'client' ? 'server' : 'client' };
	return $in->{socket} && !$in->{ended} && @{ $other->{queue} } < 64;
}

sub wants_write { my ($link, $side) = @_;
	my $out = $link->{$side};
	my ($from, $to) = $side eq 'server' ? @$link{qw(from to)} : @$link{qw(to from)};
	return $out->{socket} && @{ $out->{queue} } && $out->{queue}[0][0] <= time && !is($from, $to, 'hold');
}

while (1)
{
	my $reads = IO::Select->new(\*STDIN, map { $_->{socket} } values %node);
	my $writes = IO::Select->new;
	for my $link (@links)
	{
		for my $side ('client', 'server')
		{
			$reads->add($link->{$side}{socket}) if wants_read($link, $side);
			$writes->add($link->{$side}{socket}) if wants_write($link, $side);
		}
	}
	my ($readable, $writable) = IO::Select->select($reads, $writes, undef, next_due());
	my %ready = map { fileno($_) // -1 => 1 } @{ $readable // [] };
	my %room = map { fileno($_) // -1 => 1 } @{ $writable // [] };

	read_commands() if $ready{ fileno STDIN };
	for my $n (keys %node) { accept_link($n) if $ready{ fileno $node{$n}{socket} } }
	for my $link (@links)
	{
		for my $side ('client', 'server')
		{
			my $socket = $link->{$side}{socket} or next;
			pump_in($link, $side) if $ready{ fileno $socket };
			$socket = $link->{$side}{socket} or next;
			pump_out($link, $side) if $room{ fileno $socket };
		}
	}
	@links = grep { !$_->{closed} } @links;
}
