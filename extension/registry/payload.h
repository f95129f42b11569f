/*
 * registry/payload.h
 *		Messages as people may see them: by members of the type's owner only.
 */
#pragma once

#include "utils/jsonb.h"

#include "shard.h"

/* Whether the current user may read messages of a type; those of a dropped one, superusers. */
extern bool shard_payload_is_readable(int32 type_id);

/* A stored payload as jsonb, palloc'd. */
extern Jsonb *shard_payload_to_jsonb(const char *payload, int len);
