/*
 * What the privileges of all that was made are, whatever default privileges say for the role that makes the extension
 * (ALTER DEFAULT PRIVILEGES): beside the owner, roles have only the privileges that this script grants, which is to
 * PUBLIC, and here to roles that may see what others do.
 */
DO $$
DECLARE
    r record;
BEGIN
    FOR r IN
        WITH schemas AS (
            SELECT n.oid FROM pg_catalog.pg_namespace n WHERE n.nspname OPERATOR(pg_catalog.~) '^shard(_entity|_peer|_replica)?$'
        ), member AS (
            SELECT d.classid, d.objid FROM pg_catalog.pg_depend d JOIN pg_catalog.pg_extension e ON d.refobjid OPERATOR(pg_catalog.=) e.oid
            WHERE d.refclassid OPERATOR(pg_catalog.=) 'pg_catalog.pg_extension'::regclass AND d.deptype OPERATOR(pg_catalog.=) 'e'
                AND e.extname OPERATOR(pg_catalog.=) 'shard'
        ), object AS (
            SELECT CASE c.relkind WHEN 'S' THEN 'SEQUENCE' ELSE 'TABLE' END AS kind, c.oid::regclass::text AS name, c.relacl AS acl, c.relowner AS owner
            FROM pg_catalog.pg_class c
            WHERE c.relkind OPERATOR(pg_catalog.=) ANY ('{r,v,S}') AND (c.relnamespace IN (SELECT s.oid FROM schemas s)
                OR c.oid IN (SELECT m.objid FROM member m WHERE m.classid OPERATOR(pg_catalog.=) 'pg_catalog.pg_class'::regclass))
            UNION ALL
            SELECT 'ROUTINE', p.oid::regprocedure::text, p.proacl, p.proowner FROM pg_catalog.pg_proc p
            WHERE p.oid IN (SELECT m.objid FROM member m WHERE m.classid OPERATOR(pg_catalog.=) 'pg_catalog.pg_proc'::regclass)
            UNION ALL
            SELECT 'SCHEMA', pg_catalog.quote_ident(n.nspname::text), n.nspacl, n.nspowner FROM pg_catalog.pg_namespace n
            WHERE n.oid IN (SELECT s.oid FROM schemas s)
        )
        SELECT DISTINCT o.kind, o.name, pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(a.grantee)::text) AS grantee
        FROM object o, pg_catalog.aclexplode(o.acl) a
        WHERE a.grantee OPERATOR(pg_catalog.<>) 0 AND a.grantee OPERATOR(pg_catalog.<>) o.owner
    LOOP
        EXECUTE pg_catalog.format('REVOKE ALL ON %s %s FROM %s CASCADE', r.kind, r.name, r.grantee);
    END LOOP;
END $$;

GRANT EXECUTE ON FUNCTION shard.current_regions() TO pg_read_all_stats;
GRANT SELECT ON @extschema@.shard_current_regions TO pg_read_all_stats;
GRANT EXECUTE ON FUNCTION @extschema@.shard_cluster_stats(interval) TO pg_read_all_stats;
GRANT EXECUTE ON FUNCTION shard.decisions() TO pg_read_all_stats;
GRANT SELECT ON @extschema@.shard_decisions TO pg_read_all_stats;
GRANT EXECUTE ON FUNCTION @extschema@.shard_rebalance_plan(text) TO pg_read_all_stats;
