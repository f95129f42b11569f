/*
 * core/base/text.c
 *		Texts that are cut, and such that are made visible.
 */
#ifndef FRONTEND
#include "postgres.h"
#else
#include "postgres_fe.h"
#endif

#include "core/base/text.h"

/* Is a byte one that continues a character of UTF-8? */
static bool
goes_on(char byte)
{
	return ((unsigned char) byte & 0xC0) == 0x80;
}

int
shard_text_fit(const char *text, int most)
{
	int length = (int) strnlen(text, (size_t) most + 1);

	if (length <= most)
		return length;
	length = most;
#ifndef SHARD_MUTANT_CUT_ANYWHERE
	while (length > 0 && most - length < 4 && goes_on(text[length]))
		length--;
#endif
	return length;
}

void
shard_text_copy(char *to, const char *from, size_t size)
{
	int length = shard_text_fit(from, (int) size - 1);

	/* it may be the same text, which is cut in its place */
	memmove(to, from, length);
	to[length] = '\0';
}

void
shard_text_copy_words(char *to, const char *from, size_t size)
{
	static const char cut[] = " ...";
	bool fits = strnlen(from, size) < size;
	char *end;

	shard_text_copy(to, from, fits ? size : size - strlen(cut));
	if (fits)
		return;
	/* the last word may be whole, which the cut text does not tell */
	end = strrchr(to, ' ');
	strcpy(end != NULL ? end : to + strlen(to), cut);
}

void
shard_text_mend(char *text)
{
	int length = (int) strlen(text);
	int tail = 0;
	unsigned char lead;

	while (tail < length && tail < 3 && goes_on(text[length - 1 - tail]))
		tail++;
	if (tail == length)
		return;
	lead = (unsigned char) text[length - 1 - tail];
	if (lead >= (tail >= 3 ? 0xFF : tail == 2 ? 0xF0 : tail == 1 ? 0xE0 : 0xC0))
		text[length - 1 - tail] = '\0';
}

void
shard_text_visible(char *to, const char *from)
{
	static const char hex[] = "0123456789abcdef";

	for (; *from != '\0'; from++)
	{
		unsigned char c = (unsigned char) *from;

		if (c >= ' ' && c != 0x7f)
		{
			*to++ = *from;
			continue;
		}
		*to++ = '\\';
		if (c == '\n' || c == '\r' || c == '\t')
			*to++ = c == '\n' ? 'n' : c == '\r' ? 'r' : 't';
		else
		{
			*to++ = 'x';
			*to++ = hex[c >> 4];
			*to++ = hex[c & 15];
		}
	}
	*to = '\0';
}

char *
shard_text_shown(const char *from)
{
	char *to = palloc(SHARD_TEXT_VISIBLE * strlen(from) + 1);

	shard_text_visible(to, from);
	return to;
}
