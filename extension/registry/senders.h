/*
 * registry/senders.h
 *		Open transactions that keep this node from leaving, or from joining.
 */
#pragma once

/*
 * The sessions that hold the lock of senders, but not this one: a list, "" if there are none; with their roles, if that
 * is wanted. Needs a snapshot.
 */
extern const char *shard_senders_list(bool roles);
