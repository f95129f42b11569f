/*
 * route_host.h
 *		Who surrounds routes in tests: what would be written, handled or told is noted.
 */
#pragma once

#include "core/flow/route.h"
#include "unit.h"

#define ME 1
#define MAX_ROWS 64

/* Durable state of the only shard, and what was done. body is the message's number. */
typedef struct Host
{
	int32 node;
	int32 epoch;
	int32 doubt;
	int64 n;
	ShardOwn own;
	int64 rseq;
	bool over;
	int n_parked;
	ShardItem parked[MAX_ROWS];
	int n_outbox;
	ShardItem outbox[MAX_ROWS];
	int32 outbox_node[MAX_ROWS];
	int n_base;
	ShardStamp base[MAX_ROWS];
	char taken[MAX_ROWS];
	char doubt_of[MAX_ROWS];
	int n_refused;
	int n_wanted;
	int n_started;
	int n_wrong;
	int n_undone;
	int64 announced;
	ShardSet set; /* as it was written last */
	int n_inputs;
	ShardItem inputs[MAX_ROWS];
	int n_kept;
	ShardItem kept[MAX_ROWS];
	bool kept_again[MAX_ROWS];
} Host;

static inline void
host_load(void *context, ShardRoute *route)
{
	Host *host = context;

	route->node = host->node;
	route->epoch = host->epoch;
	route->doubt = host->doubt;
	route->n = host->n;
	route->own = host->own;
	route->parked = host->n_parked > 0;
	if (host->set.n_nodes > 0)
	{
		route->set = route->set ? route->set : palloc(sizeof(ShardSet));
		*route->set = host->set;
	}
}

static inline void
host_load_base(void *context, ShardRoute *route)
{
	Host *host = context;

	for (int i = 0; i < host->n_base; i++)
		shard_mark_raise(&route->marks, host->base[i]);
}

static inline void
host_write_route(void *context, const ShardRoute *route)
{
	Host *host = context;

	host->node = route->node;
	host->epoch = route->epoch;
	host->doubt = route->doubt;
	host->n = route->n;
}

static inline void
host_write_own(void *context, const ShardRoute *route, const ShardOwn *before)
{
	Host *host = context;

	is_int(before->state, host->own.state, "the row was %d", host->own.state);
	host->own = route->own;
}

static inline void
host_write_base(void *context, const ShardRoute *route)
{
	Host *host = context;

	host->n_base = 0;
	for (int i = 0; i < route->marks.n_marks; i++)
		host->base[host->n_base++] = route->marks.marks[i].stamp;
}

static inline void
host_discard(void *context, const ShardRoute *route pg_attribute_unused())
{
	((Host *) context)->n_base = 0;
}

static inline int64
host_next_rseq(void *context, int32 lane pg_attribute_unused())
{
	return ++((Host *) context)->rseq;
}

static inline int64
host_last_rseq(void *context, int32 lane pg_attribute_unused())
{
	return ((Host *) context)->rseq;
}

static inline int32
host_lane(void *context pg_attribute_unused(), int32 type_id, int32 shard)
{
	return (type_id + shard) % 16;
}

static inline void
host_append(void *context, int32 node, const ShardItem *item)
{
	Host *host = context;

	host->outbox_node[host->n_outbox] = node;
	host->outbox[host->n_outbox++] = *item;
}

/* Stamped ones first, by number. */
static inline void
host_park(void *context, const ShardItem *item)
{
	Host *host = context;
	int at = host->n_parked++;

	while (at > 0 && item->stamp.kind != SHARD_PREFIX_NONE &&
		   (host->parked[at - 1].stamp.kind == SHARD_PREFIX_NONE ||
			host->parked[at - 1].stamp.seq > item->stamp.seq))
	{
		host->parked[at] = host->parked[at - 1];
		at--;
	}
	host->parked[at] = *item;
}

static inline bool
host_first_parked(void *context, const ShardRoute *route pg_attribute_unused(), ShardItem *item)
{
	Host *host = context;

	if (host->n_parked == 0)
		return false;
	*item = host->parked[0];
	return true;
}

static inline void
host_unpark(void *context, const ShardRoute *route pg_attribute_unused())
{
	Host *host = context;

	host->n_parked--;
	memmove(&host->parked[0], &host->parked[1], host->n_parked * sizeof(ShardItem));
}

static inline void
host_collect(void *context, const ShardRoute *route)
{
	Host *host = context;

	for (int i = host->n_outbox - 1; i >= 0; i--)
	{
		ShardItem item = host->outbox[i];

		item.sent = true;
		if (shard_route_kept(route, &item))
			host_park(context, &item);
	}
}

static inline void
note_number(char *text, const ShardItem *item)
{
	size_t length = strlen(text);

	text[length] = *(const char *) item->body;
	text[length + 1] = '\0';
}

static inline void
host_take(void *context, const ShardRoute *route pg_attribute_unused(), const ShardItem *item)
{
	note_number(((Host *) context)->taken, item);
}

static inline void
host_in_doubt(void *context, const ShardRoute *route pg_attribute_unused(), const ShardItem *item)
{
	note_number(((Host *) context)->doubt_of, item);
}

static inline void
host_refused(void *context, const ShardRoute *route pg_attribute_unused(),
			 const ShardItem *item pg_attribute_unused())
{
	((Host *) context)->n_refused++;
}

static inline void
host_announce(void *context, const ShardRoute *route pg_attribute_unused(), ShardStamp mark)
{
	((Host *) context)->announced = mark.seq;
}

static inline void
host_want_home(void *context, const ShardRoute *route pg_attribute_unused())
{
	((Host *) context)->n_wanted++;
}

static inline void
host_started(void *context, const ShardRoute *route pg_attribute_unused())
{
	((Host *) context)->n_started++;
}

static inline void
host_wrong(void *context, const ShardRoute *route pg_attribute_unused(),
		   const ShardHomeRecord *home pg_attribute_unused())
{
	((Host *) context)->n_wrong++;
}

static inline void
host_undone(void *context, const ShardRoute *route pg_attribute_unused(),
			const ShardHomeRecord *home pg_attribute_unused())
{
	((Host *) context)->n_undone++;
}

static inline bool
host_is_over(void *context)
{
	return ((Host *) context)->over;
}

static inline void
host_write_set(void *context, const ShardRoute *route)
{
	((Host *) context)->set = *route->set;
}

static inline void
host_input(void *context, const ShardRoute *route pg_attribute_unused(), const ShardItem *item)
{
	Host *host = context;

	host->inputs[host->n_inputs++] = *item;
}

static inline void
host_keep(void *context, const ShardRoute *route, const ShardItem *item, bool again)
{
	Host *host = context;

	host->kept_again[host->n_kept] = again;
	host->kept[host->n_kept++] = *item;
	host_unpark(context, route);
}

static const ShardRouteHost host_table = {
	host_load,	   host_load_base,	  host_write_route, host_write_own, host_write_base,
	host_discard,  host_next_rseq,	  host_last_rseq,	host_lane,		host_append,
	host_park,	   host_first_parked, host_unpark,		host_collect,	host_take,
	host_in_doubt, host_refused,	  host_announce,	host_want_home, host_started,
	host_wrong,	   host_undone,		  host_is_over,		host_write_set, host_input,
	host_keep,
};

static inline ShardItem
local(const char *number)
{
	return (ShardItem){.type_id = 1, .shard = 1, .epoch = SHARD_NO_EPOCH, .body = number};
}

static inline ShardItem
arrived(const char *number, int32 epoch, int32 origin, int64 seq)
{
	return (ShardItem){.type_id = 1,
					   .shard = 1,
					   .epoch = epoch,
					   .stamp = {SHARD_PREFIX_NODE, origin, 2, seq},
					   .body = number};
}

/* The move that brought a shard to the home that is told. */
static int64 decided_move;

static inline void
tell_home(ShardRoutes *routes, int32 node, int32 epoch, int32 lost, int64 n)
{
	ShardHomeRecord home = {
		.epoch = epoch, .n_nodes = 1, .nodes = {node}, .lost = lost, .move_id = decided_move};

	shard_route_fact(routes, 1, 1, &home, n);
}

static inline void
tell_local(ShardRoutes *routes, const char *number)
{
	ShardItem item = local(number);

	shard_route_local(routes, &item);
}

static inline void
tell_arrived(ShardRoutes *routes, const char *number, int32 epoch, int32 origin, int64 seq)
{
	ShardItem item = arrived(number, epoch, origin, seq);

	shard_route_arrived(routes, &item);
}
