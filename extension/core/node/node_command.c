/*
 * core/node/node_command.c
 *		Operators' commands, from any node: carried out by the coordinator, which may be another one.
 *
 * A command is carried out at most once (C12). It is sent to the coordinator of one ballot, again until that
 * one answers, under a number that rises; the coordinator carries out a number that is greater than all before
 * of that incarnation, and nothing else. When a command that was answered comes again, the coordinator repeats
 * the answer, also when it has lost its office: the answer was lost. When the coordinator changes while a
 * command is with it, whether it was carried out is not known, and the operator is told so. A command that was
 * not sent yet waits for a coordinator.
 *
 * All of this is volatile: if a process dies, its operators have lost their connections anyway, or hear from
 * the other side that the outcome is unknown.
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "core/node/node_private.h"
#include "core/node/trust_private.h"

/* Commands that wait at the same time; more are refused. */
#define MAX_COMMANDS 1000

/* The text of a command is the name of a role. */
#define MAX_TEXT 1024

/* ---- the coordinator's side ------------------------------------------------------------------- */

/* Change the status of a member. */
static bool
set_status(ShardNode *node, int64 now, const ShardCommand *command, ShardMemberStatus status,
		   const char **why)
{
	bool good =
		shard_roster_set_status(node->roster, now, command->node, status, node->proposer, why);

	if (good)
		shard_homes_note_who(node->homes, command->node, command->text);
	return good;
}

/* Empty a member, or no more. */
static bool
evacuate(ShardNode *node, const ShardCommand *command, const char **why)
{
	bool good =
		shard_roster_evacuate(node->roster, command->node, command->empty, node->proposer, why);

	if (good)
		shard_homes_note_who(node->homes, command->node, command->text);
	return good;
}

/* A member that leaves, the one whose operator says so, is to stay. */
static bool
stay(ShardNode *node, int64 now, const ShardCommand *command, const char **why)
{
	int32 member = command->asker.node != 0 ? command->asker.node : node->id;
	bool good = shard_roster_stay(node->roster, now, member, command->number, node->proposer, why);

	if (good)
		shard_homes_note_who(node->homes, member, command->text);
	return good;
}

/*
 * A member is at another address, by its operator's word or as a caller has reached it; number: 1 if that is
 * news.
 */
static bool
set_address(ShardNode *node, int64 now, const ShardCommand *command, int64 *number,
			const char **why)
{
	ShardAddress address = {.dsn = command->text,
							.ground = (ShardAddressGround) command->ground,
							.lapsed = command->lapsed};
	bool taken;
	bool good =
		shard_roster_set_address(node->roster, now, command->node != 0 ? command->node : node->id,
								 &address, node->proposer, &taken, why);

	*number = taken;
	return good;
}

static ShardHomesResult
result_of(bool good)
{
	return good ? SHARD_HOMES_DONE : SHARD_HOMES_REFUSED;
}

/* Carry out a command; the office is held. */
static ShardHomesResult
carry_out(ShardNode *node, int64 now, const ShardCommand *command, int64 *number, const char **why)
{
	ShardHomes *homes = node->homes;
	ShardRoster *roster = node->roster;
	ShardProposer *proposer = node->proposer;

	switch (command->kind)
	{
		case SHARD_COMMAND_DOWN:
			return result_of(set_status(node, now, command, SHARD_MEMBER_DOWN, why));
		case SHARD_COMMAND_WRITE_OFF:
			return result_of(set_status(node, now, command, SHARD_MEMBER_WRITTEN_OFF, why));
		case SHARD_COMMAND_EVACUATE:
			return result_of(evacuate(node, command, why));
		case SHARD_COMMAND_STAY:
			return result_of(stay(node, now, command, why));
		case SHARD_COMMAND_ADMIT:
			return result_of(shard_roster_admit(roster, now, command->node, proposer, why));
		case SHARD_COMMAND_ADDRESS:
			return result_of(set_address(node, now, command, number, why));
		case SHARD_COMMAND_LEASE_TTL:
			return result_of(shard_roster_change_ttl(roster, command->ttl_ms, proposer, why));
		case SHARD_COMMAND_MOVE:
			return shard_homes_move(homes, now, command, roster, node->out, why);
		case SHARD_COMMAND_PIN:
			return result_of(shard_homes_pin(homes, now, command, proposer, node->out, why));
		case SHARD_COMMAND_OWNER:
			return result_of(shard_homes_set_owner(homes, now, command, proposer, node->out, why));
		case SHARD_COMMAND_GIVE_UP:
			return result_of(
				shard_homes_give_up(homes, now, command, proposer, roster, node->out, why));
		case SHARD_COMMAND_REBALANCE:
			return shard_homes_rebalance(homes, now, command, roster, node->out, number, why);
		case SHARD_COMMAND_PLAN: /* answers with a list, at once: plan_moves() */
		case SHARD_COMMAND_TYPE:
		case SHARD_COMMAND_JOIN:
		case SHARD_COMMAND_LEAVE:
		case SHARD_COMMAND_FORCE_VOTERS:
			break;
	}
	*why = "there is no such command";
	return SHARD_HOMES_REFUSED;
}

/* A plan looks at every home, of which a cluster may have millions: all plans together take a tenth of the coordinator's time. */
#define PLAN_PAUSE_PER_HOME 2 /* microseconds; looking at a home takes about 0.2 */

/* Is the command a plan that comes too early after another one? */
static bool
is_too_early(const ShardNode *node, int64 now, const ShardCommand *command)
{
	return command->kind == SHARD_COMMAND_PLAN && now < node->next_plan;
}

/*
 * PLAN: which shards would move, as this coordinator sees it now. The answer is made for each question, and not kept. A
 * question of another node that comes too early is passed over, and comes again; one of this node waits among its commands.
 */
static void
plan_moves(ShardNode *node, int64 now, const ShardCommand *command)
{
	ShardHomesPlan plan;
	const char *why;

	if (is_too_early(node, now, command))
		return;
	if (shard_homes_dry_run(node->homes, now, command, node->roster, node->out, &plan, &why))
	{
		node->next_plan = now + plan.looked_at * PLAN_PAUSE_PER_HOME;
		shard_node_answer_plan(node, command->asker, plan.more, plan.homes, plan.n_homes);
	}
	else
		shard_node_answer(node, command->asker, false, NODE_ANSWER_KNOWN, 0, why);
}

/* Carry out a command and tell its end, if that is known at once; what it changes is to be decided first (G6). */
static void
execute(ShardNode *node, int64 now, const ShardCommand *command)
{
	const char *why = "too many commands wait for their decision";
	int64 number = 0;
	ShardHomesResult result = SHARD_HOMES_REFUSED;

	if (command->kind == SHARD_COMMAND_PLAN)
	{
		plan_moves(node, now, command);
		return;
	}
	if (shard_node_answer_has_room(node))
		result = carry_out(node, now, command, &number, &why);
	if (result == SHARD_HOMES_DONE)
		shard_node_answer_when_decided(node, now, command->asker, number,
									   command->kind == SHARD_COMMAND_ADMIT ? command->node : 0);
	else if (result == SHARD_HOMES_REFUSED)
		shard_node_answer(node, command->asker, false, NODE_ANSWER_KNOWN, 0, why);
}

/* Is the command newer than all that came of that incarnation? */
static bool
is_new(ShardNode *node, const ShardControl *message)
{
	NodeAsked *asked = shard_node_answer_asked(node, message->from);

	if (!asked)
	{
		node->asked = node->asked ? repalloc(node->asked, (node->n_asked + 1) * sizeof(NodeAsked))
								  : palloc(sizeof(NodeAsked));
		asked = &node->asked[node->n_asked++];
		*asked = (NodeAsked){.node = message->from};
	}
	if (asked->inc_no > message->from_inc ||
		(asked->inc_no == message->from_inc && asked->token >= message->token))
		return false;
	asked->inc_no = message->from_inc;
	asked->token = message->token;
	return true;
}

/*
 * May the command have been taken: did one with its number, or a later one, come here; or did an earlier process hold that
 * office?
 */
static bool
may_be_taken(const ShardNode *node, const ShardControl *message)
{
	const NodeAsked *asked = shard_node_answer_asked(node, message->from);

#ifdef SHARD_MUTANT_NOT_ME_THOUGH_DONE
	return false;
#endif
	if ((uint16) message->b == node->id &&
		(node->first_office == 0 || message->b < node->first_office))
		return true;
	return asked && (asked->inc_no > message->from_inc ||
					 (asked->inc_no == message->from_inc && asked->token >= message->token));
}

/*
 * A command for an office that is not held. Only what certainly was not carried out may go to the next coordinator;
 * for the rest the answer is what was answered before, or that the outcome is not known.
 */
static void
answer_after_office(ShardNode *node, const ShardControl *message)
{
	bool may_be_done = message->command != SHARD_COMMAND_PLAN && may_be_taken(node, message);

	if (!may_be_done || !shard_node_answer_again(node, message))
		shard_node_answer_not_me(node, message, may_be_done);
}

/* A command of another member's operator. */
static void
commanded(ShardNode *node, int64 now, const ShardControl *message)
{
	ShardCommand command = {.kind = message->command,
							.asker = {message->from, message->token},
							.node = message->node,
							.number = message->number,
							.flag = message->flag,
							.text = message->text};
	ShardMemberRecord member;

	if (!shard_node_get_member(node, message->from, &member) || message->from_inc == 0 ||
		member.inc_no != message->from_inc || !shard_membership_is_member(member.status) ||
		!shard_node_command_forwards(command.kind) ||
		(message->text && strlen(message->text) > MAX_TEXT))
		return;
	if (message->n_shards > 0)
	{
		command.type_id = message->shards[0].type_id;
		command.shard = message->shards[0].shard;
	}
	if (!node->in_office || shard_proposer_ballot(node->proposer) != message->b)
		answer_after_office(node, message);
	else if (!shard_node_trust_wish(node, now, message))
		return;
	else if (command.kind == SHARD_COMMAND_PLAN || is_new(node, message))
		execute(node, now, &command);
	else
		(void) shard_node_answer_again(node, message);
}

/* ---- the side of the operator ----------------------------------------------------------------- */

bool
shard_node_command_forwards(ShardCommandKind kind)
{
	switch (kind)
	{
		case SHARD_COMMAND_DOWN:
		case SHARD_COMMAND_WRITE_OFF:
		case SHARD_COMMAND_ADMIT:
		case SHARD_COMMAND_MOVE:
		case SHARD_COMMAND_PIN:
		case SHARD_COMMAND_EVACUATE:
		case SHARD_COMMAND_GIVE_UP:
		case SHARD_COMMAND_REBALANCE:
		case SHARD_COMMAND_LEASE_TTL:
		case SHARD_COMMAND_STAY:
		case SHARD_COMMAND_OWNER:
		case SHARD_COMMAND_PLAN:
			return true;
		case SHARD_COMMAND_TYPE:
		case SHARD_COMMAND_JOIN:
		case SHARD_COMMAND_LEAVE:
		case SHARD_COMMAND_FORCE_VOTERS:
		case SHARD_COMMAND_ADDRESS:
			break;
	}
	return false;
}

/* How long the end of a command may take. */
static int64
patience(const ShardNode *node, const ShardCommand *command)
{
	const ShardMapEntry *entry;
	ShardTypeRecord type;
	int64 handoff = node->config.homes.handoff_timeout;

	/* Functions of types are asked twice: what should move, and where to. */
	if (command->kind == SHARD_COMMAND_REBALANCE)
		return SHARD_COMMAND_PATIENCE + 2 * SHARD_STRATEGY_TIMEOUT;
	if (command->kind != SHARD_COMMAND_MOVE || command->type_id == 0)
		return SHARD_COMMAND_PATIENCE;
	entry = shard_map_value(node->learned, (ShardMapKey){SHARD_MAP_TYPE, command->type_id, 0});
	if (entry && shard_record_get_type(entry, &type, NULL))
		handoff = Max(handoff, type.handoff_timeout_ms * SHARD_MS);
	/* The move before it, the question to the target, and the move itself. */
	return SHARD_COMMAND_PATIENCE + SHARD_PREPARE_TIMEOUT + 2 * handoff;
}

bool
shard_node_command_heard(const ShardNode *node, int64 now)
{
	return node->in_office || (node->coordinator != 0 && node->coordinator != node->id &&
							   now - node->coordinator_heard < SHARD_ELECTION_TIMEOUT);
}

/* Send a command to the coordinator of the day, if there is one. */
static void
send_command(ShardNode *node, int64 now, NodeCommand *waiting)
{
	const ShardCommand *command = &waiting->command;
	ShardShardRef shard = {.type_id = command->type_id, .shard = command->shard};
	ShardArena *arena = node->out->arena;
	ShardControl *message;

	if (node->in_office || !node->admitted || !shard_node_command_heard(node, now) ||
		!shard_node_command_forwards(command->kind))
		return;
	message = shard_action_send(node->out, node->coordinator, SHARD_CONTROL_COMMAND);
	message->b = waiting->ballot = node->coordinator_ballot;
	message->token = waiting->number;
	message->uuid = node->code;
	message->command = command->kind;
	message->node = command->node;
	message->number = Max(command->number, 0);
	message->flag = command->flag;
	message->text =
		command->text ? shard_arena_copy(arena, command->text, strlen(command->text) + 1) : NULL;
	message->n_shards = command->type_id != 0 ? 1 : 0;
	message->shards = shard_arena_copy(arena, &shard, sizeof(shard));
	waiting->next_send = now + SHARD_RETRY_INTERVAL;
}

/*
 * Send all that wait, the oldest first: the coordinator takes none with a lower number than one that it has taken, and
 * what was sent before may be lost. What another office may have carried out goes to no other one.
 */
static void
send_commands(ShardNode *node, int64 now)
{
	for (int i = 0; i < node->n_commands; i++)
	{
#ifdef SHARD_MUTANT_NEWEST_COMMAND_FIRST
		NodeCommand *command = &node->commands[node->n_commands - 1 - i];
#else
		NodeCommand *command = &node->commands[i];
#endif

		if (command->ballot == 0 || command->ballot == node->coordinator_ballot)
			send_command(node, now, command);
	}
}

/* The command at that place of the list is over. */
static void
drop_command(ShardNode *node, int at)
{
	if (node->commands[at].command.text)
		pfree(unconstify(char *, node->commands[at].command.text));
	node->n_commands--;
	memmove(&node->commands[at], &node->commands[at + 1],
			sizeof(NodeCommand) * (node->n_commands - at));
}

static void
end_command(ShardNode *node, int at, bool good, int status, int64 number, const char *why)
{
	shard_node_answer(node, node->commands[at].command.asker, good, status, number, why);
	drop_command(node, at);
}

/* Keep a command until its end is known. */
static void
keep_command(ShardNode *node, int64 now, const ShardCommand *command)
{
	size_t size = sizeof(NodeCommand) * (node->n_commands + 1);
	NodeCommand *waiting;

	if (node->n_commands == MAX_COMMANDS)
	{
		shard_node_answer(node, command->asker, false, NODE_ANSWER_KNOWN, 0,
						  "too many commands wait for the coordinator");
		return;
	}
	node->commands = node->commands ? repalloc(node->commands, size) : palloc(size);
	waiting = &node->commands[node->n_commands++];
	memset(waiting, 0, sizeof(*waiting));
	waiting->command = *command;
	waiting->command.text = command->text ? pstrdup(command->text) : NULL;
	waiting->command.nodes = NULL;
	waiting->command.n_nodes = 0;
	/* Rises beyond what an earlier process of this incarnation gave out. */
	waiting->number = node->last_command = Max(node->last_command + 1, now);
	waiting->deadline = now + patience(node, command);
#ifdef SHARD_MUTANT_COMMANDS_OVERTAKE
	send_command(node, now, waiting);
#else
	send_commands(node, now);
#endif
}

void
shard_node_command_end_stays(ShardNode *node)
{
	for (int i = node->n_commands - 1; i >= 0; i--)
	{
		if (node->commands[i].command.kind == SHARD_COMMAND_STAY)
			end_command(node, i, false, NODE_ANSWER_KNOWN, 0, "a later shard_leave() was called");
	}
}

/*
 * Has no coordinator heard that this node wishes to leave? One that did may have it decided yet, unless an incarnation
 * was admitted since.
 */
static bool
leave_is_unheard(const ShardNode *node)
{
	return node->admitted && !node->leave_sent && node->status < SHARD_MEMBER_LEAVING;
}

/*
 * This node is to leave no more: it does not ask for that any longer. The coordinator is told, which may have been
 * asked already; by the number it knows what was asked before, and comes late (N6).
 */
static void
stays(ShardNode *node, int64 now, const ShardCommand *word)
{
	ShardCommand command = *word;

	/*
	 * once the leaving is decided, whether it can still be taken back is for the coordinator to say
	 */
	if (node->leave_wished && node->status < SHARD_MEMBER_LEAVING)
		shard_node_region_end_leave(node, false, SHARD_NODE_LEAVE_CANCELLED);
	command.number = node->last_command = Max(node->last_command + 1, now);
	if (node->in_office)
		execute(node, now, &command);
	else if (leave_is_unheard(node) && !shard_node_command_heard(node, now))
		shard_node_step_done(node, command.asker.token, true, NULL);
	else
		keep_command(node, now, &command);
}

/*
 * A node is at another address. That is no command for others to carry out, since a caller that speaks in a member's name
 * could send it (I15). If the word is about this node, and it could not find itself, it knows then that it is there, and may
 * take the office.
 */
static void
address(ShardNode *node, int64 now, const ShardCommand *command)
{
	bool own =
		(command->node == 0 || command->node == node->id) && command->ground == SHARD_ADDRESS_SAID;

	if (own && node->running && !node->fenced)
		shard_node_place_said(node);
	if (node->in_office)
		execute(node, now, command);
	else if (own && (node->coordinator == node->id || !shard_node_command_heard(node, now)))
		keep_command(node, now, command);
	else
		shard_node_step_done(node, command->asker.token, false, "this node is not the coordinator");
}

/* A command that the coordinator carries out: this node, or whichever holds the office. */
static void
for_coordinator(ShardNode *node, int64 now, const ShardCommand *command)
{
	bool waits = is_too_early(node, now, command);

#ifdef SHARD_MUTANT_EARLY_PLAN_IS_LOST
	waits = false;
#endif
	if (node->in_office && !waits)
		execute(node, now, command);
	else
		keep_command(node, now, command);
}

void
shard_node_command_give(ShardNode *node, int64 now, const ShardCommand *command)
{
	switch (command->kind)
	{
		case SHARD_COMMAND_JOIN:
			shard_node_join_begin(node, command);
			return;
		case SHARD_COMMAND_LEAVE:
			shard_node_region_leave(node, now, command->asker.token);
			return;
		case SHARD_COMMAND_FORCE_VOTERS:
			shard_node_office_force(node, now, command);
			return;
		case SHARD_COMMAND_STAY:
			stays(node, now, command);
			return;
		case SHARD_COMMAND_ADDRESS:
			address(node, now, command);
			return;
		case SHARD_COMMAND_WRITE_OFF:
			if (!shard_node_journal_give_up(node, command->node))
				for_coordinator(node, now, command);
			else
				shard_node_step_done(
					node, command->asker.token, false,
					"the journal is restored without that node; then it can be written off");
			return;
		case SHARD_COMMAND_DOWN:
		case SHARD_COMMAND_ADMIT:
		case SHARD_COMMAND_MOVE:
		case SHARD_COMMAND_PIN:
		case SHARD_COMMAND_EVACUATE:
		case SHARD_COMMAND_GIVE_UP:
		case SHARD_COMMAND_REBALANCE:
		case SHARD_COMMAND_LEASE_TTL:
		case SHARD_COMMAND_OWNER:
		case SHARD_COMMAND_PLAN:
			for_coordinator(node, now, command);
			return;
		case SHARD_COMMAND_TYPE:
			break;
	}
	shard_node_step_done(node, command->asker.token, false, "there is no such command");
}

/* The coordinator's answer. */
static void
answered(ShardNode *node, int64 now, const ShardControl *message)
{
	for (int i = 0; i < node->n_commands; i++)
	{
		NodeCommand *command = &node->commands[i];

		/* only the coordinator that was asked answers */
		if (command->number != message->token || command->ballot == 0 ||
			(uint16) command->ballot != message->from)
			continue;
		if (message->outcome == NODE_ANSWER_NOT_ME)
		{
			/*
			 * The command was certainly not carried out: it may go to another coordinator, with all
			 * that wait.
			 */
			command->ballot = 0;
			command->next_send = Min(command->next_send, now + SHARD_RESEND_INTERVAL);
		}
		else if (command->command.kind == SHARD_COMMAND_PLAN && message->flag)
		{
			shard_node_answer_plan(node, command->command.asker,
								   message->result != 0 || message->n_entries > SHARD_PLAN_MOVES,
								   message->entries, Min(message->n_entries, SHARD_PLAN_MOVES));
			drop_command(node, i);
		}
		else
			end_command(node, i, message->flag, message->outcome, message->result, message->text);
		return;
	}
}

/*
 * The coordinator takes what comes with that code: what was sent without it has come to nothing, and goes again; not for
 * each code that a caller says in the coordinator's name, but once in a while.
 */
static void
take_code(ShardNode *node, int64 now, const ShardControl *message)
{
	if (message->from != node->coordinator || message->b != node->coordinator_ballot ||
		shard_record_uuid_equal(message->uuid, node->code))
		return;
	node->code = message->uuid;
#ifndef SHARD_MUTANT_EACH_CODE_IS_TRIED
	if (now < node->next_try_of_code)
		return;
#endif
	node->next_try_of_code = now + SHARD_RESEND_INTERVAL;
	node->next_leave = now;
	send_commands(node, now);
}

void
shard_node_command_receive(ShardNode *node, int64 now, const ShardControl *message)
{
	if (message->kind == SHARD_CONTROL_COMMAND)
		commanded(node, now, message);
	else if (message->kind == SHARD_CONTROL_COMMAND_ANSWER)
		answered(node, now, message);
	else if (message->kind == SHARD_CONTROL_COMMAND_CODE)
		take_code(node, now, message);
}

/* An address that waited for the office waits for what else is being decided of its node, which may be its admission. */
static bool
waits_for_change(const ShardNode *node, const ShardCommand *command)
{
	int32 member = command->node != 0 ? command->node : node->id;

	return command->kind == SHARD_COMMAND_ADDRESS &&
		   shard_proposer_pending(node->proposer, (ShardMapKey){SHARD_MAP_MEMBER, member, 0});
}

/* A command that waits: for a coordinator, for its answer, or in vain. True: it is over. */
static bool
tick(ShardNode *node, int64 now, int at)
{
	NodeCommand *command = &node->commands[at];
	bool plan = command->command.kind == SHARD_COMMAND_PLAN;
	bool sent;

	/* what changes nothing can be asked of any coordinator */
	if (plan && command->ballot != node->coordinator_ballot)
		command->ballot = 0;
	sent = command->ballot != 0;
	if (sent && shard_node_obeyed(node, &command->command))
		end_command(node, at, true, NODE_ANSWER_KNOWN, 0, NULL);
	else if (!node->running || node->fenced)
		end_command(node, at, false, sent && !plan ? NODE_ANSWER_UNKNOWN : NODE_ANSWER_KNOWN, 0,
					node->fenced ? "this node is fenced" : "this incarnation was downed");
	else if (sent && command->ballot != node->coordinator_ballot)
		end_command(
			node, at, false, NODE_ANSWER_UNKNOWN, 0,
			"the coordinator has changed meanwhile: perhaps the command is carried out all the same");
	else if (!sent && node->in_office && !waits_for_change(node, &command->command) &&
			 !is_too_early(node, now, &command->command))
	{
		ShardCommand given = command->command;

		execute(node, now, &given);
		drop_command(node, at);
	}
	else if (now >= command->deadline && plan && (sent || node->in_office))
		end_command(
			node, at, false, NODE_ANSWER_KNOWN, 0,
			"the coordinator has not answered, or makes plans for other callers; try again");
	else if (now >= command->deadline)
		end_command(node, at, false, sent ? NODE_ANSWER_UNKNOWN : NODE_ANSWER_KNOWN, 0,
					sent ? "the coordinator has not answered: perhaps the command is carried out "
						   "all the same"
						 : "this node hears of no coordinator that could carry it out");
	else
		return false;
	return true;
}

void
shard_node_command_tick(ShardNode *node, int64 now)
{
	bool due = false;

	for (int i = 0; i < node->n_commands;)
	{
		if (tick(node, now, i))
			continue;
		due = due || (now >= node->commands[i].next_send &&
					  shard_node_command_forwards(node->commands[i].command.kind));
		i++;
	}
	if (due)
		send_commands(node, now);
}

void
shard_node_command_destroy(ShardNode *node)
{
	while (node->n_commands > 0)
		drop_command(node, 0);
	if (node->commands)
		pfree(node->commands);
	shard_node_answer_destroy(node);
}
