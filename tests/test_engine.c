/* SPDX-License-Identifier: Apache-2.0
 * What has to hold for every job, tried on many small random ones. A failure names the seed. */
#include "config.h"

#include "sim/base/units.h"
#include "sim/engine/classes.h"
#include "sim/engine/player.h"
#include "sim/engine/simulate.h"
#include "tests/cutap.h"
#include "tests/random_scenario.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_SEEDS = 1000 };

/* Seeds of a test are SEED_FIRST.. of the environment, for trying others than the usual ones. */
static uint64_t first_seed(void)
{
    const char *text = getenv("SEED_FIRST");
    return text != NULL ? strtoull(text, NULL, 10) : 1;
}

static unsigned n_legal;

/* Everything the checks need of one random job. */
typedef struct {
    uint64_t seed;
    sim_scenario_t s;
    uint32_t rank;
    sim_rank_result_t r;
} trial_t;

#define CHECK(t, condition) check((t)->seed, (condition), __LINE__, #condition)

static void check(uint64_t seed, bool ok, int line, const char *text)
{
    if (!ok)
        printf("# seed %" PRIu64 ": %s\n", seed, text);
    CU_assertImplementation(ok, (unsigned)line, text, __FILE__, "", CU_FALSE);
}

static bool simulate(const trial_t *t, const sim_simulate_options_t *options,
                     sim_rank_result_t *r_p)
{
    base_err_t err;
    bool ok = sim_simulate_rank(&t->s, t->rank, options, r_p, &err) == BASE_OK;
    if (!ok)
        printf("# seed %" PRIu64 ": %s\n", t->seed, err.text);
    check(t->seed, ok, __LINE__, "the job can be played");
    return ok;
}

/* Run `examine` on the jobs of all seeds, each on one of its ranks. */
static void foreach_job(void (*examine)(const trial_t *t))
{
    n_legal = 0;
    for (uint64_t i = 0; i < N_SEEDS; i++) {
        trial_t t = { .seed = first_seed() + i };
        if (!random_scenario(&t.s, t.seed))
            continue;
        n_legal++;
        random_t r = { ~t.seed };
        t.rank = (uint32_t)random_below(&r, t.s.grid.world_size);
        if (simulate(&t, NULL, &t.r)) {
            CHECK(&t, !t.r.is_out_of_memory);
            examine(&t);
            sim_rank_result_fini(&t.r);
        }
        sim_scenario_fini(&t.s);
    }
    CU_ASSERT_TRUE(n_legal > N_SEEDS / 3);
}

static uint64_t sum_of_categories(const sim_holders_t *h)
{
    uint64_t sum = 0;
    for (int c = 0; c < SIM_N_CATEGORIES; c++)
        sum += sim_holders_category(h, (sim_category_t)c);
    return sum;
}

static uint64_t sum_of_modules(const sim_holders_t *h)
{
    uint64_t sum = 0;
    for (int module = 0; module < SIM_N_MODULES; module++)
        sum += sim_holders_module(h, (sim_module_t)module);
    return sum;
}

static void check_holders(const trial_t *t)
{
    CHECK(t, sum_of_categories(&t->r.at_peak) == t->r.max_allocated_bytes);
    CHECK(t, sum_of_modules(&t->r.at_peak) == t->r.max_allocated_bytes);
    CHECK(t, sim_holders_total(&t->r.at_peak) == t->r.max_allocated_bytes);
}

static void holders_at_the_peak_add_up(void)
{
    foreach_job(check_holders);
}

static void check_order_of_figures(const trial_t *t)
{
    const sim_iteration_t *it = t->r.iterations;
    CHECK(t, t->r.n_iterations == t->s.iterations);
    for (uint32_t i = 0; i < t->r.n_iterations; i++) {
        CHECK(t, it[i].allocated_bytes <= it[i].reserved_bytes);
        CHECK(t, it[i].allocated_bytes <= it[i].max_allocated_bytes);
        CHECK(t, it[i].reserved_bytes <= it[i].max_reserved_bytes);
        CHECK(t, it[i].max_allocated_bytes <= it[i].max_reserved_bytes);
        if (i == 0)
            continue;
        CHECK(t, it[i].max_allocated_bytes >= it[i - 1].max_allocated_bytes);
        CHECK(t, it[i].max_reserved_bytes >= it[i - 1].max_reserved_bytes);
    }
    CHECK(t, it[t->r.n_iterations - 1].max_allocated_bytes == t->r.max_allocated_bytes);
    CHECK(t, it[t->r.n_iterations - 1].max_reserved_bytes == t->r.max_reserved_bytes);
}

static void figures_of_iterations_are_ordered(void)
{
    foreach_job(check_order_of_figures);
}

/* CUDA graphs leave buffers behind, and what crosses the border of a stage is theirs from then on;
 * `i` counts from 0. */
static bool captures_before(const sim_scenario_t *s, uint32_t i)
{
    if (s->cuda_graph_impl == SIM_GRAPHS_LOCAL)
        return i == 1;
    return s->cuda_graph_impl != SIM_GRAPHS_NONE && i == s->cuda_graph_warmup_steps;
}

/* Every tensor of a pass has gone when its iteration ends. Moments come with the first step (fp16:
 * with the third). What the last passes
 * leave is as long as they were. Expandable segments charge what was asked for; without them a
 * block may be charged with up to 1 MiB that depends on what was cached. */
static void check_leaks(const trial_t *t)
{
    static char exact[] = "expandable_segments:True";
    trial_t other = *t;
    other.s.conf = exact;
    if (!simulate(&other, NULL, &other.r))
        return;
    const sim_iteration_t *it = other.r.iterations;
    for (uint32_t i = 1; i < other.r.n_iterations; i++)
        CHECK(t, it[i].allocated_bytes == it[i - 1].allocated_bytes || (t->s.fp16 && i == 2) ||
                     captures_before(&t->s, i) || t->s.mean_seq_length > 0);
    sim_rank_result_fini(&other.r);
}

static void every_iteration_ends_alike(void)
{
    foreach_job(check_leaks);
}

/* What a rank holds from the second iteration on whatever it does; FSDP shares it out. */
static void check_statics(const trial_t *t)
{
    if (sim_sharding_of(&t->s) == SIM_SHARDING_UNITS)
        return;
    uint64_t e = sim_dtype_bytes(sim_scenario_params_dtype(&t->s)), n = t->r.n_parameters;
    uint64_t param_bytes = sim_has_quantized_params(&t->s) ? 1 : e;
    uint64_t halves = sim_has_quantized_params(&t->s) && t->s.fp4 != SIM_FP4_NONE ? 2 : 1;
    uint64_t grad_bytes = t->s.accumulate_allreduce_grads_in_fp32 ? 4 : e;
    uint64_t states = (e == 2) + (t->s.optimizer == SIM_OPTIMIZER_ADAM ? 2 : 1);
    bool frozen = t->s.peft_scheme != SIM_PEFT_NONE; /* then almost nothing is trained */
    uint64_t least = n * param_bytes / halves + (frozen ? 0 : n * grad_bytes);
    if (!t->s.use_distributed_optimizer && !frozen)
        least += n * states * 4;
    uint64_t end = t->r.iterations[t->r.n_iterations - 1].allocated_bytes;
    CHECK(t, end >= least);
    CHECK(t, t->r.max_allocated_bytes >= end);
    CHECK(t, sim_holders_category(&t->r.at_peak, SIM_CAT_PARAMETERS) >= n * param_bytes / halves);
}

static void peaks_contain_the_static_part(void)
{
    foreach_job(check_statics);
}

static bool iterations_equal(const sim_rank_result_t *a, const sim_rank_result_t *b)
{
    return a->n_iterations == b->n_iterations &&
           memcmp(a->iterations, b->iterations, a->n_iterations * sizeof(*a->iterations)) == 0;
}

static bool moments_equal(const sim_moment_t *a, const sim_moment_t *b)
{
    return a->iteration == b->iteration && a->microbatch == b->microbatch && a->chunk == b->chunk &&
           a->layer == b->layer && a->phase == b->phase && a->module == b->module;
}

static bool results_equal(const sim_rank_result_t *a, const sim_rank_result_t *b)
{
    return iterations_equal(a, b) && a->n_parameters == b->n_parameters &&
           a->max_allocated_bytes == b->max_allocated_bytes &&
           a->max_reserved_bytes == b->max_reserved_bytes &&
           moments_equal(&a->allocated_moment, &b->allocated_moment) &&
           moments_equal(&a->reserved_moment, &b->reserved_moment) &&
           memcmp(&a->at_peak, &b->at_peak, sizeof(a->at_peak)) == 0 &&
           a->n_allocator_ops == b->n_allocator_ops && a->n_alloc_retries == b->n_alloc_retries &&
           a->is_out_of_memory == b->is_out_of_memory;
}

static void check_again(const trial_t *t)
{
    sim_rank_result_t again, unlimited;
    const sim_simulate_options_t options = { .unlimited = true };
    if (simulate(t, NULL, &again)) {
        CHECK(t, results_equal(&t->r, &again));
        sim_rank_result_fini(&again);
    }
    if (simulate(t, &options, &unlimited)) {
        CHECK(t, results_equal(&t->r, &unlimited));
        sim_rank_result_fini(&unlimited);
    }
}

static void room_to_spare_changes_nothing(void)
{
    foreach_job(check_again);
}

static void check_equal_ranks(const trial_t *t)
{
    sim_classes_t classes;
    base_err_t err;
    CU_ASSERT_TRUE_FATAL(sim_classes_init(&classes, &t->s, &err) == BASE_OK);
    trial_t first = { .seed = t->seed, .s = t->s };
    first.rank = classes.first_rank[classes.of_rank[t->rank]];
    CHECK(t, first.rank <= t->rank);
    if (first.rank != t->rank && simulate(&first, NULL, &first.r)) {
        CHECK(t, results_equal(&t->r, &first.r));
        sim_rank_result_fini(&first.r);
    }
    sim_classes_fini(&classes);
}

static void equal_ranks_have_equal_results(void)
{
    foreach_job(check_equal_ranks);
}

static void check_alive(const trial_t *t)
{
    sim_rank_result_t r;
    const sim_simulate_options_t options = { .want_alive = true };
    if (!simulate(t, &options, &r))
        return;
    uint64_t sum = 0;
    for (uint32_t i = 0; i < r.n_alive; i++) {
        sum += r.alive[i].block_bytes;
        CHECK(t, i == 0 || r.alive[i].block_bytes <= r.alive[i - 1].block_bytes);
        CHECK(t, r.alive[i].name[0] != '\0');
    }
    CHECK(t, sum == r.max_allocated_bytes);
    CHECK(t, results_equal(&t->r, &r));
    sim_rank_result_fini(&r);
}

static void tensors_at_the_peak_add_up(void)
{
    foreach_job(check_alive);
}

/* What the allocator asks the device for when it has no block for a request: a segment. */
static uint64_t segment_bytes(uint64_t bytes)
{
    if (bytes <= 1 << 20)
        return 2 << 20;
    return bytes < 10 << 20 ? 20 << 20 : base_u64_round_up(bytes, 2 << 20);
}

/* What an out-of-memory error says about itself. */
static void check_oom(const trial_t *t, const sim_rank_result_t *r)
{
    const sim_oom_t *oom = &r->oom;
    CHECK(t, r->oom_tensor[0] != '\0');
    CHECK(t, r->oom_requested_bytes > 0 && r->oom_requested_bytes <= oom->requested_bytes);
    CHECK(t, oom->requested_bytes < r->oom_requested_bytes + 512);
    /* Expandable segments grow by what their last block lacks. */
    CHECK(t, t->s.conf != NULL || segment_bytes(oom->requested_bytes) > oom->device_free_bytes);
    CHECK(t, oom->requested_bytes > oom->largest_free_block_bytes);
    CHECK(t, oom->allocated_bytes <= oom->reserved_bytes);
    CHECK(t, oom->allocated_bytes == sim_holders_total(&r->at_oom));
    CHECK(t, oom->device_free_bytes <= oom->device_total_bytes);
    uint64_t usable = t->s.memory_bytes - t->s.reserved_outside_bytes;
    CHECK(t, oom->reserved_bytes + oom->device_free_bytes <= usable);
    CHECK(t, r->max_allocated_bytes <= usable && r->max_reserved_bytes <= usable);
    CHECK(t, r->n_iterations < t->s.iterations);
}

/* Just enough memory gives the same run; a little less may need a retry; less than the peak cannot
 * do, and says so. */
static void check_capacities(const trial_t *t)
{
    const sim_simulate_options_t all = { .plays_all = true };
    trial_t tight = *t;
    tight.s.estimate_outside = false;
    uint64_t reserved = base_u64_round_up(t->r.max_reserved_bytes, 2 << 20);
    const uint64_t capacities[] = { reserved, t->r.max_allocated_bytes,
                                    t->r.max_allocated_bytes - 512, t->r.max_allocated_bytes / 2 };
    for (int i = 0; i < 4; i++) {
        sim_rank_result_t r;
        tight.s.memory_bytes = capacities[i];
        tight.s.reserved_outside_bytes = 0;
        if (i == 3) { /* memory that others hold is memory that is not there */
            tight.s.memory_bytes = t->r.max_allocated_bytes;
            tight.s.reserved_outside_bytes = t->r.max_allocated_bytes - capacities[i];
        }
        if (!simulate(&tight, NULL, &r))
            continue;
        if (i == 0)
            CHECK(t, results_equal(&t->r, &r));
        if (i >= 2)
            CHECK(t, r.is_out_of_memory);
        sim_rank_result_t played; /* what repeats is counted otherwise */
        if (simulate(&tight, &all, &played)) {
            CHECK(t, results_equal(&r, &played));
            sim_rank_result_fini(&played);
        }
        CHECK(t, r.max_allocated_bytes <= t->r.max_allocated_bytes);
        if (r.is_out_of_memory)
            check_oom(&tight, &r);
        else
            CHECK(t, r.max_allocated_bytes == t->r.max_allocated_bytes);
        sim_rank_result_fini(&r);
    }
}

static void capacity_decides_and_says_why(void)
{
    foreach_job(check_capacities);
}

static uint64_t kept_bytes, emptied_bytes;

/* Allocated bytes differ by the remainders of blocks that are too small to split off only. */
static void check_emptied(const trial_t *t)
{
    trial_t other = *t;
    other.s.empty_unused_memory_level = 2;
    sim_rank_result_t r;
    if (!simulate(&other, NULL, &r))
        return;
    CHECK(t, r.n_iterations == t->r.n_iterations);
    for (uint32_t i = 0; i < r.n_iterations; i++) {
        CHECK(t, r.iterations[i].reserved_bytes >= r.iterations[i].allocated_bytes);
        kept_bytes += t->r.iterations[i].reserved_bytes;
        emptied_bytes += r.iterations[i].reserved_bytes;
    }
    sim_rank_result_fini(&r);
}

static void an_emptied_cache_keeps_less(void)
{
    kept_bytes = emptied_bytes = 0;
    foreach_job(check_emptied);
    CU_ASSERT_TRUE(emptied_bytes < kept_bytes);
}

/* Elements whose optimizer state a rank holds, and those that it should share: dense, expert. */
typedef struct {
    uint64_t owned[2], all[2];
} shares_t;

static bool add_owned(sim_player_t *p, const sim_param_t *param, uint64_t n_elements, void *arg)
{
    (void)p;
    shares_t *shares = arg;
    shares->owned[sim_buffer_is_expert(param->buffer)] += n_elements;
    return true;
}

static shares_t shares_of(const sim_scenario_t *s, const topo_coord_t *coord)
{
    sim_place_t place = sim_place_of(s, coord);
    sim_player_t p;
    base_err_t err;
    shares_t shares = { 0 };
    CU_ASSERT_EQUAL_FATAL(sim_player_init_program(&p, s, &place, &err), BASE_OK);
    sim_player_foreach_owned(&p, add_owned, &shares);
    for (uint32_t c = 0; c < p.n_chunks; c++) {
        const sim_params_t *params = &p.chunks[c].chunk.params;
        for (uint32_t i = 0; i < params->n; i++) {
            const sim_param_t *param = &params->params[i];
            if (!param->is_frozen)
                shares.all[sim_buffer_is_expert(param->buffer)] += param->n_elements;
        }
    }
    sim_player_fini(&p);
    return shares;
}

/* The ranks that have the same parameters as this one own each of them once (in every instance of
 * the distributed optimizer). */
static void check_shares(const trial_t *t)
{
    const topo_grid_t *g = &t->s.grid;
    topo_coord_t mine, coord;
    uint64_t sums[2] = { 0 };
    sim_sharding_t sharding = sim_sharding_of(&t->s);
    if (sharding == SIM_SHARDING_NONE || sharding == SIM_SHARDING_UNITS)
        return;
    topo_grid_coord(g, t->rank, &mine, NULL);
    for (uint32_t rank = 0; rank < g->world_size; rank++) {
        topo_grid_coord(g, rank, &coord, NULL);
        if (coord.pp != mine.pp)
            continue;
        shares_t shares = shares_of(&t->s, &coord);
        if (coord.tp == mine.tp)
            sums[0] += shares.owned[0];
        if (coord.etp == mine.etp && coord.ep == mine.ep)
            sums[1] += shares.owned[1];
    }
    shares_t own = shares_of(&t->s, &mine);
    CHECK(t, sums[0] == own.all[0] * t->s.num_distributed_optimizer_instances);
    CHECK(t, sums[1] == own.all[1] * t->s.num_distributed_optimizer_instances);
}

static void every_parameter_has_one_owner(void)
{
    foreach_job(check_shares);
}

static CU_TestInfo tests[] = {
    { "holders at the peak add up", holders_at_the_peak_add_up },
    { "figures of iterations are ordered", figures_of_iterations_are_ordered },
    { "every iteration ends alike", every_iteration_ends_alike },
    { "peaks contain the static part", peaks_contain_the_static_part },
    { "room to spare changes nothing", room_to_spare_changes_nothing },
    { "equal ranks have equal results", equal_ranks_have_equal_results },
    { "tensors at the peak add up", tensors_at_the_peak_add_up },
    { "capacity decides and says why", capacity_decides_and_says_why },
    { "every parameter has one owner", every_parameter_has_one_owner },
    { "an emptied cache keeps less", an_emptied_cache_keeps_less },
    CU_TEST_INFO_NULL,
};

int main(void)
{
    CU_SuiteInfo suites[] = { { .pName = "engine", .pTests = tests }, CU_SUITE_INFO_NULL };
    return cutap_run(suites);
}
