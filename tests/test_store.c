/* SPDX-License-Identifier: Apache-2.0
 * Devices on real memory: pages of this machine, and the stand-in's GPU. */
#include "config.h"

#include "sim/memory/store.h"

#include "sim/base/units.h"
#include "sim/memory/caching_allocator.h"
#include "tests/cutap.h"

#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPANDABLE "expandable_segments:True"

static const sim_device_config_t config = { .total_bytes = 256 * BASE_MIB,
                                            .usable_bytes = 200 * BASE_MIB,
                                            .addresses = SIM_ADDRESSES_DEFAULT };

/* ---- a workload ---- */

enum { N_BLOCKS = 40, N_STEPS = 400 };

/* Sizes of all pools and enough of them to run out of memory now and then. Every result goes into
 * the hash. */
static uint64_t work(sim_device_t *device, const char *conf, bool fills)
{
    sim_alloc_t *alloc;
    base_err_t err;
    CU_ASSERT_FATAL(sim_alloc_create(device, conf, &alloc, &err) == BASE_OK);
    sim_block_t blocks[N_BLOCKS];
    memset(blocks, 0xff, sizeof(blocks));
    uint64_t random = 1, hash = 0;
    for (int i = 0; i < N_STEPS; i++) {
        random = random * UINT64_C(6364136223846793005) + 1442695040888963407;
        sim_block_t *block = &blocks[(random >> 33) % N_BLOCKS];
        uint64_t bytes = UINT64_C(1) << (8 + (random >> 40) % 18);
        sim_alloc_free(alloc, *block);
        *block = SIM_BLOCK_NONE;
        if (sim_alloc_malloc(alloc, i % 7 == 0, bytes + i, block)) {
            hash = hash * 31 + sim_alloc_block_addr(alloc, *block);
            if (fills)
                sim_device_fill(device, sim_alloc_block_addr(alloc, *block), bytes, i % 7 == 0);
        }
        if (i % 100 == 99)
            sim_alloc_empty_cache(alloc);
        hash = hash * 31 + sim_alloc_reserved_bytes(alloc);
    }
    sim_alloc_destroy(alloc);
    CU_ASSERT_EQUAL(sim_device_used_bytes(device), 0);
    return hash;
}

static uint64_t work_on_synthetic(const char *conf)
{
    sim_device_t *device = sim_device_create_synthetic(&config);
    uint64_t hash = work(device, conf, true);
    sim_device_destroy(device);
    return hash;
}

/* The same decisions as on the synthetic device, a peak that the store confirms to the byte, and
 * nothing left behind. */
static void check_store(sim_store_t *store, const char *conf)
{
    base_err_t err;
    sim_measure_t after;
    CU_ASSERT_FATAL(sim_store_begin(store, &err) == BASE_OK);
    sim_device_t *device = sim_device_create_on(store, &config);
    CU_ASSERT_EQUAL(work(device, conf, true), work_on_synthetic(conf));
    const sim_device_own_t *own = sim_device_own(device);
    CU_ASSERT_EQUAL(own->account_bytes,
                    sim_device_calls(device)->peak_used_bytes / sim_store_scale(store));
    CU_ASSERT_TRUE(own->is_measured);
    CU_ASSERT_EQUAL(own->own_bytes, own->account_bytes);
    CU_ASSERT_TRUE(own->account_bytes > 100 * BASE_MIB / sim_store_scale(store));
    CU_ASSERT_TRUE(own->filled_bytes > 0);
    sim_device_destroy(device);
    CU_ASSERT_EQUAL(sim_store_account_bytes(store), 0);
    CU_ASSERT_EQUAL(sim_store_measure(store, &after, &err), BASE_OK);
    CU_ASSERT_EQUAL(after.used_bytes, sim_store_used_before(store));
    CU_ASSERT_EQUAL(sim_store_end(store, &err), BASE_OK);
    sim_store_close(store);
}

/* ---- host ---- */

static void host_pages_are_as_many_as_the_account_says(void)
{
    static const uint64_t scales[] = { 1, 4, 512 };
    for (int i = 0; i < 6; i++) {
        sim_store_t *store;
        base_err_t err;
        CU_ASSERT_FATAL(sim_store_open_host(scales[i / 2], &store, &err) == BASE_OK);
        check_store(store, i % 2 == 0 ? NULL : EXPANDABLE);
    }
}

static void host_scales_that_split_pages_are_refused(void)
{
    static const uint64_t scales[] = { 0, 3, 1024, UINT64_MAX };
    for (size_t i = 0; i < sizeof(scales) / sizeof(scales[0]); i++) {
        sim_store_t *store;
        base_err_t err;
        CU_ASSERT_EQUAL(sim_store_open_host(scales[i], &store, &err), BASE_ERR_INVAL);
    }
}

/* More than the machine has is refused before it is touched. */
static void host_memory_that_is_not_there_is_out_of_memory(void)
{
    sim_store_t *store;
    base_err_t err;
    CU_ASSERT_FATAL(sim_store_open_host(1, &store, &err) == BASE_OK);
    uint64_t too_much = base_u64_round_up(sim_store_facts(store)->total_bytes, 2 * BASE_MIB);
    sim_device_config_t huge = { .total_bytes = SIM_DEVICE_MAX_BYTES,
                                 .usable_bytes = SIM_DEVICE_MAX_BYTES };
    sim_device_t *device = sim_device_create_on(store, &huge);
    uint64_t addr;
    CU_ASSERT_FALSE(sim_device_malloc(device, too_much, &addr));
    CU_ASSERT_TRUE(sim_device_reserve(device, too_much, &addr));
    CU_ASSERT_FALSE(sim_device_map(device, addr, 2 * BASE_MIB, too_much / (2 * BASE_MIB)));
    sim_device_unreserve(device, addr, too_much);
    sim_device_destroy(device);
    CU_ASSERT_EQUAL(sim_store_end(store, &err), BASE_OK);
    sim_store_close(store);
}

/* ---- cuda ---- */

#ifdef WITH_CUDA

/* What the stand-in counts. */
static uint64_t standin(const char *what)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW);
    uint64_t (*count)(void);
    *(void **)&count = dlsym(library, what);
    uint64_t n = count();
    dlclose(library);
    return n;
}

static void set_number(const char *name, uint64_t number)
{
    char text[32];
    snprintf(text, sizeof(text), "%llu", (unsigned long long)number);
    setenv(name, text, 1);
}

static base_status_t open_gpu(topo_cuda_t *cuda, sim_store_t **store_p, base_err_t *err)
{
    base_status_t status = topo_cuda_open(cuda, err);
    if (status != BASE_OK)
        return status;
    status = sim_store_open_cuda(cuda, 0, store_p, err);
    if (status != BASE_OK)
        topo_cuda_close(cuda);
    return status;
}

static void gpu_memory_is_what_the_account_says(void)
{
    for (int i = 0; i < 2; i++) {
        topo_cuda_t cuda;
        sim_store_t *store;
        base_err_t err;
        CU_ASSERT_FATAL(open_gpu(&cuda, &store, &err) == BASE_OK);
        CU_ASSERT_STRING_EQUAL(sim_store_facts(store)->name, "Stand-in 0");
        CU_ASSERT_STRING_EQUAL(sim_store_facts(store)->note, "");
        check_store(store, i == 0 ? NULL : EXPANDABLE);
        topo_cuda_close(&cuda);
    }
    CU_ASSERT_EQUAL(standin("standin_n_alive"), 0);
    CU_ASSERT_EQUAL(standin("standin_n_misuses"), 0);
}

/* What the GPU takes beyond what it is asked for shows. */
static void gpu_memory_beyond_the_account_shows(void)
{
    topo_cuda_t cuda;
    sim_store_t *store;
    base_err_t err;
    setenv("STANDIN_MALLOC_STEP", "3145728", 1);
    CU_ASSERT_FATAL(open_gpu(&cuda, &store, &err) == BASE_OK);
    CU_ASSERT_EQUAL(sim_store_begin(store, &err), BASE_OK);
    sim_device_t *device = sim_device_create_on(store, &config);
    uint64_t addr;
    CU_ASSERT_TRUE(sim_device_malloc(device, 2 * BASE_MIB, &addr));
    CU_ASSERT_EQUAL(sim_device_own(device)->account_bytes, 2 * BASE_MIB);
    CU_ASSERT_EQUAL(sim_device_own(device)->own_bytes, 3 * BASE_MIB);
    sim_device_free(device, addr, 2 * BASE_MIB);
    sim_device_destroy(device);
    CU_ASSERT_EQUAL(sim_store_end(store, &err), BASE_OK);
    sim_store_close(store);
    topo_cuda_close(&cuda);
    unsetenv("STANDIN_MALLOC_STEP");
}

/* The GPU is full before the device is: out of memory, as a result, and all given back. */
static void a_full_gpu_is_out_of_memory(void)
{
    for (int i = 0; i < 2; i++) {
        topo_cuda_t cuda;
        sim_store_t *store;
        base_err_t err;
        set_number("STANDIN_CAPACITY", 256 * BASE_MIB + 64 * BASE_MIB);
        CU_ASSERT_FATAL(open_gpu(&cuda, &store, &err) == BASE_OK);
        CU_ASSERT_EQUAL(sim_store_begin(store, &err), BASE_OK);
        sim_device_t *device = sim_device_create_on(store, &config);
        work(device, i == 0 ? NULL : EXPANDABLE, true);
        CU_ASSERT_TRUE(sim_device_calls(device)->n_failed > 0);
        CU_ASSERT_TRUE(sim_device_own(device)->account_bytes <= 64 * BASE_MIB);
        sim_device_destroy(device);
        CU_ASSERT_EQUAL(sim_store_end(store, &err), BASE_OK);
        sim_store_close(store);
        topo_cuda_close(&cuda);
        unsetenv("STANDIN_CAPACITY");
    }
    CU_ASSERT_EQUAL(standin("standin_n_alive"), 0);
}

/* One run with the n-th call failing; what NVML says may be missing, all else is an error. */
static bool fail_one(uint64_t n, const char *conf, uint64_t *n_errors_p)
{
    topo_cuda_t cuda;
    sim_store_t *store;
    base_err_t err = { .text = "" };
    uint64_t first = standin("standin_n_calls");
    set_number("STANDIN_FAIL_AT", first + n);
    base_status_t status = open_gpu(&cuda, &store, &err);
    if (status == BASE_OK) {
        bool has_note = sim_store_facts(store)->note[0] != '\0';
        status = sim_store_begin(store, &err);
        if (status == BASE_OK) {
            sim_device_t *device = sim_device_create_on(store, &config);
            work(device, conf, true);
            sim_device_own(device);
            sim_device_destroy(device);
        }
        if (sim_store_end(store, &err) != BASE_OK)
            status = BASE_ERR_IO;
        has_note = has_note || sim_store_facts(store)->note[0] != '\0';
        bool was_reached = standin("standin_n_calls") - first >= n;
        CU_ASSERT_TRUE(!was_reached || status != BASE_OK || has_note);
        sim_store_close(store);
        topo_cuda_close(&cuda);
    }
    if (status != BASE_OK) {
        CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "(999)"));
        *n_errors_p += 1;
    }
    return standin("standin_n_calls") - first >= n;
}

static void every_call_may_fail(void)
{
    for (int i = 0; i < 2; i++) {
        uint64_t n = 1, n_errors = 0;
        uint64_t alive = standin("standin_n_alive");
        setenv("STANDIN_FAIL_CODE", "999", 1);
        while (fail_one(n, i == 0 ? NULL : EXPANDABLE, &n_errors)) {
            /* What could not be given back is all that may be left of a run: one thing, or what
             * depends on it. */
            CU_ASSERT_TRUE(standin("standin_n_alive") <= alive + 3);
            alive = standin("standin_n_alive");
            n++;
        }
        CU_ASSERT_TRUE(n > 100 && n_errors > 100);
        unsetenv("STANDIN_FAIL_AT");
        unsetenv("STANDIN_FAIL_CODE");
    }
}

static void gpus_that_cannot_be_used_are_named(void)
{
    static const struct {
        const char *name, *value, *conf, *text;
    } cases[] = {
        { "STANDIN_DEVICES", "0", NULL, "cuInit: no CUDA-capable device is detected" },
        { "STANDIN_BUSY", "68719476736", NULL, "GPU 0: no memory is free" },
        { "STANDIN_NO_VMM", "1", EXPANDABLE, "no virtual memory management" },
        { "STANDIN_GRANULARITY", "4194304", EXPANDABLE, "makes pages of 4194304 bytes" },
    };
    for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
        topo_cuda_t cuda;
        sim_store_t *store;
        base_err_t err = { .text = "" };
        setenv(cases[i].name, cases[i].value, 1);
        if (open_gpu(&cuda, &store, &err) == BASE_OK) {
            CU_ASSERT_EQUAL(sim_store_begin(store, &err), BASE_OK);
            sim_device_t *device = sim_device_create_on(store, &config);
            work(device, cases[i].conf, false);
            sim_device_destroy(device);
            CU_ASSERT_EQUAL(sim_store_end(store, &err), BASE_ERR_IO);
            sim_store_close(store);
            topo_cuda_close(&cuda);
        }
        unsetenv(cases[i].name);
        if (strstr(err.text, cases[i].text) == NULL)
            fprintf(stderr, "case %zu: %s\n", i, err.text);
        CU_ASSERT_PTR_NOT_NULL(strstr(err.text, cases[i].text));
    }
}

#endif

static CU_TestInfo tests[] = {
    { "host: pages are as many as the account says", host_pages_are_as_many_as_the_account_says },
    { "host: scales that split pages are refused", host_scales_that_split_pages_are_refused },
    { "host: memory that is not there is out of memory",
      host_memory_that_is_not_there_is_out_of_memory },
#ifdef WITH_CUDA
    { "cuda: GPU memory is what the account says", gpu_memory_is_what_the_account_says },
    { "cuda: GPU memory beyond the account shows", gpu_memory_beyond_the_account_shows },
    { "cuda: a full GPU is out of memory", a_full_gpu_is_out_of_memory },
    { "cuda: GPUs that cannot be used are named", gpus_that_cannot_be_used_are_named },
    { "cuda: every call may fail", every_call_may_fail },
#endif
    CU_TEST_INFO_NULL,
};

static CU_SuiteInfo suites[] = {
    { "store", NULL, NULL, NULL, NULL, tests },
    CU_SUITE_INFO_NULL,
};

/* The loader reads LD_LIBRARY_PATH when a program starts. */
static void start_again_with_the_standin(char **argv)
{
    const char *path = getenv("LD_LIBRARY_PATH");
    if (path != NULL && strcmp(path, STANDIN_DIR) == 0)
        return;
    setenv("LD_LIBRARY_PATH", STANDIN_DIR, 1);
    setenv("STANDIN_LENIENT", "1", 1); /* calls that give back are made to fail as well */
    execv("/proc/self/exe", argv);
}

int main(int argc, char **argv)
{
    (void)argc;
    start_again_with_the_standin(argv);
    return cutap_run(suites);
}
