
# The inbox grows a page at a time: no page of it stays empty and later places hold later messages,
# whatever is sent at once, so that a reader may leave a page for good when there is a later one.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use Test::More;

my $node = ShardCluster->create('first', conf => "shard.handler_lock_timeout = '60 s'");
$node->start_recorder;
# Nothing may be made room for while we look.
my $keeper = $node->close_gate;

# Messages of one row, of many that compress, of many that do not: the last has some 120 pages.
my $sender = q{
DO $$ BEGIN
	FOR i IN 1 .. 40 LOOP
		PERFORM shard_tell_many('recorder', array_agg(text '%1$s'),
			array_agg(jsonb_build_object('what', i * 1000 + j, 'pad', repeat('y', j * 10)) ORDER BY j))
		FROM generate_series(1, 150) j;
		PERFORM shard_tell('recorder', '%1$s', jsonb_build_object('what', i * 1000 + 200, 'pad', repeat('z', 300000)));
		PERFORM shard_tell('recorder', '%1$s', jsonb_build_object('what', i * 1000 + 201, 'pad',
			(SELECT string_agg(md5(random()::text), '') FROM generate_series(1, 10 * i))));
		IF i %% 5 = 0 THEN
			ROLLBACK;
		ELSE
			COMMIT;
		END IF;
	END LOOP;
	PERFORM shard_tell('recorder', '%1$s', jsonb_build_object('what', 100000, 'pad',
		(SELECT string_agg(md5(random()::text), '') FROM generate_series(1, 30000))));
END $$;};
my @senders = map { $node->session } 1 .. 3;
$senders[$_]->send(sprintf $sender, "s$_") for 0 .. 2;
$_->receive for @senders;

# Pages as they are in the file, for rows that were rolled back take their places, too.
sub page_count
{
	my ($path) = @_;
	my ($pages, $empty) = (0, 0);
	open my $fh, '<:raw', $node->data_dir . "/$path" or die "cannot open $path: $!";
	while (read $fh, my $page, 8192)
	{
		# pd_lower: the header alone has 24 bytes
		$empty++ if unpack('x12 S', $page) <= 24;
		$pages++;
	}
	close $fh;
	return ($pages, $empty);
}

my $total = 0;
$node->safe_psql('postgres', 'CHECKPOINT');
for my $segment (split /\n/, $node->safe_psql('postgres', $ShardCluster::segments))
{
	my ($pages, $empty) = page_count($node->safe_psql('postgres', "SELECT pg_relation_filepath('$segment')"));
	is($empty, 0, "no page of $segment is empty");
	is($node->safe_psql('postgres', qq{SELECT count(*) FROM
			(SELECT seq, lag(seq) OVER (ORDER BY ctid) AS before FROM $segment) s WHERE seq < before}),
		0, "later places of $segment hold later messages");
	$total += $pages;
}
cmp_ok($total, '>', 1500, 'there was something to see');

$keeper->close;
$node->drain;
is($node->safe_psql('postgres', q{
		SELECT entity, count(*), bool_and(what::int > before) FROM
			(SELECT entity, what, lag(what::int, 1, 0) OVER (PARTITION BY entity ORDER BY pos) AS before
			 FROM seen WHERE entity <> 'gate') s
		GROUP BY 1 ORDER BY 1}),
	join("\n", map { 's' . $_ . '|' . (32 * 152 + 1) . '|t' } 0 .. 2),
	'all are handled, once and in order');

$node->log_is_clean;
done_testing();
