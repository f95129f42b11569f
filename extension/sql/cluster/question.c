/*
 * sql/cluster/question.c
 *		What one node asks another one for a view.
 */
#include "postgres.h"

#include "core/flow/packet.h"
#include "shared/board.h"
#include "sql/cluster/question.h"

#include "base/compat.h"

void
shard_question_put_header(StringInfo out, int32 to)
{
	ShardCallHeader header;
	ShardBoardView view;

	shard_board_get(shard_shmem_database(), &view);
	header = shard_board_header(&view, to, 0);
	shard_packet_put_header(out, &header);
}
