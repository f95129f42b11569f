/*
 * registry/registry.h
 *		Entity types and their settings, as this process knows them.
 *
 * The truth is table shard.type. Each process keeps a cache, filled at first use and refreshed when a change committed
 * (relcache invalidation on shard.type, sent by the session that changes it). A ShardType keeps its address as long as
 * the process lives, so other files may remember the pointer; its fields change only inside shard_registry_refresh()
 * and the look-ups.
 */
#pragma once

#include "datatype/timestamp.h"
#include "utils/jsonb.h"

#include "core/base/message.h"
#include "core/entity/entity.h"
#include "core/entity/passivation.h"
#include "shard.h"

typedef enum ShardTypeMode
{
	SHARD_MODE_HOSTING, /* entities run here */
	SHARD_MODE_PROXY,	/* messages are routed, nothing runs here */
	SHARD_MODE_STOPPED, /* messages wait in the stash */
	SHARD_MODE_DROPPED	/* what it has left, since others may host it (D28): they wait, too */
} ShardTypeMode;

typedef struct ShardType
{
	int32 type_id;
	bool exists; /* false: dropped since; the pointer is kept */
	char name[NAMEDATALEN];
	Oid owner;			/* the owner of the state table, which may be altered */
	Oid runs_as;		/* the role that agreed to run its code; if not the owner, nothing runs */
	Oid handler;		/* InvalidOid: dropped or renamed, messages wait */
	char *handler_name; /* schema-qualified, with argument types */
	bool batch;			/* handler takes an array of messages */
	Oid state_type;
	bool composite;	 /* state's attributes are columns */
	Oid state_table; /* may have been dropped by its owner */
	ShardTypeMode mode;
	uint32 row_version; /* of its row and of its handler's: xmin of each; others after any change */
	uint32 handler_version;
	char *problem;		 /* stored reason why messages wait, or NULL */
	int problem_code;	 /* its SQLSTATE; 0: there is none */
	char *cluster_owner; /* owner in the cluster, if another role: messages wait; or NULL */

	int number_of_shards;
	ShardHashKind hash;
	Oid entity_id_extractor; /* InvalidOid: explicit form only */
	Oid message_extractor;
	Oid shard_id_extractor;
	const char *search_path; /* NULL: the type is gone */
	uint64 path_number;		 /* equal paths have the same; never that of an earlier one */
	int64 path_too_long;	 /* bytes of one that is not read: the type waits; else 0 */
	char *missing_extractor; /* name of one that was dropped: sending fails; or NULL */

	ShardPassivationSettings passivation; /* which entities leave memory */
	Jsonb *stop_message;				  /* handled before an entity leaves; NULL: none */
	int max_attempts;
	int64 retry_backoff; /* microseconds, also the next two */
	int64 max_retry_backoff;
	int64 handler_timeout;
	int64 max_message_size; /* bytes */
	int64 buffer_size;		/* messages */
	int64 max_dead_letters;
	int64 max_dead_letters_size;   /* bytes */
	bool drop_oldest_dead_letters; /* when a limit is reached; false: messages that fail wait */

	char *ordered_by_name; /* schema-qualified, with argument types; NULL: in no order */
	Oid ordered_by;		   /* InvalidOid: dropped or renamed, messages wait */
	int ordered_window;
	int64 ordered_timeout; /* microseconds */
	bool has_ordered_from;
	int64 ordered_from; /* the first number of an entity; else the first that is seen */

	bool remember;		  /* its entities start again with their shard (doc/protocol/remember.md) */
	bool recovers_slowly; /* recovery strategy constant: */
	int recovery_number;  /* so many of its entities start */
	int64 recovery_frequency; /* in this time, microseconds */
	Jsonb *start_message;	  /* a jsonb datum, delivered at each start; or NULL */
	bool starts;			  /* something is done when an entity starts: one of the two */
	int64 restart_backoff;	  /* microseconds, after a start that failed */
	ShardEntityDecision supervision;
	char *decider_name;	  /* schema-qualified, with argument types; NULL: none */
	Oid decider;		  /* InvalidOid: dropped or renamed, messages wait */
	int max_restarts;	  /* -1: any number */
	int64 restart_window; /* microseconds, also the next one */
	int64 shard_failure_backoff;
	bool own_worker;	   /* no other type is in its group of lanes (C19) */
	int replicas;		   /* members that keep copies of a shard beside its home; 0: none */
	int min_insync;		   /* with replicas: copies without which nothing is shown (Q11) */
	bool stops_on_too_few; /* when there are fewer; false: it goes on with those that are left */

	struct ShardTypeCounter *counter; /* shared; NULL until asked for */

	/* cache of "this role may send"; see shard_security_check_send() */
	Oid send_role;
	uint64 send_generation;

	struct ShardRegistryCall *shard_id_call; /* registry_shard.c */
} ShardType;

/* Rises at each change of a type, so that callers may keep derived facts. */
extern uint64 shard_registry_generation(void);

/* Loads or reloads the cache if needed. Needs a transaction and a snapshot. */
extern void shard_registry_refresh(void);

/*
 * The same as of what is committed now: for what sessions call. A transaction that has the locks it needs hears of
 * no change by itself.
 */
extern void shard_registry_catch_up(void);

/* Reloads the cache though nothing has told of a change. Needs the same. */
extern void shard_registry_reload(void);

/* NULL if no such type. Needs a transaction. */
extern ShardType *shard_registry_find(const char *name);
extern ShardType *shard_registry_by_id(int32 type_id);

/* The same, of a type that was dropped here, too, but may run elsewhere (D28). */
extern ShardType *shard_registry_known(int32 type_id);

/* The name by which this process has last known a type, which may be gone; NULL: it never has. */
extern const char *shard_registry_last_name(int32 type_id);

/*
 * The type of a name as of what is committed now; error 42704 if there is none, with a hint: that the type has to be
 * started, for callers that send; or where types are listed, for those that do something to a type.
 */
extern ShardType *shard_registry_get(const char *name);
extern ShardType *shard_registry_get_present(const char *name);

/* Calls visit for each type; or for each that was dropped here, but may run elsewhere. */
extern void shard_registry_each(void (*visit)(ShardType *type, void *arg), void *arg);
extern void shard_registry_each_dropped(void (*visit)(ShardType *type, void *arg), void *arg);

/* The groups of lanes that have types here, of whatever mode, as a mask. Needs a transaction and a snapshot. */
extern uint8 shard_registry_groups(void);

/*
 * The shard of an entity id, by hash or by the type's extractor, which runs as
 * the type's owner; error if it answers NULL or a number out of range.
 */
extern int shard_registry_shard_id(ShardType *type, const char *id, size_t len);

/* The same by hash alone. Hashes are over UTF-8, so that an id has the same shard everywhere. */
extern int
shard_registry_hash_id(ShardHashKind hash, const char *id, size_t len, int number_of_shards);

/* Stores why messages of a type wait (NULL: they no longer do), and tells all processes. */
extern void shard_registry_set_problem(ShardType *type, const char *sqlstate, const char *problem);
