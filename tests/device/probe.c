/* SPDX-License-Identifier: Apache-2.0
 * What a CUDA context, cuBLAS and a communicator of one rank take of a GPU, and in which steps
 * cudaMalloc does: a line "NAME BYTES" each, "NAME none REASON" where it cannot be told. Exit code
 * 77: no driver or no GPU. */
#include "config.h"

#include "collectives/nccl_api.h"
#include "sim/base/dynlib.h"
#include "topology/cuda_api.h"

#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))
#define MIB          (UINT64_C(1) << 20)

static topo_cuda_t cuda;

/* ---- what is in use ---- */

static topo_nvml_t nvml;
static void *nvml_library, *nvml_device;

static void need(const char *call, int error)
{
    if (error == 0)
        return;
    fprintf(stderr, "probe: %s: %s (%d)\n", call, topo_cuda_runtime_text(&cuda, error), error);
    exit(1);
}

/* By NVML, which needs no context. */
static bool used_by_nvml(uint64_t *bytes_p)
{
    topo_nvml_memory_t memory;
    if (nvml_device == NULL || nvml.nvmlDeviceGetMemoryInfo(nvml_device, &memory) != 0)
        return false;
    *bytes_p = memory.used;
    return true;
}

static uint64_t used(void)
{
    size_t free_bytes, total;
    need("cudaMemGetInfo", cuda.rt.cudaMemGetInfo(&free_bytes, &total));
    return total - free_bytes;
}

static void print(const char *name, uint64_t before, uint64_t after)
{
    printf("%s %lld\n", name, (long long)after - (long long)before);
}

static void open_nvml(void)
{
    char bus[32];
    base_err_t err = { .text = "" };
    if (topo_nvml_open(&nvml, &nvml_library, &err) != BASE_OK) {
        printf("nvml none %s\n", err.text);
        return;
    }
    if (cuda.rt.cudaDeviceGetPCIBusId(bus, (int)sizeof(bus), 0) != 0 ||
        nvml.nvmlDeviceGetHandleByPciBusId_v2(bus, &nvml_device) != 0)
        nvml_device = NULL;
}

/* ---- context ---- */

static void probe_context(void)
{
    uint64_t before, after;
    bool is_known = used_by_nvml(&before);
    need("cudaSetDevice", cuda.rt.cudaSetDevice(0));
    need("cudaFree", cuda.rt.cudaFree(NULL));
    if (is_known && used_by_nvml(&after))
        print("context", before, after);
    else
        puts("context none NVML does not tell");
}

static void probe_facts(void)
{
    char name[96] = "";
    int device, has_pages = 0, version = 0;
    size_t granularity = 0, free_bytes, total;
    topo_cuda_prop_t prop = { .type = TOPO_CUDA_PINNED,
                              .location = { .type = TOPO_CUDA_ON_DEVICE } };
    if (cuda.drv.cuDeviceGet(&device, 0) == 0) {
        cuda.drv.cuDeviceGetName(name, (int)sizeof(name), device);
        cuda.drv.cuDeviceGetAttribute(&has_pages, TOPO_CUDA_ATTRIBUTE_VIRTUAL_MEMORY, device);
    }
    printf("gpu %s\n", name);
    need("cudaMemGetInfo", cuda.rt.cudaMemGetInfo(&free_bytes, &total));
    printf("total %zu\nfree %zu\n", total, free_bytes);
    need("cudaDriverGetVersion", cuda.rt.cudaDriverGetVersion(&version));
    printf("driver %d\n", version);
    need("cudaRuntimeGetVersion", cuda.rt.cudaRuntimeGetVersion(&version));
    printf("runtime %d\n", version);
    if (has_pages != 0 && cuda.drv.cuMemGetAllocationGranularity(
                              &granularity, &prop, TOPO_CUDA_GRANULARITY_MINIMUM) == 0)
        printf("granularity %zu\n", granularity);
}

/* ---- cudaMalloc ---- */

static void probe_malloc(void)
{
    static const uint64_t sizes[] = { 2 * MIB, 3 * MIB, 20 * MIB, 1024 * MIB };
    for (size_t i = 0; i < COUNT(sizes); i++) {
        void *address;
        char name[32];
        uint64_t before = used();
        need("cudaMalloc", cuda.rt.cudaMalloc(&address, sizes[i]));
        snprintf(name, sizeof(name), "malloc_%llu", (unsigned long long)sizes[i]);
        print(name, before, used());
        need("cudaFree", cuda.rt.cudaFree(address));
    }
}

/* ---- cuBLAS ---- */

typedef struct {
    int (*cublasCreate_v2)(void **handle);
    int (*cublasSgemm_v2)(void *handle, int trans_a, int trans_b, int m, int n, int k,
                          const float *alpha, const float *a, int lda, const float *b, int ldb,
                          const float *beta, float *c, int ldc);
    int (*cublasDestroy_v2)(void *handle);
} cublas_t;

static void probe_cublas(void)
{
    static const char *const names[] = { "libcublas.so.13",
                                         "libcublas.so.12",
                                         "libcublas.so.11",
                                         CUDA_LIBRARY_DIR "/libcublas.so.13",
                                         CUDA_LIBRARY_DIR "/libcublas.so.12",
                                         NULL };
    static const base_symbol_t symbols[] = { BASE_SYMBOL(cublas_t, cublasCreate_v2),
                                             BASE_SYMBOL(cublas_t, cublasSgemm_v2),
                                             BASE_SYMBOL(cublas_t, cublasDestroy_v2) };
    enum { SIDE = 1024 };
    cublas_t cublas;
    void *library, *handle, *matrices;
    base_err_t err = { .text = "" };
    if (base_dynlib_open(names, symbols, COUNT(symbols), &cublas, &library, &err) != BASE_OK) {
        printf("cublas_handle none %s\n", err.text);
        return;
    }
    uint64_t before = used();
    int error = cublas.cublasCreate_v2(&handle);
    if (error != 0) {
        printf("cublas_handle none cublasCreate: %d\n", error);
        return;
    }
    print("cublas_handle", before, used());
    size_t bytes = sizeof(float) * SIDE * SIDE;
    need("cudaMalloc", cuda.rt.cudaMalloc(&matrices, 4 * bytes)); /* whole steps of 2 MiB */
    float *a = matrices, *b = a + SIDE * SIDE, *c = b + SIDE * SIDE;
    const float one = 1, zero = 0;
    before = used();
    error = cublas.cublasSgemm_v2(handle, 0, 0, SIDE, SIDE, SIDE, &one, a, SIDE, b, SIDE, &zero, c,
                                  SIDE);
    need("cudaDeviceSynchronize", cuda.rt.cudaDeviceSynchronize());
    if (error == 0)
        print("cublas_first_product", before, used());
    else
        printf("cublas_first_product none cublasSgemm: %d\n", error);
    need("cudaFree", cuda.rt.cudaFree(matrices));
    cublas.cublasDestroy_v2(handle);
    base_dynlib_close(library);
}

/* ---- NCCL ---- */

/* Until what was begun is done. */
static int finish(const coll_nccl_api_t *nccl, void *comm, int error)
{
    while (error == COLL_NCCL_IN_PROGRESS || error == 0) {
        int state = 0;
        error = nccl->ncclCommGetAsyncError(comm, &state);
        if (error == 0 && state != COLL_NCCL_IN_PROGRESS)
            return state;
    }
    return error;
}

static int reduce_once(const coll_nccl_api_t *nccl, void *comm, void *buffer,
                       topo_cuda_stream_t stream)
{
    enum { N = 1 << 18 };
    int error = nccl->ncclGroupStart();
    if (error == 0)
        error =
            nccl->ncclAllReduce(buffer, buffer, N, COLL_NCCL_FLOAT32, COLL_NCCL_SUM, comm, stream);
    int ended = nccl->ncclGroupEnd();
    if (error == 0 || error == COLL_NCCL_IN_PROGRESS)
        error = finish(nccl, comm, ended);
    need("cudaDeviceSynchronize", cuda.rt.cudaDeviceSynchronize());
    return error;
}

static void use_nccl(const coll_nccl_api_t *nccl)
{
    coll_nccl_config_t config = { .size = sizeof(config),
                                  .magic = COLL_NCCL_CONFIG_MAGIC,
                                  .version = COLL_NCCL_CONFIG_VERSION,
                                  .blocking = 1 };
    coll_nccl_id_t id;
    void *comm = NULL, *buffer;
    need("cudaMalloc", cuda.rt.cudaMalloc(&buffer, 2 * MIB));
    topo_cuda_stream_t stream;
    need("cudaStreamCreateWithFlags",
         cuda.rt.cudaStreamCreateWithFlags(&stream, TOPO_CUDA_STREAM_NON_BLOCKING));
    uint64_t before = used();
    int error = nccl->ncclGetUniqueId(&id);
    if (error == 0)
        error = nccl->ncclCommInitRankConfig(&comm, 1, id, 0, &config);
    if (comm != NULL)
        error = finish(nccl, comm, error);
    if (error == 0) {
        uint64_t made = used();
        print("nccl_creation", before, made);
        error = reduce_once(nccl, comm, buffer, stream);
        if (error == 0)
            print("nccl_first_all_reduce", made, used());
    }
    if (error != 0)
        printf("nccl_creation none %s\n", nccl->ncclGetErrorString(error));
    if (comm != NULL)
        nccl->ncclCommDestroy(comm);
    print("nccl_left", before, used());
    need("cudaStreamDestroy", cuda.rt.cudaStreamDestroy(stream));
    need("cudaFree", cuda.rt.cudaFree(buffer));
}

static void probe_nccl(void)
{
    coll_nccl_api_t nccl;
    void *library;
    int version;
    base_err_t err = { .text = "" };
    if (coll_nccl_api_open(&nccl, &library, &version, &err) != BASE_OK) {
        printf("nccl_creation none %s\n", err.text);
        return;
    }
    printf("nccl_version %d\n", version);
    use_nccl(&nccl);
    base_dynlib_close(library);
}

int main(void)
{
    base_err_t err = { .text = "" };
    int n = 0;
    if (topo_cuda_open(&cuda, &err) != BASE_OK || cuda.rt.cudaGetDeviceCount(&n) != 0 || n == 0) {
        fprintf(stderr, "probe: %s\n", n == 0 && err.text[0] != '\0' ? err.text : "no GPU");
        return 77;
    }
    open_nvml();
    probe_context();
    probe_facts();
    probe_malloc();
    probe_cublas();
    probe_nccl();
    if (nvml_library != NULL && topo_nvml_close(&nvml, nvml_library, &err) != BASE_OK)
        fprintf(stderr, "probe: %s\n", err.text);
    topo_cuda_close(&cuda);
    return 0;
}
