/* SPDX-License-Identifier: Apache-2.0
 * libFuzzer target: any text as rows of a sweep, CSV and JSON, one by one and as a file. What could
 * be read is written and read again. */
#include "config.h"

#include "sim/study/sweep_file.h"
#include "sim/study/sweep_summary.h"
#include "tests/fuzz.h"

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

/* A whole file, as --resume and merge take it. */
static void check_file(const char *text, size_t size, FILE *out)
{
    sim_sweep_rows_t rows = { 0 };
    base_err_t err = { 0 };
    if (sim_sweep_rows_parse("fuzz", text, size, &rows, &err) != BASE_OK) {
        if (err.text[0] == '\0')
            abort();
        return;
    }
    if (rows.n_whole_bytes > size)
        abort();
    sim_sweep_print_best(&rows, 10, out);
    sim_sweep_write_rows(&rows, SIM_ROWS_JSON, out);
    sim_sweep_rows_fini(&rows);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    static FILE *null;
    if (null == NULL && (null = fopen("/dev/null", "w")) == NULL)
        abort();
    char *text = fuzz_text(data, size);
    check_file(text, size, null);
    sim_sweep_columns_t columns = { 0 };
    sim_sweep_row_t row;
    base_err_t err;
    if (sim_sweep_row_parse_csv(text, size, &row, &err) == BASE_OK) {
        check_again(&columns, &row, SIM_ROWS_CSV);
        sim_sweep_row_fini(&row);
    }
    if (sim_sweep_row_parse_json(text, size, &columns, &row, &err) == BASE_OK) {
        check_again(&columns, &row, SIM_ROWS_JSON);
        sim_sweep_row_fini(&row);
    }
    sim_sweep_columns_fini(&columns);
    free(text);
    return 0;
}
