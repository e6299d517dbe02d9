/* SPDX-License-Identifier: Apache-2.0
 * Private to engine: what the processes of a job on real memory tell each other. */
#ifndef SIM_ENGINE_REAL_AGREE_H
#define SIM_ENGINE_REAL_AGREE_H

#include "sim/engine/real.h"

/* What a process has. */
typedef struct {
    sim_store_facts_t facts;
    uint64_t used_before, held_account_bytes, held_used_bytes, used_after;
} sim_real_store_t;

typedef struct {
    const sim_scenario_t *scenario;
    coll_world_t *world;
    const sim_job_t *job;     /* process 0 */
    sim_real_store_t *stores; /* of this process; owned */
    sim_real_rank_t *ranks;   /* of this process, `pool` = index into stores; owned */
    uint32_t n_stores, n_ranks;
    sim_real_t *real; /* process 0: of all processes */
} sim_real_round_t;

typedef enum {
    SIM_REAL_PLACES, /* process 0 looks whether each GPU has as many ranks as may share it */
    SIM_REAL_ROOM,   /* ... whether there is memory enough, and sets pools */
    SIM_REAL_ONLY,   /* all have come here, and whether all is well */
    SIM_REAL_PLAYED, /* the same, and messages were played */
    SIM_REAL_RESULT, /* process 0 gets all ranks and pools */
} sim_real_what_t;

/* All processes together: `mine` and `mine_err` say how it went here. BASE_OK everywhere, or
 * everywhere the first process's error with its name. With SIM_REAL_ROOM everybody gets
 * *rank_bytes_p, what each rank may take (by rank of the job, the store's bytes; the caller frees),
 * on success. */
base_status_t sim_real_agree(sim_real_round_t *round, sim_real_what_t what, base_status_t mine,
                             const base_err_t *mine_err, uint64_t **rank_bytes_p, base_err_t *err);

#endif
