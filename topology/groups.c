/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "topology/groups.h"

#include <assert.h>

enum {
    TP = 1 << TOPO_AXIS_TP,
    CP = 1 << TOPO_AXIS_CP,
    EP = 1 << TOPO_AXIS_EP,
    DP = 1 << TOPO_AXIS_DP,
    PP = 1 << TOPO_AXIS_PP,
};

/* A group holds the ranks that differ only along `axes` of the dense or the expert grid. */
static const struct {
    const char *name;
    unsigned axes;
    bool expert;
} kinds[TOPO_N_GROUPS] = {
    [TOPO_GROUP_TP] = { "tp", TP, false },
    [TOPO_GROUP_CP] = { "cp", CP, false },
    [TOPO_GROUP_DP] = { "dp", DP, false },
    [TOPO_GROUP_DP_CP] = { "dp-cp", DP | CP, false },
    [TOPO_GROUP_PP] = { "pp", PP, false },
    [TOPO_GROUP_TP_CP] = { "tp-cp", TP | CP, false },
    [TOPO_GROUP_TP_DP] = { "tp-dp", TP | DP, false },
    [TOPO_GROUP_TP_DP_CP] = { "tp-dp-cp", TP | DP | CP, false },
    [TOPO_GROUP_MP] = { "mp", TP | PP, false },
    [TOPO_GROUP_EP] = { "ep", EP, true },
    [TOPO_GROUP_ETP] = { "etp", TP, true },
    [TOPO_GROUP_ETP_EP] = { "etp-ep", TP | EP, true },
    [TOPO_GROUP_ETP_EP_PP] = { "etp-ep-pp", TP | EP | PP, true },
    [TOPO_GROUP_EDP] = { "edp", DP, true },
    /* Parts of a pipeline group. */
    [TOPO_GROUP_EMBEDDING] = { "embd", PP, false },
    [TOPO_GROUP_POSITION_EMBEDDING] = { "pos_embd", PP, false },
};

const char *topo_group_name(topo_group_t group)
{
    return kinds[group].name;
}

/* The group's axes, fastest first, with their sizes and strides; returns how many. */
static int shape(const topo_grid_t *grid, topo_group_t group, uint32_t sizes[static TOPO_N_AXES],
                 uint32_t strides[static TOPO_N_AXES])
{
    uint32_t all_sizes[TOPO_N_AXES], all_strides[TOPO_N_AXES];
    topo_grid_sizes(grid, kinds[group].expert, all_sizes);
    topo_grid_strides(grid, kinds[group].expert, all_strides);
    int n = 0;
    for (int place = 0; place < TOPO_N_AXES; place++) {
        for (int axis = 0; axis < TOPO_N_AXES; axis++) {
            if (grid->order[axis] != place || !(kinds[group].axes & 1u << axis))
                continue;
            sizes[n] = all_sizes[axis];
            strides[n++] = all_strides[axis];
        }
    }
    return n;
}

uint32_t topo_group_size(const topo_grid_t *grid, topo_group_t group, uint32_t rank)
{
    assert(rank < grid->world_size);
    uint32_t sizes[TOPO_N_AXES], strides[TOPO_N_AXES];
    int n = shape(grid, group, sizes, strides);
    uint32_t size = 1;
    for (int i = 0; i < n; i++)
        size *= sizes[i];
    if (group != TOPO_GROUP_EMBEDDING && group != TOPO_GROUP_POSITION_EMBEDDING)
        return size;
    uint32_t stage = rank / strides[0] % size;
    if (group == TOPO_GROUP_POSITION_EMBEDDING)
        return stage == 0;
    if (stage != 0 && stage != size - 1)
        return 0;
    return size == 1 ? 1 : 2;
}

bool topo_group_shape(const topo_grid_t *grid, topo_group_t group, uint32_t rank,
                      topo_group_shape_t *shape_p)
{
    uint32_t size = topo_group_size(grid, group, rank);
    if (size == 0)
        return false;
    topo_group_shape_t s;
    s.n_dims = shape(grid, group, s.sizes, s.strides);
    s.first = rank;
    for (int i = 0; i < s.n_dims; i++)
        s.first -= rank / s.strides[i] % s.sizes[i] * s.strides[i];
    /* The second member of an embedding group is the last pipeline rank, not the second. */
    if (group == TOPO_GROUP_EMBEDDING && size == 2)
        s.strides[0] *= s.sizes[0] - 1;
    if (group == TOPO_GROUP_EMBEDDING || group == TOPO_GROUP_POSITION_EMBEDDING)
        s.sizes[0] = size;
    *shape_p = s;
    return true;
}

uint32_t topo_group_ranks(const topo_grid_t *grid, topo_group_t group, uint32_t rank,
                          uint32_t *ranks)
{
    topo_group_shape_t s;
    if (!topo_group_shape(grid, group, rank, &s))
        return 0;
    uint32_t size = topo_group_size(grid, group, rank);
    for (uint32_t index = 0; index < size; index++) {
        uint32_t rest = index;
        ranks[index] = s.first;
        for (int i = 0; i < s.n_dims; i++) {
            ranks[index] += rest % s.sizes[i] * s.strides[i];
            rest /= s.sizes[i];
        }
    }
    return size;
}
