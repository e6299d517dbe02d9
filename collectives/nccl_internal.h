/* SPDX-License-Identifier: Apache-2.0
 * Shared by the files that model NCCL's memory; for this folder only. */
#ifndef COLLECTIVES_NCCL_INTERNAL_H
#define COLLECTIVES_NCCL_INTERNAL_H

#include "collectives/nccl_memory.h"

/* Versions at which something changed. */
enum {
    COLL_NCCL_2_17 = 21700,
    COLL_NCCL_2_19 = 21900,
    COLL_NCCL_2_21 = 22100,
    COLL_NCCL_2_22 = 22200,
    COLL_NCCL_2_23 = 22300,
    COLL_NCCL_2_25 = 22500,
    COLL_NCCL_2_26 = 22600,
    COLL_NCCL_2_28 = 22800,
    COLL_NCCL_2_29 = 22900,
};

/* How the ranks of a node reach each other. */
typedef enum {
    COLL_LINK_NVLINK, /* all of them */
    COLL_LINK_PAIRS,  /* some; the others through host memory */
    COLL_LINK_PCIE,   /* through PCIe switches */
    COLL_LINK_SHM,    /* through host memory */
} coll_link_t;

coll_link_t coll_nccl_link(const coll_nccl_t *nccl, const coll_spread_t *spread);

/* PAT: one rank a node, from 2.23 on. */
static inline bool coll_nccl_has_pat(const coll_nccl_t *nccl, const coll_spread_t *spread)
{
    return nccl->pat != COLL_OFF && nccl->version >= COLL_NCCL_2_23 && spread->n_local == 1 &&
           spread->n_nodes > 1;
}

#endif
