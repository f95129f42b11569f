/*
 * registry/owner_session.c
 *		The session in which users' code runs: its owner's, where it is no client's.
 *
 * A worker connects as the bootstrap superuser, as autovacuum does: a role without rights would have to be made in
 * every server, and could not become the owners. So the session changes hands with the current user. The server
 * restores the latter when a transaction or subtransaction aborts, but the session's user only when SET has set that
 * user; and SET makes it the current user again at the worst of times, when a subtransaction of another user's function
 * aborts. Therefore this file changes the session's user itself, and puts it right in callbacks, before anything else
 * runs.
 *
 * Nothing of it is durable or shared; if the process dies right here, there is no session any more.
 */
#include "postgres.h"

#include "access/xact.h"
#include "common/pg_prng.h"
#include "libpq/be-fsstubs.h"
#include "miscadmin.h"
#include "port.h"
#include "storage/lock.h"
#include "utils/fmgrprotos.h"
#include "utils/memutils.h"
#include "utils/portal.h"

#include "registry/owner_session.h"
#include "shared/visitor.h"

#include "base/compat.h"

/* The user of the session before a stretch, and where that began. */
typedef struct Change
{
	int level; /* of the transaction */
	bool nested;
	bool is_superuser;
	Oid role;
} Change;

static bool serves = false;

/* Stretches that are open, the innermost last. Frames they belong to may be gone after an error, so they are here. */
static Change *changes = NULL;
static int change_count = 0;
static int change_capacity = 0;

/* Random numbers of the server's source, many at once. */
#define SEEDS 32

/*
 * The next owner must not know the numbers that random() will give. Raises nothing, as an abort may need it.
 */
static void
reseed(void)
{
	static int64 seeds[SEEDS];
	static int left = 0;
	int64 seed;

	if (left == 0 && pg_strong_random(seeds, sizeof(seeds)))
		left = SEEDS;
	seed = left > 0 ? seeds[--left] : (int64) pg_prng_uint64(&pg_global_prng_state);
	(void) DirectFunctionCall1(setseed, Float8GetDatum((double) seed / 9223372036854775808.0));
}

/* Makes it that role's session. The server would make it the current user, too. */
static void
set_role(Oid role, bool is_superuser)
{
	Oid user;
	int context;

	if (role == GetSessionUserId() && is_superuser == GetSessionUserIsSuperuser())
		return;
	GetUserIdAndSecContext(&user, &context);
	SetUserIdAndSecContext(user, 0);
	SetSessionAuthorization(role, is_superuser);
	SetUserIdAndSecContext(user, context);
}

/*
 * Advisory locks of the session survive commit and abort, and would be the next owner's. A worker releases those of a
 * turn at its end (region.c). Locks that were there before another user's code called this belong to that user
 * and stay.
 */
static void
release_locks(const Change *outermost)
{
	if (!serves && !outermost->nested)
		LockReleaseSession(USER_LOCKMETHOD);
}

/* Ends stretches until the given number is left. Raises nothing, either. */
static void
go_back(int count)
{
	Change was;

	if (change_count <= count)
		return;
	was = changes[count];
	change_count = count;
	set_role(was.role, was.is_superuser);
	reseed();
	if (count == 0)
		release_locks(&was);
}

/* The end of a transaction: whatever ended a stretch without saying so, it has ended. */
static void
transaction_changed(XactEvent event, void *arg)
{
	if (event == XACT_EVENT_ABORT || event == XACT_EVENT_COMMIT || event == XACT_EVENT_PREPARE)
		go_back(0);
}

static void
subtransaction_changed(SubXactEvent event, SubTransactionId own, SubTransactionId parent, void *arg)
{
	int level = GetCurrentTransactionNestLevel();
	int count = change_count;

	if (event == SUBXACT_EVENT_ABORT_SUB)
	{
		while (count > 0 && changes[count - 1].level >= level)
			count--;
		go_back(count);
	}
	else if (event == SUBXACT_EVENT_COMMIT_SUB)
		for (; count > 0 && changes[count - 1].level >= level; count--)
			changes[count - 1].level = level - 1;
}

void
shard_owner_session_serve(void)
{
	serves = true;
}

bool
shard_owner_session_is_owners(void)
{
	return serves || shard_visitor_is_here();
}

bool
shard_owner_session_is_open(void)
{
	return change_count > 0;
}

/* For one more stretch; the first one makes that its end is noticed. */
static void
make_room(void)
{
	int capacity = Max(8, change_capacity * 2);

	if (change_count < change_capacity)
		return;
	if (changes == NULL)
	{
		RegisterXactCallback(transaction_changed, NULL);
		RegisterSubXactCallback(subtransaction_changed, NULL);
	}
	changes = changes == NULL ? MemoryContextAlloc(TopMemoryContext, capacity * sizeof(Change))
							  : repalloc(changes, capacity * sizeof(Change));
	change_capacity = capacity;
}

int
shard_owner_session_begin(Oid owner, bool nested)
{
	bool is_superuser;

	if (!shard_owner_session_is_owners())
		return change_count;
	make_room();
	is_superuser = superuser_arg(owner);
	changes[change_count++] = (Change){.level = GetCurrentTransactionNestLevel(),
									   .nested = nested,
									   .is_superuser = GetSessionUserIsSuperuser(),
									   .role = GetSessionUserId()};
	set_role(owner, is_superuser);
	return change_count - 1;
}

/* In a backend, and behind a nested stretch, the cursors and large objects may be another user's. */
void
shard_owner_session_tidy(void)
{
	if (!serves || change_count != 1 || changes[0].nested)
		return;
	PortalHashTableDeleteAll();
	AtEOXact_LargeObject(true);
}

void
shard_owner_session_end(int begun)
{
	if (change_count <= begun)
		return;
	shard_owner_session_tidy();
	go_back(begun);
}
