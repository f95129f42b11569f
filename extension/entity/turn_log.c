/*
 * entity/turn_log.c
 *		What a turn has to say in the server's log: once it is committed, and not too often.
 *
 * Comes from: failure.c, decider.c, order.c, recount.c, residents.c, dead_letter_room.c, while the turn runs; turn.c after the commit.
 *
 * A turn that is undone runs again, and would say it again. Of each kind the turn's first event makes a
 * line, at most one a second; the others are counted, and the next line tells how many they were.
 */
#include "postgres.h"

#include "utils/memutils.h"
#include "utils/timestamp.h"

#include "core/base/text.h"
#include "entity/internal.h"

#include "base/compat.h"

/* The events of one kind in the turn; strings in the turn's memory. */
typedef struct TurnLine
{
	int events;
	int sqlstate;
	const char *message;
	const char *detail;
	const char *hint;
} TurnLine;

static TurnLine lines[SHARD_TURN_LOG_KINDS];

/* since the last line of the kind */
static TimestampTz logged_at[SHARD_TURN_LOG_KINDS];
static int64 silent[SHARD_TURN_LOG_KINDS];

/* Lines about strays are this far apart; each counts all that came since the one before. */
#define STRAYS_EVERY (60 * USECS_PER_SEC)

/* Messages whose type is not here: dead letters, and those that there was no room for. */
typedef struct Strays
{
	int64 kept;
	int64 counted;
} Strays;

static Strays strays;		 /* of this turn */
static Strays unsaid_strays; /* of former turns, not logged yet */
static TimestampTz strays_said_at = 0;

static const struct
{
	int level;
	const char *others;
} kinds[SHARD_TURN_LOG_KINDS] = {
	[SHARD_TURN_LOG_GAP] = {LOG, "more gap(s)"},
	[SHARD_TURN_LOG_NUMBER] = {LOG, "more of this kind"},
	[SHARD_TURN_LOG_DEAD_LETTER] = {WARNING, "more dead letter(s)"},
	[SHARD_TURN_LOG_RECOUNT] = {WARNING, "more of this kind"},
	[SHARD_TURN_LOG_BURIED] = {LOG, "more of this kind"},
	[SHARD_TURN_LOG_LEFT] = {LOG, "more of this kind"},
	[SHARD_TURN_LOG_FULL] = {WARNING, "more of this kind"},
	[SHARD_TURN_LOG_START] = {WARNING, "more of this kind"},
	[SHARD_TURN_LOG_PAUSE] = {WARNING, "more pause(s)"},
	[SHARD_TURN_LOG_DECIDER] = {WARNING, "more of this kind"},
	[SHARD_TURN_LOG_TOUCHED] = {WARNING, "more of this kind"},
};

bool
shard_turn_log_counts(ShardTurnLogKind kind)
{
	return lines[kind].events++ == 0;
}

/* Ids of entities and errors of users are in it, which may have line breaks. */
void
shard_turn_log(ShardTurnLogKind kind, int sqlstate, const char *message, const char *detail,
			   const char *hint)
{
	MemoryContext old = MemoryContextSwitchTo(shard_turn.context);
	TurnLine *line = &lines[kind];

	line->sqlstate = sqlstate;
	line->message = shard_text_shown(message);
	line->detail = shard_text_shown(detail);
	line->hint = shard_text_shown(hint);
	MemoryContextSwitchTo(old);
}

/* Writes the line of a kind, unless there was one just now. */
static void
write_line(ShardTurnLogKind kind, TimestampTz now)
{
	const TurnLine *line = &lines[kind];

	if (now - logged_at[kind] < USECS_PER_SEC)
	{
		silent[kind] += line->events;
		return;
	}
	silent[kind] += line->events - 1;
	ereport(kinds[kind].level,
			(errcode(line->sqlstate), errmsg_internal("%s", line->message),
			 errdetail_internal("%s%s" INT64_FORMAT " %s since the last such message in the log.",
								line->detail, line->detail[0] == '\0' ? "" : " ", silent[kind],
								kinds[kind].others),
			 errhint("%s", line->hint)));
	logged_at[kind] = now;
	silent[kind] = 0;
}

void
shard_turn_count_strays(int64 kept, int64 counted)
{
	strays.kept += kept;
	strays.counted += counted;
}

static void
say_strays(void)
{
	char rest[200] = "";

	if (unsaid_strays.counted > 0)
		snprintf(
			rest, sizeof(rest),
			"\nThere are as many as may be, and each worker makes room for a tenth of them in a minute at most: " INT64_FORMAT
			" more were not stored.",
			unsaid_strays.counted);
	ereport(
		WARNING,
		(errcode(ERRCODE_UNDEFINED_OBJECT),
		 errmsg("messages of entity types that are not here became dead letters: " INT64_FORMAT,
				unsaid_strays.kept),
		 errdetail(
			 "A type was dropped here when messages of it were in the inbox or on their way, or "
			 "another node, or a caller in its name, sends such messages.%s",
			 rest),
		 errhint("These dead letters have no type in shard_dead_letters, where superusers can "
				 "read them.")));
	memset(&unsaid_strays, 0, sizeof(unsaid_strays));
}

void
shard_turn_log_strays(bool ending)
{
	TimestampTz now;

	if (likely(unsaid_strays.kept == 0 && unsaid_strays.counted == 0))
		return;
	now = GetCurrentTimestamp();
	/* also when the clock was set back */
	if (!ending && now >= strays_said_at && now - strays_said_at < STRAYS_EVERY)
		return;
	say_strays();
	strays_said_at = now;
}

void
shard_turn_log_committed(void)
{
	unsaid_strays.kept += strays.kept;
	unsaid_strays.counted += strays.counted;
	shard_turn_log_strays(false);
	for (int kind = 0; kind < SHARD_TURN_LOG_KINDS; kind++)
		if (lines[kind].events > 0)
			write_line(kind, GetCurrentTimestamp());
	shard_turn_log_forget();
}

void
shard_turn_log_forget(void)
{
	memset(lines, 0, sizeof(lines));
	memset(&strays, 0, sizeof(strays));
}
