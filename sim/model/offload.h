/* SPDX-License-Identifier: Apache-2.0
 * Activations that wait for the backward pass in host memory. Sources: Megatron-LM (mcore 0.20)
 * pipeline_parallel/fine_grained_activation_offload.py; TransformerEngine 2.20
 * pytorch/cpu_offload.py (DefaultOffloadSynchronizer). */
#ifndef SIM_MODEL_OFFLOAD_H
#define SIM_MODEL_OFFLOAD_H

#include "sim/model/layer.h"

/* A saved tensor that was given up. */
typedef struct {
    sim_ref_t *field; /* where its reference was saved, and will be again */
    const char *name;
    uint64_t bytes;
    uint16_t layer;
    uint8_t module;
} sim_offloaded_t;

/* What one module of one layer saves. */
typedef struct {
    sim_offloaded_t *items; /* n of them; owned */
    uint32_t n;
    uint64_t bytes; /* that are, or would be, offloaded */
    uint16_t layer;
    uint8_t module;  /* sim_offload_module_t */
    bool is_kept;    /* stays on the GPU all the same */
    bool is_pending; /* in host memory */
} sim_offload_group_t;

/* Groups of a chunk in the order of its forward pass. */
typedef struct sim_offloads {
    sim_offload_group_t *groups; /* n of them; owned */
    uint32_t n, cap;
    bool *keeps; /* by group; NULL: none is, and nothing is offloaded but counted. Owned */
    bool counts; /* a first walk that only tells the groups */
} sim_offloads_t;

void sim_offloads_fini(sim_offloads_t *offloads);

/* After a first walk: decide which groups stay. The last group of every module does where the
 * backward pass follows at once; of the others a fraction, the later ones. */
void sim_offloads_decide(sim_offloads_t *offloads, double fraction, bool backward_follows);

/* Forward: the module is about to save; the group of the current layer begins. False when the
 * module is not offloaded. */
bool sim_offload_begin(sim_model_t *m, sim_offload_module_t module, bool grad);

/* Give up a saved tensor of elements of `element_bytes`; nothing happens to SIM_REF_NONE and to
 * small ones. `is_forced`: its memory is freed although others still refer to it. */
void sim_offload_take(sim_model_t *m, sim_offload_module_t module, sim_ref_t *field,
                      uint64_t element_bytes, bool is_forced);

/* Backward: the module's tensors are needed now; they have been used, and those of the group
 * before are fetched. */
void sim_offload_before_backward(sim_model_t *m, sim_offload_module_t module);
void sim_offload_after_backward(sim_model_t *m, sim_offload_module_t module);

/* cpu_offloading: what one layer saves; tensors [first, end) of the builder are its own. */
typedef struct {
    uint32_t first, end;
    sim_ref_t in, out; /* input, which it saves; output, which it does not */
} sim_layer_range_t;

void sim_layer_to_host(sim_model_t *m, const sim_layer_range_t *range);
void sim_layer_from_host(sim_model_t *m, const sim_layer_range_t *range);

#endif
