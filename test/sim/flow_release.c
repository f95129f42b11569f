/*
 * flow_release.c
 *		What waits for the gate: events and notes go out, and the checkers hear what is durable now.
 */
#include "flow_private.h"

static void
report_position(Flow *flow, const Release *release)
{
	CheckPosition position = {.began = release->position.began,
							  .expected = release->position.expected,
							  .skipped = release->position.skipped,
							  .late = release->position.late};

	check_position(flow->check, flow->instance, release->ref.type_id, release->ref.shard,
				   release->entity, release->epoch, release->begun ? &position : NULL);
}

/* What only the checkers hear of. True: it was such a thing. */
static bool
report(Flow *flow, const Release *release)
{
	if (flow->retired)
		return release->kind <= R_LOST;
	switch (release->kind)
	{
		case R_HANDLED:
			check_handled(flow->check, release->id, flow->instance, release->epoch);
			if (release->number > 0)
				check_in_order(flow->check, release->id, flow->instance, release->epoch);
			return true;
		case R_STASHED:
			check_stashed(flow->check, release->id, release->epoch);
			return true;
		case R_REPORTED:
			check_reported(flow->check, release->id);
			return true;
		case R_DEAD:
			check_dead(flow->check, release->id);
			return true;
		case R_GIVEN_UP:
			check_given_up(flow->check, release->id, flow->instance);
			return true;
		case R_POSITION:
			report_position(flow, release);
			return true;
		case R_LOST:
			check_lost(flow->check, release->ref.type_id, release->ref.shard);
			return true;
		default:
			return false;
	}
}

/* What is durable happened, whether or not anybody heard of it. */
void
flow_report_rest(Flow *flow, int64 upto)
{
	for (int i = 0; i < flow->n_releases; i++)
	{
		if (flow->releases[i].lsn <= upto)
			report(flow, &flow->releases[i]);
	}
}

/* Something to be done or told once its commit is past the gate. */
void
flow_release_at(Flow *flow, const Release *release)
{
	if (flow->n_releases == flow->release_space)
	{
		flow->release_space = Max(64, flow->release_space * 2);
		flow->releases = pg_realloc(flow->releases, flow->release_space * sizeof(Release));
	}
	flow->releases[flow->n_releases++] = *release;
}

static void
let_one_go(Flow *flow, const Release *release)
{
	if (report(flow, release))
		return;
	switch (release->kind)
	{
		case R_MARK:
		case R_REFUSED:
			link_add_note(flow, release->peer, release->ref.type_id, release->ref.shard,
						  release->number, release->kind == R_REFUSED);
			break;
		case R_STARTED:
			flow_event(flow, SHARD_EVENT_SHARDS_STARTED, &release->ref);
			break;
		case R_STOPPED:
			flow_event(flow, SHARD_EVENT_SHARD_STOPPED, &release->ref);
			break;
		case R_STAGED:
			flow_event(flow, SHARD_EVENT_STAGED, &release->ref);
			break;
		default:
			break;
	}
}

/* Events are called last, from a list that is no longer ours: they may lead to more. */
void
flow_let_go(Flow *flow)
{
	int n = 0;

	if (flow->released_seen != store_release_position(flow->store))
	{
		flow->released_seen = store_release_position(flow->store);
		/* Rows and floors may leave now. */
		if (flow->floors != 0 || store_count(flow->store, T_OUTBOX) > 0)
			flow_poke(flow);
	}
	flow_return_commits(flow);
	while (n < flow->n_releases && store_released(flow->store, flow->releases[n].lsn))
		n++;
	for (int i = 0; i < n; i++)
	{
		Release release = flow->releases[i];

		let_one_go(flow, &release);
	}
	if (n > 0)
	{
		flow->n_releases -= n;
		memmove(flow->releases, flow->releases + n, flow->n_releases * sizeof(Release));
	}
}
