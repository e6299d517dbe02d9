/* SPDX-License-Identifier: Apache-2.0
 * libFuzzer target: any line as a record of a corpus of measurements, up to the scenario that it
 * describes. */
#include "config.h"

#include "sim/study/record.h"
#include "tests/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    json_error_t problem;
    json_t *record = json_loadb((const char *)data, size, JSON_REJECT_DUPLICATES, &problem);
    if (record == NULL)
        return 0;
    sim_import_t import;
    char *reason = NULL;
    free(sim_record_text(record, "id"));
    sim_record_import(record, &import, &reason);
    free(sim_import_write(&import, "fuzz"));
    if (reason == NULL) {
        sim_scenario_t scenario;
        uint32_t rank;
        if (sim_record_scenario(&import, &scenario, &reason))
            sim_record_measured_on(record, scenario.world_size, &rank);
        else if (reason == NULL)
            abort();
        sim_scenario_fini(&scenario);
    }
    free(reason);
    sim_import_fini(&import);
    json_decref(record);
    return 0;
}
