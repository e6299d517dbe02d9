/* SPDX-License-Identifier: Apache-2.0
 * libFuzzer target: any text as the config.json of a Hugging Face model, alone and imported. */
#include "config.h"

#include "sim/scenario/hf_config.h"
#include "sim/scenario/import.h"
#include "tests/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = fuzz_text(data, size);
    sim_scenario_t scenario;
    base_diag_t errors, unsupported;
    sim_scenario_init(&scenario);
    base_diag_init(&errors);
    base_diag_init(&unsupported);
    if (!sim_hf_config_read(&scenario, "fuzz", text, size, &errors, &unsupported) &&
        errors.n + unsupported.n == 0)
        abort();
    sim_scenario_fini(&scenario);
    base_diag_fini(&errors);
    base_diag_fini(&unsupported);

    sim_import_t import;
    base_err_t err = { 0 };
    sim_import_init(&import);
    if (sim_import_text(&import, SIM_IMPORT_HF, "fuzz", text, size, &err) == BASE_OK) {
        sim_import_resolve(&import);
        free(sim_import_write(&import, "fuzz"));
    } else if (err.text[0] == '\0' && import.errors.n == 0) {
        abort();
    }
    sim_import_fini(&import);
    free(text);
    return 0;
}
