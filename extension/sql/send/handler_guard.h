/*
 * sql/send/handler_guard.h
 *		What cannot be done from within a handler.
 */
#pragma once

/* A detail, for functions that ask region workers. */
#define SHARD_WAITS_FOR_ITSELF "The worker that runs the handler would wait for itself."

/*
 * Raises ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE if a handler runs in this process. what: the deed, as it follows "cannot";
 * detail, hint: sentences, NULL: none.
 */
extern void shard_handler_guard_check(const char *what, const char *detail, const char *hint);
