/*
 * registry/payload_check.c
 *		Whether bytes that came from elsewhere are a message that handlers can be given.
 *
 * The server's jsonb functions believe every offset that they find in a value. Those that come over
 * a link are looked at once, when they are received: each entry within its container, each string
 * valid in the encoding, each number one that JSON has.
 */
#include "postgres.h"

#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/jsonb.h"

#include "registry/payload.h"

#include "base/compat.h"

/*
 * The forms of a numeric, as utils/adt/numeric.c keeps them: stored in tables, so they do not change.
 * Two bytes of header, with a sign, a scale and a weight in 14 bits; or four, with a weight of its own.
 */
#define NUMERIC_KIND 0xC000
#define NUMERIC_IS_SHORT 0x8000
#define NUMERIC_IS_SPECIAL 0xC000
#define NUMERIC_BASE 10000

static bool is_container(const char *bytes, uint32 length, bool root);

/* Numbers lie where they come, not aligned. */
static uint32
get_uint32(const char *at)
{
	uint32 value;

	memcpy(&value, at, sizeof(value));
	return value;
}

static uint16
get_uint16(const char *at)
{
	uint16 value;

	memcpy(&value, at, sizeof(value));
	return value;
}

static bool
is_text(const char *bytes, uint32 length)
{
	return pg_verify_mbstr(GetDatabaseEncoding(), bytes, (int) length, true);
}

/* A plain varlena that fills its place, and a finite number. */
static bool
is_numeric(const char *bytes, uint32 length)
{
	uint32 varlena;
	uint32 header;

	if (length < VARHDRSZ + sizeof(uint16))
		return false;
	SET_VARSIZE(&varlena, length);
	if (get_uint32(bytes) != varlena)
		return false;
	switch (get_uint16(bytes + VARHDRSZ) & NUMERIC_KIND)
	{
		case NUMERIC_IS_SPECIAL:
			return false;
		case NUMERIC_IS_SHORT:
			header = VARHDRSZ + sizeof(uint16);
			break;
		default:
			header = VARHDRSZ + 2 * sizeof(uint16);
			break;
	}
	if (length < header || (length - header) % sizeof(uint16) != 0)
		return false;
	for (uint32 at = header; at < length; at += sizeof(uint16))
		if (get_uint16(bytes + at) >= NUMERIC_BASE)
			return false;
	return true;
}

/* A value at offset from of the data, up to offset to; numbers and containers begin aligned. */
static bool
is_value(uint32 type, const char *data, uint32 from, uint32 to)
{
	uint32 aligned = INTALIGN(from);

	switch (type)
	{
		case JENTRY_ISSTRING:
			return is_text(data + from, to - from);
		case JENTRY_ISNUMERIC:
			return aligned <= to && is_numeric(data + aligned, to - aligned);
		case JENTRY_ISBOOL_FALSE:
		case JENTRY_ISBOOL_TRUE:
		case JENTRY_ISNULL:
			return from == to;
		case JENTRY_ISCONTAINER:
			return aligned <= to && is_container(data + aligned, to - aligned, false);
		default:
			return false;
	}
}

/* Kind and number of entries of a container; false if it can have none of these. */
static bool
get_entries(uint32 header, bool root, uint32 *keys, uint32 *entries)
{
	uint32 count = header & JB_CMASK;

	*keys = 0;
	*entries = count;
	switch (header & ~(uint32) JB_CMASK)
	{
		case JB_FARRAY:
			return true;
		case JB_FARRAY | JB_FSCALAR:
			return root && count == 1;
		case JB_FOBJECT:
			*keys = count;
			*entries = 2 * count;
			return true;
		default:
			return false;
	}
}

/* Sizes and types of a container's values; nested ones likewise. */
static bool
is_container(const char *bytes, uint32 length, bool root)
{
	uint32 keys;
	uint32 entries;
	uint32 from = 0;
	const char *data;

	check_stack_depth();
	if (length < sizeof(uint32) || !get_entries(get_uint32(bytes), root, &keys, &entries))
		return false;
	length -= sizeof(uint32);
	if (entries > length / sizeof(JEntry))
		return false;
	length -= entries * sizeof(JEntry);
	data = bytes + sizeof(uint32) + entries * sizeof(JEntry);
	for (uint32 i = 0; i < entries; i++)
	{
		JEntry entry = get_uint32(bytes + sizeof(uint32) + i * sizeof(JEntry));
		uint32 type = entry & JENTRY_TYPEMASK;
		uint32 to = JBE_HAS_OFF(entry) ? JBE_OFFLENFLD(entry) : from + JBE_OFFLENFLD(entry);

		if (to < from || to > length || (i < keys && type != JENTRY_ISSTRING) ||
			(type == JENTRY_ISCONTAINER && root && (get_uint32(bytes) & JB_FSCALAR) != 0) ||
			!is_value(type, data, from, to))
			return false;
		from = to;
		if ((i & 1023) == 1023)
			CHECK_FOR_INTERRUPTS();
	}
	return true;
}

bool
shard_payload_is_jsonb(const char *bytes, int length)
{
	return is_container(bytes, (uint32) length, true);
}

bool
shard_payload_is_entity(const char *text, int length)
{
	return length > 0 && length <= SHARD_MAX_ENTITY_ID && is_text(text, (uint32) length);
}

char *
shard_payload_text(const char *bytes, int length)
{
	(void) pg_verify_mbstr(GetDatabaseEncoding(), bytes, length, false);
	return pnstrdup(bytes, length);
}
