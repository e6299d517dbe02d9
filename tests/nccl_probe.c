/* SPDX-License-Identifier: Apache-2.0
 * nccl_probe [SECTION.KEY=VALUE]...: makes, uses and measures the communicators of a job of 4 GPUs,
 * each rank on the GPU of its number on the host (with PROBE_SHARE=1 all on the first), and prints
 * the steps of all ranks, or why the model stands in. */
#include "config.h"

#include "sim/engine/communicators.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char text[] = "[model]\npreset = llama3.2-1b\n"
                           "[parallel]\nworld_size = 4\ntensor_model_parallel_size = 2\n"
                           "pipeline_model_parallel_size = 2\n"
                           "[train]\nseq_length = 512\nmicro_batch_size = 1\n"
                           "global_batch_size = 16\n"
                           "[precision]\nbf16 = true\n"
                           "[device]\ngpu = h100-80gb-sxm\n";

static bool make_scenario(sim_scenario_t *s, int n_sets, char **sets)
{
    base_diag_t diag;
    base_diag_init(&diag);
    sim_scenario_init(s);
    bool ok = sim_scenario_read(s, "probe", text, strlen(text), &diag);
    for (int i = 0; i < n_sets; i++)
        ok = sim_scenario_set_text(s, sets[i], "probe", &diag) && ok;
    ok = ok && sim_scenario_resolve(s, &diag);
    if (!ok)
        fprintf(stderr, "nccl_probe: %s\n", diag.text[0]);
    base_diag_fini(&diag);
    return ok;
}

static void print_steps(const sim_communicators_t *c)
{
    if (c->why[0] != '\0') {
        printf("the model stands in: %s\n", c->why);
        return;
    }
    printf("NCCL %d\n", c->version);
    for (uint32_t i = 0; i < c->n_steps; i++) {
        const sim_comm_step_t *s = &c->steps[i];
        printf("rank %" PRIu32 ": %s of %" PRIu32 ", %s: model %" PRIu64 ", real %" PRId64 "\n",
               s->rank, s->name, s->n_ranks, s->what, s->model_bytes, s->real_bytes);
    }
}

/* The GPU of each rank of this process. */
static int *find_ordinals(const coll_world_t *world)
{
    uint32_t first, n, first_process = 0, host_first, n_there;
    coll_world_share(world, &first, &n);
    const char *host = coll_world_host(world, coll_world_process(world));
    while (strcmp(coll_world_host(world, first_process), host) != 0)
        first_process++;
    coll_world_share_of(world, first_process, &host_first, &n_there);
    int *ordinals = calloc(n, sizeof(*ordinals));
    for (uint32_t i = 0; i < n && getenv("PROBE_SHARE") == NULL; i++)
        ordinals[i] = (int)(first + i - host_first);
    return ordinals;
}

static base_status_t measure(const sim_scenario_t *scenario, coll_world_t *world, base_err_t *err)
{
    topo_cuda_t cuda = { .rt_library = NULL };
    base_err_t none = { .text = "" };
    sim_communicators_t c;
    coll_nccl_real_t *real;
    topo_cuda_open(&cuda, &none); /* what fails is in none.text */
    int *ordinals = find_ordinals(world);
    base_status_t status =
        sim_communicators_measure(scenario, world, &cuda, ordinals, none.text, &c, &real, err);
    if (status == BASE_OK) {
        if (coll_world_process(world) == 0)
            print_steps(&c);
        sim_communicators_fini(&c);
        status = coll_nccl_real_close(real, err);
    }
    free(ordinals);
    if (cuda.rt_library != NULL)
        topo_cuda_close(&cuda);
    return status;
}

int main(int argc, char **argv)
{
    coll_world_t *world;
    sim_scenario_t scenario;
    base_err_t err;
    int code = 2;
    base_status_t status = coll_world_create(&world, "nccl_probe", &err);
    bool is_made = make_scenario(&scenario, argc - 1, argv + 1);
    if (status == BASE_OK && is_made)
        status = coll_world_set_gpus(world, scenario.grid.world_size, &err);
    if (status == BASE_OK && is_made) {
        status = measure(&scenario, world, &err);
        code = base_err_exit_code(status);
    }
    if (status != BASE_OK)
        fprintf(stderr, "nccl_probe: process %" PRIu32 ": %s\n", coll_world_process(world),
                err.text);
    sim_scenario_fini(&scenario);
    return coll_world_finish(world, code);
}
