/*
 * core/base/text.h
 *		Texts for people that are cut where there is room for no more: between characters, never within one.
 *
 * A character of UTF-8 that is cut is no text, and what shows it would raise. In other encodings as much as three bytes more
 * may go.
 */
#pragma once

/* As many bytes of a text as fit into that number, in whole characters; for "%.*s". */
extern int shard_text_fit(const char *text, int most);

/* A copy that fits, as strlcpy() makes it. */
extern void shard_text_copy(char *to, const char *from, size_t size);

/* What snprintf() has cut ends with a whole character. */
extern void shard_text_mend(char *text);
