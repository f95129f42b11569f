/*
 * sql/type/reshard.c
 *		Procedure shard_reshard: the entities of a stopped type go to other shards (doc/protocol/resharding.md).
 *
 * Each step is a transaction, or some, of the caller's session; shard.reshard says which steps are done.
 *
 *	begin			the row; the type leaves the cluster (E61, E62)
 *	leave			waits until the cluster has the type no more; moving (E62)
 *	move			states, a slice in each transaction (E63)
 *	finish			a number for the type that is to come, and all else that is kept here, in one transaction (E64, E65)
 *
 * If the process dies right here: the type stays stopped, no state is lost, and the next call goes on; a number that the
 * cluster has given goes again, as that of any start that was rolled back (C9).
 */
#include "postgres.h"

#include "access/xact.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "nodes/parsenodes.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/portal.h"
#include "utils/snapmgr.h"

#include "base/fault.h"
#include "catalog/pg_type.h"
#include "control/control.h"
#include "entity/state_reshard.h"
#include "entity/state_structure.h"
#include "log/log.h"
#include "registry/cluster_map.h"
#include "registry/reshard_lock.h"
#include "registry/statement.h"
#include "shared/board.h"
#include "sql/operate/command.h"
#include "sql/type/reshard.h"

#include "base/compat.h"

PG_FUNCTION_INFO_V1(shard_reshard);

/* How long the cluster may take to forget the type; and the workers, to read what was sent. */
#define LEAVE_TIMEOUT (10 * SHARD_COMMAND_SECOND)
#define READ_TIMEOUT (10 * SHARD_COMMAND_SECOND)

/* How long the cluster may take to give the type its number. */
#define NUMBER_TIMEOUT (5 * SHARD_COMMAND_SECOND)

/* What one transaction may take: rows that were moved, slices that were looked at. */
#define MOVED_AT_ONCE 1000
#define SLICES_AT_ONCE 64

/* A call. Its texts live as long as the call. */
typedef struct Call
{
	const char *name;
	const char *number; /* as given; NULL: as it is, likewise the next two */
	const char *hash;
	const char *extractor; /* "": none */

	int32 type_id;
	ShardAdminType wanted; /* the type to come */
	ShardReshard row;
	ShardTypeRecord record;
} Call;

/* ---- transactions ------------------------------------------------------------------------------ */

static void
check_place(FunctionCallInfo fcinfo)
{
	if (fcinfo->context != NULL && IsA(fcinfo->context, CallContext) &&
		!((CallContext *) fcinfo->context)->atomic)
		return;
	ereport(ERROR, (errcode(ERRCODE_ACTIVE_SQL_TRANSACTION),
					errmsg("shard_reshard() cannot run inside a transaction block"),
					errdetail("It commits each of its steps."),
					errhint("CALL it as a statement of its own.")));
}

/* Begins a transaction with the locks of a session that changes the type. */
static ShardType *
begin_step(const Call *call)
{
	ShardType *type;

	/* what is looked at behind a lock is what was committed before it */
	if (!FirstSnapshotSet)
		XactIsoLevel = XACT_READ_COMMITTED;
	PushActiveSnapshot(GetTransactionSnapshot());
	shard_admin_begin("shard_reshard()");
	type = shard_admin_lock_name(call->name, "reshard entity type");
	if (type->replicas > 0)
		ereport(ERROR,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("entity type \"%s\" has replicas, and cannot be resharded", type->name),
				 errdetail("Its shards do not leave the members that have copies of them."),
				 errhint("Start another entity type with other shards.")));
	return type;
}

/* Ends it, and all locks. */
static void
end_step(void)
{
	PopActiveSnapshot();
	SPI_commit();
}

/* Waits a moment, with nothing held. False: the time is over. */
static bool
wait_until(int64 deadline)
{
	if (shard_clock_now() >= deadline)
		return false;
	shard_command_nap();
	return true;
}

/* The type was dropped meanwhile, or started under another number, or another call has other settings. */
static void
refuse_changed(const Call *call)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
			 errmsg("entity type \"%s\" was changed while it was being resharded", call->name),
			 errhint("See shard_types and shard_reshardings, and call shard_reshard() again.")));
}

/* ---- what is wanted ----------------------------------------------------------------------------- */

/* An argument, in memory that outlives transactions; NULL of null. */
static const char *
read_text(FunctionCallInfo fcinfo, int number)
{
	return PG_ARGISNULL(number)
			   ? NULL
			   : MemoryContextStrdup(PortalContext, text_to_cstring(PG_GETARG_TEXT_PP(number)));
}

static void
read_arguments(FunctionCallInfo fcinfo, Call *call)
{
	call->name = MemoryContextStrdup(PortalContext, shard_command_text(fcinfo, 0, "type name"));
	if (!PG_ARGISNULL(1))
		call->number = MemoryContextStrdup(PortalContext, psprintf("%d", (int) PG_GETARG_INT32(1)));
	call->hash = read_text(fcinfo, 2);
	call->extractor = read_text(fcinfo, 3);
}

/* The settings of the type to come: those of the type, and what the call says. */
static void
resolve(const Call *call, ShardAdminType *type)
{
	const char **value = type->settings.value;
	char *name = NULL;

	if (call->number != NULL)
		value[SHARD_SETTING_NUMBER_OF_SHARDS] =
			shard_settings_from_text(SHARD_SETTING_NUMBER_OF_SHARDS, call->number);
	if (call->hash != NULL)
		value[SHARD_SETTING_HASH] = shard_settings_from_text(SHARD_SETTING_HASH, call->hash);
	if (call->extractor == NULL)
		return;
	type->extractor[SHARD_EXTRACTOR_SHARD_ID] = InvalidOid;
	if (call->extractor[0] != '\0')
		type->extractor[SHARD_EXTRACTOR_SHARD_ID] =
			shard_routine_resolve_extractor(SHARD_EXTRACTOR_SHARD_ID, call->extractor, &name);
	if (name != NULL)
		shard_admin_check_executes(type->owner, type->extractor[SHARD_EXTRACTOR_SHARD_ID], name);
	value[SHARD_SETTING_SHARD_ID_EXTRACTOR] = name;
}

static int
number_of(const ShardAdminType *type)
{
	return (int) shard_settings_number(&type->settings, SHARD_SETTING_NUMBER_OF_SHARDS);
}

/* Errors if the type to come may not be. As the caller. */
static void
check_wanted(const ShardAdminType *wanted)
{
	int number = number_of(wanted);

	shard_settings_check(&wanted->settings);
	if (number > SHARD_MAX_CLAIMED)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("cannot reshard entity type \"%s\" to %d shards", wanted->name, number),
				 errdetail("The homes of all shards are decided at once, of %d at most.",
						   SHARD_MAX_CLAIMED),
				 errhint("Ask for fewer shards.")));
	shard_admin_limit_setting(wanted, SHARD_SETTING_NUMBER_OF_SHARDS);
	shard_admin_limit_types(wanted->name, wanted->owner, number);
}

static bool
same(const char *a, const char *b)
{
	return a == b || (a != NULL && b != NULL && strcmp(a, b) == 0);
}

static bool
same_shards(const ShardSettings *a, const ShardSettings *b)
{
	return same(a->value[SHARD_SETTING_NUMBER_OF_SHARDS],
				b->value[SHARD_SETTING_NUMBER_OF_SHARDS]) &&
		   same(a->value[SHARD_SETTING_HASH], b->value[SHARD_SETTING_HASH]) &&
		   same(a->value[SHARD_SETTING_SHARD_ID_EXTRACTOR],
				b->value[SHARD_SETTING_SHARD_ID_EXTRACTOR]);
}

/* ---- begin -------------------------------------------------------------------------------------- */

/*
 * The state table was dropped on the way, which nobody else makes again before the way is at its end: what is there of
 * the type besides goes on to its shards. States of a backup are put in afterwards, before the type is started.
 */
static void
replace_lost_table(ShardAdminType *stored)
{
	if (shard_admin_table_exists(stored))
		return;
	shard_admin_table_check(stored);
	shard_admin_table_create_again(stored, "States of a backup can be put into it when this call "
										   "has returned, before shard_start().");
	shard_admin_row_update(stored);
}

/* The row of a way that begins, or of one that is under way and may have got another end. */
static void
write_row(Call *call, ShardAdminType *stored)
{
	const char *const *value = call->wanted.settings.value;
	ShardReshard row = {0};

	if (shard_reshard_read(stored->type_id, &row))
	{
		replace_lost_table(stored);
		if (row.number_of_shards == number_of(&call->wanted) &&
			same(row.hash, value[SHARD_SETTING_HASH]) &&
			same(row.extractor, value[SHARD_SETTING_SHARD_ID_EXTRACTOR]))
			return;
	}
	else
	{
		shard_reshard_check_still(stored);
	}
	row.type_id = stored->type_id;
	row.number_of_shards = number_of(&call->wanted);
	row.hash = value[SHARD_SETTING_HASH];
	row.extractor = value[SHARD_SETTING_SHARD_ID_EXTRACTOR];
	row.next_shard = 0;
	shard_reshard_write(&row);
}

/* Does a way lead anywhere, or is one under way? */
static bool
is_wanted(const Call *call, const ShardAdminType *stored)
{
	ShardReshard row;

	return !same_shards(&call->wanted.settings, &stored->settings) ||
		   shard_reshard_read(stored->type_id, &row);
}

/* The type's row, and what it is to become. As the system. */
static void
read_type(Call *call, const ShardType *type, ShardAdminType *stored)
{
	memset(stored, 0, sizeof(*stored));
	if (!shard_admin_row_read(type->name, stored))
		elog(ERROR, "entity type \"%s\" has no row", type->name);
	stored->name = call->name;
	stored->owner = type->owner;
	call->wanted = *stored;
}

/* False: there is nothing to do. */
static bool
begin(Call *call)
{
	ShardSecurity security = {0};
	ShardAdminType stored;
	ShardType *type = begin_step(call);
	bool wanted;

	shard_security_open_system(&security);
	read_type(call, type, &stored);
	shard_security_close_system(&security);
	call->type_id = stored.type_id;
	resolve(call, &call->wanted);
	check_wanted(&call->wanted);
	shard_reshard_check_stays(call->name);

	shard_security_open_system(&security);
	wanted = is_wanted(call, &stored);
	if (wanted)
		write_row(call, &stored);
	shard_security_close_system(&security);
	end_step();
	shard_fault("reshard_begun");
	return wanted;
}

/* ---- the type leaves the cluster ------------------------------------------------------------------ */

/* Changes the row; false: it is another one by now. */
static void
update_row(Call *call, void (*change)(Call *call))
{
	ShardSecurity security = {0};
	ShardType *type = begin_step(call);

	shard_security_open_system(&security);
	if (type->type_id != call->type_id || !shard_reshard_read(call->type_id, &call->row))
		refuse_changed(call);
	change(call);
	shard_security_close_system(&security);
	end_step();
}

static void
set_moving(Call *call)
{
	call->row.moving = true;
	shard_reshard_write(&call->row);
}

/* The way ends where it began. */
static void
give_up(Call *call)
{
	if (!call->row.moving)
		shard_reshard_delete(call->type_id);
}

/* Has the cluster, as far as this node has learned, the type still? */
static bool
is_known(const Call *call, bool *dropping)
{
	ShardClusterType known;
	bool found;

	PushActiveSnapshot(GetTransactionSnapshot());
	found = shard_cluster_map_type(call->name, &known) && known.type_id == call->type_id;
	*dropping = found && known.record.dropping;
	PopActiveSnapshot();
	SPI_commit();
	return found;
}

static void
refuse_known(const Call *call, bool dropping)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_IN_USE),
			 errmsg("cannot reshard entity type \"%s\": the cluster has it still", call->name),
			 dropping ? errdetail("A member that is not heard may have the type.")
					  : errdetail("Another member has the type, or this node has not reached the "
								  "coordinator."),
			 errhint("At all other members shard_drop_type() takes the type away, and its shards "
					 "come here; then call shard_reshard() again. See shard_members, "
					 "shard_current_regions and shard_homes.")));
}

static void
leave(Call *call)
{
	int64 deadline = shard_clock_now() + LEAVE_TIMEOUT;
	bool dropping;
	bool known = is_known(call, &dropping);

#ifdef SHARD_MUTANT_RESHARD_BEFORE_LEAVING
	known = false;
#endif
	while (known)
	{
		if (!wait_until(deadline))
		{
			update_row(call, give_up);
			refuse_known(call, dropping);
		}
		known = is_known(call, &dropping);
	}
	shard_fault("reshard_left");
	update_row(call, set_moving);
}

/* ---- states ---------------------------------------------------------------------------------------- */

/* The type as it will be, for the shards of its entities. */
static ShardType *
make_target(const Call *call, const ShardType *type)
{
	ShardType *target = MemoryContextAlloc(PortalContext, sizeof(ShardType));

	*target = *type;
	target->number_of_shards = number_of(&call->wanted);
	target->hash = strcmp(call->wanted.settings.value[SHARD_SETTING_HASH], "java") == 0
					   ? SHARD_HASH_JAVA
					   : SHARD_HASH_MURMUR2;
	target->shard_id_extractor = call->wanted.extractor[SHARD_EXTRACTOR_SHARD_ID];
	target->missing_extractor = NULL;
	target->shard_id_call = NULL;
	return target;
}

/* Some slices, in one transaction. */
static void
move_some(Call *call, ShardStateReshard *walk)
{
	ShardSecurity security = {0};
	ShardType *type = begin_step(call);
	ShardType *target = make_target(call, type);
	int64 moved = 0;

	if (type->type_id != call->type_id)
		refuse_changed(call);
	for (int i = 0; i < SLICES_AT_ONCE && moved < MOVED_AT_ONCE && !walk->done; i++)
	{
		shard_state_reshard(walk, type, target);
		moved += walk->moved;
	}
	shard_security_open_system(&security);
	if (!shard_reshard_read(call->type_id, &call->row))
		refuse_changed(call);
	call->row.next_shard =
		walk->done ? Max(type->number_of_shards, target->number_of_shards) : walk->shard;
#ifdef SHARD_MUTANT_RESHARD_SKIPS_ROWS
	call->row.next_shard++;
#endif
	call->row.entities += moved;
	shard_reshard_write(&call->row);
	shard_security_close_system(&security);
	end_step();
	shard_fault("reshard_slice");
}

static void
move(Call *call)
{
	ShardStateReshard walk = {.shard = call->row.next_shard, .memory = PortalContext};

	while (!walk.done)
		move_some(call, &walk);
}

/* ---- the type to come ------------------------------------------------------------------------------- */

/* Messages of the type that no worker has read yet, and those of open transactions. */
static ShardLogWaiting
unread(const Call *call)
{
	ShardSecurity security = {0};
	ShardLogWaiting waiting;

	PushActiveSnapshot(GetLatestSnapshot());
	shard_security_open_system(&security);
	waiting = shard_log_waiting(call->type_id, true, GetActiveSnapshot());
	shard_security_close_system(&security);
	PopActiveSnapshot();
	return waiting;
}

static void
refuse_unread(const Call *call, const ShardLogWaiting *waiting)
{
	ereport(ERROR,
			(errcode(ERRCODE_OBJECT_IN_USE),
			 errmsg("cannot finish resharding entity type \"%s\" while messages are sent to it",
					call->name),
			 errdetail("Messages that no worker has read yet: " UINT64_FORMAT
					   "; of transactions that are open: " UINT64_FORMAT ".",
					   waiting->committed + waiting->own, waiting->open),
			 errhint("Stop the senders, and call shard_reshard() again, which goes on where it "
					 "was.")));
}

/* Messages go from the log to where those of a stopped type wait; there they get their shards (E64). */
static void
wait_for_log(const Call *call)
{
	int64 deadline = shard_clock_now() + READ_TIMEOUT;

	for (;;)
	{
		ShardLogWaiting waiting;

		PushActiveSnapshot(GetTransactionSnapshot());
		shard_admin_begin("shard_reshard()");
		waiting = unread(call);
		end_step();
		if (waiting.committed + waiting.own + waiting.open == 0)
			return;
		if (!wait_until(deadline))
			refuse_unread(call, &waiting);
	}
}

/* The number of the type to come. No lock is held that the control worker needs, and nothing was written yet. */
static int32
ask_for_number(Call *call)
{
	ShardTypeRecord record = {0};
	ShardCommand command = {.kind = SHARD_COMMAND_TYPE,
							.type = &record,
							.again = shard_board_types_changing()};

	shard_settings_to_record(call->name, &call->wanted.settings, &record);
	record.state = shard_state_structure(call->wanted.handler.state_type);
	record.owner = GetUserNameFromId(call->wanted.owner, false);
	record.claims = true;
	return (int32) shard_control_command(&command, NUMBER_TIMEOUT);
}

/* From here on no sender commits, and all that was sent is where it waits (E64). */
static void
bar_senders(const Call *call)
{
	bool barred = shard_reshard_lock_senders(call->type_id);
	ShardLogWaiting waiting = unread(call);

	if (!barred || waiting.committed + waiting.own + waiting.open > 0)
		refuse_unread(call, &waiting);
}

/* What is kept here becomes the new type's, which stays stopped. */
static void
become(Call *call, ShardType *type, int32 number)
{
	ShardType *target = make_target(call, type);
	ShardSecurity security = {0};
	ShardAdminType stored;

	shard_security_open_system(&security);
	read_type(call, type, &stored);
	if (stored.type_id != call->type_id || !shard_reshard_read(call->type_id, &call->row))
		refuse_changed(call);
	shard_security_close_system(&security);
	resolve(call, &call->wanted);
	shard_reshard_lock_letters(call->type_id);
	bar_senders(call);
	shard_reshard_rows(call->type_id, number, target);
	shard_fault("reshard_renumbered");

	shard_security_open_system(&security);
	call->wanted.type_id = number;
	shard_admin_row_renumber(call->type_id, &call->wanted);
	shard_reshard_delete(call->type_id);
	shard_security_close_system(&security);
}

static void
finish(Call *call)
{
	ShardType *type;
	int32 number;

	wait_for_log(call);
	type = begin_step(call);
	if (type->type_id != call->type_id)
		refuse_changed(call);
	shard_admin_lock_list();
	number = ask_for_number(call);
	shard_reshard_number_given(number);
	shard_fault("reshard_numbered");
	become(call, type, number);
	end_step();
	shard_fault("reshard_finished");
}

/*
 * shard_reshard(type_name text, number_of_shards int, hash text, shard_id_extractor text): a stopped type that no other
 * member has gets other settings of these; its entities go to their shards by these. Members of the owner.
 */
Datum
shard_reshard(PG_FUNCTION_ARGS)
{
	Call *call;

	check_place(fcinfo); /* which has a portal; a region worker has none */
	call = MemoryContextAllocZero(PortalContext, sizeof(Call));
	read_arguments(fcinfo, call);
	if (SPI_connect_ext(SPI_OPT_NONATOMIC) != SPI_OK_CONNECT)
		elog(ERROR, "could not connect to SPI");
	if (!begin(call))
		ereport(NOTICE,
				(errmsg("entities of type \"%s\" are in these shards already", call->name)));
	else
	{
		leave(call);
		move(call);
		finish(call);
		ereport(NOTICE,
				(errmsg_plural("entity type \"%s\" has %d shard",
							   "entity type \"%s\" has %d shards", number_of(&call->wanted),
							   call->name, number_of(&call->wanted)),
				 errdetail("Entities that have moved to another shard: " INT64_FORMAT ".",
						   call->row.entities),
				 errhint("Start it here with shard_start() and these settings, then at other "
						 "members.")));
	}
	SPI_finish();
	PG_RETURN_VOID();
}
