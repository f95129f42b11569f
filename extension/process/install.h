/*
 * process/install.h
 *		CREATE EXTENSION, seen from the server: a database wants workers.
 */
#pragma once

/* Registers the transaction callback; from _PG_init. */
extern void shard_install_init(void);
