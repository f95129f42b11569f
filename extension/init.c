/*
 * init.c
 *		Where the server enters the library.
 */
#include "postgres.h"

#include "fmgr.h"
#include "miscadmin.h"

#include "sql/type/admin.h"
#include "sql/send/api.h"
#include "shared/bar.h"
#include "registry/catalog.h"
#include "hook/hook.h"
#include "entity/execution.h"
#include "base/guc.h"
#include "registry/guest.h"
#include "sql/view/inbox.h"
#include "process/launcher.h"
#include "link/receive.h"
#include "registry/setting_hook.h"
#include "shared/shmem.h"
#include "shared/visitor.h"

#include "base/compat.h"

PG_MODULE_MAGIC;

PGDLLEXPORT void _PG_init(void);

/*
 * A library loaded at server start gets its hooks and its shared memory here. One that is loaded later does nothing:
 * its functions raise the error of shard_shmem_require.
 */
void
_PG_init(void)
{
	if (!process_shared_preload_libraries_in_progress)
		return;
	shard_preloaded = true;
	shard_visitor_define();
	shard_guc_init();
	shard_shared_init();
	shard_catalog_init();
	shard_bar_init();
	shard_install_init();
	shard_launcher_init();
	shard_database_hook_init();
	shard_drop_hook_init();
	shard_log_hook_init();
	shard_execution_hook_init();
	shard_guest_hook_init();
	shard_setting_hook_init();
	shard_table_hook_init();
	shard_inbox_view_init();
	shard_api_init();
	shard_admin_drop_init();
	shard_receive_init();
	shard_receive_record_init();
}
