/*
 * base/fault.c
 *		Points at which tests have a process die, stop or fail.
 *
 * Builds without SHARD_ASSERTIONS have none of them. A file, made just before the fault, notes that it happened: a
 * process that is started again after the crash must not crash again at the same point.
 */
#include "postgres.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include "access/xlog.h"
#include "miscadmin.h"
#include "storage/fd.h"
#include "utils/guc.h"

#include "base/fault.h"

#include "base/compat.h"

#ifdef SHARD_ASSERTIONS

#define POINT_LENGTH 64

char *shard_fault_point = NULL;

/* The words of a setting: "POINT ACTION"; false if it has not two. */
static bool
split(const char *setting, char *point, char *action)
{
	return sscanf(setting, "%63s %63s", point, action) == 2;
}

static bool
is_action(const char *word)
{
	return strcmp(word, "crash") == 0 || strcmp(word, "exit") == 0 || strcmp(word, "freeze") == 0 ||
		   strcmp(word, "error") == 0 || strcmp(word, "abort") == 0;
}

static bool
check_setting(char **value, void **extra, GucSource source)
{
	char point[POINT_LENGTH];
	char action[POINT_LENGTH];

	if (*value == NULL || (*value)[0] == '\0')
		return true;
	if (split(*value, point, action) && strchr(point, '/') == NULL && is_action(action))
		return true;
	GUC_check_errdetail("The value must be a point and one of crash, abort, exit, freeze, error.");
	return false;
}

/* Notes that it happens now; false if it has happened before. */
static bool
first_time(const char *point)
{
	char path[MAXPGPATH];
	int fd;

	snprintf(path, sizeof(path), "%s/shard_fault.%s", DataDir, point);
	fd = OpenTransientFile(path, O_CREAT | O_EXCL | O_WRONLY | PG_BINARY);
	if (fd < 0)
	{
		if (errno != EEXIST)
			ereport(ERROR,
					(errcode_for_file_access(), errmsg("could not create \"%s\": %m", path)));
		return false;
	}
	CloseTransientFile(fd);
	return true;
}

/*
 * For shard_fault(): the setting is not empty.
 */
void
shard_fault_reached(const char *point)
{
	char name[POINT_LENGTH];
	char action[POINT_LENGTH];

	if (!split(shard_fault_point, name, action) || strcmp(name, point) != 0 || !first_time(point))
		return;
	/* straight to the log: the process may not come to anything else */
	write_stderr("shard: fault point %s: %s of process %d\n", point, action, MyProcPid);
	if (strcmp(action, "crash") == 0)
		kill(MyProcPid, SIGKILL);
	else if (strcmp(action, "abort") == 0)
		abort();
	else if (strcmp(action, "freeze") == 0)
		kill(MyProcPid, SIGSTOP);
	else
		ereport(strcmp(action, "exit") == 0 ? FATAL : ERROR,
				(errcode(ERRCODE_INTERNAL_ERROR), errmsg("shard: fault point %s", point)));
}

/* The step of this turn after whose commit it happens; empty: there is none. */
static char in_turn[POINT_LENGTH];

/*
 * For shard_fault_step(): the setting is not empty.
 */
void
shard_fault_step_reached(const char *point)
{
	char name[POINT_LENGTH];
	char action[POINT_LENGTH];
	size_t length = strlen(point);

	shard_fault_reached(point);
	if (split(shard_fault_point, name, action) && strncmp(name, point, length) == 0 &&
		strcmp(name + length, "_committed") == 0)
		strlcpy(in_turn, name, sizeof(in_turn));
}

/*
 * A turn is over. What it has committed outlives what happens now.
 */
void
shard_fault_turn_over(bool committed)
{
	char name[POINT_LENGTH];

	if (in_turn[0] == '\0')
		return;
	strlcpy(name, in_turn, sizeof(name));
	in_turn[0] = '\0';
	if (!committed)
		return;
	XLogFlush(XactLastCommitEnd);
	shard_fault_reached(name);
}

#endif

void
shard_fault_define(void)
{
#ifdef SHARD_ASSERTIONS
	DefineCustomStringVariable(
		"shard.fault_point", "Sets where a process fails, for tests.",
		"A point and what happens there: crash, abort, exit, freeze or error.", &shard_fault_point,
		"", PGC_SUSET, GUC_NOT_IN_SAMPLE, check_setting, NULL, NULL);
#endif
}
