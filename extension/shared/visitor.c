/*
 * shared/visitor.c
 *		Backends in which other nodes call: they leave when a statement needs the database without other sessions.
 *
 * One place per backend, written by that backend alone; the launcher reads them, and, of backends that run allocation
 * functions, the control worker and shard_health. Should a backend have no time to clear its place, the server
 * restarts, and all of it with it.
 *
 * A link idles as soon as it is made, and may not call anything for long. So the node that makes a link says so as it
 * logs in, by setting shard.link (peer_dsn.c). That makes a session one to be ended, so it can only be said of the own
 * session, at its start: a file, a database, a role, or a later SET by other code in the session cannot set it.
 */
#include "postgres.h"

#include <signal.h>

#include "miscadmin.h"
#include "storage/ipc.h"
#include "storage/proc.h"
#include "storage/procarray.h"
#include "storage/shmem.h"
#include "utils/guc.h"
#include "utils/timestamp.h"

#include "shared/bar.h"
#include "shared/visitor.h"

#include "base/compat.h"

typedef struct Visitor
{
	pg_atomic_uint32 pid; /* 0: none */
	pg_atomic_uint32 dboid;

	/* the run for a type's owner; the first field is written last, and tells whether the others mean anything */
	pg_atomic_uint32 owner; /* 0: nothing */
	pg_atomic_uint32 type_id;
	pg_atomic_uint64 since; /* TimestampTz */
} Visitor;

static Visitor *visitors = NULL;

/* This backend has its place; another node has called in it. */
static bool noted = false;
static bool serves = false;

/* shard.link: this session is a link of another node. */
static bool is_link = false;

static int
place_count(void)
{
	return MaxBackends + NUM_AUXILIARY_PROCS;
}

static Size
shmem_size(void)
{
	return mul_size(place_count(), sizeof(Visitor));
}

static void
startup(void)
{
	bool found;

	visitors = ShmemInitStruct("shard visitors", shmem_size(), &found);
	if (found)
		return;
	for (int i = 0; i < place_count(); i++)
	{
		pg_atomic_init_u32(&visitors[i].pid, 0);
		pg_atomic_init_u32(&visitors[i].dboid, 0);
		pg_atomic_init_u32(&visitors[i].owner, 0);
		pg_atomic_init_u32(&visitors[i].type_id, 0);
		pg_atomic_init_u64(&visitors[i].since, 0);
	}
}

static void
leave_at_exit(int code, Datum arg)
{
	pg_atomic_write_u32(&visitors[ShardMyProcNumber].pid, 0);
	pg_atomic_write_u32(&visitors[ShardMyProcNumber].owner, InvalidOid);
	shard_shmem_wake_launcher();
}

/*
 * Notes this backend. Returns whether a bar stands: the backend that raises a bar sees this one noted, or this one sees
 * the bar.
 */
static bool
note(void)
{
	Visitor *place = &visitors[ShardMyProcNumber];
	bool barred;

	if (!noted)
	{
		pg_atomic_write_u32(&place->dboid, MyDatabaseId);
		pg_atomic_write_u32(&place->pid, (uint32) MyProcPid);
		before_shmem_exit(leave_at_exit, (Datum) 0);
		noted = true;
	}
	LWLockAcquire(shard_shared->lock, LW_SHARED);
	barred = shard_bar_stands(MyDatabaseId);
	LWLockRelease(shard_shared->lock);
	return barred;
}

void
shard_visitor_here(void)
{
	serves = true;
	if (note())
		ereport(FATAL, (errcode(ERRCODE_ADMIN_SHUTDOWN),
						errmsg("the database is being dropped, altered or copied")));
}

bool
shard_visitor_is_here(void)
{
	return serves;
}

/*
 * Only the client itself says so, as it connects.
 */
static bool
check_link(bool *value, void **extra, GucSource source)
{
	if (!*value || source == PGC_S_CLIENT)
		return true;
	GUC_check_errdetail("Only the client that connects can set it, for its own connection.");
	return false;
}

/*
 * The session is known as a link before it is anything else. An error cannot be raised here: should it come in while a bar
 * stands, the launcher ends it.
 */
static void
assign_link(bool value, void *extra)
{
	if (value && visitors != NULL && MyProcPort != NULL && OidIsValid(MyDatabaseId) && note())
		shard_shmem_wake_launcher();
}

void
shard_visitor_define(void)
{
	DefineCustomBoolVariable(
		"shard.link", "Says that a session is the connection of another node.",
		"The session is ended when the database is dropped, renamed, moved or copied.", &is_link,
		false, PGC_BACKEND,
		GUC_NO_SHOW_ALL | GUC_NO_RESET_ALL | GUC_NOT_IN_SAMPLE | GUC_DISALLOW_IN_FILE, check_link,
		assign_link, NULL);
}

/*
 * The process of a place, if it serves that database now; 0: it does not.
 */
static int
pid_of(const Visitor *place, Oid dboid)
{
	int pid = (int) pg_atomic_read_u32(unconstify(pg_atomic_uint32 *, &place->pid));
	PGPROC *proc;

	if (pid == 0 || pg_atomic_read_u32(unconstify(pg_atomic_uint32 *, &place->dboid)) != dboid)
		return 0;
	proc = BackendPidGetProc(pid);
	return proc != NULL && proc->databaseId == dboid ? pid : 0;
}

void
shard_visitor_runs_for(Oid owner, int32 type_id)
{
	Visitor *place = &visitors[ShardMyProcNumber];

	pg_atomic_write_u32(&place->type_id, (uint32) type_id);
	pg_atomic_write_u64(&place->since, GetCurrentTimestamp());
	pg_write_barrier();
	pg_atomic_write_u32(&place->owner, owner);
}

void
shard_visitor_runs_for_nobody(void)
{
	pg_atomic_write_u32(&visitors[ShardMyProcNumber].owner, InvalidOid);
}

bool
shard_visitor_next_run(Oid dboid, int *at, ShardVisitorRun *run)
{
	while (*at < place_count())
	{
		Visitor *place = &visitors[(*at)++];
		Oid owner = pg_atomic_read_u32(&place->owner);

		if (!OidIsValid(owner))
			continue;
		pg_read_barrier();
		*run = (ShardVisitorRun){.owner = owner,
								 .type_id = (int32) pg_atomic_read_u32(&place->type_id),
								 .since = (TimestampTz) pg_atomic_read_u64(&place->since),
								 .pid = pid_of(place, dboid)};
		if (run->pid != 0)
			return true;
	}
	return false;
}

int
shard_visitor_end(Oid dboid)
{
	int count = 0;

	for (int i = 0; i < place_count(); i++)
	{
		int pid = pid_of(&visitors[i], dboid);

		if (pid == 0)
			continue;
		count++;
		(void) kill(pid, SIGTERM);
	}
	return count;
}

bool
shard_visitor_is(int pid)
{
	for (int i = 0; i < place_count(); i++)
		if ((int) pg_atomic_read_u32(&visitors[i].pid) == pid)
			return true;
	return false;
}

const ShardShmemPart shard_visitor_part = {
	.size = shmem_size,
	.startup = startup,
};
