/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/base/xmem.h"
#include "sim/engine/outside.h"
#include "sim/report/moment.h"
#include "sim/report/placement.h"
#include "sim/report/real.h"
#include "sim/report/report.h"
#include "sim/scenario/keys.h"

#include <stdlib.h>
#include <string.h>

static void set_uint(json_t *object, const char *key, uint64_t value)
{
    json_object_set_new(object, key, json_integer((json_int_t)value));
}

static void set_text(json_t *object, const char *key, const char *value)
{
    json_object_set_new(object, key, json_string(value));
}

/* What an allocator has; null when none was played. */
static void set_reserved(const sim_report_t *report, json_t *object, const char *key,
                         uint64_t value)
{
    if (sim_report_is_live(report))
        json_object_set_new(object, key, json_null());
    else
        set_uint(object, key, value);
}

/* Without an allocator it may fit, or not. */
static json_t *fits_json(const sim_report_t *report, bool fits)
{
    return fits && sim_report_is_live(report) ? json_null() : json_boolean(fits);
}

/* ---- scenario ---- */

static json_t *key_value(const sim_key_t *key, const void *field)
{
    uint64_t number;
    double real;
    switch (key->type) {
    case SIM_KEY_COUNT:
    case SIM_KEY_BYTES:
        memcpy(&number, field, sizeof(number));
        return json_integer((json_int_t)number);
    case SIM_KEY_BOOL:
        return json_boolean(*(const bool *)field);
    case SIM_KEY_REAL:
        memcpy(&real, field, sizeof(real));
        return json_real(real);
    default: {
        char *text = sim_key_format(key, field);
        json_t *value = text != NULL ? json_string(text) : json_null();
        free(text);
        return value;
    }
    }
}

/* Every key by section: numbers, booleans, texts; sizes in bytes; null = not given. */
static json_t *scenario_json(const sim_scenario_t *scenario)
{
    size_t n;
    const sim_key_t *keys = sim_keys(&n);
    json_t *all = json_object();
    for (size_t i = 0; i < n; i++) {
        json_t *section = json_object_get(all, keys[i].section);
        if (section == NULL) {
            section = json_object();
            json_object_set_new(all, keys[i].section, section);
        }
        json_object_set_new(section, keys[i].name,
                            key_value(&keys[i], (const char *)scenario + keys[i].offset));
    }
    return all;
}

/* ---- one rank ---- */

static json_t *moment_json(const sim_moment_t *m)
{
    json_t *moment = json_object();
    set_uint(moment, "iteration", m->iteration);
    set_text(moment, "phase", sim_phase_name((sim_phase_t)m->phase));
    bool in_pass = sim_moment_is_in_pass(m);
    json_object_set_new(moment, "microbatch", in_pass ? json_integer(m->microbatch) : json_null());
    json_object_set_new(moment, "chunk", in_pass ? json_integer(m->chunk) : json_null());
    json_object_set_new(moment, "layer",
                        m->layer != SIM_NO_LAYER ? json_integer(m->layer) : json_null());
    set_text(moment, "module", sim_module_name((sim_module_t)m->module));
    return moment;
}

/* Both breakdowns of the same bytes; each adds up to the allocated bytes. */
static void set_holders(json_t *object, const sim_holders_t *holders)
{
    json_t *categories = json_object(), *modules = json_object();
    for (int i = 0; i < SIM_N_CATEGORIES; i++)
        set_uint(categories, sim_category_name((sim_category_t)i),
                 sim_holders_category(holders, (sim_category_t)i));
    for (int i = 0; i < SIM_N_MODULES; i++)
        set_uint(modules, sim_module_name((sim_module_t)i),
                 sim_holders_module(holders, (sim_module_t)i));
    json_object_set_new(object, "categories", categories);
    json_object_set_new(object, "modules", modules);
}

/* Lines that add up to outside_bytes. */
static json_t *outside_json(const sim_report_t *report, uint32_t rank)
{
    sim_outside_t o;
    json_t *outside = json_object();
    sim_outside_init(&o, report->scenario, rank);
    for (uint32_t i = 0; i < o.n_lines; i++)
        set_uint(outside, o.lines[i].name, o.lines[i].bytes);
    sim_outside_fini(&o);
    return outside;
}

static json_t *ledger_json(const sim_report_t *report, const sim_rank_result_t *r)
{
    sim_ledger_t l = sim_report_ledger(report, r);
    json_t *ledger = json_object();
    set_uint(ledger, "total_bytes", l.total_bytes);
    set_uint(ledger, "headroom_bytes", l.headroom_bytes);
    set_uint(ledger, "device_used_bytes", l.device_used_bytes);
    set_uint(ledger, "outside_bytes", l.outside_bytes);
    json_object_set_new(ledger, "outside", outside_json(report, r->rank));
    set_reserved(report, ledger, "reserved_bytes", l.reserved_bytes);
    set_reserved(report, ledger, "cached_bytes", l.cached_bytes);
    set_uint(ledger, "allocated_bytes", l.allocated_bytes);
    set_holders(ledger, &r->at_peak);
    return ledger;
}

static json_t *iterations_json(const sim_report_t *report, const sim_rank_result_t *r)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < r->n_iterations; i++) {
        const sim_iteration_t *it = &r->iterations[i];
        json_t *one = json_object();
        set_uint(one, "iteration", i + 1);
        set_uint(one, "allocated_bytes", it->allocated_bytes);
        set_reserved(report, one, "reserved_bytes", it->reserved_bytes);
        set_uint(one, "max_allocated_bytes", it->max_allocated_bytes);
        set_reserved(report, one, "max_reserved_bytes", it->max_reserved_bytes);
        json_array_append_new(list, one);
    }
    return list;
}

static json_t *extras_json(const sim_report_t *report, const sim_rank_result_t *r)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < r->n_extras; i++) {
        const sim_extra_t *extra = &r->extras[i];
        json_t *one = json_object();
        set_text(one, "moment", sim_phase_name((sim_phase_t)extra->which));
        set_uint(one, "max_allocated_bytes", extra->max_allocated_bytes);
        set_reserved(report, one, "max_reserved_bytes", extra->max_reserved_bytes);
        json_array_append_new(list, one);
    }
    return list;
}

static json_t *out_of_memory_json(const sim_report_t *report, const sim_rank_result_t *r)
{
    if (!r->is_out_of_memory)
        return json_null();
    json_t *oom = json_object();
    json_object_set_new(oom, "moment", moment_json(&r->oom_moment));
    set_text(oom, "tensor", r->oom_tensor);
    set_uint(oom, "asked_bytes", r->oom_requested_bytes);
    set_uint(oom, "tried_to_allocate_bytes", r->oom.requested_bytes);
    set_uint(oom, "device_total_bytes", r->oom.device_total_bytes);
    set_uint(oom, "device_free_bytes", r->oom.device_free_bytes);
    set_uint(oom, "allocated_bytes", r->oom.allocated_bytes);
    set_reserved(report, oom, "reserved_bytes", r->oom.reserved_bytes);
    set_reserved(report, oom, "private_pool_bytes", r->oom.mempools_idle_bytes);
    set_reserved(report, oom, "reserved_unallocated_bytes",
                 r->oom.reserved_bytes - r->oom.allocated_bytes - r->oom.mempools_idle_bytes);
    set_reserved(report, oom, "largest_free_block_bytes", r->oom.largest_free_block_bytes);
    set_holders(oom, &r->at_oom);
    return oom;
}

/* What equal ranks have in common. */
static json_t *class_json(const sim_report_t *report, const sim_rank_result_t *r)
{
    json_t *one = json_object();
    sim_ledger_t l = sim_report_ledger(report, r);
    json_object_set_new(one, "fits", fits_json(report, !r->is_out_of_memory));
    set_uint(one, "n_parameters", r->n_parameters);
    set_uint(one, "max_allocated_bytes", l.allocated_bytes);
    set_reserved(report, one, "max_reserved_bytes", l.reserved_bytes);
    set_uint(one, "device_used_bytes", l.device_used_bytes);
    set_uint(one, "headroom_bytes", l.headroom_bytes);
    json_object_set_new(one, "allocated_moment", moment_json(&r->allocated_moment));
    json_object_set_new(one, "reserved_moment",
                        sim_report_is_live(report) ? json_null()
                                                   : moment_json(&r->reserved_moment));
    json_object_set_new(one, "ledger", ledger_json(report, r));
    json_object_set_new(one, "iterations", iterations_json(report, r));
    json_object_set_new(one, "beside_the_steps", extras_json(report, r));
    set_uint(one, "n_allocator_ops", r->n_allocator_ops);
    set_reserved(report, one, "n_alloc_retries", r->n_alloc_retries);
    set_uint(one, "host_bytes", r->host_bytes);
    set_reserved(report, one, "graph_pool_bytes", r->mempools.reserved_bytes);
    set_reserved(report, one, "graph_pool_idle_bytes", r->mempools.idle_bytes);
    json_object_set_new(one, "out_of_memory", out_of_memory_json(report, r));
    return one;
}

static json_t *coordinates_json(const sim_scenario_t *scenario, uint32_t rank)
{
    topo_coord_t c = { 0 };
    topo_grid_coord(&scenario->grid, rank, &c, NULL); /* rank < world_size: cannot fail */
    json_t *coordinates = json_object();
    set_uint(coordinates, "tp", c.tp);
    set_uint(coordinates, "cp", c.cp);
    set_uint(coordinates, "dp", c.dp);
    set_uint(coordinates, "pp", c.pp);
    set_uint(coordinates, "etp", c.etp);
    set_uint(coordinates, "ep", c.ep);
    set_uint(coordinates, "edp", c.edp);
    return coordinates;
}

static json_t *ranks_json(const sim_report_t *report)
{
    const sim_classes_t *classes = &report->job->classes;
    json_t **common = base_xcalloc(classes->n_classes, sizeof(json_t *));
    json_t *list = json_array();
    for (uint32_t rank = 0; rank < classes->n_ranks; rank++) {
        if (!sim_report_shows(report, rank))
            continue;
        uint32_t c = classes->of_rank[rank];
        if (common[c] == NULL)
            common[c] = class_json(report, &report->job->results[c]);
        json_t *one = json_object();
        set_uint(one, "rank", rank);
        json_object_set_new(one, "coordinates", coordinates_json(report->scenario, rank));
        json_object_update(one, common[c]); /* shares the parts */
        json_array_append_new(list, one);
    }
    for (uint32_t c = 0; c < classes->n_classes; c++)
        json_decref(common[c]);
    free(common);
    return list;
}

/* ---- verdict, worst rank ---- */

static json_t *out_of_memory_ranks(const sim_report_t *report)
{
    json_t *list = json_array();
    for (uint32_t rank = 0; rank < report->job->classes.n_ranks; rank++) {
        if (sim_report_shows(report, rank) && sim_job_result(report->job, rank)->is_out_of_memory)
            json_array_append_new(list, json_integer(rank));
    }
    return list;
}

static json_t *verdict_json(const sim_report_t *report)
{
    static const char *const causes[] = {
        [SIM_CAUSE_CAPACITY] = "capacity", [SIM_CAUSE_FRAGMENTATION] = "fragmentation"
    };
    const sim_verdict_t *v = &report->verdict;
    bool fits = v->n_out_of_memory == 0;
    json_t *verdict = json_object();
    json_object_set_new(verdict, "fits", fits_json(report, fits));
    set_uint(verdict, "worst_rank", v->worst_rank);
    json_object_set_new(verdict, "out_of_memory_ranks", out_of_memory_ranks(report));
    set_uint(verdict, "n_ranks_that_retry", v->n_retrying);
    if (fits) {
        set_uint(verdict, "headroom_bytes", v->headroom_bytes);
        return verdict;
    }
    set_text(verdict, "cause", causes[v->cause]);
    if (v->need_is_known) {
        set_uint(verdict, "needed_allocated_bytes", v->needed_allocated_bytes);
        set_reserved(report, verdict, "needed_reserved_bytes", v->needed_reserved_bytes);
        set_uint(verdict, "misses_by_bytes", v->misses_by_bytes);
    }
    json_object_set_new(verdict, "fits_with_expandable_segments",
                        v->fits_expandable == SIM_ANSWER_NOT_ASKED
                            ? json_null()
                            : json_boolean(v->fits_expandable == SIM_ANSWER_YES));
    if (v->fits_expandable == SIM_ANSWER_YES)
        set_uint(verdict, "reserved_bytes_with_expandable_segments", v->expandable_reserved_bytes);
    return verdict;
}

static json_t *alive_json(const sim_rank_result_t *r)
{
    json_t *list = json_array();
    for (uint32_t i = 0; i < r->n_alive; i++) {
        const sim_alive_t *a = &r->alive[i];
        bool in_pass = sim_phase_is_pass((sim_phase_t)a->phase);
        json_t *one = json_object();
        set_text(one, "name", a->name);
        set_uint(one, "bytes", a->block_bytes);
        set_text(one, "category", sim_category_name((sim_category_t)a->category));
        set_text(one, "module", sim_module_name((sim_module_t)a->module));
        if (a->layer != SIM_NO_LAYER)
            set_uint(one, "layer", a->layer);
        set_uint(one, "chunk", a->chunk);
        if (in_pass)
            set_uint(one, "microbatch", a->microbatch);
        set_text(one, "made_in", sim_phase_name((sim_phase_t)a->phase));
        json_array_append_new(list, one);
    }
    return list;
}

static void set_when(json_t *object, coll_moment_t at)
{
    set_uint(object, "iteration", at.iteration);
    set_text(object, "phase", coll_phase_name(at.phase));
}

static json_t *communicator_json(const sim_outside_line_t *line)
{
    json_t *comm = json_object(), *steps = json_array();
    set_uint(comm, "n_ranks", line->spread.n_ranks);
    set_uint(comm, "n_nodes", line->spread.n_nodes);
    set_uint(comm, "coll_channels", line->channels.coll);
    set_uint(comm, "nvls_channels", line->channels.nvls);
    set_uint(comm, "p2p_channels", line->channels.p2p);
    set_uint(comm, "p2p_channels_per_peer", line->channels.per_peer);
    for (uint32_t i = 0; i < line->n_steps; i++) {
        json_t *step = json_object();
        set_text(step, "what", line->steps[i].what);
        set_when(step, line->steps[i].at);
        set_uint(step, "bytes", line->steps[i].bytes);
        json_array_append_new(steps, step);
    }
    json_object_set_new(comm, "steps", steps);
    return comm;
}

/* What is on the device beside PyTorch, with bounds, moment and source. */
static json_t *outside_lines_json(const sim_report_t *report)
{
    sim_outside_t o;
    json_t *list = json_array();
    sim_outside_init(&o, report->scenario, report->worst.rank);
    for (uint32_t i = 0; i < o.n_lines; i++) {
        const sim_outside_line_t *line = &o.lines[i];
        json_t *one = json_object();
        set_text(one, "name", line->name);
        set_uint(one, "bytes", line->bytes);
        set_uint(one, "least_bytes", line->low);
        set_uint(one, "most_bytes", line->high);
        set_when(one, line->at);
        set_text(one, "source", line->source);
        if (line->is_communicator)
            json_object_set_new(one, "communicator", communicator_json(line));
        json_array_append_new(list, one);
    }
    sim_outside_fini(&o);
    return list;
}

/* Everything that is alive on the worst rank, at its peak or when it ran out of memory. */
static json_t *worst_json(const sim_report_t *report)
{
    const sim_rank_result_t *w = &report->worst;
    json_t *worst = json_object();
    set_uint(worst, "rank", w->rank);
    json_object_set_new(worst, "moment",
                        moment_json(w->is_out_of_memory ? &w->oom_moment : &w->allocated_moment));
    json_object_set_new(worst, "tensors", alive_json(w));
    json_object_set_new(worst, "outside", outside_lines_json(report));
    return worst;
}

/* By name: low, likely, high. */
static json_t *routing_json(const sim_report_t *report)
{
    json_t *routing = json_object();
    for (int i = 0; i < SIM_N_ROUTING_CASES; i++) {
        const sim_routing_case_t *c = &report->routing[i];
        json_t *object = json_object();
        json_object_set_new(object, "imbalance", json_real(c->imbalance));
        json_object_set_new(object, "fits", fits_json(report, c->fits));
        json_object_set_new(object, "need_is_known", json_boolean(c->need_is_known));
        set_uint(object, "max_allocated_bytes", c->allocated_bytes);
        set_reserved(report, object, "max_reserved_bytes", c->reserved_bytes);
        json_object_set_new(routing, sim_routing_case_names[i], object);
    }
    return routing;
}

static json_t *time_json(const sim_step_time_t *t)
{
    json_t *time = json_object();
    json_object_set_new(time, "is_estimate", json_true());
    set_uint(time, "step_ns", t->step_ns);
    set_uint(time, "compute_ns", t->compute_ns);
    set_uint(time, "exposed_comm_ns", t->exposed_comm_ns);
    set_uint(time, "launch_ns", t->launch_ns);
    set_uint(time, "grad_sync_ns", t->grad_sync_ns);
    set_uint(time, "optimizer_ns", t->optimizer_ns);
    set_uint(time, "param_gather_ns", t->param_gather_ns);
    set_uint(time, "bubble_ns", t->bubble_ns);
    json_object_set_new(time, "tokens_per_s", json_real(t->tokens_per_s));
    json_object_set_new(time, "model_flops", json_real(t->model_flops));
    json_object_set_new(time, "tflops_per_s", json_real(t->tflops_per_s));
    json_object_set_new(time, "mfu", json_real(t->mfu));
    return time;
}

json_t *sim_report_json(const sim_report_t *report)
{
    json_t *root = json_object();
    set_text(root, "schema", "mbsim.report/1");
    set_text(root, "version", PACKAGE_VERSION);
    set_text(root, "name", report->name);
    set_text(root, "mode", sim_mode_name(report->scenario->mode));
    json_object_set_new(root, "scenario", scenario_json(report->scenario));
    json_object_set_new(root, "verdict", verdict_json(report));
    json_object_set_new(root, "time", time_json(&report->time));
    json_object_set_new(root, "ranks", ranks_json(report));
    json_object_set_new(root, "worst", worst_json(report));
    json_object_set_new(root, "device", sim_real_json(report));
    if (report->has_routing)
        json_object_set_new(root, "routing", routing_json(report));
    if (report->placement != NULL)
        json_object_set_new(root, "placement", sim_placement_json(report->placement));
    return root;
}
