/*
 * registry/guest.c
 *		Code of a type (the guest) in the session of another user, who sends, tries or reshards.
 *
 * A cursor is found by its name, by any code that knows it, and PL/pgSQL opens, fetches from and closes cursors without
 * a statement that a hook would see. What the server refuses to all of them is a cursor that is running. So while a
 * guest is here, every cursor that there was before is marked as running. No abort sees a mark: the mark is taken away
 * where the error comes through, and the cursors that the guest has opened have none, so an abort disposes of them as
 * usual.
 */
#include "postgres.h"

#include "miscadmin.h"
#include "storage/proc.h"
#include "tcop/pquery.h"
#include "utils/acl.h"
#include "utils/guc.h"
#include "utils/memutils.h"
#include "utils/portal.h"

#include "base/attempt.h"
#include "base/guc.h"
#include "core/entity/entity.h"
#include "registry/guest.h"
#include "registry/guest_timer.h"
#include "registry/security.h"

#include "base/compat.h"

/* A cursor as it was before the guest came. */
typedef struct Mark
{
	Portal portal;
	PortalStatus status;
	bool visible;
} Mark;

/* Most sessions have one, which runs the statement that sends. */
#define FEW_MARKS 4

typedef struct Guest
{
	ShardSecurity security;
	ShardGuestKind before; /* the guest that was here */
	TimestampTz timer;
	int mark_count;
	Mark *marks;
	Mark few[FEW_MARKS];
} Guest;

/* The innermost. */
static ShardGuestKind here = SHARD_GUEST_NONE;

ShardGuestKind
shard_guest_here(void)
{
	return here;
}

/*
 * Where the server makes the memory of portals, one child for each, which has the portal's name for its identifier.
 * The table of portals itself is its own; the view of them leaves some out.
 */
static MemoryContext
portal_memory(void)
{
	static MemoryContext found = NULL;

	if (likely(found != NULL))
		return found;
	for (MemoryContext child = TopMemoryContext->firstchild; child != NULL;
		 child = child->nextchild)
		if (strcmp(child->name, "TopPortalContext") == 0)
			found = child;
	if (found == NULL)
		elog(ERROR, "could not find the memory of portals");
	return found;
}

/* The portal of such a child; NULL: it is some other memory of one. */
static Portal
portal_of(MemoryContext memory)
{
	Portal portal;

	if (ActivePortal != NULL && ActivePortal->portalContext == memory)
		return ActivePortal;
	if (memory->ident == NULL)
		return NULL;
	portal = GetPortalByName(memory->ident);
	if (PortalIsValid(portal) && portal->portalContext == memory)
		return portal;
	/* the identifier of the one without a name is not its name */
	portal = GetPortalByName("");
	return PortalIsValid(portal) && portal->portalContext == memory ? portal : NULL;
}

static bool
needs_mark(Portal portal)
{
	return PortalIsValid(portal) && (portal->status != PORTAL_ACTIVE || portal->visible);
}

/* Notes all portals that need a mark; the only step that may raise. */
static void
note_portals(Guest *guest)
{
	int count = 0;

	for (MemoryContext child = portal_memory()->firstchild; child != NULL; child = child->nextchild)
		count += needs_mark(portal_of(child));
	guest->marks = count <= FEW_MARKS ? guest->few : palloc(sizeof(Mark) * count);
	guest->mark_count = 0;
	if (count == 0)
		return;
	for (MemoryContext child = portal_memory()->firstchild; child != NULL; child = child->nextchild)
	{
		Portal portal = portal_of(child);

		if (needs_mark(portal))
			guest->marks[guest->mark_count++] = (Mark){portal, portal->status, portal->visible};
	}
	Assert(guest->mark_count == count);
}

/* The guest is here. */
static void
enter(Guest *guest, ShardGuestKind kind)
{
	guest->before = here;
	here = Max(here, kind);
	for (int i = 0; i < guest->mark_count; i++)
	{
		guest->marks[i].portal->status = PORTAL_ACTIVE;
		guest->marks[i].portal->visible = false;
	}
}

/* The guest is gone, or not there yet: takes its marks away. Raises nothing. */
static void
leave(Guest *guest)
{
	for (int i = 0; i < guest->mark_count; i++)
	{
		guest->marks[i].portal->status = guest->marks[i].status;
		guest->marks[i].portal->visible = guest->marks[i].visible;
	}
	here = guest->before;
}

/* Closes what the guest has opened: all else is marked as running. Some languages pin theirs. */
static void
close_portals(void)
{
	MemoryContext child = portal_memory()->firstchild;

	while (child != NULL)
	{
		Portal portal = portal_of(child);

		if (!PortalIsValid(portal) || portal->status == PORTAL_ACTIVE)
		{
			child = child->nextchild;
			continue;
		}
		portal->portalPinned = false;
		PortalDrop(portal, false);
		child = portal_memory()->firstchild;
	}
}

/* What can lock rows does not wait longer for a lock than in a worker: locks that it has are the owner's. */
static void
limit_lock_waits(void)
{
	char value[32];

	if (LockTimeout > 0 && LockTimeout <= shard_handler_lock_timeout)
		return;
	snprintf(value, sizeof(value), "%dms", shard_handler_lock_timeout);
	(void) set_config_option("lock_timeout", value, PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE,
							 true, 0, false);
}

/*
 * By these the client of a session is shown the inner life of a function that it merely calls, or the server's log is: other
 * messages than errors (LOG, which all that prints plans and statistics uses, is among them), plans with the values that
 * stand in them, variables that an error has beside its text.
 */
static const struct
{
	const char *name;
	const char *value;
} shown_nothing[] = {
	{"client_min_messages", "error"},		{"debug_print_parse", "off"},
	{"debug_print_rewritten", "off"},		{"debug_print_plan", "off"},
	{"plpgsql.print_strict_params", "off"},
};

/*
 * A sender that may not be the type's owner is told no more than asks tell. Ends with the guest's nest level of
 * settings.
 */
static void
show_nothing(Oid owner)
{
	if (has_privs_of_role(GetSessionUserId(), owner))
		return;
	for (int i = 0; i < (int) lengthof(shown_nothing); i++)
	{
		const char *name = shown_nothing[i].name;
		const char *value = shown_nothing[i].value;
		const char *now = GetConfigOption(name, true, false);

		if (now != NULL && strcmp(now, value) != 0)
			(void) set_config_option(name, value, PGC_USERSET, PGC_S_SESSION, GUC_ACTION_SAVE, true,
									 0, false);
	}
}

/* The guest's time is over. */
static void
late(const ShardType *type, ShardGuestKind kind)
{
	const char *hint =
		"Make it faster, or raise the limit with shard_alter. A handler of another owner waits "
		"for an extractor for a second at most.";

	if (kind == SHARD_GUEST_TRIES)
		ereport(ERROR,
				(errcode(ERRCODE_QUERY_CANCELED),
				 errmsg("the handler ran longer than its handler_timeout"), errhint("%s", hint)));
	ereport(ERROR, (errcode(ERRCODE_QUERY_CANCELED),
					errmsg("%s of entity type \"%s\" ran longer than its handler_timeout",
						   kind == SHARD_GUEST_STORES ? "a trigger or constraint on the state table"
													  : "an extractor",
						   type->name),
					errhint("%s", hint)));
}

/*
 * The error of a stranger's code goes on. What it says passes by itself would be tried again in a worker for as long as he
 * likes, and whoever has called him would stand still: there it is one that may pass, which has an end.
 */
static void
rethrow(const ShardType *type, bool is_worker, MemoryContext caller)
{
	ErrorData *error;

	if (!is_worker || shard_entity_hope(unpack_sql_state(geterrcode())) != SHARD_ENTITY_PASSES)
		PG_RE_THROW();
	MemoryContextSwitchTo(caller);
	error = CopyErrorData();
	FlushErrorState();
	shard_attempt_cut_error(error);
	error->message =
		psprintf("an extractor of entity type \"%s\" failed: %s", type->name, error->message);
	error->sqlerrcode = ERRCODE_TRANSACTION_ROLLBACK;
	ReThrowError(error);
}

void
shard_guest_run(const ShardType *type, ShardGuestKind kind, ShardGuestCode code, void *argument)
{
	Guest guest = {.security = {0}};
	MemoryContext caller = CurrentMemoryContext;
	bool stranger;

	note_portals(&guest);
	shard_security_begin(&guest.security, type);
	if (kind != SHARD_GUEST_READS)
		limit_lock_waits();
	show_nothing(type->owner);
	shard_guest_comes(Max(here, kind), type->owner, guest.security.saved_user);
	stranger = kind == SHARD_GUEST_READS && guest.security.saved_user != type->owner;
	guest.timer = shard_guest_timer_begin(type, stranger);
	enter(&guest, kind);
	PG_TRY();
	{
		code(argument);
		close_portals();
	}
	PG_CATCH();
	{
		bool was_late = shard_guest_timer_end(guest.timer);

		leave(&guest);
		if (!was_late || geterrcode() != ERRCODE_QUERY_CANCELED)
			rethrow(type, stranger && shard_guest_timer_is_worker(), caller);
		FlushErrorState();
		late(type, kind);
	}
	PG_END_TRY();
	leave(&guest);
	if (shard_guest_timer_end(guest.timer))
		late(type, kind);
	shard_security_end(&guest.security);
	if (guest.marks != guest.few)
		pfree(guest.marks);
}

/* A call of a function, and its result. */
typedef struct GuestCall
{
	FunctionCallInfo fcinfo;
	Datum result;
} GuestCall;

static void
invoke(void *argument)
{
	GuestCall *call = argument;

	call->result = FunctionCallInvoke(call->fcinfo);
}

Datum
shard_guest_call(const ShardType *type, ShardGuestKind kind, FunctionCallInfo fcinfo)
{
	GuestCall call = {.fcinfo = fcinfo};

	shard_guest_run(type, kind, invoke, &call);
	return call.result;
}
