/* SPDX-License-Identifier: Apache-2.0
 * What a rank that runs out of memory would have needed, without playing it again: at the moment
 * when the device first refuses memory, and so up to which nothing depends on its size, a copy of
 * allocator and device is put aside. When the request fails for good, the play goes on with the
 * copy on a device without end. When the allocator helps itself by giving back its cache, the two
 * ways have parted and the copy is of no use. */
#ifndef SIM_ENGINE_ENDLESS_H
#define SIM_ENGINE_ENDLESS_H

#include "sim/engine/player.h"

/* Make it so, before the first allocation: `ended` is called between the end of the memory that
 * there is, with the player as it is then, and going on. Nothing happens where settings of the
 * allocator depend on the size of the device. */
void sim_endless_init(sim_player_t *p, void (*ended)(void *arg), void *arg);
void sim_endless_fini(sim_player_t *p);

/* A request has failed for good: true = go on, ask once more. */
bool sim_endless_go_on(sim_player_t *p);

#endif
