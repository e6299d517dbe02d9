/* SPDX-License-Identifier: Apache-2.0
 * Loading CUDA and NVML, against the stand-in. */
#include "topology/cuda_api.h"

#include "sim/base/dynlib.h"
#include "tests/cutap.h"

#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static void loads_and_talks_to_the_devices(void)
{
    topo_cuda_t cuda;
    base_err_t err;
    CU_ASSERT_FATAL(topo_cuda_open(&cuda, &err) == BASE_OK);
    int n = 0;
    CU_ASSERT_EQUAL(cuda.rt.cudaGetDeviceCount(&n), 0);
    CU_ASSERT_EQUAL(n, 1);
    void *address;
    size_t before, after, total;
    CU_ASSERT_EQUAL(cuda.rt.cudaMemGetInfo(&before, &total), 0);
    CU_ASSERT_EQUAL(cuda.rt.cudaMalloc(&address, 3 << 20), 0);
    CU_ASSERT_EQUAL(cuda.rt.cudaMemGetInfo(&after, &total), 0);
    CU_ASSERT_EQUAL(before - after, 4 << 20);
    CU_ASSERT_EQUAL(cuda.rt.cudaFree(address), 0);
    CU_ASSERT_STRING_EQUAL(topo_cuda_runtime_text(&cuda, 2), "out of memory");
    CU_ASSERT_STRING_EQUAL(topo_cuda_driver_text(&cuda, 2), "out of memory");
    CU_ASSERT_STRING_EQUAL(topo_cuda_driver_text(&cuda, 12345), "unknown error");
    topo_cuda_close(&cuda);
}

static void an_old_driver_is_named(void)
{
    topo_cuda_t cuda;
    base_err_t err;
    setenv("STANDIN_DRIVER", "12040", 1);
    CU_ASSERT_EQUAL(topo_cuda_open(&cuda, &err), BASE_ERR_IO);
    unsetenv("STANDIN_DRIVER");
    CU_ASSERT_STRING_EQUAL(err.text, "the NVIDIA driver is for CUDA 12.4, too old for the CUDA "
                                     "runtime 13.0 that was found");
}

static void each_failing_call_is_an_error(void)
{
    static const char *const calls[] = { "cuInit", "cudaDriverGetVersion",
                                         "cudaRuntimeGetVersion" };
    for (size_t i = 0; i < sizeof(calls) / sizeof(calls[0]); i++) {
        topo_cuda_t cuda;
        base_err_t err;
        setenv("STANDIN_FAIL_CALL", calls[i], 1);
        setenv("STANDIN_FAIL_AT", "1", 1);
        CU_ASSERT_EQUAL(topo_cuda_open(&cuda, &err), BASE_ERR_IO);
        CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "unknown error (999)"));
        unsetenv("STANDIN_FAIL_AT");
    }
    unsetenv("STANDIN_FAIL_CALL");
}

static void nvml_starts_and_ends(void)
{
    topo_nvml_t nvml;
    void *library;
    base_err_t err;
    CU_ASSERT_FATAL(topo_nvml_open(&nvml, &library, &err) == BASE_OK);
    void *device;
    topo_nvml_memory_t memory;
    CU_ASSERT_EQUAL(nvml.nvmlDeviceGetHandleByPciBusId_v2("0000:01:00.0", &device), 0);
    CU_ASSERT_EQUAL(nvml.nvmlDeviceGetMemoryInfo(device, &memory), 0);
    CU_ASSERT_EQUAL(memory.total, UINT64_C(64) << 30);
    CU_ASSERT_EQUAL(topo_nvml_close(&nvml, library, &err), BASE_OK);
}

static void a_missing_library_or_function_is_named(void)
{
    static const char *const none[] = { "libnot-there.so.9", "libnot-there.so.8", NULL };
    static const char *const here[] = { "libcuda.so.1", NULL };
    static const base_symbol_t symbols[] = { { "cuNothing", 0 } };
    void *table[1], *library;
    base_err_t err;
    CU_ASSERT_EQUAL(base_dynlib_open(none, symbols, 1, table, &library, &err), BASE_ERR_IO);
    CU_ASSERT_PTR_NOT_NULL(strstr(err.text, "libnot-there.so.9: "));
    CU_ASSERT_EQUAL(base_dynlib_open(here, symbols, 1, table, &library, &err), BASE_ERR_IO);
    CU_ASSERT_STRING_EQUAL(err.text, "libcuda.so.1 has no function cuNothing");
}

/* The loader reads LD_LIBRARY_PATH when a program starts. */
static void start_again_with_the_standin(char **argv)
{
    const char *path = getenv("LD_LIBRARY_PATH");
    if (path != NULL && strcmp(path, STANDIN_DIR) == 0)
        return;
    setenv("LD_LIBRARY_PATH", STANDIN_DIR, 1);
    execv("/proc/self/exe", argv);
}

static CU_TestInfo tests[] = {
    { "loads and talks to the devices", loads_and_talks_to_the_devices },
    { "an old driver is named", an_old_driver_is_named },
    { "each failing call is an error", each_failing_call_is_an_error },
    { "NVML starts and ends", nvml_starts_and_ends },
    { "a missing library or function is named", a_missing_library_or_function_is_named },
    CU_TEST_INFO_NULL,
};

static CU_SuiteInfo suites[] = {
    { "cuda_api", NULL, NULL, NULL, NULL, tests },
    CU_SUITE_INFO_NULL,
};

int main(int argc, char **argv)
{
    (void)argc;
    start_again_with_the_standin(argv);
    return cutap_run(suites);
}
