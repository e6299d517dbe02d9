/* SPDX-License-Identifier: Apache-2.0
 * What one host has, as hwloc sees it: this machine, one described by an XML file of hwloc
 * (`lstopo host.xml`), or by a synthetic description ("pack:2 numa:1 core:8 pu:2"). */
#ifndef TOPOLOGY_NODE_H
#define TOPOLOGY_NODE_H

#include "sim/base/err.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { TOPO_NAME = 64 };

/* How the way from a GPU to a network card leads, the terms of nvidia-smi in brackets. */
typedef enum {
    TOPO_NEAR_SWITCH, /* below the same host bridge (PIX, PXB, PHB) */
    TOPO_NEAR_NUMA,   /* same NUMA node (NODE) */
    TOPO_NEAR_HOST,   /* over the link between sockets (SYS) */
} topo_near_t;

typedef struct {
    char name[TOPO_NAME]; /* operating system's name, or vendor:device */
    char bus[16];         /* "0000:1b:00.0" */
    uint32_t package;     /* logical index */
    uint32_t numa;        /* number of the operating system */
    uint32_t bridge;      /* host bridge it is below, numbered from 0 */
    bool is_infiniband;   /* NICs: else Ethernet */
} topo_device_t;

typedef struct {
    char product[TOPO_NAME], cpu[TOPO_NAME]; /* "" where nobody says */
    uint32_t n_packages, n_numa, n_cores, n_pus;
    uint64_t memory_bytes;
    topo_device_t *gpus, *nics; /* by bus; owned */
    size_t n_gpus, n_nics;
} topo_node_t;

/* Read `source`: NULL = this machine, a name ending in ".xml" = that file, else a synthetic
 * description. BASE_ERR_IO or BASE_ERR_PARSE with what is wrong. Free with topo_node_fini(). */
base_status_t topo_node_load(topo_node_t *node_p, const char *source, base_err_t *err);

/* The same from an XML text of `length` bytes and a NUL behind them, called `name`. It is read in a
 * process of its own, whose end by a damaged text is BASE_ERR_PARSE too. */
base_status_t topo_node_parse(topo_node_t *node_p, const char *name, const char *text,
                              size_t length, base_err_t *err);

/* Takes a zeroed struct too. */
void topo_node_fini(topo_node_t *node);

topo_near_t topo_node_near(const topo_device_t *gpu, const topo_device_t *nic);

/* "below the same switch", ... */
const char *topo_near_name(topo_near_t near);

#endif
