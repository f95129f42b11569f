/*
 * link/receive.h
 *		Messages, facts and marks from another node: hello and receive (X3, X4).
 */
#pragma once

/* Registers the transaction callback; from _PG_init. */
extern void shard_receive_init(void);
