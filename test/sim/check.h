/*
 * check.h
 *		Checkers of the data plane: they stand outside and see everything.
 *
 * Told by the planes what happened (a tell, its commit, a durable turn, a change of ownership), they
 * hold it against the promises P1-P5 and the invariants V1-V13 (doc/protocol.md 11). A violation is
 * kept as a text; the first one counts.
 */
#pragma once

#include "postgres_fe.h"

typedef struct Check Check;

/* What became of a message. */
typedef enum CheckFate
{
	CHECK_OPEN = 0,	 /* told, its transaction runs */
	CHECK_COMMITTED, /* visible, not yet reported to its sender */
	CHECK_REPORTED,	 /* COMMIT returned: it must not get lost */
	CHECK_ABORTED,	 /* rolled back, or lost in a crash before COMMIT returned */
	CHECK_HANDLED,
	CHECK_DEAD /* dead letter, in doubt, or lost with its node by an operator's act */
} CheckFate;

extern Check *check_create(void);
extern void check_destroy(Check *check);

/* The first violation, NULL if there was none. */
extern const char *check_violation(const Check *check);
extern void check_fail(Check *check, const char *format, ...) pg_attribute_printf(2, 3);

/* How many messages were told, and how many were handled. */
extern int check_told(const Check *check);
extern int check_handled_count(const Check *check);
