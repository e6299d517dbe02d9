/* SPDX-License-Identifier: Apache-2.0
 * libFuzzer target: any text read as either kind of YAML gives keys or messages. */
#include "config.h"

#include "sim/scenario/import.h"
#include "tests/fuzz.h"

static void read_as(sim_import_format_t format, const char *text, size_t size)
{
    sim_import_t import;
    base_err_t err = { 0 };
    sim_import_init(&import);
    if (sim_import_text(&import, format, "fuzz", text, size, &err) == BASE_OK) {
        sim_import_resolve(&import);
        free(sim_import_write(&import, "fuzz"));
    } else if (err.text[0] == '\0') {
        abort();
    }
    sim_import_fini(&import);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = fuzz_text(data, size);
    read_as(SIM_IMPORT_CI_YAML, text, size);
    read_as(SIM_IMPORT_BRIDGE_YAML, text, size);
    free(text);
    return 0;
}
