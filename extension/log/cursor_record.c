/*
 * log/cursor_record.c
 *		Binary form of a worker's position.
 *
 * A version byte, then typed, length-prefixed sections in network byte order:
 * Q = groups of lanes, P = senders in progress. R, G and S are reserved (N3).
 */
#include "postgres.h"

#include "libpq/pqformat.h"

#include "log/cursor_record.h"

#define RECORD_VERSION 1
#define GROUP_BYTES (8 + 8 + 8)
#define SENDER_BYTES (8 + 8 + 8)

static void
write_section(StringInfo out, char section, int bytes)
{
	pq_sendbyte(out, section);
	pq_sendint32(out, bytes);
}

void
shard_cursor_record_write(StringInfo out, const ShardRecord *record)
{
	pq_sendbyte(out, RECORD_VERSION);
	write_section(out, 'Q', record->groups * GROUP_BYTES);
	for (int i = 0; i < record->groups; i++)
	{
		pq_sendint64(out, record->group[i].lanes);
		pq_sendint64(out, record->group[i].q);
		pq_sendint64(out, record->group[i].turn);
	}
	if (record->senders == 0)
		return;
	write_section(out, 'P', record->senders * SENDER_BYTES);
	for (int i = 0; i < record->senders; i++)
	{
		pq_sendint64(out, record->sender[i].xid);
		pq_sendint64(out, record->sender[i].lanes);
		pq_sendint64(out, record->sender[i].first);
	}
}

static void
damaged(void)
{
	ereport(ERROR,
			(errcode(ERRCODE_DATA_CORRUPTED), errmsg("a cursor row of the inbox is damaged"),
			 errhint("Restore the database from a backup, or ask for help with the output of "
					 "pg_amcheck.")));
}

static void
read_groups(ShardRecord *record, StringInfo in, int bytes)
{
	record->groups = bytes / GROUP_BYTES;
	if (bytes % GROUP_BYTES != 0 || record->groups > SHARD_LANES)
		damaged();
	for (int i = 0; i < record->groups; i++)
	{
		record->group[i].lanes = pq_getmsgint64(in);
		record->group[i].q = pq_getmsgint64(in);
		record->group[i].turn = pq_getmsgint64(in);
	}
}

static void
read_senders(ShardRecord *record, StringInfo in, int bytes)
{
	record->senders = bytes / SENDER_BYTES;
	if (bytes % SENDER_BYTES != 0)
		damaged();
	record->sender = palloc(Max(record->senders, 1) * sizeof(ShardRecordSender));
	for (int i = 0; i < record->senders; i++)
	{
		record->sender[i].xid = pq_getmsgint64(in);
		record->sender[i].lanes = pq_getmsgint64(in);
		record->sender[i].first = pq_getmsgint64(in);
	}
}

void
shard_cursor_record_read(ShardRecord *record, const char *data, int len)
{
	StringInfoData in = {.data = unconstify(char *, data), .len = len, .maxlen = len};

	memset(record, 0, sizeof(*record));
	if (len < 1 || pq_getmsgbyte(&in) != RECORD_VERSION)
		damaged();
	while (in.cursor < in.len)
	{
		int section = pq_getmsgbyte(&in);
		int bytes = pq_getmsgint(&in, 4);

		if (bytes < 0 || bytes > in.len - in.cursor)
			damaged();
		if (section == 'Q')
			read_groups(record, &in, bytes);
		else if (section == 'P')
			read_senders(record, &in, bytes);
		else
			ereport(ERROR,
					(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
					 errmsg("a cursor row of the inbox has the unknown section \"%c\"", section),
					 errdetail("The row was written by a newer version of extension shard."),
					 errhint("Install that version again.")));
	}
}
