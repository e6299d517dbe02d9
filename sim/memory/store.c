/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/memory/store.h"

#include "sim/memory/store_ops.h"

#include <stdarg.h>
#include <stdio.h>

void sim_store_fail(sim_store_t *store, const char *fmt, ...)
{
    if (sim_store_has_failed(store))
        return;
    va_list args;
    va_start(args, fmt);
    vsnprintf(store->err.text, sizeof(store->err.text), fmt, args);
    va_end(args);
    store->err.status = BASE_ERR_IO;
}

base_status_t sim_store_status(const sim_store_t *store, base_err_t *err)
{
    if (sim_store_has_failed(store) && err != NULL)
        *err = store->err;
    return store->err.status;
}

void sim_store_close(sim_store_t *store)
{
    if (store != NULL)
        store->ops->destroy(store);
}

base_status_t sim_store_end(sim_store_t *store, base_err_t *err)
{
    store->ops->end(store);
    return sim_store_status(store, err);
}

base_status_t sim_store_begin(sim_store_t *store, base_err_t *err)
{
    sim_measure_t measure;
    base_status_t status = store->ops->measure(store, &measure, err);
    if (status != BASE_OK)
        return status;
    store->used_before = measure.used_bytes;
    store->has_process_before = measure.has_process;
    store->process_before = measure.process_bytes;
    if (store->facts.free_bytes == 0 && store->facts.total_bytes > measure.used_bytes)
        store->facts.free_bytes = store->facts.total_bytes - measure.used_bytes;
    return BASE_OK;
}

base_status_t sim_store_measure(sim_store_t *store, sim_measure_t *measure_p, base_err_t *err)
{
    return store->ops->measure(store, measure_p, err);
}

uint64_t sim_store_used_before(const sim_store_t *store)
{
    return store->used_before;
}

uint64_t sim_store_account_bytes(const sim_store_t *store)
{
    return store->account_bytes;
}

const sim_store_facts_t *sim_store_facts(const sim_store_t *store)
{
    return &store->facts;
}

uint64_t sim_store_scale(const sim_store_t *store)
{
    return store->scale;
}
