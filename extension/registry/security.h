/*
 * registry/security.h
 *		The right to send, and running code as a type's owner.
 */
#pragma once

#include "registry/registry.h"

/* Error 42501 unless the current user may send to the type: EXECUTE on its handler. */
extern void shard_security_check_send(ShardType *type);

/* Whether the current user is a member of the type's owner (reads payloads, alters it). */
extern bool shard_security_is_owner(const ShardType *type);

/* Error 42501 unless the current user is. what: "alter entity type" and the like. */
extern void shard_security_check_owner(const ShardType *type, const char *what);

/* A role in a sentence: role "alice"; it may be gone. Palloc'd. */
extern char *shard_security_role_text(Oid role);

/* Why a type does not run here that belongs to another role in the cluster, palloc'd; NULL: it does not. */
extern char *shard_security_owner_problem(const ShardType *type);

/*
 * Why code of a type must not run, palloc'd; NULL: it may. A search_path of an older version may be too long. A role
 * that was given the type, also a superuser by REASSIGN OWNED, has not agreed yet that code of another author runs as
 * itself: shard_alter() does that.
 */
extern char *shard_security_problem(const ShardType *type, int *sqlstate);

/*
 * A search_path as it is put in force: temporary schemas are at its end, whichever role set it. In a sender's session
 * they are the sender's, who could put own tables before those that an extractor means. Palloc'd; what is no list of
 * schemas stays as it is, and is refused when it is set.
 */
extern char *shard_security_path(const char *path);

/*
 * A stretch in which user code of a type runs: as the type's owner, in a security-restricted operation, with the
 * search_path stored at shard_start, in a GUC nest level of its own; and, where the session is no client's, in a
 * session of the owner's (owner_session.h). Begin may be called again with another type (switches owners) and costs
 * nothing if the owner and path are the same. Raises if the owner has not confirmed the ownership
 * (shard_security_problem). After an error the caller's abort restores user, session and GUCs; call
 * shard_security_forget() then.
 */
typedef struct ShardSecurity
{
	bool active;
	Oid owner;
	uint64 path_number; /* 0: none of a type */
	Oid saved_user;
	int saved_context;
	int nest_level;
	bool in_session;
	int session; /* for shard_owner_session_end() */
} ShardSecurity;

extern void shard_security_begin(ShardSecurity *security, const ShardType *type);
extern void shard_security_end(ShardSecurity *security);

/*
 * Error unless a stretch of this owner is open. Called before anything of the owner's is planned or run, so that a
 * caller that forgot to begin a stretch gets an error, instead of running it as another user.
 */
extern void shard_security_require(Oid owner);

/*
 * The opposite: a stretch of the extension's own SQL on internal tables or DDL, as the bootstrap superuser with a
 * pinned search_path and the settings that shape new tables at their defaults. No code of a user's may run in it. Ended
 * by shard_security_end(); *security must be all zeroes.
 */
extern void shard_security_begin_system(ShardSecurity *security);

/* Connects to SPI and begins SQL on the extension's tables as the system; and ends both. */
extern void shard_security_open_system(ShardSecurity *security);
extern void shard_security_close_system(ShardSecurity *security);

/* Forgets a stretch that an error ended; the caller's abort has restored user and settings. */
extern void shard_security_forget(ShardSecurity *security);
