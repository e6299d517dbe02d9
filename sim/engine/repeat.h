/* SPDX-License-Identifier: Apache-2.0
 * Exact short cuts: parts of a run that repeat an earlier part to the byte are counted, not played.
 *
 * In the steady part of the schedule the same passes come again and again, for later micro-batches.
 * When all that is alive lies at the same addresses as some periods earlier, and the allocator has
 * the same segments, then what follows is the same too: free memory is what lies between live
 * blocks, because neighbouring free blocks of a segment are always merged. The same holds for
 * iterations. Peaks, their moments and every figure of a result stay as if all had been played. */
#ifndef SIM_ENGINE_REPEAT_H
#define SIM_ENGINE_REPEAT_H

#include "sim/engine/player.h"

/* Steps [first, end) of an order: each is the one `length` steps earlier, for a micro-batch that is
 * `shift` later. */
typedef struct {
    size_t first, end, length; /* length 0: nothing repeats */
    uint32_t shift;
} sim_period_t;

sim_period_t sim_period_find(const sim_order_t *order, uint32_t n_microbatches, uint32_t shift);

/* Addresses and sizes of all that is alive. */
typedef struct {
    uint64_t *words; /* owned */
    size_t n, cap;
    uint64_t hash, n_ops;
} sim_state_t;

enum { SIM_REPEAT_MAX_STATES = 64 };

typedef struct {
    bool is_on;
    sim_period_t period;
    sim_state_t states[SIM_REPEAT_MAX_STATES]; /* at the periods of this iteration so far */
    uint32_t n_states;
    bool is_settled;    /* this iteration's repetition is over, or was given up */
    sim_state_t before; /* at the start of the iteration before */
    bool has_before;
} sim_repeat_t;

/* `p` is ready to be played. Free with sim_repeat_fini(), which takes a zeroed struct too. */
void sim_repeat_init(sim_repeat_t *repeat, const sim_player_t *p, bool is_on);
void sim_repeat_fini(sim_repeat_t *repeat);

/* Before an iteration (from 1) is played. True: this one and all that follow are like the one
 * before, with *n_ops_p allocations and frees each, and need not be played. */
bool sim_repeat_iteration(sim_repeat_t *repeat, const sim_player_t *p, uint32_t iteration,
                          uint64_t *n_ops_p);

/* Before step `at` of the order is played: how many steps from there on need not be. The player's
 * state is then that after them. */
size_t sim_repeat_steps(sim_repeat_t *repeat, sim_player_t *p, size_t at);

#endif
