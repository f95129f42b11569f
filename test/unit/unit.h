/*
 * unit.h
 *		The smallest harness for unit tests in C: TAP on standard output.
 *
 * A test is a program that calls ok() and is_int() and ends main() with
 * "return unit_done();".
 */
#pragma once

#include <stdarg.h>

static int unit_tests;
static int unit_failures;

#define ok(condition, ...) unit_ok((condition), __FILE__, __LINE__, __VA_ARGS__)
#define is_int(got, wanted, ...) unit_is_int((got), (wanted), __FILE__, __LINE__, __VA_ARGS__)

/*
 * Print the result line of one test, and where it stands if it failed.
 * Returns whether it passed.
 */
static bool
unit_report(bool passed, const char *file, int line, const char *name, va_list args)
{
	printf("%sok %d - ", passed ? "" : "not ", ++unit_tests);
	vprintf(name, args);
	printf("\n");

	if (!passed)
	{
		unit_failures++;
		printf("#   at %s line %d\n", file, line);
	}
	return passed;
}

/*
 * One test that passes if the condition holds; its name is a format.
 */
pg_attribute_unused()
	pg_attribute_printf(4, 5) static bool unit_ok(bool condition, const char *file, int line,
												  const char *name, ...)
{
	va_list args;

	va_start(args, name);
	unit_report(condition, file, line, name, args);
	va_end(args);
	return condition;
}

/*
 * One test that passes if two integers are equal; prints both if not.
 */
pg_attribute_unused()
	pg_attribute_printf(5, 6) static bool unit_is_int(int64 got, int64 wanted, const char *file,
													  int line, const char *name, ...)
{
	va_list args;

	va_start(args, name);
	if (!unit_report(got == wanted, file, line, name, args))
		printf("#   got " INT64_FORMAT ", wanted " INT64_FORMAT "\n", got, wanted);
	va_end(args);
	return got == wanted;
}

/*
 * Print the plan; returns the exit code of the program.
 */
pg_attribute_unused() static int unit_done(void)
{
	printf("1..%d\n", unit_tests);
	return unit_failures == 0 ? 0 : 1;
}
