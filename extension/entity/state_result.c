/*
 * entity/state_result.c
 *		Whether a composite state that a handler returned is what its type says.
 *
 * The turn holds the type (state_hold.c), so what is made in it is made by that definition. But functions keep plans,
 * and plans keep values: one from before an ALTER TYPE would say that it is of the type, and be laid out otherwise. Whoever
 * took it apart would read where it says, up to pointers out of its bytes. So before that it is walked through by
 * the definition that is held: each attribute must lie in the value, and hold no pointer.
 */
#include "postgres.h"

#include "access/htup_details.h"
#include "access/tupmacs.h"
#include "utils/builtins.h"

#include "entity/state.h"

#include "base/compat.h"

/* The bytes of a variable-length attribute that begins here, of which so many are there at most; 0: it does not fit. */
static Size
varlena_size(const char *at, Size left)
{
	if (left == 0 || VARATT_IS_EXTERNAL(at))
		return 0;
	if (VARATT_IS_1B(at))
		return VARSIZE_1B(at);
	if (left < VARHDRSZ || (VARATT_IS_4B_C(at) && left < VARHDRSZ_COMPRESSED))
		return 0;
	return VARSIZE_4B(at) < (VARATT_IS_4B_C(at) ? VARHDRSZ_COMPRESSED : VARHDRSZ) ? 0
																				  : VARSIZE_4B(at);
}

/* Where the attribute behind these bytes ends; 0: it does not fit. */
static Size
end_of(Form_pg_attribute att, const char *data, Size begin, Size length)
{
	Size size;

	if (begin > length)
		return 0;
	if (att->attlen != -1)
		begin = att_align_nominal(begin, att->attalign);
	else if (begin < length)
		begin = att_align_pointer(begin, att->attalign, -1, data + begin);
	if (begin > length)
		return 0;
	if (att->attlen == -1)
		size = varlena_size(data + begin, length - begin);
	else if (att->attlen == -2)
		size = strnlen(data + begin, length - begin) + 1;
	else
		size = att->attlen;
	return size == 0 || size > length - begin ? 0 : begin + size;
}

static bool
fits(TupleDesc desc, HeapTupleHeader row)
{
	Size size = HeapTupleHeaderGetDatumLength(row);
	int count = HeapTupleHeaderGetNatts(row);
	bool nulls = (row->t_infomask & HEAP_HASNULL) != 0;
	Size at = 0;

	if (size < SizeofHeapTupleHeader || HeapTupleHeaderGetTypeId(row) != desc->tdtypeid ||
		count > desc->natts || row->t_hoff > size || row->t_hoff != MAXALIGN(row->t_hoff) ||
		row->t_hoff < SizeofHeapTupleHeader + (nulls ? BITMAPLEN(count) : 0))
		return false;
	for (int i = 0; i < count; i++)
	{
		if (nulls && att_isnull(i, row->t_bits))
			continue;
		at = end_of(TupleDescAttr(desc, i), (char *) row + row->t_hoff, at, size - row->t_hoff);
		if (at == 0)
			return false;
	}
	return true;
}

void
shard_state_check_row(const ShardStateParts *parts, Datum state)
{
	TupleDesc desc = shard_state_row(parts);

	if (fits(desc, (HeapTupleHeader) DatumGetPointer(state)))
		return;
	ereport(ERROR, (errcode(ERRCODE_DATATYPE_MISMATCH),
					errmsg("the handler returned a state that is not of type %s as it is now",
						   format_type_be(desc->tdtypeid)),
					errdetail("It was made when the type had other attributes."),
					errhint("Replace the functions that make states after the type was altered.")));
}
