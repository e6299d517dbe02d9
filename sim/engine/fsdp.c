/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/engine/fsdp.h"

#include "sim/base/units.h"
#include "sim/base/xmem.h"

#include <stdlib.h>
#include <string.h>

/* Weights are gathered on a stream of their own; the buffers are made on DDP's. */
enum { GATHER_STREAM = 0x2000, BUFFER_STREAM = 0x1000, FP32_BYTES = 4 };

/* MegatronFSDP.__init__(): what is called a cap is the least of the limit. */
#define LEAST_UNIT_ELEMENTS UINT64_C(1000000000)

static bool shards_params(const sim_scenario_t *s)
{
    return s->data_parallel_sharding_strategy == SIM_FSDP_OPTIM_GRADS_PARAMS;
}

static bool shards_grads(const sim_scenario_t *s)
{
    return shards_params(s) || s->data_parallel_sharding_strategy == SIM_FSDP_OPTIM_GRADS;
}

static bool shards_state(const sim_scenario_t *s)
{
    return s->data_parallel_sharding_strategy != SIM_FSDP_NO_SHARD;
}

static uint64_t type_bytes(const sim_scenario_t *s, sim_fsdp_dtype_t dtype)
{
    switch (dtype) {
    case SIM_FSDP_FP32:
        return FP32_BYTES;
    case SIM_FSDP_BF16:
    case SIM_FSDP_FP16:
        return 2;
    default:
        return sim_dtype_bytes(sim_scenario_params_dtype(s));
    }
}

static uint64_t grad_bytes(const sim_scenario_t *s)
{
    return type_bytes(s, s->megatron_fsdp_main_grads_dtype);
}

/* ---- buckets ---- */

/* Of multi-token prediction, each layer of a depth is a unit. */
static uint32_t unit_of(const sim_param_t *param, const topo_chunk_t *place)
{
    bool is_outside = param->layer == SIM_NO_LAYER || param->module == SIM_MOD_MTP;
    return is_outside ? SIM_UNIT_HEAD : param->layer - place->first_layer;
}

static uint64_t cols_of(const sim_param_t *param)
{
    return param->is_vector ? 1 : param->n_elements / param->rows;
}

/* Parameters of one bucket in the making. */
typedef struct {
    const sim_param_t **params; /* room for all */
    uint32_t n;
    uint64_t n_elements;
} pile_t;

static int by_cols(const void *a, const void *b)
{
    uint64_t x = cols_of(*(const sim_param_t *const *)a);
    uint64_t y = cols_of(*(const sim_param_t *const *)b);
    return x > y ? -1 : x < y;
}

/* _get_parameter_groups(), step 3: slices end between rows of every matrix. */
static uint64_t chunk_elements(pile_t *pile)
{
    qsort(pile->params, pile->n, sizeof(*pile->params), by_cols);
    uint64_t chunk = cols_of(pile->params[0]);
    for (uint32_t i = 1; i < pile->n; i++) {
        uint64_t cols = cols_of(pile->params[i]), n = pile->params[i]->n_elements;
        bool fits = cols == chunk || (chunk % cols == 0 && n % chunk == 0) || n < chunk;
        if (!fits)
            chunk = base_u64_lcm(chunk, cols);
    }
    return chunk;
}

static void close_bucket(sim_fsdp_t *f, const sim_scenario_t *s, pile_t *pile, uint32_t unit,
                         bool is_expert)
{
    if (pile->n == 0)
        return;
    uint64_t n_ranks = is_expert ? s->grid.edp : (uint64_t)s->grid.dp * s->grid.cp;
    sim_fsdp_bucket_t bucket = { .unit = unit,
                                 .is_expert = is_expert,
                                 .is_distributed = n_ranks > 1,
                                 .n_elements = pile->n_elements };
    for (uint32_t i = 0; i < pile->n; i++)
        bucket.parts |= pile->params[i]->module == SIM_MOD_EMBEDDING ? FSDP_EMBEDDING : FSDP_HEAD;
    if (shards_state(s))
        bucket.n_elements = base_u64_round_up(pile->n_elements, n_ranks * chunk_elements(pile));
    bucket.n_owned = shards_state(s) ? bucket.n_elements / n_ranks : bucket.n_elements;
    f->buckets = base_xrealloc(f->buckets, f->n + 1, sizeof(*f->buckets));
    f->buckets[f->n++] = bucket;
    pile->n = 0;
    pile->n_elements = 0;
}

static bool is_of_expert(const sim_param_t *param)
{
    return strncmp(param->name, "experts.", strlen("experts.")) == 0;
}

/* All parameters of a unit, or all outside the units, that are (not) experts'. A tied embedding has
 * a bucket of its own. */
static void add_group(sim_fsdp_t *f, const sim_scenario_t *s, const sim_params_t *params,
                      const topo_chunk_t *place, uint32_t unit, bool is_expert, uint64_t limit)
{
    pile_t pile = { .params = base_xcalloc(params->n, sizeof(*pile.params)) };
    for (uint32_t i = 0; i < params->n; i++) {
        const sim_param_t *param = &params->params[i];
        if (unit_of(param, place) != unit || is_of_expert(param) != is_expert)
            continue;
        bool alone = param->is_shared_embedding && shards_state(s);
        if (alone)
            close_bucket(f, s, &pile, unit, is_expert);
        pile.params[pile.n++] = param;
        pile.n_elements += param->n_elements;
        if (alone || (unit == SIM_UNIT_HEAD && limit > 0 && pile.n_elements >= limit))
            close_bucket(f, s, &pile, unit, is_expert);
    }
    close_bucket(f, s, &pile, unit, is_expert);
    free(pile.params);
}

/* In the order of the groups' first parameters. */
static void add_buckets(sim_fsdp_t *f, const sim_scenario_t *s, const sim_params_t *params,
                        const topo_chunk_t *place, uint64_t limit)
{
    uint32_t next_unit = 0;
    bool has_rest = false;
    for (uint32_t i = 0; i < params->n; i++) {
        uint32_t unit = unit_of(&params->params[i], place);
        bool is_rest = unit == SIM_UNIT_HEAD;
        if (is_rest ? has_rest : unit < next_unit)
            continue;
        add_group(f, s, params, place, unit, false, limit);
        add_group(f, s, params, place, unit, true, limit);
        if (is_rest)
            has_rest = true;
        else
            next_unit = unit + 1;
    }
}

static void set_limits(sim_fsdp_t *f, const sim_scenario_t *s, const sim_params_t *params,
                       const topo_chunk_t *place, uint64_t bucket_elements)
{
    uint64_t in_units = 0, unit = s->suggested_communication_unit_size;
    for (uint32_t i = 0; i < params->n; i++)
        if (unit_of(&params->params[i], place) != SIM_UNIT_HEAD)
            in_units += params->params[i].n_elements;
    if (unit == 0) {
        unit = bucket_elements;
        uint64_t n_depths =
            s->mtp_use_repeated_layer ? base_u64_min(place->n_mtp_layers, 1) : place->n_mtp_layers;
        uint64_t n_units = place->n_layers + n_depths * s->mtp_depth_layers;
        if (shards_params(s) && n_units > 0)
            unit = in_units / n_units * 2;
        unit = base_u64_max(unit, LEAST_UNIT_ELEMENTS);
    }
    f->queue_elements = unit;
    f->prefetch_elements = unit / 2;
}

/* ---- double buffers ---- */

static uint32_t buckets_of_unit(const sim_fsdp_t *f, uint32_t first)
{
    uint32_t n = 1;
    while (first + n < f->n && f->buckets[first + n].unit == f->buckets[first].unit)
        n++;
    return n;
}

static bool units_are_alike(const sim_fsdp_t *f, uint32_t a, uint32_t b)
{
    uint32_t n = buckets_of_unit(f, a);
    if (buckets_of_unit(f, b) != n)
        return false;
    for (uint32_t i = 0; i < n; i++)
        if (f->buckets[a + i].n_elements != f->buckets[b + i].n_elements)
            return false;
    return true;
}

/* FixedPoolAllocator: the largest set of units alike has two buffers for each of its buckets. */
static void double_buffers(sim_fsdp_t *f)
{
    uint32_t best = 0, n_best = 0;
    for (uint32_t a = 0; a < f->n; a += buckets_of_unit(f, a)) {
        uint32_t n = 0;
        for (uint32_t b = a; b < f->n; b += buckets_of_unit(f, b))
            n += f->buckets[b].unit != SIM_UNIT_HEAD && units_are_alike(f, a, b);
        if (f->buckets[a].unit != SIM_UNIT_HEAD && n > n_best) {
            best = a;
            n_best = n;
        }
    }
    if (n_best == 0)
        return;
    f->n_places = buckets_of_unit(f, best);
    for (uint32_t b = 0; b < f->n; b += buckets_of_unit(f, b))
        for (uint32_t i = 0; i < f->n_places && f->buckets[b].unit != SIM_UNIT_HEAD; i++)
            if (units_are_alike(f, best, b))
                f->is_doubled[b + i] = true;
    f->pools = base_xcalloc(4 * (size_t)f->n_places, sizeof(*f->pools));
    f->is_taken = base_xcalloc(4 * (size_t)f->n_places, sizeof(*f->is_taken));
    for (uint32_t i = 0; i < 4 * f->n_places; i++)
        f->pools[i].block = SIM_BLOCK_NONE;
}

sim_fsdp_t *sim_fsdp_create(const sim_scenario_t *s, const sim_params_t *params,
                            const topo_chunk_t *place, uint64_t bucket_elements)
{
    sim_fsdp_t *f = base_xcalloc(1, sizeof(*f));
    add_buckets(f, s, params, place, bucket_elements);
    set_limits(f, s, params, place, bucket_elements);
    f->weights = base_xcalloc(f->n, sizeof(*f->weights));
    f->grads = base_xcalloc(f->n, sizeof(*f->grads));
    f->parts_done = base_xcalloc(f->n, sizeof(*f->parts_done));
    f->queue = base_xcalloc(f->n, sizeof(*f->queue));
    f->queue_cap = f->n;
    f->is_doubled = base_xcalloc(f->n, sizeof(*f->is_doubled));
    for (uint32_t i = 0; i < f->n; i++)
        f->weights[i].block = f->grads[i].block = SIM_BLOCK_NONE;
    if (s->fsdp_double_buffer)
        double_buffers(f);
    return f;
}

void sim_fsdp_destroy(sim_fsdp_t *f)
{
    if (f == NULL)
        return;
    free(f->buckets);
    free(f->weights);
    free(f->grads);
    free(f->parts_done);
    free(f->queue);
    free(f->is_doubled);
    free(f->pools);
    free(f->is_taken);
    free(f);
}

/* ---- storage of buckets ---- */

static uint32_t place_in_unit(const sim_fsdp_t *f, uint32_t bucket)
{
    uint32_t first = bucket;
    while (first > 0 && f->buckets[first - 1].unit == f->buckets[bucket].unit)
        first--;
    return bucket - first;
}

static bool allocate(sim_player_t *p, sim_fsdp_storage_t *storage, const sim_tensor_t *tensor,
                     uint64_t stream)
{
    storage->tensor = *tensor;
    return sim_player_alloc(p, &storage->tensor, tensor->bytes, stream, &storage->block);
}

static bool take(sim_player_t *p, sim_fsdp_t *f, uint32_t bucket, bool is_grad)
{
    sim_fsdp_storage_t *storage = is_grad ? &f->grads[bucket] : &f->weights[bucket];
    const sim_scenario_t *s = p->scenario;
    uint64_t element = p->dims.e, stream = GATHER_STREAM;
    if (is_grad) {
        element = s->megatron_fsdp_grad_comm_dtype == SIM_FSDP_AUTO
                      ? grad_bytes(s)
                      : type_bytes(s, s->megatron_fsdp_grad_comm_dtype);
        stream = 0;
    }
    sim_tensor_t tensor = { .name = is_grad ? "unit_grads" : "unit_params",
                            .bytes = f->buckets[bucket].n_elements * element,
                            .layer = SIM_NO_LAYER,
                            .category = is_grad ? SIM_CAT_GRADIENTS : SIM_CAT_PARAMETERS,
                            .module = SIM_MOD_DDP };
    storage->pool = -1;
    storage->releasable = false;
    if (!f->is_doubled[bucket])
        return allocate(p, storage, &tensor, stream);
    uint32_t first = 2 * (place_in_unit(f, bucket) + (is_grad ? f->n_places : 0));
    int pool = (int)(f->is_taken[first] ? first + 1 : first);
    storage->pool = pool;
    f->is_taken[pool] = true;
    if (f->pools[pool].block == SIM_BLOCK_NONE && !allocate(p, &f->pools[pool], &tensor, stream))
        return false;
    storage->block = f->pools[pool].block;
    return true;
}

static void give_back(sim_player_t *p, sim_fsdp_t *f, sim_fsdp_storage_t *storage)
{
    if (storage->block == SIM_BLOCK_NONE)
        return;
    if (storage->pool >= 0)
        f->is_taken[storage->pool] = false;
    else
        sim_player_free(p, &storage->tensor, storage->block);
    storage->block = SIM_BLOCK_NONE;
    storage->releasable = false;
}

/* ---- weights ---- */

static bool is_of_event(const sim_fsdp_bucket_t *bucket, uint32_t unit)
{
    if (unit == SIM_UNIT_EMBEDDING || unit == SIM_UNIT_HEAD)
        return bucket->unit == SIM_UNIT_HEAD &&
               (bucket->parts & (unit == SIM_UNIT_EMBEDDING ? FSDP_EMBEDDING : FSDP_HEAD)) != 0;
    return bucket->unit == unit;
}

/* The bucket next to the first (last) run of those that are wanted, n = none. */
static uint32_t next_bucket(const sim_fsdp_t *f, const bool *wanted, bool is_forward)
{
    uint32_t i = is_forward ? 0 : f->n - 1;
    while (i < f->n && !wanted[i])
        i += is_forward ? 1 : -1U;
    while (i < f->n && wanted[i])
        i += is_forward ? 1 : -1U;
    return i < f->n ? i : f->n;
}

/* Buckets that are communicated with this one: those of its unit over the same group. */
static void want_with(const sim_fsdp_t *f, bool *wanted, uint32_t bucket, uint64_t *n_elements_p)
{
    const sim_fsdp_bucket_t *b = &f->buckets[bucket];
    for (uint32_t i = 0; i < f->n; i++) {
        bool same = i == bucket || (b->unit != SIM_UNIT_HEAD && f->buckets[i].unit == b->unit &&
                                    f->buckets[i].is_expert == b->is_expert);
        if (same && !wanted[i]) {
            wanted[i] = true;
            *n_elements_p += f->buckets[i].n_elements;
        }
    }
}

static uint32_t count_doubled_units(const sim_fsdp_t *f, const bool *wanted, uint32_t candidate)
{
    uint32_t n = 0;
    for (uint32_t i = 0; i < f->n; i += buckets_of_unit(f, i)) {
        bool counts = false;
        for (uint32_t k = i; k < i + buckets_of_unit(f, i); k++)
            counts = counts || (wanted[k] && f->is_doubled[k]) || k == candidate;
        n += counts;
    }
    return n;
}

static void prefetch(const sim_scenario_t *s, const sim_fsdp_t *f, bool *wanted, bool is_forward)
{
    uint64_t n_elements = 0;
    for (;;) {
        uint32_t next = next_bucket(f, wanted, is_forward);
        if (next == f->n || n_elements >= f->prefetch_elements)
            return;
        if (s->fsdp_double_buffer && count_doubled_units(f, wanted, next) > 2)
            return;
        want_with(f, wanted, next, &n_elements);
    }
}

static void recycle(sim_player_t *p, sim_fsdp_t *f)
{
    for (uint32_t i = 0; i < f->n; i++)
        if (f->weights[i].releasable)
            give_back(p, f, &f->weights[i]);
}

/* all_gather_params(); what is outside the units stays gathered for good. */
static bool gather(sim_player_t *p, sim_fsdp_t *f, uint32_t unit, bool has_prefetch,
                   bool is_forward)
{
    const sim_scenario_t *s = p->scenario;
    if (!shards_params(s))
        return true;
    bool *wanted = base_xcalloc(f->n, sizeof(*wanted)), ok = true;
    for (uint32_t i = 0; i < f->n; i++) {
        wanted[i] = is_of_event(&f->buckets[i], unit);
        if (wanted[i])
            f->weights[i].releasable = false;
    }
    bool is_unit = unit != SIM_UNIT_EMBEDDING && unit != SIM_UNIT_HEAD;
    if (has_prefetch && (is_unit || !s->fsdp_double_buffer))
        prefetch(s, f, wanted, is_forward);
    for (uint32_t i = 0; i < f->n && ok; i++) {
        if (!wanted[i] || !f->buckets[i].is_distributed || f->weights[i].block != SIM_BLOCK_NONE)
            continue;
        recycle(p, f);
        ok = take(p, f, i, false);
    }
    free(wanted);
    return ok;
}

static void release(sim_player_t *p, sim_fsdp_t *f, uint32_t unit, bool is_lazy)
{
    for (uint32_t i = 0; i < f->n; i++) {
        if (f->buckets[i].unit != unit || unit == SIM_UNIT_HEAD)
            continue;
        if (is_lazy)
            f->weights[i].releasable = f->weights[i].block != SIM_BLOCK_NONE;
        else
            give_back(p, f, &f->weights[i]);
    }
}

/* ---- gradients ---- */

static bool has_grad_storage(const sim_player_t *p, const sim_fsdp_bucket_t *bucket)
{
    return shards_grads(p->scenario) && bucket->is_distributed;
}

static bool begin_grads(sim_player_t *p, sim_fsdp_t *f, uint32_t unit)
{
    for (uint32_t i = 0; i < f->n; i++) {
        if (is_of_event(&f->buckets[i], unit) && has_grad_storage(p, &f->buckets[i]) &&
            f->grads[i].block == SIM_BLOCK_NONE && !take(p, f, i, true))
            return false;
    }
    return true;
}

static void pop_queue(sim_player_t *p, sim_fsdp_t *f)
{
    give_back(p, f, &f->grads[f->queue[0]]);
    memmove(f->queue, f->queue + 1, (f->n_queue - 1) * sizeof(*f->queue));
    f->n_queue--;
}

/* wait_for_previous_grad_reduce(), _enforce_double_buffer_limit(). */
static void limit_queue(sim_player_t *p, sim_fsdp_t *f, uint32_t unit)
{
    uint64_t n_elements = 0;
    for (uint32_t i = 0; i < f->n_queue; i++)
        n_elements += f->buckets[f->queue[i]].n_elements;
    while (n_elements > f->queue_elements) {
        n_elements -= f->buckets[f->queue[0]].n_elements;
        pop_queue(p, f);
    }
    if (!p->scenario->fsdp_double_buffer)
        return;
    uint32_t n_units = 1, last = unit, keep = 0;
    for (uint32_t i = f->n_queue; i-- > 0; keep++) {
        n_units += f->buckets[f->queue[i]].unit != last;
        last = f->buckets[f->queue[i]].unit;
        if (n_units > 2)
            break;
    }
    while (f->n_queue > keep)
        pop_queue(p, f);
}

static void reduce(sim_player_t *p, sim_fsdp_t *f, uint32_t unit)
{
    uint8_t part = unit == SIM_UNIT_EMBEDDING ? FSDP_EMBEDDING : FSDP_HEAD;
    for (uint32_t i = 0; i < f->n; i++) {
        const sim_fsdp_bucket_t *bucket = &f->buckets[i];
        if (!is_of_event(bucket, unit) || f->grads[i].block == SIM_BLOCK_NONE)
            continue;
        f->parts_done[i] |= part;
        if (bucket->unit == SIM_UNIT_HEAD && f->parts_done[i] != bucket->parts)
            continue;
        f->parts_done[i] = 0;
        limit_queue(p, f, bucket->unit);
        if (f->n_queue == f->queue_cap) { /* a unit that is passed twice queues its buckets twice */
            f->queue_cap = 2 * f->queue_cap + 1;
            f->queue = base_xrealloc(f->queue, f->queue_cap, sizeof(*f->queue));
        }
        f->queue[f->n_queue++] = i;
    }
}

bool sim_fsdp_event(sim_player_t *p, sim_player_chunk_t *chunk, sim_unit_event_t event,
                    uint32_t unit)
{
    sim_fsdp_t *f = chunk->fsdp;
    switch (event) {
    case SIM_UNIT_FORWARD:
        return gather(p, f, unit, true, true);
    case SIM_UNIT_FORWARD_DONE:
        release(p, f, unit, false);
        return true;
    case SIM_UNIT_AGAIN: /* recomputed; nothing is fetched ahead */
        return gather(p, f, unit, false, true);
    case SIM_UNIT_AGAIN_DONE:
        release(p, f, unit, true);
        return true;
    case SIM_UNIT_PASS: /* what the head fetched ahead may go */
        for (uint32_t i = 0; i < f->n; i++)
            f->weights[i].releasable =
                f->buckets[i].unit != SIM_UNIT_HEAD && f->weights[i].block != SIM_BLOCK_NONE;
        return true;
    case SIM_UNIT_BACKWARD:
        return gather(p, f, unit, true, false) && begin_grads(p, f, unit);
    case SIM_UNIT_BACKWARD_DONE:
        reduce(p, f, unit);
        release(p, f, unit, false);
        return true;
    default: /* the pass is over */
        while (f->n_queue > 0)
            pop_queue(p, f);
        return true;
    }
}

/* ---- buffers ---- */

static bool add(sim_player_t *p, sim_statics_t *list, const char *name, sim_category_t category,
                uint64_t bytes, uint64_t stream)
{
    sim_tensor_t tensor = { .name = name,
                            .bytes = bytes,
                            .layer = SIM_NO_LAYER,
                            .category = (uint8_t)category,
                            .module =
                                category == SIM_CAT_OPTIMIZER ? SIM_MOD_OPTIMIZER : SIM_MOD_DDP };
    return sim_player_add_static(p, list, &tensor, stream);
}

static bool has_main_weights(const sim_scenario_t *s)
{
    return s->megatron_fsdp_main_params_dtype != SIM_FSDP_AUTO;
}

/* Weights and main weights bucket by bucket; while they are filled, a shared bucket is there as a
 * whole. Then the model's own tensors go, and the gradients are one tensor. */
static bool build_chunk(sim_player_t *p, sim_player_chunk_t *chunk)
{
    const sim_scenario_t *s = p->scenario;
    const sim_fsdp_t *f = chunk->fsdp;
    uint64_t n_grads = 0;
    for (uint32_t i = 0; i < f->n; i++) {
        const sim_fsdp_bucket_t *b = &f->buckets[i];
        uint64_t n_weights = shards_params(s) ? b->n_owned : b->n_elements;
        if (shards_state(s) && !add(p, &p->buffers, "param_shard", SIM_CAT_PARAMETERS,
                                    n_weights * p->dims.e, BUFFER_STREAM))
            return false;
        if (shards_params(s) && b->is_distributed &&
            !add(p, &p->step_temporaries, "whole_bucket", SIM_CAT_PARAMETERS,
                 b->n_elements * p->dims.e, BUFFER_STREAM))
            return false;
        if (has_main_weights(s) &&
            !add(p, &p->optimizer, "main_param", SIM_CAT_OPTIMIZER,
                 b->n_owned * type_bytes(s, s->megatron_fsdp_main_params_dtype), BUFFER_STREAM))
            return false;
        sim_player_free_statics(p, &p->step_temporaries);
        n_grads += shards_grads(s) ? b->n_owned : b->n_elements;
    }
    if (shards_state(s))
        sim_player_free_statics(p, &chunk->params);
    return add(p, &p->buffers, "grad_data", SIM_CAT_GRADIENTS, n_grads * grad_bytes(s),
               BUFFER_STREAM);
}

bool sim_fsdp_build(sim_player_t *p)
{
    p->now.phase = SIM_PHASE_DDP_WRAP;
    for (uint32_t c = 0; c < p->n_chunks; c++) {
        p->now.chunk = (uint16_t)c;
        if (!build_chunk(p, &p->chunks[c]))
            return false;
    }
    return true;
}

/* ---- step ---- */

/* update_main_grads(): gradients of another type than the main weights are converted, and stay
 * until zero_grad(); an optimizer that reads any type does without. */
static bool has_grad_copies(const sim_scenario_t *s)
{
    return has_main_weights(s) && !s->use_precision_aware_optimizer &&
           grad_bytes(s) != type_bytes(s, s->megatron_fsdp_main_params_dtype);
}

static uint64_t moment_bytes(const sim_scenario_t *s, sim_dtype_t dtype)
{
    return s->use_precision_aware_optimizer ? sim_dtype_bytes(dtype) : FP32_BYTES;
}

static bool add_moments(sim_player_t *p, const sim_fsdp_bucket_t *b)
{
    const sim_scenario_t *s = p->scenario;
    if (s->optimizer == SIM_OPTIMIZER_SGD)
        return add(p, &p->optimizer, "momentum", SIM_CAT_OPTIMIZER, b->n_owned * FP32_BYTES, 0);
    return add(p, &p->optimizer, "exp_avg", SIM_CAT_OPTIMIZER,
               b->n_owned * moment_bytes(s, s->exp_avg_dtype), 0) &&
           add(p, &p->optimizer, "exp_avg_sq", SIM_CAT_OPTIMIZER,
               b->n_owned * moment_bytes(s, s->exp_avg_sq_dtype), 0);
}

bool sim_fsdp_step(sim_player_t *p, bool is_skipped)
{
    const sim_scenario_t *s = p->scenario;
    for (uint32_t c = 0; c < p->n_chunks; c++) {
        const sim_fsdp_t *f = p->chunks[c].fsdp;
        p->now.chunk = (uint16_t)c;
        for (uint32_t i = 0; i < f->n && has_grad_copies(s); i++)
            if (!add(p, &p->grad_copies, "main_grad_copy", SIM_CAT_OPTIMIZER,
                     f->buckets[i].n_owned * type_bytes(s, s->megatron_fsdp_main_params_dtype), 0))
                return false;
        for (uint32_t i = 0; i < f->n && !p->has_moments && !is_skipped; i++)
            if (!add_moments(p, &f->buckets[i]))
                return false;
    }
    p->has_moments = p->has_moments || !is_skipped;
    return true;
}
