/*
 * base/argument.h
 *		Arguments of SQL functions.
 */
#pragma once

#include "fmgr.h"

/* Raises ERRCODE_NULL_VALUE_NOT_ALLOWED if an argument is NULL. message: a whole sentence, as errmsg() has it. */
extern void shard_argument_check(FunctionCallInfo fcinfo, int number, const char *message);
