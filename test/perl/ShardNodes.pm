package ShardNodes;

=head1 NAME

ShardNodes - several nodes that are one cluster

=head1 SYNOPSIS

  my $cluster = ShardNodes->create(3, conf => 'shard.region_workers = 2', proxy => 1);
  $cluster->start_recorder;
  my $entity = $cluster->entity_at('recorder', 2);    # an id whose home is node 2
  $cluster->node(1)->sql(ShardCluster::tell_recorder($entity, 1, 10));
  $cluster->drain;
  $cluster->coordinator->server->crash;

=head1 DESCRIPTION

Nodes are numbered from 1 in order of joining, which is what the cluster calls them. Each is a server
(ShardCluster) of its own; with option C<databases> all are databases of one server. They reach one
another over TCP, as a role that may do nothing else; with option C<proxy> through proxies (ShardProxy)
that can lose, delay and cut what passes between two of them.

=cut

use strict;
use warnings FATAL => 'all';

use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use ShardCluster;
use ShardProxy;
use Test::More;
use Time::HiRes qw(time usleep);

# The role as which nodes call one another.
our $peer_role = 'link';

# Shards stay where they are, unless a test's conf says otherwise.
my $stay = 'shard.rebalance_interval = 0';

# A cluster of so many nodes, joined and all up. Options: conf; confs => { number => text };
# databases; proxy; join => 0 (leave them apart); network (ShardNetwork); fsync; standbys => [numbers]:
# nodes that will have a standby; suffix of the servers' names, for a second cluster; install => { number => installation of another server }.
sub create
{
	my ($class, $count, %opt) = @_;
	my $self = bless { nodes => [], %opt }, $class;
	$self->{proxy} = ShardProxy->start if $opt{proxy};
	$self->add_node for 1 .. $count;
	$self->join_all unless defined $opt{join} && !$opt{join};
	return $self;
}

# --- making nodes --------------------------------------------------------------------------------

# One more node, not joined. Options: conf; port, of a server that listens there no more.
sub add_node
{
	my ($self, %opt) = @_;
	my $n = @{ $self->{nodes} } + 1;
	my $node = $self->{databases} ? $self->_database($n) : $self->_server($n, %opt);

	$node->sql(<<SQL);
DO \$\$ BEGIN CREATE ROLE $peer_role LOGIN; EXCEPTION WHEN duplicate_object THEN NULL; END \$\$;
SELECT shard_allow_peer('$peer_role');
SQL
	push @{ $self->{nodes} }, $node;
	return $node;
}

sub _server
{
	my ($self, $n, %opt) = @_;
	my $network = $self->{network};
	my $host = $network ? $network->address($n) : '127.0.0.1';
	my $conf = join "\n", $stay, $self->{conf} // '', $self->{confs}{$n} // '', $opt{conf} // '', 'max_wal_senders = 5';
	my $server = ShardCluster->create("node$n" . ($self->{suffix} // ''), conf => $conf, tcp => $host, fsync => $self->{fsync},
		port => $opt{port}, install_path => $self->{install}{$n},
		$network ? (within => $network->enter($n)) : ());
	my $node = ShardNodes::Node->new(n => $n, server => $server, db => 'postgres', host => $host,
		port => $server->port);
	$node->{standby_port} = PostgreSQL::Test::Cluster::get_free_port()
	  if grep { $_ == $n } @{ $self->{standbys} // [] };
	if ($self->{proxy})
	{
		$node->{port} = PostgreSQL::Test::Cluster::get_free_port();
		$self->{proxy}->node($n, listen => $node->{port}, server => $server);
	}
	return $node;
}

sub _database
{
	my ($self, $n) = @_;
	my $conf = join "\n", $stay, 'max_worker_processes = 64', $self->{conf} // '';
	$self->{server} //= ShardCluster->create('nodes', conf => $conf, tcp => '127.0.0.1',
		extension => 0, fsync => $self->{fsync});
	my $db = "node$n";
	$self->{server}->safe_psql('postgres', "CREATE DATABASE $db; ALTER DATABASE $db SET test.node = '$db'");
	$self->{server}->safe_psql($db, 'CREATE EXTENSION shard');
	return ShardNodes::Node->new(n => $n, server => $self->{server}, db => $db, host => '127.0.0.1',
		port => $self->{server}->port);
}

# The standby of a node that was named by option standbys of create: its address is in the node's
# already. Caught up when this returns.
sub add_standby
{
	my ($self, $n) = @_;
	my $node = $self->node($n);
	my $standby = ShardCluster->new($node->server->name . 'b', port => $node->{standby_port});
	$node->server->backup('base');
	$standby->init_from_backup($node->server, 'base', has_streaming => 1);
	# The backup has the port of the original, too.
	$standby->append_conf('postgresql.conf', 'port = ' . $node->{standby_port});
	$standby->start;
	$node->{standby} = $standby;
	$self->wait_standby($n);
	return $standby;
}

sub wait_standby
{
	my ($self, $n) = @_;
	my $node = $self->node($n);
	$node->wait_until(q{SELECT count(*) = 1 AND bool_and(replay_lsn >= pg_current_wal_flush_lsn()) FROM pg_stat_replication},
		'the standby to catch up');
	return;
}

# The standby gets nothing any more: not even what would still be on its way.
sub stop_replication
{
	my ($self, $n) = @_;
	my $standby = $self->node($n)->{standby};
	$standby->append_conf('postgresql.conf', "primary_conninfo = ''");
	$standby->reload;
	$standby->wait_until('SELECT count(*) = 0 FROM pg_stat_wal_receiver', 'the end of replication');
	return;
}

# The standby becomes the node's server; returns the old one, which is as it was: dead, frozen, alive.
sub promote
{
	my ($self, $n) = @_;
	my $node = $self->node($n);
	my $old = $node->{server};
	$node->{server} = delete $node->{standby};
	$node->{server}->promote;
	return $old;
}

# Joins every node to the first one, in order, and waits until all agree that all are up.
sub join_all
{
	my ($self) = @_;
	$self->join_node($_->n) for $self->others(1);
	$self->wait_up;
	return;
}

# Returns the id that it got.
sub join_node
{
	my ($self, $n, %opt) = @_;
	my $seed = $self->node($opt{seed} // 1)->dsn;
	# Whoever is behind a proxy does not believe a caller for good.
	$self->node(1)->eventually("SELECT shard_set_address('" . $self->node(1)->dsn . "')") if $self->{proxy} && !$self->{said}++;
	my $own  = $self->node($n)->dsn;
	return $self->node($n)->sql("SELECT shard_join('$seed', '$own')");
}

# --- the nodes -----------------------------------------------------------------------------------

sub node  { my ($self, $n) = @_; return $self->{nodes}[ $n - 1 ] }
sub nodes { my ($self) = @_; return grep { !$_->{left} } @{ $self->{nodes} } }
sub proxy { my ($self) = @_; return $self->{proxy} }

sub all_nodes { my ($self) = @_; return @{ $self->{nodes} } }

# A node that is no member any more: nothing is expected of it.
sub has_left
{
	my ($self, $n) = @_;
	$self->node($n)->{left} = 1;
	return;
}

# The nodes but for these numbers.
sub others
{
	my ($self, @but) = @_;
	my %but = map { $_ => 1 } @but;
	return grep { !$but{ $_->n } } $self->nodes;
}

# The same SQL on every node.
sub sql_everywhere
{
	my ($self, $sql) = @_;
	return map { $_->sql($sql) } $self->nodes;
}

# The node that is coordinator, as a node sees it. While it knows none, which on a slow machine may be at any moment, that is
# waited for.
sub coordinator
{
	my ($self, $witness) = @_;
	$witness //= ($self->nodes)[0];
	my $n;
	ShardCluster::wait_for_condition(sub { $n = $witness->sql('SELECT node FROM shard_members WHERE coordinator') }, 'a coordinator');
	return $self->node($n);
}

# --- waiting -------------------------------------------------------------------------------------

# Members of these statuses, by this node's view: "1 up, 2 up".
our $statuses = q{SELECT string_agg(node || ' ' || status, ', ' ORDER BY node) FROM shard_members
	WHERE status NOT IN ('removed', 'written_off')};

# Waits until these nodes (default: all) see every node up, as many voters as there should be (R11), and
# a coordinator.
sub wait_up
{
	my ($self, @witnesses) = @_;
	my $expected = join ', ', map { $_->n . ' up' } $self->nodes;
	my $count = $self->nodes;
	my $voters = $count >= 5 ? 5 : $count >= 3 ? 3 : 1;
	for my $node (@witnesses ? @witnesses : $self->nodes)
	{
		$node->wait_value($statuses, $expected, 'all to be up, as node ' . $node->n . ' sees it');
		$node->wait_until("SELECT count(*) FILTER (WHERE coordinator) = 1 AND count(*) FILTER (WHERE voter) = $voters FROM shard_members",
			'node ' . $node->n . ' to know the coordinator and the voters');
		$node->wait_until(q{SELECT array_to_string(problems, ' ') !~ 'admitted' FROM shard_health()},
			'node ' . $node->n . ' to be admitted');
	}
	return;
}

# Waits until the coordinator knows which entity types run at these nodes (default: all), whose workers run. Homes that it
# gives before are at other nodes; so each test that starts a type at several nodes and cares where its
# shards live waits for this before the first message.
sub wait_registered
{
	my ($self, @nodes) = @_;
	for my $node (@nodes ? @nodes : $self->nodes)
	{
		# Whatever else says "coordinator" or "this node" is a reason why it cannot know.
		$node->wait_until(q{SELECT array_to_string(problems, ' ') !~ 'coordinator|this node|launcher|does not run' FROM shard_health()},
			'the types of node ' . $node->n . ' to be known to the coordinator');
	}
	return;
}

# Waits until every member is reachable, as these nodes see it: after faults have healed.
sub wait_reachable
{
	my ($self, @witnesses) = @_;
	for my $node (@witnesses ? @witnesses : $self->nodes)
	{
		$node->wait_until(q{SELECT bool_and(reachable) FROM shard_members WHERE status NOT IN ('removed', 'written_off')},
			'everybody to be reachable from node ' . $node->n);
	}
	return;
}

# Waits until everything sent anywhere is handled, what handlers sent included: a pass over all
# nodes that finds nothing, twice.
sub drain
{
	my ($self) = @_;
	my $deadline = time + $ShardCluster::patience;
	my $calm = 0;
	while ($calm < 2)
	{
		die 'timed out waiting for all nodes to be drained: ' . $self->_waiting if time > $deadline;
		my $busy = grep { $_->sql(q{SELECT shard_drain('10 s') AND NOT EXISTS (SELECT FROM shard_inbox)}) ne 't' }
		  $self->nodes;
		$calm = $busy ? 0 : $calm + 1;
	}
	return;
}

# What waits where, for the error of a drain in vain.
sub _waiting
{
	my ($self) = @_;
	return join '; ', map {
		my $node = $_;
		my $what = eval { $node->sql(q{SELECT string_agg(place || ' ' || count, ', ') FROM
			(SELECT place, count(*) FROM shard_inbox GROUP BY place) p}) } // 'no answer';
		'node ' . $node->n . ": $what"
	} $self->nodes;
}

# --- homes ---------------------------------------------------------------------------------------

# shard => node, as a node knows it.
sub homes
{
	my ($self, $type, $witness) = @_;
	$witness //= ($self->nodes)[0];
	return map { split /\|/ }
	  split /\n/, $witness->sql("SELECT shard, node FROM shard_homes WHERE type_name = '$type' AND node IS NOT NULL");
}

# The node at which an entity lives; nothing if it has no home yet.
sub home_of
{
	my ($self, $type, $entity, $witness) = @_;
	$witness //= ($self->nodes)[0];
	return $witness->sql("SELECT node FROM shard_location('$type', '$entity')");
}

# Of these entities those whose shard has no home yet, by what a node knows without asking another one.
sub homeless
{
	my ($self, $type, $witness, @entities) = @_;
	my $list = join ', ', map { "'$_'" } @entities;
	return split /\n/, $witness->sql(<<SQL);
SELECT e FROM unnest(ARRAY[$list]) WITH ORDINALITY AS u(e, i)
LEFT JOIN shard_homes h ON h.type_name = '$type' AND h.shard = shard_shard_id('$type', e)
WHERE h.node IS NULL ORDER BY i
SQL
}

# Ids of entities that live at a node, one or $count, of shards that have a home; homes are allocated
# for more of them as needed.
sub entities_at
{
	my ($self, $type, $n, $count, $prefix) = @_;
	$prefix //= 'e';
	my @found;
	for my $batch (0 .. 20)
	{
		my ($from, $to) = ($batch * 20, $batch * 20 + 19);
		$self->allocate($type, map { "$prefix$_" } $from .. $to);
		push @found, split /\n/, ($self->nodes)[0]->sql(<<SQL);
SELECT entity FROM generate_series($from, $to) i, concat('$prefix', i) AS entity,
	shard_location('$type', entity) WHERE node = $n ORDER BY i
SQL
		return @found[ 0 .. $count - 1 ] if @found >= $count;
	}
	die "node $n gets no homes of type $type";
}

sub entity_at
{
	my ($self, $type, $n, $prefix) = @_;
	return ($self->entities_at($type, $n, 1, $prefix))[0];
}

# Sends each of these entities a message that does nothing, so that its shard gets a home; returns
# when every one has it.
sub allocate
{
	my ($self, $type, @entities) = @_;
	my $list = join ', ', map { "'$_'" } @entities;
	my $node = ($self->nodes)[0];
	$node->sql("SELECT shard_tell('$type', e, '{\"noop\": true}') FROM unnest(ARRAY[$list]) e");
	$node->wait_until("SELECT bool_and((shard_location('$type', e)).node IS NOT NULL) FROM unnest(ARRAY[$list]) e",
		"homes of type $type");
	return;
}

# --- moves ---------------------------------------------------------------------------------------

# The shard of an entity.
sub shard_of
{
	my ($self, $type, $entity) = @_;
	return ($self->nodes)[0]->sql("SELECT shard_shard_id('$type', '$entity')");
}

# What has shard_move refuse for a moment: a coordinator that has just come into office or left it. One that is new hears
# from the nodes first what they host.
my $unsettled = qr/coordinator has changed|no coordinator|office was lost|lost its office|has not started it yet|not said yet what it hosts/i;

# What a slow machine makes of any request.
my $slow = qr/could not connect within|no answer|did not answer in time|cannot be reached|is moving|within handoff_timeout/;

# Asks a node (default: the first) to move a shard to node $n, unless it is there; returns when that is decided: how
# long the request took that was. One that a change of the coordinator ends is repeated, since nothing tells whether it is carried out.
# So is one that fails since a machine is slow; these seconds count.
sub move
{
	my ($self, $type, $shard, $n, $by) = @_;
	$by //= ($self->nodes)[0];
	my $deadline = time + $ShardCluster::patience;
	my $begun = time;
	while (1)
	{
		my ($status, undef, $error) = $by->try("SELECT shard_move(type_name, shard, $n) FROM shard_homes
			WHERE type_name = '$type' AND shard = $shard AND NOT (node = $n AND phase = 'stable')");
		return time - $begun if $status == 0;
		die "shard $shard of type $type does not move to node $n: $error"
		  if time > $deadline || $error !~ $unsettled && $error !~ $slow;
		usleep(50_000);
		$begun = time if $error =~ $unsettled;
	}
}

# Waits until these nodes (default: all) know that shards live at a node and are not on the move.
sub wait_home
{
	my ($self, $type, $shards, $n, @witnesses) = @_;
	my @shards = ref $shards ? @$shards : ($shards);
	my $list = join ', ', @shards;
	for my $witness (@witnesses ? @witnesses : $self->nodes)
	{
		$witness->wait_until("SELECT count(*) = " . @shards . " FROM shard_homes
			WHERE type_name = '$type' AND shard IN ($list) AND node = $n AND phase = 'stable'",
			"shards $list of type $type to be at node $n, as node " . $witness->n . ' knows it');
	}
	return;
}

# Has a shard move to node $n, as often as it takes: a hand-over that a slow machine does not end within its
# handoff_timeout is given up. Returns when all nodes know that it is there.
sub bring
{
	my ($self, $type, $shard, $n) = @_;
	my $deadline = time + $ShardCluster::patience;
	my $home = "FROM shard_homes WHERE type_name = '$type' AND shard = $shard";
	my $by = ($self->nodes)[0];
	while ($by->sql("SELECT node = $n AND phase = 'stable' $home") ne 't')
	{
		die "shard $shard of type $type does not get to node $n" if time > $deadline;
		$self->move($type, $shard, $n, $by);
		$by->wait_until("SELECT phase = 'stable' $home", "the move of shard $shard of type $type to end");
	}
	return $self->wait_home($type, $shard, $n);
}

# Waits until no shard is on the move and nothing is left of those that have moved.
sub wait_settled
{
	my ($self) = @_;
	my @nodes = $self->nodes;
	my $begun = time;
	my @wrong;
	while (time - $begun < $ShardCluster::patience)
	{
		@wrong = $self->ownership_faults;
		return unless @wrong;
		ShardCluster::pause_since($begun);
	}
	die 'timed out waiting for the shards to settle: ' . join '; ', @wrong[ 0 .. ($#wrong < 9 ? $#wrong : 9) ];
}

# What is not as it has to be when nothing moves: every node knows the same homes, and each shard that
# has one is active there, under that epoch, and nowhere else; no other node has any row of it.
sub ownership_faults
{
	my ($self) = @_;
	my (%home, @wrong);
	for my $node ($self->nodes)
	{
		my $n = $node->n;
		# Of one node's rows and homes in one statement: one snapshot.
		my $rows = $node->sql(<<'SQL');
SELECT coalesce(h.type_name, t.type_name), coalesce(h.shard, o.shard), coalesce(h.node, 0), h.epoch, h.phase, o.epoch, o.state
FROM (shard.own o JOIN shard.type t USING (type_id)) FULL JOIN shard_homes h ON h.type_name = t.type_name AND h.shard = o.shard
WHERE h.node IS NOT NULL OR o.shard IS NOT NULL
SQL
		for my $row (split /\n/, $rows)
		{
			my ($type, $shard, $at, $epoch, $phase, $own, $state) = split /\|/, $row, -1;
			my $name = "$type/$shard";
			my $known = "$at, epoch $epoch, $phase";
			push @wrong, "$name: node $n knows $known, another one $home{$name}" if ($home{$name} //= $known) ne $known;
			push @wrong, "$name is moving from node $at" if $phase eq 'moving';
			push @wrong, "$name lives at node $at under epoch $epoch, and there is $state under epoch $own"
			  if $at eq $n && "$state $own" ne "active $epoch";
			push @wrong, "$name lives at node $at and is $state at node $n" if $at ne $n && $state ne '';
		}
		push @wrong, map { "node $n has states of $_, which lives elsewhere" } $self->_foreign_states($node);
	}
	return @wrong;
}

# Shards of which a node has states though they live elsewhere.
sub _foreign_states
{
	my ($self, $node) = @_;
	my @types = split /\n/, $node->sql(q{SELECT type_name FROM shard_types WHERE mode = 'hosting'
		AND to_regclass(format('shard_entity.%I', type_name)) IS NOT NULL});
	return unless @types;
	return split /\n/, $node->sql(join ' UNION ALL ', map {
		"SELECT DISTINCT '$_/' || s.shard FROM shard_entity.\"$_\" s WHERE NOT EXISTS (SELECT FROM shard_homes h
			WHERE h.type_name = '$_' AND h.shard = s.shard AND h.node = " . $node->n . ')'
	} @types);
}

# --- a simple entity type ------------------------------------------------------------------------

# As ShardCluster's recorder, on all nodes. A message "noop" leaves no trace.
my $recorder = q{
CREATE TABLE seen (pos bigserial, entity text, what text, at timestamptz DEFAULT clock_timestamp());
CREATE TABLE gate AS SELECT 1 AS one;
CREATE FUNCTION recorder(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    IF message ? 'noop' THEN
        RETURN state;
    END IF;
    IF message ? 'gate' THEN
        PERFORM FROM gate FOR SHARE;
    END IF;
    INSERT INTO seen (entity, what) SELECT entity_id, message->>'what' FROM shard_self();
    RETURN jsonb_build_object('count', coalesce((state->>'count')::int, 0) + 1, 'last', message->>'what');
END $$;
};

sub start_recorder
{
	my ($self, %opt) = @_;
	my $shards = $opt{shards} // 64;
	$self->sql_everywhere($recorder);
	my $settings = "handler_timeout => '180 s'" . ($opt{settings} // '');
	$_->sql("SELECT shard_start('recorder', 'recorder(jsonb,jsonb)', $shards, $settings)")
	  for grep { !$opt{proxy} || $_->n != $opt{proxy} } $self->nodes;
	$self->node($opt{proxy})->sql(q{SELECT shard_start_proxy('recorder', handler => 'recorder(jsonb,jsonb)')}) if $opt{proxy};
	$self->wait_registered;
	return;
}

# What an entity has handled on any node: "1 2 3 = 3 at 2", with the count in its state and where.
sub recorded
{
	my ($self, $entity, @nodes) = @_;
	my @found;
	for my $node (@nodes ? @nodes : $self->nodes)
	{
		my $text = $node->sql(ShardCluster::recorded($entity));
		push @found, "$text at " . $node->n if $text ne '';
	}
	return join '; ', @found;
}

# Waits until an entity has handled exactly these, at one node.
sub wait_recorded
{
	my ($self, $entity, $n, @what) = @_;
	$self->node($n)->wait_value(ShardCluster::recorded($entity), join(' ', @what) . ' = ' . @what,
		"entity $entity to handle @what at node $n");
	return;
}

# Type "counter", with ids that are numbers and twelve shards, id modulo twelve: adds what a message says
# and answers with the count and with where it runs.
my $counter = q{
CREATE FUNCTION counter(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    total int := coalesce((state->>'count')::int, 0) + coalesce((message->>'add')::int, 0);
BEGIN
    PERFORM shard_reply(jsonb_build_object('count', total,
        'at', coalesce(current_setting('test.node', true), current_setting('cluster_name')),
        'id', (SELECT entity_id FROM shard_self())));
    RETURN CASE WHEN total <> 0 OR state IS NOT NULL THEN jsonb_build_object('count', total) END;
END $$;
CREATE FUNCTION modulo_twelve(id text) RETURNS int LANGUAGE sql IMMUTABLE RETURN id::int % 12;
};

sub start_counter
{
	my ($self, %opt) = @_;
	my %proxy = map { $_ => 1 } @{ $opt{proxies} // [] };
	# A proxy learns from the cluster what the type is like.
	for my $node (sort { ($proxy{ $a->n } // 0) <=> ($proxy{ $b->n } // 0) } $self->nodes)
	{
		$self->start_counter_at($node, %opt, proxy => $proxy{ $node->n });
	}
	return;
}

sub start_counter_at
{
	my ($self, $node, %opt) = @_;
	my $settings = "number_of_shards => 12, shard_id_extractor => 'modulo_twelve'" . ($opt{settings} // '');
	$node->sql($counter);
	$node->sql($opt{proxy} ? q{SELECT shard_start_proxy('counter', handler => 'counter(jsonb,jsonb)')}
		: ($opt{owner} ? "SET ROLE $opt{owner}; " : '') . "SELECT shard_start('counter', 'counter(jsonb,jsonb)', $settings)");
	$self->wait_registered($node);
	return;
}

# --- the end -------------------------------------------------------------------------------------

# What workers may report while peers come and go: once for each run of the same failure.
our @link_troubles = (qr/could not connect to/, qr/connection to .* (?:was lost|failed)/, qr/peer/);

sub logs_are_clean
{
	my ($self, @allowed) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my %done;
	for my $node ($self->nodes)
	{
		next if $done{ $node->server }++;
		$node->server->log_is_clean(@allowed);
	}
	return;
}

# =================================================================================================

package ShardNodes::Node;

use strict;
use warnings FATAL => 'all';

sub new
{
	my ($class, %arg) = @_;
	return bless {%arg}, $class;
}

sub n      { my ($self) = @_; return $self->{n} }
sub server { my ($self) = @_; return $self->{server} }
sub db     { my ($self) = @_; return $self->{db} }

# The address that the node registers, for peers.
sub dsn
{
	my ($self) = @_;
	my ($host, $port) = @$self{qw(host port)};
	($host, $port) = ("$host,$host", "$port,$self->{standby_port}") if $self->{standby_port};
	return join ' ', "host=$host", "port=$port", "dbname=$self->{db}", "user=$ShardNodes::peer_role";
}

sub sql
{
	my ($self, $sql) = @_;
	return $self->{server}->safe_psql($self->{db}, $sql);
}

# Status, output, errors: of SQL that may fail.
sub try
{
	my ($self, $sql, %opt) = @_;
	my ($status, $out, $err) = $self->{server}->psql($self->{db}, $sql, %opt);
	return ($status, $out, $err);
}

# Repeats SQL until it succeeds: what the cluster refuses for now.
sub eventually
{
	my ($self, $sql) = @_;
	my ($status, $out, $err);
	my $begun = Time::HiRes::time;
	while (Time::HiRes::time - $begun < $ShardCluster::patience)
	{
		($status, $out, $err) = $self->try($sql);
		return $out if $status == 0;
		ShardCluster::pause_since($begun);
	}
	die "timed out: $sql: $err";
}

# The error message of SQL that has to fail; undefined if it does not. SQLSTATE is in front.
sub error_of
{
	my ($self, $sql) = @_;
	my ($status, $out, $err) = $self->{server}->psql($self->{db}, "\\set VERBOSITY verbose\n$sql");
	return undef if $status == 0;
	return $err;
}

# Adds to a counter by a tell.
sub add
{
	my ($self, $id, @amounts) = @_;
	$self->sql(join '', map { qq{SELECT shard_tell('counter', '$id', '{"add": $_}');\n} } @amounts);
	return;
}

# Asks a counter: "3 from node2". Waits with an ask until its home is known and answers.
sub get
{
	my ($self, $id, $timeout) = @_;
	$timeout //= '30 s';
	return $self->sql("SELECT (a->>'count') || ' from ' || (a->>'at') FROM shard_ask('counter', '$id', '{}', '$timeout') a");
}

sub wait_until
{
	my ($self, $query, $what) = @_;
	return $self->{server}->wait_until($query, $what, $self->{db});
}

# Waits until the query returns exactly this text; dies saying what it returned instead.
sub wait_value
{
	my ($self, $query, $value, $what) = @_;
	my $begun = Time::HiRes::time;
	my $got;
	while (Time::HiRes::time - $begun < $ShardCluster::patience)
	{
		(my $status, $got) = $self->try($query);
		return if $status == 0 && $got eq $value;
		ShardCluster::pause_since($begun);
	}
	die "timed out waiting for $what: expected \"$value\", got \"" . ($got // '') . '"';
}

sub session { my ($self) = @_; return $self->{server}->session($self->{db}) }

# Pids of the extension's processes of this node.
sub workers
{
	my ($self, $like) = @_;
	$like //= 'shard%';
	return split /\n/, $self->sql("SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND backend_type LIKE '$like'");
}

# Backends that serve peers.
sub peer_backends
{
	my ($self) = @_;
	return split /\n/, $self->sql("SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND usename = '$ShardNodes::peer_role'");
}

1;
