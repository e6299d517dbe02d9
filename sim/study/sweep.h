/* SPDX-License-Identifier: Apache-2.0
 * Simulates every legal layout of [sweep], alone or together with other processes that take the
 * next layout from a shared counter; process 0 writes. */
#ifndef SIM_STUDY_SWEEP_H
#define SIM_STUDY_SWEEP_H

#include "collectives/world.h"
#include "sim/study/layouts.h"
#include "sim/study/outcome.h"
#include "sim/study/sweep_file.h"

#include <stdio.h>

typedef struct {
    uint32_t shard, n_shards; /* layouts whose number leaves `shard` when divided; n_shards >= 1 */
    uint64_t margin_bytes;    /* less headroom is a risk; SIM_SWEEP_MARGIN_DEFAULT: see below */
    sim_ranks_t ranks;        /* played of each layout */
    const char *rows_path;    /* where rows go as they come; NULL = nowhere, "-" = stdout */
    sim_rows_format_t format;
    bool resumes;
    void (*progress)(uint64_t n_done, uint64_t n_todo, void *arg); /* may be NULL */
    void *progress_arg;
} sim_sweep_options_t;

/* A hundredth of the device: what the simulation may be off by on the jobs it was compared with. */
#define SIM_SWEEP_MARGIN_DEFAULT UINT64_MAX

typedef struct {
    sim_layouts_t layouts; /* checked on process 0 only */
    uint64_t fingerprint;  /* of scenario, [sweep], ranks, margin and version */
    sim_sweep_rows_t rows; /* of this shard, those found in the file included; process 0 only */
    uint64_t n_shard;      /* layouts of this shard */
    uint64_t n_found;      /* of these, rows that were in the file already */
} sim_sweep_t;

/* Every process together; `base` must outlive the sweep. What is wrong is told to process 0 (err);
 * the others get BASE_ERR_INVAL without a text. BASE_ERR_INVAL: no layout is legal, or the file to
 * resume is of another sweep; BASE_ERR_IO: rows did not reach the file. *sweep_p is always
 * initialised: free with sim_sweep_fini(). A layout that cannot be simulated, or that crashes the
 * simulation, becomes a row with its error. */
base_status_t sim_sweep_run(sim_sweep_t *sweep_p, const sim_scenario_t *base,
                            const sim_sweep_options_t *options, coll_world_t *world,
                            base_err_t *err);
void sim_sweep_fini(sim_sweep_t *sweep);

#endif
