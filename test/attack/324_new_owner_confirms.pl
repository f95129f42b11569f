# Who is given a type, by REASSIGN OWNED or ALTER TABLE, does not find somebody else's code running as him (S07): it waits until he
# says that he wants it. Nothing is lost meanwhile.

use strict;
use warnings FATAL => 'all';

use ShardCluster;
use Test::More;

my $node = ShardCluster->create('first', conf => $ShardCluster::together);
my $system = $node->safe_psql('postgres', 'SELECT rolname FROM pg_roles WHERE oid = 10');
$node->safe_psql('postgres', q{
CREATE ROLE mallory LOGIN;
CREATE ROLE alice LOGIN;
CREATE ROLE bob LOGIN;
CREATE ROLE carol LOGIN;
GRANT CREATE ON DATABASE postgres TO mallory, alice, bob, carol;
CREATE SCHEMA mallory AUTHORIZATION mallory;
GRANT USAGE ON SCHEMA mallory TO PUBLIC;
});

sub as { return $node->as(@_) }

sub fails
{
	my ($role, $sql, $pattern, $why) = @_;
	local $Test::Builder::Level = $Test::Builder::Level + 1;
	my ($status, $out, $error) = $node->psql('postgres', $sql, extra_params => [ '-U', $role, '-v', 'VERBOSITY=verbose' ]);
	return like($status == 0 ? "done: $out" : $error, $pattern, $why);
}

# Each message sends the next one, and becomes a superuser's when it may.
as('mallory', q{
CREATE TABLE mallory.seen (at timestamptz DEFAULT clock_timestamp(), place text, who name DEFAULT current_user);
CREATE TABLE mallory.settings (goes_on bool);
INSERT INTO mallory.settings VALUES (true);
GRANT ALL ON mallory.seen, mallory.settings TO PUBLIC;
CREATE FUNCTION mallory.strike(place text) RETURNS void LANGUAGE plpgsql AS $$ BEGIN
	INSERT INTO mallory.seen (place) VALUES (place);
	IF (SELECT rolsuper FROM pg_roles WHERE rolname = current_user) THEN EXECUTE 'ALTER ROLE mallory SUPERUSER'; END IF; END $$;
CREATE FUNCTION mallory.h(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN
	PERFORM mallory.strike('handler');
	IF message ? 'n' THEN RETURN coalesce(state, '[]') || (message->'n'); END IF;
	IF (SELECT goes_on FROM mallory.settings) THEN PERFORM shard_tell('self', 'again', '{}'); END IF;
	RETURN coalesce(state, '[]');
END $$;
CREATE FUNCTION mallory.id(message jsonb) RETURNS text LANGUAGE plpgsql AS $$ BEGIN PERFORM mallory.strike('extractor'); RETURN 'x'; END $$;
CREATE FUNCTION mallory.number(message jsonb) RETURNS int8 LANGUAGE plpgsql AS $$ BEGIN PERFORM mallory.strike('ordered_by'); RETURN NULL; END $$;
CREATE FUNCTION mallory.fire() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM mallory.strike('trigger'); RETURN NEW; END $$;
SELECT shard_start('self', 'mallory.h', entity_id_extractor => 'mallory.id', ordered_by => 'mallory.number', number_of_shards => 4);
CREATE TRIGGER fire BEFORE INSERT OR UPDATE ON shard_entity.self FOR EACH ROW EXECUTE FUNCTION mallory.fire();
SELECT shard_tell('self', 'again', '{}');
});
my $ran = q{SELECT coalesce(string_agg(DISTINCT who, ' ' ORDER BY who), 'nobody') FROM mallory.seen};
my $problem = q{SELECT problem FROM shard_types WHERE type_name = 'self'};
sub forget_seen { $node->safe_psql('postgres', 'DELETE FROM mallory.seen'); return }
# All that was sent has been looked at: it is handled, or in the stash.
sub looked_at { $node->wait_until(q{SELECT NOT EXISTS (SELECT FROM shard_inbox WHERE place = 'inbox')}, 'the inbox to be looked at'); return }
$node->wait_until(q{SELECT count(*) > 5 FROM mallory.seen}, 'it to run');

# --- to a superuser -------------------------------------------------------------------------------

$node->safe_psql('postgres', "REASSIGN OWNED BY mallory TO \"$system\"");
$node->safe_psql('postgres', q{SELECT shard_tell('self', 'waits', jsonb_build_object('n', i)) FROM generate_series(1, 3) i});
$node->wait_until("SELECT coalesce(($problem), '') <> ''", 'the type to be suspended');
looked_at();
is($node->safe_psql('postgres', $ran), 'mallory', 'S07 it has run as mallory alone');
like($node->safe_psql('postgres', $problem), qr/it was given to role "\Q$system\E", which has to call shard_alter\('self', 'owner', '\Q$system\E'\)/, 'the reason is shown');
like($node->safe_psql('postgres', 'SELECT ok, problems FROM shard_health()'), qr/^f\|.*self.*is suspended: it was given to role.*shard_alter/, 'health says who must do what');
$node->wait_until(q{SELECT count(*) = 3 FROM shard_inbox WHERE place = 'stash' AND entity_id = 'waits'}, 'messages to wait');

# Nothing else of it runs as him, either: he sends, tries, asks, looks.
forget_seen();
my ($sends, $tries) = (q{SELECT shard_tell('self', '{}'::jsonb)}, q{SELECT shard_try('self', 'x', '{}')});
fails($system, $sends, qr/42501: .*has to call shard_alter/, 'S07 no extractor');
fails($system, $tries, qr/42501: .*has to call shard_alter/, 'S07 no trial');
fails($system, q{SELECT shard_ask('self', 'x', '{}')}, qr/55000: .*suspended/, 'S07 no ask');
$node->safe_psql('postgres', q{SELECT shard_tell('self', 'waits', '{"n": 4}')});
fails('mallory', $sends, qr/42501: .*has to call shard_alter/, 'nor if the former owner sends');
is($node->safe_psql('postgres', $ran), 'nobody', 'S07 nothing has run');
is(as('mallory', 'SELECT rolsuper FROM pg_roles WHERE rolname = current_user'), 'f', 'S07 nobody became superuser');
$node->restart;
$node->wait_until(q{SELECT shard_drain('10 s')}, 'the workers');
is($node->safe_psql('postgres', $ran), 'nobody', 'S07 nor after a restart');

# Not everybody may say so, and nobody without meaning it.
for my $role (qw(mallory alice))
{
	fails($role, "SELECT shard_alter('self', 'owner', '$_')", qr/42501: .*permission denied to alter/, "S07 $role cannot confirm it, naming $_") for $system, $role;
}
fails('mallory', q{SELECT shard_alter('self', 'max_attempts', '3')}, qr/42501/, 'S07 who gave it away has no say');
as($system, q{SELECT shard_alter('self', 'buffer_size', '1000')});
like(($node->psql('postgres', q{SELECT shard_start('self', 'mallory.h', entity_id_extractor => 'mallory.id', ordered_by => 'mallory.number', number_of_shards => 4, buffer_size => 1000)}))[2],
	qr/WARNING:.*does not run before its new owner has confirmed/, 'to start it again says what is missing');
$node->wait_until(q{SELECT shard_drain('10 s')}, 'the workers');
is($node->safe_psql('postgres', $ran), 'nobody', 'S07 other changes of the type are no confirmation');

# Given back it runs again; given to others it is theirs to say.
$node->safe_psql('postgres', q{UPDATE mallory.settings SET goes_on = false; ALTER TABLE shard_entity.self OWNER TO mallory});
$node->wait_until(q{SELECT state @> '[1, 2, 3, 4]' FROM shard_entity.self WHERE entity_id = 'waits'}, 'what has waited to be handled');
is($node->safe_psql('postgres', q{SELECT state FROM shard_entity.self WHERE entity_id = 'waits'}), '[1, 2, 3, 4]', 'all of it, in order');
is($node->safe_psql('postgres', $ran), 'mallory', 'as the owner that has it again');

# --- to any role ----------------------------------------------------------------------------------

forget_seen();
$node->safe_psql('postgres', q{ALTER TABLE shard_entity.self OWNER TO alice; SELECT shard_tell('self', 'waits', '{"n": 5}')});
$node->wait_until("SELECT coalesce(($problem), '') ~ 'alice'", 'the type to be suspended');
looked_at();
is($node->safe_psql('postgres', $ran), 'nobody', 'S07 not as alice');
fails('mallory', q{SELECT shard_alter('self', 'owner', 'alice')}, qr/42501/, 'mallory cannot say it for her');
fails('alice', q{SELECT shard_alter('self', 'owner', 'bob')}, qr/42501/, 'nor she for others');
as('alice', q{SELECT shard_alter('self', 'owner', 'alice')});
$node->wait_until(q{SELECT state @> '[5]' FROM shard_entity.self WHERE entity_id = 'waits'}, 'it to run');
is($node->safe_psql('postgres', $ran), 'alice', 'when she has confirmed it runs as her');
as('alice', q{SELECT shard_alter('self', 'owner', 'alice')});
is($node->safe_psql('postgres', $problem), '', 'to confirm twice is the same');

# In a handler nobody confirms anything.
as('alice', q{CREATE SCHEMA alice; CREATE FUNCTION alice.confirm(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN PERFORM shard_alter('self', 'owner', 'alice'); RETURN message; END $$;
SELECT shard_start('confirm', 'alice.confirm')});
fails('alice', q{SELECT shard_ask('confirm', 'x', '{}')}, qr/42501: .*security-restricted/, 'S07 not in a handler');

# The function alone is no matter: it runs as the type's owner, whoever owns it.
forget_seen();
$node->safe_psql('postgres', qq{ALTER FUNCTION mallory.h(jsonb, jsonb) OWNER TO "$system"; SELECT shard_tell('self', 'waits', '{"n": 6}')});
$node->wait_until(q{SELECT state @> '[6]' FROM shard_entity.self WHERE entity_id = 'waits'}, 'it to run');
is($node->safe_psql('postgres', $ran), 'alice', 'S07 a handler that was given to a superuser does not run as him');

# In the very moment, under load: each message that is handled is handled as somebody who wanted it.
forget_seen();
as('alice', q{SELECT shard_tell('self', 'e' || i % 10, '{"n": 0}') FROM generate_series(1, 3000) i});
$node->safe_psql('postgres', qq{ALTER TABLE shard_entity.self OWNER TO "$system"});
looked_at();
is($node->safe_psql('postgres', q{SELECT count(*) FROM mallory.seen WHERE who <> 'alice'}), 0, 'S07 nor those that were on their way');
as($system, qq{SELECT shard_alter('self', 'owner', '$system')});
$node->drain;
is($node->safe_psql('postgres', q{SELECT sum(jsonb_array_length(state)) FROM shard_entity.self WHERE entity_id ~ '^e'}), 3000, 'and none is lost');

# Who does not want it gets rid of it without running it.
forget_seen();
$node->safe_psql('postgres', q{ALTER TABLE shard_entity.self OWNER TO bob; SELECT shard_tell('self', 'waits', '{"n": 7}')});
$node->wait_until("SELECT coalesce(($problem), '') ~ 'bob'", 'the type to be suspended');
looked_at();
as('bob', q{SELECT shard_stop_type('self')});
as('bob', q{SELECT shard_drop_type('self', force => true)});
is($node->safe_psql('postgres', $ran), 'nobody', 'S07 it is stopped and dropped without having run');
$node->log_is_clean;

done_testing();
