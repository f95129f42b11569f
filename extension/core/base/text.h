/*
 * core/base/text.h
 *		Texts for people that are cut where there is room for no more: between characters, never within one.
 *
 * Part of a UTF-8 character is no valid text, and a function that shows it would raise an error. In other encodings up to
 * three bytes more than necessary are cut.
 */
#pragma once

/* The number of bytes of a text, in whole characters, that is at most most; for "%.*s". */
extern int shard_text_fit(const char *text, int most);

/* A copy that fits, as strlcpy() makes it. */
extern void shard_text_copy(char *to, const char *from, size_t size);

/* The same for texts that are shown: one that is cut ends with a whole word and " ...", if it has words. Size is at least 8. */
extern void shard_text_copy_words(char *to, const char *from, size_t size);

/* Have a text that snprintf() has cut end with a whole character. */
extern void shard_text_mend(char *text);
