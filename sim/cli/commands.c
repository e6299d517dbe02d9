/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/cli/command.h"

static const sim_command_t commands[] = {
    { "run", "SCENARIO.ini", "simulate one job: the memory of every rank", sim_cmd_run, true },
    { "sweep", "SCENARIO.ini", "every legal layout of [sweep]: which fit, by headroom",
      sim_cmd_sweep, true },
    { "merge", "FILE...", "the shards of a sweep joined, and what is missing", sim_cmd_merge,
      false },
    { "estimate", "SCENARIO.ini", "the closed-form estimators beside the simulation",
      sim_cmd_estimate, false },
    { "advise", "SCENARIO.ini", "the cheapest changes that make a job fit", sim_cmd_advise, false },
    { "diff", "A B", "what changed between two scenarios or two saved reports", sim_cmd_diff,
      false },
    { "import", "FILE", "Megatron-LM arguments to a scenario", sim_cmd_import, false },
    { "diagnose", "[LOG]",
      "read a pasted out-of-memory message or log: what happened, what to change", sim_cmd_diagnose,
      false },
    { "replay", "TRACE", "recorded allocator calls under other settings or another capacity",
      sim_cmd_replay, false },
    { "validate", "CORPUS.jsonl...", "measured runs beside estimators and simulation",
      sim_cmd_validate, false },
    { "topo", "[SCENARIO.ini]", "a host as hwloc sees it, and which rank sits where", sim_cmd_topo,
      true },
    { "keys", "[KEY]...", "what a scenario may say: every key with its default", sim_cmd_keys,
      false },
    { "models", "", "known models for model.preset", sim_cmd_models, false },
    { "gpus", "", "known GPUs for device.gpu", sim_cmd_gpus, false },
    { "help", "[TOPIC]", "this list, the options of a command, or what a topic is about",
      sim_cmd_help, false },
};

const sim_command_t *sim_commands(size_t *n_p)
{
    *n_p = sizeof(commands) / sizeof(commands[0]);
    return commands;
}
