/* SPDX-License-Identifier: Apache-2.0
 * What a host has, which ranks sit where, and what groups over several hosts cost. */
#include "config.h"

#include "collectives/cost.h"
#include "sim/base/log.h"
#include "sim/base/units.h"
#include "sim/base/xmem.h"
#include "sim/cli/command.h"
#include "sim/cli/json_file.h"
#include "sim/cli/launcher.h"
#include "sim/cli/load.h"
#include "sim/cli/options.h"
#include "sim/cli/placing.h"
#include "sim/report/placement.h"
#include "topology/node.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

typedef struct {
    sim_options_t common;
    const char *host;
} topo_options_t;

static const sim_option_t own[] = {
    { "host", 0, "SOURCE", SIM_OPTION_TEXT, offsetof(topo_options_t, host),
      "XML file of hwloc, a known machine, or a synthetic description; default: this machine" },
};

static const sim_usage_t usage = {
    .command = "topo",
    .arguments = "[SCENARIO.ini]",
    .about = "Show a host as hwloc sees it: sockets, NUMA nodes, GPUs and the network cards near "
             "them.\nWith a scenario also which ranks sit on which host and GPU, and which of its "
             "groups leave\nthe NVLink domain. Known machines: dgx-a100, dgx-h100, dgx-b200, "
             "gb200-nvl72, pcie-4.\nUnder mpirun also on which hosts its processes are.",
    .groups = SIM_OPTIONS_SET | SIM_OPTIONS_LIST | SIM_OPTIONS_BIND,
    .own = own,
    .n_own = sizeof(own) / sizeof(own[0]),
    .max_operands = 1,
};

/* ---- the host ---- */

/* A known machine is a file of the installation, or of a source tree that one stands in. */
static char *find_machine(const char *source)
{
    const char *const folders[] = { MACHINES_DIR, "topology/machines" };
    for (const char *c = source; *c != '\0'; c++)
        if (strchr("abcdefghijklmnopqrstuvwxyz0123456789-", *c) == NULL)
            return NULL;
    for (size_t i = 0; i < sizeof(folders) / sizeof(folders[0]); i++) {
        char *path = base_xasprintf("%s/%s.xml", folders[i], source);
        if (access(path, R_OK) == 0)
            return path;
        free(path);
    }
    return NULL;
}

static void print_gpu(const topo_node_t *node, size_t i)
{
    const topo_device_t *gpu = &node->gpus[i];
    printf("  GPU %-2zu %s  package %" PRIu32 ", NUMA node %" PRIu32, i, gpu->bus, gpu->package,
           gpu->numa);
    topo_near_t best = TOPO_NEAR_HOST;
    for (size_t k = 0; k < node->n_nics; k++) {
        topo_near_t near = topo_node_near(gpu, &node->nics[k]);
        best = near < best ? near : best;
    }
    const char *before = ";";
    for (size_t k = 0; k < node->n_nics; k++) {
        if (topo_node_near(gpu, &node->nics[k]) != best)
            continue;
        printf("%s %s", before, node->nics[k].name);
        before = ",";
    }
    if (node->n_nics > 0)
        printf(" (%s)", topo_near_name(best));
    putchar('\n');
}

static void print_node(const topo_node_t *node)
{
    char memory[BASE_BYTES_TEXT];
    if (node->product[0] != '\0')
        printf("%s\n", node->product);
    if (node->cpu[0] != '\0')
        printf("%s\n", node->cpu);
    printf("packages %" PRIu32 ", NUMA nodes %" PRIu32 ", cores %" PRIu32
           ", hardware threads %" PRIu32 ", memory %s\n",
           node->n_packages, node->n_numa, node->n_cores, node->n_pus,
           base_bytes_format(node->memory_bytes, memory));
    printf("GPUs %zu, network cards %zu\n", node->n_gpus, node->n_nics);
    for (size_t i = 0; i < node->n_gpus; i++)
        print_gpu(node, i);
    for (size_t i = 0; i < node->n_nics; i++)
        printf("  NIC %-8s %s  package %" PRIu32 ", NUMA node %" PRIu32 ", %s\n",
               node->nics[i].name, node->nics[i].bus, node->nics[i].package, node->nics[i].numa,
               node->nics[i].is_infiniband ? "InfiniBand" : "Ethernet");
}

/* ---- ranks ---- */

static void print_hosts(const sim_scenario_t *s, const topo_node_t *node)
{
    const topo_grid_t *grid = &s->grid;
    uint32_t per_host = (uint32_t)s->gpus_per_node, world = grid->world_size;
    uint32_t n_hosts = (world + per_host - 1) / per_host;
    printf("\n%" PRIu32 " ranks on %" PRIu32 " host%s of %" PRIu32 " GPUs; NVLink joins %" PRIu64
           "; %" PRIu64 " cards of %" PRIu64 " Gbit/s a host\n",
           world, n_hosts, n_hosts == 1 ? "" : "s", per_host, s->nvlink_domain, s->nics_per_node,
           s->nic_gbit_per_s);
    if (node->n_gpus > 0 && node->n_gpus != per_host)
        base_log(BASE_LOG_WARN,
                 "the host has %zu GPUs, the scenario's cluster.gpus_per_node is %" PRIu32,
                 node->n_gpus, per_host);
    printf("  %-6s %-4s", "rank", "GPU");
    printf(" %-24s %s\n", "coordinates", node->n_gpus == per_host ? "near" : "");
    uint32_t shown = per_host < world ? per_host : world;
    for (uint32_t rank = 0; rank < shown; rank++) {
        topo_coord_t c;
        topo_grid_coord(grid, rank, &c, NULL);
        char place[64];
        snprintf(place, sizeof(place),
                 "tp%" PRIu32 " cp%" PRIu32 " dp%" PRIu32 " pp%" PRIu32 " ep%" PRIu32, c.tp, c.cp,
                 c.dp, c.pp, c.ep);
        printf("  %-6" PRIu32 " %-4" PRIu32 " %-24s", rank, rank % per_host, place);
        if (node->n_gpus == per_host)
            printf(" package %" PRIu32 ", NUMA node %" PRIu32, node->gpus[rank].package,
                   node->gpus[rank].numa);
        putchar('\n');
    }
    if (n_hosts > 1)
        printf("  host h has the ranks from h x %" PRIu32 " on\n", per_host);
}

/* What an all-gather of 64 MiB over the group takes, and would take inside one NVLink domain. */
static void print_group(const sim_scenario_t *s, const coll_network_t *network, topo_group_t group)
{
    const uint64_t bytes = UINT64_C(64) << 20;
    coll_reach_t reach = coll_reach(network, &s->grid, group, 0);
    if (reach.n == 1)
        return;
    double seconds = coll_gather_seconds(network, &reach, bytes);
    printf("  %-8s %6" PRIu32 " ranks in %4" PRIu32 " domain%s; 64 MiB gathered in %7.3f ms",
           topo_group_name(group), reach.n, reach.n_domains, reach.n_domains == 1 ? " " : "s",
           1e3 * seconds);
    bool should_stay = group == TOPO_GROUP_TP || group == TOPO_GROUP_EP || group == TOPO_GROUP_ETP;
    if (reach.n_domains > 1 && should_stay) {
        coll_reach_t inside = { .n = reach.n, .n_domains = 1 };
        double near = coll_gather_seconds(network, &inside, bytes);
        printf("\n    warning: %s groups leave the NVLink domain: %.1f times the time",
               topo_group_name(group), seconds / near);
    }
    putchar('\n');
}

static void print_groups(const sim_scenario_t *s)
{
    static const topo_group_t groups[] = { TOPO_GROUP_TP, TOPO_GROUP_CP,  TOPO_GROUP_DP_CP,
                                           TOPO_GROUP_EP, TOPO_GROUP_ETP, TOPO_GROUP_EDP,
                                           TOPO_GROUP_PP };
    coll_network_t network = sim_cli_network(s);
    printf("\ngroups of rank 0, estimated times\n");
    for (size_t i = 0; i < sizeof(groups) / sizeof(groups[0]); i++)
        print_group(s, &network, groups[i]);
}

/* ---- JSON ---- */

static json_t *devices_json(const topo_device_t *devices, size_t n)
{
    json_t *list = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(list, json_pack("{s:s, s:s, s:i, s:i, s:i}", "name", devices[i].name,
                                              "bus", devices[i].bus, "package",
                                              (int)devices[i].package, "numa", (int)devices[i].numa,
                                              "host_bridge", (int)devices[i].bridge));
    return list;
}

static json_t *node_json(const topo_node_t *node, const coll_placement_t *placement)
{
    json_t *root = json_pack(
        "{s:s, s:s, s:s, s:i, s:i, s:i, s:i, s:I, s:o, s:o}", "schema", "mbsim.topo/1", "product",
        node->product, "cpu", node->cpu, "packages", (int)node->n_packages, "numa_nodes",
        (int)node->n_numa, "cores", (int)node->n_cores, "hardware_threads", (int)node->n_pus,
        "memory_bytes", (json_int_t)node->memory_bytes, "gpus",
        devices_json(node->gpus, node->n_gpus), "nics", devices_json(node->nics, node->n_nics));
    if (placement->n > 0)
        json_object_set_new(root, "placement", sim_placement_json(placement));
    return root;
}

/* ---- the command ---- */

/* Process 0: `scenario` is NULL without one; `placement` is empty where nobody asks. */
static int show(const topo_options_t *options, const topo_node_t *node,
                const sim_scenario_t *scenario, const coll_placement_t *placement)
{
    if (options->common.json != NULL)
        return sim_cli_write_json(options->common.json, node_json(node, placement));
    print_node(node);
    if (scenario != NULL) {
        print_hosts(scenario, node);
        print_groups(scenario);
    }
    if (placement->n > 0) {
        putchar('\n');
        sim_placement_text(placement, stdout);
    }
    return 0;
}

/* Process 0 has read the host, or not: the others hear of it. */
static bool go_on_together(bool is_read)
{
    static char yes[] = "yes";
    char *word = is_read ? yes : NULL;
    size_t n = sizeof(yes);
    coll_world_broadcast(sim_launcher_world(), &word, &n);
    bool goes_on = word != NULL;
    if (word != yes)
        free(word);
    return goes_on;
}

/* Everybody together: the scenario, its GPUs shared out. */
static int load(const topo_options_t *options, sim_scenario_t *scenario_p)
{
    base_err_t err;
    int code = sim_cli_load_everywhere(options->common.operands[0], &options->common, scenario_p);
    if (code != 0)
        return code;
    if (coll_world_set_gpus(sim_launcher_world(), scenario_p->grid.world_size, &err) == BASE_OK)
        return 0;
    base_log(BASE_LOG_ERROR, "topo: %s", err.text);
    return 2;
}

/* Everybody together. Where the processes are is of interest when there are several, or when they
 * are to be bound. */
static int place_and_show(const topo_options_t *options, const topo_node_t *node)
{
    coll_world_t *world = sim_launcher_world();
    bool has_scenario = options->common.n_operands > 0;
    bool has_place = coll_world_n_processes(world) > 1 || options->common.bind != NULL;
    coll_placement_t placement = { .n = 0 };
    sim_scenario_t scenario;
    int code = 0;
    if (has_scenario)
        code = load(options, &scenario);
    else
        sim_scenario_init(&scenario);
    if (code == 0 && has_place)
        code = sim_cli_place(usage.command, sim_cli_bind(&options->common, COLL_BIND_NONE),
                             &placement);
    if (code == 0 && coll_world_process(world) == 0) {
        if (has_scenario && placement.n > 0)
            sim_cli_warn_split(&scenario, &placement);
        code = show(options, node, has_scenario ? &scenario : NULL, &placement);
    }
    coll_placement_fini(&placement);
    sim_scenario_fini(&scenario);
    return code;
}

int sim_cmd_topo(int argc, char **argv)
{
    topo_options_t options = { 0 };
    int code = sim_options_parse(&usage, argc, argv, &options);
    if (code == SIM_OPTIONS_GO_ON) {
        char *machine = options.host != NULL ? find_machine(options.host) : NULL;
        topo_node_t node = { .n_gpus = 0 };
        base_err_t err;
        base_status_t status = BASE_OK;
        if (sim_launcher_rank() == 0)
            status = topo_node_load(&node, machine != NULL ? machine : options.host, &err);
        if (status != BASE_OK) {
            base_log(BASE_LOG_ERROR, "topo: %s", err.text);
            code = status == BASE_ERR_PARSE || options.host != NULL ? 2 : 1;
        }
        code = go_on_together(code == SIM_OPTIONS_GO_ON) ? place_and_show(&options, &node) : code;
        topo_node_fini(&node);
        free(machine);
    }
    sim_options_fini(&options.common);
    return code;
}
