/*
 * registry/senders.h
 *		Open transactions that keep this node from leaving, or from joining.
 */
#pragma once

/*
 * Those that hold the lock of senders, but not this one: a list, "" if nobody does; with their roles, if that is wanted. Needs a
 * snapshot.
 */
extern const char *shard_senders_list(bool roles);
