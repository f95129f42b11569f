/*
 * registry/guest.h
 *		Code of a type (the guest) in the session of another user, who sends, tries or reshards.
 *
 * Extractors run where a message is sent, shard_try() runs a handler where it is called, and so does shard_reshard()
 * triggers and constraints of a state table: in a session that is a client's, or serves the handler of another user. User,
 * rights and settings are the owner's (security.h). This is the door to the rest: what the session has open is out of the
 * guest's reach, and what the guest opens is closed behind it.
 */
#pragma once

#include "fmgr.h"
#include "nodes/nodes.h"

#include "registry/registry.h"

/* What the guest may do, the strictest last. */
typedef enum ShardGuestKind
{
	SHARD_GUEST_NONE, /* no guest is here */
	SHARD_GUEST_STORES, /* what a write to a state table runs: as the next one, in a transaction that is for it alone */
	SHARD_GUEST_TRIES, /* a handler on trial: what is undone with its subtransaction, the caller has begun one */
	SHARD_GUEST_READS /* an extractor: queries */
} ShardGuestKind;

typedef void (*ShardGuestCode)(void *argument);

/*
 * Runs code(argument) as the type's owner, as shard_security_begin() has it, and as a guest. All of the session's
 * cursors are in use for that long: to the guest they are neither there nor can they be fetched from, closed, or
 * declared again. Raises what the code raises.
 */
extern void
shard_guest_run(const ShardType *type, ShardGuestKind kind, ShardGuestCode code, void *argument);

/* The same for a function that is called with fcinfo; its result. */
extern Datum shard_guest_call(const ShardType *type, ShardGuestKind kind, FunctionCallInfo fcinfo);

/* The strictest kind among the guests that are here now. */
extern ShardGuestKind shard_guest_here(void);

/* Error 42501 if a guest is here that must not run the statement. From the hook of utility statements. */
extern void shard_guest_check_statement(const Node *statement);

/* A guest of that kind and owner comes into a session that runs code as user: see guest_hook.c. */
extern void shard_guest_comes(ShardGuestKind kind, Oid owner, Oid user);

/* Chains the hook by which the server's functions for what belongs to a session are refused. From _PG_init. */
extern void shard_guest_hook_init(void);
