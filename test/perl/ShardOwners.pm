package ShardOwners;

=head1 NAME

ShardOwners - roles of an application that share a cluster, and do not trust one another

=head1 SYNOPSIS

  my $cluster = ShardNodes->create(2);
  ShardOwners::create_roles($_, 'alice', 'mallory') for $cluster->nodes;
  ShardOwners::as($node, 'alice', q{SELECT shard_start('bank', 'alice.keep')});
  like(ShardOwners::refused($node, 'mallory', $sql), qr/42501/, 'not hers');

=head1 DESCRIPTION

Each role may log in and create entity types, and has a schema of its name with a handler C<keep>, which only it may
execute: it takes the message as the entity's new state, if there is one, and returns the state.

=cut

use strict;
use warnings FATAL => 'all';

sub create_roles
{
	my ($node, @roles) = @_;
	for my $role (@roles)
	{
		$node->sql(<<SQL);
CREATE ROLE $role LOGIN;
GRANT CREATE ON DATABASE @{[ $node->db ]} TO $role;
CREATE SCHEMA $role AUTHORIZATION $role;
SQL
		as($node, $role, <<SQL);
CREATE FUNCTION $role.keep(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql
RETURN CASE WHEN message = '{}' THEN state ELSE message || jsonb_build_object('by', current_user, 'at', current_setting('cluster_name')) END;
REVOKE EXECUTE ON FUNCTION $role.keep FROM PUBLIC;
SQL
	}
	return;
}

# SQL in a session of the role's own; dies with its error.
sub as
{
	my ($node, $role, $sql) = @_;
	my ($status, $out, $err) = _psql($node, $role, $sql);
	die "as $role: $err" if $status != 0;
	return $out;
}

# The error of SQL that has to fail, with SQLSTATE, detail and hint; undefined if it does not.
sub refused
{
	my ($node, $role, $sql) = @_;
	my ($status, undef, $err) = _psql($node, $role, "\\set VERBOSITY verbose\n$sql");
	return $status == 0 ? undef : $err;
}

# The same until it succeeds: what a node may not have heard of yet.
sub as_eventually
{
	my ($node, $role, $sql) = @_;
	my ($status, $out, $err);
	my $deadline = Time::HiRes::time + $ShardCluster::patience;
	while (Time::HiRes::time < $deadline)
	{
		($status, $out, $err) = _psql($node, $role, $sql);
		return $out if $status == 0;
		Time::HiRes::usleep(50_000);
	}
	die "timed out: as $role: $err";
}

sub _psql
{
	my ($node, $role, $sql) = @_;
	return $node->server->psql($node->db, $sql, extra_params => [ '-U', $role ]);
}

1;
