/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/cli/cmd_import.h"

#include "sim/base/units.h"
#include "sim/base/xmem.h"
#include "sim/scenario/import.h"

#include <errno.h>
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A training script or log head is far smaller. */
enum { MAX_INPUT_BYTES = 16 << 20 };

static const char usage[] =
    "Usage: mbsim import [OPTION]... FILE\n"
    "Read Megatron-LM arguments (a shell script, the dump that Megatron-LM prints, or the YAML of "
    "its\n"
    "functional tests) and write a scenario file. FILE may be -. Nothing is run.\n"
    "\n"
    "  --world-size N           number of GPUs, when the input does not say it\n"
    "  --gpu NAME               device.gpu of the scenario\n"
    "  --set SECTION.KEY=VALUE  decide a key, whatever the arguments say; may be repeated\n"
    "  --lenient                what is not simulated becomes a comment instead of an error\n"
    "  -v, --verbose            also list the arguments that do not move memory\n"
    "  -q, --quiet              no warnings\n"
    "      --help               this text\n";

typedef struct {
    bool lenient, verbose, quiet;
    const char *gpu;
    uint64_t world_size;
} options_t;

static char *read_input(const char *path, size_t *length_p, base_err_t *err)
{
    FILE *in = strcmp(path, "-") == 0 ? stdin : fopen(path, "rb");
    if (in == NULL) {
        base_err_set(err, BASE_ERR_INVAL, "%s: %s", path, strerror(errno));
        return NULL;
    }
    char *text = base_xrealloc(NULL, MAX_INPUT_BYTES + 1, 1);
    size_t n = fread(text, 1, MAX_INPUT_BYTES, in);
    bool failed = ferror(in) != 0, longer = !failed && n == MAX_INPUT_BYTES && fgetc(in) != EOF;
    int saved = errno;
    if (in != stdin)
        fclose(in);
    if (failed || longer) {
        if (failed)
            base_err_set(err, BASE_ERR_INVAL, "%s: %s", path, strerror(saved));
        else
            base_err_set(err, BASE_ERR_INVAL, "%s: more than %d MiB: not a list of arguments", path,
                         MAX_INPUT_BYTES >> 20);
        free(text);
        return NULL;
    }
    text[n] = '\0';
    *length_p = n;
    return text;
}

static bool add_override(sim_import_t *import, const char *text)
{
    const char *dot = strchr(text, '.'), *equals = strchr(text, '=');
    if (dot == NULL || equals == NULL || dot > equals || dot == text || equals == dot + 1) {
        fprintf(stderr, "mbsim import: --set %s: SECTION.KEY=VALUE was expected\n", text);
        return false;
    }
    char *section = base_xasprintf("%.*s", (int)(dot - text), text);
    char *key = base_xasprintf("%.*s", (int)(equals - dot - 1), dot + 1);
    sim_import_override(import, section, key, equals + 1, "--set");
    free(section);
    free(key);
    return true;
}

/* 0 go on, else the exit code + 1. */
static int parse_options(int argc, char **argv, sim_import_t *import, options_t *options)
{
    enum { OPT_WORLD = 256, OPT_GPU, OPT_SET, OPT_LENIENT, OPT_HELP };
    static const struct option longs[] = {
        { "world-size", required_argument, NULL, OPT_WORLD },
        { "gpu", required_argument, NULL, OPT_GPU },
        { "set", required_argument, NULL, OPT_SET },
        { "lenient", no_argument, NULL, OPT_LENIENT },
        { "verbose", no_argument, NULL, 'v' },
        { "quiet", no_argument, NULL, 'q' },
        { "help", no_argument, NULL, OPT_HELP },
        { NULL, 0, NULL, 0 },
    };
    int c;
    optind = 0;
    while ((c = getopt_long(argc, argv, "vq", longs, NULL)) != -1) {
        if (c == OPT_WORLD &&
            (!base_u64_parse(optarg, &options->world_size) || options->world_size == 0)) {
            fprintf(stderr, "mbsim import: --world-size %s: a number of GPUs was expected\n",
                    optarg);
            return 3;
        } else if (c == OPT_GPU) {
            options->gpu = optarg;
        } else if (c == OPT_SET) {
            if (!add_override(import, optarg))
                return 3;
        } else if (c == OPT_LENIENT) {
            options->lenient = true;
        } else if (c == 'v') {
            options->verbose = true;
        } else if (c == 'q') {
            options->quiet = true;
        } else if (c == OPT_HELP) {
            fputs(usage, stdout);
            return 1;
        } else if (c == '?') {
            fputs("Try 'mbsim import --help'.\n", stderr);
            return 3;
        }
    }
    if (optind + 1 == argc)
        return 0;
    fputs(optind >= argc ? "mbsim import: a FILE is missing\n" : "mbsim import: one FILE only\n",
          stderr);
    fputs("Try 'mbsim import --help'.\n", stderr);
    return 3;
}

static void print_messages(const base_diag_t *diag, const char *kind)
{
    for (size_t i = 0; i < diag->n; i++)
        fprintf(stderr, "mbsim import: %s%s\n", kind, diag->text[i]);
    if (diag->n_dropped > 0)
        fprintf(stderr, "mbsim import: %sand %zu more\n", kind, diag->n_dropped);
}

static int write_scenario(sim_import_t *import, const options_t *options, const char *path)
{
    if (options->world_size > 0)
        sim_import_set_world_size(import, options->world_size, "--world-size");
    if (options->gpu != NULL)
        sim_import_override(import, "device", "gpu", options->gpu, "--gpu");
    sim_import_resolve(import);
    print_messages(&import->errors, "");
    if (!options->quiet)
        print_messages(&import->warnings, "warning: ");
    if (options->verbose)
        print_messages(&import->ignored, "ignored: ");
    if (!options->lenient || !options->quiet)
        print_messages(&import->unsupported, options->lenient ? "warning: " : "");
    if (import->errors.n > 0)
        return 2;
    if (import->unsupported.n > 0 && !options->lenient) {
        fputs("mbsim import: --lenient writes the scenario without them\n", stderr);
        return 2;
    }
    char *text = sim_import_write(import, path);
    bool failed = fputs(text, stdout) == EOF || fflush(stdout) != 0;
    free(text);
    if (failed)
        fprintf(stderr, "mbsim import: standard output: %s\n", strerror(errno));
    return failed ? 1 : 0;
}

int sim_cmd_import(int argc, char **argv)
{
    sim_import_t import;
    options_t options = { 0 };
    base_err_t err = { 0 };
    sim_import_init(&import);
    int code = parse_options(argc, argv, &import, &options);
    if (code == 0) {
        const char *path = argv[optind];
        size_t length = 0;
        char *text = read_input(path, &length, &err);
        if (text == NULL || sim_import_text(&import, strcmp(path, "-") == 0 ? "stdin" : path, text,
                                            length, &err) != BASE_OK) {
            fprintf(stderr, "mbsim import: %s\n", err.text);
            code = 2;
        } else {
            code = write_scenario(&import, &options, strcmp(path, "-") == 0 ? "stdin" : path);
        }
        free(text);
    } else {
        code--;
    }
    sim_import_fini(&import);
    return code;
}
