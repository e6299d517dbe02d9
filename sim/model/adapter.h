/* SPDX-License-Identifier: Apache-2.0
 * Low-rank adapters beside frozen linears. Sources: Megatron-Bridge 0.7.0
 * src/megatron/bridge/peft/{lora,lora_layers,dora_layers,utils}.py; Megatron-LM (mcore 0.20)
 * tensor_parallel/{layers,mappings}.py. */
#ifndef SIM_MODEL_ADAPTER_H
#define SIM_MODEL_ADAPTER_H

#include "sim/model/layer.h"

/* Weights of the model are frozen: no gradient of theirs is computed, and nothing is saved for it.
 */
static inline bool sim_is_frozen(const sim_model_t *m)
{
    return m->s->peft_scheme != SIM_PEFT_NONE;
}

/* A linear of this kind has an adapter. */
static inline bool sim_has_adapter(const sim_scenario_t *s, sim_target_t target)
{
    return s->peft_scheme != SIM_PEFT_NONE && (s->peft_target_modules & target) != 0;
}

/* The adapter keeps its part of the sequence and gathers it again in the backward pass; else it
 * falls back to keeping all of it (utils.py, _sequence_parallel_input_regather_eligibility()). */
bool sim_adapter_regathers(const sim_model_t *m, sim_target_t target);

/* Sizes on one rank. The product with A makes `mid`, that with B an output as wide as the linear's.
 */
typedef struct {
    uint64_t rows;       /* tokens that A reads */
    uint64_t in, out;    /* features of A's input; of the linear's output */
    uint64_t rank;       /* width of mid */
    uint64_t tp;         /* ranks that A and B are split over */
    uint64_t local_rows; /* rows of the linear's output where they are scattered afterwards */
    bool is_row;         /* the linear's input is split, not its output */
    bool is_whole;       /* neither is: the adapter's output is gathered */
    bool regathers;      /* A's input is a part of the sequence, gathered for each use */
    uint64_t n;          /* adapters that share the rows (one for every expert); else 1 */
} sim_adapter_dims_t;

/* Takes one reference of `x` and `base_out`; returns their sum, called `out_name`. Without `grad`
 * nothing is saved. */
sim_ref_t sim_adapter_forward(sim_model_t *m, const sim_adapter_dims_t *d, sim_adapter_save_t *save,
                              sim_ref_t x, sim_ref_t base_out, const char *out_name, bool grad);

/* Reads the output's gradient, *d_out_p, which becomes that of the linear's own output; returns
 * the gradient of what A read. */
sim_ref_t sim_adapter_backward(sim_model_t *m, const sim_adapter_dims_t *d,
                               sim_adapter_save_t *save, sim_ref_t *d_out_p);

void sim_adapter_forget(sim_model_t *m, sim_adapter_save_t *save);

/* Nothing saved. */
sim_adapter_save_t sim_adapter_none(void);

#endif
