/*
 * core/base/text.h
 *		Texts for people: cut where there is room for no more, between characters and never within one; and with what would
 *		not be seen, made visible.
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

/*
 * A copy in which control characters are seen: \n, \r, \t and \x1b. What users have given, an id or an error's text, can then
 * not pass for a line of its own, nor steer a terminal. to has room for SHARD_TEXT_VISIBLE bytes for each.
 */
#define SHARD_TEXT_VISIBLE 4
extern void shard_text_visible(char *to, const char *from);

/* The same, allocated. */
extern char *shard_text_shown(const char *from);
