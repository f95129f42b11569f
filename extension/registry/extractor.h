/*
 * registry/extractor.h
 *		Extractors of an entity type: entity id and payload out of a message.
 */
#pragma once

#include "utils/jsonb.h"

#include "registry/registry.h"

/*
 * The entity id in a message, by the type's entity_id_extractor, and its
 * payload, by message_extractor (the message itself if there is none). They run
 * as the type's owner. Error if the type has no entity_id_extractor or one of
 * them answers NULL. Both results are palloc'd.
 */
extern text *shard_extractor_entity_id(ShardType *type, Jsonb *message);
extern Jsonb *shard_extractor_message(ShardType *type, Jsonb *message);
