/* SPDX-License-Identifier: Apache-2.0
 * Where the processes of this run sit, and what that costs the job's groups. */
#ifndef SIM_CLI_PLACING_H
#define SIM_CLI_PLACING_H

#include "collectives/cost.h"
#include "collectives/placement.h"
#include "sim/cli/options.h"
#include "sim/scenario/scenario.h"

/* What --bind says; auto is `otherwise`. */
coll_bind_t sim_cli_bind(const sim_options_t *options, coll_bind_t otherwise);

/* Everybody together, after the GPUs have been shared out or without that. 0, or the exit code
 * after a message. */
int sim_cli_place(const char *command, coll_bind_t bind, coll_placement_t *placement_p);

/* Process 0: a warning for each process that could not be bound. */
void sim_cli_warn_unbound(const char *command, const coll_placement_t *placement);

/* The scenario's network. */
coll_network_t sim_cli_network(const sim_scenario_t *scenario);

/* Process 0: a warning for every kind of group that should stay on one host and is on several of
 * those that this run is on. */
void sim_cli_warn_split(const sim_scenario_t *scenario, const coll_placement_t *placement);

#endif
