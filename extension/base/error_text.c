/*
 * base/error_text.c
 *		Errors of user code, as much of their texts as is kept.
 *
 * A handler raises errors of any length, for each message that it is sent. They come into the stash, among the dead
 * letters, into the server's log and to askers, none of which is the handler's to fill.
 */
#include "postgres.h"

#include "mb/pg_wchar.h"
#include "utils/memutils.h"

#include "base/error_text.h"

#include "base/compat.h"

/* The texts of an error that user code can choose, even by the name of a column. */
static const size_t texts[] = {
	offsetof(ErrorData, message),		  offsetof(ErrorData, detail),
	offsetof(ErrorData, detail_log),	  offsetof(ErrorData, hint),
	offsetof(ErrorData, context),		  offsetof(ErrorData, backtrace),
	offsetof(ErrorData, schema_name),	  offsetof(ErrorData, table_name),
	offsetof(ErrorData, column_name),	  offsetof(ErrorData, datatype_name),
	offsetof(ErrorData, constraint_name), offsetof(ErrorData, internalquery)};

/* The front of a text, whole characters, and how much there was. */
static char *
front_of(const char *text, size_t bytes)
{
	int kept = pg_mbcliplen(text, (int) bytes, SHARD_ERROR_TEXT_BYTES);

	return psprintf("%.*s... (%zu bytes, cut off)", kept, text, bytes);
}

void
shard_error_text_cut(ErrorData *error)
{
	MemoryContext old = MemoryContextSwitchTo(error->assoc_context);

	for (int i = 0; i < (int) lengthof(texts); i++)
	{
		char **place = (char **) ((char *) error + texts[i]);
		size_t bytes = *place == NULL ? 0 : strlen(*place);

		if (bytes > SHARD_ERROR_TEXT_BYTES)
		{
			char *whole = *place;

			*place = front_of(whole, bytes);
			pfree(whole);
		}
	}
	MemoryContextSwitchTo(old);
}
