/* SPDX-License-Identifier: Apache-2.0
 * Rules that join several keys. For this folder only. */
#ifndef SIM_SCENARIO_RULES_H
#define SIM_SCENARIO_RULES_H

#include "sim/scenario/scenario.h"

/* What a rule looks at, and where it reports. */
typedef struct {
    const sim_scenario_t *s;
    base_diag_t *diag;
    bool ok;
} sim_rule_context_t;

typedef struct {
    /* Blank-separated keys that the rule reads, the one it blames first. It is not run when one of
     * them has a wrong value or a required one is missing. */
    const char *keys;
    const char *text; /* what must hold, with its source */
    void (*check)(sim_rule_context_t *context);
} sim_rule_t;

const sim_rule_t *sim_rules(size_t *n_p);

/* Append "ORIGIN: section.key: ..." for the key of the table called `key`. */
void sim_rule_broken(sim_rule_context_t *context, const char *key, const char *fmt, ...)
    __attribute__((format(printf, 3, 4)));

/* Rules of experts, multi-latent attention and multi-token prediction, rows of the table. */
void sim_rule_experts_are_divisible(sim_rule_context_t *context);
void sim_rule_topk_fits(sim_rule_context_t *context);
void sim_rule_experts_need_sequence_parallel(sim_rule_context_t *context);
void sim_rule_expert_bias_is_possible(sim_rule_context_t *context);
void sim_rule_expert_width_is_divisible(sim_rule_context_t *context);
void sim_rule_shared_experts_fit(sim_rule_context_t *context);
void sim_rule_lengths_are_possible(sim_rule_context_t *context);
void sim_rule_moments_are_possible(sim_rule_context_t *context);
void sim_rule_squared_relu_can_fuse(sim_rule_context_t *context);
void sim_rule_shared_overlap_is_possible(sim_rule_context_t *context);
void sim_rule_ep_overlap_is_possible(sim_rule_context_t *context);
void sim_rule_ep_overlap_is_simulated(sim_rule_context_t *context);
void sim_rule_capacity_is_possible(sim_rule_context_t *context);
void sim_rule_padding_has_a_capacity(sim_rule_context_t *context);
void sim_rule_flex_has_ranks(sim_rule_context_t *context);
void sim_rule_recomputed_modules_exist(sim_rule_context_t *context);
void sim_rule_mla_has_no_groups(sim_rule_context_t *context);
void sim_rule_down_projections_can_fuse(sim_rule_context_t *context);
void sim_rule_mtp_is_possible(sim_rule_context_t *context);

/* Rules of models that are no GPT. */
void sim_rule_bert_is_dense(sim_rule_context_t *context);
void sim_rule_t5_is_plain(sim_rule_context_t *context);
void sim_rule_t5_is_trained_plainly(sim_rule_context_t *context);
void sim_rule_hybrid_is_possible(sim_rule_context_t *context);
void sim_rule_hybrid_is_trained_plainly(sim_rule_context_t *context);
void sim_rule_delta_net_is_possible(sim_rule_context_t *context);
void sim_rule_delta_net_can_be_split(sim_rule_context_t *context);
void sim_rule_mamba_can_be_split(sim_rule_context_t *context);
void sim_rule_decoder_fits(sim_rule_context_t *context);
void sim_rule_sequence_is_divisible(sim_rule_context_t *context);

/* Rules of torchtitan. */
void sim_rule_titan_model(sim_rule_context_t *context);
void sim_rule_titan_training(sim_rule_context_t *context);
void sim_rule_titan_parallel(sim_rule_context_t *context);
void sim_rule_titan_checkpoints(sim_rule_context_t *context);
void sim_rule_keys_are_of_the_framework(sim_rule_context_t *context);

/* Rules of pipeline schedules. */
void sim_rule_backward_can_be_split(sim_rule_context_t *context);
void sim_rule_experts_can_be_delayed(sim_rule_context_t *context);

/* Rules of adapters. */
void sim_rule_adapters_can_be_split(sim_rule_context_t *context);
void sim_rule_adapters_have_layers(sim_rule_context_t *context);
void sim_rule_adapters_have_linears(sim_rule_context_t *context);
void sim_rule_dora_is_possible(sim_rule_context_t *context);
void sim_rule_expert_rank_is_divisible(sim_rule_context_t *context);

/* Rules of what goes to host memory. */
void sim_rule_layers_can_be_offloaded(sim_rule_context_t *context);
void sim_rule_modules_can_be_offloaded(sim_rule_context_t *context);

/* Rules of CUDA graphs. */
void sim_rule_graphs_are_possible(sim_rule_context_t *context);
void sim_rule_graph_modules_go_together(sim_rule_context_t *context);
void sim_rule_graphs_do_not_cut_recompute(sim_rule_context_t *context);
void sim_rule_graphs_are_simulated(sim_rule_context_t *context);

/* Elements for each token of the widest tensor that experts or multi-latent attention make. */
uint64_t sim_widest_of_experts_and_mla(const sim_scenario_t *scenario);

/* Check every rule; false when one is broken, and *broken_p is the text of the first one. Keys must
 * have their derived values. */
bool sim_rules_check(const sim_scenario_t *scenario, base_diag_t *diag, const char **broken_p);

/* False when the key has a wrong value, or is required and not given. */
bool sim_key_is_usable(const sim_scenario_t *scenario, const char *key);

#endif
