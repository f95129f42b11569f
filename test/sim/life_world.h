/*
 * life_world.h
 *		Between the histories of mode life and their world.
 */
#pragma once

#include "life.h"

extern void life_world_make(LifeWorld *world, uint64 seed, bool trace);
extern void life_world_free(LifeWorld *world);
extern void life_client_step(LifeWorld *world);
extern void life_fault_step(LifeWorld *world);
extern void life_heal(LifeWorld *world);
extern void life_operator_step(LifeWorld *world);
