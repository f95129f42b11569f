/*
 * base/compat.h
 *		The only place that tests the server's version.
 *
 * Code is written to the subset of PostgreSQL 15; this bridges upward. It is
 * included last, and by .c files only.
 */
#pragma once

#include "access/xact.h"
#include "catalog/pg_database.h"
#include "catalog/pg_namespace.h"
#include "catalog/pg_proc.h"
#include "catalog/pg_type.h"
#include "postmaster/bgworker.h"
#include "storage/proc.h"
#include "utils/acl.h"
#include "utils/wait_event.h"

#if PG_VERSION_NUM < 160000
#define ShardFileNumber(rel) ((rel)->rd_node.relNode)
#define shard_proc_aclcheck(oid, role, mode) pg_proc_aclcheck(oid, role, mode)
#define shard_database_aclcheck(oid, role, mode) pg_database_aclcheck(oid, role, mode)
#define shard_namespace_aclcheck(oid, role, mode) pg_namespace_aclcheck(oid, role, mode)
#define shard_proc_ownercheck(oid, role) pg_proc_ownercheck(oid, role)
#define shard_database_ownercheck(oid, role) pg_database_ownercheck(oid, role)
#define shard_extension_ownercheck(oid, role) pg_extension_ownercheck(oid, role)
#else
#define ShardFileNumber(rel) ((rel)->rd_locator.relNumber)
#define shard_proc_aclcheck(oid, role, mode) object_aclcheck(ProcedureRelationId, oid, role, mode)
#define shard_database_aclcheck(oid, role, mode) \
	object_aclcheck(DatabaseRelationId, oid, role, mode)
#define shard_namespace_aclcheck(oid, role, mode) \
	object_aclcheck(NamespaceRelationId, oid, role, mode)
#define shard_proc_ownercheck(oid, role) object_ownercheck(ProcedureRelationId, oid, role)
#define shard_database_ownercheck(oid, role) object_ownercheck(DatabaseRelationId, oid, role)
#define shard_extension_ownercheck(oid, role) object_ownercheck(ExtensionRelationId, oid, role)
#endif

/* A small number of this process, unique among live backends, below MaxBackends + auxiliaries. */
#if PG_VERSION_NUM < 170000
#define ShardMyProcNumber (MyProc->pgprocno)
#define ShardProcNumber(proc) ((proc)->pgprocno)
#define ShardVxid(vxid, proc) GET_VXID_FROM_PGPROC(vxid, *(proc))
#define ShardMyLxid (MyProc->lxid)
#else
#define ShardMyProcNumber MyProcNumber
#define ShardProcNumber(proc) GetNumberFromPGProc(proc)
#define ShardVxid(vxid, proc) GET_VXID_FROM_PGPROC(vxid, *(proc))
#define ShardMyLxid (MyProc->vxid.lxid)
#endif

/* A wait event with a name of ours; costs a look-up from 17 on, so callers keep it. */
#if PG_VERSION_NUM < 170000
#define ShardWaitEvent(name) PG_WAIT_EXTENSION
#else
#define ShardWaitEvent(name) WaitEventExtensionNew(name)
#endif

/* Whether this transaction has exactly that lock. */
#if PG_VERSION_NUM < 170000
#define shard_lock_held(tag, mode) LockHeldByMe(tag, mode)
#else
#define shard_lock_held(tag, mode) LockHeldByMe(tag, mode, false)
#endif

/* Keys of a table in dynamic shared memory are copied as bytes. */
#if PG_VERSION_NUM < 170000
#define ShardDshashCopy
#else
#define ShardDshashCopy .copy_function = dshash_memcpy,
#endif

/* The server ends such workers itself when their database is dropped or copied. */
#ifndef BGWORKER_INTERRUPTIBLE
#define BGWORKER_INTERRUPTIBLE 0
#endif

/* A database whose DROP was interrupted; late minor releases only. */
#ifndef DATCONNLIMIT_INVALID_DB
#define DATCONNLIMIT_INVALID_DB (-2)
#endif

/* A generated column that is computed when read. */
#ifndef ATTRIBUTE_GENERATED_VIRTUAL
#define ATTRIBUTE_GENERATED_VIRTUAL 'v'
#endif

/* A qualified name as a list of strings; error if it is malformed. */
#if PG_VERSION_NUM < 160000
#define shard_qualified_name(text) stringToQualifiedNameList(text)
#else
#define shard_qualified_name(text) stringToQualifiedNameList(text, NULL)
#endif

/* Whether synchronous_standby_names is set. The file that uses it includes walsender_private.h. */
#ifdef SYNC_STANDBY_DEFINED
#define ShardSyncStandbysDefined() ((WalSndCtl->sync_standbys_status & SYNC_STANDBY_DEFINED) != 0)
#else
#define ShardSyncStandbysDefined() (WalSndCtl->sync_standbys_defined)
#endif

#include "nodes/execnodes.h"
#include "nodes/parsenodes.h"
#include "executor/executor.h"
#include "utils/rel.h"
#if PG_VERSION_NUM >= 160000
#include "parser/parse_relation.h"
#endif

/* A range table of one relation that is to be written. */
static inline void
shard_init_range_table(EState *estate, Relation rel)
{
	RangeTblEntry *rte = makeNode(RangeTblEntry);
#if PG_VERSION_NUM >= 160000
	List *permissions = NIL;
#endif

	rte->rtekind = RTE_RELATION;
	rte->relid = RelationGetRelid(rel);
	rte->relkind = rel->rd_rel->relkind;
	rte->rellockmode = RowExclusiveLock;
#if PG_VERSION_NUM < 160000
	ExecInitRangeTable(estate, list_make1(rte));
#elif PG_VERSION_NUM < 180000
	addRTEPermissionInfo(&permissions, rte);
	ExecInitRangeTable(estate, list_make1(rte), permissions);
#else
	addRTEPermissionInfo(&permissions, rte);
	ExecInitRangeTable(estate, list_make1(rte), permissions, bms_make_singleton(1));
#endif
}

/* A function for ExecutorCheckPerms_hook: what it is called with, how it calls the next one, what is in the list. */
#if PG_VERSION_NUM < 160000
#define SHARD_CHECK_PERMS_PARAMETERS List *permissions, bool raise
#define SHARD_CHECK_PERMS_ARGUMENTS permissions, raise
#define ShardPermission RangeTblEntry
#else
#define SHARD_CHECK_PERMS_PARAMETERS List *table, List *permissions, bool raise
#define SHARD_CHECK_PERMS_ARGUMENTS table, permissions, raise
#define ShardPermission RTEPermissionInfo
#endif

/* For writes of rows that no other transaction can have changed, so that no row is checked a second time. */
#if PG_VERSION_NUM < 160000
#define ShardEvalPlanQualInit(epq, estate) EvalPlanQualInit(epq, estate, NULL, NIL, -1)
#else
#define ShardEvalPlanQualInit(epq, estate) EvalPlanQualInit(epq, estate, NULL, NIL, -1, NIL)
#endif

/* The statistics of a session of this server, by its index from 0 on, as of the statistics snapshot. */
#if PG_VERSION_NUM < 160000
#define ShardBackendStatus(i) pgstat_fetch_stat_local_beentry((i) + 1)
#else
#define ShardBackendStatus(i) pgstat_get_local_beentry_by_index((i) + 1)
#endif

#include "utils/guc.h"
#include "utils/memutils.h"

/* All settings; and a number that changes when the process has got many more settings, or long ones. */
/* The memory of settings that are texts; strdup: NULL if there is none. */
#if PG_VERSION_NUM < 160000
#define shard_guc_strdup(text) strdup(text)
#define shard_guc_free(text) free(text)
#else
#define shard_guc_strdup(text) guc_strdup(LOG, text)
#define shard_guc_free(text) guc_free(text)
#endif

#if PG_VERSION_NUM < 160000
#define shard_guc_variables(count) (*(count) = GetNumConfigOptions(), get_guc_variables())
#define shard_guc_release(settings) ((void) (settings))
#define shard_guc_size() ((Size) GetNumConfigOptions())
#else
#define shard_guc_variables(count) get_guc_variables(count)
#define shard_guc_release(settings) pfree(settings)
static inline Size
shard_guc_size(void)
{
	static MemoryContext memory = NULL;

	for (MemoryContext child = TopMemoryContext->firstchild; memory == NULL && child != NULL;
		 child = child->nextchild)
		if (strcmp(child->name, "GUCMemoryContext") == 0)
			memory = child;
	return memory != NULL ? memory->mem_allocated : 0;
}
#endif

/* A set of events that lives as long as the process. */
#if PG_VERSION_NUM < 170000
#define ShardCreateWaitEventSet(size) CreateWaitEventSet(TopMemoryContext, size)
#else
#define ShardCreateWaitEventSet(size) CreateWaitEventSet(NULL, size)
#endif
