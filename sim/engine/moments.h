/* SPDX-License-Identifier: Apache-2.0
 * What happens beside the training steps and may hold more than they do: a checkpoint is loaded
 * before the first iteration, an evaluation runs and a checkpoint is saved after the second.
 * Megatron-LM training/{training,checkpointing}.py, core/optimizer/{__init__,distrib_optimizer}.py,
 * core/dist_checkpointing/utils.py. */
#ifndef SIM_ENGINE_MOMENTS_H
#define SIM_ENGINE_MOMENTS_H

#include "sim/engine/player.h"

enum { SIM_MOMENTS_AFTER = 2 }; /* the iteration after which an evaluation and a save come */

/* Tapes of what `p`'s moments play; after its chunks. */
void sim_moments_init(sim_player_t *p);
void sim_moments_fini(sim_player_t *p);

/* Before the first iteration, and after each one. What each holds at most goes to `result`. False
 * as sim_player_run(). */
bool sim_moments_before(sim_player_t *p, sim_rank_result_t *result);
bool sim_moments_after(sim_player_t *p, uint32_t iteration, sim_rank_result_t *result);

#endif
