/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/engine/lengths.h"

#include "sim/base/rng.h"
#include "sim/base/units.h"

#include <math.h>

enum { LONGEST_AT = 2 /* the first step with all of the optimizer's state */ };

uint32_t sim_lengths_count(const sim_scenario_t *s)
{
    if (s->mean_seq_length == 0)
        return 1;
    uint64_t least = s->tensor_model_parallel_size * s->context_parallel_size * 2;
    uint32_t n = SIM_MAX_LENGTHS;
    while (n > 1 && (s->seq_length % n != 0 || s->seq_length / n % least != 0))
        n--;
    return n;
}

uint64_t sim_lengths_mean(const sim_scenario_t *s)
{
    uint64_t step = s->seq_length / sim_lengths_count(s);
    uint64_t mean = s->mean_seq_length > 0 ? s->mean_seq_length : s->seq_length;
    return base_u64_max((mean + step / 2) / step, 1) * step;
}

/* Mean of 1..n with probabilities that go as ratio^k. */
static double mean_of(double ratio, uint32_t n)
{
    double weight = 1.0, weights = 0.0, sum = 0.0;
    for (uint32_t k = 1; k <= n; k++) {
        weight *= ratio;
        weights += weight;
        sum += weight * k;
    }
    return sum / weights;
}

/* The mean grows with the ratio; ratios beyond these leave all the weight on one end. */
static double ratio_of(double mean, uint32_t n)
{
    double low = log(1e-4), high = log(1e4);
    for (int i = 0; i < 60; i++) {
        double middle = (low + high) / 2;
        if (mean_of(exp(middle), n) < mean)
            low = middle;
        else
            high = middle;
    }
    return exp((low + high) / 2);
}

void sim_lengths_fill(const sim_scenario_t *s, uint32_t dp_rank, uint8_t *lengths)
{
    uint32_t n = sim_lengths_count(s);
    double mean = (double)s->mean_seq_length * n / (double)s->seq_length;
    double ratio = ratio_of(fmax(mean, 1.0), n), total = 0.0, weight = 1.0;
    for (uint32_t k = 1; k <= n; k++)
        total += weight *= ratio;
    base_rng_t rng = { s->seq_length_seed ^ (uint64_t)dp_rank << 32 };
    for (uint64_t i = 0; i < s->iterations * s->n_microbatches; i++) {
        double at = base_rng_uniform(&rng) * total, sum = weight = ratio;
        uint32_t k = 1;
        while (k < n && at >= sum) {
            sum += weight *= ratio;
            k++;
        }
        bool is_longest =
            (s->moments & SIM_MOMENT_LONGEST_BATCH) && i / s->n_microbatches == LONGEST_AT - 1;
        lengths[i] = (uint8_t)(is_longest ? n : k);
    }
}
