/* SPDX-License-Identifier: Apache-2.0
 * Which layers each pipeline rank and virtual chunk builds.
 * Follows Megatron-LM's get_num_layers_to_build(), get_transformer_layer_offset() and
 * PipelineParallelLayerLayout. */
#ifndef TOPOLOGY_STAGES_H
#define TOPOLOGY_STAGES_H

#include "sim/base/err.h"

#include <stdbool.h>
#include <stdint.h>

/* Which stages of the model a pipeline rank has, one for each of its chunks. */
typedef enum {
    TOPO_PLACEMENT_LOOP,     /* stage chunk * pp + pp_rank */
    TOPO_PLACEMENT_V,        /* two chunks: stages pp_rank and 2 * pp - 1 - pp_rank */
    TOPO_PLACEMENT_BOTH_WAYS /* two chunks: stages pp_rank and pp - 1 - pp_rank of pp; every stage
                              * is there twice, and micro-batches go through in both directions */
} topo_placement_t;

/* One model chunk: a stage of the model. */
typedef struct {
    uint32_t n_layers;     /* decoder layers; 0 is legal with a layout string */
    uint32_t first_layer;  /* global index, 0-based, of the first of them */
    uint32_t n_mtp_layers; /* multi-token-prediction layers built here */
    bool has_embedding;    /* pre_process: word (and position) embedding */
    bool has_loss;         /* post_process: final norm, output layer, loss */
} topo_chunk_t;

typedef struct {
    uint32_t pp, vpp; /* vpp = chunks per rank, 1 when there is no virtual pipeline */
    topo_placement_t placement;
    topo_chunk_t *chunks; /* by stage of the model, topo_n_stages(); owned */
    /* MTP layers are not on the last pipeline rank: what crosses from there on has
     * 1 + mtp_num_layers times the sequence length, and shapes are exchanged before each message.
     */
    bool mtp_standalone;
} topo_stages_t;

typedef struct {
    uint32_t num_layers;
    uint32_t mtp_num_layers; /* 0 = none */
    uint32_t pp;
    uint32_t vpp; /* 0 = not given, also with a placement of two chunks */
    topo_placement_t placement;
    uint32_t first_stage_layers; /* 0 = not given: num_layers_in_first_pipeline_stage */
    uint32_t last_stage_layers;  /* 0 = not given */
    bool account_for_embedding;
    bool account_for_loss;
    const char *layout; /* pipeline_model_parallel_layout ("Ettt|(tt|)*6tL"), NULL = not given */
} topo_stages_config_t;

/* Bounds the memory that a mistyped number can ask for. */
enum { TOPO_MAX_LAYERS = 1 << 16 };

/* Compute the layout. BASE_ERR_INVAL with the rule that is broken (for a layout string: with the
 * position of the bad character); *stages_p is then untouched. Free with topo_stages_fini(). */
base_status_t topo_stages_init(topo_stages_t *stages_p, const topo_stages_config_t *config,
                               base_err_t *err);

/* Takes a zeroed struct too. */
void topo_stages_fini(topo_stages_t *stages);

/* Stages of the model on `pp` ranks with `vpp` chunks each. */
uint32_t topo_n_stages(topo_placement_t placement, uint32_t pp, uint32_t vpp);

/* Stage of the model that chunk `chunk` of `pp_rank` is. */
uint32_t topo_stage_of(topo_placement_t placement, uint32_t pp, uint32_t pp_rank, uint32_t chunk);

/* Where a stage is; *chunk_p, which is read with TOPO_PLACEMENT_BOTH_WAYS only, says in which
 * direction. */
void topo_stage_place(topo_placement_t placement, uint32_t pp, uint32_t stage, uint32_t *pp_rank_p,
                      uint32_t *chunk_p);

/* The chunk `chunk` (< vpp) of pipeline rank `pp_rank` (< pp). */
const topo_chunk_t *topo_stages_chunk(const topo_stages_t *stages, uint32_t pp_rank,
                                      uint32_t chunk);

#endif
