/*
 * registry/registry_path.h
 *		The search_paths of the types that this process knows, each once.
 */
#pragma once

/*
 * The one copy of a path, for another type that has it, and in *number what tells it from any other one that this
 * process ever had: an address may be another path's later. Lives until as many types have given it back.
 */
extern const char *shard_registry_path_take(const char *path, uint64 *number);
extern void shard_registry_path_give_back(const char *path);
