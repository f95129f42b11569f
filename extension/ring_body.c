/*
 * ring_body.c
 *		What a request or a reply carries: bytes, in its slot or in a DSM segment.
 */
#include "postgres.h"

#include "lib/stringinfo.h"
#include "libpq/pqformat.h"
#include "mb/pg_wchar.h"
#include "port/pg_bswap.h"
#include "utils/memutils.h"

#include "ring_body.h"

#include "compat.h"

/*
 * Makes the body SQL NULL. Nothing of what it held is freed.
 */
void
shard_ring_body_clear(ShardRingBody *body)
{
	body->len = -1;
	body->handle = DSM_HANDLE_INVALID;
}

/*
 * Writes bytes into the slot, or into a segment made for them. The handle is
 * set last: whoever finds one in the body of a process that died may unpin it.
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

/*
 * Appends a string that may be missing.
 */
static void
put_string(StringInfo out, const char *string)
{
	pq_sendint8(out, string != NULL);
	if (string != NULL)
		appendBinaryStringInfo(out, string, strlen(string) + 1);
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
	put_string(&out, error->message);
	put_string(&out, error->detail);
	put_string(&out, error->hint);
	put_string(&out, error->context);
	*len = out.len;
	return out.data;
}

/*
 * Reads what put_string() wrote.
 */
static const char *
get_string(StringInfo in)
{
	return pq_getmsgbyte(in) ? pq_getmsgrawstring(in) : NULL;
}

/*
 * Raises an error that another process has packed.
 */
void
shard_ring_body_throw(const char *data, int len)
{
	StringInfoData in = {.data = unconstify(char *, data), .len = len, .maxlen = len};
	int sqlstate = pq_getmsgint(&in, 4);
	const char *message = get_string(&in);
	const char *detail = get_string(&in);
	const char *hint = get_string(&in);
	const char *context = get_string(&in);

	ereport(ERROR,
			(errcode(sqlstate), errmsg_internal("%s", message ? message : "missing error text"),
			 detail ? errdetail_internal("%s", detail) : 0, hint ? errhint("%s", hint) : 0,
			 context ? errcontext_msg("%s", context) : 0));
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
	return unpack_string(&at, end, &error->message) && unpack_string(&at, end, &error->detail) &&
		   unpack_string(&at, end, &error->hint) && unpack_string(&at, end, &error->context) &&
		   at == end && error->message != NULL &&
		   ERRCODE_TO_CATEGORY(error->sqlerrcode) != ERRCODE_SUCCESSFUL_COMPLETION;
}
