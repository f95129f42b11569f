/*
 * entity_test.c
 *		The life of an entity, step by step, and what a failure does to it.
 */
#include "postgres_fe.h"

#include "core/entity/entity.h"
#include "core/entity/recovery.h"
#include "unit.h"

/* A step that must lead to a state and an action. */
static void
is_step(ShardEntityState from, ShardEntityEvent event, bool remembers, ShardEntityState to,
		ShardEntityAction action)
{
	ShardEntityState next = SHARD_ENTITY_STATES;
	ShardEntityAction todo = SHARD_ENTITY_DO_NOTHING;
	bool legal = shard_entity_step(from, event, remembers, &next, &todo);

	ok(legal && next == to && todo == action, "%s, %s, %s -> %s",
	   shard_entity_machine.state_names[from], shard_entity_machine.event_names[event],
	   remembers ? "remembers" : "does not remember", shard_entity_machine.state_names[to]);
}

/* A step that must be illegal, and set nothing. */
static void
is_illegal(ShardEntityState from, ShardEntityEvent event, bool remembers)
{
	ShardEntityState next = SHARD_ENTITY_STATES;
	ShardEntityAction todo = SHARD_ENTITY_DO_REPORT;

	ok(!shard_entity_step(from, event, remembers, &next, &todo) && next == SHARD_ENTITY_STATES &&
		   todo == SHARD_ENTITY_DO_REPORT,
	   "%s, %s, %s: illegal", shard_entity_machine.state_names[from],
	   shard_entity_machine.event_names[event], remembers ? "remembers" : "does not remember");
}

/* The whole round of M25, and E03: who stops is neither running nor remembered. */
static void
test_remembered(void)
{
	is_step(SHARD_ENTITY_NONE, SHARD_ENTITY_ON_MESSAGE, true, SHARD_ENTITY_REMEMBERING_START,
			SHARD_ENTITY_DO_STORE_START);
	is_step(SHARD_ENTITY_REMEMBERING_START, SHARD_ENTITY_ON_MESSAGE, true,
			SHARD_ENTITY_REMEMBERING_START, SHARD_ENTITY_DO_HOLD);
	is_step(SHARD_ENTITY_REMEMBERING_START, SHARD_ENTITY_ON_STORE_FAILED, true,
			SHARD_ENTITY_REMEMBERING_START, SHARD_ENTITY_DO_STORE_START);
	is_step(SHARD_ENTITY_REMEMBERING_START, SHARD_ENTITY_ON_STORED, true, SHARD_ENTITY_ACTIVE,
			SHARD_ENTITY_DO_HANDLE);
	is_step(SHARD_ENTITY_ACTIVE, SHARD_ENTITY_ON_ENDED, true, SHARD_ENTITY_WAITING,
			SHARD_ENTITY_DO_BACK_OFF);
	is_step(SHARD_ENTITY_WAITING, SHARD_ENTITY_ON_START, true, SHARD_ENTITY_ACTIVE,
			SHARD_ENTITY_DO_HANDLE);
	is_step(SHARD_ENTITY_ACTIVE, SHARD_ENTITY_ON_PASSIVATE, true, SHARD_ENTITY_PASSIVATING,
			SHARD_ENTITY_DO_UNLOAD);
	is_step(SHARD_ENTITY_PASSIVATING, SHARD_ENTITY_ON_PASSIVATE, true, SHARD_ENTITY_PASSIVATING,
			SHARD_ENTITY_DO_NOTHING);
	is_step(SHARD_ENTITY_PASSIVATING, SHARD_ENTITY_ON_STOPPED, true, SHARD_ENTITY_REMEMBERING_STOP,
			SHARD_ENTITY_DO_STORE_STOP);
	is_step(SHARD_ENTITY_REMEMBERING_STOP, SHARD_ENTITY_ON_MESSAGE, true,
			SHARD_ENTITY_REMEMBERING_STOP, SHARD_ENTITY_DO_HOLD);
	is_step(SHARD_ENTITY_REMEMBERING_STOP, SHARD_ENTITY_ON_STORED, true, SHARD_ENTITY_NONE,
			SHARD_ENTITY_DO_FORGET);
	is_step(SHARD_ENTITY_PASSIVATING, SHARD_ENTITY_ON_UNLOADED, true, SHARD_ENTITY_REMEMBERED,
			SHARD_ENTITY_DO_FORGET);
	is_step(SHARD_ENTITY_PASSIVATING, SHARD_ENTITY_ON_ENDED, true, SHARD_ENTITY_REMEMBERING_STOP,
			SHARD_ENTITY_DO_STORE_STOP);
	is_step(SHARD_ENTITY_NONE, SHARD_ENTITY_ON_RECOVERED, true, SHARD_ENTITY_REMEMBERED,
			SHARD_ENTITY_DO_NOTHING);
	is_step(SHARD_ENTITY_REMEMBERED, SHARD_ENTITY_ON_MOVED, true, SHARD_ENTITY_REMEMBERING_STOP,
			SHARD_ENTITY_DO_STORE_STOP);
	is_step(SHARD_ENTITY_QUARANTINED, SHARD_ENTITY_ON_RESUMED, true, SHARD_ENTITY_REMEMBERING_START,
			SHARD_ENTITY_DO_STORE_START);
	is_step(SHARD_ENTITY_WAITING, SHARD_ENTITY_ON_GIVEN_UP, true, SHARD_ENTITY_QUARANTINED,
			SHARD_ENTITY_DO_REPORT);
}

/* Without a store, the same events skip what has to do with it. */
static void
test_forgotten(void)
{
	is_step(SHARD_ENTITY_NONE, SHARD_ENTITY_ON_MESSAGE, false, SHARD_ENTITY_ACTIVE,
			SHARD_ENTITY_DO_HANDLE);
	is_step(SHARD_ENTITY_NONE, SHARD_ENTITY_ON_START, false, SHARD_ENTITY_ACTIVE,
			SHARD_ENTITY_DO_HANDLE);
	is_step(SHARD_ENTITY_ACTIVE, SHARD_ENTITY_ON_ENDED, false, SHARD_ENTITY_NONE,
			SHARD_ENTITY_DO_FORGET);
	is_step(SHARD_ENTITY_ACTIVE, SHARD_ENTITY_ON_FAILED, false, SHARD_ENTITY_WAITING,
			SHARD_ENTITY_DO_BACK_OFF);
	is_step(SHARD_ENTITY_WAITING, SHARD_ENTITY_ON_MESSAGE, false, SHARD_ENTITY_WAITING,
			SHARD_ENTITY_DO_HOLD);
	is_step(SHARD_ENTITY_WAITING, SHARD_ENTITY_ON_DUE, false, SHARD_ENTITY_ACTIVE,
			SHARD_ENTITY_DO_HANDLE);
	is_step(SHARD_ENTITY_PASSIVATING, SHARD_ENTITY_ON_UNLOADED, false, SHARD_ENTITY_NONE,
			SHARD_ENTITY_DO_FORGET);
	is_step(SHARD_ENTITY_PASSIVATING, SHARD_ENTITY_ON_STOPPED, false, SHARD_ENTITY_NONE,
			SHARD_ENTITY_DO_FORGET);
	is_step(SHARD_ENTITY_PASSIVATING, SHARD_ENTITY_ON_MESSAGE, false, SHARD_ENTITY_PASSIVATING,
			SHARD_ENTITY_DO_HOLD);
	is_step(SHARD_ENTITY_ACTIVE, SHARD_ENTITY_ON_SUSPENDED, false, SHARD_ENTITY_QUARANTINED,
			SHARD_ENTITY_DO_HOLD);
	is_step(SHARD_ENTITY_QUARANTINED, SHARD_ENTITY_ON_RESUMED, false, SHARD_ENTITY_ACTIVE,
			SHARD_ENTITY_DO_HANDLE);
}

/* What waits though none has failed; a stop message that is tried again, waits, or means nothing any more. */
static void
test_held(void)
{
	is_step(SHARD_ENTITY_NONE, SHARD_ENTITY_ON_HELD, false, SHARD_ENTITY_WAITING,
			SHARD_ENTITY_DO_HOLD);
	is_step(SHARD_ENTITY_ACTIVE, SHARD_ENTITY_ON_HELD, false, SHARD_ENTITY_WAITING,
			SHARD_ENTITY_DO_HOLD);
	is_step(SHARD_ENTITY_REMEMBERED, SHARD_ENTITY_ON_HELD, true, SHARD_ENTITY_WAITING,
			SHARD_ENTITY_DO_HOLD);
	is_step(SHARD_ENTITY_PASSIVATING, SHARD_ENTITY_ON_HELD, false, SHARD_ENTITY_WAITING,
			SHARD_ENTITY_DO_HOLD);
	is_step(SHARD_ENTITY_PASSIVATING, SHARD_ENTITY_ON_FAILED, false, SHARD_ENTITY_WAITING,
			SHARD_ENTITY_DO_BACK_OFF);
	is_step(SHARD_ENTITY_PASSIVATING, SHARD_ENTITY_ON_BURIED, false, SHARD_ENTITY_PASSIVATING,
			SHARD_ENTITY_DO_NOTHING);
	is_step(SHARD_ENTITY_PASSIVATING, SHARD_ENTITY_ON_RECALLED, false, SHARD_ENTITY_ACTIVE,
			SHARD_ENTITY_DO_HANDLE);
}

static void
test_illegal(void)
{
	is_illegal(SHARD_ENTITY_NONE, SHARD_ENTITY_ON_PASSIVATE, true);
	is_illegal(SHARD_ENTITY_NONE, SHARD_ENTITY_ON_STORED, true);
	is_illegal(SHARD_ENTITY_ACTIVE, SHARD_ENTITY_ON_RECOVERED, true);
	is_illegal(SHARD_ENTITY_ACTIVE, SHARD_ENTITY_ON_STORED, true);
	is_illegal(SHARD_ENTITY_ACTIVE, SHARD_ENTITY_ON_DUE, true);
	is_illegal(SHARD_ENTITY_ACTIVE, SHARD_ENTITY_ON_STOPPED, true);
	is_illegal(SHARD_ENTITY_ACTIVE, SHARD_ENTITY_ON_RECALLED, true);
	is_illegal(SHARD_ENTITY_WAITING, SHARD_ENTITY_ON_HELD, true);
	is_illegal(SHARD_ENTITY_QUARANTINED, SHARD_ENTITY_ON_HELD, false);
	is_illegal(SHARD_ENTITY_WAITING, SHARD_ENTITY_ON_ENDED, true);
	is_illegal(SHARD_ENTITY_REMEMBERING_STOP, SHARD_ENTITY_ON_DUE, true);
	is_illegal(SHARD_ENTITY_NONE, SHARD_ENTITY_ON_RECOVERED, false);
	is_illegal(SHARD_ENTITY_REMEMBERED, SHARD_ENTITY_ON_MESSAGE, false);
	is_illegal(SHARD_ENTITY_REMEMBERING_START, SHARD_ENTITY_ON_STORED, false);
	is_illegal(SHARD_ENTITY_WAITING, SHARD_ENTITY_ON_GIVEN_UP, false);
}

/*
 * What holds of all steps: a pair stands once; who is told of a message keeps or handles it; a type
 * that does not remember never gets into a state of the store; where a shard leaves, nothing stays.
 */
static void
test_all_steps(void)
{
	bool once = true;
	bool keeps = true;
	bool leaves = true;
	bool no_store = true;

	for (int from = 0; from < SHARD_ENTITY_STATES; from++)
	{
		for (int event = 0; event < SHARD_ENTITY_EVENTS; event++)
		{
			int rows = 0;
			ShardEntityState next = SHARD_ENTITY_NONE;
			ShardEntityAction action = SHARD_ENTITY_DO_NOTHING;
			bool legal = shard_entity_step(from, event, true, &next, &action);

			for (int i = 0; i < shard_entity_machine.n_steps; i++)
				rows += shard_entity_machine.steps[i].from == from &&
						shard_entity_machine.steps[i].event == event;
			once = once && rows == (legal ? 1 : 0);
			if (event == SHARD_ENTITY_ON_MESSAGE)
				keeps = keeps && legal &&
						(action == SHARD_ENTITY_DO_HANDLE || action == SHARD_ENTITY_DO_HOLD ||
						 action == SHARD_ENTITY_DO_STORE_START);
			if (event == SHARD_ENTITY_ON_SHARD_LEFT && from != SHARD_ENTITY_NONE)
				leaves = leaves && legal && next == SHARD_ENTITY_NONE &&
						 action == SHARD_ENTITY_DO_FORGET;
			if (shard_entity_step(from, event, false, &next, &action))
				no_store = no_store && next != SHARD_ENTITY_REMEMBERED &&
						   next != SHARD_ENTITY_REMEMBERING_START &&
						   next != SHARD_ENTITY_REMEMBERING_STOP &&
						   action != SHARD_ENTITY_DO_STORE_START &&
						   action != SHARD_ENTITY_DO_STORE_STOP;
		}
	}
	ok(once, "each legal pair of state and event stands once in the table");
	ok(keeps, "no state drops a message");
	ok(leaves, "nothing stays of a shard that left");
	ok(no_store, "what does not remember needs no store");
}

static void
test_listing(void)
{
	is_int(shard_entity_listing(SHARD_ENTITY_REMEMBERED), SHARD_ENTITY_IS_STARTING,
		   "remembered_not_created is listed as starting");
	is_int(shard_entity_listing(SHARD_ENTITY_WAITING), SHARD_ENTITY_IS_BACKING_OFF,
		   "waiting_for_restart is listed as backing_off");
	is_int(shard_entity_listing(SHARD_ENTITY_REMEMBERING_STOP), SHARD_ENTITY_IS_PASSIVATING,
		   "remembering_stop is listed as passivating");
	ok(strcmp(shard_entity_listing_name(SHARD_ENTITY_IS_BACKING_OFF), "backing_off") == 0,
	   "a listing has a name");
	ok(shard_entity_listing_name(SHARD_ENTITY_LISTINGS) == NULL &&
		   shard_entity_listing_name(-1) == NULL,
	   "a number beyond them has none");
}

static void
test_backoff(void)
{
	static const int64 pauses[] = {100, 200, 400, 800, 1000, 1000};

	for (int i = 0; i < (int) lengthof(pauses); i++)
		is_int(shard_entity_backoff(100, 1000, i + 1), pauses[i], "pause after %d failures", i + 1);
	is_int(shard_entity_backoff(100, 1000, 0), 100, "no failure counts as the first");
	is_int(shard_entity_backoff(100, 800, 4), 800, "doubling that meets the limit");
	is_int(shard_entity_backoff(100, 801, 4), 800, "doubling that stays below the limit");
	is_int(shard_entity_backoff(2000, 1000, 1), 1000, "the limit is below the first pause");
	is_int(shard_entity_backoff(1, PG_INT64_MAX, 63), INT64CONST(1) << 62, "greatest power");
	is_int(shard_entity_backoff(1, PG_INT64_MAX, 64), PG_INT64_MAX, "no overflow");
	is_int(shard_entity_backoff(PG_INT64_MAX, PG_INT64_MAX, PG_INT32_MAX), PG_INT64_MAX,
		   "no overflow at the ends of both ranges");
}

static void
test_jitter(void)
{
	is_int(shard_entity_jitter(1000000, 0), 1000000, "no chance: the whole pause");
	is_int(shard_entity_jitter(1000000, PG_UINT32_MAX), 800004, "at most a fifth less");
	is_int(shard_entity_jitter(1000000, PG_UINT32_MAX / 2), 900004, "half of that in the middle");
	is_int(shard_entity_jitter(4, PG_UINT32_MAX), 4, "a tiny pause stays");
	ok(shard_entity_jitter(INT64CONST(604800000000), PG_UINT32_MAX) > 0, "no overflow in a week");
}

static void
test_hope(void)
{
	static const char *const passes[] = {"40001", "40P01", "55P03", "53000",
										 "53100", "53200", "53300", "53400"};
	static const char *const may_pass[] = {"08000", "08006", "40000", "40002", "40003", "58000",
										   "58030", "57P01", "57P02", "57P03", "57P04"};
	static const char *const lasts[] = {"22P02", "23505", "54000", "55000", "57000",
										"57014", "P0001", "XX000", "42501", "57P05"};

	for (int i = 0; i < (int) lengthof(passes); i++)
		is_int(shard_entity_hope(passes[i]), SHARD_ENTITY_PASSES, "%s passes", passes[i]);
	for (int i = 0; i < (int) lengthof(may_pass); i++)
		is_int(shard_entity_hope(may_pass[i]), SHARD_ENTITY_MAY_PASS, "%s may pass", may_pass[i]);
	for (int i = 0; i < (int) lengthof(lasts); i++)
		is_int(shard_entity_hope(lasts[i]), SHARD_ENTITY_LASTS, "%s lasts", lasts[i]);
	for (int i = 0; i < SHARD_ENTITY_DECISIONS; i++)
		is_int(shard_entity_decision(shard_entity_decision_name((ShardEntityDecision) i)), i,
			   "decision %d is known by its name", i);
	is_int(shard_entity_decision("Restart"), SHARD_ENTITY_DECISIONS, "other words are none");
}

static const ShardEntityLimits limits = {.max_attempts = 3,
										 .retry_backoff = 100,
										 .max_retry_backoff = 150,
										 .restart_backoff = 10000,
										 .max_restarts = 2,
										 .failure_backoff = 1000};

/* What a failure leads to, with which pause; -1: none. Without jitter. */
static void
is_verdict(ShardEntityHope hope, ShardEntityDecision decision, bool decided, int attempts,
		   int failures, ShardEntityVerdict verdict, int64 pause, const char *what)
{
	const ShardEntityFailure failure = {.hope = hope,
										.decision = decision,
										.decided = decided,
										.attempts = attempts,
										.failures = failures};
	int64 got = -1;

	is_int(shard_entity_judge(&limits, &failure, &got), verdict, "%s", what);
	is_int(got, pause, "%s: pause", what);
}

/* Each decision, hope and number of attempts against what the rules E20 to E23 say. */
static void
test_all_verdicts(void)
{
	for (int hope = SHARD_ENTITY_LASTS; hope <= SHARD_ENTITY_PASSES; hope++)
		for (int decision = 0; decision < SHARD_ENTITY_DECISIONS; decision++)
			for (int decided = 0; decided < 2; decided++)
				for (int attempts = 1; attempts <= 5; attempts++)
					for (int failures = 1; failures <= 4; failures++)
					{
						bool patient = hope == SHARD_ENTITY_PASSES &&
									   (!decided || decision == SHARD_ENTITY_RESTART);
						int64 again = attempts == 1 ? 100 : 150;
						ShardEntityVerdict verdict;
						char what[100];

						if (patient)
							verdict = SHARD_ENTITY_RETRY;
						else if (decision == SHARD_ENTITY_ESCALATE ||
								 (hope != SHARD_ENTITY_PASSES && failures > 2))
							verdict = SHARD_ENTITY_PAUSE_SHARD;
						else if (decision == SHARD_ENTITY_STOP)
							verdict = SHARD_ENTITY_BURY_AND_STOP;
						else if (decision == SHARD_ENTITY_RESTART &&
								 (hope == SHARD_ENTITY_MAY_PASS || decided) && attempts < 3)
							verdict = SHARD_ENTITY_RETRY;
						else
							verdict = SHARD_ENTITY_BURY;
						snprintf(what, sizeof(what),
								 "hope %d, decision %d%s, attempt %d, failure %d", hope, decision,
								 decided ? " of a decider" : "", attempts, failures);
						is_verdict((ShardEntityHope) hope, (ShardEntityDecision) decision, decided,
								   attempts, failures, verdict,
								   verdict == SHARD_ENTITY_RETRY		 ? again
								   : verdict == SHARD_ENTITY_PAUSE_SHARD ? 1000
																		 : -1,
								   what);
					}
}

static void
test_supervision(void)
{
	ShardEntityLimits others = limits;
	ShardEntityFailure failure = {.hope = SHARD_ENTITY_LASTS, .attempts = 1, .failures = 1000000};
	int64 pause = -1;

	others.max_restarts = -1;
	is_int(shard_entity_judge(&others, &failure, &pause), SHARD_ENTITY_BURY,
		   "without max_restarts no number of failures pauses a shard");
	failure.decision = SHARD_ENTITY_ESCALATE;
	others.failure_backoff = 40;
	for (int attempts = 1; attempts <= 4; attempts++)
	{
		static const int64 pauses[] = {40, 80, 150, 150};

		failure.attempts = attempts;
		is_int(shard_entity_judge(&others, &failure, &pause), SHARD_ENTITY_PAUSE_SHARD,
			   "escalation %d", attempts);
		is_int(pause, pauses[attempts - 1], "its pause");
	}
	failure.random = PG_UINT32_MAX;
	(void) shard_entity_judge(&others, &failure, &pause);
	is_int(pause, 121, "a pause has its jitter");
	failure.hope = SHARD_ENTITY_PASSES;
	failure.decision = SHARD_ENTITY_RESTART;
	(void) shard_entity_judge(&others, &failure, &pause);
	is_int(pause, 121, "an attempt's has, too");
	ok(shard_entity_restarts(&limits, 1, false, &pause) && pause == 10000,
	   "an entity that failed to start tries again after restart_backoff");
	ok(shard_entity_restarts(&limits, 2, false, &pause) && pause == 20000, "then after twice that");
	ok(!shard_entity_restarts(&limits, 3, false, &pause), "M29: but not for ever");
	ok(shard_entity_restarts(&limits, 100, true, &pause) &&
		   pause == shard_entity_longest_restart(&limits),
	   "what may pass is waited for, an hour each time");
}

/* M19: all at once; M23: with a constant rate, so many of the type in a period, whatever shards they are of. */
static void
test_recovery(void)
{
	const ShardRecoveryRate rate = {.number = 5, .period = 100, .workers = 1};
	const ShardRecoveryRate shared = {.number = 5, .period = 100, .workers = 3};
	ShardRecoveryPace pace = {0};
	int64 again;

	is_int(shard_recovery_allows(&rate, &pace, 1000, &again), 5, "the first period begins at once");
	shard_recovery_started(&pace, 3);
	is_int(shard_recovery_allows(&rate, &pace, 1050, &again), 2, "M23: two are left in it");
	shard_recovery_started(&pace, 2);
	is_int(shard_recovery_allows(&rate, &pace, 1099, &again), 0, "then none");
	is_int(again, 1100, "until it is over");
	is_int(shard_recovery_allows(&rate, &pace, 1100, &again), 5, "and the next one begins");
	shard_recovery_started(&pace, 5);
	is_int(shard_recovery_allows(&rate, &pace, 500, &again), 5,
		   "a clock that went back holds nothing up");
	pace = (ShardRecoveryPace){0};
	is_int(shard_recovery_allows(&shared, &pace, 1000, &again), 5,
		   "of three workers each has the number,");
	shard_recovery_started(&pace, 5);
	is_int(shard_recovery_allows(&shared, &pace, 1299, &again), 0,
		   "in a period that is three times as long");
	is_int(again, 1300, "and no shorter");
}

/*
 * A worker that has messages all the time, whose turns take so long, and which starts entities for as long as it may: of
 * a second the time that these have, in ms.
 */
static int
time_of_starts(int64 turn)
{
	int64 now = 1000000000;
	int64 end = now + 1000000;
	ShardRecoveryTime time = {.started = now};
	int64 total = 0;

	while (now < end)
	{
		int64 again;
		int64 some;

		now += turn;
		time.handled = now;
		some = shard_recovery_time(&time, now, &again);
		if (some == 0 && again <= now)
			return -1;
		total += some;
		now += some;
		if (some > 0)
			time.started = now;
	}
	return (int) (total / 1000);
}

static void
test_recovery_time(void)
{
	ShardRecoveryTime time = {0};
	int64 again;

	is_int(shard_recovery_time(&time, 1000000, &again), SHARD_RECOVERY_TURN,
		   "without messages entities start for a whole piece");
	time = (ShardRecoveryTime){.handled = 1000000, .started = 1000000};
	is_int(shard_recovery_time(&time, 1001000, &again), 0, "with messages they have to wait");
	is_int(again, 1006000, "until the others have had their part");
	is_int(shard_recovery_time(&time, 1004900, &again), 0, "though none are handled just now,");
	is_int(shard_recovery_time(&time, 1005000, &again), SHARD_RECOVERY_TURN,
		   "for a moment, in which no more come");
	time = (ShardRecoveryTime){.handled = 1100000, .started = 1000000};
	is_int(shard_recovery_time(&time, 1100000, &again), SHARD_RECOVERY_MOST,
		   "a turn that was long is no reason for a long piece");
	is_int(again, 0, "and they may go on at once");
	time = (ShardRecoveryTime){.handled = 1000000, .started = 1000000};
	is_int(shard_recovery_time(&time, 5000, &again), SHARD_RECOVERY_TURN,
		   "a clock that went back holds nothing up");
	for (int64 turn = 10; turn <= 30000; turn = turn * 3 / 2)
	{
		char name[64];
		int starts = time_of_starts(turn);

		snprintf(name, sizeof(name), "M23: of turns of %d us messages keep 0.85", (int) turn);
		ok(starts >= 80 && starts <= 150, name);
	}
	ok(time_of_starts(100000) >= 100, "and beside the longest ones entities start, too");
}

int
main(void)
{
	test_remembered();
	test_forgotten();
	test_held();
	test_illegal();
	test_all_steps();
	test_listing();
	test_backoff();
	test_jitter();
	test_hope();
	test_all_verdicts();
	test_supervision();
	test_recovery();
	test_recovery_time();
	return unit_done();
}
