/*
 * mode.h
 *		Between the program and the ways in which it simulates.
 */
#pragma once

#include "postgres_fe.h"

/* Options, each a bit of a set. */
typedef enum Option
{
	OPTION_MODE = 1,
	OPTION_SEED,
	OPTION_SEEDS,
	OPTION_MINUTES,
	OPTION_TRACE,
	OPTION_NO_SHRINK,
	OPTION_KEEP_GOING,
	OPTION_EXPECT_VIOLATION,
	OPTION_LIST,
	OPTION_HELP,
	/* of whole and control */
	OPTION_NODES,
	OPTION_FIRST_OF_MODES = OPTION_NODES, /* those before are of all modes */
	OPTION_SECONDS,
	OPTION_FAULTS,
	OPTION_ONLY,
	OPTION_LIVENESS,
	OPTION_LEASED,
	OPTION_REPLICAS,
	OPTION_JOURNAL,
	OPTION_STORM,
	/* of flow */
	OPTION_RETURNS
} Option;

#define option_bit(option) (UINT64CONST(1) << (option))

/* What histories are made of beside their seeds. -1: the seed says. */
typedef struct Arguments
{
	uint64 given; /* options */
	int nodes;	  /* 0: the seed says */
	int seconds;
	int faults;
	uint64 kinds;
	int liveness;
	int leased;
	int replicas;
	int storm;
	bool journal;
	bool returns;
	bool trace;
	bool shrink;
} Arguments;

/* What of a cluster is real and what is modelled. */
typedef struct Mode
{
	const char *name;
	uint64 options; /* those of its own */

	/* Run the history of a seed. True: all was well; else text gets the violation. */
	bool (*run)(const Arguments *arguments, uint64 seed, char *text, size_t size);

	/* Print the violation that the seed came to, and all that the history needs for it. */
	void (*report)(const Arguments *arguments, uint64 seed, const char *text);

	/* Print what happened in all histories together. */
	void (*sum)(int64 histories, double seconds);
} Mode;

extern const Mode mode_whole;	/* history.c */
extern const Mode mode_control; /* the same */
extern const Mode mode_flow;	/* oracle_history.c */
extern const Mode mode_life;	/* life_history.c */
extern const Mode mode_copies;	/* copies.c */
