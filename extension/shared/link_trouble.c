/*
 * shared/link_trouble.c
 *		Data links of this node that fail.
 *
 * Nothing here is durable. If the process that wrote an entry dies right here: its successor forgets it, and
 * until then it ages.
 */
#include "postgres.h"

#include "mb/pg_wchar.h"
#include "utils/timestamp.h"

#include "shared/link_trouble.h"

#include "base/compat.h"

/* A link that is wanted is tried more often; in ms. */
#define OLD_MS 60000

/* The entry of a link, NULL: there is none. Needs the mutex. */
static ShardLinkTrouble *
find(ShardDatabase *db, int worker, int32 node, ShardLinkUse use)
{
	for (int i = 0; i < SHARD_LINK_TROUBLES; i++)
	{
		ShardLinkTrouble *entry = &db->trouble[i];

		if (entry->since != 0 && entry->node == node && entry->worker == worker &&
			entry->use == use)
			return entry;
	}
	return NULL;
}

/* An entry that is free, or that of a link which no worker tries any more. Needs the mutex. */
static ShardLinkTrouble *
find_free(ShardDatabase *db, TimestampTz now)
{
	for (int i = 0; i < SHARD_LINK_TROUBLES; i++)
	{
		ShardLinkTrouble *entry = &db->trouble[i];

		if (entry->since == 0 || now - entry->last > OLD_MS * INT64CONST(1000))
			return entry;
	}
	return NULL;
}

bool
shard_link_trouble_note(ShardDatabase *db, int worker, int32 node, ShardLinkUse use,
						const char *error)
{
	TimestampTz now = GetCurrentTimestamp();
	ShardLinkTrouble new = {.node = node, .worker = worker, .use = use, .since = now, .last = now};
	ShardLinkTrouble *entry;
	bool noted;

	memcpy(new.error, error, pg_mbcliplen(error, strlen(error), sizeof(new.error) - 1));
	SpinLockAcquire(&db->trouble_mutex);
	entry = find(db, worker, node, use);
	if (entry != NULL && now - entry->last <= OLD_MS * INT64CONST(1000))
		new.since = entry->since;
	if (entry == NULL)
		entry = find_free(db, now);
	if (entry != NULL)
		*entry = new;
	noted = entry != NULL;
	SpinLockRelease(&db->trouble_mutex);
	return noted && new.since == now;
}

void
shard_link_trouble_over(ShardDatabase *db, int worker, int32 node, ShardLinkUse use)
{
	ShardLinkTrouble *entry;

	SpinLockAcquire(&db->trouble_mutex);
	entry = find(db, worker, node, use);
	if (entry != NULL)
		entry->since = 0;
	SpinLockRelease(&db->trouble_mutex);
}

void
shard_link_trouble_forget(ShardDatabase *db, int worker)
{
	SpinLockAcquire(&db->trouble_mutex);
	for (int i = 0; i < SHARD_LINK_TROUBLES; i++)
		if (db->trouble[i].worker == worker)
			db->trouble[i].since = 0;
	SpinLockRelease(&db->trouble_mutex);
}

bool
shard_link_trouble_of(ShardDatabase *db, int32 node, ShardLinkUse use, ShardLinkTrouble *trouble)
{
	TimestampTz now = GetCurrentTimestamp();
	bool found = false;

	SpinLockAcquire(&db->trouble_mutex);
	for (int i = 0; i < SHARD_LINK_TROUBLES; i++)
	{
		const ShardLinkTrouble *entry = &db->trouble[i];

		if (entry->since == 0 || entry->node != node || entry->use != use ||
			now - entry->last > OLD_MS * INT64CONST(1000) ||
			(found && trouble->since <= entry->since))
			continue;
		*trouble = *entry;
		found = true;
	}
	SpinLockRelease(&db->trouble_mutex);
	return found;
}
