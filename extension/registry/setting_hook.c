/*
 * registry/setting_hook.c
 *		Settings of the server that act on the process, and names of settings that stay in it.
 *
 * What code of a type sets is undone behind it, but some settings act at once: exit_on_error makes an error the end of
 * the process, transaction_timeout ends it by itself, seed is the session's sequence of random numbers. Any role may
 * set them, by SET, set_config() and CREATE FUNCTION ... SET; all of that comes through the setting's check hook, so
 * they are refused there. By the same way a guest's search_path gets pg_temp at its end. What brings back the session's
 * own value has no check hook: RESET is refused as a statement (guest_hook.c), and set_config() of NULL by the assign
 * hook, where that value matters.
 *
 * Nothing is durable or shared.
 */
#include "postgres.h"

#include "access/xact.h"
#include "utils/guc.h"
#include "utils/guc_tables.h"
#include "utils/memutils.h"

#include "base/guc.h"
#include "registry/guest.h"
#include "registry/owner_session.h"
#include "registry/security.h"
#include "registry/setting_hook.h"

#include "base/compat.h"

/* What a name takes beside its own length. */
#define RECORD_BYTES ((Size) 256)

static GucBoolCheckHook next_exit_on_error = NULL;
static GucRealCheckHook next_seed = NULL;
static GucIntCheckHook next_transaction_timeout = NULL;
static GucIntCheckHook next_lock_timeout = NULL;
static GucIntAssignHook next_lock_timeout_assign = NULL;
static GucStringCheckHook next_search_path = NULL;
static GucStringAssignHook next_search_path_assign = NULL;

/* Is it code of an owner that sets it, in a session that is not that owner's alone? */
static bool
is_owners(GucSource source)
{
	return source == PGC_S_SESSION &&
		   (shard_guest_here() != SHARD_GUEST_NONE || shard_owner_session_is_open());
}

static bool
refuse(const char *name)
{
	GUC_check_errcode(ERRCODE_INSUFFICIENT_PRIVILEGE);
	GUC_check_errmsg("permission denied to set parameter \"%s\"", name);
	GUC_check_errdetail("Code of an entity type runs in a session that is not its own.");
	return false;
}

/*
 * An assign hook may not fail where settings are put back, when a transaction, a subtransaction or a stretch of
 * settings ends. A value that is put back there was in force while the guest was here, or the guest is gone. So only a
 * value that the guest asks for fails.
 */
static void
refuse_reset(const char *name)
{
	if (IsTransactionState())
		ereport(ERROR,
				(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
				 errmsg("permission denied to set parameter \"%s\"", name),
				 errdetail("The value would come from the session, which is the caller's.")));
}

static bool
check_exit_on_error(bool *value, void **extra, GucSource source)
{
	if (*value && is_owners(source))
		return refuse("exit_on_error");
	return next_exit_on_error == NULL || next_exit_on_error(value, extra, source);
}

/* A worker has random numbers of its own, which get a new seed for the next owner. */
static bool
check_seed(double *value, void **extra, GucSource source)
{
	if (source == PGC_S_SESSION && shard_guest_here() != SHARD_GUEST_NONE)
		return refuse("seed");
	return next_seed == NULL || next_seed(value, extra, source);
}

static bool
check_transaction_timeout(int *value, void **extra, GucSource source)
{
	if (*value != 0 && is_owners(source))
		return refuse("transaction_timeout");
	return next_transaction_timeout == NULL || next_transaction_timeout(value, extra, source);
}

/* What can lock rows does not wait longer for a lock than it would in a worker. */
static bool
waits_too_long(int lock_timeout)
{
	ShardGuestKind kind = shard_guest_here();

	return kind != SHARD_GUEST_NONE && kind != SHARD_GUEST_READS &&
		   (lock_timeout == 0 || lock_timeout > shard_handler_lock_timeout);
}

static bool
check_lock_timeout(int *value, void **extra, GucSource source)
{
	if (source == PGC_S_SESSION && waits_too_long(*value))
	{
		refuse("lock_timeout");
		GUC_check_errdetail("Code of an entity type waits for locks as long as "
							"shard.handler_lock_timeout says.");
		return false;
	}
	return next_lock_timeout == NULL || next_lock_timeout(value, extra, source);
}

static void
assign_lock_timeout(int value, void *extra)
{
	if (waits_too_long(value))
		refuse_reset("lock_timeout");
	if (next_lock_timeout_assign != NULL)
		next_lock_timeout_assign(value, extra);
}

/*
 * The temporary objects of a session are the client's: they come last for a guest, also where the guest's function has
 * a path of its own.
 */
static bool
check_guests_path(char **value, void **extra, GucSource source)
{
	if (source == PGC_S_SESSION && shard_guest_here() != SHARD_GUEST_NONE && *value != NULL)
	{
		char *path = shard_security_path(*value);
		char *copy = shard_guc_strdup(path);

		pfree(path);
		if (copy == NULL)
			return false;
		shard_guc_free(*value);
		*value = copy;
	}
	return next_search_path == NULL || next_search_path(value, extra, source);
}

static void
assign_guests_path(const char *value, void *extra)
{
	if (shard_guest_here() != SHARD_GUEST_NONE && value != NULL)
	{
		char *path = shard_security_path(value);
		bool same = strcmp(path, value) == 0;

		pfree(path);
		if (!same)
			refuse_reset("search_path");
	}
	if (next_search_path_assign != NULL)
		next_search_path_assign(value, extra);
}

static void
hook_string(struct config_string *setting)
{
	if (strcmp(setting->gen.name, "search_path") != 0)
		return;
	next_search_path = setting->check_hook;
	setting->check_hook = check_guests_path;
	next_search_path_assign = setting->assign_hook;
	setting->assign_hook = assign_guests_path;
}

static void
hook_bool(struct config_bool *setting)
{
	if (strcmp(setting->gen.name, "exit_on_error") != 0)
		return;
	next_exit_on_error = setting->check_hook;
	setting->check_hook = check_exit_on_error;
}

static void
hook_real(struct config_real *setting)
{
	if (strcmp(setting->gen.name, "seed") != 0)
		return;
	next_seed = setting->check_hook;
	setting->check_hook = check_seed;
}

static void
hook_int(struct config_int *setting)
{
	if (strcmp(setting->gen.name, "transaction_timeout") == 0)
	{
		next_transaction_timeout = setting->check_hook;
		setting->check_hook = check_transaction_timeout;
	}
	else if (strcmp(setting->gen.name, "lock_timeout") == 0)
	{
		next_lock_timeout = setting->check_hook;
		setting->check_hook = check_lock_timeout;
		next_lock_timeout_assign = setting->assign_hook;
		setting->assign_hook = assign_lock_timeout;
	}
}

void
shard_setting_hook_init(void)
{
	int count;
	struct config_generic **settings = shard_guc_variables(&count);

	for (int i = 0; i < count; i++)
	{
		if (settings[i]->vartype == PGC_BOOL)
			hook_bool((struct config_bool *) settings[i]);
		else if (settings[i]->vartype == PGC_REAL)
			hook_real((struct config_real *) settings[i]);
		else if (settings[i]->vartype == PGC_INT)
			hook_int((struct config_int *) settings[i]);
		else if (settings[i]->vartype == PGC_STRING)
			hook_string((struct config_string *) settings[i]);
	}
	shard_guc_release(settings);
}

/* Counted only when there may be more of them, because the server has to look at all settings for it. */
Size
shard_setting_name_bytes(void)
{
	static Size size = 0;
	static Size bytes = 0;
	struct config_generic **settings;
	int count;

	if (likely(size == shard_guc_size()))
		return bytes;
	bytes = 0;
	settings = shard_guc_variables(&count);
	for (int i = 0; i < count; i++)
		if ((settings[i]->flags & GUC_CUSTOM_PLACEHOLDER) != 0)
			bytes += strlen(settings[i]->name) + RECORD_BYTES;
	shard_guc_release(settings);
	size = shard_guc_size();
	return bytes;
}

/* The server makes that memory before any process of the extension begins. */
Size
shard_setting_zone_bytes(void)
{
	static MemoryContext zones = NULL;

	for (MemoryContext child = TopMemoryContext->firstchild; zones == NULL && child != NULL;
		 child = child->nextchild)
		if (child->ident != NULL && strcmp(child->ident, "Timezones") == 0)
			zones = child;
	return zones == NULL ? 0 : MemoryContextMemAllocated(zones, false);
}
