/*
 * text_test.c
 *		Texts that are cut end with a whole character.
 */
#include "postgres_fe.h"

#include "core/base/text.h"
#include "unit.h"

static void
test_fit(void)
{
	is_int(shard_text_fit("abc", 5), 3, "all of a short text");
	is_int(shard_text_fit("abcdef", 5), 5, "as much as fits");
	is_int(shard_text_fit("a\xC3\xA9", 3), 3, "two bytes that fit");
	is_int(shard_text_fit("ab\xC3\xA9", 3), 2, "of which one does");
	is_int(shard_text_fit("a\xE2\x82\xAC", 3), 1, "of three bytes two");
	is_int(shard_text_fit("a\xF0\x9F\x98\x80", 4), 1, "of four bytes three");
	is_int(shard_text_fit("a\xF0\x9F\x98\x80z", 5), 5, "all of them");
	is_int(shard_text_fit("\xE2\x82\xAC", 1), 0, "nothing fits");
}

static void
test_copy(void)
{
	char text[5];

	shard_text_copy(text, "abc\xC3\xA9", sizeof(text));
	ok(strcmp(text, "abc") == 0, "a copy ends before what does not fit: %s", text);
	shard_text_copy(text, "ab\xC3\xA9", sizeof(text));
	ok(strcmp(text, "ab\xC3\xA9") == 0, "and has what fits");
	shard_text_copy(text, text, sizeof(text));
	ok(strcmp(text, "ab\xC3\xA9") == 0, "of itself, too");
}

static void
test_words(void)
{
	char text[12];

	shard_text_copy_words(text, "user, base", sizeof(text));
	ok(strcmp(text, "user, base") == 0, "a text that fits is whole: %s", text);
	shard_text_copy_words(text, "user,base x", sizeof(text));
	ok(strcmp(text, "user,base x") == 0, "to the last byte: %s", text);
	shard_text_copy_words(text, "user database x", sizeof(text));
	ok(strcmp(text, "user ...") == 0, "one that is cut ends with a whole word: %s", text);
	shard_text_copy_words(text, "userdatabase", sizeof(text));
	ok(strcmp(text, "userdat ...") == 0, "and without words where it is full: %s", text);
}

/* What is left of a text that snprintf() has cut. */
static int
mended(const char *whole, size_t size)
{
	char text[32];

	snprintf(text, size, "%s", whole);
	shard_text_mend(text);
	return (int) strlen(text);
}

static void
test_mend(void)
{
	is_int(mended("abcdef", 4), 3, "characters of one byte");
	is_int(mended("ab\xC3\xA9", 4), 2, "half of two bytes");
	is_int(mended("ab\xC3\xA9", 5), 4, "two whole bytes");
	is_int(mended("a\xE2\x82\xAC", 4), 1, "two of three");
	is_int(mended("a\xE2\x82\xAC", 5), 4, "three of three");
	is_int(mended("a\xF0\x9F\x98\x80", 3), 1, "one of four");
	is_int(mended("a\xF0\x9F\x98\x80", 5), 1, "three of four");
	is_int(mended("a\xF0\x9F\x98\x80", 6), 5, "four of four");
	is_int(mended("", 1), 0, "nothing");
}

static void
test_visible(void)
{
	char text[64];
	char *shown;

	shard_text_visible(text, "a \\n \xC3\xA9 \xF0\x9F\x98\x80~");
	ok(strcmp(text, "a \\n \xC3\xA9 \xF0\x9F\x98\x80~") == 0, "what is seen stays as it is: %s",
	   text);
	shard_text_visible(text, "a\nb\r\tc\x1b[2J\x01\x1f\x7f");
	ok(strcmp(text, "a\\nb\\r\\tc\\x1b[2J\\x01\\x1f\\x7f") == 0, "control characters are seen: %s",
	   text);
	shard_text_visible(text, "");
	ok(text[0] == '\0', "nothing");
	shown = shard_text_shown("\x01\n\x02");
	ok(strcmp(shown, "\\x01\\n\\x02") == 0, "there is room for it");
	pfree(shown);
}

int
main(void)
{
	test_fit();
	test_copy();
	test_words();
	test_mend();
	test_visible();
	return unit_done();
}
