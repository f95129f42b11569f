/*
 * detector_test.c
 *		Failure detectors: arithmetic, deadlines, windows, clocks.
 *
 * The values of phi, and of its inverse, were computed from the formula with 60 decimal digits.
 */
#include "postgres_fe.h"

#include <math.h>

#include "core/member/detector.h"
#include "unit.h"

#define START (1000 * SHARD_SECOND)

/* Phi after one heartbeat, with the defaults: mean 1 s, deviation 250 ms, pause 3 s. */
static const struct
{
	int64 silence_ms;
	double phi;
} first_heartbeat[] = {
	{0, 0.0},
	{3000, 0.000007963},
	{3500, 0.009998762},
	{4000, 0.301029996},
	{4250, 0.799508321},
	{4500, 1.642827885},
	{5000, 4.736694583},
	{5250, 7.299947394},
	{5300, 7.917042543},
	{5500, 10.782600858},
	{6000, 21.241600212},
	{8000, 136.629016212},
};

/* Phi for a mean of 1 s and a deviation of 100 ms, no pause. */
static const struct
{
	int64 silence_ms;
	double phi;
} regular_peer[] = {
	{500, 0.000000022},	 {900, 0.075033032},   {1000, 0.301029996},
	{1100, 0.799508321}, {1200, 1.642827885},  {1300, 2.909475326},
	{1500, 7.299947394}, {1600, 10.782600858}, {2000, 37.584713053},
};

/* The number of deviations at which phi reaches a threshold. */
static const struct
{
	double threshold;
	double deviations;
} patience[] = {
	{0.001, -2.815376506080}, {0.1, -0.821307576907}, {1, 1.282215344967},	  {3, 3.058937819446},
	{8, 5.225986644094},	  {12, 6.292124098154},	  {100, 14.323648874205},
};

static bool
near(double got, double wanted)
{
	return fabs(got - wanted) < 1e-8;
}

/* Hears a peer n times, at even intervals; returns the time of the last. */
static int64
hear(ShardDetector *detector, int64 now, int64 interval, int n)
{
	for (int i = 0; i < n; i++)
		shard_detector_heartbeat(detector, now += interval);
	return now;
}

static void
test_values(void)
{
	ShardDetectorSettings settings = SHARD_DETECTOR_DEFAULTS;
	ShardDetector detector;
	int64 now;

	ok(shard_detector_init(&detector, NULL), "the defaults are valid");
	ok(shard_detector_phi(&detector, START) == 0.0, "a peer that was never heard is not suspected");
	ok(shard_detector_available(&detector, START), "a peer that was never heard is available");
	ok(shard_detector_deadline(&detector) == PG_INT64_MAX, "a peer never heard has no deadline");

	shard_detector_heartbeat(&detector, START);
	for (int i = 0; i < (int) lengthof(first_heartbeat); i++)
		ok(near(shard_detector_phi(&detector, START + first_heartbeat[i].silence_ms * SHARD_MS),
				first_heartbeat[i].phi),
		   "phi %d ms after the first heartbeat", (int) first_heartbeat[i].silence_ms);
	is_int(shard_detector_deadline(&detector) - START, 5306497, "first deadline, in us");

	settings.acceptable_pause = 0;
	ok(shard_detector_init(&detector, &settings), "no pause is valid");
	shard_detector_heartbeat(&detector, START);
	now = hear(&detector, START, SHARD_SECOND, 2 * SHARD_DETECTOR_WINDOW);
	for (int i = 0; i < (int) lengthof(regular_peer); i++)
		ok(near(shard_detector_phi(&detector, now + regular_peer[i].silence_ms * SHARD_MS),
				regular_peer[i].phi),
		   "phi after %d ms of a regular peer", (int) regular_peer[i].silence_ms);
	is_int(shard_detector_deadline(&detector) - now, 1522599, "deadline of a regular peer, in us");
}

static void
test_patience(void)
{
	for (int i = 0; i < (int) lengthof(patience); i++)
	{
		ShardDetectorSettings settings = SHARD_DETECTOR_DEFAULTS;
		ShardDetector detector;

		settings.threshold = patience[i].threshold;
		ok(shard_detector_init(&detector, &settings) &&
			   fabs(detector.patience - patience[i].deviations) < 1e-10,
		   "deviations for a threshold of %g", patience[i].threshold);
	}
}

/* Phi crosses the threshold where the deadline says, not a step sooner or later. */
static void
test_deadline(void)
{
	ShardDetector detector;
	int64 now = START;
	int disagreements = 0;

	shard_detector_init(&detector, NULL);
	shard_detector_heartbeat(&detector, now);
	for (int i = 0; i < 1000; i++)
	{
		int64 deadline = shard_detector_deadline(&detector);

		if (!shard_detector_available(&detector, deadline - 1) ||
			shard_detector_available(&detector, deadline) ||
			shard_detector_phi(&detector, deadline + 1) < 8.0 ||
			shard_detector_phi(&detector, deadline - 2) >= 8.0)
			disagreements++;
		now += (500 + i * 7919 % 1500) * SHARD_MS;
		shard_detector_heartbeat(&detector, now);
	}
	is_int(disagreements, 0, "phi, availability and deadline agree");
}

/* After any number of heartbeats the sums are those of the samples in the window. */
static void
test_no_drift(void)
{
	ShardDetector detector;
	int64 now = START;
	uint32 random = 1;
	int64 sum = 0;
	int64 squares = 0;

	shard_detector_init(&detector, NULL);
	shard_detector_heartbeat(&detector, now);
	for (int i = 0; i < 1000000; i++)
	{
		random = random * 1664525 + 1013904223;
		now += random % (3 * SHARD_SECOND);
		shard_detector_heartbeat(&detector, now);
	}
	for (int i = 0; i < SHARD_DETECTOR_WINDOW; i++)
	{
		sum += detector.samples[i];
		squares += (int64) detector.samples[i] * detector.samples[i];
	}
	is_int(detector.n_samples, SHARD_DETECTOR_WINDOW, "the window is full");
	is_int(detector.sum, sum, "no drift of the sum after a million heartbeats");
	is_int(detector.sum_of_squares, squares, "no drift of the squares after a million heartbeats");

	now = hear(&detector, now, SHARD_SECOND, SHARD_DETECTOR_WINDOW + 1);
	is_int(detector.sum, 1000 * SHARD_DETECTOR_WINDOW, "the window forgets what is old");
	is_int(shard_detector_deadline(&detector) - now, 4522599, "as if it had always been regular");
}

static void
test_pauses(void)
{
	ShardDetector detector;
	int64 now;
	int64 sum;

	shard_detector_init(&detector, NULL);
	shard_detector_heartbeat(&detector, START);
	now = hear(&detector, START, SHARD_SECOND, 50);
	ok(shard_detector_available(&detector, now + 4 * SHARD_SECOND), "4 s of silence are borne");
	ok(!shard_detector_available(&detector, now + 5500 * SHARD_MS), "5.5 s of silence are not");

	sum = detector.sum;
	now += 60 * SHARD_SECOND;
	shard_detector_heartbeat(&detector, now);
	ok(shard_detector_available(&detector, now), "who is heard again is available");
	is_int(detector.sum, sum, "the silence of a suspected peer is not learned");

	shard_detector_heartbeat(&detector, now + 2 * SHARD_SECOND);
	is_int(detector.sum, sum + 2000, "a long silence without suspicion is learned");
}

static void
test_clock(void)
{
	ShardDetector detector;
	int64 deadline;
	int64 sum;

	shard_detector_init(&detector, NULL);
	shard_detector_heartbeat(&detector, START);
	hear(&detector, START, SHARD_SECOND, 10);
	deadline = shard_detector_deadline(&detector);
	sum = detector.sum;

	ok(shard_detector_phi(&detector, 0) < 0.001, "no suspicion when the clock steps back");
	ok(shard_detector_available(&detector, PG_INT64_MIN), "available at any earlier time");
	shard_detector_heartbeat(&detector, START);
	is_int(shard_detector_deadline(&detector), deadline, "a backward heartbeat keeps the deadline");
	is_int(detector.sum, sum, "a backward heartbeat is no sample");
	shard_detector_heartbeat(&detector, START + 11 * SHARD_SECOND);
	is_int(detector.sum, sum + 1000, "then all goes on");

	shard_detector_init(&detector, NULL);
	shard_detector_heartbeat(&detector, -START);
	ok(shard_detector_available(&detector, -START + SHARD_SECOND) &&
		   !shard_detector_available(&detector, 0),
	   "times may be negative");
}

static void
test_limits(void)
{
	ShardDetectorSettings settings = SHARD_DETECTOR_DEFAULTS;
	ShardDetector detector;
	int64 now = START;

	settings.threshold = 1000;
	settings.heartbeat_interval = INT64CONST(3600) * SHARD_SECOND;
	settings.acceptable_pause = 24 * settings.heartbeat_interval;
	settings.min_std_deviation = settings.heartbeat_interval;
	ok(shard_detector_init(&detector, &settings), "the largest settings are valid");
	shard_detector_heartbeat(&detector, now);
	for (int i = 0; i < 3 * SHARD_DETECTOR_WINDOW; i++)
		shard_detector_heartbeat(&detector,
								 now += i % 2 == 0 ? 1 : settings.acceptable_pause - SHARD_SECOND);
	ok(shard_detector_deadline(&detector) > now + settings.acceptable_pause &&
		   isfinite(shard_detector_phi(&detector, PG_INT64_MAX)),
	   "the longest intervals do not overflow");

#define REFUSED(field, value) \
	do \
	{ \
		settings = SHARD_DETECTOR_DEFAULTS; \
		settings.field = (value); \
		ok(!shard_detector_init(&detector, &settings), #field " " #value " is refused"); \
	} while (0)
	REFUSED(threshold, 0.0);
	REFUSED(threshold, -1.0);
	REFUSED(threshold, NAN);
	REFUSED(threshold, INFINITY);
	REFUSED(heartbeat_interval, 0);
	REFUSED(heartbeat_interval, 3601 * SHARD_SECOND);
	REFUSED(acceptable_pause, -1);
	REFUSED(min_std_deviation, 0);
}

int
main(void)
{
	test_values();
	test_patience();
	test_deadline();
	test_no_drift();
	test_pauses();
	test_clock();
	test_limits();
	return unit_done();
}
