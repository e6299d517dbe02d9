/* SPDX-License-Identifier: Apache-2.0
 * libFuzzer target: any bytes as a log for diagnose. */
#include "config.h"

#include "sim/study/diagnose.h"
#include "tests/fuzz.h"

#include <stdio.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static FILE *null;
    if (null == NULL && (null = fopen("/dev/null", "w")) == NULL)
        abort();
    diag_log_t log;
    diag_result_t result;
    diag_log_parse((const char *)data, size, &log);
    diag_judge(&log, &result);
    diag_print_text(&log, &result, null);
    if (!diag_print_json(&log, &result, null))
        abort();
    diag_log_fini(&log);
    return 0;
}
