/* SPDX-License-Identifier: Apache-2.0
 * Small jobs made of random numbers, for tests of what has to hold for every job. */
#ifndef TESTS_RANDOM_SCENARIO_H
#define TESTS_RANDOM_SCENARIO_H

#include "sim/scenario/scenario.h"

#include <stdbool.h>
#include <stdint.h>

/* A sequence of numbers (splitmix64); the same on every machine. */
typedef struct {
    uint64_t state;
} random_t;

uint64_t random_next(random_t *r);

/* From 0 to n - 1; n >= 1. */
uint64_t random_below(random_t *r, uint64_t n);

/* Resolve a random job into *s_p, the one that `seed` stands for. False when the keys do not go
 * together (*s_p is then finished), which happens to less than half of the seeds. */
bool random_scenario(sim_scenario_t *s_p, uint64_t seed);

#endif
