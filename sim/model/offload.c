/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/model/offload.h"

#include "sim/base/xmem.h"

#include <stdlib.h>

void sim_offloads_fini(sim_offloads_t *offloads)
{
    for (uint32_t i = 0; i < offloads->n; i++)
        free(offloads->groups[i].items);
    free(offloads->groups);
    free(offloads->keeps);
    *offloads = (sim_offloads_t){ 0 };
}

static bool is_last_of_its_module(const sim_offloads_t *o, uint32_t group)
{
    for (uint32_t i = group + 1; i < o->n; i++)
        if (o->groups[i].module == o->groups[group].module)
            return false;
    return true;
}

void sim_offloads_decide(sim_offloads_t *o, double fraction, bool backward_follows)
{
    uint32_t n_eligible = 0;
    free(o->keeps);
    o->keeps = base_xcalloc(o->n > 0 ? o->n : 1, sizeof(*o->keeps));
    for (uint32_t i = 0; i < o->n; i++) {
        o->keeps[i] = backward_follows && is_last_of_its_module(o, i);
        n_eligible += !o->keeps[i] && o->groups[i].bytes > 0;
    }
    uint32_t n_kept = (uint32_t)((double)n_eligible * (1.0 - fraction));
    for (uint32_t i = o->n; i-- > 0 && n_kept > 0;) {
        if (!o->keeps[i] && o->groups[i].bytes > 0) {
            o->keeps[i] = true;
            n_kept--;
        }
    }
    for (uint32_t i = 0; i < o->n; i++)
        free(o->groups[i].items);
    o->n = 0;
    o->counts = false;
}

/* The group of the current layer, from the last made on. */
static sim_offload_group_t *find(sim_model_t *m, sim_offload_module_t module)
{
    sim_offloads_t *o = m->offloads;
    for (uint32_t i = o != NULL ? o->n : 0; i-- > 0;)
        if (o->groups[i].layer == m->b->layer && o->groups[i].module == module)
            return &o->groups[i];
    return NULL;
}

bool sim_offload_begin(sim_model_t *m, sim_offload_module_t module, bool grad)
{
    sim_offloads_t *o = m->offloads;
    if (o == NULL || !grad || !m->b->in_forward || !(m->s->offload_modules & module))
        return false;
    if (o->n == o->cap) {
        o->cap = o->cap > 0 ? 2 * o->cap : 64;
        o->groups = base_xrealloc(o->groups, o->cap, sizeof(*o->groups));
    }
    o->groups[o->n] = (sim_offload_group_t){ .layer = m->b->layer,
                                             .module = (uint8_t)module,
                                             .is_kept = o->counts || o->keeps[o->n] };
    o->n++;
    return true;
}

void sim_offload_take(sim_model_t *m, sim_offload_module_t module, sim_ref_t *field,
                      uint64_t element_bytes, bool is_forced)
{
    sim_offload_group_t *g = find(m, module);
    if (g == NULL || *field == SIM_REF_NONE)
        return;
    const sim_tensor_t tensor = m->b->built[*field].tensor;
    if (tensor.bytes / element_bytes < m->s->min_offloaded_tensor_size)
        return;
    g->bytes += tensor.bytes;
    if (g->is_kept)
        return;
    g->items = base_xrealloc(g->items, g->n + 1, sizeof(*g->items));
    g->items[g->n++] = (sim_offloaded_t){ .field = field,
                                          .name = tensor.name,
                                          .bytes = tensor.bytes,
                                          .layer = tensor.layer,
                                          .module = tensor.module };
    g->is_pending = true;
    sim_ref_t ref = *field;
    *field = SIM_REF_NONE;
    sim_to_host(m->b, tensor.bytes);
    sim_drop(m->b, ref);
    if (is_forced)
        sim_discard_rest(m->b, ref);
}

static void reload(sim_model_t *m, sim_offload_group_t *g)
{
    uint16_t layer = m->b->layer;
    uint8_t module = m->b->module;
    for (uint32_t i = 0; g->is_pending && i < g->n; i++) {
        m->b->layer = g->items[i].layer;
        m->b->module = g->items[i].module;
        *g->items[i].field =
            sim_new_as(m->b, SIM_CAT_ACTIVATIONS, g->items[i].name, g->items[i].bytes);
        sim_from_host(m->b, g->items[i].bytes);
    }
    g->is_pending = false;
    m->b->layer = layer;
    m->b->module = module;
}

void sim_offload_before_backward(sim_model_t *m, sim_offload_module_t module)
{
    sim_offload_group_t *g = find(m, module);
    if (g != NULL)
        reload(m, g);
}

void sim_offload_after_backward(sim_model_t *m, sim_offload_module_t module)
{
    sim_offload_group_t *g = find(m, module);
    if (g == NULL)
        return;
    while (g-- > m->offloads->groups) {
        if (g->is_pending) {
            reload(m, g);
            return;
        }
    }
}

/* cpu_offload.py, OffloadableLayerState._check_if_offload(): smaller ones stay. */
enum { MIN_ELEMENTS = 256 * 1024 };

static void to_host(sim_model_t *m, sim_ref_t ref)
{
    if (ref == SIM_REF_NONE)
        return;
    const sim_built_t *built = &m->b->built[ref];
    bool is_there = built->refs > 0 && !built->is_discarded && built->slot >= SIM_N_SLOTS_FIXED;
    if (!is_there || built->tensor.bytes / m->d->e < MIN_ELEMENTS)
        return;
    sim_to_host(m->b, built->tensor.bytes);
    sim_discard(m->b, ref);
}

static void from_host(sim_model_t *m, sim_ref_t ref)
{
    if (ref == SIM_REF_NONE || !m->b->built[ref].is_discarded || m->b->built[ref].refs == 0)
        return;
    sim_from_host(m->b, m->b->built[ref].tensor.bytes);
    sim_restore(m->b, ref);
}

void sim_layer_to_host(sim_model_t *m, const sim_layer_range_t *range)
{
    to_host(m, range->in);
    for (uint32_t i = range->first; i < range->end; i++)
        if (i != range->out)
            to_host(m, i);
}

void sim_layer_from_host(sim_model_t *m, const sim_layer_range_t *range)
{
    from_host(m, range->in);
    for (uint32_t i = range->first; i < range->end; i++)
        if (i != range->out)
            from_host(m, i);
}
