/*
 * forms.h
 *		Records that go as bytes: what holds for the writer and the reader of each of them.
 */
#pragma once

#include "core/base/wire.h"
#include "unit.h"

typedef struct Form
{
	const char *name;
	size_t size;
	bool (*get)(ShardReader *, void *);
	void (*put)(StringInfo, const void *);
} Form;

/* The functions of a FORM: calls through another type of pointer would not quite be C. */
#define FORM_FUNCTIONS(prefix, name, type, suffix) \
	static bool get_##name(ShardReader *reader, void *record) \
	{ \
		return prefix##_get##suffix(reader, (type *) record); \
	} \
	static void put_##name(StringInfo out, const void *record) \
	{ \
		prefix##_put##suffix(out, (const type *) record); \
	}
#define FORM(name, type) \
	{ \
#name, sizeof(type), get_##name, put_##name \
	}

/* A reader of bytes that are the whole of their own allocation; free(*copy) afterwards. */
static inline ShardReader
reader_of(const char *bytes, size_t length, char **copy)
{
	*copy = malloc(Max(length, 1));
	memcpy(*copy, bytes, length);
	return (ShardReader){*copy, *copy + length, false};
}

static inline const Form *
find_form(const Form *forms, size_t count, const char *name)
{
	for (size_t i = 0; i < count; i++)
		if (strcmp(forms[i].name, name) == 0)
			return &forms[i];
	return NULL;
}

/* Encode what was decoded again: the same bytes? */
static inline bool
same_again(const Form *form, const void *got, const char *bytes, size_t length)
{
	StringInfoData out;
	bool same;

	initStringInfo(&out);
	form->put(&out, got);
	same = (size_t) out.len == length && memcmp(out.data, bytes, length) == 0;
	pfree(out.data);
	return same;
}

/* A good record comes back from its bytes, and from no beginning of them, which leaves zeros. */
static inline void
check_round_trip(const Form *form, const void *record, const char *what)
{
	char *got = malloc(form->size);
	char *zero = calloc(1, form->size);
	StringInfoData out;
	ShardReader reader;
	char *copy;

	initStringInfo(&out);
	form->put(&out, record);
	reader = reader_of(out.data, out.len, &copy);
	ok(form->get(&reader, got) && !reader.failed && reader.at == reader.end &&
		   same_again(form, got, out.data, out.len),
	   "%s: %s comes back", form->name, what);
	ok(!form->get(&reader, got) && !reader.failed, "%s: then comes the end", form->name);
	free(copy);
	for (int length = 1; length < out.len; length++)
	{
		reader = reader_of(out.data, length, &copy);
		if (form->get(&reader, got) || !reader.failed || reader.at != reader.end ||
			memcmp(got, zero, form->size) != 0)
			ok(false, "%s: %d of %d bytes are none", form->name, length, out.len);
		free(copy);
	}
	pfree(out.data);
	free(got);
	free(zero);
}
