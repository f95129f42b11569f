/*
 * process/launcher.h
 *		The process that starts and stops the workers of all databases.
 */
#pragma once

/* Registers the launcher and the transaction callback of CREATE EXTENSION; from _PG_init. */
extern void shard_launcher_init(void);
