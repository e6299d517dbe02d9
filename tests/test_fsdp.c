/* SPDX-License-Identifier: Apache-2.0
 * Megatron-FSDP on a small model against sums made by hand. */
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
    RANKS = 4,
    LAYER = 4 * H * H + 2 * H * FFN + 2 * H,
    REST = 2 * VOCAB * H + H,
    ALL = LAYERS * LAYER + REST,
    /* Shards end between rows: multiples of 4 ranks times the widest matrix, 1024 (fc2) and 512. */
    UNIT = (LAYER + 4095) / 4096 * 4096,
    OUTSIDE = (REST + 2047) / 2048 * 2048,
    PADDED = LAYERS * UNIT + OUTSIDE,
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
    "world_size=4",
    "use_megatron_fsdp=true",
    "conf=expandable_segments:True", /* blocks are as large as what they hold */
    NULL,
};

typedef struct {
    const char *name; /* tensors whose bytes are summed */
    uint64_t now, most;
} watch_t;

typedef struct {
    uint64_t held, optimizer;
    uint64_t before; /* most before the first iteration */
    watch_t params, grads;
} figures_t;

static void see(void *arg, const sim_observation_t *seen)
{
    figures_t *f = arg;
    if (seen->now->iteration == 0 && seen->allocated_bytes > f->before)
        f->before = seen->allocated_bytes;
    watch_t *watches[] = { &f->params, &f->grads };
    for (size_t i = 0; i < 2; i++) {
        watch_t *w = watches[i];
        if (strcmp(seen->tensor->name, w->name) != 0)
            continue;
        w->now = seen->is_free ? w->now - seen->block_bytes : w->now + seen->block_bytes;
        w->most = w->now > w->most ? w->now : w->most;
    }
}

static figures_t play(const char *const *more)
{
    sim_scenario_t s;
    sim_rank_result_t r;
    base_err_t err;
    figures_t f = { .params = { .name = "unit_params" }, .grads = { .name = "unit_grads" } };
    const sim_simulate_options_t options = { .unlimited = true, .observer = { see, &f } };
    settings_accepted_lists(&s, base_settings, more);
    CU_ASSERT_EQUAL_FATAL(sim_simulate_rank(&s, 0, &options, &r, &err), BASE_OK);
    f.held = r.iterations[r.n_iterations - 1].allocated_bytes;
    f.optimizer = sim_holders_category(&r.at_peak, SIM_CAT_OPTIMIZER);
    sim_rank_result_fini(&r);
    sim_scenario_fini(&s);
    return f;
}

#define STRATEGY(name) "data_parallel_sharding_strategy=" name
#define FP32_GRADS     "megatron_fsdp_main_grads_dtype=fp32"

static void equal(int64_t got, int64_t expected)
{
    if (got != expected)
        printf("# %" PRId64 ", expected %" PRId64 "\n", got, expected);
    CU_ASSERT_EQUAL(got, expected);
}

/* Bytes an element that a rank holds between iterations, gradients in fp32. */
static void strategies_share_more_and_more(void)
{
    static const char *const none[] = { STRATEGY("no_shard"), FP32_GRADS, NULL };
    static const char *const optim[] = { STRATEGY("optim"), FP32_GRADS, NULL };
    static const char *const grads[] = { STRATEGY("optim_grads"), FP32_GRADS, NULL };
    static const char *const params[] = { STRATEGY("optim_grads_params"), FP32_GRADS, NULL };
    figures_t a = play(none), b = play(optim), c = play(grads), d = play(params);
    equal((int64_t)a.optimizer, 12 * ALL);
    equal((int64_t)b.optimizer, 12 * (PADDED / RANKS));
    equal((int64_t)(a.held - b.held), 18 * (int64_t)ALL - (6 * PADDED + 12 * (PADDED / RANKS)));
    equal((int64_t)(b.held - c.held), 4 * (PADDED - PADDED / RANKS));
    /* What is outside the layers stays gathered. */
    equal((int64_t)(c.held - d.held), 2 * (PADDED - PADDED / RANKS) - 2 * OUTSIDE);
}

/* Gradients are bf16 unless something else is asked for; then the step has an fp32 copy, which
 * stays until the next iteration, but not with an optimizer that reads bf16. */
static void gradients_of_another_type_are_copied(void)
{
    static const char *const fp32[] = { STRATEGY("optim_grads"), FP32_GRADS, NULL };
    static const char *const bf16[] = { STRATEGY("optim_grads"), NULL };
    static const char *const aware[] = { STRATEGY("optim_grads"),
                                         "use_precision_aware_optimizer=true",
                                         "main_grads_dtype=bf16", NULL };
    uint64_t shard = PADDED / RANKS;
    equal((int64_t)(play(bf16).held - play(fp32).held), (int64_t)(2 * shard));
    equal((int64_t)(play(bf16).held - play(aware).held), (int64_t)(4 * shard));
}

/* The model is far below the least of the limits: all is gathered at once, and no gradient is
 * waited for before the pass is over. */
static void small_models_are_gathered_whole(void)
{
    static const char *const settings[] = { STRATEGY("optim_grads_params"), NULL };
    figures_t f = play(settings);
    equal((int64_t)f.params.most, 2 * PADDED);
    equal((int64_t)f.grads.most, 2 * PADDED);
    equal((int64_t)f.params.now, 2 * OUTSIDE);
    equal((int64_t)f.grads.now, 0);
}

static void limits_hold_units_back(void)
{
    static const char *const one_ahead[] = { STRATEGY("optim_grads_params"),
                                             "suggested_communication_unit_size=2", NULL };
    static const char *const recompute[] = {
        STRATEGY("optim_grads_params"), "suggested_communication_unit_size=2",
        "recompute_granularity=full",   "recompute_method=uniform",
        "recompute_num_layers=1",       NULL
    };
    figures_t f = play(one_ahead);
    equal((int64_t)f.params.most, 2 * (2 * UNIT + OUTSIDE));
    equal((int64_t)f.grads.most, 2 * (2 * UNIT + OUTSIDE));
    f = play(recompute);
    equal((int64_t)f.params.most, 2 * (2 * UNIT + OUTSIDE));
}

/* Two buffers for the layers' parameters and two for their gradients, which are kept. */
static void double_buffers_are_kept(void)
{
    static const char *const settings[] = { STRATEGY("optim_grads_params"),
                                            "fsdp_double_buffer=true", NULL };
    figures_t f = play(settings);
    equal((int64_t)f.params.most, 2 * (2 * UNIT + OUTSIDE));
    equal((int64_t)f.params.now, 2 * (2 * UNIT + OUTSIDE));
    equal((int64_t)f.grads.most, 2 * (2 * UNIT + OUTSIDE));
    equal((int64_t)f.grads.now, 2 * 2 * UNIT);
}

static void gradients_travel_in_their_own_type(void)
{
    static const char *const settings[] = { STRATEGY("optim_grads"), FP32_GRADS,
                                            "megatron_fsdp_grad_comm_dtype=bf16", NULL };
    figures_t f = play(settings);
    equal((int64_t)f.grads.most, 2 * PADDED);
    equal((int64_t)f.params.most, 0);
}

/* The whole model and its shards while the last bucket is filled; by parts, shards and gradients
 * are more than shards and a bucket. */
static void a_model_can_be_made_in_parts(void)
{
    static const char *const whole[] = { STRATEGY("optim_grads_params"), NULL };
    static const char *const parts[] = { STRATEGY("optim_grads_params"),
                                         "init_model_with_meta_device=true", NULL };
    figures_t a = play(whole), b = play(parts);
    enum { SHARDS = 6 * (PADDED / RANKS) }; /* bf16 and fp32 */
    equal((int64_t)a.held, (int64_t)b.held);
    equal((int64_t)a.before, 2 * ALL + SHARDS + 2 * UNIT);
    equal((int64_t)b.before, SHARDS + 2 * (PADDED / RANKS));
}

/* The layer of multi-token prediction is a unit like the others; its norms and its projection of
 * two hidden sizes to one are outside. */
static void predicted_layers_are_units(void)
{
    static const char *const settings[] = { STRATEGY("optim_grads_params"), "mtp_num_layers=1",
                                            NULL };
    static const char *const limited[] = { STRATEGY("optim_grads_params"), "mtp_num_layers=1",
                                           "suggested_communication_unit_size=2", NULL };
    enum {
        MORE = REST + 2 * H * H + 3 * H,
        /* 4 ranks, rows of 1024. */
        MORE_PADDED = (MORE + 4095) / 4096 * 4096
    };
    figures_t f = play(settings);
    equal((int64_t)f.params.most, 2 * ((LAYERS + 1) * UNIT + MORE_PADDED));
    equal((int64_t)f.params.now, 2 * MORE_PADDED);
    equal((int64_t)f.grads.now, 0);
    f = play(limited);
    equal((int64_t)f.params.most, 2 * (2 * UNIT + MORE_PADDED));
    equal((int64_t)f.grads.most, 2 * (2 * UNIT + MORE_PADDED));
    /* One layer that serves two depths is one unit. */
    static const char *const repeated[] = { STRATEGY("optim_grads_params"), "mtp_num_layers=2",
                                            "mtp_use_repeated_layer=true", NULL };
    f = play(repeated);
    equal((int64_t)f.params.most, 2 * ((LAYERS + 1) * UNIT + MORE_PADDED));
}

static void one_rank_gathers_nothing(void)
{
    static const char *const settings[] = { STRATEGY("optim_grads_params"), "world_size=1", NULL };
    figures_t f = play(settings);
    equal((int64_t)f.params.most, 0);
    equal((int64_t)f.grads.most, 0);
}

static void wrong_combinations_are_refused(void)
{
    static const struct {
        const char *const settings[3];
        const char *message;
    } cases[] = {
        { { "optimizer=muon" }, "needs optimizer = adam or sgd" },
        { { "use_megatron_fsdp=false", STRATEGY("optim") }, "needs use_megatron_fsdp = true" },
        { { "num_distributed_optimizer_instances=2" }, "more than 1 is not simulated" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
        settings_refused_lists(base_settings, cases[i].settings, cases[i].message);
}

static CU_TestInfo tests[] = {
    { "strategies share more and more", strategies_share_more_and_more },
    { "gradients of another type are copied", gradients_of_another_type_are_copied },
    { "small models are gathered whole", small_models_are_gathered_whole },
    { "limits hold units back", limits_hold_units_back },
    { "double buffers are kept", double_buffers_are_kept },
    { "gradients travel in their own type", gradients_travel_in_their_own_type },
    { "a model can be made in parts", a_model_can_be_made_in_parts },
    { "predicted layers are units", predicted_layers_are_units },
    { "one rank gathers nothing", one_rank_gathers_nothing },
    { "wrong combinations are refused", wrong_combinations_are_refused },
    CU_TEST_INFO_NULL,
};

int main(void)
{
    CU_SuiteInfo suites[] = { { .pName = "fsdp", .pTests = tests }, CU_SUITE_INFO_NULL };
    return cutap_run(suites);
}
