/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "collectives/spread.h"

#include "sim/base/units.h"

/* Ranks of one node as NCCL counts them. */
static uint32_t node_size(const coll_machine_t *machine)
{
    return machine->nvlink_domain > machine->gpus_per_node ? machine->nvlink_domain
                                                           : machine->gpus_per_node;
}

bool coll_same_node(const coll_machine_t *machine, uint32_t a, uint32_t b)
{
    return a / node_size(machine) == b / node_size(machine);
}

bool coll_is_linked(const coll_machine_t *machine, uint32_t a, uint32_t b)
{
    uint32_t local_a = a % node_size(machine), local_b = b % node_size(machine);
    return coll_same_node(machine, a, b) &&
           local_a / machine->nvlink_domain == local_b / machine->nvlink_domain;
}

/* Ranks first + i * stride, 0 <= i < size, below `end`. */
static uint32_t n_below(uint32_t first, uint32_t stride, uint32_t size, uint64_t end)
{
    if (end <= first)
        return 0;
    return (uint32_t)base_u64_min(base_u64_div_up(end - first, stride), size);
}

/* Nodes and neighbours, run by run in ascending order. */
typedef struct {
    uint32_t node, island_first, island_end, my_node;
    uint32_t last_node; /* of the run before; UINT32_MAX = none */
    coll_spread_t spread;
} coll_count_t;

static void count_run(coll_count_t *c, uint32_t first, uint32_t stride, uint32_t size)
{
    uint32_t first_node = first / c->node, last = first + (size - 1) * stride;
    uint32_t n_nodes = stride >= c->node ? size : last / c->node - first_node + 1;
    c->spread.n_nodes += n_nodes - (first_node == c->last_node);
    c->last_node = last / c->node;
    c->spread.n_ranks += size;
    c->spread.n_local += n_below(first, stride, size, (c->my_node + UINT64_C(1)) * c->node) -
                         n_below(first, stride, size, (uint64_t)c->my_node * c->node);
    c->spread.n_linked +=
        n_below(first, stride, size, c->island_end) - n_below(first, stride, size, c->island_first);
}

static coll_count_t count_from(const coll_machine_t *machine, uint32_t rank)
{
    coll_count_t c = { .node = node_size(machine), .last_node = UINT32_MAX };
    c.my_node = rank / c.node;
    uint32_t island = rank % c.node / machine->nvlink_domain;
    c.island_first = c.my_node * c.node + island * machine->nvlink_domain;
    c.island_end = (uint32_t)base_u64_min((uint64_t)c.island_first + machine->nvlink_domain,
                                          (c.my_node + UINT64_C(1)) * c.node);
    return c;
}

/* Join dimensions that continue each other. */
static void merge(topo_group_shape_t *s)
{
    int n = 0;
    for (int i = 0; i < s->n_dims; i++) {
        if (s->sizes[i] == 1)
            continue;
        if (n > 0 && s->strides[i] == s->strides[n - 1] * s->sizes[n - 1]) {
            s->sizes[n - 1] *= s->sizes[i];
        } else {
            s->sizes[n] = s->sizes[i];
            s->strides[n++] = s->strides[i];
        }
    }
    s->n_dims = n;
}

coll_spread_t coll_spread_of_shape(const coll_machine_t *machine, const topo_group_shape_t *shape,
                                   uint32_t rank)
{
    topo_group_shape_t s = *shape;
    coll_count_t c = count_from(machine, rank);
    merge(&s);
    uint32_t inner = s.n_dims > 0 ? s.sizes[0] : 1, stride = s.n_dims > 0 ? s.strides[0] : 1;
    uint32_t n_runs = 1;
    for (int i = 1; i < s.n_dims; i++)
        n_runs *= s.sizes[i];
    for (uint32_t run = 0; run < n_runs; run++) {
        uint32_t first = s.first, rest = run;
        for (int i = 1; i < s.n_dims; i++) {
            first += rest % s.sizes[i] * s.strides[i];
            rest /= s.sizes[i];
        }
        count_run(&c, first, stride, inner);
    }
    return c.spread;
}

void coll_spread_place(coll_spread_t *spread, const coll_machine_t *machine, const uint32_t *ranks,
                       size_t n, uint32_t rank)
{
    spread->is_placed = true;
    spread->node = spread->place = 0;
    for (size_t i = 0; i < n; i++) {
        bool is_first = true; /* of its node */
        for (size_t k = 0; k < i && is_first; k++)
            is_first = !coll_same_node(machine, ranks[k], ranks[i]);
        if (coll_same_node(machine, ranks[i], rank)) {
            if (ranks[i] == rank)
                return;
            spread->place++;
        } else if (is_first && spread->place == 0) {
            spread->node++;
        }
    }
}

coll_spread_t coll_spread_of_list(const coll_machine_t *machine, const uint32_t *ranks, size_t n,
                                  uint32_t rank)
{
    coll_count_t c = count_from(machine, rank);
    for (size_t i = 0; i < n; i++)
        count_run(&c, ranks[i], 1, 1);
    return c.spread;
}
