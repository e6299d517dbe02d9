/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "topology/cuda_api.h"

#include "sim/base/dynlib.h"

#define COUNT(array) (sizeof(array) / sizeof((array)[0]))

#ifdef WITH_CUDA

#define RT(name) BASE_SYMBOL(topo_cuda_runtime_t, name)
static const base_symbol_t runtime_symbols[] = {
    RT(cudaDriverGetVersion),
    RT(cudaRuntimeGetVersion),
    RT(cudaGetDeviceCount),
    RT(cudaSetDevice),
    RT(cudaDeviceGetPCIBusId),
    RT(cudaMalloc),
    RT(cudaFree),
    RT(cudaMemGetInfo),
    RT(cudaMemsetAsync),
    RT(cudaStreamCreateWithFlags),
    RT(cudaStreamSynchronize),
    RT(cudaStreamQuery),
    RT(cudaStreamDestroy),
    RT(cudaDeviceSynchronize),
    RT(cudaGetLastError),
    RT(cudaGetErrorString),
};

#define DRV(name) BASE_SYMBOL(topo_cuda_driver_t, name)
static const base_symbol_t driver_symbols[] = {
    DRV(cuInit),
    DRV(cuDeviceGet),
    DRV(cuDeviceGetName),
    DRV(cuDeviceGetAttribute),
    DRV(cuMemGetAllocationGranularity),
    DRV(cuMemAddressReserve),
    DRV(cuMemAddressFree),
    DRV(cuMemCreate),
    DRV(cuMemRelease),
    DRV(cuMemMap),
    DRV(cuMemUnmap),
    DRV(cuMemSetAccess),
    DRV(cuGetErrorString),
};

static const char *const driver_names[] = { "libcuda.so.1", NULL };

/* By the loader's own search first; then where the toolkit was when this was built. */
static const char *const runtime_names[] = {
    "libcudart.so.13",
    "libcudart.so.12",
    "libcudart.so.11.0",
    CUDA_LIBRARY_DIR "/libcudart.so.13",
    CUDA_LIBRARY_DIR "/libcudart.so.12",
    CUDA_LIBRARY_DIR "/libcudart.so.11.0",
    NULL,
};

const char *topo_cuda_runtime_text(const topo_cuda_t *cuda, int error)
{
    const char *text = cuda->rt.cudaGetErrorString(error);
    return text != NULL ? text : "unknown error";
}

const char *topo_cuda_driver_text(const topo_cuda_t *cuda, int error)
{
    const char *text = NULL;
    if (cuda->drv.cuGetErrorString(error, &text) != 0 || text == NULL)
        return "unknown error";
    return text;
}

static base_status_t start(const topo_cuda_t *cuda, base_err_t *err)
{
    int error = cuda->drv.cuInit(0);
    if (error != 0)
        return base_err_set(err, BASE_ERR_IO, "the NVIDIA driver does not start: cuInit: %s (%d)",
                            topo_cuda_driver_text(cuda, error), error);
    int has = 0, needs = 0;
    error = cuda->rt.cudaDriverGetVersion(&has);
    if (error == 0)
        error = cuda->rt.cudaRuntimeGetVersion(&needs);
    if (error != 0)
        return base_err_set(err, BASE_ERR_IO, "the CUDA runtime does not start: %s (%d)",
                            topo_cuda_runtime_text(cuda, error), error);
    /* A runtime runs on every driver of its own major version. */
    if (has / 1000 < needs / 1000)
        return base_err_set(err, BASE_ERR_IO,
                            "the NVIDIA driver is for CUDA %d.%d, too old for the CUDA runtime "
                            "%d.%d that was found",
                            has / 1000, has % 1000 / 10, needs / 1000, needs % 1000 / 10);
    return BASE_OK;
}

base_status_t topo_cuda_open(topo_cuda_t *cuda_p, base_err_t *err)
{
    topo_cuda_t cuda = { 0 };
    base_err_t why;
    if (base_dynlib_open(driver_names, driver_symbols, COUNT(driver_symbols), &cuda.drv,
                         &cuda.drv_library, &why) != BASE_OK)
        return base_err_set(err, BASE_ERR_IO, "no NVIDIA driver on this machine (%s)", why.text);
    base_status_t status;
    if (base_dynlib_open(runtime_names, runtime_symbols, COUNT(runtime_symbols), &cuda.rt,
                         &cuda.rt_library, &why) != BASE_OK)
        status = base_err_set(err, BASE_ERR_IO, "no CUDA runtime on this machine (%s)", why.text);
    else
        status = start(&cuda, err);
    if (status != BASE_OK) {
        topo_cuda_close(&cuda);
        return status;
    }
    *cuda_p = cuda;
    return BASE_OK;
}

#else

const char *topo_cuda_runtime_text(const topo_cuda_t *cuda, int error)
{
    (void)cuda, (void)error;
    return "built without CUDA";
}

const char *topo_cuda_driver_text(const topo_cuda_t *cuda, int error)
{
    (void)cuda, (void)error;
    return "built without CUDA";
}

base_status_t topo_cuda_open(topo_cuda_t *cuda_p, base_err_t *err)
{
    (void)cuda_p;
    return base_err_set(err, BASE_ERR_UNSUPPORTED, "this mbsim was built --without-cuda");
}

#endif

void topo_cuda_close(topo_cuda_t *cuda)
{
    base_dynlib_close(cuda->rt_library);
    base_dynlib_close(cuda->drv_library);
    *cuda = (topo_cuda_t){ 0 };
}

#define NVML(name) BASE_SYMBOL(topo_nvml_t, name)
static const base_symbol_t nvml_symbols[] = {
    NVML(nvmlInit_v2),
    NVML(nvmlShutdown),
    NVML(nvmlDeviceGetHandleByPciBusId_v2),
    NVML(nvmlDeviceGetMemoryInfo),
    NVML(nvmlDeviceGetComputeRunningProcesses_v3),
    NVML(nvmlErrorString),
};

static const char *const nvml_names[] = { "libnvidia-ml.so.1", NULL };

base_status_t topo_nvml_open(topo_nvml_t *nvml_p, void **library_p, base_err_t *err)
{
    base_status_t status =
        base_dynlib_open(nvml_names, nvml_symbols, COUNT(nvml_symbols), nvml_p, library_p, err);
    if (status != BASE_OK)
        return status;
    int error = nvml_p->nvmlInit_v2();
    if (error == 0)
        return BASE_OK;
    status = base_err_set(err, BASE_ERR_IO, "nvmlInit_v2: %s (%d)", nvml_p->nvmlErrorString(error),
                          error);
    base_dynlib_close(*library_p);
    *library_p = NULL;
    return status;
}

base_status_t topo_nvml_close(const topo_nvml_t *nvml, void *library, base_err_t *err)
{
    int error = nvml->nvmlShutdown();
    base_status_t status = BASE_OK;
    if (error != 0)
        status = base_err_set(err, BASE_ERR_IO, "nvmlShutdown: %s (%d)",
                              nvml->nvmlErrorString(error), error);
    base_dynlib_close(library);
    return status;
}
