/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/base/log.h"
#include "sim/base/nearest.h"
#include "sim/cli/command.h"
#include "sim/cli/topics.h"

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
    size_t n_topics;
    const sim_topic_t *topics = sim_topics(&n_topics);
    printf("\nmbsim help TOPIC explains");
    for (size_t i = 0; i < n_topics; i++)
        printf("%s %s", i > 0 ? "," : "", topics[i].name);
    printf(".\nmbsim COMMAND --help lists a command's options; mbsim --version says what this is "
           "built with.\n"
           "Exit codes: 0 done or fits, 1 failed while running, 2 wrong usage or scenario,\n"
           "3 a rank is predicted to run out of memory, 4 a threshold was missed.\n");
}

static void print_topics(void)
{
    size_t n;
    const sim_topic_t *topics = sim_topics(&n);
    for (size_t i = 0; i < n; i++)
        printf("  %-16s%s\n", topics[i].name, topics[i].about);
}

static bool print_topic(const char *name)
{
    size_t n;
    const sim_topic_t *topics = sim_topics(&n);
    for (size_t i = 0; i < n; i++) {
        if (strcmp(topics[i].name, name) == 0) {
            fputs(topics[i].text, stdout);
            return true;
        }
    }
    return false;
}

static int unknown(const char *word)
{
    size_t n, n_topics;
    const sim_command_t *commands = sim_commands(&n);
    const sim_topic_t *topics = sim_topics(&n_topics);
    base_nearest_t nearest;
    base_nearest_init(&nearest, word);
    for (size_t i = 0; i < n; i++)
        base_nearest_offer(&nearest, commands[i].name);
    for (size_t i = 0; i < n_topics; i++)
        base_nearest_offer(&nearest, topics[i].name);
    if (nearest.best != NULL)
        base_log(BASE_LOG_ERROR, "help: unknown command or topic '%.60s'; did you mean %s?", word,
                 nearest.best);
    else
        base_log(BASE_LOG_ERROR, "help: unknown command or topic '%.60s'; see mbsim help", word);
    return 2;
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
    if (strcmp(argv[1], "topics") == 0) {
        print_topics();
        return 0;
    }
    return print_topic(argv[1]) ? 0 : unknown(argv[1]);
}
