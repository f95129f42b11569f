/*
 * check.h
 *		Checkers of the data plane: they stand outside and see everything.
 *
 * Told by the models of nodes what happened (a tell, its commit, a durable turn, a change of ownership), they
 * hold it against the promises P1-P5 and the invariants V1-V13 (doc/protocol/checks.md). A violation is
 * kept as a text; the first one counts.
 */
#pragma once

#include "postgres_fe.h"

#include "core/flow/handoff.h"

typedef struct Check Check;

/* What became of a message. */
typedef enum CheckFate
{
	CHECK_OPEN = 0,	 /* told, its transaction runs */
	CHECK_COMMITTED, /* visible, not yet reported to its sender */
	CHECK_REPORTED,	 /* COMMIT returned: it must not get lost */
	CHECK_ABORTED,	 /* rolled back */
	CHECK_UNSURE,	 /* its database crashed before COMMIT returned: once or never */
	CHECK_HANDLED,
	CHECK_DEAD,	   /* dead letter: in doubt, so it may have had its effect */
	CHECK_GIVEN_UP /* dead letter without an effect: it must not get lost either */
} CheckFate;

extern Check *check_create(void);
extern void check_destroy(Check *check);

/* The first violation, NULL if there was none. */
extern const char *check_violation(const Check *check);
extern void check_fail(Check *check, const char *format, ...) pg_attribute_printf(2, 3);

/* How many messages were told, and how many were handled. */
extern int check_told(const Check *check);
extern int check_handled_count(const Check *check);

/*
 * Messages. instance is a database's number (a restored copy is another one); session tells apart
 * senders whose messages keep their order, within one life of the database.
 */
extern int64
check_tell(Check *check, int instance, int64 session, int32 type_id, int32 shard, int32 entity);
extern void check_committed(Check *check, int64 id);
extern void check_reported(Check *check, int64 id);
extern void check_aborted(Check *check, int64 id);
extern void check_dead(Check *check, int64 id);

/*
 * It was given up in an instance, by a turn that is durable and past the gate; what was is sent again by
 * one, which has returned.
 */
extern void check_given_up(Check *check, int64 id, int instance);
extern void check_redriven(Check *check, int64 id, int instance);

/* At the end: dead letters of this instance need not be seen, since it has left with them. */
extern void check_left(Check *check, int instance);

/* A turn that is durable and past the gate handled it. */
extern void check_handled(Check *check, int64 id, int instance, int32 epoch);

/*
 * Order by number (D25). A message that was told gets a number, chance making of it what it likes; stops:
 * its entity ends with it. Then what homes do: they handle it for its number, and the position of an entity
 * changes; NULL: it has come to its end.
 */
typedef struct CheckPosition
{
	int64 began;
	int64 expected;
	int64 skipped;
	int64 late;
} CheckPosition;

extern int64 check_draw_number(Check *check, int64 id, uint64 chance, bool *stops);
extern void check_in_order(Check *check, int64 id, int instance, int32 epoch);
extern void check_position(Check *check, int instance, int32 type_id, int32 shard, int32 entity,
						   int32 epoch, const CheckPosition *position);

extern CheckFate check_fate(const Check *check, int64 id);

/* The database went down: what was not reported is unsure. */
extern void check_crashed(Check *check, int instance);

/*
 * The database was put back from an old copy: what it sent or handled before is excused, and what it
 * owned does not count. Its node was written off: what it had may be lost, but nothing comes twice.
 */
extern void check_excuse(Check *check, int instance);

/*
 * What was handled of a shard, here or elsewhere, since the copy was made went with such a database, to which
 * it had moved. What was handled before is in the copy, or is not handled again.
 */
extern int64 check_clock(const Check *check);
extern void check_excuse_shard(Check *check, int32 type_id, int32 shard, int64 since);
extern bool check_any_excused(const Check *check);
extern void check_written_off(Check *check, int instance);

/* A standby took over: what was reported is there, what was not is unsure. */
extern void check_replaced(Check *check, int instance);

/* It was taken in, waits in the stash of a lost state, and went with it. */
extern void check_stranded(Check *check, int64 id);

/* A durable turn took it in and put it into the stash. */
extern void check_stashed(Check *check, int64 id, int32 epoch);

/*
 * The shard began anew without its state: what it handled before need not be seen in it, and what
 * waited in its stash is gone.
 */
extern void check_lost(Check *check, int32 type_id, int32 shard);

/* An ownership row changed; lost: of the fact that did it, or 0. leased types may overlap (P4). */
extern void check_owner(Check *check, int instance, int32 type_id, int32 shard,
						const ShardOwn *before, const ShardOwn *after, int32 lost, bool leased);

/*
 * Shards that need a lease: a turn began, or passed its last look at the lease before its commit. None
 * of an older epoch may do that after one of a newer epoch has begun (P4).
 */
extern void check_turn_began(Check *check, int instance, int32 type_id, int32 shard, int32 epoch);
extern void check_turn_commits(Check *check, int instance, int32 type_id, int32 shard, int32 epoch);

/*
 * Voters were forced: epochs that began in databases which were put back since may be undone (R13). One that
 * had replaced another one, as its standby, was put back with what began in that one.
 */
extern void check_put_back(Check *check, int instance);
extern void check_forced(Check *check);

/* The row as it is after a crash. */
extern void check_owns(Check *check, int instance, int32 type_id, int32 shard, const ShardOwn *own);

/*
 * At the end: begin; then each message that is seen waiting somewhere, and each effect that is seen
 * in the state of a shard where it is active; then the verdict.
 */
extern void check_end_begin(Check *check);
extern void check_seen_waiting(Check *check, int64 id);
extern void check_seen_effect(Check *check, int64 id);
extern void check_end(Check *check);
