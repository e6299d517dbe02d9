/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/cli/options.h"

#include "sim/base/log.h"
#include "sim/base/nearest.h"
#include "sim/base/xmem.h"
#include "sim/cli/launcher.h"

#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define FIELD(name) offsetof(sim_options_t, name)

enum { MAX_OPTIONS = 48, FIRST_ID = 256, DOC_COLUMN = 28 };

static const struct {
    unsigned group; /* 0 = every command */
    sim_option_t option;
} common[] = {
    { SIM_OPTIONS_SET,
      { "set", 0, "SECTION.KEY=VALUE", SIM_OPTION_LIST, FIELD(sets),
        "set a key; wins over the file; may be repeated" } },
    { SIM_OPTIONS_JSON,
      { "json", 0, "FILE", SIM_OPTION_TEXT, FIELD(json),
        "write the result as JSON; - is stdout" } },
    { SIM_OPTIONS_LIST,
      { "json", 0, "[FILE]", SIM_OPTION_OUTPUT, FIELD(json), "as JSON, to FILE or stdout" } },
    { SIM_OPTIONS_CSV,
      { "csv", 0, "FILE", SIM_OPTION_TEXT, FIELD(csv), "write the result as CSV; - is stdout" } },
    { SIM_OPTIONS_HTML,
      { "html", 0, "FILE", SIM_OPTION_TEXT, FIELD(html),
        "write the result as one page for a browser" } },
    { SIM_OPTIONS_RANKS,
      { "ranks", 0, "LIST", SIM_OPTION_TEXT, FIELD(ranks), "only these ranks, such as 0,4-7" } },
    { SIM_OPTIONS_PROGRESS,
      { "progress", 0, "WHEN", SIM_OPTION_TEXT, FIELD(progress),
        "show progress: auto, always or never" } },
    { SIM_OPTIONS_MODE,
      { "mode", 0, "MODE", SIM_OPTION_TEXT, FIELD(mode),
        "stepped: through the allocator; live: only what is alive added up, which is quick" } },
    { SIM_OPTIONS_BIND,
      { "bind", 0, "WHEN", SIM_OPTION_TEXT, FIELD(bind),
        "keep each process near its GPU and memory: auto, always or never" } },
    { 0, { "quiet", 'q', NULL, SIM_OPTION_FLAG, FIELD(quiet), "errors only, no warnings" } },
    { 0,
      { "verbose", 'v', NULL, SIM_OPTION_COUNT, FIELD(verbose),
        "say more; twice: from every rank" } },
};

/* The options of one command: its own, then the common ones that it takes. */
typedef struct {
    const sim_option_t *option[MAX_OPTIONS];
    size_t n;
} option_set_t;

static void collect(option_set_t *set, const sim_usage_t *usage)
{
    set->n = 0;
    for (size_t i = 0; i < usage->n_own && set->n < MAX_OPTIONS; i++)
        set->option[set->n++] = &usage->own[i];
    for (size_t i = 0; i < sizeof(common) / sizeof(common[0]) && set->n < MAX_OPTIONS; i++) {
        if (common[i].group == 0 || (usage->groups & common[i].group) != 0)
            set->option[set->n++] = &common[i].option;
    }
}

static void print_option(char letter, const char *name, const char *argument, const char *doc)
{
    char left[80];
    snprintf(left, sizeof(left), "  %c%c%c --%s%s%s", letter ? '-' : ' ', letter ? letter : ' ',
             letter ? ',' : ' ', name, argument != NULL ? " " : "",
             argument != NULL ? argument : "");
    if (strlen(left) + 1 < DOC_COLUMN)
        printf("%-*s%s\n", DOC_COLUMN, left, doc);
    else
        printf("%s\n%*s%s\n", left, DOC_COLUMN, "", doc);
}

static void print_help(const sim_usage_t *usage, const option_set_t *set)
{
    printf("Usage: mbsim %s [OPTION]...%s%s\n%s\n\n", usage->command,
           *usage->arguments != '\0' ? " " : "", usage->arguments, usage->about);
    for (size_t i = 0; i < set->n; i++)
        print_option(set->option[i]->letter, set->option[i]->name, set->option[i]->argument,
                     set->option[i]->doc);
    print_option(0, "help", NULL, "this text");
}

static void store(const sim_option_t *option, void *options, const char *argument)
{
    void *field = (char *)options + option->offset;
    switch (option->kind) {
    case SIM_OPTION_FLAG:
        *(bool *)field = true;
        break;
    case SIM_OPTION_TEXT:
    case SIM_OPTION_OUTPUT:
        *(const char **)field = argument;
        break;
    case SIM_OPTION_COUNT:
        ++*(int *)field;
        break;
    case SIM_OPTION_LIST: {
        sim_text_list_t *list = field;
        list->text = base_xrealloc(list->text, list->n + 1, sizeof(*list->text));
        list->text[list->n++] = argument;
        break;
    }
    }
}

/* What getopt_long() did not take. `c` is its answer, '?' or ':'. */
static void complain(const sim_usage_t *usage, const option_set_t *set, int c, int letter,
                     const char *argument)
{
    if (c == ':') {
        base_log(BASE_LOG_ERROR, "%s: option %s needs an argument", usage->command, argument);
        return;
    }
    if (strncmp(argument, "--", 2) != 0) {
        base_log(BASE_LOG_ERROR, "%s: unknown option -%c; see mbsim %s --help", usage->command,
                 letter, usage->command);
        return;
    }
    char *name = base_xstrdup(argument + 2);
    name[strcspn(name, "=")] = '\0';
    base_nearest_t nearest;
    base_nearest_init(&nearest, name);
    base_nearest_offer(&nearest, "help");
    for (size_t i = 0; i < set->n; i++)
        base_nearest_offer(&nearest, set->option[i]->name);
    if (nearest.best != NULL && nearest.best_distance == 0)
        base_log(BASE_LOG_ERROR, "%s: option --%s takes no argument", usage->command, name);
    else if (nearest.best != NULL)
        base_log(BASE_LOG_ERROR, "%s: unknown option --%.60s; did you mean --%s?", usage->command,
                 name, nearest.best);
    else
        base_log(BASE_LOG_ERROR, "%s: unknown option --%.60s; see mbsim %s --help", usage->command,
                 name, usage->command);
    free(name);
}

static bool check_when(const sim_usage_t *usage, const char *option, const char *text)
{
    static const char *const when[] = { "auto", "always", "never" };
    for (size_t i = 0; i < sizeof(when) / sizeof(when[0]); i++)
        if (text == NULL || strcmp(text, when[i]) == 0)
            return true;
    base_log(BASE_LOG_ERROR, "%s: --%s %.60s: must be auto, always or never", usage->command,
             option, text);
    return false;
}

static int check_operands(const sim_usage_t *usage, const sim_options_t *options)
{
    if (options->n_operands < usage->min_operands) {
        base_log(BASE_LOG_ERROR, "%s: %s is missing; see mbsim %s --help", usage->command,
                 usage->arguments, usage->command);
        return 2;
    }
    if (options->n_operands > usage->max_operands) {
        base_log(BASE_LOG_ERROR, "%s: unexpected argument '%.60s'; see mbsim %s --help",
                 usage->command, options->operands[usage->max_operands], usage->command);
        return 2;
    }
    return check_when(usage, "progress", options->progress) &&
                   check_when(usage, "bind", options->bind)
               ? SIM_OPTIONS_GO_ON
               : 2;
}

static void fill_getopt(const option_set_t *set, struct option longs[static MAX_OPTIONS + 2],
                        char shorts[static 2 * MAX_OPTIONS + 2])
{
    size_t s = 0;
    shorts[s++] = ':';
    for (size_t i = 0; i < set->n; i++) {
        bool takes = set->option[i]->argument != NULL;
        int has_argument = set->option[i]->kind == SIM_OPTION_OUTPUT ? optional_argument : takes;
        longs[i] = (struct option){ set->option[i]->name, has_argument, NULL, FIRST_ID + (int)i };
        if (set->option[i]->letter != '\0') {
            shorts[s++] = set->option[i]->letter;
            if (takes)
                shorts[s++] = ':';
        }
    }
    shorts[s] = '\0';
    longs[set->n] = (struct option){ "help", no_argument, NULL, FIRST_ID + MAX_OPTIONS };
    longs[set->n + 1] = (struct option){ NULL, 0, NULL, 0 };
}

static const sim_option_t *option_for(const option_set_t *set, int c)
{
    if (c >= FIRST_ID)
        return set->option[c - FIRST_ID];
    for (size_t i = 0; i < set->n; i++) {
        if (set->option[i]->letter == c)
            return set->option[i];
    }
    return NULL;
}

/* The word after an option whose argument may be left out, unless that is an option. */
static char *optional_operand(int argc, char **argv)
{
    static char standard_output[] = "-";
    bool there = optind < argc && (argv[optind][0] != '-' || argv[optind][1] == '\0');
    return there ? argv[optind++] : standard_output;
}

static bool is_same_file(const char *a, const char *b)
{
    struct stat of_a, of_b;
    if (stat(a, &of_a) != 0 || stat(b, &of_b) != 0)
        return strcmp(a, b) == 0 && strcmp(a, "-") != 0;
    return S_ISREG(of_a.st_mode) && of_a.st_dev == of_b.st_dev && of_a.st_ino == of_b.st_ino;
}

/* No output goes over an input, or over another output. */
static int check_outputs(const sim_usage_t *usage, const sim_options_t *options)
{
    const char *const files[] = { options->json, options->csv, options->html, options->perfetto };
    const size_t n = sizeof(files) / sizeof(files[0]);
    for (size_t i = 0; i < n; i++) {
        for (size_t j = 0; files[i] != NULL && j < options->n_operands; j++) {
            if (is_same_file(files[i], options->operands[j])) {
                base_log(BASE_LOG_ERROR,
                         "%s: %s would be written over: give the output another name",
                         usage->command, options->operands[j]);
                return 2;
            }
        }
        for (size_t j = 0; files[i] != NULL && j < i; j++) {
            if (files[j] != NULL && is_same_file(files[i], files[j])) {
                base_log(BASE_LOG_ERROR, "%s: two outputs go to %s", usage->command, files[i]);
                return 2;
            }
        }
    }
    return SIM_OPTIONS_GO_ON;
}

int sim_options_parse(const sim_usage_t *usage, int argc, char **argv, void *options)
{
    sim_options_t *base = options;
    option_set_t set;
    struct option longs[MAX_OPTIONS + 2];
    char shorts[2 * MAX_OPTIONS + 2];
    collect(&set, usage);
    fill_getopt(&set, longs, shorts);
    opterr = 0;
    optind = 0; /* glibc: start afresh */
    for (int c; (c = getopt_long(argc, argv, shorts, longs, NULL)) != -1;) {
        if (c == FIRST_ID + MAX_OPTIONS) {
            print_help(usage, &set);
            return 0;
        }
        if (c == '?' || c == ':') {
            complain(usage, &set, c, optopt, argv[optind - 1]);
            return 2;
        }
        const sim_option_t *option = option_for(&set, c);
        if (option->kind == SIM_OPTION_OUTPUT && optarg == NULL)
            optarg = optional_operand(argc, argv);
        store(option, options, optarg);
    }
    base->argc = argc;
    base->argv = argv;
    base->operands = argv + optind;
    base->n_operands = (size_t)(argc - optind);
    base_log_level_t level = base->quiet          ? BASE_LOG_ERROR
                             : base->verbose == 0 ? BASE_LOG_WARN
                             : base->verbose == 1 ? BASE_LOG_INFO
                                                  : BASE_LOG_DEBUG;
    base_log_init(level, sim_launcher_rank());
    int code = check_operands(usage, base);
    return code == SIM_OPTIONS_GO_ON ? check_outputs(usage, base) : code;
}

void sim_options_fini(sim_options_t *options)
{
    free(options->sets.text);
}
