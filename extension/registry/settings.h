/*
 * registry/settings.h
 *		The named settings of an entity type: names, bounds, defaults, text form.
 *
 * A value is kept as canonical text, so that two settings are equal if their
 * texts are; NULL is SQL's null. The order is that of shard_start's arguments.
 */
#pragma once

#include "core/entity/passivation.h"
#include "core/map/record.h"
#include "utils/jsonb.h"

typedef enum ShardSettingId
{
	SHARD_SETTING_NUMBER_OF_SHARDS,
	SHARD_SETTING_HASH,
	SHARD_SETTING_ENTITY_ID_EXTRACTOR,
	SHARD_SETTING_MESSAGE_EXTRACTOR,
	SHARD_SETTING_SHARD_ID_EXTRACTOR,
	SHARD_SETTING_ROLE,
	SHARD_SETTING_ALLOCATION_STRATEGY,
	SHARD_SETTING_ALLOCATION_SETTINGS,
	SHARD_SETTING_PASSIVATION_STRATEGY,
	SHARD_SETTING_PASSIVATE_IDLE_AFTER,
	SHARD_SETTING_MAX_ATTEMPTS,
	SHARD_SETTING_RETRY_BACKOFF,
	SHARD_SETTING_MAX_RETRY_BACKOFF,
	SHARD_SETTING_HANDLER_TIMEOUT,
	SHARD_SETTING_HANDOFF_TIMEOUT,
	SHARD_SETTING_MAX_MESSAGE_SIZE,
	SHARD_SETTING_BUFFER_SIZE,
	SHARD_SETTING_ORDERED_BY,
	SHARD_SETTING_ORDERED_WINDOW,
	SHARD_SETTING_ORDERED_TIMEOUT,
	SHARD_SETTING_ORDERED_FROM,
	SHARD_SETTING_MAX_DEAD_LETTERS,
	SHARD_SETTING_MAX_DEAD_LETTERS_SIZE,
	SHARD_SETTING_DEAD_LETTERS_FULL,
	SHARD_SETTING_ACTIVE_ENTITY_LIMIT,
	SHARD_SETTING_PASSIVATION_SETTINGS,
	SHARD_SETTING_STOP_MESSAGE,
	SHARD_SETTING_REMEMBER_ENTITIES,
	SHARD_SETTING_ENTITY_RECOVERY_STRATEGY,
	SHARD_SETTING_ENTITY_RECOVERY_FREQUENCY,
	SHARD_SETTING_ENTITY_RECOVERY_NUMBER,
	SHARD_SETTING_START_MESSAGE,
	SHARD_SETTING_ENTITY_RESTART_BACKOFF,
	SHARD_SETTING_SUPERVISION,
	SHARD_SETTING_DECIDER,
	SHARD_SETTING_MAX_RESTARTS,
	SHARD_SETTING_RESTART_WINDOW,
	SHARD_SETTING_SHARD_FAILURE_BACKOFF,
	SHARD_SETTING_WORKER,
	SHARD_SETTING_REPLICAS,
	SHARD_SETTING_MIN_INSYNC,
	SHARD_SETTING_ON_TOO_FEW,
	SHARD_SETTING_COUNT
} ShardSettingId;

typedef struct ShardSettings
{
	const char *value[SHARD_SETTING_COUNT];
} ShardSettings;

/* The longest value as text, also of a search_path: every process keeps the values of all types. */
#define SHARD_SETTING_MAX_BYTES 2048

/* Error 54000 if a value is longer. */
extern void shard_settings_check_bytes(const char *setting, const char *value);

extern const char *shard_settings_name(ShardSettingId id);

/* Error 42704 with a hint if there is no setting of this name. */
extern ShardSettingId shard_settings_find(const char *name);

/* Whether the value stays that of shard_start. */
extern bool shard_settings_is_fixed(ShardSettingId id);
extern const char *shard_settings_why_fixed(ShardSettingId id);

/* Whether it says in which shard an entity is, so that shard_reshard() changes it. */
extern bool shard_settings_is_of_shards(ShardSettingId id);

/* Whether it is about copies of shards at other members (doc/protocol/replicas.md). */
extern bool shard_settings_is_of_replicas(ShardSettingId id);

/* Whether the value is kept in shard.type.settings, and there as a number, a boolean, or as any JSON. */
extern bool shard_settings_is_stored(ShardSettingId id);
extern bool shard_settings_is_number(ShardSettingId id);
extern bool shard_settings_is_boolean(ShardSettingId id);
extern bool shard_settings_is_json(ShardSettingId id);

/* The default; NULL: null. */
extern const char *shard_settings_default(ShardSettingId id);

/* Whether the value is the name of a function, which the caller resolves. */
extern bool shard_settings_is_function(ShardSettingId id);

/* The canonical text of a value given as text, or as an argument of shard_start. */
extern const char *shard_settings_from_text(ShardSettingId id, const char *text);
extern const char *shard_settings_from_argument(ShardSettingId id, Datum value, bool isnull);

/* Errors about settings that contradict one another. */
extern void shard_settings_check(const ShardSettings *settings);

/*
 * To and from shard.type.settings. What is not stored there, is the default
 * after reading (settings_store.c).
 */
extern Jsonb *shard_settings_to_jsonb(const ShardSettings *settings);
extern void shard_settings_from_jsonb(ShardSettings *settings, Jsonb *stored);

/*
 * The type as the cluster knows it, and those of the settings that the cluster knows; all texts are palloc'd
 * (settings_store.c). The caller owns extra.
 */
extern void shard_settings_to_record(const char *type_name, const ShardSettings *settings,
									 ShardTypeRecord *record);
extern void shard_settings_from_record(ShardSettings *settings, const ShardTypeRecord *record);

/*
 * Checks allocation_settings against allocation_strategy, and makes it canonical: what differs from the
 * strategy's defaults; functions by their qualified signatures, as the present search_path finds them,
 * which the current user must be allowed to execute (settings_allocation.c).
 */
extern void shard_settings_resolve_allocation(ShardSettings *settings);

/* The strategy with its settings, of a canonical text. */
extern void
shard_settings_allocation(const ShardSettings *settings, ShardAllocationSettings *allocation);

/* The reverse: both settings, of a record and the signatures of the functions, NULL: none. */
extern void
shard_settings_allocation_from_record(ShardSettings *settings, const ShardTypeRecord *record,
									  const char *allocate, const char *rebalance);

/* Strategy "function": the signature of its function, palloc'd; NULL: it has none. */
extern char *shard_settings_strategy_function(const ShardSettings *settings, bool rebalance);

/* Reads one setting, an error if it is out of its bounds. */
struct ShardPlanValue;
extern void shard_settings_read_allocation(ShardAllocationSettings *allocation,
										   const ShardAllocationSetting *setting,
										   const struct ShardPlanValue *value);

/*
 * Passivation (settings_passivation.c): the settings of a strategy, of a JSON object, an error if one is unknown, not
 * the strategy's, or out of its bounds; all: also those for which a type has settings of their own. The second function:
 * those of a type. The third: an error, or a notice, if a limit was given to a strategy that has none.
 */
extern ShardPassivationSettings
shard_settings_read_passivation(const char *strategy, const struct ShardPlanValue *json, bool all);
extern void
shard_settings_passivation(const ShardSettings *settings, ShardPassivationSettings *passivation);
extern void shard_settings_check_limit(const ShardSettings *settings, int elevel);

/* Whether a boolean setting is on. */
extern bool shard_settings_is_on(const ShardSettings *settings, ShardSettingId id);

/* The number of a numeric setting; of a duration in microseconds. */
extern int64 shard_settings_number(const ShardSettings *settings, ShardSettingId id);
