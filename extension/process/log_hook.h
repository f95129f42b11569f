/*
 * process/log_hook.h
 *		What of statements that have addresses in them reaches the server's log: how they begin.
 */
#pragma once

/* Chains the hook; from _PG_init. */
extern void shard_log_hook_init(void);
