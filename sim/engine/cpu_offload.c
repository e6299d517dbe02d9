/* SPDX-License-Identifier: Apache-2.0
 * Optimizer of which a fraction runs on the CPU. Megatron-LM
 * optimizer/cpu_offloading/hybrid_optimizer.py (HybridDeviceOptimizer), optimizer/
 * distrib_optimizer.py, which makes it anew over the shards of the one over whole parameters. */
#include "config.h"

#include "sim/engine/player.h"

enum { FP32_BYTES = 4 };

/* Dense parameters and experts that are reduced apart have an optimizer each. */
typedef struct {
    bool is_expert;
    double threshold;    /* parameters go to the CPU until these elements have */
    uint64_t n_elements; /* seen */
    uint64_t n_offloaded;
    sim_statics_t *list; /* of new tensors */
} half_t;

static bool is_of(const half_t *h, const sim_param_t *param)
{
    return sim_buffer_is_expert(param->buffer) == h->is_expert;
}

static bool count(sim_player_t *p, const sim_param_t *param, uint64_t n_elements, void *arg)
{
    half_t *h = arg;
    (void)p;
    if (is_of(h, param))
        h->n_elements += n_elements;
    return true;
}

/* Whole parameters, in order, until the fraction is reached: the last may go beyond it. */
static bool takes(half_t *h, uint64_t n_elements)
{
    if ((double)h->n_offloaded >= h->threshold)
        return false;
    h->n_offloaded += n_elements;
    return true;
}

static bool add(sim_player_t *p, half_t *h, const sim_param_t *param, const char *name,
                uint64_t bytes)
{
    sim_tensor_t tensor = { .name = name,
                            .bytes = bytes,
                            .layer = param->layer,
                            .category = SIM_CAT_OPTIMIZER,
                            .module = SIM_MOD_OPTIMIZER };
    return sim_player_add_static(p, h->list, &tensor, 0);
}

/* A parameter is cloned as it is; what stays is then converted, and the clone let go. */
static bool add_main_param(sim_player_t *p, const sim_param_t *param, uint64_t n_elements,
                           void *arg)
{
    half_t *h = arg;
    if (!is_of(h, param))
        return true;
    if (takes(h, n_elements))
        return sim_player_touch(p, param, "main_param_clone", n_elements * p->dims.e);
    return sim_player_convert_param(p, h->list, param, n_elements);
}

static bool add_moments(sim_player_t *p, const sim_param_t *param, uint64_t n_elements, void *arg)
{
    half_t *h = arg;
    if (!is_of(h, param) || takes(h, n_elements))
        return true;
    return add(p, h, param, "exp_avg", n_elements * FP32_BYTES) &&
           add(p, h, param, "exp_avg_sq", n_elements * FP32_BYTES);
}

/* Nobody clears the fp32 parameters' gradients: each stays until the next step has made its
 * successor. */
static bool add_grad_copy(sim_player_t *p, const sim_param_t *param, uint64_t n_elements, void *arg)
{
    half_t *h = arg;
    if (!is_of(h, param) || takes(h, n_elements))
        return true;
    return p->has_moments ? sim_player_touch(p, param, "main_grad_copy", n_elements * FP32_BYTES)
                          : add(p, h, param, "main_grad_copy", n_elements * FP32_BYTES);
}

typedef bool (*foreach_f)(sim_player_t *p, sim_owned_f visit, void *arg);

static bool walk(sim_player_t *p, foreach_f each, sim_owned_f visit, half_t *h)
{
    half_t all = { .is_expert = h->is_expert };
    each(p, count, &all);
    h->threshold = (double)all.n_elements * p->scenario->optimizer_offload_fraction;
    return each(p, visit, h);
}

bool sim_player_build_offloaded(sim_player_t *p)
{
    for (int is_expert = 0; is_expert < 2; is_expert++) {
        half_t whole = { .is_expert = is_expert, .list = &p->step_temporaries };
        half_t shards = { .is_expert = is_expert, .list = &p->optimizer };
        if (!walk(p, sim_player_foreach_trained, add_main_param, &whole) ||
            !walk(p, sim_player_foreach_owned, add_main_param, &shards))
            return false;
        sim_player_free_statics(p, &p->step_temporaries);
        /* Main parameter, gradient and two moments, all fp32. */
        p->host_bytes += 4 * FP32_BYTES * shards.n_offloaded;
    }
    return true;
}

bool sim_player_step_offloaded(sim_player_t *p)
{
    for (int is_expert = 0; is_expert < 2; is_expert++) {
        half_t copies = { .is_expert = is_expert, .list = &p->optimizer };
        half_t moments = copies;
        if (sim_player_grad_bytes(p) != FP32_BYTES &&
            !walk(p, sim_player_foreach_owned, add_grad_copy, &copies))
            return false;
        if (!p->has_moments && !walk(p, sim_player_foreach_owned, add_moments, &moments))
            return false;
    }
    p->has_moments = true;
    return true;
}
