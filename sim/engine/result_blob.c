/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/engine/result_blob.h"

#include "sim/base/xmem.h"

#include <stdlib.h>
#include <string.h>

/* One walk over the fields serves counting, writing and reading. */
typedef struct {
    enum { COUNT, WRITE, READ } mode;
    char *at; /* next byte, NULL when counting */
    size_t n, left;
    bool is_short; /* READ: the bytes ended too early */
} walk_t;

static void walk_bytes(walk_t *w, void *field, size_t n)
{
    w->n += n;
    if (w->mode == COUNT)
        return;
    if (w->left < n) {
        w->is_short = true;
        return;
    }
    if (w->mode == WRITE)
        memcpy(w->at, field, n);
    else
        memcpy(field, w->at, n);
    w->at += n;
    w->left -= n;
}

/* Fields one by one: the padding between them has no defined value. */
#define WALK(field) walk_bytes(w, &(field), sizeof(field))

static void walk_coord(walk_t *w, topo_coord_t *c)
{
    WALK(c->tp);
    WALK(c->cp);
    WALK(c->dp);
    WALK(c->pp);
    WALK(c->etp);
    WALK(c->ep);
    WALK(c->edp);
}

static void walk_moment(walk_t *w, sim_moment_t *m)
{
    WALK(m->iteration);
    WALK(m->microbatch);
    WALK(m->chunk);
    WALK(m->layer);
    WALK(m->phase);
    WALK(m->module);
}

static void walk_oom(walk_t *w, sim_oom_t *oom)
{
    WALK(oom->requested_bytes);
    WALK(oom->device_free_bytes);
    WALK(oom->device_total_bytes);
    WALK(oom->allocated_bytes);
    WALK(oom->reserved_bytes);
    WALK(oom->largest_free_block_bytes);
    WALK(oom->mempools_idle_bytes);
    WALK(oom->has_limit);
    WALK(oom->limit_bytes);
}

static void walk_iterations(walk_t *w, sim_rank_result_t *r)
{
    uint64_t n = r->n_iterations;
    WALK(n);
    if (w->mode == READ) {
        if (w->is_short || n > w->left / sizeof(*r->iterations)) {
            w->is_short = true;
            return;
        }
        r->iterations = base_xcalloc(n, sizeof(*r->iterations));
        r->n_iterations = (uint32_t)n;
    }
    for (uint32_t i = 0; i < n; i++)
        WALK(r->iterations[i]); /* four 64-bit numbers, no padding */
}

static void walk_extras(walk_t *w, sim_rank_result_t *r)
{
    WALK(r->n_extras);
    if (r->n_extras > SIM_MAX_EXTRAS)
        w->is_short = true;
    for (uint32_t i = 0; i < SIM_MAX_EXTRAS && !w->is_short; i++) {
        WALK(r->extras[i].which);
        WALK(r->extras[i].max_allocated_bytes);
        WALK(r->extras[i].max_reserved_bytes);
    }
}

static void walk_result(walk_t *w, sim_rank_result_t *r)
{
    WALK(r->rank);
    walk_coord(w, &r->coord);
    WALK(r->n_parameters);
    WALK(r->max_allocated_bytes);
    WALK(r->max_reserved_bytes);
    walk_moment(w, &r->allocated_moment);
    walk_moment(w, &r->reserved_moment);
    WALK(r->at_peak);
    WALK(r->n_allocator_ops);
    WALK(r->n_alloc_retries);
    WALK(r->host_bytes);
    WALK(r->mempools.reserved_bytes);
    WALK(r->mempools.idle_bytes);
    WALK(r->is_out_of_memory);
    walk_moment(w, &r->oom_moment);
    WALK(r->oom_tensor);
    WALK(r->oom_requested_bytes);
    walk_oom(w, &r->oom);
    WALK(r->at_oom);
    WALK(r->has_need);
    WALK(r->need_is_known);
    WALK(r->need_allocated_bytes);
    WALK(r->need_reserved_bytes);
    walk_iterations(w, r);
    walk_extras(w, r);
}

void *sim_rank_result_pack(const sim_rank_result_t *result, size_t *n_bytes_p)
{
    sim_rank_result_t copy = *result;
    walk_t count = { .mode = COUNT };
    walk_result(&count, &copy);
    char *bytes = base_xcalloc(count.n, 1);
    walk_t w = { .mode = WRITE, .at = bytes, .left = count.n };
    walk_result(&w, &copy);
    *n_bytes_p = count.n;
    return bytes;
}

base_status_t sim_rank_result_unpack(const void *bytes, size_t n_bytes, sim_rank_result_t *result_p,
                                     base_err_t *err)
{
    char *copy = base_xcalloc(n_bytes, 1);
    if (n_bytes > 0)
        memcpy(copy, bytes, n_bytes);
    sim_rank_result_t result = { 0 };
    walk_t w = { .mode = READ, .at = copy, .left = n_bytes };
    walk_result(&w, &result);
    free(copy);
    if (w.is_short || w.left > 0) {
        sim_rank_result_fini(&result);
        return base_err_set(err, BASE_ERR_PARSE, "%zu bytes are not the result of a rank", n_bytes);
    }
    *result_p = result;
    return BASE_OK;
}
