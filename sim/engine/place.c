/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/engine/place.h"

#include "sim/base/units.h"
#include "sim/engine/outside.h"

sim_place_t sim_place_of(const sim_scenario_t *s, const topo_coord_t *coord)
{
    sim_place_t place = { .pp = coord->pp,
                          .tp = coord->tp > 0,
                          .dense = { .n_shards = 1 },
                          .expert = { .n_shards = 1 } };
    place.outside_bytes =
        sim_outside_bytes(s, topo_grid_rank(&s->grid, coord->tp, coord->cp, coord->dp, coord->pp));
    if (s->use_distributed_optimizer) {
        uint64_t instances = s->num_distributed_optimizer_instances;
        place.dense.n_shards = (uint64_t)s->grid.dp * s->grid.cp / instances;
        place.dense.shard =
            ((uint64_t)coord->cp + (uint64_t)s->grid.cp * coord->dp) % place.dense.n_shards;
        /* Experts on the dense grid are reduced with the rest. */
        if (s->num_experts > 0 &&
            (s->expert_model_parallel_size > 1 || s->expert_tensor_parallel_size != s->grid.tp)) {
            place.expert.n_shards = base_u64_max(s->grid.edp / instances, 1);
            place.expert.shard = coord->edp % place.expert.n_shards;
        }
    }
    if (s->mean_seq_length > 0)
        place.dp = coord->dp;
    if (s->routing != NULL && !s->routing->is_same_on_all_ranks)
        place.ep = coord->ep;
    return place;
}

sim_place_t sim_place_program(const sim_place_t *place)
{
    sim_place_t program = *place;
    program.dense.shard = 0;
    program.expert.shard = 0;
    program.outside_bytes = 0;
    return program;
}

static int compare_u64(uint64_t a, uint64_t b)
{
    return a < b ? -1 : a > b;
}

static int compare_share(const sim_share_t *a, const sim_share_t *b)
{
    int order = compare_u64(a->n_shards, b->n_shards);
    return order != 0 ? order : compare_u64(a->shard, b->shard);
}

int sim_place_compare(const sim_place_t *a, const sim_place_t *b)
{
    int order = compare_u64(a->pp, b->pp);
    if (order == 0)
        order = compare_u64(a->tp, b->tp);
    if (order == 0)
        order = compare_u64(a->ep, b->ep);
    if (order == 0)
        order = compare_u64(a->dp, b->dp);
    if (order == 0)
        order = compare_u64(a->outside_bytes, b->outside_bytes);
    if (order == 0)
        order = compare_share(&a->dense, &b->dense);
    return order != 0 ? order : compare_share(&a->expert, &b->expert);
}
