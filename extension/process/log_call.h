/*
 * process/log_call.h
 *		Where a statement gives somebody an address.
 */
#pragma once

/*
 * Whether a statement, which need not be well-formed, calls a function with an address or sets one; also within its
 * literals, which may be code. A word in a comment, or a name alone, is no call. *shown: so many bytes
 * at the beginning come before any literal, comment or call.
 */
extern bool shard_log_call_in_statement(const char *statement, size_t *shown);

/* The same of what has statements in it, whatever their quotes. */
extern bool shard_log_call_in_text(const char *text);
