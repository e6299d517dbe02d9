/* SPDX-License-Identifier: Apache-2.0
 * PyTorch's FSDP2: layers and the ends of the model are units whose parameters are gathered while
 * they run, and whose gradients are reduced as soon as they exist; as Megatron-LM wraps it, and as
 * torchtitan uses it. PyTorch
 * torch/distributed/fsdp/_fully_shard/{_fsdp_param,_fsdp_param_group,_fsdp_collectives,_fsdp_state}.py;
 * Megatron-LM megatron/core/distributed/torch_fully_sharded_data_parallel.py; torchtitan
 * parallelize_llama.py (apply_fsdp). */
#ifndef SIM_ENGINE_FSDP2_H
#define SIM_ENGINE_FSDP2_H

#include "sim/engine/player.h"

typedef struct {
    sim_tensor_t tensor;
    sim_block_t block; /* SIM_BLOCK_NONE = not there */
} sim_fsdp2_storage_t;

typedef struct {
    uint64_t n_elements;          /* rows padded to a multiple of the ranks */
    uint64_t n_owned;             /* of a rank */
    bool reshards;                /* parameters go after the forward pass */
    uint32_t n_params;            /* tensors that the unit is made of */
    uint64_t *param_bytes;        /* as gathered, n_params of them, padded; owned */
    uint64_t *param_elements;     /* n_params of them, padded; owned */
    uint64_t gathered_bytes;      /* their sum */
    sim_fsdp2_storage_t gathered; /* as received */
    sim_fsdp2_storage_t *params;  /* as parameters of the module; n_params, owned */
    sim_fsdp2_storage_t *sums;    /* gradients of several micro-batches; n_params, owned */
    sim_fsdp2_storage_t grads;
    sim_fsdp2_storage_t sharded_grad;
} sim_fsdp2_unit_t;

typedef struct sim_fsdp2 {
    sim_fsdp2_unit_t *units; /* n of them, in the order of the forward pass; owned */
    uint32_t n, n_layers;
    bool has_embedding;               /* as a unit of its own */
    bool has_ends;                    /* the last unit is the root with what is no layer */
    bool is_titan;                    /* gradients are tensors of the tape */
    bool adds_up;                     /* gradients are reduced after the last micro-batch */
    uint64_t shard_e;                 /* bytes of an element of parameters as they are kept, */
    uint64_t param_e;                 /* as they are gathered and used, but for FP8, */
    uint64_t reduce_e;                /* and of gradients as they are reduced */
    uint32_t last_gathered;           /* unit whose result forward has kept; n = none */
    sim_fsdp2_storage_t reduce_input; /* of the last reduction */
} sim_fsdp2_t;

/* With Megatron-LM the norm after the last layer, in truth the root's, counts to the output layer.
 */
sim_fsdp2_t *sim_fsdp2_create(const sim_scenario_t *scenario, const sim_params_t *params,
                              const topo_chunk_t *place);
void sim_fsdp2_destroy(sim_fsdp2_t *fsdp); /* takes NULL */

/* Parts of a run; false as in player.h. */
bool sim_fsdp2_build(sim_player_t *p);
bool sim_fsdp2_event(sim_player_t *p, sim_player_chunk_t *chunk, sim_unit_event_t event,
                     uint32_t unit);
bool sim_fsdp2_step(sim_player_t *p, bool is_skipped);
void sim_fsdp2_zero_grad(sim_player_t *p);

/* The same of torchtitan: fp32 shards of parameters that Adam updates as they are. */
bool sim_titan_build_shards(sim_player_t *p);
bool sim_titan_step(sim_player_t *p);

/* What torch.distributed.pipelining adds: buffers that receive, made at the first step, one for
 * each micro-batch; what stages returned, and gradients of their inputs, stay until the next step.
 */
bool sim_titan_begin_step(sim_player_t *p);
bool sim_titan_merge_outputs(sim_player_t *p);

#endif
