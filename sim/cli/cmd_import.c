/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/base/infile.h"
#include "sim/base/log.h"
#include "sim/base/units.h"
#include "sim/base/xmem.h"
#include "sim/cli/command.h"
#include "sim/cli/options.h"
#include "sim/scenario/import.h"
#include "sim/scenario/scenario.h"
#include "topology/gpu.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* A training script or the head of a log is far smaller. */
enum { MAX_INPUT_BYTES = 16 << 20 };

typedef struct {
    sim_options_t common;
    bool lenient;
    const char *gpu, *world_size, *format;
} import_options_t;

#define FIELD(name) offsetof(import_options_t, name)

static const sim_option_t own[] = {
    { "world-size", 0, "N", SIM_OPTION_TEXT, FIELD(world_size),
      "number of GPUs, when the input does not say it" },
    { "gpu", 0, "NAME", SIM_OPTION_TEXT, FIELD(gpu), "device.gpu of the scenario" },
    { "format", 0, "NAME", SIM_OPTION_TEXT, FIELD(format),
      "what FILE is: shell, dump, ci-yaml, bridge, bridge-yaml, hf, torchtitan; default: by its "
      "content" },
    { "lenient", 0, NULL, SIM_OPTION_FLAG, FIELD(lenient),
      "what is not simulated becomes a comment, not an error" },
};

static const sim_usage_t usage = {
    .command = "import",
    .arguments = "FILE",
    .about =
        "Read Megatron-LM arguments (a shell script, the dump that Megatron-LM prints, or the\n"
        "YAML of its functional tests), Megatron-Bridge settings (a command line with overrides\n"
        "such as model.tensor_model_parallel_size=4, or its YAML), a command line of torchtitan, "
        "or\n"
        "the config.json of a Hugging Face model, and write a scenario file to standard output. "
        "FILE may be -.\n"
        "Nothing is run. With -v also what does not move memory is listed.",
    .groups = SIM_OPTIONS_SET,
    .own = own,
    .n_own = sizeof(own) / sizeof(own[0]),
    .min_operands = 1,
    .max_operands = 1,
};

static bool add_override(sim_import_t *import, const char *text)
{
    const char *dot = strchr(text, '.'), *equals = strchr(text, '=');
    if (dot == NULL || equals == NULL || dot > equals || dot == text || equals == dot + 1) {
        base_log(BASE_LOG_ERROR, "import: --set %s: SECTION.KEY=VALUE was expected", text);
        return false;
    }
    char *section = base_xasprintf("%.*s", (int)(dot - text), text);
    char *key = base_xasprintf("%.*s", (int)(equals - dot - 1), dot + 1);
    sim_import_override(import, section, key, equals + 1, "--set");
    free(section);
    free(key);
    return true;
}

static bool apply_options(sim_import_t *import, const import_options_t *options)
{
    uint64_t world;
    if (options->world_size != NULL) {
        if (!base_u64_parse(options->world_size, &world) || world == 0) {
            base_log(BASE_LOG_ERROR, "import: --world-size %s: a number of GPUs was expected",
                     options->world_size);
            return false;
        }
        sim_import_set_world_size(import, world, "--world-size");
    }
    if (options->gpu != NULL && topo_gpu_find(options->gpu) == NULL) {
        base_log(BASE_LOG_ERROR, "import: --gpu %s: unknown GPU; `mbsim gpus` lists them",
                 options->gpu);
        return false;
    }
    if (options->gpu != NULL)
        sim_import_override(import, "device", "gpu", options->gpu, "--gpu");
    for (size_t i = 0; i < options->common.sets.n; i++)
        if (!add_override(import, options->common.sets.text[i]))
            return false;
    return true;
}

static void log_messages(const base_diag_t *diag, base_log_level_t level)
{
    for (size_t i = 0; i < diag->n; i++)
        base_log(level, "%s", diag->text[i]);
    if (diag->n_dropped > 0)
        base_log(level, "and %zu more", diag->n_dropped);
}

/* What the table of keys says about the values: they go the way that a scenario file goes. */
static void check_keys(const sim_import_t *import, base_diag_t *diag)
{
    sim_scenario_t scenario;
    sim_scenario_init(&scenario);
    for (size_t i = 0; i < import->n_keys; i++) {
        const sim_import_key_t *k = &import->keys[i];
        sim_scenario_set(&scenario, k->section, k->key, k->value, k->origin, diag);
    }
    sim_scenario_fini(&scenario);
}

static int write_scenario(sim_import_t *import, const import_options_t *options, const char *name)
{
    base_log_level_t level = options->lenient ? BASE_LOG_WARN : BASE_LOG_ERROR;
    base_diag_t keys;
    base_diag_init(&keys);
    sim_import_resolve(import);
    if (import->errors.n == 0)
        check_keys(import, &keys);
    log_messages(&import->errors, BASE_LOG_ERROR);
    log_messages(&import->unsupported, level);
    log_messages(&keys, level);
    log_messages(&import->warnings, BASE_LOG_WARN);
    log_messages(&import->ignored, BASE_LOG_INFO);
    bool refused = import->unsupported.n > 0 || keys.n > 0;
    base_diag_fini(&keys);
    if (refused && !options->lenient)
        base_log(BASE_LOG_ERROR, "--lenient writes the scenario all the same");
    if (import->errors.n > 0 || (refused && !options->lenient))
        return 2;
    char *text = sim_import_write(import, name);
    fputs(text, stdout);
    free(text);
    return 0;
}

/* --world-size is for inputs that do not say it. */
static void warn_of_world_size(const sim_import_t *import, const import_options_t *options)
{
    uint64_t asked;
    if (options->world_size != NULL && base_u64_parse(options->world_size, &asked) &&
        asked != import->world_size)
        base_log(BASE_LOG_WARN,
                 "--world-size %s is left out: the input says %" PRIu64
                 " GPUs (%s); --set parallel.world_size=%s wins over it",
                 options->world_size, import->world_size, import->world_size_origin,
                 options->world_size);
}

static int import_file(sim_import_t *import, const import_options_t *options)
{
    const char *path = options->common.operands[0];
    const char *name = strcmp(path, "-") == 0 ? "standard input" : path;
    char *text = NULL;
    size_t length = 0;
    base_err_t err;
    sim_import_format_t format = SIM_IMPORT_AUTO;
    if (options->format != NULL && !sim_import_format_parse(options->format, &format)) {
        base_log(BASE_LOG_ERROR,
                 "import: --format %s: shell, dump, ci-yaml, bridge, bridge-yaml, hf or auto was "
                 "expected",
                 options->format);
        return 2;
    }
    if (!apply_options(import, options))
        return 2;
    if (base_infile_read(path, MAX_INPUT_BYTES, &text, &length, &err) != BASE_OK ||
        sim_import_text(import, format, name, text, length, &err) != BASE_OK) {
        base_log(BASE_LOG_ERROR, "%s", err.text);
        free(text);
        return 2;
    }
    warn_of_world_size(import, options);
    int code = write_scenario(import, options, name);
    free(text);
    return code;
}

int sim_cmd_import(int argc, char **argv)
{
    import_options_t options = { 0 };
    int code = sim_options_parse(&usage, argc, argv, &options);
    if (code == SIM_OPTIONS_GO_ON) {
        sim_import_t import;
        sim_import_init(&import);
        code = import_file(&import, &options);
        sim_import_fini(&import);
    }
    sim_options_fini(&options.common);
    return code;
}
