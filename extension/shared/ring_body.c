/*
 * shared/ring_body.c
 *		What a request or a reply carries: bytes, in its slot or in a DSM segment.
 */
#include "postgres.h"

#include "lib/stringinfo.h"
#include "libpq/pqformat.h"
#include "mb/pg_wchar.h"
#include "port/pg_bswap.h"
#include "utils/memutils.h"

#include "shared/ring_private.h"

#include "base/compat.h"

/*
 * Makes the body SQL NULL. Frees nothing of its former content.
 */
void
shard_ring_body_clear(ShardRingBody *body)
{
	body->len = -1;
	body->handle = DSM_HANDLE_INVALID;
}

/*
 * Writes bytes into the slot, or into a segment made for them. The handle is set last: a process that finds a handle in
 * the body of a process that died may unpin it.
 */
dsm_segment *
shard_ring_body_write(ShardRingBody *body, const char *data, int len, bool pin)
{
	dsm_segment *segment;

	shard_ring_body_clear(body);
	if (data == NULL)
		return NULL;
	if (len <= SHARD_RING_INLINE)
	{
		memcpy(body->data, data, len);
		body->len = len;
		return NULL;
	}

	segment = dsm_create(len, 0);
	memcpy(dsm_segment_address(segment), data, len);
	body->len = len;
	if (pin)
		dsm_pin_segment(segment);
	body->handle = dsm_segment_handle(segment);
	if (!pin)
		return segment;
	dsm_detach(segment);
	return NULL;
}

/*
 * Copies the bytes out.
 */
bool
shard_ring_body_read(const ShardRingBody *body, char **data, int *len)
{
	dsm_segment *segment;

	*data = NULL;
	*len = body->len;
	if (body->len < 0)
		return true;

	*data = palloc(Max(body->len, 1));
	if (body->handle == DSM_HANDLE_INVALID)
	{
		memcpy(*data, body->data, body->len);
		return true;
	}
	segment = dsm_attach(body->handle);
	if (segment == NULL)
		return false;
	memcpy(*data, dsm_segment_address(segment), body->len);
	dsm_detach(segment);
	return true;
}

/*
 * Unpins the segment, if there is one. It goes with its last mapping.
 */
void
shard_ring_body_drop(ShardRingBody *body)
{
	dsm_handle handle = body->handle;

	body->handle = DSM_HANDLE_INVALID;
	if (handle != DSM_HANDLE_INVALID)
		dsm_unpin_segment(handle);
}

/* The texts of an error that its receiver is shown. */
static const size_t error_texts[] = {
	offsetof(ErrorData, message),		 offsetof(ErrorData, detail),
	offsetof(ErrorData, hint),			 offsetof(ErrorData, context),
	offsetof(ErrorData, schema_name),	 offsetof(ErrorData, table_name),
	offsetof(ErrorData, column_name),	 offsetof(ErrorData, datatype_name),
	offsetof(ErrorData, constraint_name)};

/*
 * One of them.
 */
static inline char **
text_of(const ErrorData *error, int number)
{
	return (char **) ((char *) error + error_texts[number]);
}

/*
 * The parts of an error that its receiver is shown; palloc'd.
 */
char *
shard_ring_body_pack_error(const ErrorData *error, int *len)
{
	StringInfoData out;

	initStringInfo(&out);
	pq_sendint32(&out, error->sqlerrcode);
	for (int i = 0; i < lengthof(error_texts); i++)
	{
		const char *text = *text_of(error, i);

		pq_sendint8(&out, text != NULL);
		if (text != NULL)
			appendBinaryStringInfo(&out, text, strlen(text) + 1);
	}
	*len = out.len;
	return out.data;
}

/*
 * A text of bytes that may be anything; moves *at on. False: there is none.
 */
static bool
unpack_string(const char **at, const char *end, char **string)
{
	const char *begin = *at;
	const char *terminator;

	*string = NULL;
	if (begin == end || (*begin != 0 && *begin != 1))
		return false;
	*at = begin + 1;
	if (*begin == 0)
		return true;
	begin = *at;
	terminator = memchr(begin, '\0', end - begin);
	if (terminator == NULL ||
		!pg_verify_mbstr(GetDatabaseEncoding(), begin, (int) (terminator - begin), true))
		return false;
	*string = pstrdup(begin);
	*at = terminator + 1;
	return true;
}

bool
shard_ring_body_unpack_error(const char *data, int len, ErrorData *error)
{
	const char *at = data + sizeof(uint32);
	const char *end = data + len;
	uint32 sqlstate;

	memset(error, 0, sizeof(ErrorData));
	if (len < (int) sizeof(sqlstate))
		return false;
	memcpy(&sqlstate, data, sizeof(sqlstate));
	error->sqlerrcode = (int) pg_ntoh32(sqlstate);
	for (int i = 0; i < lengthof(error_texts); i++)
		if (!unpack_string(&at, end, text_of(error, i)))
			return false;
	return at == end && error->message != NULL &&
		   ERRCODE_TO_CATEGORY(error->sqlerrcode) != ERRCODE_SUCCESSFUL_COMPLETION;
}

/*
 * Raises an error that another process has packed.
 */
void
shard_ring_body_throw(const char *data, int len)
{
	ErrorData error;

	if (!shard_ring_body_unpack_error(data, len, &error))
		ereport(ERROR, (errcode(ERRCODE_DATA_CORRUPTED),
						errmsg("the error of a shard worker could not be read"),
						errdetail("The error was raised by the handler, or on the way to the "
								  "handler.")));
	error.elevel = ERROR;
	ThrowErrorData(&error);
	pg_unreachable();
}
