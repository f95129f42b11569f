/*
 * sql/view/receive_view.c
 *		Streams from other nodes, for views.
 */
#include "postgres.h"

#include "funcapi.h"
#include "miscadmin.h"
#include "utils/builtins.h"

#include "link/stream_position_table.h"

#include "base/compat.h"

PG_FUNCTION_INFO_V1(shard_receive_streams);

#define STREAM_COLUMNS 7

/*
 * shard.streams_in() returns setof record
 *
 * Streams from other nodes to this database.
 */
Datum
shard_receive_streams(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *result = (ReturnSetInfo *) fcinfo->resultinfo;
	ShardPeerPosition *list;
	int count;

	shard_shmem_require();
	InitMaterializedSRF(fcinfo, 0);
	list = shard_stream_position_list(MyDatabaseId, &count);
	for (int i = 0; i < count; i++)
	{
		const ShardPeerPosition *position = &list[i];
		const char *quarantine = shard_stream_position_quarantine(position->quarantine);
		bool nulls[STREAM_COLUMNS] = {false};
		Datum values[STREAM_COLUMNS] = {Int32GetDatum(position->key.origin),
										Int32GetDatum(position->key.lane),
										Int32GetDatum(position->key.channel),
										Int32GetDatum(position->stream.inc),
										Int32GetDatum(position->stream.gen),
										Int64GetDatum(position->stream.seq),
										quarantine == NULL ? (Datum) 0
														   : CStringGetTextDatum(quarantine)};

		nulls[STREAM_COLUMNS - 1] = quarantine == NULL;
		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
	}
	return (Datum) 0;
}
