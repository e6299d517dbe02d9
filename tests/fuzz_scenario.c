/* SPDX-License-Identifier: Apache-2.0
 * libFuzzer target: any text, read and resolved, must give a scenario or a message. */
#include "config.h"

#include "sim/scenario/scenario.h"
#include "tests/fuzz.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    char *text = fuzz_text(data, size);
    sim_scenario_t scenario;
    base_diag_t diag;
    sim_scenario_init(&scenario);
    base_diag_init(&diag);
    bool ok = sim_scenario_read(&scenario, "fuzz.ini", text, size, &diag);
    ok = sim_scenario_resolve(&scenario, &diag) && ok;
    if (!ok && diag.n == 0)
        abort();
    if (ok) {
        char *again = sim_scenario_text(&scenario);
        sim_scenario_t second;
        sim_scenario_init(&second);
        if (!sim_scenario_read(&second, "again.ini", again, strlen(again), &diag) ||
            !sim_scenario_resolve(&second, &diag))
            abort();
        sim_scenario_fini(&second);
        free(again);
    }
    sim_scenario_fini(&scenario);
    base_diag_fini(&diag);
    free(text);
    return 0;
}
