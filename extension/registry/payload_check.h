/*
 * registry/payload_check.h
 *		Whether bytes that came from elsewhere are a message that handlers can be given.
 */
#pragma once

#include "shard.h"

/* Are these the bytes of a jsonb value, without its varlena header? Nothing is trusted. */
extern bool shard_payload_is_jsonb(const char *bytes, int length);

/* Is this a text of the database's encoding, with 1 to SHARD_MAX_ENTITY_ID bytes? */
extern bool shard_payload_is_entity(const char *text, int length);

/* A text that somebody names who is elsewhere, palloc'd; error 22021 if it is none in the encoding of this database. */
extern char *shard_payload_text(const char *bytes, int length);
