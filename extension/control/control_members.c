/*
 * control/control_members.c
 *		What changes among the members, for the log of every node.
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "core/member/membership.h"
#include "utils/memutils.h"

#include "control/control_private.h"

#include "base/compat.h"

/* A member as it was seen last. */
typedef struct Seen
{
	int32 node;
	int32 status;
	int32 inc_no;
	uint32 address; /* a hash */
} Seen;

static Seen *seen = NULL;
static int n_seen = 0;
static int space = 0;
static ShardUuid cluster; /* the cluster of these members */
static int32 coordinator = 0;
static ShardUuid coordinated; /* the cluster of this coordinator */

static Seen *
find(int32 node)
{
	for (int i = 0; i < n_seen; i++)
		if (seen[i].node == node)
			return &seen[i];
	return NULL;
}

static Seen *
add(int32 node)
{
	if (n_seen == space)
	{
		space = Max(2 * space, 8);
		seen = seen ? repalloc(seen, space * sizeof(Seen))
					: MemoryContextAlloc(TopMemoryContext, space * sizeof(Seen));
	}
	seen[n_seen] = (Seen){.node = node};
	return &seen[n_seen++];
}

/*
 * One line for each thing that an operator would like to find in the log.
 */
static void
tell(const Seen *before, int32 node, const ShardMemberRecord *record)
{
	switch (record->status)
	{
		case SHARD_MEMBER_JOINING:
			if (before->status == SHARD_MEMBER_JOINING)
				break;
			ereport(LOG, (errmsg("shard: node %d joins, at \"%s\"", node, record->dsn)));
			break;
		case SHARD_MEMBER_UP:
			if (before->status == SHARD_MEMBER_UP)
				ereport(LOG, (errmsg("shard: node %d has started again, as incarnation %d", node,
									 record->inc_no)));
			else
				ereport(LOG, (errmsg("shard: node %d is up, at \"%s\"", node, record->dsn)));
			break;
		case SHARD_MEMBER_REMOVED:
			ereport(LOG, (errmsg("shard: node %d has left", node)));
			break;
		case SHARD_MEMBER_DOWN:
			ereport(LOG,
					(errmsg("shard: node %d is down: its shards wait for it", node),
					 errhint("The node comes back at its next start, or by shard_admit(%d, %d) "
							 "there. If the node is lost for good, call shard_write_off(%d).",
							 node, record->inc_no + 1, node)));
			break;
		case SHARD_MEMBER_WRITTEN_OFF:
			ereport(LOG, (errmsg("shard: node %d is written off: its shards begin empty elsewhere",
								 node)));
			break;
		default:
			ereport(LOG, (errmsg("shard: node %d is %s", node,
								 shard_membership_status_name(record->status))));
			break;
	}
}

/*
 * Compares the members with those of the last time; the first time there is nothing to tell.
 */
static void
follow_members(void)
{
	const ShardNode *node = shard_control.node;
	bool first = seen == NULL || !shard_record_uuid_equal(cluster, shard_node_cluster(node));
	ShardArena *arena = shard_arena_create();
	int count;
	ShardMapEntry *entries =
		shard_map_list(shard_node_learned(node), SHARD_MAP_MEMBER, arena, &count);

	if (first)
		n_seen = 0;
	cluster = shard_node_cluster(node);
	for (int i = 0; i < count; i++)
	{
		ShardMemberRecord record;
		Seen *before = find(entries[i].key.a);
		uint32 address;

		if (!shard_record_get_member(&entries[i], &record, arena))
			continue;
		address = hash_bytes((const unsigned char *) record.dsn, (int) strlen(record.dsn));
		if (before == NULL)
			before = add(entries[i].key.a);
		if (!first && before->status != SHARD_MEMBER_NONE && before->address != address &&
			before->status == record.status)
			ereport(LOG, (errmsg("shard: the address of node %d is \"%s\" now", entries[i].key.a,
								 record.dsn)));
		if (!first && (before->status != record.status || before->inc_no != record.inc_no))
			tell(before, entries[i].key.a, &record);
		before->status = record.status;
		before->inc_no = record.inc_no;
		before->address = address;
	}
	shard_arena_destroy(arena);
}

static void
follow_coordinator(void)
{
	int32 now = shard_control.view.coordinator;
	int32 self = shard_node_id(shard_control.node);

	/* in another cluster the number means another node */
	if (!shard_record_uuid_equal(coordinated, shard_node_cluster(shard_control.node)))
		coordinator = 0;
	coordinated = shard_node_cluster(shard_control.node);
	if (now == coordinator)
		return;
	/* Of itself a node says so when it takes office, or loses it. */
	if (now != 0 && now != self)
		ereport(LOG, (errmsg("shard: node %d is the coordinator", now)));
	else if (now == 0 && coordinator != self)
		ereport(LOG,
				(errmsg("shard: node %d, the coordinator, is not heard any more", coordinator)));
	coordinator = now;
}

void
shard_control_members_follow(bool changed)
{
	if (changed)
		follow_members();
	follow_coordinator();
}
