/*
 * registry/owner_session.h
 *		The session in which users' code runs: its owner's, where it is no client's.
 *
 * Functions that run as another role ask session_user and is_superuser which user calls them. In the backend of a
 * client that is the client. The extension's workers and the backends of other nodes belong to no client: while code of
 * a type runs in them, their session is that of the type's owner, and what is left in the session does not wait for the
 * next owner.
 */
#pragma once

#include "postgres.h"

/* This process is a worker: it serves owners, not a client. */
extern void shard_owner_session_serve(void);

/* Whether this process is one whose session is the owner's while code of that owner runs: no client's. */
extern bool shard_owner_session_is_owners(void);

/* Whether a stretch of an owner's code is open in such a process. */
extern bool shard_owner_session_is_open(void);

/*
 * A stretch of the owner's code begins; returns what to end it with. nested: it runs within code of another owner,
 * which goes on behind it. If it ends with an error, the abort puts back what was.
 */
extern int shard_owner_session_begin(Oid owner, bool nested);

/*
 * It ends: cursors, large objects and the seed of random() that it leaves are gone for others. So are advisory locks of the session,
 * in a backend; a worker releases them after the turn.
 */
extern void shard_owner_session_end(int begun);

/*
 * Closes cursors and large objects that code of the stretch that is open has left. Some languages leave cursors that
 * cannot be closed: the error is raised here, where it is the fault of what ran last, and not at the commit.
 */
extern void shard_owner_session_tidy(void);
