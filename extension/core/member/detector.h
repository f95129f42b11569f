/*
 * core/member/detector.h
 *		Whether a peer is still alive, judged by the times at which it was heard.
 *
 * ShardDetector is the phi accrual detector: it learns how regularly a peer's heartbeats come and
 * says how unlikely its present silence is: phi = -log10(probability of a silence this long).
 * Suspicion begins when phi reaches the threshold. The coordinator's loss must be noticed faster than
 * that allows: its heartbeats have a fixed time (SHARD_ELECTION_TIMEOUT).
 *
 * It is no evidence (T5): a suspicion starts elections and downing, it never proves a death. Times
 * are microseconds of one monotonic clock, given by the caller; one that steps back is taken to stand
 * still. Detectors are plain values, to be embedded in what describes the peer.
 */
#pragma once

#include "core/base/timing.h"

/*
 * Heartbeats that are remembered. The reference keeps 1000; at one a second 200 are three minutes,
 * which follow a change of the network sooner and take 800 bytes a peer.
 */
#define SHARD_DETECTOR_WINDOW 200

typedef struct ShardDetectorSettings
{
	double threshold;		  /* phi at which a peer is suspected; > 0 */
	int64 heartbeat_interval; /* first estimate, with a deviation of a quarter of it; 4 ms .. 1 h */
	int64 acceptable_pause;	 /* silence beyond the usual interval that is no sign yet; 0 .. 1 day */
	int64 min_std_deviation; /* or a very regular peer would be suspected at once; 1 us .. 1 h */
} ShardDetectorSettings;

#define SHARD_DETECTOR_DEFAULTS \
	((ShardDetectorSettings){.threshold = 8.0, \
							 .heartbeat_interval = SHARD_MEMBER_HEARTBEAT_INTERVAL, \
							 .acceptable_pause = 3 * SHARD_SECOND, \
							 .min_std_deviation = 100 * SHARD_MS})

typedef struct ShardDetector
{
	ShardDetectorSettings settings;
	double patience; /* standard deviations above the mean at which phi is the threshold */

	bool monitoring; /* has been heard at least once */
	int64 latest;	 /* when it was heard last */
	int64 deadline;	 /* when suspicion begins */

	/* Intervals in whole milliseconds; sums are exact, so they cannot drift. */
	int n_samples;
	int next_sample; /* the one that is replaced next, once the window is full */
	int64 sum;
	int64 sum_of_squares;
	int32 samples[SHARD_DETECTOR_WINDOW];
} ShardDetector;

/* A fresh detector that has heard nothing; NULL: the defaults. False if settings are out of range. */
extern bool shard_detector_init(ShardDetector *detector, const ShardDetectorSettings *settings);

/*
 * The peer was heard. The caller also calls this when it begins to watch a peer that has not spoken
 * yet: a detector that never heard anything never suspects.
 */
extern void shard_detector_heartbeat(ShardDetector *detector, int64 now);

/* The peer has said that it ends: it is not available until it is heard again. */
extern void shard_detector_goodbye(ShardDetector *detector, int64 now);

/* Suspicion now; 0 for a peer that was never heard. For people to read: decisions use shard_detector_available(). */
extern double shard_detector_phi(const ShardDetector *detector, int64 now);

/* Whether the peer is not suspected; exactly the time before the deadline. */
extern bool shard_detector_available(const ShardDetector *detector, int64 now);

/* When suspicion begins if nothing is heard; PG_INT64_MAX for a peer that was never heard. */
extern int64 shard_detector_deadline(const ShardDetector *detector);
