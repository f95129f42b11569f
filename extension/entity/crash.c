/*
 * entity/crash.c
 *		Marks of crashes of the server in which code of a type ran.
 *
 * Code that crashes its process takes the server down; its message is there again after the restart, and so is the
 * crash. So the signal handler of the crash leaves a mark in a file, which says whose code it was. Nothing has to be
 * done for that while all is well: the file is made by the first crash. It needs no flush, since what was written
 * outlives the process. A process that was killed by another one, a server without power, and a PANIC leave none.
 *
 * The file is one for the server, a ring of SLOTS marks, so it never grows. A mark says of which server, database and
 * row of shard.type it is: in a copy, for another type under the same number, and for one that was altered since, it
 * means nothing. A lost mark does no harm: then the next crash counts as the first one.
 */
#include "postgres.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include "access/xlog.h"
#include "common/file_perm.h"
#include "miscadmin.h"
#include "storage/fd.h"
#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "core/base/text.h"
#include "entity/crash.h"

#include "base/compat.h"

#define FILE_NAME "shard_crashes"
#define SLOTS 64

/* Code may crash because the stack is used up. */
#define STACK_BYTES (64 * 1024)

typedef struct Mark
{
	uint64 check;  /* of all that follows */
	uint64 number; /* rises; its slot is the remainder by SLOTS */
	uint64 server; /* system identifier */
	TimestampTz at;
	int64 seq;
	uint32 database;
	int32 type_id;
	uint32 row_version;
	uint32 handler_version;
	int32 signal;
	int32 told; /* the log has it */
	int32 entity_len;
	char type[NAMEDATALEN];
	char entity[SHARD_MAX_ENTITY_ID + 1];
} Mark;

/* The signals of crashes; SIGFPE is an error here, as in any session. */
static const int crashes[] = {SIGSEGV, SIGBUS, SIGILL, SIGABRT};
static struct sigaction before[lengthof(crashes)];

static Mark marks[SLOTS];	 /* by slot; number = 0: none that is of any use */
static Mark mine;			 /* the one that this process may leave */
static char path[MAXPGPATH]; /* users' code may change the working folder */
static bool (*who_runs)(ShardCrashCode *code) = NULL;
static void (*for_whom)(ShardCrashCode *code) = NULL;

/* FNV-1a: it guards against damage, not against a process that writes the file on purpose. */
static uint64
check_of(const Mark *mark)
{
	const unsigned char *byte = (const unsigned char *) mark;
	uint64 hash = UINT64CONST(0xcbf29ce484222325);

	for (size_t i = offsetof(Mark, number); i < sizeof(Mark); i++)
		hash = (hash ^ byte[i]) * UINT64CONST(0x100000001b3);
	return hash;
}

/* Also in a signal handler. */
static bool
write_mark(Mark *mark)
{
	off_t place = (off_t) (mark->number % SLOTS * sizeof(Mark));
	int fd = open(path, O_WRONLY | O_CREAT | PG_BINARY, pg_file_create_mode);
	bool written;

	mark->check = check_of(mark);
	written = fd >= 0 && pwrite(fd, mark, sizeof(*mark), place) == sizeof(*mark);
	if (fd >= 0)
		close(fd);
	return written;
}

/*
 * In a signal handler: leaves the mark, if code of a type runs. First without the entity: memory may be damaged, and
 * the look at it may be the end. False: it could not be written.
 */
static bool
leave_mark(int signo)
{
	ShardCrashCode code = {0};

	if (!who_runs(&code))
		return true;
	mine.at = GetCurrentTimestamp();
	mine.signal = signo;
	mine.type_id = code.type->type_id;
	mine.row_version = code.type->row_version;
	mine.handler_version = code.type->handler_version;
	memcpy(mine.type, code.type->name, NAMEDATALEN);
	mine.seq = code.seq;
	if (!write_mark(&mine))
		return false;
	for_whom(&code);
	mine.entity_len = Min(code.entity_len, SHARD_MAX_ENTITY_ID);
	if (mine.entity_len > 0)
		memcpy(mine.entity, code.entity, mine.entity_len);
	return write_mark(&mine);
}

/*
 * Handler of the signals of a crash. A signal that another process sent, as the postmaster does with
 * send_abort_for_crash, says nothing about what runs here. At the end the former handler is back: the process ends by
 * the same signal, at the same place.
 */
static void
on_crash(int signo, siginfo_t *info, void *context)
{
	static const char trouble[] = "shard: no mark could be left of the crash of a handler\n";
	bool ours = info->si_code > 0 || info->si_pid == MyProcPid;

	for (int i = 0; i < lengthof(crashes); i++)
		(void) sigaction(crashes[i], &before[i], NULL);
	if (ours && getpid() == MyProcPid && !leave_mark(signo) &&
		write(STDERR_FILENO, trouble, sizeof(trouble) - 1) < 0)
		_exit(2);
	/*
	 * The processor raises its signal again on return, and so does abort(); a signal by kill() has to be raised here.
	 */
	if (info->si_code <= 0)
		raise(signo);
}

static void
catch_crashes(void)
{
	struct sigaction action = {.sa_sigaction = on_crash, .sa_flags = SA_SIGINFO | SA_ONSTACK};
	stack_t stack = {.ss_sp = MemoryContextAlloc(TopMemoryContext, STACK_BYTES),
					 .ss_size = STACK_BYTES};

	sigemptyset(&action.sa_mask);
	if (sigaltstack(&stack, NULL) != 0)
		elog(FATAL, "could not set the stack of signal handlers: %m");
	for (int i = 0; i < lengthof(crashes); i++)
		if (sigaction(crashes[i], &action, &before[i]) != 0)
			elog(FATAL, "could not set the handler of signal %d: %m", crashes[i]);
}

/* Whether a slot has a whole mark, of any server, database or type. */
static bool
is_sound(const Mark *mark, int slot)
{
	return mark->number != 0 && mark->number % SLOTS == slot && mark->check == check_of(mark) &&
		   mark->entity_len >= 0 && mark->entity_len <= SHARD_MAX_ENTITY_ID &&
		   mark->type[NAMEDATALEN - 1] == '\0';
}

/* Reads the marks of this database, and finds the place for the next one. What cannot be read are none. */
static void
read_marks(void)
{
	int fd;
	ssize_t bytes;

	snprintf(path, sizeof(path), "%s/%s", DataDir, FILE_NAME);
	memset(marks, 0, sizeof(marks));
	memset(&mine, 0, sizeof(mine));
	mine.number = 1;
	mine.server = GetSystemIdentifier();
	mine.database = MyDatabaseId;
	fd = OpenTransientFile(path, O_RDONLY | PG_BINARY);
	if (fd < 0 && errno == ENOENT)
		return;
	bytes = fd < 0 ? -1 : read(fd, marks, sizeof(marks));
	if (bytes < 0)
		ereport(LOG, (errcode_for_file_access(), errmsg("could not read \"%s\": %m", path),
					  errdetail("Crashes that handlers have caused before are not known.")));
	if (fd >= 0)
		CloseTransientFile(fd);
	for (int slot = 0; slot < SLOTS; slot++)
	{
		Mark *mark = &marks[slot];
		bool sound = is_sound(mark, slot);

		if (sound)
			mine.number = Max(mine.number, mark->number + 1);
		if (!sound || mark->server != mine.server || mark->database != mine.database)
			mark->number = 0;
	}
}

void
shard_crash_init(bool (*running)(ShardCrashCode *code), void (*for_entity)(ShardCrashCode *code))
{
	who_runs = running;
	for_whom = for_entity;
	read_marks();
	catch_crashes();
}

int
shard_crash_count(const ShardType *type)
{
	int count = 0;

	for (int slot = 0; slot < SLOTS; slot++)
		if (marks[slot].number != 0 && marks[slot].type_id == type->type_id &&
			marks[slot].row_version == type->row_version &&
			marks[slot].handler_version == type->handler_version)
			count++;
	return count;
}

/* The number of crashes of the same code up to this one. */
static int
times(const Mark *last)
{
	int count = 0;

	for (int slot = 0; slot < SLOTS; slot++)
		if (marks[slot].number != 0 && marks[slot].number <= last->number &&
			marks[slot].type_id == last->type_id && marks[slot].row_version == last->row_version &&
			marks[slot].handler_version == last->handler_version)
			count++;
	return count;
}

static void
tell(const Mark *mark)
{
	const char *message = mark->seq == 0 ? "" : psprintf(", message %lld", (long long) mark->seq);
	const char *entity =
		mark->entity_len == 0
			? ""
			: psprintf(", for entity \"%s\"%s",
					   shard_text_shown(pnstrdup(mark->entity, mark->entity_len)), message);

	ereport(
		WARNING,
		(errcode(ERRCODE_EXTERNAL_ROUTINE_EXCEPTION),
		 errmsg(
			 "the server crashed by signal %d (%s) while code of entity type \"%s\" ran%s (crash %d of the same code)",
			 mark->signal, pg_strsignal(mark->signal), mark->type, entity, times(mark)),
		 errdetail("The crash was at %s. At the second crash of the same code the type is "
				   "suspended.",
				   timestamptz_to_str(mark->at)),
		 errhint(
			 "Mend the function, or let it raise an error for that message, which becomes a dead "
			 "letter then.")));
}

void
shard_crash_tell(void)
{
	read_marks();
	for (;;)
	{
		Mark *next = NULL;

		for (int slot = 0; slot < SLOTS; slot++)
			if (marks[slot].number != 0 && !marks[slot].told &&
				(next == NULL || marks[slot].number < next->number))
				next = &marks[slot];
		if (next == NULL)
			return;
		tell(next);
		next->told = true;
		if (!write_mark(next))
			ereport(LOG, (errcode_for_file_access(), errmsg("could not write \"%s\": %m", path)));
	}
}
