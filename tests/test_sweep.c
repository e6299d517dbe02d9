/* SPDX-License-Identifier: Apache-2.0
 * Rows, layouts and the guard of a sweep. */
#include "config.h"

#include "sim/study/guard.h"
#include "sim/study/layouts.h"
#include "sim/study/sweep_row.h"
#include "tests/cutap.h"

#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- rows ---- */

static const char *const texts[] = { "plain", "with, comma", "\"quoted\"",           "",
                                     "-12",   "true",        "18446744073709551615", "1.5" };
enum { N_TEXTS = sizeof(texts) / sizeof(texts[0]) };

static void make_row(sim_sweep_columns_t *columns, sim_sweep_row_t *row)
{
    *columns = (sim_sweep_columns_t){ 0 };
    for (int i = 0; i < N_TEXTS; i++) {
        char name[32];
        snprintf(name, sizeof(name), "column%d", i);
        sim_sweep_columns_add(columns, name);
    }
    sim_sweep_row_init(row, N_TEXTS);
    for (int i = 0; i < N_TEXTS; i++) {
        if (*texts[i] != '\0')
            sim_sweep_row_set(row, i, "%s", texts[i]);
    }
}

static void check_row(const sim_sweep_row_t *row)
{
    for (int i = 0; i < N_TEXTS; i++)
        CU_ASSERT_STRING_EQUAL(sim_sweep_row_text(row, i), texts[i]);
}

static void rows_survive_both_formats(void)
{
    sim_sweep_columns_t columns, read = { 0 };
    sim_sweep_row_t row, back;
    make_row(&columns, &row);
    char *line = sim_sweep_row_line(&columns, &row, SIM_ROWS_CSV);
    CU_ASSERT_EQUAL_FATAL(sim_sweep_row_parse_csv(line, strlen(line) - 1, &back, NULL), BASE_OK);
    CU_ASSERT_EQUAL(back.n, N_TEXTS);
    check_row(&back);
    sim_sweep_row_fini(&back);
    free(line);
    line = sim_sweep_row_line(&columns, &row, SIM_ROWS_JSON);
    CU_ASSERT_EQUAL_FATAL(sim_sweep_row_parse_json(line, strlen(line) - 1, &read, &back, NULL),
                          BASE_OK);
    CU_ASSERT_TRUE(sim_sweep_columns_equal(&columns, &read));
    check_row(&back);
    sim_sweep_row_fini(&back);
    free(line);
    sim_sweep_row_fini(&row);
    sim_sweep_columns_fini(&columns);
    sim_sweep_columns_fini(&read);
}

static void a_row_is_one_line(void)
{
    sim_sweep_columns_t columns = { 0 };
    sim_sweep_row_t row;
    sim_sweep_columns_add(&columns, "error");
    sim_sweep_row_init(&row, 1);
    sim_sweep_row_set(&row, 0, "two\nlines");
    char *csv = sim_sweep_row_line(&columns, &row, SIM_ROWS_CSV);
    char *json = sim_sweep_row_line(&columns, &row, SIM_ROWS_JSON);
    CU_ASSERT_EQUAL(strcspn(csv, "\n"), strlen(csv) - 1);
    CU_ASSERT_EQUAL(strcspn(json, "\n"), strlen(json) - 1);
    free(csv);
    free(json);
    sim_sweep_row_fini(&row);
    sim_sweep_columns_fini(&columns);
}

static void wrong_rows_are_refused(void)
{
    static const char *const csv[] = { "\"open", "\"a\"b,c", "a,\"" };
    static const char *const json[] = { "{", "[]", "{\"layout\":1}", "{\"schema\":\"x\"}", "" };
    sim_sweep_columns_t columns = { 0 };
    sim_sweep_row_t row;
    for (size_t i = 0; i < sizeof(csv) / sizeof(csv[0]); i++)
        CU_ASSERT_EQUAL(sim_sweep_row_parse_csv(csv[i], strlen(csv[i]), &row, NULL),
                        BASE_ERR_PARSE);
    for (size_t i = 0; i < sizeof(json) / sizeof(json[0]); i++)
        CU_ASSERT_EQUAL(sim_sweep_row_parse_json(json[i], strlen(json[i]), &columns, &row, NULL),
                        BASE_ERR_PARSE);
    sim_sweep_columns_fini(&columns);
}

static void only_numbers_are_numbers(void)
{
    sim_sweep_columns_t columns;
    sim_sweep_row_t row;
    int64_t number = 7;
    make_row(&columns, &row);
    CU_ASSERT_TRUE(sim_sweep_row_number(&row, 4, &number));
    CU_ASSERT_EQUAL(number, -12);
    CU_ASSERT_FALSE(sim_sweep_row_number(&row, 0, &number));
    CU_ASSERT_FALSE(sim_sweep_row_number(&row, 3, &number));
    CU_ASSERT_FALSE(sim_sweep_row_number(&row, 6, &number)); /* beyond 64 bits with a sign */
    CU_ASSERT_FALSE(sim_sweep_row_number(&row, SIM_COLUMN_NONE, &number));
    CU_ASSERT_EQUAL(number, -12);
    sim_sweep_row_fini(&row);
    sim_sweep_columns_fini(&columns);
}

/* ---- layouts ---- */

static bool read_scenario(sim_scenario_t *s, const char *model, const char *sweep)
{
    char text[1024];
    base_diag_t diag;
    int n = snprintf(text, sizeof(text),
                     "[model]\npreset = %s\n[parallel]\nworld_size = 16\n[train]\n"
                     "seq_length = 512\nglobal_batch_size = 64\n[sweep]\n%s",
                     model, sweep);
    base_diag_init(&diag);
    sim_scenario_init(s);
    bool ok = sim_scenario_read(s, "test", text, (size_t)n, &diag);
    base_diag_fini(&diag);
    return ok;
}

static const char everything[] = "tensor_model_parallel_size = auto\n"
                                 "pipeline_model_parallel_size = auto\n"
                                 "virtual_pipeline_model_parallel_size = auto\n"
                                 "context_parallel_size = auto\n"
                                 "expert_model_parallel_size = auto\n"
                                 "expert_tensor_parallel_size = auto\n";

/* Every combination is legal or broken, once; a legal one resolves to what its values say. */
static void check_layouts(const sim_layouts_t *l, bool is_moe)
{
    uint64_t n_broken = 0, n_experts_split = 0;
    for (size_t i = 0; i < l->n_broken; i++)
        n_broken += l->broken[i].n;
    CU_ASSERT_EQUAL(l->n_legal + n_broken, l->n_combinations);
    CU_ASSERT_TRUE(l->n_legal > 10);
    sim_layout_cursor_t cursor;
    base_diag_t diag;
    base_diag_init(&diag);
    sim_layout_cursor_init(&cursor, l);
    for (uint64_t i = 0; i < l->n_legal; i++) {
        CU_ASSERT_TRUE(i == 0 || l->legal[i - 1] < l->legal[i]);
        CU_ASSERT_TRUE_FATAL(sim_layout_cursor_move(&cursor, l->legal[i], &diag));
        const topo_grid_t *g = &cursor.scenario.grid;
        CU_ASSERT_EQUAL(g->tp, strtoul(sim_layouts_value(l, l->legal[i], 0), NULL, 10));
        CU_ASSERT_EQUAL(g->pp, strtoul(sim_layouts_value(l, l->legal[i], 1), NULL, 10));
        CU_ASSERT_EQUAL(g->tp * g->pp * g->cp * g->dp, 16);
        n_experts_split += g->ep > 1;
    }
    CU_ASSERT_EQUAL(n_experts_split > 0, is_moe);
    sim_layout_cursor_fini(&cursor);
    base_diag_fini(&diag);
}

static void auto_finds_every_legal_layout(void)
{
    static const char *const models[] = { "llama3.2-1b", "mixtral-8x7b" };
    for (int i = 0; i < 2; i++) {
        sim_scenario_t s;
        sim_layouts_t l;
        CU_ASSERT_TRUE_FATAL(read_scenario(&s, models[i], everything));
        CU_ASSERT_EQUAL_FATAL(sim_layouts_init(&l, &s, NULL), BASE_OK);
        sim_layouts_check(&l);
        check_layouts(&l, i == 1);
        sim_layouts_fini(&l);
        sim_scenario_fini(&s);
    }
}

/* The cheap test for the world size must not disagree with the resolver. */
static void what_is_left_out_early_is_illegal(void)
{
    sim_scenario_t s;
    sim_layouts_t l;
    uint64_t n_legal = 0;
    CU_ASSERT_TRUE_FATAL(read_scenario(&s, "llama3.2-1b", everything));
    CU_ASSERT_EQUAL_FATAL(sim_layouts_init(&l, &s, NULL), BASE_OK);
    sim_layouts_check(&l);
    sim_layout_cursor_t cursor;
    sim_layout_cursor_init(&cursor, &l);
    for (uint64_t i = 0; i < l.n_combinations; i++) {
        base_diag_t diag;
        base_diag_init(&diag);
        n_legal += sim_layout_cursor_move(&cursor, i, &diag);
        base_diag_fini(&diag);
    }
    CU_ASSERT_EQUAL(n_legal, l.n_legal);
    sim_layout_cursor_fini(&cursor);
    sim_layouts_fini(&l);
    sim_scenario_fini(&s);
}

static void what_was_given_reads_back(void)
{
    sim_scenario_t s, back;
    base_diag_t diag;
    CU_ASSERT_TRUE_FATAL(read_scenario(
        &s, "llama3-8b",
        "seq_length = 512..2048*2\ntokens_per_batch = 65536\nmicro_batch_size = 1 2\n"));
    CU_ASSERT_EQUAL(s.sweep[0].n_values, 3);
    char *text = sim_scenario_given_text(&s);
    base_diag_init(&diag);
    sim_scenario_init(&back);
    CU_ASSERT_TRUE(sim_scenario_read(&back, "back", text, strlen(text), &diag));
    char *again = sim_scenario_given_text(&back);
    CU_ASSERT_STRING_EQUAL(text, again);
    CU_ASSERT_EQUAL(back.n_sweep, 2);
    CU_ASSERT_EQUAL(back.sweep_tokens_per_batch, 65536);
    free(text);
    free(again);
    base_diag_fini(&diag);
    sim_scenario_fini(&s);
    sim_scenario_fini(&back);
}

/* ---- guard ---- */

static void crash_with(void *arg)
{
    raise(*(int *)arg);
}

static void count(void *arg)
{
    ++*(int *)arg;
}

static void crashes_are_caught_again_and_again(void)
{
    static int signals[] = { SIGSEGV, SIGABRT, SIGFPE, SIGSEGV };
    int n = 0;
    for (size_t i = 0; i < sizeof(signals) / sizeof(signals[0]); i++) {
        CU_ASSERT_EQUAL(sim_guard_run(crash_with, &signals[i]), signals[i]);
        CU_ASSERT_EQUAL(sim_guard_run(count, &n), 0);
        CU_ASSERT_EQUAL(n, (int)i + 1);
    }
    CU_ASSERT_STRING_EQUAL(sim_guard_signal_name(SIGSEGV), "segmentation fault");
}

int main(void)
{
    CU_TestInfo tests[] = {
        { "rows survive both formats", rows_survive_both_formats },
        { "a row is one line", a_row_is_one_line },
        { "wrong rows are refused", wrong_rows_are_refused },
        { "only numbers are numbers", only_numbers_are_numbers },
        { "auto finds every legal layout", auto_finds_every_legal_layout },
        { "what is left out early is illegal", what_is_left_out_early_is_illegal },
        { "what was given reads back", what_was_given_reads_back },
        { "crashes are caught again and again", crashes_are_caught_again_and_again },
        CU_TEST_INFO_NULL,
    };
    CU_SuiteInfo suites[] = { { "sweep", NULL, NULL, NULL, NULL, tests }, CU_SUITE_INFO_NULL };
    return cutap_run(suites);
}
