package ShardNoise;

=head1 NAME

ShardNoise - messages that fill the log of a server, so that its segments are emptied

=head1 SYNOPSIS

  ShardNoise::send_until($node, 'noise', $entity, sub { return $node->sql($in_log) == 0 }, 'the segments to be emptied');

=cut

use strict;
use warnings FATAL => 'all';

use ShardCluster;

# 2 kB, as SQL.
our $noise = q{(SELECT string_agg(md5(j::text), '') FROM generate_series(1, 60) j)};

# Sends an entity of this node (ShardNodes::Node) 0.4 MB a round, and looks when they are handled: until the condition holds. The
# log may have no room for them before a worker has come by; that refuses the round.
sub send_until
{
	my ($node, $type, $entity, $condition, $what) = @_;
	ShardCluster::wait_for_condition(
		sub {
			my ($status, undef, $error) = $node->try("SELECT shard_tell('$type', '$entity', jsonb_build_object('what', 'x', 'noise', $noise))
				FROM generate_series(1, 200)");
			die $error if $status != 0 && $error !~ /inbox is full/;
			$node->wait_until("SELECT NOT EXISTS (SELECT FROM shard_inbox WHERE type_name = '$type' AND entity_id = '$entity')", 'the noise to be handled');
			return $condition->();
		},
		$what);
	return;
}

1;
