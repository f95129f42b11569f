/*
 * cppcheck.h
 *		What cppcheck has to know of the server's headers, which it does not read.
 *
 * Control flow above all: ereport(ERROR) does not return, and the blocks of PG_TRY are alternatives.
 */
#define PG_MODULE_MAGIC extern int pg_module_magic
#define PG_FUNCTION_INFO_V1(function) extern int function##_info
#define PG_FUNCTION_ARGS void *fcinfo
#define PGDLLEXPORT
#define PGDLLIMPORT
#define FLEXIBLE_ARRAY_MEMBER
#define pg_attribute_noreturn()
#define pg_attribute_printf(format, arguments)
#define pg_attribute_unused()
#define pg_attribute_always_inline inline
#define pg_noinline
#define pg_noreturn
#define pg_nodiscard

#define INT64_FORMAT "%ld"
#define UINT64_FORMAT "%lu"
#define StaticAssertDecl(condition, message) extern int static_assertion
#define StaticAssertStmt(condition, message) ((void) 0)

#define DEBUG5 10
#define DEBUG4 11
#define DEBUG3 12
#define DEBUG2 13
#define DEBUG1 14
#define LOG 15
#define INFO 17
#define NOTICE 18
#define WARNING 19
#define ERROR 21
#define FATAL 22
#define PANIC 23
#define ereport(level, ...) \
	do \
	{ \
		if ((level) >= ERROR) \
			exit(1); \
	} while (0)
#define elog(level, ...) ereport(level, 0)
#define PG_RE_THROW() exit(1)

#define PG_TRY(...) if (may_throw())
#define PG_CATCH(...) else
#define PG_FINALLY(...)
#define PG_END_TRY(...)

#define foreach(cell, list) for (cell = list_head(list); cell; cell = lnext(list, cell))
#define SHARD_CHAIN(iter, list) for ((iter).cur = chain_head(list); (iter).cur; (iter).cur = chain_next())
#define dlist_foreach(iter, list) SHARD_CHAIN(iter, list)
#define dlist_foreach_modify(iter, list) SHARD_CHAIN(iter, list)
#define dclist_foreach(iter, list) SHARD_CHAIN(iter, list)
#define dclist_foreach_modify(iter, list) SHARD_CHAIN(iter, list)
#define slist_foreach(iter, list) SHARD_CHAIN(iter, list)
#define slist_foreach_modify(iter, list) SHARD_CHAIN(iter, list)
