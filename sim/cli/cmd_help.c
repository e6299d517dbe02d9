/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/base/log.h"
#include "sim/cli/command.h"

#include <stdio.h>
#include <string.h>

static void print_commands(void)
{
    size_t n;
    const sim_command_t *commands = sim_commands(&n);
    printf("Usage: mbsim SCENARIO.ini [OPTION]...\n"
           "       mbsim COMMAND [OPTION]... [ARGUMENT]...\n"
           "What will every GPU of a distributed training job hold, and will it fit?\n\n");
    for (size_t i = 0; i < n; i++) {
        char left[48];
        snprintf(left, sizeof(left), "%s %s", commands[i].name, commands[i].arguments);
        printf("  %-26s%s\n", left, commands[i].about);
    }
    printf("\nmbsim COMMAND --help lists a command's options; mbsim --version says what this is "
           "built with.\n"
           "Exit codes: 0 done or fits, 1 failed while running, 2 wrong usage or scenario,\n"
           "3 a rank is predicted to run out of memory, 4 a threshold was missed.\n");
}

int sim_cmd_help(int argc, char **argv)
{
    static char help_option[] = "--help";
    if (argc < 2) {
        print_commands();
        return 0;
    }
    size_t n;
    const sim_command_t *commands = sim_commands(&n);
    for (size_t i = 0; i < n; i++) {
        if (strcmp(commands[i].name, argv[1]) == 0 && commands[i].run != sim_cmd_help) {
            char *command_argv[] = { argv[1], help_option, NULL };
            return commands[i].run(2, command_argv);
        }
    }
    if (strcmp(argv[1], "help") == 0 || strcmp(argv[1], "--help") == 0) {
        print_commands();
        return 0;
    }
    base_log(BASE_LOG_ERROR, "help: unknown command '%.60s'; see mbsim help", argv[1]);
    return 2;
}
