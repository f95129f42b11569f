/*
 * base/rights.h
 *		What the current user may see.
 */
#pragma once

#include "catalog/pg_authid.h"
#include "miscadmin.h"
#include "utils/acl.h"

/* Whether the current user may see what concerns all of the server: addresses, errors of links, what other roles do. */
static inline bool
shard_rights_all_stats(void)
{
	return has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS);
}
