/* SPDX-License-Identifier: Apache-2.0
 * job_probe same|schedules|results: the processes of mpirun play a job of 8 GPUs on 4 stages; in
 * the last two cases process 1 has another number of micro-batches, another sequence length. */
#include "config.h"

#include "sim/engine/job.h"

#include <stdio.h>
#include <string.h>

static const char text[] = "[model]\npreset = llama3.2-1b\n"
                           "[parallel]\nworld_size = 8\npipeline_model_parallel_size = 4\n"
                           "[train]\nseq_length = 512\nmicro_batch_size = 1\n"
                           "global_batch_size = 16\n"
                           "[precision]\nbf16 = true\n"
                           "[device]\ngpu = h100-80gb-sxm\n";

static bool make_scenario(sim_scenario_t *s, const char *other)
{
    base_diag_t diag;
    base_diag_init(&diag);
    sim_scenario_init(s);
    bool ok = sim_scenario_read(s, "probe", text, strlen(text), &diag) &&
              (other == NULL || sim_scenario_set_text(s, other, "probe", &diag)) &&
              sim_scenario_resolve(s, &diag);
    if (!ok)
        fprintf(stderr, "job_probe: %s\n", diag.text[0]);
    base_diag_fini(&diag);
    return ok;
}

static int play(coll_world_t *world, const char *other)
{
    sim_scenario_t scenario;
    sim_job_t job;
    base_err_t err;
    bool leads = coll_world_process(world) == 0;
    if (!make_scenario(&scenario, coll_world_process(world) == 1 ? other : NULL))
        return 2;
    base_status_t status = coll_world_set_gpus(world, scenario.grid.world_size, &err);
    if (status == BASE_OK)
        status = sim_job_play_together(&scenario, world, NULL, &job, &err);
    if (status == BASE_OK && leads)
        printf("%u classes, rank 7 peaks at %llu bytes\n", job.classes.n_classes,
               (unsigned long long)sim_job_result(&job, 7)->max_allocated_bytes);
    if (status != BASE_OK && leads)
        fprintf(stderr, "job_probe: %s\n", err.text);
    if (status == BASE_OK)
        sim_job_fini(&job);
    sim_scenario_fini(&scenario);
    return base_err_exit_code(status);
}

int main(int argc, char **argv)
{
    coll_world_t *world;
    base_err_t err;
    const char *mode = argc > 1 ? argv[1] : "";
    int code = 2;
    if (coll_world_create(&world, "job_probe", &err) != BASE_OK)
        fprintf(stderr, "job_probe: %s\n", err.text);
    else if (strcmp(mode, "same") == 0)
        code = play(world, NULL);
    else if (strcmp(mode, "schedules") == 0)
        code = play(world, "train.global_batch_size=24");
    else if (strcmp(mode, "results") == 0)
        code = play(world, "train.seq_length=768");
    return coll_world_finish(world, code);
}
