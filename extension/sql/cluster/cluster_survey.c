/*
 * sql/cluster/cluster_survey.c
 *		A question to all members at the same time.
 */
#include "postgres.h"

#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/memutils.h"
#include "utils/tuplestore.h"

#include "sql/cluster/cluster_survey.h"
#include "sql/cluster/cluster_view.h"
#include "core/member/membership.h"
#include "shared/board.h"
#include "sql/cluster/question.h"
#include "sql/cluster/internal.h"

#include "base/compat.h"

/* Columns of what is made of answers. */
#define MOST_COLUMNS 14

/*
 * What this node answers itself.
 */
static void
answer_here(ShardPeerQuestion *question, ShardInternalQuestion kind)
{
	StringInfoData out;

	initStringInfo(&out);
	shard_internal_put_answer(&out, kind);
	question->answered = true;
	question->answer = out.data;
	question->answer_length = out.len;
}

/*
 * Has this node left its cluster, or was it written off? Then the members that it knew are not its cluster any more, and
 * would refuse its calls.
 */
static bool
is_gone(int32 self)
{
	const ShardDirectoryMember *member = shard_directory_find(self);

	return member != NULL && (member->record.status == SHARD_MEMBER_REMOVED ||
							  member->record.status == SHARD_MEMBER_WRITTEN_OFF);
}

ShardSurvey
shard_cluster_survey(ShardInternalQuestion kind, int timeout_ms)
{
	ShardSurvey all = {0};
	const ShardDirectoryMember *members;
	ShardBoardView view;
	int count;
	bool gone;

	shard_board_get(shard_shmem_database(), &view);
	members = shard_cluster_view_directory(&count);
	gone = is_gone(view.node);
	all.node = palloc(Max(count, 1) * sizeof(int32));
	all.question = palloc0(Max(count, 1) * sizeof(ShardPeerQuestion));
	for (int i = 0; i < count; i++)
	{
		ShardPeerQuestion *question = &all.question[all.count];
		StringInfoData call;

		if (gone ? members[i].node != view.node
				 : !shard_membership_is_member(members[i].record.status))
			continue;
		all.node[all.count++] = members[i].node;
		if (members[i].node == view.node)
		{
			answer_here(question, kind);
			continue;
		}
		initStringInfo(&call);
		shard_question_put_header(&call, members[i].node);
		shard_wire_put_int(&call, kind);
		question->dsn = pstrdup(members[i].record.dsn);
		question->bytes = call.data;
		question->length = call.len;
	}
	shard_peer_client_ask(all.question, all.count, "stats", timeout_ms);
	return all;
}

ShardSurvey
shard_cluster_survey_here(ShardInternalQuestion kind)
{
	ShardSurvey here = {.count = 1};

	here.node = palloc0(sizeof(int32));
	here.question = palloc0(sizeof(ShardPeerQuestion));
	answer_here(here.question, kind);
	return here;
}

const char *
shard_cluster_survey_put(ReturnSetInfo *result, const ShardSurvey *all, int i, int most,
						 ShardSurveyRow *read_row)
{
	const ShardPeerQuestion *question = &all->question[i];
	ShardReader reader = {question->answer, question->answer + question->answer_length, false};
	MemoryContext memory;
	MemoryContext old;
	int rows = 0;

	if (!question->answered || question->answer == NULL)
		return question->error != NULL ? question->error : "no answer";
	memory =
		AllocSetContextCreate(CurrentMemoryContext, "shard row of an answer", ALLOCSET_SMALL_SIZES);
	old = MemoryContextSwitchTo(memory);
	while (reader.at < reader.end && rows < most)
	{
		Datum values[MOST_COLUMNS] = {0};
		bool nulls[MOST_COLUMNS] = {false};

		CHECK_FOR_INTERRUPTS();
		MemoryContextReset(memory);
		read_row(&reader, all->node[i], values, nulls);
		if (reader.failed)
			break;
		tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
		rows++;
	}
	MemoryContextSwitchTo(old);
	MemoryContextDelete(memory);
	if (reader.failed)
		return "malformed answer";
	return reader.at < reader.end ? psprintf("the answer has more than %d rows", most) : NULL;
}

Datum
shard_cluster_survey_text(ShardReader *reader)
{
	size_t length;
	const char *bytes = shard_wire_get_bytes(reader, &length);

	if (!reader->failed && !pg_verify_mbstr(GetDatabaseEncoding(), bytes, (int) length, true))
		reader->failed = true;
	return PointerGetDatum(cstring_to_text_with_len(bytes, reader->failed ? 0 : (int) length));
}
