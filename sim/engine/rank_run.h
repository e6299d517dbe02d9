/* SPDX-License-Identifier: Apache-2.0
 * One rank that is played from message to message. */
#ifndef SIM_ENGINE_RANK_RUN_H
#define SIM_ENGINE_RANK_RUN_H

#include "sim/engine/observe.h"
#include "sim/engine/place.h"
#include "sim/engine/simulate.h"
#include "sim/schedule/order.h"

typedef struct sim_rank_run sim_rank_run_t;

typedef struct {
    bool unlimited;      /* as in sim_simulate_options_t */
    bool without_memory; /* messages only: a rank whose equal is played elsewhere */
    bool want_alive;     /* list what is alive when the run ends early */
    bool want_need;      /* as in sim_simulate_options_t; not with an observer, a list or stop_at */
    bool plays_all;      /* without the short cuts of sim/engine/repeat.h */
    uint64_t stop_at;    /* end the play of memory after so many allocations and frees; 0 = never */
    sim_device_t *device; /* to play on, the run's from then on; NULL = a synthetic one is made */
    sim_observer_t observer;
} sim_rank_run_options_t;

/* Fails as sim_simulate_rank() does; the device is then gone as well. `scenario` must outlive the
 * run. */
base_status_t sim_rank_run_create(const sim_scenario_t *scenario, const sim_place_t *place,
                                  const sim_rank_run_options_t *options, sim_rank_run_t **run_p,
                                  base_err_t *err);
void sim_rank_run_destroy(sim_rank_run_t *run);

/* Play on to the next step that concerns other ranks (a send, a wait for something sent, or the
 * gradients' reduction) and return it; NULL when the last iteration is over. Messages go on after
 * the rank has run out of memory, so that the others can be played to their end. */
const sim_step_t *sim_rank_run_next(sim_rank_run_t *run);

/* What the run plays on; NULL without memory. */
sim_device_t *sim_rank_run_device(sim_rank_run_t *run);

/* Iteration of the step returned last, from 1. */
uint32_t sim_rank_run_iteration(const sim_rank_run_t *run);

/* After sim_rank_run_next() has returned NULL. Sets all of *result_p but rank and coordinates;
 * *peak_op_p (may be NULL) = allocations and frees up to the peak. */
void sim_rank_run_result(sim_rank_run_t *run, sim_rank_result_t *result_p, uint64_t *peak_op_p);

#endif
