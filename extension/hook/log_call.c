/*
 * hook/log_call.c
 *		Where a statement gives an address.
 *
 * Statements come here that the server's parser could not read, so this reads no more of them than is needed: comments,
 * literals, names, in the server's sense of these (scan.l). Literals are searched as they are, since DO, EXECUTE and
 * the like run them.
 */
#include "postgres.h"

#include <ctype.h>

#include "parser/parser.h"
#include "parser/scansup.h"

#include "hook/hook.h"

#include "base/compat.h"

static const char *const function_name = "shard_join";
static const char *const setting_name = "journal_dsn";

static bool
begins_name(char c)
{
	return isalpha((unsigned char) c) || c == '_' || IS_HIGHBIT_SET(c);
}

static bool
goes_on_name(char c)
{
	return begins_name(c) || isdigit((unsigned char) c) || c == '$';
}

static bool
is_name(const char *text, size_t length, const char *name)
{
	return length == strlen(name) && pg_strncasecmp(text, name, length) == 0;
}

/* Behind a comment that begins here; here, if none does. Comments may be nested. */
static const char *
behind_comment(const char *at)
{
	int depth = 0;

	if (at[0] == '-' && at[1] == '-')
		return at + strcspn(at, "\n\r");
	if (at[0] != '/' || at[1] != '*')
		return at;
	while (*at != '\0')
	{
		if (at[0] == '/' && at[1] == '*')
		{
			depth++;
			at += 2;
		}
		else if (at[0] == '*' && at[1] == '/')
		{
			at += 2;
			if (--depth == 0)
				break;
		}
		else
			at++;
	}
	return at;
}

static const char *
behind_space(const char *at)
{
	for (;;)
	{
		const char *next = scanner_isspace(*at) ? at + 1 : behind_comment(at);

		if (next == at)
			return at;
		at = next;
	}
}

/* The end of what a quote opened, at the closing one, or that of the text; doubled ones belong to it. */
static const char *
end_of_quoted(const char *at, char quote, bool escapes)
{
	for (; *at != '\0'; at++)
	{
		if (escapes && *at == '\\' && at[1] != '\0')
			at++;
		else if (*at == quote && at[1] == quote)
			at++;
		else if (*at == quote)
			break;
	}
	return at;
}

/* The length of $tag$; 0: there is none. */
static size_t
dollar_tag(const char *at)
{
	size_t length = 1;

	if (*at != '$')
		return 0;
	if (begins_name(at[1]))
		while (goes_on_name(at[length]) && at[length] != '$')
			length++;
	return at[length] == '$' ? length + 1 : 0;
}

/* The end of what a tag opened, at the closing one. */
static const char *
end_of_dollars(const char *at, const char *tag, size_t length)
{
	while (*at != '\0' && strncmp(at, tag, length) != 0)
		at++;
	return at;
}

/* Whether a name that ends here is called, or set. */
static bool
is_used(const char *name, size_t length, const char *end)
{
	if (is_name(name, length, function_name))
		return *behind_space(end) == '(';
	if (!is_name(name, length, setting_name))
		return false;
	end = behind_space(end);
	return *end == '=' || pg_strncasecmp(end, "to", 2) == 0;
}

/*
 * Searches text of this length, whatever its quotes, for a name, perhaps the end of a quote, and an opening bracket; or
 * for the setting.
 */
static bool
search(const char *text, size_t bytes)
{
	size_t function_length = strlen(function_name);
	size_t setting_length = strlen(setting_name);

	for (size_t i = 0; i < bytes; i++)
	{
		size_t end = i + function_length;

		if (i + setting_length <= bytes && is_name(text + i, setting_length, setting_name))
			return true;
		if (end > bytes || !is_name(text + i, function_length, function_name))
			continue;
		while (end < bytes && (text[end] == '"' || scanner_isspace(text[end])))
			end++;
		if (end < bytes && (text[end] == '(' || text[end] == '/' || text[end] == '-'))
			return true;
	}
	return false;
}

bool
shard_log_call_in_text(const char *text)
{
	return search(text, strlen(text));
}

bool
shard_log_call_in_statement(const char *statement, size_t *shown)
{
	const char *at = statement;
	bool found = false;
	bool open = false; /* the text from here on is not to be shown */
	size_t length;

	*shown = strlen(statement);
	while (*at != '\0')
	{
		const char *begin = at;
		const char *end = behind_comment(at);
		bool used = false;

		if (end != at)
		{
			at = end;
			open = true;
		}
		else if (*at == '\'' || (*at != '\0' && strchr("eE", *at) != NULL && at[1] == '\''))
		{
			bool escapes = *at != '\'' || !standard_conforming_strings;
			const char *content = at + (*at == '\'' ? 1 : 2);

			end = end_of_quoted(content, '\'', escapes);
			used = search(content, end - content);
			at = end + (*end != '\0' ? 1 : 0);
			open = true;
		}
		else if ((length = dollar_tag(at)) > 0)
		{
			end = end_of_dollars(at + length, at, length);
			used = search(at + length, end - (at + length));
			at = end + (*end != '\0' ? length : 0);
			open = true;
		}
		else if (*at == '"')
		{
			end = end_of_quoted(at + 1, '"', false);
			at = end + (*end != '\0' ? 1 : 0);
			used = is_used(begin + 1, end - (begin + 1), at);
		}
		else if (begins_name(*at))
		{
			while (goes_on_name(*at))
				at++;
			used = is_used(begin, at - begin, at);
		}
		else
			at++;
		found |= used;
		if (open || used)
			*shown = Min(*shown, (size_t) (begin - statement));
	}
	return found;
}
