/* SPDX-License-Identifier: Apache-2.0
 * The state of one rank that is being played: allocator, live tensors, accounts. */
#ifndef SIM_ENGINE_PLAYER_H
#define SIM_ENGINE_PLAYER_H

#include "sim/engine/account.h"
#include "sim/engine/observe.h"
#include "sim/engine/place.h"
#include "sim/engine/simulate.h"
#include "sim/memory/caching_allocator.h"
#include "sim/model/chunk.h"
#include "sim/model/ddp_buffer.h"
#include "sim/model/sharding.h"
#include "sim/schedule/order.h"

/* A tensor that lives outside the tapes. */
typedef struct {
    sim_tensor_t tensor;
    sim_block_t block;
} sim_static_t;

typedef struct {
    sim_static_t *items;
    uint32_t n, cap;
} sim_statics_t;

/* Who made a block; index = block. */
typedef struct {
    const sim_tensor_t *tensor; /* NULL = not alive; valid until the chunk or static goes */
    uint32_t microbatch;
    uint16_t chunk;
    uint8_t phase;
} sim_owner_t;

/* Slots of one pass in flight. */
typedef struct {
    const sim_chunk_t *chunk; /* whose tapes the pass plays */
    sim_block_t *slots;       /* n_slots of the chunk; owned */
    bool is_deferred;         /* the output layer's weight gradient waits for the flush */
    bool waits;               /* the gradients of weights are still to be computed */
    /* Bit i: fixed slot i was let go while gradients of weights, of this pass or of the one that it
     * was handed to, still read it. */
    uint8_t let_go;
} sim_slots_t;

/* What the latest pass of a layer leaves until there is another. */
enum { SIM_LATEST_MAX = 2 };
typedef struct {
    uint32_t microbatch; /* of the latest forward pass */
    uint32_t n;
    struct {
        const sim_tensor_t *tensor;
        sim_block_t block;
    } kept[SIM_LATEST_MAX]; /* n of them */
} sim_latest_t;

typedef struct {
    sim_chunk_t chunk;
    sim_chunk_t
        *shorter; /* for micro-batches that are shorter, n_lengths - 1; NULL = none; owned */
    sim_ddp_buffer_t ddp[SIM_N_BUFFERS];
    uint64_t *dealt_to;      /* by parameter, with SIM_SHARDING_DEALT: data parallel rank; owned */
    struct sim_fsdp *fsdp;   /* with use_megatron_fsdp, else NULL; owned */
    struct sim_fsdp2 *fsdp2; /* with use_torch_fsdp2, else NULL; owned */
    sim_statics_t params;    /* individual parameters, as long as they are */
    sim_slots_t *passes;     /* by micro-batch; slots NULL when not in flight */
    sim_block_t **spare;     /* slot arrays to use again */
    uint32_t n_spare;
    uint32_t n_deferred;  /* passes of this iteration that are deferred */
    sim_latest_t *latest; /* by layer of the chunk; owned */
} sim_player_chunk_t;

/* See sim/engine/endless.h. */
typedef struct {
    sim_alloc_t *alloc;   /* put aside; NULL = nothing is; owned */
    sim_device_t *device; /* its device; owned */
    uint64_t at_op;       /* n_ops then */
    bool has_parted;      /* there is nothing to put aside any more */
    void (*ended)(void *arg);
    void *arg;
} sim_endless_t;

typedef struct {
    const sim_scenario_t *scenario;
    sim_dims_t dims;
    sim_sharding_t sharding;
    sim_place_t place;
    sim_device_t *device;
    bool fills; /* every buffer is written to when it is handed out */
    sim_alloc_t *alloc;
    const sim_alloc_totals_t *totals; /* of alloc */
    sim_endless_t endless;
    sim_account_t account;
    sim_moment_t now;
    sim_moment_t reserved_moment;
    uint64_t max_reserved_bytes;
    uint64_t offloaded_bytes, max_offloaded_bytes; /* activations in host memory */

    sim_player_chunk_t *chunks; /* n_chunks; owned */
    sim_chunk_t *evaluation;    /* n_chunks, forward passes alone; NULL = none is played; owned */
    uint32_t n_chunks;
    uint32_t n_microbatches;
    uint32_t n_lengths; /* of micro-batches, see sim/engine/lengths.h */
    uint8_t *lengths;   /* by iteration and micro-batch; NULL = all are alike; owned */
    bool turns;         /* sim_order_is_turn() */
    sim_order_t order;
    sim_persistent_t persistent;
    /* By sim_buffers_of_t, then by persistent buffer; SIM_BLOCK_NONE = not made yet. */
    sim_block_t *persistent_blocks;
    sim_buffers_of_t buffers_of;    /* that are used now */
    sim_statics_t frozen;           /* parameters that are not trained */
    sim_statics_t buffers;          /* DDP buffers */
    sim_statics_t optimizer;        /* main parameters, moments */
    sim_statics_t step_temporaries; /* of the optimizer step */
    sim_statics_t grad_copies;      /* fp32 copies of 16-bit gradients, until the next zero_grad */
    bool has_moments;
    uint64_t host_bytes; /* what the optimizer has in host memory */

    /* CUDA graphs; see graphs.h. */
    uint64_t stream_base;        /* of the streams that tapes name by a number */
    sim_statics_t graph_buffers; /* inputs and gradients of graphs */
    bool graphs_are_used;        /* graphs of layers have been captured */
    bool is_capturing;           /* the passes of this iteration are captured */
    bool passes_are_replayed;    /* the passes are one graph */

    sim_observer_t observer;
    const sim_tensor_t *current; /* of the allocation or free that is under way */
    sim_owner_t *owners;
    uint32_t cap_owners;
    uint64_t n_ops;   /* allocations and frees so far */
    uint64_t peak_op; /* n_ops just after the allocation that made the peak */
    uint64_t stop_at; /* stop when n_ops gets there; 0 = never */

    bool is_out_of_memory, has_stopped;
    bool want_alive; /* list what is alive when the run ends early */
    sim_alive_t *alive;
    uint32_t n_alive;
    char oom_tensor[SIM_NAME_MAX];
    uint64_t oom_requested_bytes;
    sim_moment_t oom_moment;
} sim_player_t;

/* Chunks, order and allocator of a rank at `place`. Memory ends at the scenario's capacity unless
 * `unlimited`. Fails as sim_simulate_rank() does; call sim_player_fini() all the same. */
base_status_t sim_player_init(sim_player_t *p, const sim_scenario_t *scenario,
                              const sim_place_t *place, bool unlimited, base_err_t *err);
void sim_player_fini(sim_player_t *p);

/* The same on a device that was made for it, of which p is the owner at once. */
base_status_t sim_player_init_on(sim_player_t *p, const sim_scenario_t *scenario,
                                 const sim_place_t *place, sim_device_t *device, base_err_t *err);

/* The same without order, allocator and device: the chunks, but nothing to play them on. */
base_status_t sim_player_init_program(sim_player_t *p, const sim_scenario_t *scenario,
                                      const sim_place_t *place, base_err_t *err);

/* What the order of a rank at `place` is made from. */
sim_order_config_t sim_player_order_config(const sim_scenario_t *scenario,
                                           const sim_place_t *place);

/* The order of passes of a rank at `place`. */
base_status_t sim_player_order(const sim_scenario_t *scenario, const sim_place_t *place,
                               sim_order_t *order_p, base_err_t *err);

/* False = the run ends here: out of memory (is_out_of_memory) or stop_at reached. `stream` below
 * SIM_N_TAPE_STREAMS counts from p->stream_base; others are handles. */
enum { SIM_N_TAPE_STREAMS = 16 };
bool sim_player_alloc(sim_player_t *p, const sim_tensor_t *tensor, uint64_t bytes, uint64_t stream,
                      sim_block_t *block_p);
void sim_player_free(sim_player_t *p, const sim_tensor_t *tensor, sim_block_t block);

/* Play a tape of one of the chunk's graphs. Slots that are empty, because what they stand for was
 * made elsewhere, are passed over. `holds_outputs`: what the tape would let go as an output stays.
 */
bool sim_player_play_graph(sim_player_t *p, sim_player_chunk_t *chunk, const sim_tape_t *tape,
                           sim_block_t *slots, bool holds_outputs);

/* Add a static tensor; owned by `list`. */
bool sim_player_add_static(sim_player_t *p, sim_statics_t *list, const sim_tensor_t *tensor,
                           uint64_t stream);
void sim_player_free_statics(sim_player_t *p, sim_statics_t *list);

/* Free a border tensor of a pass, if it is there. */
void sim_player_free_border(sim_player_t *p, sim_player_chunk_t *chunk, uint32_t microbatch,
                            int slot);

/* Other passes are the latest now: free what was kept of those that were. */
void sim_player_release_latest(sim_player_t *p);

/* Free what forward passes hold until the next iteration. */
void sim_player_release_held(sim_player_t *p);

/* Visit each parameter of which this rank's optimizer owns a part, in the optimizer's order, with
 * p->now.chunk set to the parameter's. Ends at the first false, which is returned. All that depends
 * on the place's shard comes from here. */
typedef bool (*sim_owned_f)(sim_player_t *p, const sim_param_t *param, uint64_t n_elements,
                            void *arg);
bool sim_player_foreach_owned(sim_player_t *p, sim_owned_f visit, void *arg);

/* The same for every parameter that is trained, as a whole and as registered. */
bool sim_player_foreach_trained(sim_player_t *p, sim_owned_f visit, void *arg);

/* The parts of a run, in order. False as above. */
/* Whether the optimizer step of `iteration` (from 1) is left out. */
bool sim_player_is_step_skipped(const sim_scenario_t *scenario, uint32_t iteration);

/* Bytes of an element of the gradient buffers. */
uint64_t sim_player_grad_bytes(const sim_player_t *p);

/* Bytes that live for one call. */
bool sim_player_touch(sim_player_t *p, const sim_param_t *param, const char *name, uint64_t bytes);

/* An fp32 copy of (a part of) a parameter in `list`, by way of a clone in its own type. */
bool sim_player_convert_param(sim_player_t *p, sim_statics_t *list, const sim_param_t *param,
                              uint64_t n_elements);

/* With optimizer_cpu_offload: what stays on the GPU; sets p->host_bytes. */
bool sim_player_build_offloaded(sim_player_t *p);
bool sim_player_step_offloaded(sim_player_t *p);

/* Muon's updates of the matrices this rank owns: what Newton-Schulz iterations need beside state.
 */
bool sim_player_orthogonalize(sim_player_t *p);

/* With SIM_SHARDING_DEALT, after the step: every rank gets what the others have updated. */
bool sim_player_send_dealt(sim_player_t *p);

bool sim_player_build_optimizer(sim_player_t *p);

/* The optimizer's moments, unless they are there. */
bool sim_player_make_moments(sim_player_t *p);

/* Make a persistent buffer, or make it larger. */
bool sim_player_touch_persistent(sim_player_t *p, const sim_op_t *op);

bool sim_player_build(sim_player_t *p); /* model, DDP, optimizer */
bool sim_player_zero_grad(sim_player_t *p);
bool sim_player_run(sim_player_t *p, const sim_step_t *step); /* one step of the schedule */
bool sim_player_step(sim_player_t *p, bool is_skipped);       /* optimizer */

#endif
