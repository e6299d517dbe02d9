/* SPDX-License-Identifier: Apache-2.0
 * Fuzzing of what sweep --resume, merge and diff read: a row of CSV, a row of JSON, a report. What
 * could be read is written and read again. */
#include "config.h"

#include "sim/study/diff.h"
#include "sim/study/sweep_row.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static void check_again(const sim_sweep_columns_t *columns, const sim_sweep_row_t *row,
                        sim_rows_format_t format)
{
    sim_sweep_columns_t others = { 0 };
    sim_sweep_row_t back;
    char *line = sim_sweep_row_line(columns, row, format);
    size_t n = strlen(line) - 1;
    base_status_t status = format == SIM_ROWS_CSV
                               ? sim_sweep_row_parse_csv(line, n, &back, NULL)
                               : sim_sweep_row_parse_json(line, n, &others, &back, NULL);
    if (status != BASE_OK)
        abort();
    sim_sweep_row_fini(&back);
    sim_sweep_columns_fini(&others);
    free(line);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *text = (const char *)data;
    sim_sweep_columns_t columns = { 0 };
    sim_sweep_row_t row;
    json_t *report, *diff;
    base_err_t err;
    if (sim_sweep_row_parse_csv(text, size, &row, &err) == BASE_OK) {
        check_again(&columns, &row, SIM_ROWS_CSV);
        sim_sweep_row_fini(&row);
    }
    if (sim_sweep_row_parse_json(text, size, &columns, &row, &err) == BASE_OK) {
        check_again(&columns, &row, SIM_ROWS_JSON);
        sim_sweep_row_fini(&row);
    }
    if (sim_diff_parse("fuzz", text, size, &report, &err) == BASE_OK) {
        if (sim_diff_compare(report, report, SIM_DIFF_WORST, &diff, &err) == BASE_OK) {
            FILE *out = fopen("/dev/null", "w");
            sim_diff_text(diff, out);
            fclose(out);
            json_decref(diff);
        }
        json_decref(report);
    }
    sim_sweep_columns_fini(&columns);
    return 0;
}
