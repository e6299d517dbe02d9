/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/study/validate.h"

#include "sim/base/glob.h"
#include "sim/base/outfile.h"
#include "sim/base/xmem.h"
#include "sim/engine/outside.h"
#include "sim/engine/simulate.h"
#include "sim/study/record.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

static const char *const figure_names[SIM_N_FIGURES] = {
    [SIM_FIGURE_MAX_ALLOCATED] = "max_allocated_bytes",
    [SIM_FIGURE_MAX_ALLOCATED_STEP1] = "max_allocated_bytes_step1",
    [SIM_FIGURE_MAX_ALLOCATED_STEP2] = "max_allocated_bytes_step2",
    [SIM_FIGURE_ALLOCATED_STEP1] = "allocated_bytes_step1",
    [SIM_FIGURE_ALLOCATED_STEP2] = "allocated_bytes_step2",
    [SIM_FIGURE_ALLOCATED] = "allocated_bytes",
    [SIM_FIGURE_MAX_RESERVED] = "max_reserved_bytes",
    [SIM_FIGURE_DEVICE_USED] = "device_used_bytes",
};

const char *sim_figure_name(sim_figure_t figure)
{
    return figure_names[figure];
}

bool sim_record_filter_parse(const char *text, sim_record_filter_t *filter_p)
{
    const char *equals = strchr(text, '=');
    if (equals == NULL || equals == text)
        return false;
    bool negated = equals[-1] == '!';
    size_t n = (size_t)(equals - text) - negated;
    if (n == 0)
        return false;
    filter_p->negated = negated;
    filter_p->key = base_xasprintf("%.*s", (int)n, text);
    filter_p->glob = base_xstrdup(equals + 1);
    return true;
}

void sim_record_filter_fini(sim_record_filter_t *filter)
{
    free(filter->key);
    free(filter->glob);
}

static bool is_wanted(const json_t *record, const sim_validate_options_t *options)
{
    for (size_t i = 0; i < options->n_filters; i++) {
        const sim_record_filter_t *f = &options->filters[i];
        char *text = sim_record_text(record, f->key);
        bool matches = base_glob_match(f->glob, text);
        free(text);
        if (matches == f->negated)
            return false;
    }
    return true;
}

/* Figures of one rank. `after`: iterations after which the totals were measured, 0 = at the end. */
static void take_figures(const sim_rank_result_t *result, uint64_t after,
                         uint64_t figures[SIM_N_FIGURES])
{
    uint32_t n = result->n_iterations;
    if (n == 0)
        return;
    const sim_iteration_t *first = &result->iterations[0];
    const sim_iteration_t *second = &result->iterations[n > 1 ? 1 : 0];
    const sim_iteration_t *last = &result->iterations[after > 0 && after < n ? after - 1 : n - 1];
    figures[SIM_FIGURE_MAX_ALLOCATED] = last->max_allocated_bytes;
    figures[SIM_FIGURE_MAX_ALLOCATED_STEP1] = first->max_allocated_bytes;
    figures[SIM_FIGURE_MAX_ALLOCATED_STEP2] = second->max_allocated_bytes;
    figures[SIM_FIGURE_ALLOCATED_STEP1] = first->allocated_bytes;
    figures[SIM_FIGURE_ALLOCATED_STEP2] = second->allocated_bytes;
    figures[SIM_FIGURE_ALLOCATED] = last->allocated_bytes;
    figures[SIM_FIGURE_MAX_RESERVED] = last->max_reserved_bytes;
}

/* One rank on a device without end, so that running out does not hide the comparison. */
static base_status_t simulate_rank(const sim_scenario_t *scenario, uint32_t rank, uint64_t after,
                                   uint64_t figures[SIM_N_FIGURES], bool *fits_p, base_err_t *err)
{
    sim_simulate_options_t options = { .unlimited = true };
    sim_rank_result_t result;
    base_status_t status = sim_simulate_rank(scenario, rank, &options, &result, err);
    if (status != BASE_OK)
        return status;
    take_figures(&result, after, figures);
    uint64_t outside = sim_outside_bytes(scenario, rank);
    figures[SIM_FIGURE_DEVICE_USED] = outside + figures[SIM_FIGURE_MAX_RESERVED];
    bool tight = result.max_reserved_bytes > sim_outside_usable(scenario, outside);
    sim_rank_result_fini(&result);
    if (tight) { /* the allocator may still get by if it has to */
        options.unlimited = false;
        status = sim_simulate_rank(scenario, rank, &options, &result, err);
        if (status != BASE_OK)
            return status;
        *fits_p = *fits_p && !result.is_out_of_memory;
        sim_rank_result_fini(&result);
    }
    return BASE_OK;
}

/* The highest or the mean over all stages; ranks of one stage differ by padding only. */
static base_status_t simulate_stages(const sim_scenario_t *scenario, sim_measured_on_t on,
                                     uint64_t after, sim_comparison_t *c, base_err_t *err)
{
    uint64_t sums[SIM_N_FIGURES] = { 0 }, highest = 0;
    for (uint32_t stage = 0; stage < scenario->grid.pp; stage++) {
        uint64_t figures[SIM_N_FIGURES] = { 0 };
        uint32_t rank = topo_grid_rank(&scenario->grid, 0, 0, 0, stage);
        base_status_t status = simulate_rank(scenario, rank, after, figures, &c->fits, err);
        if (status != BASE_OK)
            return status;
        if (figures[SIM_FIGURE_MAX_ALLOCATED] > highest) {
            highest = figures[SIM_FIGURE_MAX_ALLOCATED];
            c->rank = rank;
        }
        for (size_t f = 0; f < SIM_N_FIGURES; f++) {
            sums[f] += figures[f];
            if (figures[f] > c->simulated[f])
                c->simulated[f] = figures[f];
        }
    }
    for (size_t f = 0; f < SIM_N_FIGURES && on == SIM_MEASURED_ON_MEAN; f++)
        c->simulated[f] = sums[f] / scenario->grid.pp;
    return BASE_OK;
}

static void run_scenario(const json_t *record, const sim_scenario_t *scenario, sim_comparison_t *c)
{
    base_err_t err = { 0 };
    uint64_t after = (uint64_t)json_integer_value(json_object_get(record, "iteration"));
    sim_measured_on_t on = sim_record_measured_on(record, scenario->world_size, &c->rank);
    sim_estimate_input_t input;
    sim_estimate_input(scenario, &input);
    c->megatron = sim_estimate_megatron(&input);
    c->has_bridge = sim_estimate_bridge(&input, &c->bridge, NULL) == BASE_OK;
    c->fits = true;
    base_status_t status =
        on == SIM_MEASURED_ON_RANK
            ? simulate_rank(scenario, c->rank, after, c->simulated, &c->fits, &err)
            : simulate_stages(scenario, on, after, c, &err);
    c->covered = status == BASE_OK;
    if (!c->covered)
        c->reason = base_xstrdup(err.text);
}

static void take_measured(const json_t *record, sim_comparison_t *c)
{
    json_t *measured = json_object_get(record, "measured");
    c->all_measured = json_is_object(measured) ? json_incref(measured) : json_object();
    for (size_t f = 0; f < SIM_N_FIGURES; f++) {
        const json_t *value = json_object_get(c->all_measured, figure_names[f]);
        c->has_measured[f] = json_is_integer(value) && json_integer_value(value) > 0;
        if (c->has_measured[f])
            c->measured[f] = (uint64_t)json_integer_value(value);
    }
}

static bool can_be_compared(const sim_comparison_t *c)
{
    for (size_t f = 0; f < SIM_N_FIGURES; f++)
        if (c->has_measured[f])
            return true;
    return false;
}

static char *join(const base_diag_t *diag)
{
    char *text = base_xstrdup("");
    for (size_t i = 0; i < diag->n; i++) {
        char *longer = base_xasprintf("%s%s%s", text, i > 0 ? "; " : "", diag->text[i]);
        free(text);
        text = longer;
    }
    return text;
}

/* DIR/<id>.ini, with every '/' of the id replaced. */
static base_status_t write_scenario(const sim_import_t *import, const char *dir, const char *id,
                                    base_err_t *err)
{
    base_outfile_t *out;
    if (mkdir(dir, 0777) != 0 && errno != EEXIST)
        return base_err_set(err, BASE_ERR_IO, "%s: %s", dir, strerror(errno));
    char *path = base_xasprintf("%s/%s.ini", dir, id);
    for (char *s = path + strlen(dir) + 1; *s != '\0'; s++)
        if (*s == '/')
            *s = '_';
    base_status_t status = base_outfile_open(path, &out, err);
    if (status == BASE_OK) {
        char *text = sim_import_write(import, id);
        fputs(text, base_outfile_stream(out));
        free(text);
        status = base_outfile_commit(out, err);
    }
    free(path);
    return status;
}

static base_status_t compare(const json_t *record, const sim_validate_options_t *options,
                             sim_comparison_t *c, base_err_t *err)
{
    sim_import_t import;
    base_status_t status = BASE_OK;
    memset(c, 0, sizeof(*c));
    c->id = sim_record_text(record, "id");
    c->family = sim_record_text(record, "family");
    take_measured(record, c);
    sim_record_import(record, &import, &c->reason);
    c->notes = join(&import.warnings);
    if (options->scenarios_dir != NULL)
        status = write_scenario(&import, options->scenarios_dir, c->id, err);
    if (c->reason == NULL && !can_be_compared(c))
        c->reason = base_xstrdup("the record does not say what kind of memory its figure is");
    if (status == BASE_OK && c->reason == NULL) {
        sim_scenario_t scenario;
        if (sim_record_scenario(&import, &scenario, &c->reason))
            run_scenario(record, &scenario, c);
        sim_scenario_fini(&scenario);
    }
    sim_import_fini(&import);
    return status;
}

static base_status_t validate_line(const char *name, unsigned long number, const char *line,
                                   size_t length, const sim_validate_options_t *options,
                                   sim_comparisons_t *all, base_err_t *err)
{
    json_error_t problem;
    if (line[strspn(line, " \t\r")] == '\n' || length == 0)
        return BASE_OK;
    json_t *record = json_loadb(line, length, JSON_REJECT_DUPLICATES, &problem);
    if (record == NULL)
        return base_err_set(err, BASE_ERR_PARSE, "%s:%lu: not a JSON object: %s", name, number,
                            problem.text);
    base_status_t status = BASE_OK;
    if (!json_is_string(json_object_get(record, "id")) ||
        !json_is_object(json_object_get(record, "measured"))) {
        status = base_err_set(err, BASE_ERR_PARSE,
                              "%s:%lu: not a record: \"id\" (text) and \"measured\" (object) are "
                              "needed",
                              name, number);
    } else if (is_wanted(record, options)) {
        all->items = base_xrealloc(all->items, all->n + 1, sizeof(*all->items));
        status = compare(record, options, &all->items[all->n++], err);
    }
    json_decref(record);
    return status;
}

base_status_t sim_validate(const char *name, const char *text, size_t length,
                           const sim_validate_options_t *options, sim_comparisons_t *comparisons_p,
                           base_err_t *err)
{
    const char *end = text + length;
    base_status_t status = BASE_OK;
    for (unsigned long number = 1; text < end && status == BASE_OK; number++) {
        const char *newline = memchr(text, '\n', (size_t)(end - text));
        size_t n = newline != NULL ? (size_t)(newline - text) : (size_t)(end - text);
        status = validate_line(name, number, text, n, options, comparisons_p, err);
        text += n + 1;
    }
    return status;
}

void sim_comparisons_fini(sim_comparisons_t *comparisons)
{
    for (size_t i = 0; i < comparisons->n; i++) {
        sim_comparison_t *c = &comparisons->items[i];
        free(c->id);
        free(c->family);
        free(c->reason);
        free(c->notes);
        json_decref(c->all_measured);
    }
    free(comparisons->items);
    memset(comparisons, 0, sizeof(*comparisons));
}
