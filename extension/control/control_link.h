/*
 * control/control_link.h
 *		The control worker's connections to other nodes: control messages, and who is there.
 *
 * One connection for a node, by its registered address, and some for addresses of nodes that are not
 * known yet. Messages may be lost, as the control plane expects: a queue that is full forgets its
 * oldest, and a connection that breaks forgets what it had.
 */
#pragma once

#include "control/control.h"

/* Send to a member; to an address; back to where the message came from that is being looked at. */
extern void shard_control_link_send(int32 node, const char *bytes, int length);
extern void shard_control_link_send_to(const char *dsn, const char *bytes, int length);
extern void shard_control_link_send_back(const char *bytes, int length);

/* Ask who is at a member's registered address; the answer is an event. */
extern void shard_control_link_who(int32 node);

/* Ask at an address whether the node there joins under that token; answer or failure is an event with that question. */
extern void shard_control_link_joiner(const char *dsn, ShardUuid token, int64 question);

/* This message came, via as for shard_node_receive: its sender lives. */
extern void shard_control_link_heard(int32 via, const char *bytes, int length);

/* Connects, polls, sends; takes answers as steps of the machine. True: something came. */
extern bool shard_control_link_run(void);

/* Has a link that is open messages that have not been sent, or not been answered? */
extern bool shard_control_link_waits(void);

/* Fills in what is known of the link to a member. */
extern void shard_control_link_report(int32 node, int64 now, ShardMemberReport *report);

/* The registered address of a member, in the current memory context; "" if it is not known. */
extern const char *shard_control_link_address(int32 node);

/* Closes all, and forgets whom it has heard. */
extern void shard_control_link_forget(void);
