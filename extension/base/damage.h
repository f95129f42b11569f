/*
 * base/damage.h
 *		Bytes of another node that cannot be read.
 */
#pragma once

/*
 * Raises ERRCODE_PROTOCOL_VIOLATION. what: whose bytes, as the beginning of a sentence; part: in which part of them, NULL:
 * nobody knows; detail: what becomes of them, NULL: nothing is said.
 */
extern void
shard_damage_raise(const char *what, const char *part, const char *detail) pg_attribute_noreturn();
