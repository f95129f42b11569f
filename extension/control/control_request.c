/*
 * control/control_request.c
 *		Requests of the ring to the control worker: commands, questions.
 *
 * Calls of peers: control_messages.c. A command waits, in a list, until the machine says what became of it, or the
 * waiting backend has given up.
 */
#include "postgres.h"

#include "executor/spi.h"
#include "utils/memutils.h"

#include "control/control_private.h"
#include "core/member/membership.h"
#include "core/map/type_number.h"
#include "base/fault.h"
#include "registry/senders.h"
#include "process/worker.h"

#include "base/compat.h"

/* No coordinator was reached in this time: a backend that wants a type's number is told so. */
#define TYPE_PATIENCE (4 * SHARD_SECOND)

/* How long a join waits for senders to end. */
#define JOIN_PATIENCE (3 * SHARD_SECOND)
#define JOIN_NAP_MS 20

/* A downed incarnation's workers have seen by then that it is no more. */
#define REVIVE_AFTER (1 * SHARD_SECOND)

/* ---- members ---------------------------------------------------------------------------------- */

/*
 * Does a node vote, or will it?
 */
static bool
votes(int32 node)
{
	const ShardMapEntry *entry = shard_map_value(shard_node_learned(shard_control.node),
												 (ShardMapKey){SHARD_MAP_VOTERS, 0, 0});
	ShardVotersRecord voters;
	bool found = false;

	if (!entry || !shard_record_get_voters(entry, &voters))
		return false;
	for (int i = 0; i < voters.n_current; i++)
		found |= voters.current[i] == node;
	for (int i = 0; i < voters.n_next; i++)
		found |= voters.next[i] == node;
	return found;
}

static void
serve_members(const ShardRequest *request)
{
	const ShardNode *node = shard_control.node;
	ShardArena *arena = shard_arena_create();
	int64 now = shard_clock_now();
	StringInfoData out;
	int count;
	ShardMapEntry *members =
		shard_map_list(shard_node_learned(node), SHARD_MAP_MEMBER, arena, &count);

	initStringInfo(&out);
	for (int i = 0; i < count; i++)
	{
		ShardMemberReport report = {.node = members[i].key.a};

		report.reachable = shard_node_reachable(node, report.node, now);
		report.voter = votes(report.node);
		report.coordinator = shard_node_coordinator(node, now) == report.node;
		report.claimed = shard_node_is_claimed(node, report.node, now);
		shard_control_link_report(report.node, now, &report);
		if (report.node == shard_node_id(node))
			report.heard_us = 0;
		shard_control_put_report(&out, &report);
	}
	shard_arena_destroy(arena);
	shard_ring_reply(request, out.data, out.len, InvalidXLogRecPtr);
}

/* ---- commands --------------------------------------------------------------------------------- */

static ControlCommand *
remember(const ShardRequest *request)
{
	MemoryContext old = MemoryContextSwitchTo(TopMemoryContext);
	ControlCommand *command = palloc0(sizeof(ControlCommand));

	command->token = ++shard_control.last_token;
	command->since = shard_clock_now();
	command->request = *request;
	command->request.payload = NULL;
	shard_control.commands = lappend(shard_control.commands, command);
	MemoryContextSwitchTo(old);
	return command;
}

static void
forget(ControlCommand *command)
{
	shard_control.commands = list_delete_ptr(shard_control.commands, command);
	if (command->type.value != NULL)
		pfree(unconstify(char *, command->type.value));
	pfree(command);
}

/* Of the join that is under way; 0: it was begun before this worker started. */
static int64 join_token = 0;

/* The address before that join, NULL: none is under way, or it was begun before this worker started. */
static char *former_dsn = NULL;
static bool has_former_dsn = false; /* the row has it, the machine does not yet */

/*
 * The address that this node says it has, durably. If the process dies before a join is refused, the next
 * one knows that of the join only.
 */
static void
write_address(const char *dsn)
{
	ShardIdentity row = shard_control.row;

	row.dsn = MemoryContextStrdup(TopMemoryContext, dsn);
	shard_control_begin();
	shard_identity_write(&row);
	shard_control_commit();
	shard_control.row = row;
}

/*
 * A join has ended: if it was refused, this node has the address again that it had.
 */
static void
end_join(bool good)
{
	if (former_dsn == NULL)
		return;
	if (!good)
	{
		write_address(former_dsn);
		has_former_dsn = true;
	}
	pfree(former_dsn);
	former_dsn = NULL;
}

/*
 * What is replied to a command that was carried out.
 */
static void
reply_done(const ControlCommand *command, const ShardAction *done)
{
	StringInfoData out;

	if (command->kind == SHARD_COMMAND_PLAN)
	{
		initStringInfo(&out);
		shard_control_put_plan(&out, done->result != 0, done->entry, done->n_entries);
		shard_ring_reply(&command->request, out.data, out.len, InvalidXLogRecPtr);
	}
	else if (command->kind == SHARD_COMMAND_JOIN)
		shard_control_reply_number(&command->request, shard_node_id(shard_control.node));
	else
		shard_control_reply_number(&command->request, done->result);
}

/*
 * What became of a command (SHARD_ACTION_COMMAND_DONE); of a join, for all that wait for it.
 */
void
shard_control_command_done(const ShardAction *done)
{
	List *all = list_copy(shard_control.commands);
	ListCell *cell;

	if (done->token == join_token)
		end_join(done->flag);
	if (done->token == join_token && done->flag)
		shard_fault("join_welcomed");
	foreach (cell, all)
	{
		ControlCommand *command = lfirst(cell);

		if (command->token != done->token)
			continue;
		if (done->flag)
			reply_done(command, done);
		else if (done->unknown != 0)
			shard_control_reply_unknown(&command->request,
										done->text ? done->text : "the reason is not known");
		else
			shard_control_reply_refused(&command->request, done->text ? done->text : "refused");
		forget(command);
	}
	list_free(all);
}

/*
 * A type that is wanted here: as a proxy until its row is committed, for shard_start may be rolled back.
 */
static void
begin_type(const ShardRequest *request, const ShardCommand *command)
{
	ControlCommand *waiting = remember(request);
	ShardArena *arena = shard_arena_create();

	waiting->kind = command->kind;
	waiting->type = shard_record_put_type(0, command->type, 0, arena);
	waiting->type.value = memcpy(MemoryContextAlloc(TopMemoryContext, waiting->type.length),
								 waiting->type.value, waiting->type.length);
	waiting->first = !command->again;
	shard_arena_destroy(arena);
	shard_control_types_wish(command->type, waiting->first);
}

const char *
shard_control_awaited(void)
{
	ListCell *cell;

	foreach (cell, shard_control.commands)
	{
		const ControlCommand *command = lfirst(cell);
		ShardArena *arena;
		ShardTypeRecord type;
		const char *name = NULL;

		if (command->type.value == NULL || !command->first || !shard_ring_alive(&command->request))
			continue;
		arena = shard_arena_create();
		if (shard_record_get_type(&command->type, &type, arena))
			name = pstrdup(type.name);
		shard_arena_destroy(arena);
		return name;
	}
	return NULL;
}

/*
 * Looks whether the database is empty, and closes it to senders; what is in it otherwise. False: they are
 * at work.
 */
static bool
close_for_join(const char *own_dsn, const char **data)
{
	if (!shard_control_begin_alone())
		return false;
	SPI_connect();
	*data = shard_control_data();
	SPI_finish();
	if (*data == NULL)
	{
		ShardIdentity row = shard_control.row;

		row.dsn = own_dsn;
		shard_identity_write(&row);
		shard_board_close(shard_control.db, SHARD_BOARD_JOINING);
	}
	shard_control_commit();
	return true;
}

/*
 * Why this node cannot join, whatever is in its database; NULL: it may. The machine would say so, too, but
 * only after senders were waited for, and the own address was changed.
 */
static const char *
why_no_join(void)
{
	if (shard_node_fenced(shard_control.node))
		return "this node is fenced";
	if (!shard_control_was_always_alone())
		return "the node's own cluster has other members";
	return NULL;
}

/*
 * What is in the database now, while others may send; NULL: nothing that keeps it from joining. Looked at again when
 * it is closed.
 */
static const char *
data_now(void)
{
	const char *data;

	shard_control_begin();
	SPI_connect();
	data = shard_control_data();
	SPI_finish();
	shard_control_commit();
	return data;
}

/* Whether this node could join, before another node is called. */
static void
look_before_join(const ShardRequest *request)
{
	const char *why = why_no_join();

	if (why == NULL)
		why = data_now();
	if (why == NULL)
		shard_control_reply_number(request, 0);
	else
		shard_control_reply_error(request, ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE, why, NULL,
								  shard_control_hint(why));
}

/*
 * The cluster judges by the types whether the node fits: the machine has to know them first. False: another session has
 * their table locked for longer than a join waits; senders wait meanwhile.
 */
static bool
tell_types(void)
{
	int64 give_up = shard_clock_now() + JOIN_PATIENCE;
	uint32 changes;

	shard_fault("join_closed");
	for (;;)
	{
		(void) shard_control_types_run();
		if (shard_control.journal || shard_control_types_told(&changes))
			return true;
		if (shard_clock_now() >= give_up)
			return false;
		(void) shard_worker_wait(JOIN_NAP_MS, PG_WAIT_EXTENSION);
	}
}

/* Refuses a join that senders, or sessions that start a type, keep from closing the node: with their names, if named is. */
static void
reply_senders(const ShardRequest *request, bool named)
{
	MemoryContext context = CurrentMemoryContext;
	const char *open =
		"Transactions that have sent messages, or that started entity types, are still open";
	const char *senders;

	if (!named)
		open = psprintf("%s; members of pg_read_all_stats see whose transactions they are.", open);
	else
	{
		shard_control_begin();
		senders = shard_senders_list(true);
		open = senders[0] != '\0' ? MemoryContextStrdup(context, psprintf("%s: %s.", open, senders))
								  : MemoryContextStrdup(context, psprintf("%s.", open));
		shard_control_commit();
	}
	shard_control_reply_error(
		request, ERRCODE_OBJECT_IN_USE, "cannot join while messages are being sent", open,
		"Let these transactions end, or end them with pg_terminate_backend(), and join again.");
}

/* Joins: the machine starts again with the own address, and then asks the seed. */
static void
begin_join(const ShardRequest *request, const ShardCommand *command)
{
	int64 give_up = shard_clock_now() + JOIN_PATIENCE;
	ShardCommand machine = {.kind = command->kind, .text = command->text};
	const char *why = why_no_join();
	ControlCommand *waiting;
	const char *data = NULL;

	/* The caller before was cancelled, or this worker was started again: the end is the same for all. */
	if (shard_node_joining(shard_control.node))
	{
		waiting = remember(request);
		waiting->kind = command->kind;
		waiting->token = join_token;
		return;
	}
	if (why != NULL)
	{
		shard_control_reply_error(request, ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE, why, NULL,
								  shard_control_hint(why));
		return;
	}
	while (!close_for_join(command->own_dsn, &data))
	{
		if (shard_clock_now() >= give_up)
		{
			reply_senders(request, command->named);
			return;
		}
		(void) shard_worker_wait(JOIN_NAP_MS, PG_WAIT_EXTENSION);
	}
	if (data != NULL)
	{
		shard_control_reply_error(request, ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE, data, NULL,
								  shard_control_hint(data));
		return;
	}
	former_dsn = MemoryContextStrdup(TopMemoryContext, shard_control.row.dsn);
	has_former_dsn = false;
	shard_control_restart(false);
	if (!tell_types())
	{
		end_join(false);
		shard_control_reply_error(
			request, ERRCODE_LOCK_NOT_AVAILABLE, "cannot join while table shard.type is locked",
			"The cluster judges by the entity types of this node whether the node fits, and they "
			"could not be read.",
			"End the transaction that has locked the table, or that waits to lock it, see "
			"pg_locks; then join again.");
		return;
	}
	waiting = remember(request);
	waiting->kind = command->kind;
	machine.asker.token = join_token = waiting->token;
	machine.uuid = shard_control_random_uuid();
	shard_control_give(&machine);
}

/*
 * A command that only the machine knows how to carry out, this node's or the coordinator's.
 */
static void
begin(const ShardRequest *request, const ShardCommand *command)
{
	ControlCommand *waiting = remember(request);
	ShardCommand given = *command;

	waiting->kind = command->kind;
	given.asker = (ShardAsker){0, waiting->token};
	shard_control_give(&given);
}

/*
 * An operator says that this start, which was downed, may go on: as a new one. Its region workers have to hear
 * that the old one is no more before that (I9). If the process dies right here, it has to be said again.
 */
static void
go_on(const ShardRequest *request)
{
	shard_control.revive_at = Max(shard_clock_now(), shard_control.downed_at + REVIVE_AFTER);
	shard_control_reply_number(request, 0);
}

static void
serve_command(const ShardRequest *request)
{
	ShardReader reader = {request->payload, request->payload + request->payload_len, false};
	ShardCommand command;

	if (!shard_control_get_command(&reader, &command))
	{
		shard_control_reply_error(request, ERRCODE_INTERNAL_ERROR, "a command could not be read",
								  NULL, NULL);
		return;
	}
	switch (command.kind)
	{
		case SHARD_COMMAND_TYPE:
			begin_type(request, &command);
			return;
		case SHARD_COMMAND_JOIN:
			if (!command.look_only)
				begin_join(request, &command);
			else if (!shard_node_joining(shard_control.node))
				look_before_join(request);
			else
				shard_control_reply_number(request, 0);
			return;
		case SHARD_COMMAND_ADMIT:
			if (shard_control.downed_at != 0 && command.node == shard_node_id(shard_control.node))
				go_on(request);
			else
				begin(request, &command);
			return;
		case SHARD_COMMAND_LEAVE:
		case SHARD_COMMAND_STAY:
		case SHARD_COMMAND_DOWN:
		case SHARD_COMMAND_WRITE_OFF:
		case SHARD_COMMAND_MOVE:
		case SHARD_COMMAND_PIN:
		case SHARD_COMMAND_EVACUATE:
		case SHARD_COMMAND_GIVE_UP:
		case SHARD_COMMAND_REBALANCE:
		case SHARD_COMMAND_LEASE_TTL:
		case SHARD_COMMAND_FORCE_VOTERS:
		case SHARD_COMMAND_ADDRESS:
		case SHARD_COMMAND_OWNER:
		case SHARD_COMMAND_PLAN:
			begin(request, &command);
			return;
	}
	shard_control_reply_error(request, ERRCODE_INTERNAL_ERROR, "an unknown command", NULL, NULL);
}

/*
 * What became of a wish for a type. True: it was answered.
 */
static bool
look_at_type(const ControlCommand *command)
{
	ShardArena *arena = shard_arena_create();
	ControlTypeAnswer answer = {0};
	ShardTypeRecord wanted = {.name = ""};
	int32 type_id = 0;
	ShardTypeRefusal lacks;
	bool answered = true;

	if (shard_record_get_type(&command->type, &wanted, arena))
		type_id = shard_control_types_compare(&wanted, &answer.difference, &answer.owner,
											  &answer.dropping);
	lacks = shard_node_type_lacks(shard_control.node, wanted.name);
	/* The coordinator says what a name without a type stands for, and which states are taken. */
	if (type_id != 0 && !answer.dropping &&
		!shard_node_asks_for_type(shard_control.node, wanted.name))
	{
		if (answer.difference == NULL)
			shard_control_reply_number(&command->request, type_id);
		else
			shard_control_reply_differs(&command->request, wanted.name, &answer);
	}
	else if (type_id == 0 && lacks)
		shard_control_reply_lacks(&command->request, wanted.name, lacks);
	else if (shard_clock_now() - command->since > TYPE_PATIENCE)
		shard_control_reply_late(&command->request, wanted.name, &answer);
	else
		answered = false;
	shard_arena_destroy(arena);
	return answered;
}

/* Commands whose end the machine does not tell, or whose backend does not wait any more. */
void
shard_control_commands_look(void)
{
	List *all = list_copy(shard_control.commands);
	ListCell *cell;

	if (has_former_dsn)
	{
		has_former_dsn = false;
		shard_control_restart(false);
	}
	foreach (cell, all)
	{
		ControlCommand *command = lfirst(cell);

		if (!shard_ring_alive(&command->request) ||
			(command->type.value != NULL && look_at_type(command)))
			forget(command);
	}
	list_free(all);
}

/*
 * Takes what is in the ring. True: there was something.
 */
bool
shard_control_requests(void)
{
	List *requests =
		shard_ring_take(shard_control.db, SHARD_CONTROL_WORKER, shard_control.step_context);
	ListCell *cell;

	foreach (cell, requests)
	{
		ShardRequest *request = lfirst(cell);

		switch (request->kind)
		{
			case SHARD_REQUEST_CONTROL:
				shard_control_control_take(request);
				break;
			case SHARD_REQUEST_COMMAND:
				serve_command(request);
				break;
			case SHARD_REQUEST_MEMBERS:
				serve_members(request);
				break;
			default:
				shard_control_reply_error(request, ERRCODE_INTERNAL_ERROR,
										  "not a request for this worker", NULL, NULL);
				break;
		}
	}
	return requests != NIL;
}
