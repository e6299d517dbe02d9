/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/study/estimate_report.h"

#include "sim/base/units.h"
#include "sim/base/xmem.h"
#include "sim/engine/job.h"

#include <inttypes.h>
#include <stdlib.h>

static sim_estimate_parts_t simulated_parts(const sim_holders_t *h)
{
    uint64_t weights = sim_holders_category(h, SIM_CAT_PARAMETERS) +
                       sim_holders_category(h, SIM_CAT_GRADIENTS) +
                       sim_holders_category(h, SIM_CAT_OPTIMIZER);
    uint64_t total = sim_holders_total(h);
    return (sim_estimate_parts_t){ (double)weights, (double)(total - weights), (double)total };
}

static void estimate(const sim_scenario_t *scenario, sim_estimate_report_t *r)
{
    sim_estimate_input_t in;
    sim_estimate_input(scenario, &in);
    sim_estimate_t m = sim_estimate_megatron(&in);
    r->megatron =
        (sim_estimate_parts_t){ m.weight_and_optimizer_bytes, m.activation_bytes, m.total_bytes };
    r->megatron_line = sim_estimate_megatron_line(&m);
    sim_estimate_bridge_t b;
    base_err_t err;
    r->has_bridge = sim_estimate_bridge(&in, &b, &err) == BASE_OK;
    if (!r->has_bridge) {
        r->bridge_error = base_xstrdup(err.text);
        return;
    }
    double weights = b.dense_bytes + b.routed_bytes;
    r->bridge = (sim_estimate_parts_t){ weights, b.activation_bytes, weights + b.activation_bytes };
    r->bridge_line = sim_estimate_bridge_line(&b);
}

base_status_t sim_estimate_report_init(sim_estimate_report_t *report_p,
                                       const sim_scenario_t *scenario, base_err_t *err)
{
    sim_job_t job;
    sim_job_options_t options = { .unlimited = true };
    base_status_t status = sim_job_play(scenario, &options, &job, err);
    if (status != BASE_OK)
        return status;
    const sim_rank_result_t *most = &job.results[0];
    for (uint32_t c = 1; c < job.classes.n_classes; c++) {
        if (job.results[c].max_allocated_bytes > most->max_allocated_bytes)
            most = &job.results[c];
    }
    *report_p = (sim_estimate_report_t){ .rank = most->rank,
                                         .coord = most->coord,
                                         .at_peak = most->at_peak,
                                         .max_reserved_bytes = most->max_reserved_bytes,
                                         .simulated = simulated_parts(&most->at_peak) };
    estimate(scenario, report_p);
    sim_job_fini(&job);
    return BASE_OK;
}

void sim_estimate_report_fini(sim_estimate_report_t *report)
{
    free(report->megatron_line);
    free(report->bridge_line);
    free(report->bridge_error);
    *report = (sim_estimate_report_t){ 0 };
}

static double percent(double estimated, double simulated)
{
    return simulated > 0 ? 100 * (estimated - simulated) / simulated : 0;
}

static void print_line(FILE *out, const char *name, double simulated, double megatron,
                       const double *bridge)
{
    char size[BASE_BYTES_TEXT];
    fprintf(out, "%-24s %12s", name, base_bytes_format((uint64_t)simulated, size));
    fprintf(out, "  %12s %+8.1f %%", base_bytes_format((uint64_t)megatron, size),
            percent(megatron, simulated));
    if (bridge != NULL)
        fprintf(out, "  %12s %+8.1f %%", base_bytes_format((uint64_t)*bridge, size),
                percent(*bridge, simulated));
    fputc('\n', out);
}

void sim_estimate_report_text(const sim_estimate_report_t *r, const char *name, FILE *out)
{
    const sim_estimate_parts_t *s = &r->simulated, *m = &r->megatron, *b = &r->bridge;
    char size[BASE_BYTES_TEXT];
    fprintf(out,
            "%s: closed-form estimators beside the simulation, the GPU that allocates most: rank "
            "%" PRIu32 "\n\n",
            name, r->rank);
    fprintf(out, "%-24s %12s  %23s  %23s\n", "", "simulation", "Megatron-LM estimator",
            r->has_bridge ? "Bridge estimator" : "");
    print_line(out, "weights and optimizer", s->weight_and_optimizer_bytes,
               m->weight_and_optimizer_bytes,
               r->has_bridge ? &b->weight_and_optimizer_bytes : NULL);
    print_line(out, "activations and the rest", s->activation_bytes, m->activation_bytes,
               r->has_bridge ? &b->activation_bytes : NULL);
    print_line(out, "allocated at the peak", s->total_bytes, m->total_bytes,
               r->has_bridge ? &b->total_bytes : NULL);
    fprintf(out, "%-24s %12s  no estimator knows the allocator\n", "reserved at the peak",
            base_bytes_format(r->max_reserved_bytes, size));
    fputs("\nsimulated, by category:", out);
    for (int i = 0; i < SIM_N_CATEGORIES; i++) {
        uint64_t bytes = sim_holders_category(&r->at_peak, (sim_category_t)i);
        if (bytes > 0)
            fprintf(out, "%s %s %s", i > 0 ? "," : "", sim_category_name((sim_category_t)i),
                    base_bytes_format(bytes, size));
    }
    fprintf(out, "\n\nMegatron-LM prints:     %s\n", r->megatron_line);
    if (r->has_bridge)
        fprintf(out, "Megatron-Bridge prints: %s\n", r->bridge_line);
    else
        fprintf(out, "Megatron-Bridge refuses: %s\n", r->bridge_error);
}

static json_t *parts_json(const sim_estimate_parts_t *parts)
{
    return json_pack("{s:f, s:f, s:f}", "weight_and_optimizer_bytes",
                     parts->weight_and_optimizer_bytes, "activation_bytes", parts->activation_bytes,
                     "total_bytes", parts->total_bytes);
}

static json_t *estimated_json(const sim_estimate_parts_t *parts, const sim_estimate_parts_t *sim,
                              const char *line)
{
    json_t *object = parts_json(parts);
    sim_estimate_parts_t difference = { parts->weight_and_optimizer_bytes -
                                            sim->weight_and_optimizer_bytes,
                                        parts->activation_bytes - sim->activation_bytes,
                                        parts->total_bytes - sim->total_bytes };
    json_object_set_new(object, "difference", parts_json(&difference));
    json_object_set_new(object, "line", json_string(line));
    return object;
}

json_t *sim_estimate_report_json(const sim_estimate_report_t *r, const char *name)
{
    json_t *simulated = json_object(), *categories = json_object(), *estimated = json_object();
    json_object_set_new(simulated, "rank", json_integer(r->rank));
    json_object_set_new(simulated, "weight_and_optimizer_bytes",
                        json_integer((json_int_t)r->simulated.weight_and_optimizer_bytes));
    json_object_set_new(simulated, "activation_bytes",
                        json_integer((json_int_t)r->simulated.activation_bytes));
    json_object_set_new(simulated, "max_allocated_bytes",
                        json_integer((json_int_t)r->simulated.total_bytes));
    json_object_set_new(simulated, "max_reserved_bytes",
                        json_integer((json_int_t)r->max_reserved_bytes));
    for (int i = 0; i < SIM_N_CATEGORIES; i++)
        json_object_set_new(
            categories, sim_category_name((sim_category_t)i),
            json_integer((json_int_t)sim_holders_category(&r->at_peak, (sim_category_t)i)));
    json_object_set_new(simulated, "categories", categories);
    json_object_set_new(estimated, "megatron",
                        estimated_json(&r->megatron, &r->simulated, r->megatron_line));
    json_object_set_new(estimated, "bridge",
                        r->has_bridge ? estimated_json(&r->bridge, &r->simulated, r->bridge_line)
                                      : json_pack("{s:s}", "refused", r->bridge_error));
    return json_pack("{s:s, s:s, s:s, s:o, s:o}", "schema", "mbsim.estimate/1", "version",
                     PACKAGE_VERSION, "name", name, "simulated", simulated, "estimated", estimated);
}
