/*
 * log/log_seq.h
 *		Where the numbers of a log begin after a start (D8).
 */
#pragma once

/* The first number after a start of the server, or of a new log. last: the greatest that is found; 0: none. */
extern int64 shard_log_first_seq(int64 last);
