/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/study/advise.h"

#include "sim/base/xmem.h"

#include <stdlib.h>
#include <string.h>

/* Less than this share of the device is not worth a change. */
enum { WORTH_DIVISOR = 200 };

/* Nor is less than this share of the throughput worth results that differ. */
static const double worth_other_results = 0.01;

/* Apply the settings of a change to a resolved scenario, and resolve it again. False, with the
 * first reason in *why_p (the caller frees), when it is not legal then. */
static bool apply(sim_scenario_t *s, const sim_change_t *change, char **why_p)
{
    base_diag_t diag;
    base_diag_init(&diag);
    bool ok = true;
    for (size_t i = 0; i < change->n_settings && ok; i++)
        ok = sim_scenario_set_text(s, change->settings[i], change->name, &diag);
    ok = ok && sim_scenario_resolve(s, &diag);
    if (!ok && why_p != NULL) {
        const char *text = diag.n > 0 ? strstr(diag.text[0], ": ") : NULL; /* after the origin */
        *why_p = base_xstrdup(text != NULL ? text + 2 : "not legal");
    }
    base_diag_fini(&diag);
    return ok;
}

/* Quickly, on one rank of each stage; what fits there is then tried on all ranks. */
static base_status_t try_scenario(const sim_scenario_t *s, uint64_t margin_bytes, sim_outcome_t *o,
                                  base_err_t *err)
{
    base_status_t status = sim_outcome_of(s, SIM_RANKS_STAGES, margin_bytes, o, err);
    if (status == BASE_OK && o->status == SIM_STATUS_FITS)
        status = sim_outcome_of(s, SIM_RANKS_ALL, margin_bytes, o, err);
    return status;
}

static void copy_resolved(sim_scenario_t *copy_p, const sim_scenario_t *s)
{
    base_diag_t diag;
    base_diag_init(&diag);
    sim_scenario_copy(copy_p, s);
    sim_scenario_resolve(copy_p, &diag); /* was legal */
    base_diag_fini(&diag);
}

static int64_t saved_bytes(const sim_outcome_t *before, const sim_outcome_t *after)
{
    return (int64_t)before->device_used_bytes - (int64_t)after->device_used_bytes;
}

double sim_advice_throughput_change(const sim_outcome_t *before, const sim_outcome_t *after)
{
    if (before->tokens_per_s <= 0 || after->n_gpus == 0)
        return 0;
    return after->tokens_per_s / after->n_gpus / (before->tokens_per_s / before->n_gpus) - 1;
}

/* The change alone. A scenario that cannot be simulated so is one more reason against it. */
static void try_alone(const sim_scenario_t *scenario, sim_advice_t *advice, sim_change_t *change)
{
    sim_scenario_t s;
    base_err_t err;
    copy_resolved(&s, scenario);
    if (apply(&s, change, &change->why_not)) {
        change->is_tried = try_scenario(&s, advice->margin_bytes, &change->alone, &err) == BASE_OK;
        if (!change->is_tried)
            change->why_not = base_xstrdup(err.text);
        change->saved_bytes = saved_bytes(&advice->before, &change->alone);
        change->throughput_change = sim_advice_throughput_change(&advice->before, &change->alone);
    }
    sim_scenario_fini(&s);
}

static uint64_t worth(const sim_advice_t *advice)
{
    return advice->before.device_bytes / WORTH_DIVISOR;
}

/* All chosen changes but `left_out`, in order, each described for what the ones before make of the
 * scenario. False when that is not legal. */
static bool apply_chosen(sim_scenario_t *s, const sim_advice_t *advice, size_t left_out)
{
    bool ok = true;
    for (size_t i = 0; i < advice->n_changes && ok; i++) {
        if (!advice->changes[i].is_chosen || i == left_out)
            continue;
        sim_change_t change;
        sim_change_init(&change, advice->changes[i].kind, s);
        ok = change.n_settings > 0 && apply(s, &change, NULL);
        sim_change_fini(&change);
    }
    return ok;
}

/* Add change `i` to what is chosen, if that helps on top of it. */
static base_status_t consider(sim_advice_t *advice, sim_scenario_t *current, size_t i,
                              base_err_t *err)
{
    sim_change_t change;
    sim_scenario_t next;
    sim_outcome_t outcome;
    base_status_t status = BASE_OK;
    if (advice->changes[i].needs_gpus && !advice->more_gpus)
        return BASE_OK;
    sim_change_init(&change, advice->changes[i].kind, current);
    copy_resolved(&next, current);
    if (change.n_settings > 0 && apply(&next, &change, NULL)) {
        status = try_scenario(&next, advice->margin_bytes, &outcome, err);
        bool fits = status == BASE_OK && outcome.status == SIM_STATUS_FITS;
        if (fits || (status == BASE_OK && outcome.device_used_bytes + worth(advice) <=
                                              advice->after.device_used_bytes)) {
            sim_scenario_t old = *current;
            *current = next;
            next = old;
            advice->changes[i].is_chosen = true;
            advice->after = outcome;
            advice->fits_after = fits;
        }
    }
    sim_scenario_fini(&next);
    sim_change_fini(&change);
    return status;
}

/* The chosen change that costs most and was not looked at yet; n_changes = none. */
static size_t costliest(const sim_advice_t *advice, const bool *seen)
{
    size_t worst = advice->n_changes;
    for (size_t i = 0; i < advice->n_changes; i++) {
        const sim_change_t *c = &advice->changes[i];
        if (!c->is_chosen || seen[i])
            continue;
        if (worst == advice->n_changes ||
            c->throughput_change <= advice->changes[worst].throughput_change)
            worst = i;
    }
    return worst;
}

/* Leave out what is not needed. */
static base_status_t prune(const sim_scenario_t *scenario, sim_advice_t *advice, base_err_t *err)
{
    base_status_t status = BASE_OK;
    bool *seen = base_xcalloc(advice->n_changes, sizeof(*seen));
    size_t i;
    while (status == BASE_OK && (i = costliest(advice, seen)) < advice->n_changes) {
        sim_scenario_t s;
        sim_outcome_t outcome;
        seen[i] = true;
        copy_resolved(&s, scenario);
        if (apply_chosen(&s, advice, i)) {
            status = try_scenario(&s, advice->margin_bytes, &outcome, err);
            if (status == BASE_OK && outcome.status == SIM_STATUS_FITS) {
                advice->changes[i].is_chosen = false;
                advice->after = outcome;
            }
        }
        sim_scenario_fini(&s);
    }
    free(seen);
    return status;
}

/* All chosen changes together. BASE_OK: *is_legal_p tells whether *outcome_p is set. */
static base_status_t try_chosen(const sim_scenario_t *scenario, const sim_advice_t *advice,
                                sim_outcome_t *outcome_p, bool *is_legal_p, base_err_t *err)
{
    sim_scenario_t s;
    base_status_t status = BASE_OK;
    copy_resolved(&s, scenario);
    *is_legal_p = apply_chosen(&s, advice, advice->n_changes);
    if (*is_legal_p)
        status = try_scenario(&s, advice->margin_bytes, outcome_p, err);
    sim_scenario_fini(&s);
    return status;
}

static bool may_stand_for(const sim_change_t *c, const sim_change_t *costly, bool keep_results)
{
    return c != costly && !c->is_chosen && c->is_tried && c->is_switch &&
           (c->keeps_results || !keep_results) && c->throughput_change > costly->throughput_change;
}

/* Add switches that cost less than change `i` alone, which was left out, until all fits.
 * *outcome_p is that of the chosen ones at the end. */
static base_status_t fill_up(const sim_scenario_t *scenario, sim_advice_t *advice, size_t i,
                             bool keep_results, sim_outcome_t *outcome_p, base_err_t *err)
{
    bool is_legal;
    base_status_t status = try_chosen(scenario, advice, outcome_p, &is_legal, err);
    if (status != BASE_OK || !is_legal)
        *outcome_p = (sim_outcome_t){ .status = SIM_STATUS_ERROR };
    for (size_t j = 0; status == BASE_OK && is_legal && j < advice->n_changes &&
                       outcome_p->status != SIM_STATUS_FITS;
         j++) {
        sim_outcome_t next;
        bool goes;
        if (!may_stand_for(&advice->changes[j], &advice->changes[i], keep_results))
            continue;
        advice->changes[j].is_chosen = true;
        status = try_chosen(scenario, advice, &next, &goes, err);
        bool helps = status == BASE_OK && goes &&
                     (next.status == SIM_STATUS_FITS ||
                      next.device_used_bytes + worth(advice) <= outcome_p->device_used_bytes);
        advice->changes[j].is_chosen = helps;
        if (helps)
            *outcome_p = next;
    }
    return status;
}

static void copy_choice(bool *to, const sim_advice_t *advice)
{
    for (size_t i = 0; i < advice->n_changes; i++)
        to[i] = advice->changes[i].is_chosen;
}

/* Where a change stands that costs more than `loss` of the throughput, see whether cheaper switches
 * do as well together. */
static base_status_t replace(const sim_scenario_t *scenario, sim_advice_t *advice,
                             bool keep_results, double loss, base_err_t *err)
{
    base_status_t status = BASE_OK;
    bool *seen = base_xcalloc(advice->n_changes, sizeof(*seen));
    bool *old = base_xcalloc(advice->n_changes, sizeof(*old));
    size_t i;
    while (status == BASE_OK && (i = costliest(advice, seen)) < advice->n_changes &&
           advice->changes[i].throughput_change < -loss) {
        sim_outcome_t outcome;
        seen[i] = true;
        copy_choice(old, advice);
        advice->changes[i].is_chosen = false;
        status = fill_up(scenario, advice, i, keep_results, &outcome, err);
        if (status == BASE_OK && outcome.status == SIM_STATUS_FITS &&
            outcome.tokens_per_s > advice->after.tokens_per_s) {
            advice->after = outcome;
            continue;
        }
        for (size_t j = 0; j < advice->n_changes; j++)
            advice->changes[j].is_chosen = old[j];
    }
    free(seen);
    free(old);
    return status;
}

/* What is to be set, and what it brings, depends on the changes before it. */
static base_status_t describe_chosen(const sim_scenario_t *scenario, sim_advice_t *advice,
                                     base_err_t *err)
{
    sim_scenario_t s;
    sim_outcome_t before = advice->before;
    base_status_t status = BASE_OK;
    copy_resolved(&s, scenario);
    for (size_t i = 0; i < advice->n_changes && status == BASE_OK; i++) {
        sim_change_t *c = &advice->changes[i], here;
        if (!c->is_chosen)
            continue;
        sim_change_init(&here, c->kind, &s);
        apply(&s, &here, NULL);
        here.is_tried = c->is_tried;
        here.alone = c->alone;
        here.saved_bytes = c->saved_bytes;
        here.throughput_change = c->throughput_change;
        here.is_chosen = true;
        status = try_scenario(&s, advice->margin_bytes, &here.then, err);
        here.then_saved_bytes = saved_bytes(&before, &here.then);
        here.then_throughput_change = sim_advice_throughput_change(&before, &here.then);
        before = here.then;
        sim_change_fini(c);
        *c = here;
    }
    if (status == BASE_OK)
        advice->after = before;
    sim_scenario_fini(&s);
    return status;
}

static base_status_t choose(const sim_scenario_t *scenario, sim_advice_t *advice, base_err_t *err)
{
    sim_scenario_t current;
    base_status_t status = BASE_OK;
    copy_resolved(&current, scenario);
    advice->after = advice->before;
    for (size_t i = 0; i < advice->n_changes && !advice->fits_after && status == BASE_OK; i++)
        status = consider(advice, &current, i, err);
    sim_scenario_fini(&current);
    if (status == BASE_OK && advice->fits_after)
        status = prune(scenario, advice, err);
    if (status == BASE_OK && advice->fits_after)
        status = replace(scenario, advice, true, 0, err);
    if (status == BASE_OK && advice->fits_after)
        status = replace(scenario, advice, false, worth_other_results, err);
    if (status == BASE_OK && advice->fits_after)
        status = prune(scenario, advice, err);
    return status == BASE_OK ? describe_chosen(scenario, advice, err) : status;
}

/* Bytes that recomputing one module more saves for each second that it adds to a step. */
static double worth_of_recompute(const sim_advice_t *advice, const sim_change_t *c)
{
    if (!c->is_tried || c->saved_bytes <= 0)
        return 0;
    double added_ns = (double)c->alone.step_ns - (double)advice->before.step_ns;
    return (double)c->saved_bytes * 1e9 / (added_ns > 1 ? added_ns : 1);
}

/* Sort the changes that recompute a module, which are beside each other; others keep their place.
 */
static void sort_recompute(sim_advice_t *advice)
{
    for (size_t i = 1; i < advice->n_changes; i++) {
        sim_change_t c = advice->changes[i];
        double value = worth_of_recompute(advice, &c);
        size_t j = i;
        for (; c.is_recompute && j > 0 && advice->changes[j - 1].is_recompute &&
               worth_of_recompute(advice, &advice->changes[j - 1]) < value;
             j--)
            advice->changes[j] = advice->changes[j - 1];
        advice->changes[j] = c;
    }
}

base_status_t sim_advise(const sim_scenario_t *scenario, uint64_t margin_bytes, bool more_gpus,
                         sim_advice_t *advice_p, base_err_t *err)
{
    sim_advice_t a = { .margin_bytes = margin_bytes, .more_gpus = more_gpus };
    base_status_t status = sim_outcome_of(scenario, SIM_RANKS_ALL, margin_bytes, &a.before, err);
    if (status != BASE_OK)
        return status;
    a.fits_already = a.before.status == SIM_STATUS_FITS;
    a.n_changes = sim_changes_n();
    a.changes = base_xcalloc(a.n_changes, sizeof(*a.changes));
    for (size_t i = 0; i < a.n_changes; i++) {
        sim_change_init(&a.changes[i], i, scenario);
        if (a.changes[i].n_settings > 0 && !a.fits_already)
            try_alone(scenario, &a, &a.changes[i]);
    }
    sort_recompute(&a);
    a.after = a.before;
    if (!a.fits_already)
        status = choose(scenario, &a, err);
    if (status == BASE_OK)
        *advice_p = a;
    else
        sim_advice_fini(&a);
    return status;
}

void sim_advice_fini(sim_advice_t *advice)
{
    for (size_t i = 0; i < advice->n_changes; i++)
        sim_change_fini(&advice->changes[i]);
    free(advice->changes);
    *advice = (sim_advice_t){ 0 };
}
