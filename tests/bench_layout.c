/* SPDX-License-Identifier: Apache-2.0
 * How long it takes to play one layout of Llama-3 70B: every pipeline stage, three iterations. */
#include "config.h"

#include "sim/engine/simulate.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

static const char text[] = "[model]\npreset = llama3-70b\n"
                           "[parallel]\nworld_size = 32\ntensor_model_parallel_size = 4\n"
                           "pipeline_model_parallel_size = 4\n"
                           "virtual_pipeline_model_parallel_size = 5\nsequence_parallel = true\n"
                           "[train]\nmicro_batch_size = 1\nglobal_batch_size = 32\n"
                           "seq_length = 4096\n"
                           "[precision]\nbf16 = true\n"
                           "[optimizer]\nuse_distributed_optimizer = true\n"
                           "[device]\ngpu = h100-80gb-sxm\n"
                           "[run]\niterations = 3\n";

enum { ROUNDS = 20 };

static double now_ms(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* Allocator operations of one rank of each stage. */
static uint64_t play_stages(const sim_scenario_t *scenario)
{
    uint64_t n_ops = 0;
    uint32_t stride = scenario->grid.world_size / scenario->grid.pp;
    for (uint32_t pp = 0; pp < scenario->grid.pp; pp++) {
        sim_rank_result_t result;
        base_err_t err;
        if (sim_simulate_rank(scenario, pp * stride, NULL, &result, &err) != BASE_OK) {
            fprintf(stderr, "bench_layout: %s\n", err.text);
            exit(1);
        }
        n_ops += result.n_allocator_ops;
        sim_rank_result_fini(&result);
    }
    return n_ops;
}

int main(void)
{
    sim_scenario_t scenario;
    base_diag_t diag;
    sim_scenario_init(&scenario);
    base_diag_init(&diag);
    if (!sim_scenario_read(&scenario, "bench", text, strlen(text), &diag) ||
        !sim_scenario_resolve(&scenario, &diag)) {
        fprintf(stderr, "bench_layout: %s\n", diag.text[0]);
        return 1;
    }
    uint64_t n_ops = play_stages(&scenario);
    double best_ms = 0;
    for (int i = 0; i < ROUNDS; i++) {
        double start_ms = now_ms();
        play_stages(&scenario);
        double ms = now_ms() - start_ms;
        if (i == 0 || ms < best_ms)
            best_ms = ms;
    }
    printf("llama3-70b TP4 PP4 VPP5, 16 micro-batches, 4 stages, 3 iterations: %.2f ms, "
           "%" PRIu64 " allocator operations, %.1f M/s (best of %d)\n",
           best_ms, n_ops, (double)n_ops / best_ms / 1e3, ROUNDS);
    base_diag_fini(&diag);
    sim_scenario_fini(&scenario);
    return 0;
}
