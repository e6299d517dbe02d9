/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/study/diff.h"

#include "sim/base/xmem.h"
#include "sim/report/report.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#define REPORT_SCHEMA "mbsim.report/1"

enum { MAX_RANKS = 1 << 20 }; /* as world_size */

/* ---- reports ---- */

static base_status_t report_of(const sim_scenario_t *scenario, const char *name, json_t **report_p,
                               bool *fits_p, base_err_t *err)
{
    sim_job_t job;
    sim_report_t report;
    base_status_t status = sim_job_play(scenario, NULL, &job, err);
    if (status != BASE_OK)
        return status;
    status = sim_report_init(&report, scenario, &job, name, NULL, err);
    if (status == BASE_OK) {
        *report_p = sim_report_json(&report);
        *fits_p = report.verdict.n_out_of_memory == 0;
        sim_report_fini(&report);
    }
    sim_job_fini(&job);
    return status;
}

/* The same job with so much memory that every request is met. */
static base_status_t report_of_need(const sim_scenario_t *scenario, const char *name,
                                    json_t **report_p, base_err_t *err)
{
    sim_scenario_t large;
    base_diag_t diag;
    bool fits;
    base_diag_init(&diag);
    sim_scenario_copy(&large, scenario);
    base_status_t status = BASE_OK;
    if (!sim_scenario_set(&large, "device", "memory_bytes", "8TiB", "diff", &diag) ||
        !sim_scenario_resolve(&large, &diag))
        status = base_err_set(err, BASE_ERR_INVAL, "%s", diag.text[0]);
    else
        status = report_of(&large, name, report_p, &fits, err);
    base_diag_fini(&diag);
    sim_scenario_fini(&large);
    return status;
}

base_status_t sim_diff_simulate(const sim_scenario_t *scenario, const char *name, json_t **report_p,
                                base_err_t *err)
{
    json_t *report = NULL, *need = NULL;
    bool fits;
    base_status_t status = report_of(scenario, name, &report, &fits, err);
    if (status == BASE_OK && !fits) {
        status = report_of_need(scenario, name, &need, err);
        if (status == BASE_OK) {
            json_object_set(need, "scenario", json_object_get(report, "scenario"));
            json_object_set(need, "verdict", json_object_get(report, "verdict"));
        }
        json_decref(report);
        report = need;
    }
    if (status == BASE_OK)
        *report_p = report;
    return status;
}

static json_int_t number_at(const json_t *object, const char *key)
{
    return json_integer_value(json_object_get(object, key));
}

static bool has_number(const json_t *object, const char *key)
{
    return json_is_integer(json_object_get(object, key));
}

/* Differences and sums of the numbers of two reports must fit. */
static bool numbers_fit(const json_t *value)
{
    const json_int_t most = INT64_C(1) << 60;
    const char *name;
    json_t *inner;
    size_t i;
    if (json_is_integer(value))
        return json_integer_value(value) <= most && json_integer_value(value) >= -most;
    json_array_foreach(value, i, inner) if (!numbers_fit(inner)) return false;
    json_object_foreach((json_t *)(uintptr_t)value, name,
                        inner) if (!numbers_fit(inner)) return false;
    return true;
}

static bool is_rank(const json_t *rank)
{
    const json_t *ledger = json_object_get(rank, "ledger");
    return has_number(rank, "rank") && json_is_object(json_object_get(rank, "coordinates")) &&
           json_is_object(json_object_get(rank, "allocated_moment")) &&
           has_number(ledger, "allocated_bytes") && has_number(ledger, "reserved_bytes") &&
           has_number(ledger, "device_used_bytes") &&
           json_is_object(json_object_get(ledger, "categories")) &&
           json_is_object(json_object_get(ledger, "modules"));
}

static base_status_t check_report(const char *name, const json_t *report, base_err_t *err)
{
    const char *schema = json_string_value(json_object_get(report, "schema"));
    if (schema == NULL || strcmp(schema, REPORT_SCHEMA) != 0)
        return base_err_set(err, BASE_ERR_PARSE, "%s: schema is %s, not " REPORT_SCHEMA, name,
                            schema != NULL ? schema : "missing");
    if (!numbers_fit(report))
        return base_err_set(err, BASE_ERR_PARSE, "%s: has a number beyond 2^60: no report", name);
    const char *mode = json_string_value(json_object_get(report, "mode"));
    if (mode != NULL && strcmp(mode, sim_mode_name(SIM_MODE_LIVE)) == 0)
        return base_err_set(err, BASE_ERR_INVAL,
                            "%s: a report of mode live: it has no figures of an allocator to "
                            "compare",
                            name);
    const json_t *ranks = json_object_get(report, "ranks");
    if (!json_is_object(json_object_get(report, "scenario")) ||
        !has_number(json_object_get(report, "verdict"), "worst_rank") ||
        json_array_size(ranks) == 0)
        return base_err_set(err, BASE_ERR_PARSE,
                            "%s: has no scenario, no verdict or no ranks: not a whole report",
                            name);
    json_int_t last = -1;
    for (size_t i = 0; i < json_array_size(ranks); i++) {
        const json_t *rank = json_array_get(ranks, i);
        if (!is_rank(rank))
            return base_err_set(err, BASE_ERR_PARSE, "%s: ranks[%zu] is not complete", name, i);
        if (number_at(rank, "rank") <= last || number_at(rank, "rank") >= MAX_RANKS)
            return base_err_set(err, BASE_ERR_PARSE, "%s: ranks[%zu]: its rank is out of order",
                                name, i);
        last = number_at(rank, "rank");
    }
    return BASE_OK;
}

base_status_t sim_diff_parse(const char *name, const char *text, size_t length, json_t **report_p,
                             base_err_t *err)
{
    json_error_t error;
    json_t *report = json_loadb(text, length, 0, &error);
    if (report == NULL)
        return base_err_set(err, BASE_ERR_PARSE, "%s:%d: %s", name, error.line, error.text);
    base_status_t status = check_report(name, report, err);
    if (status == BASE_OK)
        *report_p = report;
    else
        json_decref(report);
    return status;
}

/* ---- comparison ---- */

/* {"a": .., "b": .., "difference": ..} */
static json_t *triple(json_int_t a, json_int_t b)
{
    return json_pack("{s:I, s:I, s:I}", "a", a, "b", b, "difference", b - a);
}

static json_t *or_null(json_t *value)
{
    return value != NULL ? json_incref(value) : json_null();
}

static void add_key(json_t *list, const char *section, const char *key, json_t *a, json_t *b)
{
    if (a != NULL && b != NULL && json_equal(a, b))
        return;
    json_array_append_new(list, json_pack("{s:s, s:s, s:o, s:o}", "section", section, "key", key,
                                          "a", or_null(a), "b", or_null(b)));
}

static json_t *keys_diff(const json_t *a, const json_t *b)
{
    json_t *list = json_array();
    const char *section, *key;
    json_t *keys, *value;
    json_object_foreach((json_t *)a, section, keys)
    {
        json_t *others = json_object_get(b, section);
        json_object_foreach(keys, key, value)
        {
            add_key(list, section, key, value, json_object_get(others, key));
        }
    }
    json_object_foreach((json_t *)b, section, keys)
    {
        json_t *others = json_object_get(a, section);
        json_object_foreach(keys, key, value)
        {
            if (json_object_get(others, key) == NULL)
                add_key(list, section, key, NULL, value);
        }
    }
    return list;
}

/* By name; names that only one of both has count as 0 in the other. */
static json_t *parts_diff(const json_t *a, const json_t *b)
{
    json_t *parts = json_object();
    const char *name;
    json_t *value;
    json_object_foreach((json_t *)a, name, value)
    {
        json_object_set_new(parts, name, triple(json_integer_value(value), number_at(b, name)));
    }
    json_object_foreach((json_t *)b, name, value)
    {
        if (json_object_get(a, name) == NULL)
            json_object_set_new(parts, name, triple(0, json_integer_value(value)));
    }
    return parts;
}

static json_t *rank_diff(const json_t *a, const json_t *b)
{
    static const char *const totals[] = { "allocated_bytes", "cached_bytes", "reserved_bytes",
                                          "outside_bytes", "device_used_bytes" };
    const json_t *la = json_object_get(a, "ledger"), *lb = json_object_get(b, "ledger");
    json_t *diff = json_object();
    json_object_set_new(diff, "rank", triple(number_at(a, "rank"), number_at(b, "rank")));
    json_object_set_new(diff, "coordinates",
                        json_pack("{s:O, s:O}", "a", json_object_get(a, "coordinates"), "b",
                                  json_object_get(b, "coordinates")));
    json_object_set_new(diff, "moment",
                        json_pack("{s:O, s:O}", "a", json_object_get(a, "allocated_moment"), "b",
                                  json_object_get(b, "allocated_moment")));
    for (size_t i = 0; i < sizeof(totals) / sizeof(totals[0]); i++)
        json_object_set_new(diff, totals[i],
                            triple(number_at(la, totals[i]), number_at(lb, totals[i])));
    json_object_set_new(
        diff, "categories",
        parts_diff(json_object_get(la, "categories"), json_object_get(lb, "categories")));
    json_object_set_new(diff, "modules",
                        parts_diff(json_object_get(la, "modules"), json_object_get(lb, "modules")));
    return diff;
}

static const json_t *find_rank(const json_t *report, json_int_t rank)
{
    const json_t *ranks = json_object_get(report, "ranks");
    for (size_t i = 0; i < json_array_size(ranks); i++) {
        if (number_at(json_array_get(ranks, i), "rank") == rank)
            return json_array_get(ranks, i);
    }
    return NULL;
}

/* Whether both reports have the same ranks in the same order. */
static bool same_ranks(const json_t *a, const json_t *b)
{
    const json_t *ra = json_object_get(a, "ranks"), *rb = json_object_get(b, "ranks");
    size_t n = json_array_size(ra);
    bool same = n == json_array_size(rb);
    for (size_t i = 0; i < n && same; i++)
        same = number_at(json_array_get(ra, i), "rank") == number_at(json_array_get(rb, i), "rank");
    return same;
}

static json_t *all_ranks_diff(const json_t *a, const json_t *b)
{
    json_t *list = json_array();
    const json_t *ra = json_object_get(a, "ranks"), *rb = json_object_get(b, "ranks");
    for (size_t i = 0; i < json_array_size(ra); i++)
        json_array_append_new(list, rank_diff(json_array_get(ra, i), json_array_get(rb, i)));
    return list;
}

static json_t *side(const json_t *report)
{
    return json_pack("{s:O?, s:O, s:O?}", "name", json_object_get(report, "name"), "verdict",
                     json_object_get(report, "verdict"), "version",
                     json_object_get(report, "version"));
}

base_status_t sim_diff_compare(const json_t *a, const json_t *b, int64_t rank, json_t **diff_p,
                               base_err_t *err)
{
    const json_t *reports[2] = { a, b }, *ranks[2];
    for (int i = 0; i < 2; i++) {
        json_int_t wanted = rank != SIM_DIFF_WORST
                                ? rank
                                : number_at(json_object_get(reports[i], "verdict"), "worst_rank");
        ranks[i] = find_rank(reports[i], wanted);
        if (ranks[i] == NULL)
            return base_err_set(err, BASE_ERR_INVAL, "%s has no rank %" JSON_INTEGER_FORMAT,
                                i == 0 ? "the first report" : "the second report", wanted);
    }
    json_t *diff = json_object();
    json_object_set_new(diff, "schema", json_string("mbsim.diff/1"));
    json_object_set_new(diff, "a", side(a));
    json_object_set_new(diff, "b", side(b));
    json_object_set_new(diff, "keys",
                        keys_diff(json_object_get(a, "scenario"), json_object_get(b, "scenario")));
    json_object_set_new(diff, rank == SIM_DIFF_WORST ? "worst" : "rank",
                        rank_diff(ranks[0], ranks[1]));
    json_object_set_new(diff, "ranks", same_ranks(a, b) ? all_ranks_diff(a, b) : json_null());
    *diff_p = diff;
    return BASE_OK;
}
