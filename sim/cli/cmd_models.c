/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/cli/command.h"
#include "sim/cli/json_file.h"
#include "sim/cli/options.h"
#include "sim/scenario/presets.h"

#include <inttypes.h>
#include <stdio.h>

static const sim_usage_t usage = {
    .command = "models",
    .arguments = "",
    .about = "List the models that model.preset knows; -v adds where the figures come from.",
    .groups = SIM_OPTIONS_LIST,
};

static void print_text(bool verbose)
{
    size_t n;
    const sim_preset_t *presets = sim_presets(&n);
    printf("%-16s %-9s %6s %6s %6s %5s %6s %5s %7s  %s\n", "preset", "family", "layers", "hidden",
           "ffn", "heads", "groups", "head", "vocab", "embeddings");
    for (size_t i = 0; i < n; i++) {
        const sim_preset_t *p = &presets[i];
        printf("%-16s %-9s %6" PRIu32 " %6" PRIu32 " %6" PRIu32 " %5" PRIu32 " %6" PRIu32
               " %5" PRIu32 " %7" PRIu32 "  %s\n",
               p->name, p->family->name, p->num_layers, p->hidden_size, p->ffn_hidden_size,
               p->num_attention_heads, p->num_query_groups, p->kv_channels, p->vocab_size,
               p->untied ? "untied" : "tied");
        if (p->aliases[0] != '\0')
            printf("    also %s\n", p->aliases);
        if (verbose) {
            printf("    %s\n", p->source);
            if (p->more != NULL)
                printf("    %s\n", p->more);
        }
    }
}

static json_t *json_model(const sim_preset_t *p)
{
    return json_pack("{s:s, s:o, s:s, s:s, s:s, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:i, s:b, s:s}",
                     "name", p->name, "aliases", sim_cli_json_words(p->aliases), "family",
                     p->family->name, "settings", p->family->settings, "more",
                     p->more != NULL ? p->more : "", "num_layers", (int)p->num_layers,
                     "hidden_size", (int)p->hidden_size, "ffn_hidden_size", (int)p->ffn_hidden_size,
                     "num_attention_heads", (int)p->num_attention_heads, "num_query_groups",
                     (int)p->num_query_groups, "kv_channels", (int)p->kv_channels, "vocab_size",
                     (int)p->vocab_size, "max_position_embeddings", (int)p->max_position_embeddings,
                     "untie_embeddings_and_output_weights", p->untied, "source", p->source);
}

static int write_json(const char *path)
{
    size_t n;
    const sim_preset_t *presets = sim_presets(&n);
    json_t *rows = json_array();
    for (size_t i = 0; i < n; i++)
        json_array_append_new(rows, json_model(&presets[i]));
    return sim_cli_write_json(path,
                              json_pack("{s:s, s:o}", "schema", "mbsim.models/1", "models", rows));
}

int sim_cmd_models(int argc, char **argv)
{
    sim_options_t options = { 0 };
    int code = sim_options_parse(&usage, argc, argv, &options);
    if (code == SIM_OPTIONS_GO_ON) {
        code = 0;
        if (options.json != NULL)
            code = write_json(options.json);
        else
            print_text(options.verbose > 0);
    }
    sim_options_fini(&options);
    return code;
}
