/*
 * sql/type/admin.h
 *		Starting, altering and dropping entity types: what the SQL functions share.
 */
#pragma once

#include "nodes/pg_list.h"
#include "fmgr.h"

#include "registry/routine.h"
#include "registry/security.h"
#include "registry/settings.h"

/* A row of shard.type as its editors see it. */
typedef struct ShardAdminType
{
	int32 type_id; /* 0: not yet stored */
	const char *name;
	Oid owner;
	ShardRoutine handler;
	Oid state_table;
	const char *mode; /* 'hosting', 'stopped' */
	const char *search_path;
	ShardSettings settings;
	Oid extractor[SHARD_EXTRACTORS]; /* InvalidOid: none */
	bool problem;					 /* a problem is stored */
} ShardAdminType;

/* Which function of the type a setting names. */
static inline ShardExtractor
shard_admin_extractor(ShardSettingId id)
{
	if (id == SHARD_SETTING_DECIDER)
		return SHARD_EXTRACTOR_DECIDER;
	return id == SHARD_SETTING_ORDERED_BY
			   ? SHARD_EXTRACTOR_ORDERED_BY
			   : (ShardExtractor) (id - SHARD_SETTING_ENTITY_ID_EXTRACTOR);
}

/*
 * admin_row.c: the row. Read locks the row to the end of the transaction; false if there is none. Insert fills in
 * type_id, and takes the place of what a dropped type of the name has left; replace is for another row of that number;
 * both and update tell all processes, and update takes a stored problem away. Call between SPI_connect and SPI_finish,
 * as the system (security.h); results outlive SPI_finish.
 */
extern bool shard_admin_row_read(const char *name, ShardAdminType *type);
extern void shard_admin_row_insert(ShardAdminType *type);
extern void shard_admin_row_replace(ShardAdminType *type);
extern void shard_admin_row_update(const ShardAdminType *type);
extern void shard_admin_row_owner(const ShardAdminType *type);
extern void shard_admin_row_delete(const ShardAdminType *type);

/* The same row gets another number, with other shards; what was known of the former ones goes. */
extern void shard_admin_row_renumber(int32 before, const ShardAdminType *type);

/*
 * admin_table.c: the state table, which its owner may have dropped. Under the same conditions. Create fills in
 * state_table. Lock bars all other sessions and returns whether the table is there and has rows; drop drops it, if it
 * is there.
 */
extern bool shard_admin_table_exists(const ShardAdminType *type);
extern void shard_admin_table_check(const ShardAdminType *type);
extern void shard_admin_table_create(ShardAdminType *type);

/* The same for a table that was dropped, with a WARNING: what waits is handled without the states that went with it. */
extern void shard_admin_table_create_again(ShardAdminType *type, const char *hint);
extern bool shard_admin_table_lock(const ShardAdminType *type);

/* Makes the triggers of a type with replicas anew, if one is missing or off (Q33); with a WARNING. False: all is well. */
extern bool shard_admin_table_watch(const ShardAdminType *type);
extern void shard_admin_table_drop(const ShardAdminType *type);

/* The state table, and that of copies, get another owner. */
extern void shard_admin_table_own(const ShardAdminType *type, Oid owner);

/*
 * Gives a type that is there a handler (admin_bind.c). Error 42804 if its states are of another type, unless theirs was
 * dropped and that one fits the rows.
 */
extern void shard_admin_bind(ShardAdminType *type, const ShardRoutine *handler);

/* Whether the type of the states exists. */
extern bool shard_admin_has_state_type(const ShardAdminType *type);

/*
 * admin.c: what every change of a type begins with. Begin takes the extension's lock, and raises where nothing may be
 * changed; function is the SQL function's name for errors. Open and close enclose the calls above.
 */
extern void shard_admin_begin(const char *function);

/*
 * The row of the type that argument 0 names, for the type's owner to change, locked; what names the command in the
 * error for a caller that is no owner. Opens the stretch that the caller closes.
 */
extern void shard_admin_open_type(FunctionCallInfo fcinfo, const char *what, ShardAdminType *stored,
								  ShardSecurity *security);

/* Registers the transaction callbacks of shard_drop_type; from _PG_init. */
extern void shard_admin_drop_init(void);

/*
 * admin_lock.c: which session may change what just now. All of these functions keep the locks that they take to the end
 * of the transaction, wait for ten seconds or the session's lock_timeout, whichever is shorter, and raise 55P03 that
 * names the session that they have waited for.
 *
 * The list of types, for a session that adds one or gives one away, and counts and numbers by what is there.
 */
extern void shard_admin_lock_list(void);

/* Locks the type of this name, for members of its owner, else 42501 with what they wanted, or 42704. */
extern ShardType *shard_admin_lock_name(const char *name, const char *what);

/*
 * The same for a session that starts the type; with the list of types, if it does not run here, and NULL if it is not
 * here.
 */
extern ShardType *shard_admin_lock_start(const char *name);

/*
 * Names the session that keeps others from a relation, for ten seconds at least, in a sentence; NULL: none does. Needs
 * a snapshot.
 */
extern char *shard_admin_relation_holder(Oid relation);

/*
 * The sessions that keep others from starting or altering entity types, one sentence for each: a List of char *, in the
 * current memory context. Needs a snapshot.
 */
extern List *shard_admin_lock_holders(void);

/*
 * admin_owner.c: the role that a type that is started here belongs to; errors unless the current user may start it,
 * what: "start entity type". Functions: errors unless the type's owner may execute them; those of a type are all that
 * its row names.
 */
extern Oid shard_admin_owner(const char *type, const char *what);
extern void shard_admin_check_executes(Oid owner, Oid function, const char *name);
extern void shard_admin_check_functions(const ShardAdminType *type);

/*
 * admin_owner.c, too: another owner: in the cluster, before anything is written in this transaction; and here, as the
 * system, for the row to be stored.
 */
extern void shard_admin_owner_in_cluster(const char *type, Oid owner);
extern void shard_admin_owner_here(ShardAdminType *type, Oid owner);

/*
 * admin_limit.c: errors if a setting of the type is more than an administrator allows; if its owner, without this type
 * so far, would have too many. As the caller, not as the system.
 */
extern void shard_admin_limit_setting(const ShardAdminType *type, ShardSettingId id);
extern void shard_admin_limit_types(const char *name, Oid owner, int64 number_of_shards);

/* admin_start.c: whether the cluster has, or had, other members, as far as this database knows durably. */
extern bool shard_admin_had_others(void);

/* The same file, for admin_proxy.c, too. */
extern void shard_admin_check_name(const char *name);
extern void shard_admin_check_create(const char *name);
extern const char *shard_admin_search_path(void);
