/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/cli/placing.h"

#include "sim/base/log.h"
#include "sim/base/units.h"
#include "sim/cli/launcher.h"

#include <inttypes.h>
#include <string.h>

coll_bind_t sim_cli_bind(const sim_options_t *options, coll_bind_t otherwise)
{
    if (options->bind == NULL || strcmp(options->bind, "auto") == 0)
        return otherwise;
    return strcmp(options->bind, "always") == 0 ? COLL_BIND_MUST : COLL_BIND_NONE;
}

int sim_cli_place(const char *command, coll_bind_t bind, coll_placement_t *placement_p)
{
    base_err_t err;
    if (coll_placement_init(placement_p, sim_launcher_world(), bind, NULL, &err) != BASE_OK) {
        base_log(BASE_LOG_ERROR, "%s: --bind: %s", command, err.text);
        return 1;
    }
    return 0;
}

void sim_cli_warn_unbound(const char *command, const coll_placement_t *placement)
{
    for (uint32_t i = 0; i < placement->n; i++) {
        const coll_placed_t *process = &placement->processes[i];
        if (process->trouble[0] != '\0')
            base_log(BASE_LOG_WARN, "%s: process %" PRIu32 " on %s is not bound: %s", command, i,
                     process->host, process->trouble);
    }
}

coll_network_t sim_cli_network(const sim_scenario_t *s)
{
    return coll_network(s->gpu_p->nvlink_gb_per_s, s->gpu_p->sm, (uint32_t)s->nvlink_domain,
                        (uint32_t)s->gpus_per_node, (uint32_t)s->nics_per_node, s->nic_gbit_per_s);
}

void sim_cli_warn_split(const sim_scenario_t *s, const coll_placement_t *placement)
{
    static const topo_group_t groups[] = { TOPO_GROUP_TP, TOPO_GROUP_EP, TOPO_GROUP_ETP };
    const uint64_t bytes = 64 * BASE_MIB;
    coll_network_t network = sim_cli_network(s);
    for (size_t i = 0; i < sizeof(groups) / sizeof(groups[0]); i++) {
        uint32_t rank = 0;
        uint32_t n_hosts =
            coll_placement_spread(placement, sim_launcher_world(), &s->grid, groups[i], &rank);
        if (n_hosts <= 1)
            continue;
        coll_reach_t inside = { .n = topo_group_size(&s->grid, groups[i], rank), .n_domains = 1 };
        coll_reach_t across = { .n = inside.n, .n_domains = n_hosts };
        base_log(BASE_LOG_WARN,
                 "the %s group of rank %" PRIu32 " is on %" PRIu32 " hosts of this run: an "
                 "all-gather of 64 MiB takes %.1f times as long as on one",
                 topo_group_name(groups[i]), rank, n_hosts,
                 coll_gather_seconds(&network, &across, bytes) /
                     coll_gather_seconds(&network, &inside, bytes));
    }
}
