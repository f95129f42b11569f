/*
 * guc.c
 *		Settings of the server: shard.*
 *
 * All of them follow the configuration file: workers and senders of a database
 * have to agree on them.
 */
#include "postgres.h"

#include <limits.h>

#include "utils/guc.h"

#include "guc.h"
#include "shard.h"

bool shard_enabled = true;
int shard_region_workers = 1;
int shard_inbox_max_size = 8 * 1024 * 1024;
int shard_handler_lock_timeout = 500;
int shard_gate = SHARD_GATE_SET_AUTO;

static const struct config_enum_entry gate_options[] = {{"auto", SHARD_GATE_SET_AUTO, false},
														{"local", SHARD_GATE_SET_LOCAL, false},
														{"standby", SHARD_GATE_SET_STANDBY, false},
														{NULL, 0, false}};

/*
 * Defines the settings. From _PG_init, if the library is preloaded.
 */
void
shard_guc_init(void)
{
	DefineCustomBoolVariable("shard.enabled", "Sets whether workers of the extension run.",
							 "Messages can be sent while it is off; they wait.", &shard_enabled,
							 true, PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("shard.region_workers",
							"Sets the number of region workers of each database.",
							"An entity is run by one of them; changing it restarts them.",
							&shard_region_workers, 1, 1, SHARD_MAX_WORKERS, PGC_SIGHUP, 0, NULL,
							NULL, NULL);
	DefineCustomIntVariable("shard.inbox_max_size",
							"Sets the size of a database's inbox beyond which sending is refused.",
							"0 means no limit.", &shard_inbox_max_size, 8 * 1024 * 1024, 0,
							MAX_KILOBYTES, PGC_SIGHUP, GUC_UNIT_KB, NULL, NULL, NULL);
	DefineCustomIntVariable(
		"shard.handler_lock_timeout",
		"Sets how long a handler waits for a lock that somebody else holds.",
		"Its message is tried again later. It is the lock_timeout of the workers.",
		&shard_handler_lock_timeout, 500, 1, 60 * 1000, PGC_SIGHUP, GUC_UNIT_MS, NULL, NULL, NULL);
	DefineCustomEnumVariable(
		"shard.gate", "Sets where a commit must be durable before its results leave the database.",
		"auto means on the synchronous standbys if there are any, else here.", &shard_gate,
		SHARD_GATE_SET_AUTO, gate_options, PGC_SIGHUP, 0, NULL, NULL, NULL);
	MarkGUCPrefixReserved("shard");
}
