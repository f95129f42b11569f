/*
 * core/node/trust_private.h
 *		What a message may say, and in whose name: the checks of node_trust.c, for the files of core/node (T7).
 */
#pragma once

#include "core/map/control.h"
#include "core/node/node.h"

/* Does a message come from the node that was called, if one was, and in this node's name only by its own loop? */
extern bool shard_node_trust_sender(ShardNode *node, const ShardControl *message);

/* Are the ballots of a message such as elections may have reached, and its sender's own where they have to be? */
extern bool shard_node_trust_ballots(ShardNode *node, const ShardControl *message);

/* True unless only a coordinator may say it, and the sender is not the coordinator that this node follows. */
extern bool shard_node_trust_orders(ShardNode *node, const ShardControl *message);

/* The first ballot of voters that are forced, above what can have been used in this era. */
extern int64 shard_node_trust_next_ballot(const ShardNode *node);

/* Is a newer era to be entered? If not, the node that says so is asked at its address. */
extern bool shard_node_trust_era(ShardNode *node, const ShardControl *message);

/* May an era be the next one: would the other members enter it, too? */
extern bool shard_node_trust_era_to_come(const ShardNode *node, int32 era);

/*
 * In office: does a member's wish, to leave or a command, come with the code that was told to its address alone? If not, the
 * wish does not count, and the code is sent to the address.
 */
extern bool shard_node_trust_wish(ShardNode *node, int64 now, const ShardControl *message);

/*
 * In office: is what a member says of others, and of what it has left undone, its own word? A caller in its name, who has not got
 * the code, could have live nodes downed.
 */
extern bool shard_node_trust_report(ShardNode *node, int64 now, const ShardControl *message);

/* True unless a message is about a journal (R14), and there is none, or the era is out of reach. */
extern bool shard_node_trust_journal(const ShardNode *node, const ShardControl *message);

/*
 * Are the texts in it such as this database can have (T10)? A sentence for people that is not such a text is made one; a joiner
 * hears that its record is no text.
 */
extern bool shard_node_trust_texts(ShardNode *node, ShardControl *message);

/* May that message bring decided facts? */
extern bool shard_node_trust_facts(ShardNode *node, int64 now, const ShardControl *message);

/*
 * FENCED: is this incarnation, or the node, over, by the coordinator's word or by that of most other members that can be
 * heard?
 */
extern bool shard_node_trust_fenced(ShardNode *node, int64 now, const ShardControl *message);

/*
 * An era begins: forgets which nodes said that this incarnation is over, since they may have learned it from voters that were
 * given up.
 */
extern void shard_node_trust_era_begins(ShardNode *node);

/* A step begins: was there a pause before it? */
extern void shard_node_trust_step(ShardNode *node, int64 now);
