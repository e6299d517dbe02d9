/* SPDX-License-Identifier: Apache-2.0
 * Random numbers that are the same for a seed everywhere. */
#ifndef SIM_BASE_RNG_H
#define SIM_BASE_RNG_H

#include <stdint.h>

typedef struct {
    uint64_t state; /* any seed */
} base_rng_t;

/* splitmix64 (Steele, Lea, Flood 2014): every seed gives a good sequence. */
static inline uint64_t base_rng_u64(base_rng_t *rng)
{
    uint64_t z = rng->state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* In (0, 1). */
static inline double base_rng_uniform(base_rng_t *rng)
{
    return ((double)(base_rng_u64(rng) >> 11) + 0.5) / 9007199254740992.0;
}

#endif
