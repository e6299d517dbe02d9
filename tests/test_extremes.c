/* SPDX-License-Identifier: Apache-2.0
 * Jobs with keys at the ends of their ranges: each is refused with a reason, or played with figures
 * that can be; none wraps around. Seeds as in test_engine. */
#include "config.h"

#include "sim/engine/outside.h"
#include "sim/engine/simulate.h"
#include "sim/scenario/keys.h"
#include "tests/cutap.h"
#include "tests/random_scenario.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { N_SEEDS = 3000, MAX_KEYS = 4 };
/* Layers times passes, so that playing a job takes milliseconds. */
enum { MAX_WORK = 3000 };

/* Widths and counts that multiply; powers of two go together most often. */
static const char *const multiply[] = {
    "hidden_size",
    "ffn_hidden_size",
    "num_attention_heads",
    "kv_channels",
    "vocab_size",
    "make_vocab_size_divisible_by",
    "seq_length",
    "decoder_seq_length",
    "micro_batch_size",
    "max_position_embeddings",
    "q_lora_rank",
    "kv_lora_rank",
    "qk_head_dim",
    "qk_pos_emb_head_dim",
    "v_head_dim",
    "mamba_state_dim",
    "mamba_head_dim",
    "mamba_num_heads",
    "mamba_num_groups",
    "linear_key_head_dim",
    "linear_value_head_dim",
    "linear_num_value_heads",
    "num_experts",
    "moe_router_topk",
    "moe_ffn_hidden_size",
    "moe_shared_expert_intermediate_size",
    "moe_latent_size",
    "ddp_bucket_size",
    "dim",
    "buffsize",
};

static void set_count(sim_scenario_t *s, const sim_key_t *key, uint64_t value, base_diag_t *diag)
{
    char text[64];
    snprintf(text, sizeof(text), "%" PRIu64, value);
    sim_scenario_set(s, key->section, key->name, text, "extremes", diag);
}

static uint64_t power_of_two_up_to(random_t *r, uint64_t most)
{
    uint64_t value = UINT64_C(1) << random_below(r, 49);
    while (value > most)
        value /= 2;
    return random_below(r, 4) == 0 ? most : value;
}

static void set_wide(sim_scenario_t *s, random_t *r, base_diag_t *diag)
{
    size_t n;
    const sim_key_t *keys = sim_keys(&n);
    const char *name = multiply[random_below(r, sizeof(multiply) / sizeof(multiply[0]))];
    for (size_t i = 0; i < n; i++)
        if (strcmp(keys[i].name, name) == 0)
            set_count(s, &keys[i], power_of_two_up_to(r, keys[i].max), diag);
}

static void set_any(sim_scenario_t *s, random_t *r, base_diag_t *diag)
{
    size_t n;
    const sim_key_t *keys = sim_keys(&n), *key = &keys[random_below(r, n)];
    char text[64];
    if (key->type == SIM_KEY_COUNT || key->type == SIM_KEY_BYTES) {
        set_count(s, key, power_of_two_up_to(r, key->max), diag);
    } else if (key->type == SIM_KEY_REAL) {
        snprintf(text, sizeof(text), "%s%" PRIu64, random_below(r, 2) != 0 ? "0." : "",
                 UINT64_C(1) << random_below(r, 40));
        sim_scenario_set(s, key->section, key->name, text, "extremes", diag);
    }
}

static bool has_reason(const base_err_t *err)
{
    return err->status != BASE_ERR_OVERFLOW || strstr(err->text, "does not fit 64 bits") != NULL;
}

static void check_result(uint64_t seed, const sim_scenario_t *s, const sim_rank_result_t *result)
{
    const uint64_t most = UINT64_C(1) << 62;
    bool ok = result->max_allocated_bytes <= result->max_reserved_bytes &&
              result->max_reserved_bytes < most && result->n_parameters < most &&
              result->host_bytes < most && sim_outside_bytes(s, result->rank) < most;
    for (uint32_t i = 0; i < result->n_iterations; i++)
        ok = ok && result->iterations[i].allocated_bytes <= result->max_allocated_bytes;
    if (!ok)
        printf("# seed %" PRIu64 ": figures cannot be\n", seed);
    CU_ASSERT_TRUE(ok);
}

static bool is_quick(const sim_scenario_t *s)
{
    uint64_t layers = s->num_layers + s->decoder_num_layers + s->mtp_num_layers;
    return s->n_microbatches <= MAX_WORK && layers <= MAX_WORK &&
           layers * s->n_microbatches <= MAX_WORK && s->num_experts <= 4096 &&
           s->world_size <= 4096;
}

/* What the job of `seed` was made from, not resolved yet. */
static bool random_keys(sim_scenario_t *s_p, uint64_t seed, base_diag_t *diag)
{
    sim_scenario_t made;
    if (!random_scenario(&made, seed))
        return false;
    char *text = sim_scenario_given_text(&made);
    sim_scenario_init(s_p);
    bool ok = sim_scenario_read(s_p, "random", text, strlen(text), diag);
    CU_ASSERT_TRUE_FATAL(ok);
    free(text);
    sim_scenario_fini(&made);
    return true;
}

static void nothing_wraps_around(void)
{
    const char *first = getenv("SEED_FIRST");
    uint64_t seed = first != NULL ? strtoull(first, NULL, 10) : 1;
    unsigned n_played = 0, n_refused = 0;
    for (uint64_t end = seed + N_SEEDS; seed < end; seed++) {
        sim_scenario_t s;
        random_t r = { seed };
        base_diag_t diag;
        base_diag_init(&diag);
        if (!random_keys(&s, seed, &diag))
            continue;
        for (uint64_t i = random_below(&r, MAX_KEYS) + 1; i > 0; i--)
            set_wide(&s, &r, &diag);
        if (random_below(&r, 4) == 0)
            set_any(&s, &r, &diag);
        if (!sim_scenario_resolve(&s, &diag)) {
            CU_ASSERT_TRUE(diag.n > 0);
        } else if (is_quick(&s)) {
            sim_rank_result_t result;
            base_err_t err = { 0 };
            sim_simulate_options_t options = { .unlimited = true };
            uint32_t rank = (uint32_t)random_below(&r, s.world_size);
            if (sim_simulate_rank(&s, rank, &options, &result, &err) == BASE_OK) {
                check_result(seed, &s, &result);
                sim_rank_result_fini(&result);
                n_played++;
            } else {
                CU_ASSERT_TRUE(err.text[0] != '\0' && has_reason(&err));
                n_refused++;
            }
        }
        base_diag_fini(&diag);
        sim_scenario_fini(&s);
    }
    printf("# %u played, %u refused by the simulation\n", n_played, n_refused);
    CU_ASSERT_TRUE(n_played > N_SEEDS / 20);
}

static CU_TestInfo tests[] = {
    { "nothing wraps around", nothing_wraps_around },
    CU_TEST_INFO_NULL,
};

static CU_SuiteInfo suites[] = {
    { "extremes", NULL, NULL, NULL, NULL, tests },
    CU_SUITE_INFO_NULL,
};

int main(void)
{
    return cutap_run(suites);
}
