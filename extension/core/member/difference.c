/*
 * core/member/difference.c
 *		In what a type of a node differs from the cluster's type of that name.
 *
 * The hash of the settings decides whether they differ; the record has the values, so that people hear
 * which. A record is written by any version of the extension: if none of what this one knows differs, it
 * says no more than that.
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "core/member/difference.h"
#include "core/base/text.h"

/* A line, or the beginning of one, in quotes. */
#define VALUE_SIZE (SHARD_DIFFERENCE_TEXT + 2)

typedef struct Values
{
	char cluster[VALUE_SIZE];
	char node[VALUE_SIZE];
} Values;

static const char *
text_of(const char *text)
{
	return text ? text : "";
}

/* A line of a text by its number, up to its end or that of the text; NULL: there are not so many. */
static const char *
find_line(const char *text, int number)
{
	for (; number > 0 && text; number--)
	{
		text = strchr(text, '\n');
		if (text)
			text++;
	}
	return text;
}

static size_t
line_length(const char *line)
{
	return line ? strcspn(line, "\n") : 0;
}

/* The part of a line that people are shown: a long line is cut, between characters of UTF-8. */
static void
put_line(char *target, const char *line)
{
	size_t length = line_length(line);

	if (length >= SHARD_DIFFERENCE_TEXT)
	{
		length = SHARD_DIFFERENCE_TEXT - 1;
		while (length > 0 && ((unsigned char) line[length] & 0xC0) == 0x80)
			length--;
	}
	if (length > 0)
		memcpy(target, line, length);
	target[length] = '\0';
}

/* Are those lines not the same? Their ends count, too; people are shown the beginnings. */
static bool
lines_differ(const char *cluster, const char *node, Values *values)
{
	size_t length = line_length(cluster);

	put_line(values->cluster, cluster);
	put_line(values->node, node);
	return line_length(node) != length || (length > 0 && memcmp(cluster, node, length) != 0);
}

/* A line as it is shown. */
static void
quote(char *value)
{
	char line[SHARD_DIFFERENCE_TEXT];

	shard_text_copy(line, value, sizeof(line));
	if (line[0] == '\0')
		strlcpy(value, "nothing", VALUE_SIZE);
	else
		snprintf(value, VALUE_SIZE, "\"%s\"", line);
}

/* The first line in which two texts differ; false: they are equal. */
static bool
differ_in_line(const char *cluster, const char *node, Values *values)
{
	for (int i = 0;; i++)
	{
		const char *a = find_line(cluster, i);
		const char *b = find_line(node, i);

		if (!a && !b)
			return false;
		if (lines_differ(a, b, values) || !a || !b)
		{
			quote(values->cluster);
			quote(values->node);
			return true;
		}
	}
}

static const char *
say(const char *what, const Values *values, ShardArena *arena)
{
	char text[3 * SHARD_DIFFERENCE_TEXT];

	snprintf(text, sizeof(text), "%s is %s in the cluster, %s on the node", what, values->cluster,
			 values->node);
	return shard_arena_copy(arena, text, strlen(text) + 1);
}

static const char *
differ_in_number(const char *what, int32 cluster, int32 node, ShardArena *arena)
{
	Values values;

	if (cluster == node)
		return NULL;
	snprintf(values.cluster, sizeof(values.cluster), "%d", cluster);
	snprintf(values.node, sizeof(values.node), "%d", node);
	return say(what, &values, arena);
}

/* In one line; NULL is an empty one. */
static const char *
differ_in_text(const char *what, const char *cluster, const char *node, ShardArena *arena)
{
	char text[3 * SHARD_DIFFERENCE_TEXT];
	Values values;

	if (!lines_differ(cluster, node, &values))
		return NULL;
	snprintf(text, sizeof(text), "%s is \"%s\" in the cluster, \"%s\" on the node", what,
			 values.cluster, values.node);
	return shard_arena_copy(arena, text, strlen(text) + 1);
}

/* "murmur2", or with the function that says the shard behind it; then the functions of the strategy. */
static const char *
differ_in_hashing(const ShardTypeRecord *cluster, const ShardTypeRecord *node, ShardArena *arena)
{
	static const char *const names[] = {"hash and \"shard_id_extractor\"",
										"the allocation function", "the rebalance function"};
	const char *a = text_of(cluster->hashing);
	const char *b = text_of(node->hashing);

	for (int i = 0; i < (int) lengthof(names); i++)
	{
		const char *text = differ_in_text(names[i], find_line(a, i), find_line(b, i), arena);

		if (text)
			return text;
	}
	return NULL;
}

static const char *
kind_name(int32 kind)
{
	return shard_allocation_is_known(kind) ? shard_allocation_kind_names[kind] : "unknown";
}

/* The settings of a type, kind 0 for its strategy's defaults. */
static ShardAllocationSettings
allocation_of(const ShardTypeRecord *type)
{
	return type->allocation.kind != 0
			   ? type->allocation
			   : shard_allocation_defaults((ShardAllocationKind) type->strategy);
}

static void
put_setting(char *text, const ShardAllocationSettings *settings,
			const ShardAllocationSetting *setting)
{
	const char *at = (const char *) settings + setting->offset;
	int32 integer;
	double fraction;

	switch (setting->type)
	{
		case SHARD_ALLOCATION_INTEGER:
			memcpy(&integer, at, sizeof(integer));
			snprintf(text, SHARD_DIFFERENCE_TEXT, "%d", integer);
			break;
		case SHARD_ALLOCATION_FRACTION:
			memcpy(&fraction, at, sizeof(fraction));
			snprintf(text, SHARD_DIFFERENCE_TEXT, "%g", fraction);
			break;
		case SHARD_ALLOCATION_SWITCH:
			snprintf(text, SHARD_DIFFERENCE_TEXT, "%s", *at ? "true" : "false");
			break;
	}
}

static const char *
differ_in_allocation(const ShardTypeRecord *cluster, const ShardTypeRecord *node, ShardArena *arena)
{
	ShardAllocationSettings a = allocation_of(cluster);
	ShardAllocationSettings b = allocation_of(node);

	if (cluster->strategy != node->strategy)
		return differ_in_text("\"allocation_strategy\"", kind_name(cluster->strategy),
							  kind_name(node->strategy), arena);
	for (int i = 0; i < shard_allocation_n_settings; i++)
	{
		const ShardAllocationSetting *setting = &shard_allocation_setting_list[i];
		char what[SHARD_DIFFERENCE_TEXT];
		Values values;

		put_setting(values.cluster, &a, setting);
		put_setting(values.node, &b, setting);
		snprintf(what, sizeof(what), "\"%s\" of \"allocation_settings\"", setting->name);
		if (strcmp(values.cluster, values.node) != 0)
			return say(what, &values, arena);
	}
	return NULL;
}

static const char *
too_few_name(const ShardTypeRecord *type)
{
	return type->on_too_few == SHARD_TOO_FEW_STOP ? "stop" : "run";
}

/* Of the settings that the hash covers, the first that differs. */
static const char *
differ_in_settings(const ShardTypeRecord *cluster, const ShardTypeRecord *node, ShardArena *arena)
{
	const char *text = differ_in_number("\"number_of_shards\"", cluster->number_of_shards,
										node->number_of_shards, arena);

	if (!text)
		text = differ_in_hashing(cluster, node, arena);
	if (!text)
		text = differ_in_text("\"role\"", text_of(cluster->role), text_of(node->role), arena);
	if (!text)
		text = differ_in_allocation(cluster, node, arena);
	if (!text)
		text = differ_in_number("\"handoff_timeout\" in ms", cluster->handoff_timeout_ms,
								node->handoff_timeout_ms, arena);
	if (!text)
		text = differ_in_text("\"worker\"", cluster->own_worker ? "own" : "shared",
							  node->own_worker ? "own" : "shared", arena);
	if (!text)
		text = differ_in_number("\"replicas\"", cluster->replicas, node->replicas, arena);
	if (!text)
		text = differ_in_number("\"min_insync\"", cluster->min_insync, node->min_insync, arena);
	if (!text)
		text = differ_in_text("\"on_too_few\"", too_few_name(cluster), too_few_name(node), arena);
	return text ? text : "they were written by another version of the extension";
}

bool
shard_difference_of_owners(const ShardTypeRecord *cluster, const ShardTypeRecord *node)
{
#ifdef SHARD_MUTANT_OWNER_FORGOTTEN
	return false;
#endif
	return strcmp(text_of(cluster->owner), text_of(node->owner)) != 0;
}

const char *
shard_difference_of_types(const ShardTypeRecord *cluster, const ShardTypeRecord *node, bool state,
						  ShardArena *arena)
{
	Values values;

	if (shard_difference_of_owners(cluster, node))
		return differ_in_text("its owner", text_of(cluster->owner), text_of(node->owner), arena);
	if (cluster->settings_hash != node->settings_hash)
		return differ_in_settings(cluster, node, arena);
	if (cluster->leased != node->leased)
		return cluster->leased ? "it is leased in the cluster" : "it is leased on the node";
	/* The first line of a state is its type, then its attributes. */
	if (state && text_of(cluster->state)[0] != '\0' && text_of(node->state)[0] != '\0' &&
		differ_in_line(cluster->state, node->state, &values))
		return say("in the type of the state, an attribute", &values, arena);
	return NULL;
}
