/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/cli/launcher.h"

#include "sim/base/units.h"

#include <stdlib.h>

int sim_launcher_rank(void)
{
    static const char *const names[] = { "OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK" };
    for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
        const char *text = getenv(names[i]);
        uint64_t rank;
        if (text != NULL && base_u64_parse(text, &rank) && rank <= INT32_MAX)
            return (int)rank;
    }
    return 0;
}
