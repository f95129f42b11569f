/*
 * control/control_messages.c
 *		Calls of peers to the control worker: lists of messages, each of which is a step of the machine.
 *
 * What the machine answers over the same link is the reply. One call has up to a thousand messages, and a caller with
 * the role of the links may send messages that take long to judge, over many connections. So calls are served by turns,
 * each for a moment, and no longer than a slice of time in one round: the rest waits for the next one, while ticks go
 * on, and what other peers and operators say is heard in between. The messages of one call stay in their order.
 */
#include "postgres.h"

#include "utils/memutils.h"

#include "control/control_private.h"
#include "core/map/control.h"

#include "base/compat.h"

/* How long messages are served in one round: well below a tick, and ticks below heartbeats. */
#define SLICE (40 * SHARD_MS)

/* How long the messages of one call are served before it is another one's turn. */
#define TURN (2 * SHARD_MS)

/* Calls of more bytes than that are refused, while those that wait have as many as one call can have. */
#define LARGE (64 * 1024)

/* A call that is being served, in a context of its own. */
typedef struct Call
{
	MemoryContext context;
	ShardRequest request; /* its payload belongs to the context */
	ShardReader reader;
	ControlAnswers answers;
} Call;

static List *calls = NIL; /* Call *, the next to be served first; in TopMemoryContext */
static Size bytes_waiting = 0;

static void
forget(Call *call)
{
	bytes_waiting -= call->request.payload_len;
	MemoryContextDelete(call->context);
}

void
shard_control_control_take(ShardRequest *request)
{
	MemoryContext context;
	MemoryContext old;
	Call *call;

	if (request->payload_len > LARGE &&
		bytes_waiting + request->payload_len > SHARD_CONTROL_MAX_BYTES)
	{
		shard_control_reply_error(request, ERRCODE_CONFIGURATION_LIMIT_EXCEEDED,
								  psprintf("node %d has too many calls of other nodes to answer",
										   shard_control.row.node),
								  NULL, "The node that calls does so again by itself.");
		return;
	}
	context = AllocSetContextCreate(TopMemoryContext, "shard call of a peer", ALLOCSET_SMALL_SIZES);
	old = MemoryContextSwitchTo(context);
	call = palloc0(sizeof(Call));
	call->context = context;
	call->request = *request;
	if (request->payload != NULL)
	{
		call->request.payload = MemoryContextAllocHuge(context, Max(request->payload_len, 1));
		memcpy(call->request.payload, request->payload, request->payload_len);
		/* large ones are not to be there twice for the rest of the round */
		pfree(request->payload);
		request->payload = NULL;
	}
	call->reader = (ShardReader){call->request.payload,
								 call->request.payload + call->request.payload_len, false};
	initStringInfo(&call->answers.bytes);
	bytes_waiting += call->request.payload_len;
	MemoryContextSwitchTo(TopMemoryContext);
	calls = lappend(calls, call);
	MemoryContextSwitchTo(old);
}

/*
 * The next message of a call. False: there is none.
 */
static bool
serve_next(Call *call)
{
	ControlState *state = &shard_control;
	size_t length;
	const char *bytes;

	if (call->reader.at >= call->reader.end)
		return false;
	bytes = shard_wire_get_bytes(&call->reader, &length);
	if (call->reader.failed)
		return false;
	state->answers = &call->answers;
	shard_control_link_heard(0, bytes, (int) length);
	shard_control_receive(0, bytes, (int) length);
	state->answers = NULL;
	return true;
}

/*
 * A call has its turn. False: it has come to its end.
 */
static bool
serve(Call *call)
{
	int64 end = shard_clock_now() + TURN;

	do
	{
		/* A call whose caller has gone gets none of the time of those that wait: for its caller, its messages were lost. */
		if (!shard_ring_alive(&call->request) || !serve_next(call))
			return false;
	} while (shard_clock_now() < end);
	return true;
}

bool
shard_control_control_run(void)
{
	int64 end = shard_clock_now() + SLICE;
	bool any = calls != NIL;

	while (calls != NIL)
	{
		Call *call = linitial(calls);
		MemoryContext old;

		calls = list_delete_first(calls);
		if (serve(call))
		{
			old = MemoryContextSwitchTo(TopMemoryContext);
			calls = lappend(calls, call);
			MemoryContextSwitchTo(old);
		}
		else
		{
			shard_ring_reply(&call->request, call->answers.bytes.data, call->answers.bytes.len,
							 InvalidXLogRecPtr);
			forget(call);
		}
		if (shard_clock_now() >= end)
			break;
	}
	return any;
}
