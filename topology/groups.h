/* SPDX-License-Identifier: Apache-2.0
 * Who shares a process group with a rank, for every kind of group that Megatron-LM creates
 * (megatron/core/parallel_state.py, initialize_model_parallel). */
#ifndef TOPOLOGY_GROUPS_H
#define TOPOLOGY_GROUPS_H

#include "topology/grid.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum {
    TOPO_GROUP_TP,
    TOPO_GROUP_CP,
    TOPO_GROUP_DP,
    TOPO_GROUP_DP_CP,
    TOPO_GROUP_PP,
    TOPO_GROUP_TP_CP,
    TOPO_GROUP_TP_DP,
    TOPO_GROUP_TP_DP_CP,
    TOPO_GROUP_MP, /* model parallel: tp and pp */
    TOPO_GROUP_EP,
    TOPO_GROUP_ETP,
    TOPO_GROUP_ETP_EP,
    TOPO_GROUP_ETP_EP_PP,
    TOPO_GROUP_EDP,
    TOPO_GROUP_EMBEDDING,          /* first and last pipeline rank: tied embeddings' gradients */
    TOPO_GROUP_POSITION_EMBEDDING, /* first pipeline rank */
    TOPO_N_GROUPS,
} topo_group_t;

/* "tp", "dp-cp", "mp", "etp-ep", "embd", ... */
const char *topo_group_name(topo_group_t group);

/* Ranks in the group of this kind that `rank` (< world_size) is in; 0 when it is in none, which
 * only happens for the two embedding groups. */
uint32_t topo_group_size(const topo_grid_t *grid, topo_group_t group, uint32_t rank);

/* Fill ranks[] (room for topo_group_size()) in the group's own order: a rank's index in ranks[] is
 * its rank in the group. Returns the size. */
uint32_t topo_group_ranks(const topo_grid_t *grid, topo_group_t group, uint32_t rank,
                          uint32_t *ranks);

/* A group as a lattice: its ranks are first + sum of index[i] * strides[i], 0 <= index[i] <
 * sizes[i], strides ascending, each at least the one before times its size. */
typedef struct {
    uint32_t first;
    int n_dims;
    uint32_t sizes[TOPO_N_AXES], strides[TOPO_N_AXES];
} topo_group_shape_t;

/* Of the group that `rank` is in; false when it is in none. */
bool topo_group_shape(const topo_grid_t *grid, topo_group_t group, uint32_t rank,
                      topo_group_shape_t *shape_p);

#endif
