/*
 * fuzz.h
 *		What the fuzzed programs share.
 *
 * libFuzzer calls LLVMFuzzerTestOneInput with bytes; whatever they are, the program must not crash, and
 * what it takes in must be what it would have written.
 */
#pragma once

#include "postgres_fe.h"

#include "lib/stringinfo.h"

extern int LLVMFuzzerTestOneInput(const uint8 *data, size_t size);

/* A promise was broken: the input is kept by libFuzzer. */
#define FUZZ_CHECK(condition) \
	do \
	{ \
		if (!(condition)) \
		{ \
			fprintf(stderr, "%s:%d: not true: %s\n", __FILE__, __LINE__, #condition); \
			abort(); \
		} \
	} while (0)
