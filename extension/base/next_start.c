/*
 * base/next_start.c
 *		Settings that count from the next start of the server on, and whether it will start with them.
 *
 * The hook that checks a setting cannot see the others, which may be set a moment later. So settings that do not fit
 * together are noticed after a reload, by the server's mark that a setting waits for a restart, and by what the files
 * say. A setting of the command line keeps its value whatever the files say, and has no such mark.
 */
#include "postgres.h"

#include "utils/guc.h"
#include "utils/guc_tables.h"

#include "base/guc.h"
#include "base/next_start.h"
#include "core/member/downing.h"

#include "base/compat.h"

#define STRATEGY "shard.downing_strategy"
#define SIZE "shard.static_quorum_size"

/* Will the server have another value of that setting when it starts again? */
static bool
waits(const char *name)
{
	int count;
	struct config_generic **settings = shard_guc_variables(&count);
	bool found = false;

	for (int i = 0; i < count && !found; i++)
		found = strcmp(settings[i]->name, name) == 0 &&
				(settings[i]->status & GUC_PENDING_RESTART) != 0;
	shard_guc_release(settings);
	return found;
}

/* What the files say of a setting: the last word; NULL: nothing. */
static const char *
said(const ConfigVariable *list, const char *name)
{
	const char *value = NULL;

	for (const ConfigVariable *item = list; item != NULL; item = item->next)
		if (item->name != NULL && pg_strcasecmp(item->name, name) == 0)
			value = item->value;
	return value;
}

/* The settings of the files, in the order in which the server reads them; their errors are the server's to report. */
static ConfigVariable *
read_files(void)
{
	ConfigVariable *first = NULL;
	ConfigVariable *last = NULL;

	(void) ParseConfigFile(ConfigFileName, true, NULL, 0, 0, DEBUG3, &first, &last);
	(void) ParseConfigFile(PG_AUTOCONF_FILENAME, false, NULL, 0, 0, DEBUG3, &first, &last);
	return first;
}

bool
shard_next_start_lacks_quorum(void)
{
	bool other_strategy = waits(STRATEGY);
	bool other_size = waits(SIZE);
	bool by_quorum = shard_downing_strategy == SHARD_DOWNING_STATIC_QUORUM;
	int size = shard_static_quorum_size;
	ConfigVariable *list;
	const char *value;

	if (!other_strategy && !other_size)
		return false;
	list = read_files();
	if (other_strategy)
	{
		value = said(list, STRATEGY);
		by_quorum = value != NULL &&
					pg_strcasecmp(value, shard_downing_name(SHARD_DOWNING_STATIC_QUORUM)) == 0;
	}
	if (other_size)
	{
		value = said(list, SIZE);
		if (value == NULL || !parse_int(value, &size, 0, NULL))
			size = 0;
	}
	FreeConfigVariables(list);
	return by_quorum && size == 0;
}

void
shard_next_start_warn(void)
{
	if (!shard_next_start_lacks_quorum())
		return;
	ereport(WARNING,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg(
				 "shard: the server will not start again with its configuration files as they are"),
			 errdetail(STRATEGY " is static_quorum there, and " SIZE " is not set."),
			 errhint("Set " SIZE " to more than half of the members that are planned, or choose "
					 "another strategy.")));
}
