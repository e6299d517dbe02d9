/* SPDX-License-Identifier: Apache-2.0
 * What a kind of real memory implements. All ops are required. Addresses and bytes are the store's
 * own. An op that returns false has changed nothing; unless memory has run out it has called
 * sim_store_fail(). */
#ifndef SIM_MEMORY_STORE_OPS_H
#define SIM_MEMORY_STORE_OPS_H

#include "sim/memory/store.h"

typedef struct {
    const char *name;
    void (*destroy)(sim_store_t *store); /* frees the struct */
    void (*end)(sim_store_t *store);
    base_status_t (*measure)(sim_store_t *store, sim_measure_t *measure_p, base_err_t *err);

    bool (*take)(sim_store_t *store, uint64_t bytes, uint64_t *addr_p); /* with memory */
    void (*give)(sim_store_t *store, uint64_t addr, uint64_t bytes);
    bool (*reserve)(sim_store_t *store, uint64_t bytes, uint64_t *addr_p); /* addresses only */
    void (*unreserve)(sim_store_t *store, uint64_t addr, uint64_t bytes);
    /* handles[n_pages] is the caller's; map fills it, unmap gets it back. */
    bool (*map)(sim_store_t *store, uint64_t addr, uint64_t page_bytes, uint64_t n_pages,
                uint64_t *handles);
    void (*unmap)(sim_store_t *store, uint64_t addr, uint64_t page_bytes, uint64_t n_pages,
                  const uint64_t *handles);
    void (*fill)(sim_store_t *store, uint64_t addr, uint64_t bytes, uint64_t stream);
} sim_store_ops_t;

/* A range of addresses that a device holds. `addr` and `bytes` are the device's. */
typedef struct {
    uint64_t addr, bytes;
    uint64_t store_addr;
    uint64_t page_bytes; /* of a reservation in which something is mapped, else 0 */
    uint64_t *handles;   /* by page, then; owned */
} sim_store_range_t;

/* First member of every kind's struct. */
struct sim_store {
    const sim_store_ops_t *ops;
    sim_store_facts_t facts;
    uint64_t scale;
    uint64_t account_bytes; /* of all devices, the store's bytes */
    uint64_t used_before;
    bool has_process_before; /* cuda */
    uint64_t process_before;
    base_err_t err; /* status BASE_OK = none */
};

/* Keep the first error. */
void sim_store_fail(sim_store_t *store, const char *fmt, ...) __attribute__((format(printf, 2, 3)));

static inline bool sim_store_has_failed(const sim_store_t *store)
{
    return store->err.status != BASE_OK;
}

#endif
