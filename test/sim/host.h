/*
 * host.h
 *		Between the parts of an instance: the server, its control process, its data plane.
 */
#pragma once

#include "world.h"

/* host.c: the instance at the address of a node, as another one's control plane knows it */
extern Instance *host_at_node(World *world, Instance *instance, int32 node);

/* host_control.c */
extern void host_define_control(Instance *instance); /* its table */
extern void host_begin_control(World *world, Instance *instance, ShardStartKind kind);
extern void host_run_control(World *world, Instance *instance); /* after anything happened */

/* host_flow.c */
extern void host_create_flow(World *world, Instance *instance, int workers);
extern void host_flow_steps(World *world, Instance *instance, int64 turn, int64 b,
							const char *bytes, size_t length);
