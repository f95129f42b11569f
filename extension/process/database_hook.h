/*
 * process/database_hook.h
 *		DROP, ALTER and CREATE DATABASE while our workers run.
 */
#pragma once

/* Chains the utility hook; from _PG_init. */
extern void shard_database_hook_init(void);
