/*
 * shared/import_progress.c
 *		How far the copying of shards to this node is, in shared memory; one copy at a time.
 *
 * Nothing here is durable. Each backend that copies changes its own note; the view reads copies.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/shmem.h"
#include "utils/timestamp.h"

#include "core/base/timing.h"
#include "shared/import_progress.h"

#include "base/compat.h"

/* Imports that are remembered of one database; eight at most are under way. */
#define NOTES 32

/*
 * What was asked of a target may wait there for this time before it begins (control_import.c), or be on its way twice.
 * So a refusal is about what began so much later, too.
 */
#define BEGUN_LATE (10 * SHARD_RESEND_INTERVAL)

typedef struct ImportDatabase
{
	slock_t mutex;					 /* guards all of it */
	ShardImportProgress note[NOTES]; /* phase NONE: unused */
} ImportDatabase;

static ImportDatabase *databases = NULL;

const char *const shard_import_phase_names[] = {
	[SHARD_IMPORT_NONE] = "none",		[SHARD_IMPORT_PREPARING] = "preparing",
	[SHARD_IMPORT_COPYING] = "copying", [SHARD_IMPORT_STAGING] = "staging",
	[SHARD_IMPORT_STAGED] = "staged",	[SHARD_IMPORT_FAILED] = "failed"};

static ImportDatabase *
database_of(const ShardDatabase *db)
{
	return &databases[shard_shmem_database_index(db)];
}

static Size
shmem_size(void)
{
	return mul_size(SHARD_MAX_DATABASES, sizeof(ImportDatabase));
}

static void
startup(void)
{
	bool found;

	databases = ShmemInitStruct("shard imports", shmem_size(), &found);
	if (found)
		return;
	memset(databases, 0, shmem_size());
	for (int i = 0; i < SHARD_MAX_DATABASES; i++)
		SpinLockInit(&databases[i].mutex);
}

/* The database's slot goes to another one. */
static void
forget(ShardDatabase *db)
{
	ImportDatabase *database = database_of(db);

	SpinLockAcquire(&database->mutex);
	memset(database->note, 0, sizeof(database->note));
	SpinLockRelease(&database->mutex);
}

static bool
is_same(const ShardShardRef *a, const ShardShardRef *b)
{
	return a->type_id == b->type_id && a->shard == b->shard;
}

static bool
is_over(const ShardImportProgress *note)
{
	return note->pid == 0;
}

/* The shard's own place; else, among those that are not under way, the one that has not changed for the longest. */
static ShardImportProgress *
place_for(ImportDatabase *database, const ShardShardRef *shard)
{
	ShardImportProgress *oldest = NULL;

	for (int i = 0; i < NOTES; i++)
	{
		ShardImportProgress *note = &database->note[i];

		if (note->phase != SHARD_IMPORT_NONE && is_same(&note->shard, shard))
			return note;
		if (oldest == NULL || (is_over(note) && !is_over(oldest)) ||
			(is_over(note) == is_over(oldest) && note->changed < oldest->changed))
			oldest = note;
	}
	return oldest;
}

/*
 * Since when a note is as it is. One that says that a shard is prepared is overtaken by all that was decided since the
 * coordinator asked: it may have refused the move meanwhile, and does not tell the target.
 */
static TimestampTz
changed_at(const ShardImportProgress *progress, TimestampTz now)
{
	return progress->phase == SHARD_IMPORT_PREPARING && is_over(progress)
			   ? progress->started - BEGUN_LATE
			   : now;
}

void
shard_import_note(ShardDatabase *db, const ShardImportProgress *progress)
{
	ImportDatabase *database = database_of(db);
	TimestampTz now = GetCurrentTimestamp();
	ShardImportProgress *note;

	SpinLockAcquire(&database->mutex);
	note = place_for(database, &progress->shard);
	*note = *progress;
	note->changed = changed_at(progress, now);
	SpinLockRelease(&database->mutex);
}

ShardImportProgress *
shard_import_list(ShardDatabase *db, int *count)
{
	ImportDatabase *database = database_of(db);
	ShardImportProgress *result = palloc(NOTES * sizeof(ShardImportProgress));
	int n = 0;

	SpinLockAcquire(&database->mutex);
	for (int i = 0; i < NOTES; i++)
		if (database->note[i].phase != SHARD_IMPORT_NONE)
			result[n++] = database->note[i];
	SpinLockRelease(&database->mutex);
	*count = n;
	return result;
}

const ShardShmemPart shard_import_part = {
	.size = shmem_size,
	.startup = startup,
	.forget = forget,
};
