/* SPDX-License-Identifier: Apache-2.0
 * A tape is the list of allocations and frees that one pass (forward or backward of one model
 * chunk for one micro-batch) makes, in order. It is built once per chunk and played for every
 * micro-batch on a frame: an array of slots, each holding the block of a live tensor.
 *
 * While a tape is built, tensors have reference counts as they have in Python: the free is
 * recorded where the last reference goes. What the forward pass still references when it ends is
 * what is saved for the backward pass. */
#ifndef SIM_MODEL_TAPE_H
#define SIM_MODEL_TAPE_H

#include "sim/model/tensor.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum {
    SIM_OP_ALLOC,   /* slot <- a new block */
    SIM_OP_FREE,    /* free the block of slot */
    SIM_OP_PERSIST, /* persistent buffer `slot`: make it, or a larger one, if need be */
    SIM_OP_HOLD,    /* the block of slot stays until the next iteration begins */
    SIM_OP_DEFER,   /* free the block of slot, or, in a pass whose embedding gradient is deferred,
                     * leave it until the pipeline has been flushed */
    SIM_OP_TO_HOST, /* `bytes` more, or less, in host memory */
    SIM_OP_FROM_HOST,
    SIM_OP_UNIT, /* an event (`tensor`) of unit `slot`, see sim_unit() */
    /* Of a graph's tape: free the block of slot, an output or an input's gradient that somebody
     * outside had last. */
    SIM_OP_LET_GO_OUTPUT,
    SIM_OP_LET_GO_GRAD,
    SIM_OP_NODE,        /* a node ends, see node.h */
    SIM_OP_LATEST,      /* from now on this pass is the latest of layer `slot` */
    SIM_OP_KEEP_LATEST, /* the block of slot stays until another pass is the latest of the layer
                         * (`bytes`); it is freed if one is */
} sim_op_kind_t;

/* What a unit of fully sharded data parallelism goes through: a transformer layer, by its place in
 * the chunk, or one of the two below. */
typedef enum {
    SIM_UNIT_FORWARD,
    SIM_UNIT_FORWARD_DONE,
    SIM_UNIT_AGAIN, /* forward once more, for recompute */
    SIM_UNIT_AGAIN_DONE,
    SIM_UNIT_PASS, /* the backward pass begins; no unit */
    SIM_UNIT_BACKWARD,
    SIM_UNIT_BACKWARD_DONE,
    SIM_UNIT_PASS_DONE, /* the backward pass is over; no unit */
} sim_unit_event_t;

enum { SIM_UNIT_EMBEDDING = 0xfffffe, SIM_UNIT_HEAD = 0xffffff }; /* head: final norm and output */

typedef struct {
    uint64_t bytes;  /* 0 for SIM_OP_FREE */
    uint32_t tensor; /* index into the chunk's tensors (alloc) or the rank's persistent buffers */
    uint32_t slot : 24;
    uint32_t kind : 4;   /* sim_op_kind_t */
    uint32_t stream : 4; /* 0 = the default stream */
} sim_op_t;

typedef struct {
    sim_op_t *ops; /* n_ops of them, owned */
    uint32_t n_ops;
    uint32_t cap;
} sim_tape_t;

/* A CUDA graph of a part of a chunk, and the one of its gradients. What is written while it is open
 * (sim_cuda_graph_open()) goes to its own tapes, which are played once, into the graphs' memory
 * pool; the chunk's tapes then hold only what is left for every pass to do. A tensor that a graph
 * made stays the graph's when others use it: their references are counted, and say when it may go.
 */
enum { SIM_CUDA_GRAPH_MAX_GRADS = 4 };

typedef struct {
    sim_tape_t forward, backward; /* owned */
    uint16_t layer;
    uint64_t input_bytes, mask_bytes; /* what it is given, in buffers that do not move */
    uint64_t rope_bytes;
    uint64_t grad_bytes[SIM_CUDA_GRAPH_MAX_GRADS]; /* the same of its gradients; 0 = no more */
    bool is_done;                                  /* the backward tape is complete */
    uint32_t *late; /* while built: tensors to let go when its gradients have been captured */
    uint32_t n_late, cap_late;
} sim_cuda_graph_t;

/* Whose the buffers are that carry a graph's input and output gradients: the caller's, as in
 * Transformer Engine's make_graphed_callables(), or the pool's, where one graph's output is the
 * next one's input, as in Megatron-LM's own. */
typedef enum {
    SIM_CUDA_GRAPH_BUFFERS_OUTSIDE,
    SIM_CUDA_GRAPH_BUFFERS_IN_POOL
} sim_cuda_graph_buffers_t;

typedef struct {
    sim_cuda_graph_t *graphs; /* n of them in the order of the forward pass; owned */
    uint32_t n, cap;
    sim_cuda_graph_buffers_t buffers;
    /* Gradients of inputs that nobody has captured the use of yet: let go behind the next graph's
     * backward tape. Those left at the end go behind the last one of the next pass. Owned. */
    uint32_t *pending;
    uint32_t n_pending, cap_pending;
} sim_cuda_graphs_t;

void sim_cuda_graphs_fini(sim_cuda_graphs_t *graphs);

/* Buffers of a rank that stay once they are made, shared by all its chunks. A request for a larger
 * size makes a new buffer before the old one goes (megatron/core/utils.py, GlobalMemoryBuffer). */
typedef struct {
    sim_tensor_t *tensors; /* n of them, owned; tensors[i].bytes is the largest size asked for */
    char **keys;           /* n names, owned */
    bool *per_stream;      /* n, owned: each of the streams of sim_buffers_of_t has its own */
    uint32_t n;
    uint32_t *table; /* keys by hash: place in keys + 1, 0 = free; owned */
    uint32_t n_table;
} sim_persistent_t;

/* Whose persistent buffers are meant, where streams have their own: those of the passes, of the
 * warm-up before a capture, or of the capture. */
typedef enum {
    SIM_BUFFERS_EAGER,
    SIM_BUFFERS_WARMUP,
    SIM_BUFFERS_CAPTURE,
    SIM_N_BUFFERS_OF
} sim_buffers_of_t;

void sim_persistent_fini(sim_persistent_t *persistent);

/* Slots of the tensors that cross the border of a stage. A tape finds or leaves them filled and
 * never frees them: the order of the schedule says when they go. */
enum {
    SIM_SLOT_INPUT,       /* forward: hidden states received from the stage before */
    SIM_SLOT_OUTPUT,      /* forward leaves: hidden states for the next stage */
    SIM_SLOT_OUTPUT_GRAD, /* backward: gradient received from the next stage */
    SIM_SLOT_INPUT_GRAD,  /* backward leaves: gradient for the stage before */
    SIM_N_SLOTS_FIXED,
};

/* Handle of a tensor while tapes are built. */
typedef uint32_t sim_ref_t;
#define SIM_REF_NONE        UINT32_MAX
#define SIM_CUDA_GRAPH_NONE UINT32_MAX

typedef struct {
    sim_tensor_t tensor;
    uint32_t refs;
    uint32_t slot;
    uint8_t made_in;   /* number of the tape, from 1 */
    uint32_t graph;    /* that made it, SIM_CUDA_GRAPH_NONE = none */
    bool is_given;     /* memory of whoever plays: no ops */
    bool is_discarded; /* referenced, but without memory for now */
} sim_built_t;

typedef struct {
    sim_tape_t *tape;             /* the tape that is being written */
    sim_persistent_t *persistent; /* borrowed */
    sim_built_t *built;           /* every tensor so far; owned */
    uint32_t n_built, cap_built;
    uint32_t *free_slots; /* stack of slots that can be taken again; owned */
    uint32_t n_free_slots, cap_free_slots;
    uint32_t n_slots;
    uint16_t layer;  /* given to new tensors */
    uint8_t module;  /* given to new tensors */
    uint8_t stream;  /* given to new tensors */
    uint8_t n_tapes; /* begun so far */
    bool in_forward;
    sim_cuda_graphs_t *graphs; /* where graphs go; borrowed, NULL = there are none */
    uint32_t graph;            /* the open one, SIM_CUDA_GRAPH_NONE = none */
} sim_builder_t;

void sim_builder_init(sim_builder_t *b, sim_persistent_t *persistent);
void sim_builder_fini(sim_builder_t *b);

/* Write to `tape` from now on; `in_forward` tells which pass it is. Tensors that a later tape drops
 * are activations. */
void sim_builder_begin(sim_builder_t *b, sim_tape_t *tape, bool in_forward);

/* Allocate a tensor with one reference. The category is decided when the tapes are complete: saved
 * tensors are activations, the others temporary. 0 bytes gives SIM_REF_NONE. */
sim_ref_t sim_new(sim_builder_t *b, const char *name, uint64_t bytes);

/* The same with a fixed category. */
sim_ref_t sim_new_as(sim_builder_t *b, sim_category_t category, const char *name, uint64_t bytes);

/* A tensor that the player has put into, or expects in, a fixed slot. */
sim_ref_t sim_given(sim_builder_t *b, uint32_t slot, const char *name, uint64_t bytes);

/* One more reference; SIM_REF_NONE is passed through. Returns `ref`. */
sim_ref_t sim_keep(sim_builder_t *b, sim_ref_t ref);

/* One reference less; the last one frees. SIM_REF_NONE is ignored. */
void sim_drop(sim_builder_t *b, sim_ref_t ref);

/* Free the memory of a tensor that stays referenced, and give it memory again: how a recomputed
 * output is treated (tensor_parallel/random.py, CheckpointWithoutOutput). SIM_REF_NONE is ignored.
 */
void sim_discard(sim_builder_t *b, sim_ref_t ref);
void sim_restore(sim_builder_t *b, sim_ref_t ref);

/* Free the memory of a tensor that may still be referenced, for good. */
void sim_discard_rest(sim_builder_t *b, sim_ref_t ref);

/* Bytes that are copied to host memory, and that are not needed there any more. */
void sim_to_host(sim_builder_t *b, uint64_t bytes);
void sim_from_host(sim_builder_t *b, uint64_t bytes);

/* Leave the tensor (one reference, which the player takes over) in a fixed slot. */
void sim_leave(sim_builder_t *b, sim_ref_t ref, uint32_t slot);

/* The last reference goes to someone who keeps the tensor until the next iteration begins. */
void sim_hold(sim_builder_t *b, sim_ref_t ref);

/* A node ends. */
void sim_node(sim_builder_t *b);

/* This pass is the latest of the layer from now on, in place of the one before. */
void sim_latest(sim_builder_t *b, uint16_t layer);

/* The last reference goes to someone who keeps the tensor as long as this pass is the latest. */
void sim_keep_latest(sim_builder_t *b, sim_ref_t ref, uint16_t layer);

/* One reference less; the last one goes, where the pass is deferred, to someone who keeps the
 * tensor until the pipeline has been flushed. What crosses the border of a stage stays the
 * player's. */
void sim_defer(sim_builder_t *b, sim_ref_t ref);

/* Touch a persistent buffer, named by `key`: made at the first use, or when it has to grow. Nothing
 * happens with 0 bytes. */
void sim_persist(sim_builder_t *b, sim_module_t module, const char *key, uint64_t bytes);

/* The same for a buffer of which every stream has its own. */
void sim_persist_per_stream(sim_builder_t *b, sim_module_t module, const char *key, uint64_t bytes);

/* A temporary that comes and goes at this point. */
void sim_touch(sim_builder_t *b, const char *name, uint64_t bytes);

/* Tell whoever plays the tape about a unit. */
void sim_unit(sim_builder_t *b, sim_unit_event_t event, uint32_t unit);

/* Open a new graph, whose number goes to *graph_p, for what is computed from `x`. Takes one
 * reference of `x`; returns the graph's own copy. Without b->graphs nothing happens. */
sim_ref_t sim_cuda_graph_open(sim_builder_t *b, uint32_t *graph_p, sim_ref_t x);

/* Open graph `graph` again for its gradients (SIM_CUDA_GRAPH_NONE is ignored): of `n` outputs of
 * which grads[i] is the gradient and bytes[i] its size. Their references stay the caller's. */
void sim_cuda_graph_open_backward(sim_builder_t *b, uint32_t graph, uint32_t n,
                                  const sim_ref_t *grads, const uint64_t *bytes);

/* Close the open graph, if there is one. */
void sim_cuda_graph_close(sim_builder_t *b);

/* The open graph reads a causal mask, a table of rotary positions. */
void sim_cuda_graph_reads(sim_builder_t *b, uint64_t mask_bytes, uint64_t rope_bytes);

/* After both tapes: set the categories that were left open. Asserts that nothing is referenced. */
void sim_builder_finish(sim_builder_t *b);

void sim_tape_fini(sim_tape_t *tape);

#endif
