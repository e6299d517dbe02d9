/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/base/units.h"
#include "sim/cli/command.h"
#include "sim/cli/json_file.h"
#include "sim/cli/options.h"
#include "topology/gpu.h"

#include <inttypes.h>
#include <stdio.h>

static const sim_usage_t usage = {
    .command = "gpus",
    .arguments = "",
    .about = "List the GPUs that device.gpu knows. Memory is what CUDA reports to programs, before "
             "the\ncontext; -v adds where it was read.",
    .groups = SIM_OPTIONS_LIST,
};

static void print_text(bool verbose)
{
    size_t n;
    const topo_gpu_t *gpus = topo_gpu_table(&n);
    printf("%-15s %3s %10s %4s %5s %5s %7s %7s  %s\n", "", "", "", "", "bf16", "fp8", "memory",
           "NVLink", "");
    printf("%-15s %3s %10s %4s %5s %5s %7s %7s  %s\n", "gpu", "cc", "memory", "SMs", "TF/s", "TF/s",
           "GB/s", "GB/s", "product");
    for (size_t i = 0; i < n; i++) {
        const topo_gpu_t *g = &gpus[i];
        char memory[BASE_BYTES_TEXT];
        printf("%-15s %3" PRIu32 " %10s %4" PRIu32 " %5.0f %5.0f %7.0f %7.0f  %s\n", g->name, g->sm,
               base_bytes_format(g->total_bytes, memory), g->n_sms, g->bf16_tflops, g->fp8_tflops,
               g->memory_gb_per_s, g->nvlink_gb_per_s, g->product);
        if (g->aliases[0] != '\0')
            printf("    also %s\n", g->aliases);
        if (verbose)
            printf("    %s\n", g->source);
    }
}

static json_t *json_gpu(const topo_gpu_t *g)
{
    return json_pack("{s:s, s:o, s:s, s:i, s:I, s:i, s:f, s:f, s:f, s:f, s:s}", "name", g->name,
                     "aliases", sim_cli_json_words(g->aliases), "product", g->product,
                     "compute_capability", (int)g->sm, "total_bytes", (json_int_t)g->total_bytes,
                     "n_sms", (int)g->n_sms, "bf16_tflops", g->bf16_tflops, "fp8_tflops",
                     g->fp8_tflops, "memory_gb_per_s", g->memory_gb_per_s, "nvlink_gb_per_s",
                     g->nvlink_gb_per_s, "source", g->source);
}

static int write_json(const char *path)
{
    size_t n;
    const topo_gpu_t *gpus = topo_gpu_table(&n);
    json_t *rows = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(rows, json_gpu(&gpus[i]));
    return sim_cli_write_json(path,
                              json_pack("{s:s, s:o}", "schema", "mbsim.gpus/1", "gpus", rows));
}

int sim_cmd_gpus(int argc, char **argv)
{
    sim_options_t options = { 0 };
    int code = sim_options_parse(&usage, argc, argv, &options);
    if (code == SIM_OPTIONS_GO_ON) {
        code = 0;
        if (options.json != NULL)
            code = write_json(options.json);
        else
            print_text(options.verbose > 0);
    }
    sim_options_fini(&options);
    return code;
}
