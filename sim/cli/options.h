/* SPDX-License-Identifier: Apache-2.0
 * Command-line options from tables: one row gives the name, the argument and the line of --help. */
#ifndef SIM_CLI_OPTIONS_H
#define SIM_CLI_OPTIONS_H

#include <stdbool.h>
#include <stddef.h>

typedef enum {
    SIM_OPTION_FLAG,   /* bool, set to true */
    SIM_OPTION_TEXT,   /* const char *, NULL = not given; given twice, the last counts */
    SIM_OPTION_LIST,   /* sim_text_list_t, each use appends */
    SIM_OPTION_COUNT,  /* int, each use adds one */
    SIM_OPTION_OUTPUT, /* as TEXT, but the argument may be left out: "-" */
} sim_option_kind_t;

typedef struct {
    const char *name;     /* without the dashes */
    char letter;          /* short form, 0 = none */
    const char *argument; /* "FILE"; NULL for FLAG and COUNT */
    sim_option_kind_t kind;
    size_t offset; /* of the field in the command's struct */
    const char *doc;
} sim_option_t;

typedef struct {
    const char **text; /* n texts that live as long as argv */
    size_t n;
} sim_text_list_t;

/* What every command has; a command with options of its own makes this the first member. */
typedef struct {
    sim_text_list_t sets;
    const char *json, *csv, *ranks, *progress, *snapshot, *html, *perfetto, *bind, *mode;
    bool quiet;
    int verbose;
    int argc; /* of argv, as it was parsed: the command, options, operands */
    char **argv;
    char **operands; /* n_operands, into argv */
    size_t n_operands;
} sim_options_t;

/* Groups of common options that a command takes, or-ed. */
enum {
    SIM_OPTIONS_SET = 1 << 0,      /* --set */
    SIM_OPTIONS_JSON = 1 << 1,     /* --json FILE */
    SIM_OPTIONS_CSV = 1 << 2,      /* --csv FILE */
    SIM_OPTIONS_RANKS = 1 << 3,    /* --ranks LIST */
    SIM_OPTIONS_PROGRESS = 1 << 4, /* --progress WHEN */
    SIM_OPTIONS_SIMULATE = (1 << 5) - 1,
    SIM_OPTIONS_LIST = 1 << 5, /* --json [FILE], of commands that only list */
    SIM_OPTIONS_HTML = 1 << 6, /* --html FILE */
    SIM_OPTIONS_BIND = 1 << 7, /* --bind WHEN */
    SIM_OPTIONS_MODE = 1 << 8, /* --mode MODE */
};

typedef struct {
    const char *command;   /* name */
    const char *arguments; /* "SCENARIO.ini" */
    const char *about;     /* what it does: a few lines for --help */
    unsigned groups;
    const sim_option_t *own; /* n_own; offsets in the command's struct */
    size_t n_own;
    size_t min_operands, max_operands;
} sim_usage_t;

enum { SIM_OPTIONS_GO_ON = -1 };

/* Parse argv (argv[0] is the command) into `options`, a zeroed struct that begins with
 * sim_options_t, and set the log level. SIM_OPTIONS_GO_ON, else the exit code to return at once: 0
 * after --help, 2 after a message about wrong usage. Free with sim_options_fini(). */
int sim_options_parse(const sim_usage_t *usage, int argc, char **argv, void *options);

void sim_options_fini(sim_options_t *options);

#endif
