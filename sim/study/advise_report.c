/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/base/units.h"
#include "sim/study/advise.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

enum { SIGNED_TEXT = BASE_BYTES_TEXT + 1 };

static const char *signed_size(int64_t bytes, char buf[static SIGNED_TEXT])
{
    char text[BASE_BYTES_TEXT];
    snprintf(buf, SIGNED_TEXT, "%s%s", bytes < 0 ? "-" : "",
             base_bytes_format(bytes < 0 ? -(uint64_t)bytes : (uint64_t)bytes, text));
    return buf;
}

static void print_outcome(const sim_outcome_t *o, FILE *out)
{
    char used[BASE_BYTES_TEXT], total[BASE_BYTES_TEXT], room[SIGNED_TEXT];
    base_bytes_format(o->device_used_bytes, used);
    base_bytes_format(o->device_bytes, total);
    if (o->headroom_bytes >= 0)
        fprintf(out, "rank %" PRIu32 " uses %s of %s, headroom %s", o->worst_rank, used, total,
                signed_size(o->headroom_bytes, room));
    else
        fprintf(out, "rank %" PRIu32 " needs %s of %s, %s too much", o->worst_rank, used, total,
                signed_size(-o->headroom_bytes, room));
    if (o->risk != SIM_RISK_NONE)
        fprintf(out, " (%s: %s)", sim_status_name(o->status), sim_risk_name(o->risk));
}

static void print_change(const sim_change_t *c, size_t number, FILE *out)
{
    char saved[SIGNED_TEXT];
    fprintf(out, "\n%2zu. %s\n", number, c->name);
    fprintf(out, "    scenario:    ");
    for (size_t i = 0; i < c->n_settings; i++)
        fprintf(out, "%s%s", i > 0 ? "  " : "", c->settings[i]);
    fprintf(out, "\n    Megatron-LM: %s\n    Bridge:      %s\n", c->megatron, c->bridge);
    fprintf(out, "    saves %s on the worst rank, throughput %+.1f %% (estimate)\n",
            signed_size(c->then_saved_bytes, saved), 100 * c->then_throughput_change);
    if (c->effect != NULL)
        fprintf(out, "    effect: %s\n", c->effect);
    if (c->conflict != NULL)
        fprintf(out, "    mind: %s\n", c->conflict);
}

static void print_tried(const sim_advice_t *a, FILE *out)
{
    fprintf(out, "\nEach change alone:\n  %-32s %12s %11s  %s\n", "", "saves", "throughput*",
            "then");
    for (size_t i = 0; i < a->n_changes; i++) {
        const sim_change_t *c = &a->changes[i];
        char saved[SIGNED_TEXT];
        if (!c->is_tried)
            continue;
        fprintf(out, "  %-32s %12s %+9.1f %%  %s\n", c->name, signed_size(c->saved_bytes, saved),
                100 * c->throughput_change, sim_status_name(c->alone.status));
    }
    fprintf(out, "Not possible here:\n");
    for (size_t i = 0; i < a->n_changes; i++) {
        if (a->changes[i].why_not != NULL)
            fprintf(out, "  %-32s %s\n", a->changes[i].name, a->changes[i].why_not);
    }
    fputs("* of tokens a second and GPU, an estimate of the virtual clock\n", out);
}

void sim_advice_text(const sim_advice_t *a, const char *name, FILE *out)
{
    char margin[BASE_BYTES_TEXT];
    base_bytes_format(a->margin_bytes, margin);
    if (a->fits_already) {
        char room[SIGNED_TEXT];
        fprintf(out,
                "%s: fits with %s headroom on rank %" PRIu32 ", the fullest: nothing has to "
                "change.\n",
                name, signed_size(a->before.headroom_bytes, room), a->before.worst_rank);
        return;
    }
    fprintf(out, "%s: ", name);
    print_outcome(&a->before, out);
    fputs("\n", out);
    if (a->fits_after) {
        fprintf(out, "The cheapest changes found that make it fit with %s to spare:\n", margin);
    } else {
        fprintf(out,
                "No set of these changes makes it fit with %s to spare; together they come "
                "to:\n",
                margin);
    }
    size_t n = 0;
    for (size_t i = 0; i < a->n_changes; i++) {
        if (a->changes[i].is_chosen)
            print_change(&a->changes[i], ++n, out);
    }
    if (n > 0) {
        fputs("\nThen ", out);
        print_outcome(&a->after, out);
        fprintf(out, "; throughput %+.1f %% (estimate)\n",
                100 * sim_advice_throughput_change(&a->before, &a->after));
    }
    print_tried(a, out);
}

static json_t *outcome_json(const sim_outcome_t *o)
{
    return json_pack("{s:s, s:s, s:I, s:I, s:I, s:I, s:I, s:I, s:f}", "status",
                     sim_status_name(o->status), "risk", sim_risk_name(o->risk), "worst_rank",
                     (json_int_t)o->worst_rank, "allocated_bytes", (json_int_t)o->allocated_bytes,
                     "reserved_bytes", (json_int_t)o->reserved_bytes, "device_used_bytes",
                     (json_int_t)o->device_used_bytes, "device_bytes", (json_int_t)o->device_bytes,
                     "headroom_bytes", (json_int_t)o->headroom_bytes, "estimated_tokens_per_s",
                     o->tokens_per_s);
}

static json_t *change_json(const sim_change_t *c)
{
    json_t *settings = json_array();
    for (size_t i = 0; i < c->n_settings; i++)
        json_array_append_new(settings, json_string(c->settings[i]));
    json_t *change =
        json_pack("{s:s, s:b, s:o, s:s?, s:s?, s:s?, s:s?, s:s?}", "name", c->name, "is_chosen",
                  c->is_chosen, "settings", settings, "megatron", c->megatron, "bridge", c->bridge,
                  "effect", c->effect, "conflict", c->conflict, "why_not", c->why_not);
    if (c->is_chosen) {
        json_object_set_new(change, "then", outcome_json(&c->then));
        json_object_set_new(change, "then_saved_bytes",
                            json_integer((json_int_t)c->then_saved_bytes));
        json_object_set_new(change, "then_estimated_throughput_change",
                            json_real(c->then_throughput_change));
    }
    if (c->is_tried) {
        json_object_set_new(change, "alone", outcome_json(&c->alone));
        json_object_set_new(change, "saved_bytes", json_integer((json_int_t)c->saved_bytes));
        json_object_set_new(change, "estimated_throughput_change", json_real(c->throughput_change));
    }
    return change;
}

json_t *sim_advice_json(const sim_advice_t *a, const char *name)
{
    json_t *changes = json_array();
    for (size_t i = 0; i < a->n_changes; i++)
        json_array_append_new(changes, change_json(&a->changes[i]));
    return json_pack("{s:s, s:s, s:s, s:I, s:b, s:b, s:o, s:o, s:o}", "schema", "mbsim.advise/1",
                     "version", PACKAGE_VERSION, "name", name, "margin_bytes",
                     (json_int_t)a->margin_bytes, "fits_already", a->fits_already, "fits_after",
                     a->fits_already || a->fits_after, "before", outcome_json(&a->before), "after",
                     outcome_json(&a->after), "changes", changes);
}
