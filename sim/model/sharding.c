/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/model/sharding.h"

#include "sim/base/xmem.h"
#include "sim/model/software.h"

#include <stdlib.h>

sim_sharding_t sim_sharding_of(const sim_scenario_t *s)
{
    if (s->use_megatron_fsdp || s->use_torch_fsdp2 || sim_is_titan(s))
        return SIM_SHARDING_UNITS;
    if (!s->use_distributed_optimizer)
        return SIM_SHARDING_NONE;
    if (s->optimizer != SIM_OPTIMIZER_MUON)
        return SIM_SHARDING_RANGES;
    return s->use_layer_wise_param_layout && sim_software_has(s, SIM_SOFTWARE_LAYER_WISE_LAYOUT)
               ? SIM_SHARDING_WHOLE
               : SIM_SHARDING_DEALT;
}

bool sim_param_is_orthogonalized(const sim_scenario_t *s, const sim_param_t *param)
{
    return s->optimizer == SIM_OPTIMIZER_MUON && !param->is_vector && !param->is_embedding &&
           !param->is_convolution;
}

typedef struct {
    const sim_param_t *param;
    uint32_t chunk, index;
    uint32_t order; /* in the optimizers' groups: matrices, embeddings, vectors */
} card_t;

static uint32_t group_of(const sim_scenario_t *s, const sim_param_t *param)
{
    return sim_param_is_orthogonalized(s, param) ? 0 : param->is_vector ? 2 : 1;
}

static int by_size(const void *a, const void *b)
{
    const card_t *x = a, *y = b;
    if (x->param->n_elements != y->param->n_elements)
        return x->param->n_elements < y->param->n_elements ? -1 : 1;
    return x->order < y->order ? -1 : x->order > y->order;
}

/* _shard_params_ping_pong(): 0 1 2 3 3 2 1 0 0 1 ... */
static uint64_t there_and_back(uint64_t i, uint64_t n)
{
    uint64_t at = i % (2 * n);
    return at < n ? at : 2 * n - 1 - at;
}

void sim_sharding_deal(const sim_scenario_t *s, const sim_params_t *const *chunks,
                       uint32_t n_chunks, uint64_t n_dense, uint64_t n_expert, uint64_t **owners)
{
    uint32_t n = 0, n_all = 0;
    for (uint32_t c = 0; c < n_chunks; c++)
        n_all += chunks[c]->n;
    card_t *cards = base_xcalloc(n_all, sizeof(*cards));
    for (uint32_t group = 0; group < 3; group++) {
        for (uint32_t c = 0; c < n_chunks; c++) {
            for (uint32_t i = 0; i < chunks[c]->n; i++) {
                const sim_param_t *param = &chunks[c]->params[i];
                if (!param->is_frozen && group_of(s, param) == group) {
                    cards[n] = (card_t){ param, c, i, n };
                    n++;
                }
            }
        }
    }
    qsort(cards, n, sizeof(*cards), by_size);
    uint64_t n_dealt_dense = 0, n_dealt_expert = 0;
    for (uint32_t i = 0; i < n; i++) {
        bool is_expert = sim_buffer_is_expert(cards[i].param->buffer);
        owners[cards[i].chunk][cards[i].index] = is_expert
                                                     ? there_and_back(n_dealt_expert++, n_expert)
                                                     : there_and_back(n_dealt_dense++, n_dense);
    }
    free(cards);
}
