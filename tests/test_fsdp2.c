/* SPDX-License-Identifier: Apache-2.0
 * FSDP2 on a small model against sums made by hand. */
#include "config.h"

#include "sim/engine/simulate.h"

#include "tests/cutap.h"
#include "tests/settings.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    H = 512,
    FFN = 1024,
    VOCAB = 1024,
    LAYERS = 6,
    LAYER = 4 * H * H + 2 * H * FFN + 2 * H,
    ALL = LAYERS * LAYER + 2 * VOCAB * H + H,
    ROUNDED = 256, /* a quarter of the head in bf16 ends in half a block of 512 bytes */
};

static const char *const base_settings[] = {
    "num_layers=6",
    "hidden_size=512",
    "num_attention_heads=8",
    "ffn_hidden_size=1024",
    "vocab_size=1024",
    "seq_length=16",
    "normalization=RMSNorm",
    "position_embedding_type=rope",
    "add_bias_linear=false",
    "hidden_dropout=0",
    "attention_dropout=0",
    "untie_embeddings_and_output_weights=true",
    "use_torch_fsdp2=true",
    "gradient_accumulation_fusion=false",
    "conf=expandable_segments:True", /* blocks are as large as what they hold */
    NULL,
};

typedef struct {
    const char *name; /* tensors whose bytes are summed */
    int64_t now, most;
} watch_t;

enum { GATHERED, PARAMS, GRADS, REDUCED, SHARDED, N_WATCHES };

typedef struct {
    int64_t held;
    watch_t watches[N_WATCHES];
} figures_t;

static void see(void *arg, const sim_observation_t *seen)
{
    figures_t *f = arg;
    for (size_t i = 0; i < N_WATCHES; i++) {
        watch_t *w = &f->watches[i];
        if (strcmp(seen->tensor->name, w->name) != 0)
            continue;
        int64_t bytes = (int64_t)seen->block_bytes;
        w->now += seen->is_free ? -bytes : bytes;
        w->most = w->now > w->most ? w->now : w->most;
    }
}

static figures_t play(const char *const *more)
{
    sim_scenario_t s;
    sim_rank_result_t r;
    base_err_t err;
    figures_t f = { .watches = { [GATHERED] = { .name = "gathered_params" },
                                 [PARAMS] = { .name = "unit_params" },
                                 [GRADS] = { .name = "unit_grads" },
                                 [REDUCED] = { .name = "reduce_input" },
                                 [SHARDED] = { .name = "sharded_grad" } } };
    const sim_simulate_options_t options = { .unlimited = true, .observer = { see, &f } };
    settings_accepted_lists(&s, base_settings, more);
    CU_ASSERT_EQUAL_FATAL(sim_simulate_rank(&s, 0, &options, &r, &err), BASE_OK);
    f.held = (int64_t)r.iterations[r.n_iterations - 1].allocated_bytes;
    sim_rank_result_fini(&r);
    sim_scenario_fini(&s);
    return f;
}

static void equal(int64_t got, int64_t expected)
{
    if (got != expected)
        printf("# %" PRId64 ", expected %" PRId64 "\n", got, expected);
    CU_ASSERT_EQUAL(got, expected);
}

static void check(const figures_t *f, int which, int64_t most, int64_t now)
{
    equal(f->watches[which].most, most);
    equal(f->watches[which].now, now);
}

/* Parameter, gradient, main parameter, its gradient and two moments: 2 + 2 + 4 + 4 + 8 bytes. */
static void everything_is_shared(void)
{
    static const char *const two[] = { "world_size=2", NULL };
    static const char *const four[] = { "world_size=4", NULL };
    static const char *const sgd[] = { "world_size=4", "optimizer=sgd", NULL };
    figures_t f = play(four);
    equal(play(two).held - f.held, 20 * ALL / 2 - 20 * ALL / 4 - 2 * ROUNDED);
    equal(f.held - play(sgd).held, 4 * ALL / 4);
    check(&f, SHARDED, 2 * ALL / 4 + ROUNDED, 2 * ALL / 4 + ROUNDED);
}

/* Forward keeps what the unit before received until the next has come; backward fetches one ahead.
 */
static void units_come_and_go(void)
{
    static const char *const settings[] = { "world_size=4", NULL };
    figures_t f = play(settings);
    check(&f, GATHERED, 2 * 2 * LAYER, 0);
    check(&f, PARAMS, 2 * LAYER, 0);
    check(&f, GRADS, 2 * LAYER, 0);
    check(&f, REDUCED, 2 * LAYER, 0);
}

static void recompute_gathers_again(void)
{
    static const char *const settings[] = { "world_size=4", "recompute_granularity=full",
                                            "recompute_method=uniform", "recompute_num_layers=1",
                                            NULL };
    figures_t f = play(settings);
    check(&f, PARAMS, 2 * LAYER, 0);
    check(&f, GRADS, 2 * LAYER, 0);
}

static void parameters_can_stay(void)
{
    static const char *const settings[] = { "world_size=4",
                                            "torch_fsdp2_reshard_after_forward=false", NULL };
    figures_t f = play(settings);
    check(&f, PARAMS, 2 * ALL, 0);
}

/* Gradients of later micro-batches are added to those of the first. */
static void gradients_are_added_up(void)
{
    static const char *const settings[] = { "world_size=4", "global_batch_size=12", NULL };
    figures_t f = play(settings);
    check(&f, SHARDED, 2 * ALL / 4 + ROUNDED, 2 * ALL / 4 + ROUNDED);
    check(&f, REDUCED, 2 * LAYER, 0);
}

static void one_rank_gathers_nothing(void)
{
    static const char *const settings[] = { "world_size=1", NULL };
    figures_t f = play(settings);
    check(&f, GATHERED, 0, 0);
    check(&f, PARAMS, 2 * LAYER, 0); /* but its parameters are copies all the same */
}

static void wrong_combinations_are_refused(void)
{
    static const struct {
        const char *const settings[4];
        const char *message;
    } cases[] = {
        { { "world_size=2", "pipeline_model_parallel_size=2" }, "pipeline and expert parallel" },
        { { "world_size=2", "use_distributed_optimizer=true" }, "the distributed optimizer" },
        { { "world_size=2", "use_megatron_fsdp=true" }, "Megatron-FSDP" },
        { { "world_size=2", "gradient_accumulation_fusion=true" }, "fusion = false" },
        { { "world_size=2", "untie_embeddings_and_output_weights=false" },
          "output_weights = true" },
        { { "world_size=2", "fp16=true" }, "fp16" },
        { { "world_size=2", "optimizer=muon" }, "muon" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        settings_refused_lists(base_settings, cases[i].settings, cases[i].message);
}

static CU_TestInfo tests[] = {
    { "everything is shared", everything_is_shared },
    { "units come and go", units_come_and_go },
    { "recompute gathers again", recompute_gathers_again },
    { "parameters can stay", parameters_can_stay },
    { "gradients are added up", gradients_are_added_up },
    { "one rank gathers nothing", one_rank_gathers_nothing },
    { "wrong combinations are refused", wrong_combinations_are_refused },
    CU_TEST_INFO_NULL,
};

int main(void)
{
    CU_SuiteInfo suites[] = { { .pName = "fsdp2", .pTests = tests }, CU_SUITE_INFO_NULL };
    return cutap_run(suites);
}
