/*
 * core/member/detector.c
 *		Phi accrual failure detection, and the detector with a fixed time-out.
 *
 * Intervals between heartbeats are taken as normally distributed. The tail of the distribution is
 * approximated by a logistic function, 1 - CDF(y) = 1 / (1 + exp(x(y))) with x(y) = b y + a y^3 and
 * y = (silence - mean - acceptable pause) / deviation, so phi = log10(1 + exp(x)). That is one
 * formula for both halves of the curve, and it neither overflows nor loses digits.
 *
 * It rises with y, so "phi >= threshold" is the same as "y >= y of the threshold". The latter is
 * solved once, when a detector is made; from then on the time at which suspicion begins is a sum and
 * a product, known at each heartbeat. Whether a peer is available compares two integers: it cannot
 * disagree with the timer that was set for that time.
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include <math.h>

#include "core/member/detector.h"

#define LOGISTIC_A 0.070566
#define LOGISTIC_B 1.5976
#define LN_10 2.302585092994045684

#define HOUR (INT64CONST(3600) * SHARD_SECOND)
#define DAY (24 * HOUR)

/*
 * Longest interval that counts as it is. Keeps n * sum of squares within 64 bits: 200^2 * 3.6e6^2 is
 * 5.2e17.
 */
#define MAX_SAMPLE_MS 3600000

/*
 * The y at which phi is the given value: the one real root of a y^3 + b y = c, in closed form for a
 * rising cubic. c = ln(10^phi - 1), written so that neither a large nor a tiny phi is lost.
 */
static double
deviations_of_phi(double phi)
{
	double exponent = phi * LN_10;
	double c = exponent > 1.0 ? exponent + log1p(-exp(-exponent)) : log(expm1(exponent));
	double p = LOGISTIC_B / LOGISTIC_A;
	double q = c / LOGISTIC_A;

	return 2.0 * sqrt(p / 3.0) * sinh(asinh(1.5 * q / p * sqrt(3.0 / p)) / 3.0);
}

/* The phi of a silence that lasts y deviations longer than expected: log10(1 + exp(x)). */
static double
phi_of_deviations(double y)
{
	double x = y * (LOGISTIC_B + LOGISTIC_A * y * y);

	return (x > 0.0 ? x + log1p(exp(-x)) : log1p(exp(x))) / LN_10;
}

/*
 * Add an interval to the window, in place of the oldest one if it is full.
 */
static void
add_sample(ShardDetector *detector, int64 interval)
{
	int32 sample = (int32) Min((interval + SHARD_MS / 2) / SHARD_MS, MAX_SAMPLE_MS);
	int32 *place = &detector->samples[detector->next_sample];

	if (detector->n_samples == SHARD_DETECTOR_WINDOW)
	{
		detector->sum -= *place;
		detector->sum_of_squares -= (int64) *place * *place;
	}
	else
		detector->n_samples++;

	*place = sample;
	detector->sum += sample;
	detector->sum_of_squares += (int64) sample * sample;
	detector->next_sample = (detector->next_sample + 1) % SHARD_DETECTOR_WINDOW;
}

/* Usual silence before suspicion sets in, the acceptable pause included, in microseconds. */
static double
expected_silence(const ShardDetector *detector)
{
	return (double) detector->sum / detector->n_samples * SHARD_MS +
		   (double) detector->settings.acceptable_pause;
}

/*
 * Standard deviation of the intervals in microseconds, at least the settings' minimum. The variance
 * is the quotient of two exact integers, never negative.
 */
static double
deviation(const ShardDetector *detector)
{
	int64 n = detector->n_samples;
	int64 numerator = n * detector->sum_of_squares - detector->sum * detector->sum;
	double measured = sqrt((double) numerator) / (double) n * SHARD_MS;

	Assert(numerator >= 0);
	return Max(measured, (double) detector->settings.min_std_deviation);
}

/* How long a silence may be, whole microseconds, rounded up; at least one. */
static int64
bearable_silence(const ShardDetector *detector)
{
	double silence = ceil(expected_silence(detector) + detector->patience * deviation(detector));

	return silence < 1.0 ? 1 : silence > (double) (100 * DAY) ? 100 * DAY : (int64) silence;
}

/*
 * Make a fresh detector. Its window begins with two made-up intervals around the expected one, so
 * that a peer that is heard only once is suspected, too.
 */
bool
shard_detector_init(ShardDetector *detector, const ShardDetectorSettings *settings)
{
	ShardDetectorSettings chosen = settings ? *settings : SHARD_DETECTOR_DEFAULTS;

	memset(detector, 0, sizeof(*detector));
	detector->deadline = PG_INT64_MAX;
	if (!(chosen.threshold > 0.0 && chosen.threshold <= 1000.0) ||
		chosen.heartbeat_interval < 4 * SHARD_MS || chosen.heartbeat_interval > HOUR ||
		chosen.acceptable_pause < 0 || chosen.acceptable_pause > DAY ||
		chosen.min_std_deviation < 1 || chosen.min_std_deviation > HOUR)
		return false;

	detector->settings = chosen;
	detector->patience = deviations_of_phi(chosen.threshold);
	add_sample(detector, chosen.heartbeat_interval - chosen.heartbeat_interval / 4);
	add_sample(detector, chosen.heartbeat_interval + chosen.heartbeat_interval / 4);
	return true;
}

/*
 * Note a sign of life. The interval that ends a suspicion is not learned from: one long pause would
 * make the detector slow for as long as it stays in the window. Nor is a step back of the clock.
 */
void
shard_detector_heartbeat(ShardDetector *detector, int64 now)
{
	if (detector->monitoring && now >= detector->latest && shard_detector_available(detector, now))
		add_sample(detector, now - detector->latest);

	detector->latest = detector->monitoring ? Max(detector->latest, now) : now;
	detector->monitoring = true;
	detector->deadline = detector->latest + bearable_silence(detector);
}

void
shard_detector_goodbye(ShardDetector *detector, int64 now)
{
	detector->deadline = now;
}

double
shard_detector_phi(const ShardDetector *detector, int64 now)
{
	double silence;

	if (!detector->monitoring)
		return 0.0;
	silence = now > detector->latest ? (double) (now - detector->latest) : 0.0;
	return phi_of_deviations((silence - expected_silence(detector)) / deviation(detector));
}

bool
shard_detector_available(const ShardDetector *detector, int64 now)
{
	return now < detector->deadline;
}

int64
shard_detector_deadline(const ShardDetector *detector)
{
	return detector->deadline;
}
