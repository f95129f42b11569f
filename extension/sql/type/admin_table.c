/*
 * sql/type/admin_table.c
 *		The state table of an entity type.
 *
 * An ordinary table in schema shard_entity, which belongs to the type's owner: the table's owner is the type's. Only
 * the extension may create tables there, so it is made by the system and then given away. Commands that make or drop a
 * table run no code of its owner: there are no rows yet, and it is never altered here.
 */
#include "postgres.h"

#include "access/table.h"
#include "catalog/heap.h"
#include "catalog/index.h"
#include "catalog/namespace.h"
#include "catalog/pg_class.h"
#include "catalog/pg_type.h"
#include "commands/tablecmds.h"
#include "executor/spi.h"
#include "miscadmin.h"
#include "storage/lmgr.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/ruleutils.h"
#include "utils/rel.h"
#include "utils/typcache.h"

#include "sql/type/admin.h"
#include "entity/replica_table.h"
#include "entity/state.h"
#include "entity/state_door.h"
#include "registry/statement.h"

#include "base/compat.h"

#define ENTITY_SCHEMA "shard_entity"

/* The extension's own columns; no attribute of a composite state may be called so. */
static const char *const own_column[] = {"shard", "entity_id", "version", "remembered",
										 "updated_at"};

/*
 * State rows are updated all the time, in place while the page has room for the new version. Updates prune pages;
 * vacuum has to come early for the index only.
 */
#define STORAGE_PARAMETERS \
	"fillfactor = 50, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_scale_factor = 0.05," \
	" autovacuum_analyze_threshold = 1000, autovacuum_analyze_scale_factor = 0.1"

/* Runs one command of the extension. */
static void
run(const char *command)
{
	ShardStatement statement = {command};

	shard_statement_once(&statement, NULL, SPI_OK_UTILITY);
}

/* Refuses an attribute whose name cannot be a column of a state table. */
static void
check_attribute(Oid state_type, const char *name)
{
	bool clash = SystemAttributeByName(name) != NULL;

	for (int i = 0; !clash && i < lengthof(own_column); i++)
		clash = strcmp(own_column[i], name) == 0;
	if (clash)
		ereport(ERROR, (errcode(ERRCODE_DUPLICATE_COLUMN),
						errmsg("attribute \"%s\" of type %s cannot be a column of a state table",
							   name, format_type_be(state_type)),
						errdetail("Every state table has a column of this name already."),
						errhint("Rename the attribute.")));
}

/* Refuses row types that belong to something else than a table. */
static void
check_row_type(Oid state_type)
{
	char kind = get_rel_relkind(get_typ_typrelid(state_type));

	if (kind == RELKIND_COMPOSITE_TYPE || kind == RELKIND_RELATION ||
		kind == RELKIND_PARTITIONED_TABLE)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_WRONG_OBJECT_TYPE),
			 errmsg("type %s cannot be a state", format_type_be(state_type)),
			 errdetail("The type is the row type of neither a table nor CREATE TYPE ... AS."),
			 errhint("Use CREATE TYPE ... AS.")));
}

/* Raises if the state type cannot be kept in a table. */
void
shard_admin_table_check(const ShardAdminType *type)
{
	Oid state_type = type->handler.state_type;
	TupleDesc desc;
	int columns = 0;

	if (!type->handler.composite)
		return;
	check_row_type(state_type);
	desc = lookup_rowtype_tupdesc(state_type, -1);
	for (int i = 0; i < desc->natts; i++)
	{
		if (TupleDescAttr(desc, i)->attisdropped)
			continue;
		check_attribute(state_type, NameStr(TupleDescAttr(desc, i)->attname));
		columns++;
	}
	ReleaseTupleDesc(desc);
	if (columns == 0)
		ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
						errmsg("type %s has no attributes", format_type_be(state_type)),
						errhint("Use a type with at least one attribute.")));
}

/* Appends a column definition with its type, modifier and collation. */
static void
append_column(StringInfo buf, const char *name, Oid type, int32 modifier, Oid collation)
{
	appendStringInfo(buf, ", %s %s", quote_identifier(name),
					 format_type_extended(type, modifier,
										  FORMAT_TYPE_TYPEMOD_GIVEN | FORMAT_TYPE_FORCE_QUALIFY));
	if (OidIsValid(collation) && collation != get_typcollation(type))
		appendStringInfo(buf, " COLLATE %s", generate_collation_name(collation));
}

/* Appends the columns that hold the state. */
static void
append_state_columns(StringInfo buf, const ShardRoutine *handler)
{
	TupleDesc desc;

	if (!handler->composite)
	{
		append_column(buf, "state", handler->state_type, -1, InvalidOid);
		return;
	}
	desc = lookup_rowtype_tupdesc(handler->state_type, -1);
	for (int i = 0; i < desc->natts; i++)
	{
		Form_pg_attribute attribute = TupleDescAttr(desc, i);

		if (!attribute->attisdropped)
			append_column(buf, NameStr(attribute->attname), attribute->atttypid,
						  attribute->atttypmod, attribute->attcollation);
	}
	ReleaseTupleDesc(desc);
}

/* Default privileges of the role that made the table have nothing to say here: its owner alone has rights on it. */
static void
close_to_others(const char *table, const char *owner)
{
	const ShardStatement look = {
		"SELECT DISTINCT CASE a.grantee WHEN 0 THEN 'PUBLIC'"
		"  ELSE pg_catalog.quote_ident(pg_catalog.pg_get_userbyid(a.grantee)::text) END"
		" FROM pg_catalog.pg_class c, pg_catalog.aclexplode(c.relacl) a"
		" WHERE c.oid OPERATOR(pg_catalog.=) $1::pg_catalog.regclass",
		1,
		{TEXTOID}};
	ShardArguments arguments = {0};
	List *grantees = NIL;
	ListCell *cell;

	shard_statement_add_string(&arguments, table);
	shard_statement_once(&look, &arguments, SPI_OK_SELECT);
	for (uint64 i = 0; i < SPI_processed; i++)
		grantees = lappend(grantees, shard_statement_text(i, 1));
	foreach (cell, grantees)
		run(psprintf("REVOKE ALL ON TABLE %s FROM %s CASCADE", table, (char *) lfirst(cell)));
	if (grantees != NIL)
		run(psprintf("GRANT ALL ON TABLE %s TO %s", table, owner));
}

/* The name of the table that has the index. */
static const char *
of_index(Oid index)
{
	Oid table = IndexGetRelation(index, true);
	const char *name = OidIsValid(table) ? get_rel_name(table) : NULL;

	return name != NULL
			   ? quote_qualified_identifier(get_namespace_name(get_rel_namespace(table)), name)
			   : "that is gone";
}

/* Another table of that name may have any states. */
static void
check_name_is_free(const ShardAdminType *type, const char *schema, const char *table)
{
	Oid other = get_relname_relid(type->name, get_namespace_oid(schema, false));
	char kind = OidIsValid(other) ? get_rel_relkind(other) : '\0';

	if (kind == '\0')
		return;
	if (kind == RELKIND_INDEX || kind == RELKIND_PARTITIONED_INDEX)
		ereport(ERROR,
				(errcode(ERRCODE_DUPLICATE_TABLE), errmsg("relation %s already exists", table),
				 errdetail("It is an index of table %s.", of_index(other)),
				 errhint("Choose another name for the type, or rename the index.")));
	if (strcmp(schema, SHARD_REPLICA_SCHEMA) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_DUPLICATE_TABLE), errmsg("relation %s already exists", table),
				 errdetail("A restored dump brings tables of copies, of which no home knows."),
				 errhint("Drop it: copies are made anew.")));
	ereport(ERROR,
			(errcode(ERRCODE_DUPLICATE_TABLE), errmsg("relation %s already exists", table),
			 errdetail("A restored dump brings state tables without their entity types."),
			 errhint(
				 "Move it to another schema, start the type, and put its rows into the new table, "
				 "all in one transaction, as \"Backup and restore\" in doc/operations.md says.")));
}

/* Whether the type has replicas, so that what SQL changes in its table has to be told (Q33). */
static bool
is_watched(const ShardAdminType *type)
{
	return shard_settings_number(&type->settings, SHARD_SETTING_REPLICAS) > 0;
}

/* Makes one of our triggers; of that name there may be one of the owner's. */
static void
make_trigger(const char *table, const char *name, const char *when)
{
	run(psprintf("CREATE OR REPLACE TRIGGER %s %s EXECUTE FUNCTION shard.state_touched()", name,
				 psprintf(when, table)));
	run(psprintf("ALTER TABLE %s ENABLE ALWAYS TRIGGER %s", table, name));
}

static void
make_triggers(const char *table)
{
	make_trigger(table, SHARD_TOUCHED_TRIGGER,
				 "AFTER INSERT OR UPDATE OR DELETE ON %s FOR EACH ROW");
	make_trigger(table, SHARD_TRUNCATED_TRIGGER, "BEFORE TRUNCATE ON %s FOR EACH STATEMENT");
}

/* Creates a table of states in a schema, and gives it to the type's owner. Returns it. */
static Oid
create_in(const ShardAdminType *type, const char *schema, const char *comment)
{
	const char *table = quote_qualified_identifier(schema, type->name);
	const char *owner = quote_identifier(GetUserNameFromId(type->owner, false));
	StringInfoData buf;

	check_name_is_free(type, schema, table);
	initStringInfo(&buf);
	appendStringInfo(&buf,
					 "CREATE TABLE %s (shard int4 NOT NULL, entity_id text COLLATE \"C\" NOT NULL",
					 table);
	append_state_columns(&buf, &type->handler);
	appendStringInfoString(&buf, ", version int8 NOT NULL DEFAULT 1"
								 ", remembered bool NOT NULL DEFAULT false"
								 ", updated_at timestamptz NOT NULL DEFAULT now()"
								 ", PRIMARY KEY (shard, entity_id)) WITH (" STORAGE_PARAMETERS ")");
	run(buf.data);
	run(psprintf("COMMENT ON TABLE %s IS %s", table, quote_literal_cstr(comment)));
	run(psprintf("ALTER TABLE %s OWNER TO %s", table, owner));
	close_to_others(table, owner);
	return get_relname_relid(type->name, get_namespace_oid(schema, false));
}

/*
 * The table of copies of a type with replicas; InvalidOid: there is none. It is known by its name alone, of which there may be
 * an index, or the table that a restored dump has brought: a type without replicas has none, whatever is there.
 */
static Oid
replica_table(const ShardAdminType *type)
{
	Oid schema = is_watched(type) ? get_namespace_oid(SHARD_REPLICA_SCHEMA, true) : InvalidOid;
	Oid table = OidIsValid(schema) ? get_relname_relid(type->name, schema) : InvalidOid;

	return OidIsValid(table) && get_rel_relkind(table) == RELKIND_RELATION ? table : InvalidOid;
}

/*
 * Creates the state table, and, with replicas, that of copies; which stays, if a state table is created in place of one that
 * was dropped.
 */
void
shard_admin_table_create(ShardAdminType *type)
{
	bool again = OidIsValid(type->state_table);

	type->state_table =
		create_in(type, ENTITY_SCHEMA, psprintf("state of the entities of type %s", type->name));
	if (!is_watched(type))
		return;
	make_triggers(quote_qualified_identifier(ENTITY_SCHEMA, type->name));
	if (!again)
		(void) create_in(type, SHARD_REPLICA_SCHEMA,
						 psprintf("copies of states of type %s whose home is another node",
								  type->name));
}

void
shard_admin_table_create_again(ShardAdminType *type, const char *hint)
{
	shard_admin_table_create(type);
	ereport(WARNING,
			(errmsg("state table of entity type \"%s\" was created again, empty", type->name),
			 errdetail("The table had been dropped, and the states of this node's entities with "
					   "it: the entities start again, empty, with the messages that wait."),
			 errhint("%s", hint)));
}

bool
shard_admin_table_exists(const ShardAdminType *type)
{
	return get_rel_relkind(type->state_table) != '\0';
}

/* The quoted name that the table has today; NULL if its owner dropped it. */
static char *
present_name(const ShardAdminType *type)
{
	char *name = get_rel_name(type->state_table);

	if (name == NULL)
		return NULL;
	return quote_qualified_identifier(get_namespace_name(get_rel_namespace(type->state_table)),
									  name);
}

bool
shard_admin_table_watch(const ShardAdminType *type)
{
	Relation rel;
	bool lacks;

	if (!is_watched(type))
		return false;
	rel = try_table_open(type->state_table, AccessShareLock);
	if (rel == NULL)
		return false;
	lacks = rel->rd_rel->relkind == RELKIND_RELATION && shard_state_lacks_trigger(rel) != NULL;
	table_close(rel, NoLock);
	if (!lacks)
		return false;
	make_triggers(present_name(type));
	ereport(WARNING,
			(errmsg("triggers of the state table of entity type \"%s\" were made anew", type->name),
			 errdetail("What SQL has changed in the table without them has not come to the members "
					   "that keep copies of the states."),
			 errhint("An UPDATE that changes nothing brings them the rows that there are. A row "
					 "that was deleted has to be inserted and deleted once more.")));
	return true;
}

/*
 * Locks the table, if it is there, and returns whether it has rows. Its owner
 * may have turned it into something that runs code when read.
 */
bool
shard_admin_table_lock(const ShardAdminType *type)
{
	Oid replica = replica_table(type);
	char *name;

	LockRelationOid(type->state_table, AccessExclusiveLock);

	/* nothing is applied to copies from here on */
	if (OidIsValid(replica))
		LockRelationOid(replica, AccessExclusiveLock);
	name = present_name(type);
	if (name == NULL)
		return false;
	if (get_rel_relkind(type->state_table) != RELKIND_RELATION)
		ereport(ERROR, (errcode(ERRCODE_WRONG_OBJECT_TYPE),
						errmsg("state table %s is no longer a table", name),
						errhint("Drop it yourself first.")));
	return shard_state_door_rows(type->state_table) != SHARD_DOOR_EMPTY;
}

/* Drops the table, if it is there; error 2BP01 if something of the user's depends on it. */
void
shard_admin_table_drop(const ShardAdminType *type)
{
	char *name = present_name(type);

	if (name != NULL)
		run(psprintf("DROP TABLE %s", name));
	if (OidIsValid(replica_table(type)))
		run(psprintf("DROP TABLE %s",
					 quote_qualified_identifier(SHARD_REPLICA_SCHEMA, type->name)));
}

void
shard_admin_table_own(const ShardAdminType *type, Oid owner)
{
	Oid replica = replica_table(type);

	if (shard_admin_table_exists(type))
		ATExecChangeOwner(type->state_table, owner, false, AccessExclusiveLock);
	if (OidIsValid(replica))
		ATExecChangeOwner(replica, owner, false, AccessExclusiveLock);
}
