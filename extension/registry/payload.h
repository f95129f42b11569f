/*
 * registry/payload.h
 *		Messages' bytes: which users may see them, and whether they are good.
 */
#pragma once

#include "utils/jsonb.h"

#include "shard.h"

/* ---- payload.c: Messages as people may see them: by members of the type's owner only ---- */

/* Whether the current user may read messages of a type; those of a dropped one, superusers. */
extern bool shard_payload_is_readable(int32 type_id);

/* A stored payload as jsonb, palloc'd. */
extern Jsonb *shard_payload_to_jsonb(const char *payload, int len);

/* ---- payload_check.c: Whether bytes that came from elsewhere are a message that handlers can be given ---- */

/* Are these the bytes of a jsonb value, without its varlena header? Nothing is trusted. */
extern bool shard_payload_is_jsonb(const char *bytes, int length);

/* Is this a text of the database's encoding, with 1 to SHARD_MAX_ENTITY_ID bytes? */
extern bool shard_payload_is_entity(const char *text, int length);

/* A text that a caller from elsewhere gives, palloc'd; error 22021 if it is none in the encoding of this database. */
extern char *shard_payload_text(const char *bytes, int length);
