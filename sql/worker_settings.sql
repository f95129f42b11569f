--
-- What a database's owner sets for its sessions does not change how workers work.
--
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS shard;
RESET client_min_messages;
CREATE ROLE regress_shard_nobody;
CREATE SCHEMA settings_test;
SET search_path = settings_test, public;
CREATE FUNCTION settings(state jsonb, message jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    RETURN (SELECT jsonb_object_agg(name, current_setting(name)) FROM jsonb_array_elements_text(message) name)
           || jsonb_build_object('user', current_user = session_user);
END
$$;
SELECT shard_start('settings', 'settings');

SELECT current_database() AS db \gset
ALTER DATABASE :"db" SET role = 'regress_shard_nobody';
ALTER DATABASE :"db" SET session_replication_role = replica;
ALTER DATABASE :"db" SET statement_timeout = '1ms';
ALTER DATABASE :"db" SET lock_timeout = '1ms';
ALTER DATABASE :"db" SET idle_in_transaction_session_timeout = '1ms';
ALTER DATABASE :"db" SET search_path = settings_test;
ALTER DATABASE :"db" SET row_security = off;
ALTER DATABASE :"db" SET default_transaction_isolation = serializable;
ALTER DATABASE :"db" SET default_transaction_read_only = on;

-- A new worker, which reads them.
SELECT pid AS old FROM shard_stat_workers WHERE worker = 0 \gset
SELECT pg_terminate_backend(:old, 30000);
SELECT shard_tell('settings', 'a', '["session_replication_role", "statement_timeout", "lock_timeout", "row_security",
    "search_path", "transaction_isolation", "transaction_read_only"]');
SELECT shard_drain();
SELECT count(*) AS new_worker FROM shard_stat_workers WHERE worker = 0 AND pid <> :old;
SELECT jsonb_pretty(state) FROM shard_entity.settings;

SET default_transaction_read_only = off;
ALTER DATABASE :"db" RESET role;
ALTER DATABASE :"db" RESET session_replication_role;
ALTER DATABASE :"db" RESET statement_timeout;
ALTER DATABASE :"db" RESET lock_timeout;
ALTER DATABASE :"db" RESET idle_in_transaction_session_timeout;
ALTER DATABASE :"db" RESET search_path;
ALTER DATABASE :"db" RESET row_security;
ALTER DATABASE :"db" RESET default_transaction_isolation;
ALTER DATABASE :"db" RESET default_transaction_read_only;
SELECT pid AS old FROM shard_stat_workers WHERE worker = 0 \gset
SELECT pg_terminate_backend(:old, 30000);
SELECT shard_ask('settings', 'b', '["statement_timeout"]', '30 s');
SET client_min_messages = warning;
SELECT shard_drop_type('settings', force => true);
DROP SCHEMA settings_test CASCADE;
DROP ROLE regress_shard_nobody;
