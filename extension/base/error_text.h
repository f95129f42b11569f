/*
 * base/error_text.h
 *		Errors of user code, as much of their texts as is kept.
 */
#pragma once

/* The most bytes of each text; a text that was cut says at its end how long it was. */
#define SHARD_ERROR_TEXT_BYTES 8192

/*
 * Cuts all texts of an error that CopyErrorData() has just made, in the error's memory. To be called before anything
 * else is done with the error: its texts are freed, so none may be a constant.
 */
extern void shard_error_text_cut(ErrorData *error);
