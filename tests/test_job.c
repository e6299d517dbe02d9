/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/engine/job.h"
#include "sim/engine/rank_run.h"
#include "sim/engine/result_blob.h"
#include "tests/cutap.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Small jobs that differ in what decides whether ranks are equal. */
static const char *const jobs[] = {
    "model.preset=gpt3-125m parallel.world_size=8 train.global_batch_size=8",
    "model.preset=gpt3-125m parallel.world_size=8 parallel.tensor_model_parallel_size=2 "
    "parallel.pipeline_model_parallel_size=2 train.global_batch_size=8 "
    "optimizer.use_distributed_optimizer=true",
    /* On some days of Megatron-LM the first rank of a tensor-parallel group holds more. */
    "model.preset=llama3.2-1b parallel.world_size=8 parallel.tensor_model_parallel_size=4 "
    "train.global_batch_size=8 run.software_date=20260601 optimizer.use_distributed_optimizer=true",
    "model.preset=llama3.2-1b parallel.world_size=16 parallel.pipeline_model_parallel_size=4 "
    "parallel.virtual_pipeline_model_parallel_size=2 train.global_batch_size=16 "
    "optimizer.use_distributed_optimizer=true optimizer.overlap_grad_reduce=true",
    "model.preset=llama3.2-1b parallel.world_size=64 train.global_batch_size=64 "
    "optimizer.use_distributed_optimizer=true",
    /* The peak is in the optimizer step, in the layer of the piece that comes last. */
    "model.preset=llama3.2-1b parallel.world_size=64 train.global_batch_size=64 "
    "train.seq_length=64 run.iterations=1 optimizer.use_distributed_optimizer=true",
    /* Which parameters go to the host depends on how many a rank owns. */
    "model.preset=llama3.2-1b parallel.world_size=16 parallel.tensor_model_parallel_size=2 "
    "train.global_batch_size=16 optimizer.use_distributed_optimizer=true "
    "optimizer.use_precision_aware_optimizer=true optimizer.optimizer_cpu_offload=true "
    "optimizer.optimizer_offload_fraction=0.4",
    /* Ends early, out of memory. */
    "model.preset=llama3-8b parallel.world_size=4 parallel.pipeline_model_parallel_size=2 "
    "train.global_batch_size=4 device.memory_bytes=40GiB",
};

enum { N_JOBS = sizeof(jobs) / sizeof(jobs[0]) };

/* A resolved scenario from "key=value key=value ..."; on failure says why and gives false. */
static bool make_scenario(sim_scenario_t *s, const char *settings)
{
    base_diag_t diag;
    base_diag_init(&diag);
    sim_scenario_init(s);
    char *text = strdup(settings), *rest = text;
    bool ok = sim_scenario_set_text(s, "precision.bf16=true", "test", &diag) &&
              sim_scenario_set_text(s, "device.gpu=h100-80gb-sxm", "test", &diag) &&
              sim_scenario_set_text(s, "train.micro_batch_size=1", "test", &diag) &&
              sim_scenario_set_text(s, "train.seq_length=1024", "test", &diag);
    for (char *word; ok && (word = strsep(&rest, " ")) != NULL;)
        ok = sim_scenario_set_text(s, word, "test", &diag);
    ok = ok && sim_scenario_resolve(s, &diag);
    if (!ok)
        printf("# %s: %s\n", settings, diag.n > 0 ? diag.text[0] : "?");
    base_diag_fini(&diag);
    free(text);
    return ok;
}

static bool results_equal(const sim_rank_result_t *a, const sim_rank_result_t *b)
{
    size_t n_a, n_b;
    void *x = sim_rank_result_pack(a, &n_a), *y = sim_rank_result_pack(b, &n_b);
    bool equal = n_a == n_b && memcmp(x, y, n_a) == 0;
    free(x);
    free(y);
    return equal;
}

/* Whether the job gives every rank what it has when it is played by itself. */
static void check_every_rank(const sim_scenario_t *s, const sim_job_t *job)
{
    uint32_t n_differ = 0;
    for (uint32_t rank = 0; rank < s->grid.world_size; rank++) {
        sim_rank_result_t alone;
        sim_simulate_options_t options = { .want_need = true }; /* as ranks of a job are played */
        CU_ASSERT_EQUAL_FATAL(sim_simulate_rank(s, rank, &options, &alone, NULL), BASE_OK);
        CU_ASSERT_EQUAL(alone.rank, rank);
        const sim_rank_result_t *shared = sim_job_result(job, rank);
        CU_ASSERT_PTR_NOT_NULL_FATAL(shared);
        CU_ASSERT_TRUE(shared->rank <= rank);
        alone.rank = shared->rank;
        alone.coord = shared->coord;
        n_differ += !results_equal(&alone, shared);
        sim_rank_result_fini(&alone);
    }
    CU_ASSERT_EQUAL(n_differ, 0);
}

static void equal_ranks_have_the_results_of_each(void)
{
    static const uint32_t least[N_JOBS] = { 1, 4, 3, 8, 2, 2, 1, 2 },
                          most[N_JOBS] = { 1, 8, 4, 16, 63, 63, 16, 2 };
    for (int i = 0; i < N_JOBS; i++) {
        sim_scenario_t s;
        sim_job_t job;
        CU_ASSERT_TRUE_FATAL(make_scenario(&s, jobs[i]));
        CU_ASSERT_EQUAL_FATAL(sim_job_play(&s, NULL, &job, NULL), BASE_OK);
        CU_ASSERT_TRUE(job.classes.n_classes >= least[i]);
        CU_ASSERT_TRUE(job.classes.n_classes <= most[i]);
        check_every_rank(&s, &job);
        sim_job_fini(&job);
        sim_scenario_fini(&s);
    }
}

static void skipped_ranks_are_not_played(void)
{
    sim_scenario_t s;
    sim_job_t job;
    CU_ASSERT_TRUE_FATAL(make_scenario(&s, jobs[3]));
    bool is_skipped[16];
    memset(is_skipped, true, sizeof(is_skipped));
    is_skipped[5] = false;
    sim_job_options_t options = { .is_skipped = is_skipped };
    CU_ASSERT_EQUAL_FATAL(sim_job_play(&s, &options, &job, NULL), BASE_OK);
    CU_ASSERT_PTR_NOT_NULL(sim_job_result(&job, 5));
    uint32_t n_played = 0;
    for (uint32_t c = 0; c < job.classes.n_classes; c++)
        n_played += job.results[c].iterations != NULL;
    CU_ASSERT_EQUAL(n_played, 1);
    sim_job_fini(&job);
    sim_scenario_fini(&s);
}

static void messages_come_in_pairs_and_end(void)
{
    sim_scenario_t s;
    CU_ASSERT_TRUE_FATAL(make_scenario(&s, jobs[3]));
    size_t n_sent = 0, n_received = 0, n_reductions = 0;
    for (uint32_t pp = 0; pp < 4; pp++) {
        topo_coord_t coord = { .pp = pp };
        sim_place_t place = sim_place_of(&s, &coord);
        sim_rank_run_options_t options = { .without_memory = pp % 2 == 1 };
        sim_rank_run_t *run;
        CU_ASSERT_EQUAL_FATAL(sim_rank_run_create(&s, &place, &options, &run, NULL), BASE_OK);
        uint32_t iteration = 1;
        for (const sim_step_t *step; (step = sim_rank_run_next(run)) != NULL;) {
            CU_ASSERT_TRUE(sim_rank_run_iteration(run) >= iteration);
            iteration = sim_rank_run_iteration(run);
            n_reductions += step->kind == SIM_STEP_FINALIZE_GRADS;
            n_sent += step->kind == SIM_STEP_SEND_FORWARD || step->kind == SIM_STEP_SEND_BACKWARD;
            n_received += step->kind == SIM_STEP_WAIT_RECV_FORWARD ||
                          step->kind == SIM_STEP_WAIT_RECV_BACKWARD;
        }
        CU_ASSERT_EQUAL(iteration, 3);
        sim_rank_run_destroy(run);
    }
    /* 2 chunks on 4 ranks: 7 borders, 4 micro-batches, both ways, 3 iterations. */
    CU_ASSERT_EQUAL(n_sent, 7 * 4 * 2 * 3);
    CU_ASSERT_EQUAL(n_received, n_sent);
    CU_ASSERT_EQUAL(n_reductions, 4 * 3);
    sim_scenario_fini(&s);
}

static void what_is_alive_adds_up_to_the_peak(void)
{
    for (int i = 0; i < N_JOBS; i++) {
        sim_scenario_t s;
        sim_rank_result_t r;
        sim_simulate_options_t options = { .want_alive = true };
        CU_ASSERT_TRUE_FATAL(make_scenario(&s, jobs[i]));
        CU_ASSERT_EQUAL_FATAL(sim_simulate_rank(&s, 0, &options, &r, NULL), BASE_OK);
        uint64_t sum_bytes = 0;
        bool sorted = true;
        sim_holders_t holders = { 0 };
        for (uint32_t k = 0; k < r.n_alive; k++) {
            const sim_alive_t *a = &r.alive[k];
            sum_bytes += a->block_bytes;
            holders.bytes[a->category][a->module] += a->block_bytes;
            sorted = sorted && (k == 0 || r.alive[k - 1].block_bytes >= a->block_bytes);
        }
        CU_ASSERT_TRUE(sorted);
        const sim_holders_t *expected = r.is_out_of_memory ? &r.at_oom : &r.at_peak;
        CU_ASSERT_EQUAL(sum_bytes,
                        r.is_out_of_memory ? r.oom.allocated_bytes : r.max_allocated_bytes);
        CU_ASSERT_EQUAL(memcmp(&holders, expected, sizeof(holders)), 0);
        sim_rank_result_fini(&r);
        sim_scenario_fini(&s);
    }
}

static void results_survive_packing(void)
{
    for (int i = 0; i < N_JOBS; i++) {
        sim_scenario_t s;
        sim_rank_result_t r, copy;
        CU_ASSERT_TRUE_FATAL(make_scenario(&s, jobs[i]));
        CU_ASSERT_EQUAL_FATAL(sim_simulate_rank(&s, s.grid.world_size - 1, NULL, &r, NULL),
                              BASE_OK);
        size_t n;
        char *bytes = sim_rank_result_pack(&r, &n);
        CU_ASSERT_EQUAL_FATAL(sim_rank_result_unpack(bytes, n, &copy, NULL), BASE_OK);
        CU_ASSERT_TRUE(results_equal(&r, &copy));
        CU_ASSERT_EQUAL(copy.coord.pp, r.coord.pp);
        CU_ASSERT_EQUAL(copy.n_iterations, r.n_iterations);
        CU_ASSERT_STRING_EQUAL(copy.oom_tensor, r.oom_tensor);
        CU_ASSERT_EQUAL(copy.oom_moment.layer, r.oom_moment.layer);
        sim_rank_result_fini(&copy);
        base_err_t err;
        for (size_t cut = 0; cut < n; cut += cut < 256 ? 1 : 61)
            CU_ASSERT_EQUAL(sim_rank_result_unpack(bytes, cut, &copy, &err), BASE_ERR_PARSE);
        free(bytes);
        sim_rank_result_fini(&r);
        sim_scenario_fini(&s);
    }
}

static void moments_name_the_pass_that_received(void)
{
    sim_scenario_t s;
    sim_rank_result_t r;
    CU_ASSERT_TRUE_FATAL(make_scenario(&s, jobs[3]));
    CU_ASSERT_EQUAL_FATAL(sim_simulate_rank(&s, 15, NULL, &r, NULL), BASE_OK);
    CU_ASSERT_TRUE(r.allocated_moment.iteration >= 1);
    CU_ASSERT_TRUE(r.allocated_moment.phase >= SIM_PHASE_FORWARD);
    CU_ASSERT_EQUAL(r.n_iterations, 3);
    CU_ASSERT_EQUAL(r.iterations[2].max_allocated_bytes, r.max_allocated_bytes);
    CU_ASSERT_EQUAL(r.iterations[2].max_reserved_bytes, r.max_reserved_bytes);
    sim_rank_result_fini(&r);
    sim_scenario_fini(&s);
}

int main(void)
{
    CU_TestInfo tests[] = {
        { "equal ranks have the results of each", equal_ranks_have_the_results_of_each },
        { "skipped ranks are not played", skipped_ranks_are_not_played },
        { "messages come in pairs and end", messages_come_in_pairs_and_end },
        { "what is alive adds up to the peak", what_is_alive_adds_up_to_the_peak },
        { "results survive packing", results_survive_packing },
        { "moments name the pass that received", moments_name_the_pass_that_received },
        CU_TEST_INFO_NULL,
    };
    CU_SuiteInfo suites[] = { { "job", NULL, NULL, NULL, NULL, tests }, CU_SUITE_INFO_NULL };
    return cutap_run(suites);
}
