/* SPDX-License-Identifier: Apache-2.0 */
#include "config.h"

#include "sim/study/layouts.h"

#include "sim/base/units.h"
#include "sim/base/xmem.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char rule_tokens[] = "seq_length divides tokens_per_batch";
static const char rule_grid[] = "the parallel sizes fit world_size";
static const char rule_value[] = "every value is one that its key can have";

/* ---- axes ---- */

static const sim_sweep_axis_t *find_axis(const sim_sweep_axis_t *axes, size_t n, const char *key)
{
    for (size_t i = 0; i < n; i++) {
        if (strcmp(axes[i].key, key) == 0)
            return &axes[i];
    }
    return NULL;
}

static void add_value(sim_sweep_axis_t *axis, uint64_t value)
{
    axis->values = base_xrealloc(axis->values, axis->n_values + 1, sizeof(*axis->values));
    axis->values[axis->n_values++] =
        value == 0 ? base_xstrdup("none") : base_xasprintf("%" PRIu64, value);
}

static void add_divisors(sim_sweep_axis_t *axis, uint64_t whole, uint64_t first)
{
    for (uint64_t d = first; d <= whole; d++) {
        if (whole % d == 0)
            add_value(axis, d);
    }
}

/* The largest value that the key has in the sweep. */
static uint64_t largest(const sim_scenario_t *base, const char *key, uint64_t base_value)
{
    const sim_sweep_axis_t *axis = find_axis(base->sweep, base->n_sweep, key);
    uint64_t most = axis == NULL ? base_value : 0;
    for (size_t i = 0; axis != NULL && i < axis->n_values; i++) {
        uint64_t value;
        if (base_u64_parse(axis->values[i], &value))
            most = base_u64_max(most, value);
    }
    return most;
}

/* All sizes that can be legal: divisors of the world size; chunks that share the layers evenly. A
 * dense model has nothing to split over expert ranks. */
static void expand_auto(sim_sweep_axis_t *axis, const sim_scenario_t *base)
{
    uint64_t world = largest(base, "world_size", base->world_size);
    bool is_expert = strncmp(axis->key, "expert_", strlen("expert_")) == 0;
    if (is_expert && largest(base, "num_experts", base->num_experts) == 0) {
        add_value(axis, strcmp(axis->key, "expert_model_parallel_size") == 0 ? 1 : 0);
    } else if (strcmp(axis->key, "virtual_pipeline_model_parallel_size") == 0) {
        uint64_t slots = base->num_layers + base->account_for_embedding_in_pipeline_split +
                         base->account_for_loss_in_pipeline_split;
        add_value(axis, 0);
        add_divisors(axis, slots, 2);
    } else {
        add_divisors(axis, world, 1);
    }
}

static bool is_auto(const sim_sweep_axis_t *axis)
{
    return axis->n_values == 1 && strcmp(axis->values[0], "auto") == 0;
}

static void copy_axis(sim_sweep_axis_t *to, const sim_sweep_axis_t *from,
                      const sim_scenario_t *base)
{
    *to = (sim_sweep_axis_t){ .section = from->section,
                              .key = from->key,
                              .origin = base_xstrdup(from->origin) };
    if (is_auto(from)) {
        expand_auto(to, base);
        return;
    }
    to->values = base_xcalloc(from->n_values, sizeof(*to->values));
    to->n_values = from->n_values;
    for (size_t i = 0; i < from->n_values; i++)
        to->values[i] = base_xstrdup(from->values[i]);
}

static base_status_t check_axes(const sim_layouts_t *l, base_err_t *err)
{
    if (l->n_axes == 0)
        return base_err_set(err, BASE_ERR_INVAL,
                            "there is nothing to vary: the scenario has no [sweep] section with "
                            "KEY = VALUES");
    const sim_sweep_axis_t *batch = find_axis(l->axes, l->n_axes, "global_batch_size");
    if (l->base->sweep_tokens_per_batch != 0 && batch != NULL)
        return base_err_set(err, BASE_ERR_INVAL,
                            "%s: sweep.global_batch_size: tokens_per_batch says it already",
                            batch->origin);
    for (size_t i = 0; i < l->n_axes; i++) {
        if (l->axes[i].n_values == 0)
            return base_err_set(err, BASE_ERR_INVAL,
                                "%s: sweep.%s: auto needs world_size and num_layers",
                                l->axes[i].origin, l->axes[i].key);
    }
    return BASE_OK;
}

base_status_t sim_layouts_init(sim_layouts_t *layouts_p, const sim_scenario_t *base,
                               base_err_t *err)
{
    sim_layouts_t l = { .base = base, .n_axes = base->n_sweep, .n_combinations = 1 };
    l.axes = base_xcalloc(l.n_axes, sizeof(*l.axes));
    for (size_t i = 0; i < l.n_axes; i++)
        copy_axis(&l.axes[i], &base->sweep[i], base);
    base_status_t status = check_axes(&l, err);
    for (size_t i = 0; i < l.n_axes && status == BASE_OK; i++) {
        if (!base_u64_mul(l.n_combinations, l.axes[i].n_values, &l.n_combinations) ||
            l.n_combinations > SIM_LAYOUTS_MAX)
            status = base_err_set(err, BASE_ERR_INVAL,
                                  "[sweep] makes more than %d combinations; give fewer values",
                                  SIM_LAYOUTS_MAX);
    }
    if (status == BASE_OK)
        *layouts_p = l;
    else
        sim_layouts_fini(&l);
    return status;
}

void sim_layouts_fini(sim_layouts_t *l)
{
    for (size_t i = 0; i < l->n_axes; i++) {
        for (size_t v = 0; v < l->axes[i].n_values; v++)
            free(l->axes[i].values[v]);
        free(l->axes[i].values);
        free(l->axes[i].origin);
    }
    for (size_t i = 0; i < l->n_broken; i++)
        free(l->broken[i].example);
    free(l->axes);
    free(l->legal);
    free(l->broken);
    *l = (sim_layouts_t){ 0 };
}

/* The last axis varies fastest. */
static size_t digit(const sim_layouts_t *l, uint64_t combination, size_t a)
{
    for (size_t i = l->n_axes - 1; i > a; i--)
        combination /= l->axes[i].n_values;
    return (size_t)(combination % l->axes[a].n_values);
}

const char *sim_layouts_value(const sim_layouts_t *l, uint64_t combination, size_t a)
{
    return l->axes[a].values[digit(l, combination, a)];
}

/* ---- cursor ---- */

void sim_layout_cursor_init(sim_layout_cursor_t *cursor, const sim_layouts_t *layouts)
{
    *cursor = (sim_layout_cursor_t){ .layouts = layouts, .combination = UINT64_MAX };
    sim_scenario_copy(&cursor->scenario, layouts->base);
}

void sim_layout_cursor_fini(sim_layout_cursor_t *cursor)
{
    sim_scenario_fini(&cursor->scenario);
}

static bool set_values(sim_layout_cursor_t *cursor, uint64_t combination, base_diag_t *diag)
{
    const sim_layouts_t *l = cursor->layouts;
    uint64_t before = cursor->combination;
    bool ok = true;
    for (size_t a = 0; a < l->n_axes; a++) {
        size_t v = digit(l, combination, a);
        if (before != UINT64_MAX && digit(l, before, a) == v)
            continue;
        ok = sim_scenario_set(&cursor->scenario, l->axes[a].section, l->axes[a].key,
                              l->axes[a].values[v], l->axes[a].origin, diag) &&
             ok;
    }
    cursor->combination = combination;
    return ok;
}

static bool set_batch(sim_scenario_t *s, base_diag_t *diag)
{
    uint64_t tokens = s->sweep_tokens_per_batch;
    if (tokens == 0)
        return true;
    if (s->seq_length == 0 || tokens % s->seq_length != 0) {
        base_diag_add(diag,
                      "[sweep]: train.seq_length: %" PRIu64
                      " does not divide tokens_per_batch %" PRIu64,
                      s->seq_length, tokens);
        s->broken_rule = rule_tokens;
        return false;
    }
    char text[24];
    snprintf(text, sizeof(text), "%" PRIu64, tokens / s->seq_length);
    return sim_scenario_set(s, "train", "global_batch_size", text, "[sweep]", diag);
}

bool sim_layout_cursor_move(sim_layout_cursor_t *cursor, uint64_t combination, base_diag_t *diag)
{
    sim_scenario_t *s = &cursor->scenario;
    s->broken_rule = rule_value;
    return set_values(cursor, combination, diag) && set_batch(s, diag) &&
           sim_scenario_resolve(s, diag);
}

/* ---- which are legal ---- */

/* Values of the sizes that must fit the world, where they are plain numbers. */
typedef struct {
    const sim_sweep_axis_t *axis; /* NULL: the base's value for all */
    size_t index;
    uint64_t *values; /* by digit; 0 = not a number; owned */
    uint64_t base_value;
} size_axis_t;

enum { WORLD, TP, PP, CP, EP, ETP, N_SIZES };

static void size_axes_init(size_axis_t sizes[static N_SIZES], const sim_layouts_t *l)
{
    const sim_scenario_t *b = l->base;
    static const char *const keys[N_SIZES] = {
        [WORLD] = "world_size",
        [TP] = "tensor_model_parallel_size",
        [PP] = "pipeline_model_parallel_size",
        [CP] = "context_parallel_size",
        [EP] = "expert_model_parallel_size",
        [ETP] = "expert_tensor_parallel_size",
    };
    const uint64_t values[N_SIZES] = {
        [WORLD] = b->world_size,
        [TP] = b->tensor_model_parallel_size,
        [PP] = b->pipeline_model_parallel_size,
        [CP] = b->context_parallel_size,
        [EP] = b->expert_model_parallel_size,
        [ETP] = b->expert_tensor_parallel_size,
    };
    for (size_t i = 0; i < N_SIZES; i++) {
        const sim_sweep_axis_t *axis = find_axis(l->axes, l->n_axes, keys[i]);
        sizes[i] = (size_axis_t){ .axis = axis, .base_value = values[i] };
        if (axis == NULL)
            continue;
        sizes[i].index = (size_t)(axis - l->axes);
        sizes[i].values = base_xcalloc(axis->n_values, sizeof(*sizes[i].values));
        for (size_t v = 0; v < axis->n_values; v++)
            base_u64_parse(axis->values[v], &sizes[i].values[v]);
    }
}

static uint64_t size_at(const sim_layouts_t *l, const size_axis_t *size, uint64_t combination)
{
    return size->axis == NULL ? size->base_value : size->values[digit(l, combination, size->index)];
}

/* False when the combination certainly breaks the rule of the grid: cheap, and most of an automatic
 * sweep does. */
static bool may_fit_the_world(const sim_layouts_t *l, const size_axis_t sizes[static N_SIZES],
                              uint64_t combination)
{
    uint64_t n[N_SIZES];
    for (size_t i = 0; i < N_SIZES; i++)
        n[i] = size_at(l, &sizes[i], combination);
    if (n[ETP] == 0)
        n[ETP] = n[TP];
    if (n[WORLD] == 0 || n[TP] == 0 || n[PP] == 0 || n[CP] == 0 || n[EP] == 0)
        return true; /* the resolver says what is wrong */
    return n[WORLD] % (n[TP] * n[PP] * n[CP]) == 0 && n[WORLD] % (n[ETP] * n[PP] * n[EP]) == 0;
}

static void count_broken(sim_layouts_t *l, const char *rule, const base_diag_t *diag)
{
    size_t i = 0;
    while (i < l->n_broken && strcmp(l->broken[i].rule, rule) != 0)
        i++;
    if (i == l->n_broken) {
        l->broken = base_xrealloc(l->broken, l->n_broken + 1, sizeof(*l->broken));
        l->broken[l->n_broken++] = (sim_broken_rule_t){ .rule = rule };
    }
    if (l->broken[i].example == NULL && diag != NULL && diag->n > 0)
        l->broken[i].example = base_xstrdup(diag->text[0]);
    l->broken[i].n++;
}

static int most_frequent(const void *a, const void *b)
{
    const sim_broken_rule_t *x = a, *y = b;
    if (x->n != y->n)
        return x->n > y->n ? -1 : 1;
    return strcmp(x->rule, y->rule);
}

void sim_layouts_check(sim_layouts_t *l)
{
    size_axis_t sizes[N_SIZES];
    sim_layout_cursor_t cursor;
    uint64_t cap = 0;
    size_axes_init(sizes, l);
    sim_layout_cursor_init(&cursor, l);
    for (uint64_t i = 0; i < l->n_combinations; i++) {
        if (!may_fit_the_world(l, sizes, i)) {
            count_broken(l, rule_grid, NULL);
            continue;
        }
        base_diag_t diag;
        base_diag_init(&diag);
        if (!sim_layout_cursor_move(&cursor, i, &diag)) {
            count_broken(l, cursor.scenario.broken_rule, &diag);
        } else {
            if (l->n_legal == cap) {
                cap = 2 * cap + 64;
                l->legal = base_xrealloc(l->legal, cap, sizeof(*l->legal));
            }
            l->legal[l->n_legal++] = i;
        }
        base_diag_fini(&diag);
    }
    sim_layout_cursor_fini(&cursor);
    for (size_t i = 0; i < N_SIZES; i++)
        free(sizes[i].values);
    if (l->n_broken > 0)
        qsort(l->broken, l->n_broken, sizeof(*l->broken), most_frequent);
}
