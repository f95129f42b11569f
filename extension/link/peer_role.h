/*
 * link/peer_role.h
 *		For which node a role of links may speak (T8).
 */
#pragma once

/*
 * Called in a transaction, before anything is done for a call of another node: error 42501 if the role that has logged
 * in was given to another node than the one that the call is from. from 0: the caller says that it is no node yet,
 * which is refused to the role of a node. Cheap, as long as shard_allow_peer() is not called.
 */
extern void shard_peer_role_check(int32 from);

/* shard_allow_peer(): from the end of this transaction on the role speaks for that node alone; 0: for any. */
extern void shard_peer_role_bind(Oid role, int32 node);
