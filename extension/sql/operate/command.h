/*
 * sql/operate/command.h
 *		What operators' functions share: they hand a command to the control worker and wait.
 *
 * The functions write nothing themselves: after a cancel or a crash on the way the control plane alone decides whether
 * the command goes on. Calling the function again is harmless, and tells.
 */
#pragma once

#include "control/control.h"
#include "fmgr.h"

/* Checks what a command needs; raises where no command can be given. function: its name, for errors. */
extern void shard_command_begin(const char *function);

/* An argument that must not be null; error 22004 if it is. what names it. */
extern char *shard_command_text(FunctionCallInfo fcinfo, int number, const char *what);
extern int32 shard_command_int(FunctionCallInfo fcinfo, int number, const char *what);

/* A time that must not be negative, in microseconds; the same if it is null. */
extern int64 shard_command_timeout(FunctionCallInfo fcinfo, int number);

/* Raises at a node that was downed: it would wait for its own return in vain. */
extern void shard_command_not_downed(void);

/* Raises at a node that was written off: no node carries out what is wanted there. */
extern void shard_command_not_written_off(void);

/* The same, also at a node that has left its cluster. */
extern void shard_command_not_gone(void);

/* Raises if that member was written off: no start of it comes back. function: its name, for the error. */
extern void shard_command_member_remains(const char *function, int32 node);

/* Waits until this node knows its identity, for a control worker that has just been started; raises if it does not. */
extern void shard_command_wait_known(void);

/* Whether there is a coordinator, as far as this node hears. */
extern bool shard_command_has_coordinator(void);

/* Raises unless there is a coordinator, as far as this node hears; says so if it was downed, written off, or has left. */
extern void shard_command_need_coordinator(const char *function);

/* The folder of this server's sockets, "" if it has none. */
extern const char *shard_command_socket_folder(void);

/* The record of a member as decided now; NULL: there is none. Valid until the next call. */
extern const ShardMemberRecord *shard_command_member(int32 node);

/* The same; error if there is none. */
extern const ShardMemberRecord *shard_command_get_member(int32 node);

/* "role@node" of the caller. */
extern char *shard_command_who(void);

/*
 * Has a command carried out, at whichever node the coordinator is; returns its result. what: "cannot move ..."; the
 * reason of a refusal becomes the detail of the error, with a hint.
 */
extern int64 shard_command_send(const ShardCommand *command, int64 timeout_us, const char *what);

/* The same of SHARD_COMMAND_PLAN: shard_control_plan(). */
extern void shard_command_plan(const ShardCommand *command, int64 timeout_us, const char *what,
							   ShardPlan *plan);

/* The number of shards whose home a node is, moves towards it included. */
extern int64 shard_command_homes_of(int32 node);

/*
 * Calls look, which reads the extension's tables, whose locks would be kept to the end of the transaction: a caller
 * that waits with them keeps VACUUM FULL out, and behind that the control worker that is waited for. The locks go when
 * look returns or raises, with whatever it has written; memory of the caller's context stays. May be nested.
 */
extern void shard_command_look(void (*look)(void *arg), void *arg);

/* Rows of one text each, as one text, palloc'd; "" if there are none. A look of its own. */
extern char *shard_command_list(const char *query, const char *separator);

/*
 * admin_evacuate.c: the shards of a node that is to have none, "" if there are none; why they are still there, a line
 * each, "" if nothing is known. Both are looks; the second asks other members, for some seconds at most.
 */
extern const char *shard_command_shards_at(int32 node);
extern const char *shard_command_why_at(int32 node);

/* Waits for a short time, with interrupts served. */
extern void shard_command_nap(void);

#define SHARD_COMMAND_SECOND INT64CONST(1000000)

/* In this time, in microseconds, a control worker that has just been started learns its node. */
#define SHARD_COMMAND_START_TIMEOUT (10 * SHARD_COMMAND_SECOND)

/* The time for a decision, with an election before it. */
#define SHARD_COMMAND_TIMEOUT (20 * SHARD_COMMAND_SECOND)
