--
-- A handler tells an entity of another type, whose extractors are somebody
-- else's code: they cannot act in the name of the entity that tells.
--
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS shard;
RESET client_min_messages;
CREATE SCHEMA extractor_test;
SET search_path = extractor_test, public;
-- does what the message says, in an extractor that it names
CREATE FUNCTION act(message jsonb, place text) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    IF message->>'in' = place THEN
        EXECUTE format('SELECT public.%s', message->>'do');
    END IF;
END
$$;
CREATE FUNCTION id_of(message jsonb) RETURNS text LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    PERFORM extractor_test.act(message, 'id');
    RETURN message->>'to';
END
$$;
CREATE FUNCTION body_of(message jsonb) RETURNS jsonb LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    PERFORM extractor_test.act(message, 'body');
    RETURN message - 'to';
END
$$;
CREATE FUNCTION shard_of(entity_id text) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF entity_id = 'bad shard' THEN
        PERFORM public.shard_reply('"from the shard"');
    END IF;
    RETURN 7;
END
$$;
CREATE FUNCTION receiver(state jsonb, message jsonb) RETURNS jsonb LANGUAGE sql RETURN coalesce(state, '[]') || message;
SELECT shard_start('receiver', 'receiver', entity_id_extractor => 'id_of', message_extractor => 'body_of', shard_id_extractor => 'shard_of');
-- passes a message on; says what came of it, and whether it is itself afterwards
CREATE FUNCTION teller(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE
    outcome text := 'told';
BEGIN
    BEGIN
        PERFORM shard_tell('receiver', message);
    EXCEPTION WHEN OTHERS THEN
        outcome := SQLSTATE;
    END;
    PERFORM shard_reply(jsonb_build_array(outcome, (SELECT entity_id FROM shard_self())));
    RETURN to_jsonb(coalesce(state::int4, 0) + 1);
END
$$;
SELECT shard_start('teller', 'teller');

SELECT shard_ask('teller', 'a', '{"to": "x"}');
SELECT place, action, shard_ask('teller', 'a', jsonb_build_object('to', 'x', 'in', place, 'do', action))
FROM unnest('{id,body}'::text[]) place, unnest('{"shard_reply(''1'')",shard_stop(),shard_passivate(),"shard_self()"}'::text[]) action
ORDER BY 1, 2;
SELECT shard_ask('teller', 'a', '{"to": "bad shard"}');
SELECT shard_drain();
SELECT state FROM shard_entity.receiver;
-- it was never stopped
SELECT state FROM shard_entity.teller;

SELECT shard_drop_type('teller', force => true), shard_drop_type('receiver', force => true);
SET client_min_messages = warning;
DROP SCHEMA extractor_test CASCADE;
