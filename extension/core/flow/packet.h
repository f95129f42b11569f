/*
 * core/flow/packet.h
 *		What nodes send one another beside the control plane: messages, facts, marks (X2, X3).
 *
 * A call is a header and a list of sections; so is its answer. A section has a kind, a length and
 * bytes, so that one that is not known can be skipped, or refuses the call if it is marked mandatory.
 * Whole numbers are those of core/base/wire.h. Decoders take bytes from anywhere, never read beyond their
 * end, and take only values that an encoder may be given (packet.c says which, for each struct); so what
 * they hand out needs no second look, but for two things: whether texts are valid in the database's
 * encoding, and whether a payload is jsonb. Texts point into the bytes that were read.
 *
 * Every getter answers false at the end of its reader, and also, then with reader->failed, if what
 * stands there is damaged; the struct is all zero then.
 */
#pragma once

#include "core/flow/mark.h"
#include "core/map/record.h"
#include "core/base/wire.h"
#include "shard.h"

/* Numbers of streams, stamps and logs are below this, so that one more is always a number. */
#define SHARD_PACKET_MAX_SEQ (INT64CONST(1) << 62)

/* Bytes of an entity id on the wire; an encoding may need more bytes for it than another. */
#define SHARD_PACKET_MAX_ENTITY (4 * SHARD_MAX_ENTITY_ID)

/* A message on its way from one node to another; of a VOID only the kind counts. */
typedef struct ShardParcel
{
	int32 kind; /* ShardKind: a message's, or VOID */
	int32 type_id;
	int32 shard;
	int32 epoch; /* home epoch tag */
	ShardStamp stamp;
	const char *entity;
	int entity_len;
	int32 src_type; /* 0: a client sent */
	const char *src_entity;
	int src_entity_len;
	int32 mid_node; /* where the message first became durable */
	int64 mid_seq;
	const char *payload; /* jsonb without varlena header, not compressed; NULL: none */
	int payload_len;
} ShardParcel;

/* Appends a parcel; a packet is any number of parcels, one after the other. */
extern void shard_packet_put(StringInfo out, const ShardParcel *parcel);

extern bool shard_packet_get(ShardReader *reader, ShardParcel *parcel);

/* A decided home, as routes need it; of a type with replicas with its set (Q3). */
typedef struct ShardFact
{
	int32 type_id;
	int32 shard;
	int64 n;
	int32 node;
	int32 epoch;
	int32 lost;
	int64 move_id;
	int32 want; /* wished number of nodes, the home included; 0: without replicas, and no backups */
	int n_backups; /* nodes of the set but the home */
	int32 backups[SHARD_MAX_HOMES - 1];
} ShardFact;

/* The fact of a decided home whose key has version n. */
extern ShardFact
shard_packet_fact(int32 type_id, int32 shard, int64 n, const ShardHomeRecord *home);

/* The set of a fact is that of a decided home, whatever it was before: what a caller tells of it is not looked at (T6). */
extern void shard_packet_set_fact(ShardFact *fact, const ShardHomeRecord *home);

/* Can it have been decided? Only such a fact may be put; one that is not is refused wherever it is read. */
extern bool shard_packet_fact_is_good(const ShardFact *fact);

extern void shard_packet_put_fact(StringInfo out, const ShardFact *fact);
extern bool shard_packet_get_fact(ShardReader *reader, ShardFact *fact);

/* The record that shard_route_fact() takes. */
extern ShardHomeRecord shard_packet_fact_home(const ShardFact *fact);

/* The receiver's items for that shard, of the lane that the shard belongs to, are taken in up to rseq. */
typedef struct ShardDone
{
	int32 type_id;
	int32 shard;
	int64 rseq;
} ShardDone;

extern void shard_packet_put_done(StringInfo out, const ShardDone *done);
extern bool shard_packet_get_done(ShardReader *reader, ShardDone *done);

/*
 * Front of every call and answer (I5). Of another protocol version only protocol_version is read, the
 * rest is 0: that version may have put it differently.
 */
typedef struct ShardCallHeader
{
	int32 protocol_version;
	ShardUuid cluster;
	int32 era;
	int32 from;
	int32 from_inc;
	ShardUuid incarnation; /* of node from */
	int32 to;
	int32 to_inc;  /* 0: not known */
	int64 known_n; /* the sender has learned the map up to here */
} ShardCallHeader;

extern void shard_packet_put_header(StringInfo out, const ShardCallHeader *header);
extern bool shard_packet_get_header(ShardReader *reader, ShardCallHeader *header);

/* Stored nowhere; part of the protocol version, never renumbered. */
typedef enum ShardSectionKind
{
	SHARD_SECTION_STREAM = 1,	  /* ShardStreamSection, then its rows as a packet */
	SHARD_SECTION_FACTS = 2,	  /* facts; they come before the rows */
	SHARD_SECTION_DONE = 3,		  /* marks for the receiver as origin */
	SHARD_SECTION_REFUSED = 4,	  /* newest facts of shards whose items were refused (H2) */
	SHARD_SECTION_GREET = 5,	  /* hello: ShardStreamSection without rows, for each stream */
	SHARD_SECTION_QUARANTINE = 6, /* ShardQuarantineSection: the sender's side of a stream (X4) */
	SHARD_SECTION_REPLIES = 7, /* replies to asks that the receiver holds, by core/flow/reply.h */
	SHARD_SECTION_RECORDS =
		8, /* ShardReplicaOffer, by core/flow/replica.h, each before its turn records; by type and shard */
	SHARD_SECTION_RECEIVED = 65, /* answer: ShardReceived */
	SHARD_SECTION_POSITION = 66, /* answer to hello: ShardStreamPositionSection */
	SHARD_SECTION_TURNS = 67,	 /* answer to records: ShardReplicaAnswer, any number */

	/* answers to the copying of a shard, by core/flow/copy.h */
	SHARD_SECTION_COLUMNS = 96, /* ShardCopyColumn, any number */
	SHARD_SECTION_COUNTS = 97,	/* ShardCopyCount, any number */
	SHARD_SECTION_CHUNK = 98,	/* ShardCopyChunk */
	SHARD_SECTION_NEXT = 99		/* ShardCopyPosition */
} ShardSectionKind;

#define SHARD_SECTION_MANDATORY 1

/* Appends a section of these bytes. */
extern void shard_packet_put_section(StringInfo out, ShardSectionKind kind, int flags,
									 const char *bytes, int length);

/* The next section's kind, which may be an unknown one, its flags and a reader of its bytes. */
extern bool
shard_packet_get_section(ShardReader *reader, int32 *kind, int32 *flags, ShardReader *section);

/*
 * Rows of a stream, from first_seq on; all of them were appended by one incarnation. channel, here and below: 0,
 * plain items. 1 and 2 are for turn records and outputs of shards that have replicas (N3).
 */
typedef struct ShardStreamSection
{
	int32 lane;
	int32 channel;
	int32 gen;
	int64 first_seq; /* GREET: the last seq before this generation; else at least 1 */
	int32 n_rows;	 /* at most as many as bytes are left in the section */
	ShardUuid writer;
} ShardStreamSection;

extern void shard_packet_put_stream(StringInfo out, const ShardStreamSection *stream);
extern bool shard_packet_get_stream(ShardReader *reader, ShardStreamSection *stream);

typedef struct ShardReceived
{
	int32 lane;
	int32 channel;
	int64 seq;
} ShardReceived;

extern void shard_packet_put_received(StringInfo out, const ShardReceived *received);
extern bool shard_packet_get_received(ShardReader *reader, ShardReceived *received);

/* What the receiver has of a stream: the fields of ShardStreamPosition. */
typedef struct ShardStreamPositionSection
{
	int32 lane;
	int32 channel;
	int32 inc;
	int32 gen;
	int64 seq;
	ShardUuid writer;
} ShardStreamPositionSection;

extern void shard_packet_put_position(StringInfo out, const ShardStreamPositionSection *position);
extern bool shard_packet_get_position(ShardReader *reader, ShardStreamPositionSection *position);

/* That the sender's stream to the receiver is quarantined, so that both sides show it (X4). Optional. */
typedef struct ShardQuarantineSection
{
	int32 lane;
	int32 channel;
	int32 why; /* ShardStreamState: which of the two */
} ShardQuarantineSection;

extern void shard_packet_put_quarantine(StringInfo out, const ShardQuarantineSection *quarantine);
extern bool shard_packet_get_quarantine(ShardReader *reader, ShardQuarantineSection *quarantine);

/* An ask, and its answer (X8). */
typedef struct ShardAskCall
{
	int32 type_id;
	int32 shard;
	int32 epoch; /* home epoch tag: NOT_HERE unless it is active */
	int32 lane;
	int64 after; /* seq of the stream from the caller, of that lane, that must be handled before */
	int64 timeout_us;
	const char *entity;
	int entity_len;
	const char *payload;
	int payload_len;
} ShardAskCall;

extern void shard_packet_put_ask(StringInfo out, const ShardAskCall *ask);
extern bool shard_packet_get_ask(ShardReader *reader, ShardAskCall *ask);

typedef enum ShardAskOutcome
{
	SHARD_ASK_REPLY = 1, /* payload, NULL if has_payload is false */
	SHARD_ASK_ERROR,	 /* the handler's: error fields */
	SHARD_ASK_NOT_HERE	 /* certainly not executed: another home, epoch or state */
} ShardAskOutcome;

typedef struct ShardAskAnswer
{
	int32 outcome; /* ShardAskOutcome */
	bool has_payload;
	const char *payload; /* reply; or the error, as ring_body.h packs it */
	int payload_len;
} ShardAskAnswer;

extern void shard_packet_put_answer(StringInfo out, const ShardAskAnswer *answer);
extern bool shard_packet_get_answer(ShardReader *reader, ShardAskAnswer *answer);
