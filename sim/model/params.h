/* SPDX-License-Identifier: Apache-2.0
 * The parameters of one model chunk on one rank, in the order in which the modules register them.
 */
#ifndef SIM_MODEL_PARAMS_H
#define SIM_MODEL_PARAMS_H

#include "sim/model/dims.h"
#include "sim/model/tensor.h"

#include <stdbool.h>
#include <stdint.h>

/* DDP keeps a buffer for each kind of parameter of a chunk: by storage type, and apart for experts
 * that are reduced over a group of their own (expert data parallel). */
typedef enum {
    SIM_BUFFER_DENSE,
    SIM_BUFFER_DENSE_FP8,
    SIM_BUFFER_EXPERT,
    SIM_BUFFER_EXPERT_FP8,
    SIM_BUFFER_DENSE_WHOLE, /* matrices that one data parallel rank updates as a whole */
    SIM_BUFFER_EXPERT_WHOLE,
    SIM_N_BUFFERS,
} sim_buffer_t;

static inline bool sim_buffer_is_expert(sim_buffer_t buffer)
{
    return buffer == SIM_BUFFER_EXPERT || buffer == SIM_BUFFER_EXPERT_FP8 ||
           buffer == SIM_BUFFER_EXPERT_WHOLE;
}

static inline bool sim_buffer_is_whole(sim_buffer_t buffer)
{
    return buffer == SIM_BUFFER_DENSE_WHOLE || buffer == SIM_BUFFER_EXPERT_WHOLE;
}

static inline bool sim_buffer_is_fp8(sim_buffer_t buffer)
{
    return buffer == SIM_BUFFER_DENSE_FP8 || buffer == SIM_BUFFER_EXPERT_FP8;
}

/* What tensor parallel ranks share of a matrix. */
typedef enum { SIM_SPLIT_NONE, SIM_SPLIT_ROWS, SIM_SPLIT_COLS } sim_split_t;

typedef struct {
    const char *name; /* static text */
    uint64_t n_elements;
    uint64_t rows;            /* of a matrix, on this rank */
    uint8_t split;            /* sim_split_t */
    uint16_t layer;           /* global decoder layer or SIM_NO_LAYER */
    uint8_t module;           /* sim_module_t */
    uint8_t buffer;           /* sim_buffer_t */
    bool is_vector;           /* bias or norm: not decayed, and so in the second parameter group */
    bool is_frozen;           /* fine-tuning with adapters: no gradient, no optimizer state */
    bool is_embedding;        /* word embedding or output layer */
    bool is_convolution;      /* [rows, 1, width]: decayed, but no matrix */
    bool is_shared_embedding; /* copy of the tied word embedding, kept equal over the pipeline */
} sim_param_t;

typedef struct {
    sim_param_t *params; /* n of them; owned */
    uint32_t n;
    uint64_t n_elements; /* sum */
} sim_params_t;

/* The chunk has the norm after the last decoder layer: it stands before the loss, or with the last
 * layer where multi-token prediction has a stage of its own. */
bool sim_params_has_final_norm(const sim_scenario_t *scenario, const topo_chunk_t *chunk);

/* BERT, and a T5 whose output layer is its embedding, add a bias to the logits. */
bool sim_params_has_output_bias(const sim_scenario_t *scenario);

/* Parameters of `chunk` (pipeline size pp tells whether tied weights need a copy). */
void sim_params_init(sim_params_t *params, const sim_scenario_t *scenario, const sim_dims_t *dims,
                     const topo_chunk_t *chunk);
void sim_params_fini(sim_params_t *params);

#endif
