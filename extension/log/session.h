/*
 * log/session.h
 *		What a backend remembers about its transaction: tells, locks, wake-ups.
 */
#pragma once

#include "registry/registry.h"

/* Registers the transaction callbacks; from _PG_init. */
extern void shard_session_init(void);

/* A message for the type and shard was appended: its worker is woken at commit. */
extern void shard_session_told(const ShardType *type, int shard);

/* The same of an answer to a request, which has no place in the order of what the session sends. */
extern void shard_session_answered(int32 type_id, int shard);

/* Rows for a lane were appended: its worker is woken at commit. */
extern void shard_session_appended(int lane);

/* This transaction drops a type with all that is sent to it, by itself as well. */
extern void shard_session_gives_up(int32 type_id);

/* Whether this transaction, not ended yet, has told something to the type that was not rolled back. */
extern bool shard_session_has_told(const ShardType *type);
