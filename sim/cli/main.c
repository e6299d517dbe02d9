/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/base/log.h"
#include "sim/base/nearest.h"
#include "sim/cli/command.h"
#include "sim/cli/launcher.h"

#include <errno.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static const sim_command_t *find_command(const char *name)
{
    size_t n;
    const sim_command_t *commands = sim_commands(&n);
    for (size_t i = 0; i < n; i++) {
        if (strcmp(commands[i].name, name) == 0)
            return &commands[i];
    }
    return NULL;
}

static bool is_scenario(const char *word)
{
    size_t n = strlen(word);
    return (n > 4 && strcmp(word + n - 4, ".ini") == 0) || access(word, F_OK) == 0;
}

static int unknown_command(const char *word)
{
    size_t n;
    const sim_command_t *commands = sim_commands(&n);
    base_nearest_t nearest;
    base_nearest_init(&nearest, word);
    for (size_t i = 0; i < n; i++)
        base_nearest_offer(&nearest, commands[i].name);
    if (nearest.best != NULL)
        base_log(BASE_LOG_ERROR, "unknown command '%.60s'; did you mean %s?", word, nearest.best);
    else
        base_log(BASE_LOG_ERROR, "unknown command '%.60s', and no such file; see mbsim help", word);
    return 2;
}

static int print_version(void)
{
    puts(PACKAGE_STRING);
    puts("built with: MPI " BUILT_WITH_MPI ", hwloc " BUILT_WITH_HWLOC ", inih " BUILT_WITH_INIH
         ", jansson " BUILT_WITH_JANSSON ", libyaml " BUILT_WITH_YAML ", CUDA " BUILT_WITH_CUDA
         ", NCCL " BUILT_WITH_NCCL);
    return 0;
}

static int dispatch(int argc, char **argv)
{
    static char run[] = "run", help[] = "help";
    if (argc < 2) {
        base_log(BASE_LOG_ERROR, "a command or a scenario file is missing; see mbsim help");
        return 2;
    }
    const char *word = argv[1];
    if (strcmp(word, "--version") == 0)
        return print_version();
    if (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0) {
        argv[1] = help;
        word = help;
    }
    const sim_command_t *command = find_command(word);
    if (command != NULL)
        return command->every_process || sim_launcher_rank() == 0 ? command->run(argc - 1, argv + 1)
                                                                  : 0;
    if (word[0] != '-' && !is_scenario(word))
        return unknown_command(word);
    argv[0] = run;
    return sim_cmd_run(argc, argv);
}

int main(int argc, char **argv)
{
    /* A file-size limit is then an error of write(), which leaves no half-written file behind. */
    signal(SIGXFSZ, SIG_IGN);
    int code = sim_launcher_join(argc, argv) ? dispatch(argc, argv) : 2;
    /* With code 1 it has been said why, by the writer of the same stream perhaps. */
    if ((fflush(stdout) != 0 || ferror(stdout)) && code != 1) {
        base_log(BASE_LOG_ERROR, "standard output: cannot be written: %s", strerror(errno));
        code = code == 0 ? 1 : code;
    }
    return sim_launcher_leave(code);
}
