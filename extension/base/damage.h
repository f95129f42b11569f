/*
 * base/damage.h
 *		Bytes of another node that cannot be read.
 */
#pragma once

/*
 * Raises ERRCODE_PROTOCOL_VIOLATION. what: which bytes, as the beginning of a sentence; part: the damaged part of them,
 * NULL: unknown; detail: what becomes of them, NULL: the error has no detail.
 */
_Noreturn extern void shard_damage_raise(const char *what, const char *part, const char *detail);
