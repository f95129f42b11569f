/*
 * base/next_start.h
 *		Settings that count from the next start of the server on, and whether it will start with them.
 */
#pragma once

/*
 * Would the server refuse to start now? Its configuration files name the strategy static_quorum, and not the size that
 * the strategy needs, while it runs with other settings. Reads the files if a setting waits for a restart.
 */
extern bool shard_next_start_lacks_quorum(void);

/* Warns of that in the server's log; to be called after a reload. */
extern void shard_next_start_warn(void);
