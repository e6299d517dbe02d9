/* SPDX-License-Identifier: Apache-2.0
 * Bytes of quantised tensors and which copies of them exist. A GEMM reads one operand by rows; the
 * weight gradient needs the same tensor by columns. TransformerEngine pytorch/tensor. */
#ifndef SIM_MODEL_QUANT_H
#define SIM_MODEL_QUANT_H

#include "sim/model/layer.h"

/* The linears of a layer of the model run in FP8 or FP4. */
bool sim_layer_is_quantized(const sim_scenario_t *s, uint64_t layer);

/* The layer that is being built is one of them. */
bool sim_is_fp8(const sim_model_t *m);

/* One scale a tensor: delayed and current ("tensorwise") scaling. */
bool sim_is_per_tensor(const sim_model_t *m);

/* Bytes of the copy by rows and by columns of `n` elements, scales included. Per-tensor scaling has
 * no second copy on Blackwell, whose GEMMs read FP8 in either layout; on Hopper it is a transpose.
 */
uint64_t sim_row_bytes(const sim_model_t *m, uint64_t n);
uint64_t sim_col_bytes(const sim_model_t *m, uint64_t n);

typedef struct {
    sim_ref_t row, col;
} sim_quantized_t;

/* Quantise `n` elements for the uses that are asked for. */
sim_quantized_t sim_quantize(sim_model_t *m, const char *name, uint64_t n, bool rows, bool cols);

/* The norm's output, written in high precision first except by kernels that quantise: those of
 * delayed scaling, and cuDNN's of MXFP8 (NVTE_NORM_FWD_USE_CUDNN=1). Per-tensor data is gathered by
 * rows, so that there is no other copy where it is gathered. */
sim_quantized_t sim_quantize_norm_out(sim_model_t *m, uint64_t n, bool is_gathered);

/* What the weight gradient reads of `n` gathered elements. Per-tensor data comes by rows and, on
 * Hopper, is transposed; the others come by columns, which of NVFP4 lie in parts and are put in
 * order in a second copy. `is_received`: user buffers hold what comes. */
sim_quantized_t sim_gather_for_wgrad(sim_model_t *m, const char *name, uint64_t n,
                                     bool is_received);

/* The copy that serves the weight gradient; the other one is dropped. */
sim_ref_t sim_keep_for_wgrad(sim_model_t *m, sim_quantized_t *q);

void sim_drop_quantized(sim_model_t *m, sim_quantized_t *q);

/* The weight [rows, cols] of the module that is being built, in FP8: parameters that are FP8 get
 * their transpose at the first use and keep it; others get a copy that is kept over micro-batches,
 * or, with disable_parameter_transpose_cache, one that lives until the backward pass and is
 * returned. */
sim_ref_t sim_fp8_weight(sim_model_t *m, uint64_t rows, uint64_t cols);

/* The same for `n` elements of the linear called `linear`, one of several of a module. */
sim_ref_t sim_fp8_weight_of(sim_model_t *m, const char *linear, uint64_t n);

#endif
