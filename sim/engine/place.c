/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/engine/place.h"

sim_place_t sim_place_of(const sim_scenario_t *s, const topo_coord_t *coord)
{
    sim_place_t place = { .pp = coord->pp, .tp = coord->tp > 0, .n_shards = 1 };
    if (s->use_distributed_optimizer) {
        place.n_shards = (uint64_t)s->grid.dp * s->grid.cp / s->num_distributed_optimizer_instances;
        place.shard = ((uint64_t)coord->cp + (uint64_t)s->grid.cp * coord->dp) % place.n_shards;
    }
    return place;
}

static int compare_u64(uint64_t a, uint64_t b)
{
    return a < b ? -1 : a > b;
}

int sim_place_compare(const sim_place_t *a, const sim_place_t *b)
{
    int order = compare_u64(a->pp, b->pp);
    if (order == 0)
        order = compare_u64(a->tp, b->tp);
    if (order == 0)
        order = compare_u64(a->n_shards, b->n_shards);
    return order != 0 ? order : compare_u64(a->shard, b->shard);
}
