/*
 * registry/setting_hook.h
 *		Settings of the server that act on the process, and names of settings that stay in it.
 */
#pragma once

#include "postgres.h"

/* Code of owners is refused what ends the session or is the session's alone. From _PG_init. */
extern void shard_setting_hook_init(void);

/* Bytes of the names of settings that SET and set_config() have made in this process: nothing takes them away. */
extern Size shard_setting_name_bytes(void);

/* Bytes of the time zones that this process knows: each name that is made up for one is a zone of its own, for good. */
extern Size shard_setting_zone_bytes(void);
