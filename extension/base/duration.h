/*
 * base/duration.h
 *		Spans of time as microseconds and as text that reads the same everywhere.
 */
#pragma once

#include "datatype/timestamp.h"

/* "number unit" with the longest unit that leaves a whole number; palloc'd. */
extern char *shard_duration_format(int64 microseconds);

/* Rounded, for people: "2.6 s"; palloc'd. */
extern char *shard_duration_rounded(int64 microseconds);

/* The microseconds of a text that shard_duration_format wrote; error on anything else. */
extern int64 shard_duration_parse(const char *text);

/* An interval in microseconds, a month being 30 days; beyond int64, the largest or least int64. */
extern int64 shard_duration_from_interval(const Interval *interval);
