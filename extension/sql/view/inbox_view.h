/*
 * sql/view/inbox_view.h
 *		View shard_inbox: sending by writing to it.
 */
#pragma once

/* Registers the hook; from _PG_init. */
extern void shard_inbox_view_init(void);
