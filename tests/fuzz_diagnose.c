/* SPDX-License-Identifier: Apache-2.0
 * libFuzzer target: any text read as a log, judged and reported. */
#include "config.h"

#include "sim/study/diagnose.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static FILE *out;
    if (out == NULL)
        out = fopen("/dev/null", "w");
    diag_log_t log;
    diag_result_t result;
    diag_log_parse((const char *)data, size, &log);
    diag_judge(&log, &result);
    if (out != NULL) {
        diag_print_text(&log, &result, out);
        diag_print_json(&log, &result, out);
    }
    diag_log_fini(&log);
    return 0;
}
