/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "topology/grid.h"

#include "sim/base/units.h"

#include <assert.h>
#include <inttypes.h>
#include <string.h>

static const char *const axis_names[TOPO_N_AXES] = {
    [TOPO_AXIS_TP] = "tp", [TOPO_AXIS_CP] = "cp", [TOPO_AXIS_EP] = "ep",
    [TOPO_AXIS_DP] = "dp", [TOPO_AXIS_PP] = "pp",
};

void topo_grid_sizes(const topo_grid_t *grid, bool expert, uint32_t sizes[static TOPO_N_AXES])
{
    sizes[TOPO_AXIS_TP] = expert ? grid->etp : grid->tp;
    sizes[TOPO_AXIS_CP] = expert ? 1 : grid->cp;
    sizes[TOPO_AXIS_EP] = expert ? grid->ep : 1;
    sizes[TOPO_AXIS_DP] = expert ? grid->edp : grid->dp;
    sizes[TOPO_AXIS_PP] = grid->pp;
}

void topo_grid_strides(const topo_grid_t *grid, bool expert, uint32_t strides[static TOPO_N_AXES])
{
    uint32_t sizes[TOPO_N_AXES];
    topo_grid_sizes(grid, expert, sizes);
    for (int axis = 0; axis < TOPO_N_AXES; axis++) {
        strides[axis] = 1;
        for (int other = 0; other < TOPO_N_AXES; other++) {
            if (grid->order[other] < grid->order[axis])
                strides[axis] *= sizes[other];
        }
    }
}

/* world_size / (a * b * c) in *rest_p, which must be whole. */
static base_status_t divide(uint32_t world_size, const char *const names[3],
                            const uint32_t sizes[3], uint32_t *rest_p, base_err_t *err)
{
    uint64_t product = 1;
    for (int i = 0; i < 3; i++) {
        if (sizes[i] == 0)
            return base_err_set(err, BASE_ERR_INVAL, "%s must be at least 1", names[i]);
        /* Beyond 32 bits it divides no world size: stop before the product can overflow. */
        if (product <= UINT32_MAX)
            product *= sizes[i];
    }
    if (product > world_size || world_size % product != 0)
        return base_err_set(err, BASE_ERR_INVAL,
                            "world_size %" PRIu32 " is not a multiple of %s %" PRIu32
                            " x %s %" PRIu32 " x %s %" PRIu32,
                            world_size, names[0], sizes[0], names[1], sizes[1], names[2], sizes[2]);
    *rest_p = (uint32_t)(world_size / product);
    return BASE_OK;
}

static int axis_by_name(const char *name, size_t length)
{
    for (int axis = 0; axis < TOPO_N_AXES; axis++) {
        if (length == strlen(axis_names[axis]) && strncmp(name, axis_names[axis], length) == 0)
            return axis;
    }
    return -1;
}

/* Read the order text into grid->order. An axis that is not named must have size 1 in both grids;
 * it goes to the end, where it makes no difference. */
static base_status_t parse_order(topo_grid_t *grid, const char *text, base_err_t *err)
{
    enum { UNNAMED = 255 };
    uint8_t n = 0;
    memset(grid->order, UNNAMED, sizeof(grid->order));
    for (const char *p = text;; p++) {
        size_t length = strcspn(p, "-");
        int axis = axis_by_name(p, length);
        if (axis < 0)
            return base_err_set(
                err, BASE_ERR_INVAL,
                "order '%.80s': '%.*s' is not an axis; the axes are tp, cp, ep, dp, pp", text,
                length > 20 ? 20 : (int)length, p);
        if (grid->order[axis] != UNNAMED)
            return base_err_set(err, BASE_ERR_INVAL, "order '%.80s': axis %s stands there twice",
                                text, axis_names[axis]);
        grid->order[axis] = n++;
        p += length;
        if (*p == '\0')
            break;
    }
    uint32_t dense[TOPO_N_AXES], expert[TOPO_N_AXES];
    topo_grid_sizes(grid, false, dense);
    topo_grid_sizes(grid, true, expert);
    for (int axis = 0; axis < TOPO_N_AXES; axis++) {
        if (grid->order[axis] != UNNAMED)
            continue;
        uint32_t size = dense[axis] > 1 ? dense[axis] : expert[axis];
        if (size > 1)
            return base_err_set(err, BASE_ERR_INVAL,
                                "order '%.80s' does not name axis %s, whose size is %" PRIu32, text,
                                axis_names[axis], size);
        grid->order[axis] = n++;
    }
    return BASE_OK;
}

/* Both grids must have the same pipeline groups. They do when a pipeline step is the same distance
 * in both, because either grid covers all ranks. */
static base_status_t check_pipelines(const topo_grid_t *grid, const char *order, base_err_t *err)
{
    uint32_t dense[TOPO_N_AXES], expert[TOPO_N_AXES];
    topo_grid_strides(grid, false, dense);
    topo_grid_strides(grid, true, expert);
    bool pp_last = grid->order[TOPO_AXIS_PP] == TOPO_N_AXES - 1;
    if (grid->pp == 1 || pp_last)
        return BASE_OK;
    if (grid->dp != grid->edp)
        return base_err_set(err, BASE_ERR_INVAL,
                            "order '%.80s' does not end in pp: then data parallel size %" PRIu32
                            " and expert data parallel size %" PRIu32 " must be equal",
                            order, grid->dp, grid->edp);
    if (dense[TOPO_AXIS_PP] != expert[TOPO_AXIS_PP])
        return base_err_set(
            err, BASE_ERR_INVAL,
            "order '%.80s': pipeline groups differ between dense layers (every %" PRIu32
            "th rank) and experts (every %" PRIu32 "th rank)",
            order, dense[TOPO_AXIS_PP], expert[TOPO_AXIS_PP]);
    return BASE_OK;
}

base_status_t topo_grid_init(topo_grid_t *grid_p, uint32_t world_size, uint32_t tp, uint32_t cp,
                             uint32_t ep, uint32_t etp, uint32_t pp, const char *order,
                             base_err_t *err)
{
    static const char *const dense_names[3] = { "tensor_model_parallel_size",
                                                "context_parallel_size",
                                                "pipeline_model_parallel_size" };
    static const char *const expert_names[3] = { "expert_tensor_parallel_size",
                                                 "expert_model_parallel_size",
                                                 "pipeline_model_parallel_size" };
    topo_grid_t grid = {
        .world_size = world_size, .tp = tp, .cp = cp, .pp = pp, .etp = etp, .ep = ep
    };
    if (world_size == 0)
        return base_err_set(err, BASE_ERR_INVAL, "world_size must be at least 1");
    base_status_t status =
        divide(world_size, dense_names, (const uint32_t[]){ tp, cp, pp }, &grid.dp, err);
    if (status == BASE_OK)
        status =
            divide(world_size, expert_names, (const uint32_t[]){ etp, ep, pp }, &grid.edp, err);
    if (status == BASE_OK)
        status = parse_order(&grid, order, err);
    if (status == BASE_OK)
        status = check_pipelines(&grid, order, err);
    if (status == BASE_OK)
        *grid_p = grid;
    return status;
}

base_status_t topo_grid_coord(const topo_grid_t *grid, uint32_t rank, topo_coord_t *coord_p,
                              base_err_t *err)
{
    if (rank >= grid->world_size)
        return base_err_set(err, BASE_ERR_INVAL,
                            "rank %" PRIu32 " is outside the grid of %" PRIu32 " ranks", rank,
                            grid->world_size);
    uint32_t dense[TOPO_N_AXES], expert[TOPO_N_AXES];
    topo_grid_strides(grid, false, dense);
    topo_grid_strides(grid, true, expert);
    coord_p->tp = rank / dense[TOPO_AXIS_TP] % grid->tp;
    coord_p->cp = rank / dense[TOPO_AXIS_CP] % grid->cp;
    coord_p->dp = rank / dense[TOPO_AXIS_DP] % grid->dp;
    coord_p->pp = rank / dense[TOPO_AXIS_PP] % grid->pp;
    coord_p->etp = rank / expert[TOPO_AXIS_TP] % grid->etp;
    coord_p->ep = rank / expert[TOPO_AXIS_EP] % grid->ep;
    coord_p->edp = rank / expert[TOPO_AXIS_DP] % grid->edp;
    return BASE_OK;
}

uint32_t topo_grid_rank(const topo_grid_t *grid, uint32_t tp, uint32_t cp, uint32_t dp, uint32_t pp)
{
    assert(tp < grid->tp && cp < grid->cp && dp < grid->dp && pp < grid->pp);
    uint32_t strides[TOPO_N_AXES];
    topo_grid_strides(grid, false, strides);
    return tp * strides[TOPO_AXIS_TP] + cp * strides[TOPO_AXIS_CP] + dp * strides[TOPO_AXIS_DP] +
           pp * strides[TOPO_AXIS_PP];
}

uint32_t topo_grid_expert_rank(const topo_grid_t *grid, uint32_t etp, uint32_t ep, uint32_t edp,
                               uint32_t pp)
{
    assert(etp < grid->etp && ep < grid->ep && edp < grid->edp && pp < grid->pp);
    uint32_t strides[TOPO_N_AXES];
    topo_grid_strides(grid, true, strides);
    return etp * strides[TOPO_AXIS_TP] + ep * strides[TOPO_AXIS_EP] + edp * strides[TOPO_AXIS_DP] +
           pp * strides[TOPO_AXIS_PP];
}
