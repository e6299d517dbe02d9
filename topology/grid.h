/* SPDX-License-Identifier: Apache-2.0
 * The rank grid: where a rank stands along each axis of parallelism, and who shares a group with
 * it.
 *
 * Megatron-LM builds two grids over the same ranks (megatron/core/parallel_state.py,
 * RankGenerator): the dense one with axes tp, cp, dp, pp (ep forced to 1) and the expert one with
 * axes etp, ep, edp, pp (cp forced to 1). The order string ("tp-cp-ep-dp-pp") names the axes,
 * leftmost varies fastest. */
#ifndef TOPOLOGY_GRID_H
#define TOPOLOGY_GRID_H

#include "sim/base/err.h"

#include <stdbool.h>
#include <stdint.h>

typedef enum {
    TOPO_AXIS_TP,
    TOPO_AXIS_CP,
    TOPO_AXIS_EP,
    TOPO_AXIS_DP,
    TOPO_AXIS_PP,
    TOPO_N_AXES,
} topo_axis_t;

/* Sizes; each >= 1. dp and edp follow from world_size and the others. */
typedef struct {
    uint32_t world_size;
    uint32_t tp, cp, pp, dp; /* dense grid: world_size = tp * cp * dp * pp */
    uint32_t etp, ep, edp;   /* expert grid: world_size = etp * ep * edp * pp */
    /* Place of each axis in the order string, 0 = varies fastest. */
    uint8_t order[TOPO_N_AXES];
} topo_grid_t;

/* Coordinates of one rank in both grids. pp is the same in both. */
typedef struct {
    uint32_t tp, cp, dp, pp;
    uint32_t etp, ep, edp;
} topo_coord_t;

/* Check the sizes and derive dp and edp. `order` like "tp-cp-ep-dp-pp" (Megatron-LM's
 * default) or "tp-cp-ep-pp-dp" (use_tp_pp_dp_mapping) names every axis once; one whose size is 1 in
 * both grids may be left out. BASE_ERR_INVAL names the product that does not divide world_size, or
 * the bad axis; *grid_p is then untouched. If the order does not end in pp, the dense and expert
 * grids must give the same pipeline groups, as Megatron asserts. */
base_status_t topo_grid_init(topo_grid_t *grid_p, uint32_t world_size, uint32_t tp, uint32_t cp,
                             uint32_t ep, uint32_t etp, uint32_t pp, const char *order,
                             base_err_t *err);

/* Coordinates of `rank`. BASE_ERR_INVAL when rank >= world_size, *coord_p untouched. */
base_status_t topo_grid_coord(const topo_grid_t *grid, uint32_t rank, topo_coord_t *coord_p,
                              base_err_t *err);

/* The rank at the dense coordinates (tp, cp, dp, pp), each inside the grid (asserted). */
uint32_t topo_grid_rank(const topo_grid_t *grid, uint32_t tp, uint32_t cp, uint32_t dp,
                        uint32_t pp);

/* The rank at the expert coordinates (etp, ep, edp, pp), each inside the grid (asserted). */
uint32_t topo_grid_expert_rank(const topo_grid_t *grid, uint32_t etp, uint32_t ep, uint32_t edp,
                               uint32_t pp);

/* Size of each axis of the dense (or expert) grid, index topo_axis_t. */
void topo_grid_sizes(const topo_grid_t *grid, bool expert, uint32_t sizes[static TOPO_N_AXES]);

/* How far apart in rank neighbours along each axis are. */
void topo_grid_strides(const topo_grid_t *grid, bool expert, uint32_t strides[static TOPO_N_AXES]);

#endif
