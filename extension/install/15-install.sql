/*
 * Tells the launcher, at commit, that this database wants workers. Each upgrade
 * script calls it, too. Fails unless the library was loaded at server start.
 */
CREATE FUNCTION shard.installed() RETURNS void
LANGUAGE c VOLATILE AS 'MODULE_PATHNAME', 'shard_install_announce';
REVOKE ALL ON FUNCTION shard.installed() FROM PUBLIC;
COMMENT ON FUNCTION shard.installed() IS 'has the launcher start workers in this database, at commit';
SELECT shard.installed();
