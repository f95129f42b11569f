/*
 * core/allocation/allocation_settings.c
 *		Names and defaults of what can be set, and the order of application versions.
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "core/allocation/allocation.h"

#define NAME(member, number, name) [number] = (name),

const char *const shard_allocation_kind_names[SHARD_ALLOCATION_KINDS + 2] = {
	"",
	SHARD_ALLOCATION_STRATEGIES(NAME) NULL,
};

bool
shard_allocation_is_known(int32 kind)
{
	return kind >= 1 && kind <= SHARD_ALLOCATION_KINDS;
}

#define SETTING(name, type, least, most) \
	{ \
#name, SHARD_ALLOCATION_##type, offsetof(ShardAllocationSettings, name), least, most \
	}

const ShardAllocationSetting shard_allocation_setting_list[] = {
	SETTING(rebalance_absolute_limit, INTEGER, 0, PG_INT32_MAX),
	SETTING(rebalance_relative_limit, FRACTION, 0, 1),
	SETTING(rebalance_threshold, INTEGER, 1, PG_INT32_MAX),
	SETTING(max_simultaneous_rebalance, INTEGER, 0, PG_INT32_MAX),
	SETTING(rebalance_limit, INTEGER, 0, PG_INT32_MAX),
	SETTING(virtual_nodes, INTEGER, 1, 1000),
	SETTING(weighted, SWITCH, 0, 1),
};

const int shard_allocation_n_settings = lengthof(shard_allocation_setting_list);

/* The settings of a strategy if nothing is set. */
ShardAllocationSettings
shard_allocation_defaults(ShardAllocationKind kind)
{
	ShardAllocationSettings settings = {
		.kind = kind,
		.rebalance_absolute_limit = 20,
		.rebalance_relative_limit = 0.1,
		.rebalance_threshold = 1,
		.max_simultaneous_rebalance = 3,
		.rebalance_limit = 0,
		.virtual_nodes = 100,
		.weighted = false,
	};

	return settings;
}

bool
shard_allocation_settings_valid(const ShardAllocationSettings *settings)
{
	if (!shard_allocation_is_known((int32) settings->kind))
		return false;
	for (int i = 0; i < shard_allocation_n_settings; i++)
	{
		const ShardAllocationSetting *setting = &shard_allocation_setting_list[i];
		const void *at = (const char *) settings + setting->offset;
		double value = 0;

		if (setting->type == SHARD_ALLOCATION_INTEGER)
			value = *(const int32 *) at;
		else if (setting->type == SHARD_ALLOCATION_FRACTION)
			value = *(const double *) at;
		/* What is no number is within no bounds. */
		if (!(value >= setting->least && value <= setting->most))
			return false;
	}
	return true;
}

static bool
is_digit(char c)
{
	return c >= '0' && c <= '9';
}

/*
 * Compares the numbers that two texts begin with, of any length, and advances past them. No number
 * is 0.
 */
static int
compare_numbers(const char **a, const char **b)
{
	const char *starts[2] = {*a, *b};
	size_t lengths[2];

	for (int i = 0; i < 2; i++)
	{
		const char *end;

		while (*starts[i] == '0')
			starts[i]++;
		for (end = starts[i]; is_digit(*end);)
			end++;
		lengths[i] = end - starts[i];
		*(i == 0 ? a : b) = end;
	}
	if (lengths[0] != lengths[1])
		return lengths[0] < lengths[1] ? -1 : 1;
	return strncmp(starts[0], starts[1], lengths[0]);
}

/* Advances past a dot that a number follows. */
static bool
skip_dot(const char **text)
{
	if (**text != '.' || !is_digit((*text)[1]))
		return false;
	(*text)++;
	return true;
}

/* Advances past the sign of a build number, a number that is all of the part it begins. */
static bool
skip_build_sign(const char **text)
{
	const char *end = *text + 1;

	if ((**text != '-' && **text != '+') || !is_digit(*end))
		return false;
	while (is_digit(*end))
		end++;
	if (*end != '\0' && *end != '-' && *end != '+')
		return false;
	(*text)++;
	return true;
}

/*
 * The order of versions: negative if a is the older one. First number by number as far as dots
 * join them, a missing one being 0; then by the build number, if any: 1.0.0 < 1.0.0-3-abcdef or
 * 1.0.0+3; then what has nothing more is newer: 1.0.0-M1 < 1.0.0; then the rest by bytes.
 */
int
shard_allocation_compare_versions(const char *a, const char *b)
{
	static const char *const none = "";
	int order;

	order = compare_numbers(&a, &b);
	while (order == 0)
	{
		const char *rest_a = none;
		const char *rest_b = none;
		bool more_a = skip_dot(&a);
		bool more_b = skip_dot(&b);

		if (!more_a && !more_b)
			break;
		order = compare_numbers(more_a ? &a : &rest_a, more_b ? &b : &rest_b);
	}
	if (order == 0)
	{
		const char *rest_a = none;
		const char *rest_b = none;
		bool build_a = skip_build_sign(&a);
		bool build_b = skip_build_sign(&b);

		order = compare_numbers(build_a ? &a : &rest_a, build_b ? &b : &rest_b);
	}
	if (order != 0)
		return order;
	if ((*a == '\0') != (*b == '\0'))
		return *a == '\0' ? 1 : -1;
	return strcmp(a, b);
}
