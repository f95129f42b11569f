/*
 * base/damage.h
 *		Bytes of another node that cannot be read.
 */
#pragma once

/*
 * Raises ERRCODE_PROTOCOL_VIOLATION. what: whose bytes, as the beginning of a sentence; part: in which part of them,
 * NULL: unknown; detail: what becomes of them, NULL: the error has no detail.
 */
extern void
shard_damage_raise(const char *what, const char *part, const char *detail) pg_attribute_noreturn();
