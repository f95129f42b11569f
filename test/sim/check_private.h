/*
 * check_private.h
 *		What the files of the checkers share.
 */
#pragma once

#include "check.h"

typedef struct CheckOrders CheckOrders;

/* Whom a message is for. */
typedef struct CheckPlace
{
	int32 type_id;
	int32 shard;
	int32 entity;
	int64 number;
} CheckPlace;

/* check.c */
extern CheckOrders *check_orders(const Check *check);
extern CheckPlace check_place(const Check *check, int64 id);
extern void check_set_number(Check *check, int64 id, int64 number);
extern bool check_is_excused(const Check *check, int instance);

/* The newest epoch in which a shard began without the state of the one before; 0: none. */
extern int32 check_lost_epoch(const Check *check, int32 type_id, int32 shard);

/* check_order.c */
extern CheckOrders *check_orders_create(void);
extern void check_orders_forget(Check *check);
extern void check_orders_lost(Check *check, int32 type_id, int32 shard);
