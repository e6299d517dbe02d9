/* SPDX-License-Identifier: Apache-2.0
 * Micro-batches of different lengths, as packed or unpadded samples make them: a maximum
 * (seq_length) and a mean are given, and every data parallel rank draws its own. */
#ifndef SIM_ENGINE_LENGTHS_H
#define SIM_ENGINE_LENGTHS_H

#include "sim/scenario/scenario.h"

#include <stdint.h>

/* Lengths are the multiples of a step, of which seq_length has this many: at most
 * SIM_MAX_LENGTHS, so that every part of a sequence can be split as seq_length can. 1 = all are
 * alike. */
enum { SIM_MAX_LENGTHS = 32 };
uint32_t sim_lengths_count(const sim_scenario_t *s);

/* The mean, rounded to a multiple; seq_length where all are alike. */
uint64_t sim_lengths_mean(const sim_scenario_t *s);

/* Which multiple (from 1) each micro-batch is: iterations * n_microbatches numbers, in order. Drawn
 * from the distribution with the given mean that assumes nothing else: probabilities are a
 * geometric series. With the moment longest_batch the second iteration has only longest ones. */
void sim_lengths_fill(const sim_scenario_t *s, uint32_t dp_rank, uint8_t *lengths);

#endif
