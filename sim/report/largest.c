/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/report/largest.h"

#include "sim/base/xmem.h"

#include <stdlib.h>
#include <string.h>

static int by_kind(const void *a, const void *b)
{
    const sim_alive_t *x = *(const sim_alive_t *const *)a, *y = *(const sim_alive_t *const *)b;
    int order = strcmp(x->name, y->name);
    if (order == 0)
        order = (int)x->category - (int)y->category;
    if (order == 0)
        order = (int)x->module - (int)y->module;
    if (order == 0 && x->block_bytes != y->block_bytes)
        order = x->block_bytes > y->block_bytes ? -1 : 1;
    return order;
}

static bool is_same_kind(const sim_alive_t *a, const sim_alive_t *b)
{
    return strcmp(a->name, b->name) == 0 && a->category == b->category && a->module == b->module;
}

static int by_bytes(const void *a, const void *b)
{
    const sim_largest_t *x = a, *y = b;
    if (x->bytes != y->bytes)
        return x->bytes > y->bytes ? -1 : 1;
    return by_kind(&x->largest, &y->largest);
}

uint32_t sim_largest_kinds(const sim_rank_result_t *result, sim_largest_t **kinds_p)
{
    const sim_alive_t **order = base_xcalloc(result->n_alive, sizeof(const sim_alive_t *));
    for (uint32_t i = 0; i < result->n_alive; i++)
        order[i] = &result->alive[i];
    qsort(order, result->n_alive, sizeof(const sim_alive_t *), by_kind);
    sim_largest_t *kinds = base_xcalloc(result->n_alive, sizeof(*kinds));
    uint32_t n = 0;
    for (uint32_t i = 0; i < result->n_alive; i++) {
        const sim_alive_t *a = order[i];
        if (n == 0 || !is_same_kind(kinds[n - 1].largest, a))
            kinds[n++] = (sim_largest_t){ .largest = a };
        kinds[n - 1].n++;
        kinds[n - 1].bytes += a->block_bytes;
    }
    free(order);
    qsort(kinds, n, sizeof(*kinds), by_bytes);
    *kinds_p = kinds;
    return n;
}
